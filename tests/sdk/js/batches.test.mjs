// Entity group transactions.

import assert from "node:assert/strict";
import { test } from "node:test";
import { TableClient, TableTransaction } from "@azure/data-tables";
import { all, credential, entity, OPTIONS, refused, rows, withServer, world } from "./harness.mjs";

withServer();

const STALE = `W/"datetime'2001-01-01T00%3A00%3A00Z'"`;

test("every operation in one", async () => {
  const table = await world.table();
  for (const row of ["replace", "merge", "delete"]) await table.createEntity(entity("p", row, { old: 1 }));
  const transaction = new TableTransaction();
  transaction.createEntity(entity("p", "create", { n: 0 }));
  transaction.updateEntity(entity("p", "replace", { n: 1 }), "Replace");
  transaction.updateEntity(entity("p", "merge", { n: 2 }), "Merge");
  transaction.upsertEntity(entity("p", "upsert-replace", { n: 3 }), "Replace");
  transaction.upsertEntity(entity("p", "upsert-merge", { n: 4 }), "Merge");
  transaction.deleteEntity("p", "delete");
  const result = await table.submitTransaction(transaction.actions);
  assert.equal(result.status, 202);
  assert.deepEqual(result.subResponses.map((r) => r.status), [204, 204, 204, 204, 204, 204]);
  assert.ok(result.getResponseForEntity("create").etag);
  const found = Object.fromEntries((await all(table.listEntities())).map((e) => [e.rowKey, e]));
  assert.deepEqual(Object.keys(found).sort(), ["create", "merge", "replace", "upsert-merge", "upsert-replace"]);
  assert.deepEqual([found.replace.old, found.merge.old], [undefined, 1]);
  assert.equal(found.create.etag, result.getResponseForEntity("create").etag);
});

for (const at of [0, 3]) {
  test(`all or nothing, failing at ${at}`, async () => {
    const table = await world.table();
    await table.createEntity(entity("p", "there"));
    const good = [1, 2, 3, 4].map((n) => ["create", entity("p", `new${n}`)]);
    for (const [bad, status, code] of [
      [["create", entity("p", "there")], 409, "EntityAlreadyExists"],
      [["update", entity("p", "missing"), "Merge"], 404, "ResourceNotFound"],
      [["delete", entity("p", "missing")], 404, "ResourceNotFound"],
      [["update", entity("p", "there"), "Replace", { etag: STALE }], 412, "UpdateConditionNotSatisfied"],
      [["create", entity("p", "new1x", { v: "x".repeat(40000) })], 400, "PropertyValueTooLarge"],
    ]) {
      const error = await refused(table.submitTransaction(good.toSpliced(at, 0, bad)), status, code);
      assert.match(error.message, new RegExp(`^${at}:`));
    }
    assert.deepEqual(rows(await all(table.listEntities())), ["there"]);
  });
}

test("rules", async () => {
  const table = await world.table();
  const many = Array.from({ length: 101 }, (_, n) => ["create", entity("p", `${n}`)]);
  const error = await refused(table.submitTransaction(many), 400, "InvalidInput");
  assert.match(error.message, /^99:The batch request operation exceeds the maximum 100 changes per change set\./);
  const twice = [["create", entity("p", "a")], ["upsert", entity("p", "a"), "Merge"]];
  await refused(table.submitTransaction(twice), 400, "InvalidDuplicateRow");
  const missing = new TableClient(world.endpoint, world.name(), credential, OPTIONS);
  await refused(missing.submitTransaction([["create", entity("p", "a")]]), 404, "TableNotFound");
  assert.deepEqual(await all(table.listEntities()), []);
  await table.submitTransaction(many.slice(0, 100));
  assert.equal((await all(table.listEntities())).length, 100);
});
