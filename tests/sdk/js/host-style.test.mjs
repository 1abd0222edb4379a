// The account named by the host, as in production. The JavaScript SDK finds the secondary only this way.

import assert from "node:assert/strict";
import { test } from "node:test";
import { TableClient, TableServiceClient } from "@azure/data-tables";
import { all, credential, entity, hostStyle, withServer, world } from "./harness.mjs";

withServer();

test("operations", async () => {
  const { endpoint, options } = hostStyle();
  const table = new TableClient(endpoint, world.name(), credential, options);
  await table.createTable();
  await table.createEntity(entity("O'Brien", "a%b", { n: 1 }));
  await table.submitTransaction([["upsert", entity("O'Brien", "a%b", { m: 2 }), "Merge"], ["create", entity("O'Brien", "é")]]);
  const found = await table.getEntity("O'Brien", "a%b");
  assert.deepEqual([found.n, found.m], [1, 2]);
  assert.equal((await all(table.listEntities())).length, 2);
  await table.deleteTable();
});

test("statistics come from the secondary", async () => {
  const { endpoint, options } = hostStyle();
  const service = new TableServiceClient(endpoint, credential, options);
  const found = await service.getStatistics();
  assert.ok(["live", "bootstrap", "unavailable"].includes(found.geoReplication.status));
});
