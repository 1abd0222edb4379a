// The patterns of the design guide for tables.

import assert from "node:assert/strict";
import { test } from "node:test";
import { all, entity, ours, rows, withServer, world } from "./harness.mjs";

withServer();

const pad = (n, width = 6) => String(n).padStart(width, "0");

/** The entities of a query and what `x-rowhouse-plan` said about each page. */
async function planned(table, filter) {
  const plans = [];
  const onResponse = (response) => plans.push(response.headers.get("x-rowhouse-plan") ?? "");
  const found = await all(table.listEntities({ queryOptions: { filter }, onResponse }));
  return { found, plans };
}

test("point, range, partition and table queries say what they are", { skip: !ours }, async () => {
  const table = await world.table();
  for (const department of ["Marketing", "Sales"]) {
    await table.submitTransaction(Array.from({ length: 20 }, (_, n) => ["create", entity(department, pad(n), { age: 20 + n })]));
  }
  for (const [filter, kind, count] of [
    ["PartitionKey eq 'Sales' and RowKey eq '000003'", "point", 1],
    ["PartitionKey eq 'Sales' and RowKey ge '000003' and RowKey lt '000006'", "range", 3],
    ["PartitionKey eq 'Sales' and age gt 30", "partition-scan", 9],
    ["age gt 30", "table-scan", 18],
    ["(PartitionKey eq 'Sales' and RowKey eq '000003') or (PartitionKey eq 'Marketing' and RowKey eq '000004')", "multi-point", 2],
  ]) {
    const { found, plans } = await planned(table, filter);
    assert.equal(found.length, count, filter);
    assert.match(plans.join(), new RegExp(`^${kind}; examined=\\d+; returned=${count}$`), filter);
  }
});

test("heterogeneous entities in one partition, changed together", async () => {
  const table = await world.table();
  await table.submitTransaction([
    ["create", entity("Sales", "empl_000123", { type: "Employee", name: "Don", reviews: 0 })],
    ["create", entity("Sales", "review_000123_2024", { type: "Review", rating: 3.5 })],
  ]);
  await table.submitTransaction([
    ["create", entity("Sales", "review_000123_2025", { type: "Review", rating: 5 })],
    ["update", entity("Sales", "empl_000123", { reviews: 2 }), "Merge"],
  ]);
  const filter = "PartitionKey eq 'Sales' and RowKey ge 'review_000123_' and RowKey lt 'review_000123`'";
  const reviews = await all(table.listEntities({ queryOptions: { filter } }));
  assert.deepEqual(reviews.map((r) => [r.rating, r.name]), [[3.5, undefined], [5, undefined]]);
  assert.equal((await table.getEntity("Sales", "empl_000123")).reviews, 2);
});

test("compound keys", async () => {
  const table = await world.table();
  const years = [2021, 2022, 2023, 2024];
  for (const n of [1, 2]) await table.submitTransaction(years.map((y) => ["create", entity("Sales", `${pad(n)}_${y}`, { y })]));
  const filter = "PartitionKey eq 'Sales' and RowKey ge '000001_2022' and RowKey le '000001_2023'";
  assert.deepEqual((await all(table.listEntities({ queryOptions: { filter } }))).map((e) => e.y), [2022, 2023]);
});

test("log tail with reversed ticks", async () => {
  const table = await world.table();
  const far = BigInt(Date.UTC(3000, 0, 1));
  const key = (n) => String((far - BigInt(Date.UTC(2026, 0, 1, 0, 0, n))) * 10000n).padStart(20, "0");
  await table.submitTransaction(Array.from({ length: 60 }, (_, n) => ["create", entity("log", key(n), { n })]));
  const page = (await table.listEntities({ queryOptions: { filter: "PartitionKey eq 'log'" } }).byPage({ maxPageSize: 5 }).next()).value;
  assert.deepEqual(page.map((e) => e.n), [59, 58, 57, 56, 55]);
});

test("index entities kept by a batch, with a retry on ETags", async () => {
  const table = await world.table();
  const numbers = Array.from({ length: 6 }, (_, n) => pad(n, 3));
  await table.submitTransaction([
    ...numbers.map((n) => ["create", entity("Sales", `empl_${n}`, { family: "Ash" })]),
    ["create", entity("Sales", "family_Ash", { numbers: numbers.join() })],
    ["create", entity("Sales", "family_Oak", { numbers: "" })],
  ]);
  const rename = async (number, family) => {
    for (;;) {
      const [employee, ash, oak] = await Promise.all(
        [`empl_${number}`, "family_Ash", "family_Oak"].map((row) => table.getEntity("Sales", row)));
      const index = (e) => {
        const found = new Set(e.numbers.split(",").filter(Boolean));
        if (e.rowKey === `family_${family}`) found.add(number);
        else found.delete(number);
        return ["update", entity("Sales", e.rowKey, { numbers: [...found].sort().join() }), "Merge", { etag: e.etag }];
      };
      try {
        const change = ["update", entity("Sales", employee.rowKey, { family }), "Merge", { etag: employee.etag }];
        return await table.submitTransaction([change, index(ash), index(oak)]);
      } catch (error) {
        if (error.statusCode !== 412) throw error;
      }
    }
  };
  await Promise.all(numbers.map(async (number, at) => {
    for (let step = 0; step < 4; step++) await rename(number, (at + step) % 2 ? "Oak" : "Ash");
  }));
  const found = Object.fromEntries((await all(table.listEntities())).map((e) => [e.rowKey, e]));
  for (const family of ["Ash", "Oak"]) {
    const wanted = numbers.filter((n) => found[`empl_${n}`].family === family).join();
    assert.equal(found[`family_${family}`].numbers, wanted);
  }
});

test("wide entities split over two rows", async () => {
  const table = await world.table();
  const wide = Array.from({ length: 400 }, (_, n) => [`p${pad(n, 3)}`, `value ${n}`]);
  await table.submitTransaction([
    ["upsert", entity("doc", "1_0", Object.fromEntries(wide.slice(0, 200))), "Replace"],
    ["upsert", entity("doc", "1_1", Object.fromEntries(wide.slice(200))), "Replace"],
  ]);
  const parts = await all(table.listEntities({ queryOptions: { filter: "PartitionKey eq 'doc' and RowKey ge '1_' and RowKey lt '1`'" } }));
  assert.deepEqual(rows(parts), ["1_0", "1_1"]);
  const joined = Object.assign({}, ...parts);
  for (const [name, value] of wide) assert.equal(joined[name], value);
});

test("a data series by merge", async () => {
  const table = await world.table();
  await Promise.all(Array.from({ length: 24 }, (_, h) =>
    table.upsertEntity(entity("sensor1", "2026-02-03", { [`h${pad(h, 2)}`]: h + 0.5 }), "Merge")));
  const day = await table.getEntity("sensor1", "2026-02-03");
  for (let h = 0; h < 24; h++) assert.equal(day[`h${pad(h, 2)}`], h + 0.5);
});
