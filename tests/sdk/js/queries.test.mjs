// Queries: operators, types, projection, pages.

import assert from "node:assert/strict";
import { test } from "node:test";
import { odata } from "@azure/data-tables";
import { all, entity, refused, rows, withServer, world } from "./harness.mjs";

withServer();

const query = async (table, filter, select) => all(table.listEntities({ queryOptions: { filter, select } }));

// For each type: a lower, a middle and a higher value, and the literal of the middle one.
const TYPES = {
  String: [["a", "b", "bB"], "'b'"],
  Int32: [[-5, 7, 2 ** 31 - 1], "7"],
  Int64: [[-(2n ** 63n), 2n ** 40n, 2n ** 63n - 1n], `${2n ** 40n}L`],
  Double: [[-1.5, 4.25, 1e300], "4.25"],
  DateTime: [["1700", "2020", "2500"].map((y) => new Date(`${y}-01-01T00:00:00Z`)), "datetime'2020-01-01T00:00:00Z'"],
  Guid: [["0", "8", "f"].map((d) => ({ type: "Guid", value: `${d.repeat(8)}-0000-0000-0000-000000000000` })),
    "guid'88888888-0000-0000-0000-000000000000'"],
  Binary: [[new Uint8Array([0]), new Uint8Array([127]), new Uint8Array([127, 0])], "X'7f'"],
};
const MATCHES = {
  eq: ["2mid"], ne: ["1low", "3high"], lt: ["1low"], le: ["1low", "2mid"], gt: ["3high"], ge: ["2mid", "3high"],
};

for (const [type, [values, literal]] of Object.entries(TYPES)) {
  test(`every operator on ${type}`, async () => {
    const table = await world.table();
    const names = ["1low", "2mid", "3high"];
    for (const [at, value] of values.entries()) await table.createEntity(entity("p", names[at], { Value: value }));
    await table.createEntity(entity("p", "4without"));
    for (const [operator, wanted] of Object.entries(MATCHES)) {
      assert.deepEqual(rows(await query(table, `Value ${operator} ${literal}`)), wanted, operator);
    }
  });
}

test("logic, precedence, quotes, missing properties", async () => {
  const table = await world.table();
  await table.createEntity(entity("p", "1", { age: 30, name: "Ann", active: true }));
  await table.createEntity(entity("p", "2", { age: 40, name: "O'Brien", active: false }));
  await table.createEntity(entity("p", "3", { age: 50, name: "Zoë 😀", active: true }));
  await table.createEntity(entity("p", "4", { age: "unknown" }));
  for (const [filter, wanted] of [
    ["age eq 30 or age eq 50 and active eq false", "1"],
    ["(age eq 30 or age eq 50) and active", "13"],
    ["not (age eq 30)", "234"],
    ["not active", "24"],
    [odata`name eq ${"O'Brien"}`, "2"],
    [odata`name eq ${"Zoë 😀"}`, "3"],
    ["name ne ''", "123"],
    ["missing ne 1", ""],
    ["age lt 35", "14"],
    [odata`RowKey ge ${"2"} and RowKey lt ${"4"}`, "23"],
  ]) {
    assert.equal(rows(await query(table, filter)).join(""), wanted, filter);
  }
  await refused(query(table, "age eq"), 400, "InvalidInput");
  await refused(query(table, "1 eq 2"), 501, "NotImplemented");
  const [found] = await query(table, "RowKey eq '1'", ["name", "nothing"]);
  assert.deepEqual([found.name, found.nothing, found.age], ["Ann", null, undefined]);
});

test("pages and tokens", async () => {
  const table = await world.table();
  for (let at = 0; at < 1100; at += 100) {
    const batch = Array.from({ length: 100 }, (_, n) => ["create", entity("p", String(at + n).padStart(5, "0"), { n: at + n })]);
    await table.submitTransaction(batch);
  }
  const whole = await all(table.listEntities().byPage());
  assert.deepEqual(whole.map((page) => page.length), [1000, 100]);
  assert.deepEqual(whole.flat().map((e) => e.n), Array.from({ length: 1100 }, (_, n) => n));
  const pages = await all(table.listEntities({ queryOptions: { filter: "n ge 1090" } }).byPage({ maxPageSize: 4 }));
  assert.deepEqual(pages.map((page) => page.length), [4, 4, 2]);
  const first = (await table.listEntities().byPage({ maxPageSize: 700 }).next()).value;
  const rest = await all(table.listEntities().byPage({ maxPageSize: 700, continuationToken: first.continuationToken }));
  assert.equal(rest.flat()[0].n, 700);
  assert.equal(rest.flat().length, 400);
});

test("empty keys at the edge of a page", async () => {
  const table = await world.table();
  for (const [p, r] of [["", ""], ["", "r"], ["p", ""]]) await table.createEntity(entity(p, r));
  const pages = await all(table.listEntities().byPage({ maxPageSize: 1 }));
  assert.deepEqual(pages.map(([e]) => [e.partitionKey, e.rowKey]), [["", ""], ["", "r"], ["p", ""]]);
});
