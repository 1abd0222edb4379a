// Single entities: every operation, every type, every condition.

import assert from "node:assert/strict";
import { test } from "node:test";
import { all, entity, refused, withServer, world } from "./harness.mjs";

withServer();

const GUID = "c9da6455-213d-42c9-9a79-3e9149a57833";
// [title, what is stored, what comes back if that differs]
const VALUES = [
  ["empty text", ""],
  ["text", "quotes ' \" \\ / é 😀 \u0000 \u2028"],
  ["longest text", "x".repeat(32768)],
  ["smallest Int32", -(2 ** 31)],
  ["largest Int32", 2 ** 31 - 1],
  ["fraction", 0.1],
  ["huge Double", 1.5e300],
  ["whole Double", { type: "Double", value: 5 }, 5],
  ["NaN", { type: "Double", value: "NaN" }, "NaN"],
  ["infinity", { type: "Double", value: "-Infinity" }, "-Infinity"],
  ["true", true],
  ["false", false],
  ["smallest Int64", -(2n ** 63n)],
  ["Int64 beyond 2^53", 2n ** 53n + 1n],
  ["DateTime", new Date("1999-12-31T23:59:59.123Z")],
  ["earliest DateTime", new Date("1601-01-01T00:00:00Z")],
  ["Guid", { type: "Guid", value: GUID }],
  ["Binary", new Uint8Array([0, 255, 1])],
  ["empty Binary", new Uint8Array()],
];

for (const [title, stored, back = stored] of VALUES) {
  test(`round trip: ${title}`, async () => {
    const table = await world.table();
    await table.createEntity(entity("p", "r", { Value: stored }));
    const found = (await table.getEntity("p", "r")).Value;
    if (stored instanceof Uint8Array) assert.deepEqual([...found], [...stored]);
    else assert.deepEqual(found, back);
  });
}

test("types survive, also those that JavaScript cannot tell apart", async () => {
  const table = await world.table();
  await table.createEntity(
    entity("p", "r", {
      when: { type: "DateTime", value: "2020-02-03T04:05:06.1234567Z" },
      long: { type: "Int64", value: "7" },
      id: { type: "Guid", value: GUID.toUpperCase() },
    }),
  );
  const found = await table.getEntity("p", "r", { disableTypeConversion: true });
  assert.deepEqual(found.when, { type: "DateTime", value: "2020-02-03T04:05:06.1234567Z" });
  assert.deepEqual(found.long, { type: "Int64", value: "7" });
  assert.deepEqual(found.id, { type: "Guid", value: GUID });
});

for (const key of ["", "O'Brien", "a%b", "a%2Fb", "a+b", "a b", "a&b=c", '"', "é", "😀", "a:b;c,d", "(x)", "k".repeat(1024)]) {
  test(`key ${JSON.stringify(key.slice(0, 12))}`, async () => {
    const table = await world.table();
    await table.createEntity(entity(key, key, { n: 1 }));
    await table.updateEntity(entity(key, key, { m: 2 }), "Merge");
    const found = await table.getEntity(key, key);
    assert.deepEqual([found.partitionKey, found.rowKey, found.n, found.m], [key, key, 1, 2]);
    await table.submitTransaction([["upsert", entity(key, key, { n: 3 }), "Replace"]]);
    assert.equal((await all(table.listEntities()))[0].n, 3);
    await table.deleteEntity(key, key);
    await refused(table.getEntity(key, key), 404, "ResourceNotFound");
  });
}

test("insert and its refusals", async () => {
  const table = await world.table();
  const made = await table.createEntity(entity("p", "r"));
  assert.match(made.etag, /^W\/"datetime'/);
  await refused(table.createEntity(entity("p", "r")), 409, "EntityAlreadyExists");
  await refused(table.createEntity(entity("a/b", "r")), 400, "OutOfRangeInput");
  await refused(table.createEntity({ partitionKey: "p" }), 400, "PropertiesNeedValue");
  await refused(table.createEntity(entity("p", "long", { v: "x".repeat(32769) })), 400, "PropertyValueTooLarge");
  const many = Object.fromEntries(Array.from({ length: 253 }, (_, n) => [`p${n}`, n]));
  await refused(table.createEntity(entity("p", "many", many)), 400, "TooManyProperties");
});

test("select", async () => {
  const table = await world.table();
  await table.createEntity(entity("p", "r", { a: 1, b: "two" }));
  const found = await table.getEntity("p", "r", { queryOptions: { select: ["b", "missing"] } });
  assert.deepEqual([found.b, found.missing, found.a, found.partitionKey], ["two", null, undefined, undefined]);
  assert.ok(found.etag);
});

test("update and upsert, merge and replace", async () => {
  const table = await world.table();
  await table.createEntity(entity("p", "r", { a: 1, b: 2 }));
  await table.updateEntity(entity("p", "r", { b: "changed type" }), "Merge");
  let found = await table.getEntity("p", "r");
  assert.deepEqual([found.a, found.b], [1, "changed type"]);
  await table.updateEntity(entity("p", "r", { c: 3 }), "Replace");
  found = await table.getEntity("p", "r");
  assert.deepEqual([found.a, found.b, found.c], [undefined, undefined, 3]);
  for (const mode of ["Merge", "Replace"]) {
    await refused(table.updateEntity(entity("p", "missing"), mode), 404, "ResourceNotFound");
    await table.upsertEntity(entity("p", mode, { a: 1 }), mode);
    await table.upsertEntity(entity("p", mode, { b: 2 }), mode);
    assert.equal((await table.getEntity("p", mode)).a, mode === "Merge" ? 1 : undefined);
  }
});

test("conditions", async () => {
  const table = await world.table();
  const first = (await table.createEntity(entity("p", "r", { n: 1 }))).etag;
  const second = (await table.updateEntity(entity("p", "r", { n: 2 }), "Merge", { etag: first })).etag;
  assert.notEqual(second, first);
  for (const mode of ["Merge", "Replace"]) {
    const late = table.updateEntity(entity("p", "r", { n: 3 }), mode, { etag: first });
    await refused(late, 412, "UpdateConditionNotSatisfied");
  }
  await refused(table.deleteEntity("p", "r", { etag: first }), 412, "UpdateConditionNotSatisfied");
  await refused(table.deleteEntity("p", "r", { etag: "nonsense" }), 400, "InvalidInput");
  const found = await table.getEntity("p", "r");
  assert.deepEqual([found.n, found.etag], [2, second]);
  await table.deleteEntity("p", "r", { etag: second });
  await refused(table.deleteEntity("p", "r"), 404, "ResourceNotFound");
});
