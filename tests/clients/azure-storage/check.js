// The legacy SDK azure-storage, whose last version is from 2022: tables, batches, queues and signatures.
"use strict";

const assert = require("node:assert/strict");
const { promisify } = require("node:util");
const azure = require("azure-storage");

const { CLIENT_ACCOUNT, CLIENT_KEY, CLIENT_TABLES, CLIENT_QUEUES } = process.env;
const { TableBatch, TableQuery } = azure;
const as = azure.TableUtilities.entityGenerator;

/** The methods of a service as functions that return promises. Retries would hide a failure. */
function promised(service) {
  service = service.withFilter(new azure.LinearRetryPolicyFilter(0, 1));
  return new Proxy(service, {
    get: (_, name) => (name === "direct" ? service : promisify(service[name]).bind(service)),
  });
}

const tables = promised(azure.createTableService(CLIENT_ACCOUNT, CLIENT_KEY, CLIENT_TABLES));
const queues = promised(azure.createQueueService(CLIENT_ACCOUNT, CLIENT_KEY, CLIENT_QUEUES));

const entity = (row, values = {}) => ({ PartitionKey: as.String("p"), RowKey: as.String(row), ...values });
const rowsOf = (entries) => entries.map((entry) => entry.RowKey._);
const inMinutes = (minutes) => new Date(Date.now() + minutes * 60_000);

/** The promise must be refused with this status and this error code. */
async function refused(promise, statusCode, code) {
  await assert.rejects(promise, (error) => {
    assert.deepEqual([error.statusCode, error.code], [statusCode, code], error.message);
    return true;
  });
}

let numbers = 0;

async function freshTable() {
  const name = `legacy${++numbers}`;
  await tables.createTable(name);
  return name;
}

async function freshQueue(options = {}) {
  const name = `legacy-${++numbers}`;
  await queues.createQueue(name, options);
  return name;
}

