// Access to queues as the JavaScript SDK signs it, and the queue service as a whole.

import assert from "node:assert/strict";
import { test } from "node:test";
import {
  AccountSASPermissions, AccountSASResourceTypes, AccountSASServices, AnonymousCredential, generateAccountSASQueryParameters,
  generateQueueSASQueryParameters, QueueClient, QueueSASPermissions, QueueServiceClient, SASProtocol, StorageSharedKeyCredential,
} from "@azure/storage-queue";
import { ACCOUNT, all, KEY, ours, QUEUE_OPTIONS, queueCredential, refused, withServer, world } from "./harness.mjs";

withServer();

const hours = (n) => new Date(Date.now() + n * 3600_000);
const DENIED = [403, "AuthorizationPermissionMismatch"];

/** A client of a queue by a signature for these letters. */
function signed(queue, letters, values = {}) {
  const permissions = letters === undefined ? undefined : QueueSASPermissions.parse(letters);
  const token = generateQueueSASQueryParameters({ queueName: queue.name, permissions, expiresOn: hours(1), ...values }, queueCredential);
  return new QueueClient(`${world.queueEndpoint}/${queue.name}?${token}`, new AnonymousCredential(), QUEUE_OPTIONS);
}

function account(types, letters) {
  const token = generateAccountSASQueryParameters({
    services: AccountSASServices.parse("q").toString(), resourceTypes: AccountSASResourceTypes.parse(types).toString(),
    permissions: AccountSASPermissions.parse(letters), expiresOn: hours(1),
  }, queueCredential);
  return new QueueServiceClient(`${world.queueEndpoint}?${token}`, new AnonymousCredential(), QUEUE_OPTIONS);
}

const ACTS = {
  r: (c) => c.peekMessages(),
  a: (c) => c.sendMessage("new"),
  u: (c, m) => c.updateMessage(m.messageId, m.popReceipt, "changed", 60),
  p: (c) => c.receiveMessages({ visibilityTimeout: 1 }),
};

for (const granted of Object.keys(ACTS)) {
  test(`a signature for ${granted}`, async () => {
    for (const [letter, perform] of Object.entries(ACTS)) {
      const queue = await world.queue();
      const message = await queue.sendMessage("there");
      const client = signed(queue, granted);
      if (letter === granted) await perform(client, message);
      else await refused(perform(client, message), ...DENIED);
      await refused(client.clearMessages(), 403, "AuthorizationFailure").catch(async () => refused(client.clearMessages(), ...DENIED));
      await queue.delete();
    }
  });
}

test("deleting a message needs p", async () => {
  const queue = await world.queue();
  const message = await queue.sendMessage("m");
  await refused(signed(queue, "rau").deleteMessage(message.messageId, message.popReceipt), ...DENIED);
  await signed(queue, "p").deleteMessage(message.messageId, message.popReceipt);
});

test("time, address, protocol", async () => {
  const queue = await world.queue();
  for (const [values, code] of [
    [{ expiresOn: hours(-1) }, "AuthenticationFailed"],
    [{ startsOn: hours(1), expiresOn: hours(2) }, "AuthenticationFailed"],
    [{ ipRange: { start: "10.1.2.3" } }, "AuthorizationSourceIPMismatch"],
    [{ protocol: SASProtocol.Https }, "AuthorizationProtocolMismatch"],
  ]) {
    await refused(signed(queue, "r", values).peekMessages(), 403, code);
  }
  const good = { ipRange: { start: "127.0.0.1", end: "127.0.0.9" }, protocol: SASProtocol.HttpsAndHttp, startsOn: hours(-1) };
  assert.deepEqual((await signed(queue, "r", good).peekMessages()).peekedMessageItems, []);
});

test("stored policy", async () => {
  const queue = await world.queue();
  const accessPolicy = { permissions: "r", startsOn: hours(-1), expiresOn: hours(1) };
  await queue.setAccessPolicy([{ id: "readers", accessPolicy }]);
  const [found] = (await queue.getAccessPolicy()).signedIdentifiers;
  assert.deepEqual([found.id, found.accessPolicy.permissions], ["readers", "r"]);
  assert.equal(+found.accessPolicy.expiresOn, +accessPolicy.expiresOn);
  const client = signed(queue, undefined, { identifier: "readers", expiresOn: undefined });
  await client.peekMessages();
  await refused(client.sendMessage("m"), ...DENIED);
  await queue.setAccessPolicy([]);
  await refused(client.peekMessages(), 403, "AuthenticationFailed");
});

test("a signature of the account", async () => {
  const name = world.name();
  const every = account("sco", "rwdlacup");
  await every.createQueue(name);
  assert.deepEqual((await all(every.listQueues({ prefix: name }))).map((q) => q.name), [name]);
  const objects = account("o", "rwdlacup").getQueueClient(name);
  await objects.sendMessage("m");
  const [got] = (await objects.receiveMessages()).receivedMessageItems;
  await objects.deleteMessage(got.messageId, got.popReceipt);
  await refused(all(account("co", "rwdlacup").listQueues()), 403, "AuthorizationResourceTypeMismatch");
  await refused(all(account("s", "r").listQueues()), ...DENIED);
  await refused(account("o", "r").getQueueClient(name).sendMessage("m"), ...DENIED);
  await every.deleteQueue(name);
});

test("service properties", async () => {
  const retentionPolicy = { enabled: true, days: 5 };
  await world.queues.setProperties({
    queueAnalyticsLogging: { version: "1.0", read: true, write: true, deleteProperty: false, retentionPolicy },
    hourMetrics: { version: "1.0", enabled: true, includeAPIs: true, retentionPolicy },
    cors: [{ allowedOrigins: "http://a.example", allowedMethods: "GET,PUT", allowedHeaders: "x-ms-*", exposedHeaders: "*", maxAgeInSeconds: 60 }],
  });
  const found = await world.queues.getProperties();
  assert.deepEqual([found.queueAnalyticsLogging.read, found.queueAnalyticsLogging.deleteProperty], [true, false]);
  assert.deepEqual([found.hourMetrics.enabled, found.hourMetrics.includeAPIs, found.hourMetrics.retentionPolicy.days], [true, true, 5]);
  assert.deepEqual(found.cors.map((rule) => [rule.allowedOrigins, rule.maxAgeInSeconds]), [["http://a.example", 60]]);
  await world.queues.setProperties({ cors: [] });
  const after = await world.queues.getProperties();
  assert.equal(after.queueAnalyticsLogging.read, true);
  assert.ok(!after.cors?.length);
});

test("statistics of the secondary, which takes nothing", async () => {
  const queue = await world.queue();
  await queue.sendMessage("m");
  const there = new QueueServiceClient(`${world.queueEndpoint}-secondary`, queueCredential, QUEUE_OPTIONS);
  // This version of the SDK looks for another root element than the service sends, and finds nothing below it.
  const stats = await there.getStatistics();
  assert.ok(stats.requestId && stats.version);
  const copy = there.getQueueClient(queue.name);
  assert.equal((await copy.peekMessages()).peekedMessageItems.length, 1);
  if (!ours) return;
  await refused(copy.receiveMessages(), 403, "InsufficientAccountPermissions");
  await refused(copy.sendMessage("m"), 403, "InsufficientAccountPermissions");
});

test("wrong key", async () => {
  const wrong = new StorageSharedKeyCredential(ACCOUNT, KEY.replace("E", "F"));
  const client = new QueueServiceClient(world.queueEndpoint, wrong, QUEUE_OPTIONS);
  await refused(all(client.listQueues()), 403, "AuthenticationFailed");
});
