// Queues and messages, as the JavaScript SDK sees them.

import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { test } from "node:test";
import { QueueServiceClient } from "@azure/storage-queue";
import { ACCOUNT, all, KEY, QUEUE_OPTIONS, refused, withServer, world } from "./harness.mjs";

withServer();

const texts = (answer) => (answer.receivedMessageItems ?? answer.peekedMessageItems).map((m) => m.messageText);
const one = (answer) => answer.receivedMessageItems[0];

/** What the function gives as soon as that is something. */
async function until(act) {
  for (const deadline = Date.now() + 10_000; Date.now() < deadline; await sleep(50)) {
    const found = await act();
    if (found) return found;
  }
  assert.fail("it did not happen in time");
}

test("create, exists, delete", async () => {
  const client = world.queues.getQueueClient(world.name());
  assert.equal(await client.exists(), false);
  assert.equal((await client.createIfNotExists({ metadata: { color: "red" } })).succeeded, true);
  assert.equal((await client.createIfNotExists({ metadata: { color: "red" } })).succeeded, false);
  assert.equal((await client.createIfNotExists({ metadata: { color: "blue" } })).succeeded, false);
  await refused(client.create({ metadata: { color: "blue" } }), 409, "QueueAlreadyExists");
  assert.equal(await client.exists(), true);
  assert.deepEqual((await client.getProperties()).metadata, { color: "red" });
  assert.equal((await client.deleteIfExists()).succeeded, true);
  assert.equal((await client.deleteIfExists()).succeeded, false);
  await refused(client.getProperties(), 404, "QueueNotFound");
});

test("metadata", async () => {
  const client = await world.queue();
  await client.setMetadata({ a: "1", b_c: "two words" });
  assert.deepEqual((await client.getProperties()).metadata, { a: "1", b_c: "two words" });
  await client.setMetadata({ d: "4" });
  assert.deepEqual((await client.getProperties()).metadata, { d: "4" });
  await client.setMetadata();
  assert.deepEqual((await client.getProperties()).metadata ?? {}, {});
});

test("list by prefix and by page, in order, from a token", async () => {
  const prefix = world.name();
  const names = ["c", "e", "a", "d", "b"].map((letter) => `${prefix}-${letter}`);
  for (const name of names) await world.queues.createQueue(name, { metadata: { last: name.at(-1) } });
  const wanted = names.toSorted();
  const list = (more) => world.queues.listQueues({ prefix, ...more });
  assert.deepEqual((await all(list())).map((q) => q.name), wanted);
  assert.deepEqual((await all(list({ includeMetadata: true }))).map((q) => q.metadata.last), ["a", "b", "c", "d", "e"]);
  const pages = await all(list().byPage({ maxPageSize: 2 }));
  assert.deepEqual(pages.map((page) => page.queueItems.map((q) => q.name)), [wanted.slice(0, 2), wanted.slice(2, 4), wanted.slice(4)]);
  const first = (await list().byPage({ maxPageSize: 3 }).next()).value;
  const rest = await all(list().byPage({ maxPageSize: 10, continuationToken: first.continuationToken }));
  assert.deepEqual(rest.flatMap((page) => page.queueItems.map((q) => q.name)), wanted.slice(3));
  for (const name of names) await world.queues.deleteQueue(name);
});

test("send, peek, receive, delete", async () => {
  const client = await world.queue();
  const sent = await client.sendMessage("hello");
  assert.ok(sent.messageId && sent.popReceipt && sent.insertedOn && sent.nextVisibleOn);
  assert.equal(sent.expiresOn - sent.insertedOn, 604_800_000);
  const [peeked] = (await client.peekMessages()).peekedMessageItems;
  assert.deepEqual([peeked.messageId, peeked.messageText, peeked.dequeueCount], [sent.messageId, "hello", 0]);
  const got = one(await client.receiveMessages({ visibilityTimeout: 60 }));
  assert.deepEqual([got.messageId, got.messageText, got.dequeueCount], [sent.messageId, "hello", 1]);
  assert.deepEqual(texts(await client.receiveMessages()), []);
  assert.equal((await client.getProperties()).approximateMessagesCount, 1);
  await refused(client.deleteMessage(sent.messageId, sent.popReceipt), 404, "MessageNotFound");
  await client.deleteMessage(got.messageId, got.popReceipt);
  await refused(client.deleteMessage(got.messageId, got.popReceipt), 404, "MessageNotFound");
  assert.equal((await client.getProperties()).approximateMessagesCount, 0);
});