const checks = {
  async "tables: create, exists, list with prefix, delete"() {
    const name = await freshTable();
    await refused(tables.createTable(name), 409, "TableAlreadyExists");
    assert.equal((await tables.createTableIfNotExists(name)).created, false);
    assert.equal((await tables.doesTableExist(name)).exists, true);
    assert.deepEqual((await tables.listTablesSegmentedWithPrefix(name, null)).entries, [name]);
    await tables.deleteTable(name);
    assert.equal((await tables.doesTableExist(name)).exists, false);
    assert.equal(await tables.deleteTableIfExists(name), false);
  },

  async "entities: every type comes back as it was written"() {
    const table = await freshTable();
    const time = new Date("2020-02-29T12:34:56.789Z");
    const guid = "c9da6455-213d-42c9-9a79-3e9149a57833";
    await tables.insertEntity(table, entity("types", {
      text: as.String("Grüße <&> 東京"), yes: as.Boolean(true), small: as.Int32(-7), big: as.Int64("9007199254740993"),
      half: as.Double(0.5), whole: as.Double(3), time: as.DateTime(time), guid: as.Guid(guid), bytes: as.Binary(Buffer.from([0, 255])),
    }));
    const found = await tables.retrieveEntity(table, "p", "types");
    assert.equal(found.text._, "Grüße <&> 東京");
    assert.equal(found.yes._, true);
    assert.equal(found.small._, -7);
    assert.equal(String(found.big._), "9007199254740993");
    assert.deepEqual([found.half._, found.whole._], [0.5, 3]);
    assert.equal(found.time._.toISOString(), time.toISOString());
    assert.equal(found.guid._, guid);
    assert.deepEqual(found.bytes._, Buffer.from([0, 255]));
    assert.match(found[".metadata"].etag, /^W\/"datetime'/);
  },

  async "entities: insert with echo, merge, replace, upserts, delete"() {
    const table = await freshTable();
    const echoed = await tables.insertEntity(table, entity("r", { a: as.Int32(1) }), { echoContent: true });
    assert.equal(echoed.a._, 1);
    await refused(tables.insertEntity(table, entity("r")), 409, "EntityAlreadyExists");
    await tables.mergeEntity(table, entity("r", { b: as.Int32(2) }));
    let found = await tables.retrieveEntity(table, "p", "r");
    assert.deepEqual([found.a._, found.b._], [1, 2]);
    await tables.replaceEntity(table, entity("r", { c: as.Int32(3) }));
    found = await tables.retrieveEntity(table, "p", "r");
    assert.deepEqual([found.a, found.b, found.c._], [undefined, undefined, 3]);
    await tables.insertOrMergeEntity(table, entity("r", { d: as.Int32(4) }));
    await tables.insertOrReplaceEntity(table, entity("other", { d: as.Int32(5) }));
    found = await tables.retrieveEntity(table, "p", "r");
    assert.deepEqual([found.c._, found.d._], [3, 4]);
    await tables.deleteEntity(table, entity("r"));
    await refused(tables.retrieveEntity(table, "p", "r"), 404, "ResourceNotFound");
    await refused(tables.mergeEntity(table, entity("r")), 404, "ResourceNotFound");
  },

  async "entities: a write with an old ETag is refused"() {
    const table = await freshTable();
    await tables.insertEntity(table, entity("r"));
    const old = await tables.retrieveEntity(table, "p", "r");
    await tables.mergeEntity(table, entity("r", { a: as.Int32(1) }));
    await refused(tables.replaceEntity(table, old), 412, "UpdateConditionNotSatisfied");
    await refused(tables.deleteEntity(table, old), 412, "UpdateConditionNotSatisfied");
  },

  async "queries: filter, select, top, and all pages"() {
    const table = await freshTable();
    for (let begin = 0; begin < 1_200; begin += 100) {
      const batch = new TableBatch();
      for (let n = begin; n < begin + 100; n++) {
        batch.insertEntity(entity(String(n).padStart(4, "0"), { n: as.Int32(n), even: as.Boolean(n % 2 === 0) }));
      }
      await tables.executeBatch(table, batch);
    }
    const query = new TableQuery().where("PartitionKey == ? and n >= ?", "p", 1_195).and("even == ?", true);
    assert.deepEqual(rowsOf((await tables.queryEntities(table, query, null)).entries), ["1196", "1198"]);
    const [first] = (await tables.queryEntities(table, new TableQuery().select("n").top(1), null)).entries;
    assert.deepEqual([first.n._, first.even], [0, undefined]);
    const rows = [];
    let token = null;
    do {
      const page = await tables.queryEntities(table, new TableQuery(), token);
      rows.push(...rowsOf(page.entries));
      token = page.continuationToken;
    } while (token);
    assert.deepEqual(rows, Array.from({ length: 1_200 }, (_, n) => String(n).padStart(4, "0")));
  },

  async "queries: every form of metadata"() {
    const table = await freshTable();
    await tables.insertEntity(table, entity("r", { big: as.Int64("5") }));
    for (const form of ["NO_METADATA", "MINIMAL_METADATA", "FULL_METADATA"]) {
      const payloadFormat = azure.TableUtilities.PayloadFormat[form];
      const { entries } = await tables.queryEntities(table, new TableQuery(), null, { payloadFormat });
      assert.equal(String(entries[0].big._), "5", form);
    }
  },

  async "batches: every operation in one transaction"() {
    const table = await freshTable();
    for (const row of ["merge", "replace", "delete"]) await tables.insertEntity(table, entity(row, { old: as.Int32(1) }));
    const batch = new TableBatch();
    batch.insertEntity(entity("insert", { new: as.Int32(1) }), { echoContent: true });
    batch.mergeEntity(entity("merge", { new: as.Int32(1) }));
    batch.replaceEntity(entity("replace", { new: as.Int32(1) }));
    batch.deleteEntity(entity("delete"));
    batch.insertOrMergeEntity(entity("upsert", { new: as.Int32(1) }));
    batch.insertOrReplaceEntity(entity("upsert2", { new: as.Int32(1) }));
    const results = await tables.executeBatch(table, batch);
    assert.deepEqual(results.map((result) => result.response.statusCode), [201, 204, 204, 204, 204, 204]);
    assert.equal(results[0].entity.new._, 1);
    const { entries } = await tables.queryEntities(table, new TableQuery(), null);
    assert.deepEqual(rowsOf(entries), ["insert", "merge", "replace", "upsert", "upsert2"]);
    assert.deepEqual(entries.map((entry) => entry.old?._), [undefined, 1, undefined, undefined, undefined]);
  },

  async "batches: one read"() {
    const table = await freshTable();
    await tables.insertEntity(table, entity("r", { a: as.Int32(1) }));
    const batch = new TableBatch();
    batch.retrieveEntity("p", "r");
    const [result] = await tables.executeBatch(table, batch);
    assert.equal(result.entity.a._, 1);
  },

  async "batches: a failure names its operation and changes nothing"() {
    const table = await freshTable();
    await tables.insertEntity(table, entity("there"));
    const batch = new TableBatch();
    batch.insertEntity(entity("new"));
    batch.insertEntity(entity("there"));
    await assert.rejects(tables.executeBatch(table, batch), (error) => {
      assert.deepEqual([error.statusCode, error.code], [409, "EntityAlreadyExists"], error.message);
      assert.match(error.message, /^1:/);
      return true;
    });
    assert.deepEqual(rowsOf((await tables.queryEntities(table, new TableQuery(), null)).entries), ["there"]);
  },

  async "tables: access policies and a signature that uses one"() {
    const table = await freshTable();
    await tables.insertEntity(table, entity("r", { a: as.Int32(1) }));
    await tables.setTableAcl(table, { reader: { Permissions: "r", Expiry: inMinutes(10) } });
    assert.equal((await tables.getTableAcl(table)).signedIdentifiers.reader.Permissions, "r");
    const sas = tables.direct.generateSharedAccessSignature(table, { Id: "reader" });
    const guest = promised(azure.createTableServiceWithSas(CLIENT_TABLES, sas));
    assert.equal((await guest.retrieveEntity(table, "p", "r")).a._, 1);
    await refused(guest.insertEntity(table, entity("mine")), 403, "AuthorizationPermissionMismatch");
  },

  async "tables: a signature for a range of keys, also for a batch"() {
    const table = await freshTable();
    const sas = tables.direct.generateSharedAccessSignature(table, {
      AccessPolicy: { Permissions: "raud", Expiry: inMinutes(10), StartPk: "p", StartRk: "b", EndPk: "p", EndRk: "c" },
    });
    const guest = promised(azure.createTableServiceWithSas(CLIENT_TABLES, sas));
    await tables.insertEntity(table, entity("a"));
    const batch = new TableBatch();
    batch.insertEntity(entity("b"));
    batch.insertEntity(entity("c"));
    await guest.executeBatch(table, batch);
    assert.deepEqual(rowsOf((await guest.queryEntities(table, new TableQuery(), null)).entries), ["b", "c"]);
    await assert.rejects(guest.insertEntity(table, entity("d")), { statusCode: 403 });
  },

  async "tables: properties and CORS rules of the service"() {
    const properties = await tables.getServiceProperties();
    const rule = {
      AllowedOrigins: ["https://example.org"], AllowedMethods: ["GET"], AllowedHeaders: ["x-ms-*"], ExposedHeaders: ["x-ms-*"],
      MaxAgeInSeconds: 60,
    };
    await tables.setServiceProperties({ ...properties, Cors: { CorsRule: [rule] } });
    assert.deepEqual((await tables.getServiceProperties()).Cors.CorsRule, [rule]);
    await tables.setServiceProperties({ ...properties, Cors: {} });
  },

  async "queues: create, exists, list, delete"() {
    const queue = await freshQueue();
    assert.equal((await queues.createQueueIfNotExists(queue)).created, false);
    assert.equal((await queues.doesQueueExist(queue)).exists, true);
    const { entries } = await queues.listQueuesSegmentedWithPrefix(queue, null, { include: "metadata" });
    assert.deepEqual(entries.map((entry) => entry.name), [queue]);
    await queues.deleteQueue(queue);
    assert.equal((await queues.doesQueueExist(queue)).exists, false);
    await refused(queues.getQueueMetadata(queue), 404, "QueueNotFound");
  },

  async "queues: names of metadata keep their case"() {
    const metadata = { Color: "Red", shapeName: "round", UPPER: "x" };
    const queue = await freshQueue({ metadata });
    let page = await queues.listQueuesSegmentedWithPrefix(queue, null, { include: "metadata" });
    assert.deepEqual(page.entries[0].metadata, metadata);
    await queues.setQueueMetadata(queue, { otherName: "Blue" });
    page = await queues.listQueuesSegmentedWithPrefix(queue, null, { include: "metadata" });
    assert.deepEqual(page.entries[0].metadata, { otherName: "Blue" });
    assert.deepEqual((await queues.getQueueMetadata(queue)).metadata, { otherName: "Blue" });
  },

  async "messages: put, peek, get, update, delete, clear"() {
    const queue = await freshQueue();
    await queues.createMessage(queue, "Grüße <&> 東京");
    const peeked = await queues.peekMessage(queue);
    assert.deepEqual([peeked.messageText, peeked.dequeueCount, peeked.popReceipt], ["Grüße <&> 東京", 0, undefined]);
    const taken = await queues.getMessage(queue, { visibilityTimeout: 60 });
    assert.deepEqual([taken.messageText, taken.dequeueCount], ["Grüße <&> 東京", 1]);
    assert.equal(await queues.getMessage(queue), undefined);
    const { popReceipt } = await queues.updateMessage(queue, taken.messageId, taken.popReceipt, 0, { messageText: "second" });
    const again = await queues.getMessage(queue);
    assert.deepEqual([again.messageText, again.dequeueCount], ["second", 2]);
    await refused(queues.deleteMessage(queue, again.messageId, popReceipt), 404, "MessageNotFound");
    await queues.deleteMessage(queue, again.messageId, again.popReceipt);
    for (const text of ["a", "b", "c"]) await queues.createMessage(queue, text);
    assert.equal((await queues.getQueueMetadata(queue)).approximateMessageCount, 3);
    assert.deepEqual((await queues.getMessages(queue, { numOfMessages: 2 })).map((one) => one.messageText), ["a", "b"]);
    await queues.clearMessages(queue);
    assert.equal((await queues.getQueueMetadata(queue)).approximateMessageCount, 0);
  },

  async "queues: access policies and a signature that uses one"() {
    const queue = await freshQueue();
    await queues.setQueueAcl(queue, { sender: { Permissions: "a", Expiry: inMinutes(10) } });
    assert.equal((await queues.getQueueAcl(queue)).signedIdentifiers.sender.Permissions, "a");
    const sas = queues.direct.generateSharedAccessSignature(queue, { Id: "sender" });
    const guest = promised(azure.createQueueServiceWithSas(CLIENT_QUEUES, sas));
    await guest.createMessage(queue, "sent");
    await refused(guest.peekMessages(queue), 403, "AuthorizationPermissionMismatch");
    assert.equal((await queues.peekMessage(queue)).messageText, "sent");
  },

  async "account: a signature for both services"() {
    const table = await freshTable();
    const queue = await freshQueue();
    const policy = {
      AccessPolicy: { Services: "qt", ResourceTypes: "sco", Permissions: "rwdlacup", Expiry: inMinutes(10) },
    };
    const sas = azure.generateAccountSharedAccessSignature(CLIENT_ACCOUNT, CLIENT_KEY, policy);
    await promised(azure.createTableServiceWithSas(CLIENT_TABLES, sas)).insertEntity(table, entity("r"));
    await promised(azure.createQueueServiceWithSas(CLIENT_QUEUES, sas)).createMessage(queue, "sent");
    assert.equal((await queues.peekMessage(queue)).messageText, "sent");
  },
};

(async () => {
  let failed = 0;
  for (const [name, check] of Object.entries(checks)) {
    try {
      await check();
      console.log(`ok ${name}`);
    } catch (error) {
      failed += 1;
      console.log(`FAILED ${name}\n${error.stack}`);
    }
  }
  console.log(`${Object.keys(checks).length - failed} passed, ${failed} failed, 0 skipped`);
  process.exitCode = failed ? 1 : 0;
})();
