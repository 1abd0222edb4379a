// Tables and their access policies.

import assert from "node:assert/strict";
import { test } from "node:test";
import { odata, TableClient } from "@azure/data-tables";
import { all, credential, entity, OPTIONS, refused, withServer, world } from "./harness.mjs";

withServer();

test("create and delete", async () => {
  const name = world.name();
  await world.service.createTable(name);
  // The SDK takes "exists already" and "is not there" for success.
  await world.service.createTable(name.toUpperCase());
  const found = await all(world.service.listTables({ queryOptions: { filter: odata`TableName eq ${name}` } }));
  assert.deepEqual(found.map((t) => t.name), [name]);
  await world.service.deleteTable(name);
  await world.service.deleteTable(name);
  assert.deepEqual(await all(world.service.listTables({ queryOptions: { filter: odata`TableName eq ${name}` } })), []);
});

test("a table that was deleted comes back empty", async () => {
  const table = await world.table();
  await table.createEntity(entity("p", "r"));
  await table.deleteTable();
  await refused(table.getEntity("p", "r"), 404, "TableNotFound");
  await table.createTable();
  assert.deepEqual(await all(table.listEntities()), []);
});

for (const [bad, code] of [
  ["ab", "OutOfRangeInput"],
  ["a".repeat(64), "OutOfRangeInput"],
  ["1abc", "InvalidResourceName"],
  ["my-table", "InvalidResourceName"],
]) {
  test(`${bad.slice(0, 10)} is not a name`, () => refused(world.service.createTable(bad), 400, code));
}

test("list by page, in order, from a token", async () => {
  const prefix = world.name();
  const names = ["b", "D", "a", "C", "e"].map((letter) => prefix + letter);
  for (const name of names) await world.service.createTable(name);
  const wanted = names.toSorted((a, b) => (a.toLowerCase() < b.toLowerCase() ? -1 : 1));
  const queryOptions = { filter: `TableName ge '${prefix}' and TableName lt '${prefix}z'` };
  const list = () => world.service.listTables({ queryOptions });
  assert.deepEqual((await all(list())).map((t) => t.name), wanted);
  const pages = await all(list().byPage({ maxPageSize: 2 }));
  assert.deepEqual(pages.map((page) => page.map((t) => t.name)), [wanted.slice(0, 2), wanted.slice(2, 4), wanted.slice(4)]);
  const first = (await list().byPage({ maxPageSize: 2 }).next()).value;
  const rest = await all(list().byPage({ maxPageSize: 10, continuationToken: first.continuationToken }));
  assert.deepEqual(rest.flat().map((t) => t.name), wanted.slice(2));
  for (const name of names) await world.service.deleteTable(name);
});

test("access policies", async () => {
  const table = await world.table();
  assert.equal((await table.getAccessPolicy()).length, 0);
  const start = new Date("2024-01-02T03:04:05Z");
  const expiry = new Date("2099-01-01T00:00:00Z");
  await table.setAccessPolicy([
    { id: "full", accessPolicy: { start, expiry, permission: "raud" } },
    { id: "read", accessPolicy: { permission: "r" } },
  ]);
  const found = await table.getAccessPolicy();
  assert.equal(found.length, 2);
  assert.deepEqual(
    [found[0].id, found[0].accessPolicy.permission, found[0].accessPolicy.start.getTime(), found[0].accessPolicy.expiry.getTime()],
    ["full", "raud", start.getTime(), expiry.getTime()],
  );
  assert.equal(found[1].accessPolicy.permission, "r");
  const six = [1, 2, 3, 4, 5, 6].map((n) => ({ id: `id${n}`, accessPolicy: { permission: "r" } }));
  await assert.rejects(table.setAccessPolicy(six), { statusCode: 400 });
  await table.setAccessPolicy([]);
  assert.equal((await table.getAccessPolicy()).length, 0);
});

test("policies of a missing table", async () => {
  const missing = new TableClient(world.endpoint, world.name(), credential, OPTIONS);
  await assert.rejects(missing.getAccessPolicy(), { statusCode: 404 });
});
