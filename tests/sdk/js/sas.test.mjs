// Shared access signatures, as the JavaScript SDK makes them.

import assert from "node:assert/strict";
import { test } from "node:test";
import { AzureSASCredential, generateAccountSas, generateTableSas, TableClient, TableServiceClient } from "@azure/data-tables";
import { all, credential, entity, OPTIONS, refused, withServer, world } from "./harness.mjs";

withServer();

const hours = (n) => new Date(Date.now() + n * 3600_000);
const signed = (table, values) =>
  new TableClient(world.endpoint, table.tableName,
    new AzureSASCredential(generateTableSas(table.tableName, credential, { expiresOn: hours(1), ...values })), OPTIONS);
const account = (values) =>
  new TableServiceClient(world.endpoint, new AzureSASCredential(generateAccountSas(credential, { expiresOn: hours(1), ...values })),
    OPTIONS);
const DENIED = [403, "AuthorizationPermissionMismatch"];

const ACTS = {
  query: (t) => t.getEntity("p", "there"),
  add: (t) => t.createEntity(entity("p", `new${Math.random()}`)),
  update: (t) => t.updateEntity(entity("p", "there", { a: 2 }), "Merge"),
  delete: (t) => t.deleteEntity("p", "doomed"),
};

for (const granted of Object.keys(ACTS)) {
  test(`a signature for ${granted}`, async () => {
    const table = await world.table();
    await table.createEntity(entity("p", "there"));
    await table.createEntity(entity("p", "doomed"));
    const client = signed(table, { permissions: { [granted]: true } });
    for (const [act, perform] of Object.entries(ACTS)) {
      if (act === granted) await perform(client);
      else await refused(perform(client), ...DENIED);
    }
    await refused(client.upsertEntity(entity("p", "x")), ...DENIED);
  });
}

test("time, address, protocol", async () => {
  const table = await world.table();
  const permissions = { query: true };
  for (const [values, code] of [
    [{ expiresOn: hours(-1) }, "AuthenticationFailed"],
    [{ startsOn: hours(1), expiresOn: hours(2) }, "AuthenticationFailed"],
    [{ ipRange: { start: "10.1.2.3" } }, "AuthorizationSourceIPMismatch"],
    [{ protocol: "https" }, "AuthorizationProtocolMismatch"],
  ]) {
    await refused(all(signed(table, { permissions, ...values }).listEntities()), 403, code);
  }
  const good = { ipRange: { start: "127.0.0.1", end: "127.0.0.9" }, protocol: "https,http", startsOn: hours(-1) };
  assert.deepEqual(await all(signed(table, { permissions, ...good }).listEntities()), []);
});

test("key range", async () => {
  const table = await world.table();
  for (const [p, r] of [["a", "9"], ["b", "1"], ["b", "2"], ["c", "5"], ["d", "1"], ["d", "2"]]) await table.createEntity(entity(p, r));
  const client = signed(table, {
    permissions: { query: true, add: true, update: true, delete: true },
    startPartitionKey: "b", startRowKey: "2", endPartitionKey: "d", endRowKey: "1",
  });
  const found = (await all(client.listEntities())).map((e) => e.partitionKey + e.rowKey);
  assert.deepEqual(found, ["b2", "c5", "d1"]);
  await client.upsertEntity(entity("c", "6"));
  await refused(client.upsertEntity(entity("a", "9")), 403, "AuthorizationFailure");
  await refused(client.deleteEntity("d", "2"), 403, "AuthorizationFailure");
});

test("stored policy", async () => {
  const table = await world.table();
  await table.setAccessPolicy([{ id: "readers", accessPolicy: { permission: "r", expiry: hours(1), start: hours(-1) } }]);
  const client = signed(table, { identifier: "readers", expiresOn: undefined });
  assert.deepEqual(await all(client.listEntities()), []);
  await refused(client.createEntity(entity("p", "r")), ...DENIED);
  await table.setAccessPolicy([]);
  await refused(all(client.listEntities()), 403, "AuthenticationFailed");
});

test("a signature of the account", async () => {
  const name = world.name();
  const every = { query: true, write: true, delete: true, list: true, add: true, update: true };
  const all3 = account({ permissions: every, resourceTypes: "sco" });
  await all3.createTable(name);
  assert.ok((await all(all3.listTables())).some((t) => t.name === name));
  const objects = new TableClient(world.endpoint, name,
    new AzureSASCredential(generateAccountSas(credential, { expiresOn: hours(1), permissions: every, resourceTypes: "o" })), OPTIONS);
  await objects.upsertEntity(entity("p", "r", { a: 1 }));
  assert.equal((await objects.getEntity("p", "r")).a, 1);
  await objects.submitTransaction([["delete", entity("p", "r")]]);
  await refused(all(account({ permissions: every, resourceTypes: "o" }).listTables()), 403, "AuthorizationResourceTypeMismatch");
  await refused(all(account({ permissions: { query: true }, resourceTypes: "c" }).listTables()), ...DENIED);
  await all3.deleteTable(name);
});
