// The service as a whole: properties, statistics, the wrong key.

import assert from "node:assert/strict";
import { test } from "node:test";
import { AzureNamedKeyCredential, TableServiceClient } from "@azure/data-tables";
import { ACCOUNT, all, KEY, OPTIONS, refused, withServer, world } from "./harness.mjs";

withServer();

test("service properties", async () => {
  const retentionPolicy = { enabled: true, days: 5 };
  await world.service.setProperties({
    logging: { version: "1.0", read: true, write: true, delete: false, retentionPolicy },
    hourMetrics: { version: "1.0", enabled: true, includeAPIs: true, retentionPolicy },
    cors: [{ allowedOrigins: "http://a.example", allowedMethods: "GET,PUT", allowedHeaders: "x-ms-*", exposedHeaders: "*",
      maxAgeInSeconds: 60 }],
  });
  const found = await world.service.getProperties();
  assert.deepEqual([found.logging.read, found.logging.delete, found.logging.retentionPolicy.days], [true, false, 5]);
  assert.deepEqual([found.hourMetrics.enabled, found.hourMetrics.includeAPIs], [true, true]);
  assert.deepEqual(found.cors.map((rule) => [rule.allowedOrigins, rule.maxAgeInSeconds]), [["http://a.example", 60]]);
  await world.service.setProperties({ cors: [] });
  assert.equal((await world.service.getProperties()).logging.read, true);
});

test("wrong key", async () => {
  const wrong = new AzureNamedKeyCredential(ACCOUNT, KEY.replace("E", "F"));
  const client = new TableServiceClient(world.endpoint, wrong, OPTIONS);
  await refused(all(client.listTables()), 403, "AuthenticationFailed");
});

test("connection string", async () => {
  const text = `DefaultEndpointsProtocol=http;AccountName=${ACCOUNT};AccountKey=${KEY};TableEndpoint=${world.endpoint};`;
  const client = TableServiceClient.fromConnectionString(text, OPTIONS);
  const name = world.name();
  await client.createTable(name);
  assert.ok((await all(client.listTables())).some((t) => t.name === name));
  await client.deleteTable(name);
});