test("visibility and dequeue counts", async () => {
  const client = await world.queue();
  await client.sendMessage("later", { visibilityTimeout: 1 });
  assert.deepEqual(texts(await client.peekMessages()), []);
  const first = await until(async () => one(await client.receiveMessages({ visibilityTimeout: 1 })));
  const second = await until(async () => one(await client.receiveMessages({ visibilityTimeout: 60 })));
  assert.deepEqual([first.dequeueCount, second.dequeueCount], [1, 2]);
  await refused(client.deleteMessage(first.messageId, first.popReceipt), 404, "MessageNotFound");
  const back = await client.updateMessage(second.messageId, second.popReceipt, undefined, 0);
  assert.notEqual(back.popReceipt, second.popReceipt);
  const third = one(await client.receiveMessages());
  assert.deepEqual([third.dequeueCount, third.messageText], [3, "later"]);
});

test("update", async () => {
  const client = await world.queue();
  const sent = await client.sendMessage("draft", { visibilityTimeout: 60 });
  const kept = await client.updateMessage(sent.messageId, sent.popReceipt, undefined, 60);
  await refused(client.updateMessage(sent.messageId, sent.popReceipt, "lost", 0), 404, "MessageNotFound");
  await client.updateMessage(sent.messageId, kept.popReceipt, "final", 0);
  assert.deepEqual(texts(await client.receiveMessages()), ["final"]);
});

test("time to live", async () => {
  const client = await world.queue();
  await client.sendMessage("short", { messageTimeToLive: 1 });
  const forever = await client.sendMessage("forever", { messageTimeToLive: -1 });
  assert.equal(forever.expiresOn.getUTCFullYear(), 9999);
  await until(async () => texts(await client.peekMessages({ numberOfMessages: 32 })).length === 1);
  assert.deepEqual(texts(await client.receiveMessages({ numberOfMessages: 32 })), ["forever"]);
  await refused(client.sendMessage("x", { messageTimeToLive: 10, visibilityTimeout: 10 }), 400, "InvalidQueryParameterValue");
});

test("texts", async () => {
  const client = await world.queue();
  const whole = ["", " ", "  a\t b\n", "<&>\"'", "&amp;lt;", "ä漢😀", "x".repeat(65536), "😀".repeat(16384)];
  for (const text of whole) {
    await client.sendMessage(text);
    const got = one(await client.receiveMessages());
    assert.equal(got.messageText, text);
    await client.deleteMessage(got.messageId, got.popReceipt);
  }
  for (const text of ["x".repeat(65537), "😀".repeat(16384) + "x"]) {
    await refused(client.sendMessage(text), 413, "RequestBodyTooLarge");
  }
  await refused(client.sendMessage("a\u0001b"), 400, "InvalidXmlDocument");
});

test("clear", async () => {
  const client = await world.queue();
  for (const text of ["a", "b", "c"]) await client.sendMessage(text);
  await client.receiveMessages();
  await client.clearMessages();
  assert.equal((await client.getProperties()).approximateMessagesCount, 0);
});

test("limits of parameters", async () => {
  const client = await world.queue();
  await refused(client.receiveMessages({ numberOfMessages: 33 }), 400, "OutOfRangeQueryParameterValue");
  await refused(client.peekMessages({ numberOfMessages: 0 }), 400, "OutOfRangeQueryParameterValue");
  await refused(client.receiveMessages({ visibilityTimeout: 604_801 }), 400, "OutOfRangeQueryParameterValue");
  await refused(client.deleteMessage("x", "invalid"), 400, "InvalidQueryParameterValue");
  for (const [bad, code] of [["ab", "OutOfRangeInput"], ["a--b", "InvalidResourceName"], ["Abc", "InvalidResourceName"]]) {
    await refused(world.queues.createQueue(bad), 400, code);
  }
});

test("sixteen consumers see each of 400 messages once", async () => {
  const client = await world.queue();
  const wanted = Array.from({ length: 400 }, (_, n) => `m${n}`);
  for (let at = 0; at < wanted.length; at += 50) await Promise.all(wanted.slice(at, at + 50).map((text) => client.sendMessage(text)));
  const seen = [];
  const consume = async () => {
    for (;;) {
      const page = (await client.receiveMessages({ numberOfMessages: 7, visibilityTimeout: 300 })).receivedMessageItems;
      if (page.length === 0) return;
      for (const m of page) {
        seen.push(m.messageText);
        await client.deleteMessage(m.messageId, m.popReceipt);
      }
    }
  };
  await Promise.all(Array.from({ length: 16 }, consume));
  assert.deepEqual(seen.toSorted(), wanted.toSorted());
  assert.equal((await client.getProperties()).approximateMessagesCount, 0);
});

test("connection string", async () => {
  const text = `DefaultEndpointsProtocol=http;AccountName=${ACCOUNT};AccountKey=${KEY};QueueEndpoint=${world.queueEndpoint};`;
  const client = QueueServiceClient.fromConnectionString(text, QUEUE_OPTIONS).getQueueClient(world.name());
  await client.create();
  assert.equal(await client.exists(), true);
  await client.delete();
});
