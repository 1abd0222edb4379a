// Starts the built server for a test file: free ports, a fresh directory, everything gone at the end.
//
// The binary is ROWHOUSE_BIN, or target/release/rowhouse of this repository. With ROWHOUSE_ENDPOINT the tests
// run against something else that speaks the protocol, for comparison; what is ours alone is skipped then.
// ROWHOUSE_QUEUE_ENDPOINT is the same for the tests of queues.
// With ROWHOUSE_TEST_STORE=postgres each server has a new database; `../postgres.py run node --test` sees to it.

import assert from "node:assert/strict";
import { execFileSync, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { existsSync, mkdtempSync, openSync, readFileSync, rmSync } from "node:fs";
import { Agent } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { after, before } from "node:test";
import { AzureNamedKeyCredential, TableClient, TableServiceClient } from "@azure/data-tables";
import { QueueServiceClient, StorageSharedKeyCredential } from "@azure/storage-queue";

const ROOT = fileURLToPath(new URL("../../../", import.meta.url));
const START_MILLISECONDS = 20_000;

export const ACCOUNT = "devstoreaccount1";
export const KEY =
  "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
export const credential = new AzureNamedKeyCredential(ACCOUNT, KEY);
export const queueCredential = new StorageSharedKeyCredential(ACCOUNT, KEY);
export const ours = !process.env.ROWHOUSE_ENDPOINT && !process.env.ROWHOUSE_QUEUE_ENDPOINT;

/** Options that every client here needs: plain HTTP, and no retries that would hide a failure. */
export const OPTIONS = { allowInsecureConnection: true, retryOptions: { maxRetries: 0 } };
export const QUEUE_OPTIONS = { retryOptions: { maxTries: 1 } };

/** Variables for the server: where its data goes, if not into its directory. */
function store() {
  if (process.env.ROWHOUSE_TEST_STORE !== "postgres") return {};
  const url = execFileSync(join(ROOT, "tests/sdk/postgres.py"), ["database"], { encoding: "utf8" }).trim();
  // The database of tests does not wait for its disk, which is refused otherwise.
  return { ROWHOUSE_STORE: url, ROWHOUSE_EPHEMERAL: "true" };
}

async function start() {
  const binary = process.env.ROWHOUSE_BIN ?? join(ROOT, "target/release/rowhouse");
  const scratch = mkdtempSync(join(tmpdir(), "rowhouse-test-"));
  const ready = join(scratch, "ready.json");
  const logPath = join(scratch, "server.log");
  const log = openSync(logPath, "a");
  // Options of the developer's own server must not reach this one.
  const foreign = Object.entries(process.env).filter(([name]) => !name.startsWith("ROWHOUSE_"));
  const child = spawn(
    binary,
    ["serve", "--data", join(scratch, "data"), "--table-port", "0", "--queue-port", "0", "--admin-port", "0",
      "--ready-file", ready],
    { stdio: ["ignore", log, log], env: { ...Object.fromEntries(foreign), ...store() } },
  );
  const exited = new Promise((resolve) => child.on("exit", (code) => resolve(code)));
  child.on("error", (fault) => console.error(`cannot start ${binary}: ${fault.message}`));
  const deadline = Date.now() + START_MILLISECONDS;
  for (;;) {
    const text = existsSync(ready) ? readFileSync(ready, "utf8") : "";
    if (text.endsWith("\n")) {
      return {
        endpoint: `${JSON.parse(text).table}/${ACCOUNT}`,
        queueEndpoint: `${JSON.parse(text).queue}/${ACCOUNT}`,
        async stop() {
          child.kill("SIGTERM");
          const code = await exited;
          const said = readFileSync(logPath, "utf8");
          rmSync(scratch, { recursive: true, force: true });
          assert.equal(code, 0, `the server did not stop cleanly:\n${said.slice(-2000)}`);
          assert.ok(!said.includes("panicked"), said.slice(-4000));
        },
      };
    }
    if (child.exitCode !== null || child.pid === undefined || Date.now() > deadline) {
      child.kill("SIGKILL");
      throw new Error(`the server did not become ready; it said:\n${readFileSync(logPath, "utf8").slice(-2000)}`);
    }
    await sleep(5);
  }
}

const run = randomBytes(4).toString("hex");
let numbers = 0;

/** What a test file works with; the endpoints and the services are there once its tests run. */
export const world = {
  endpoint: process.env.ROWHOUSE_ENDPOINT?.replace(/\/$/, ""),
  queueEndpoint: process.env.ROWHOUSE_QUEUE_ENDPOINT?.replace(/\/$/, ""),
  service: undefined,
  queues: undefined,
  /** A table name that no other test has. */
  name: () => `j${run}${++numbers}`,
  /** A client of a fresh queue. */
  async queue() {
    const client = world.queues.getQueueClient(world.name());
    await client.create();
    return client;
  },
  /** A client of a fresh table. */
  async table() {
    const client = new TableClient(world.endpoint, world.name(), credential, OPTIONS);
    await client.createTable();
    return client;
  },
};

/** To be called once by each test file. */
export function withServer() {
  let server;
  before(async () => {
    if (ours) {
      server = await start();
      ({ endpoint: world.endpoint, queueEndpoint: world.queueEndpoint } = server);
    }
    if (world.endpoint) world.service = new TableServiceClient(world.endpoint, credential, OPTIONS);
    if (world.queueEndpoint) world.queues = new QueueServiceClient(world.queueEndpoint, queueCredential, QUEUE_OPTIONS);
  });
  after(async () => server?.stop());
}

/**
 * The account addressed by the name of the host, and the options of clients for it. Names below `localhost` are
 * the loopback address, also where the system's resolver does not know that.
 */
export function hostStyle() {
  const lookup = (_name, options, done) =>
    options.all ? done(null, [{ address: "127.0.0.1", family: 4 }]) : done(null, "127.0.0.1", 4);
  const agent = new Agent({ lookup });
  const policy = { name: "loopback", sendRequest: (request, next) => next(Object.assign(request, { agent })) };
  const { port } = new URL(world.endpoint);
  return {
    endpoint: `http://${ACCOUNT}.table.localhost:${port}`,
    options: { ...OPTIONS, additionalPolicies: [{ policy, position: "perCall" }] },
  };
}

/** Everything that an async iterator gives. */
export async function all(iterator) {
  const out = [];
  for await (const item of iterator) out.push(item);
  return out;
}

export const entity = (partitionKey, rowKey, values = {}) => ({ partitionKey, rowKey, ...values });

export const rows = (entities) => entities.map((e) => e.rowKey);

/** The promise must be refused with this status and this error code. Returns the error. */
export async function refused(promise, status, code) {
  try {
    await promise;
  } catch (error) {
    const found = error.details?.odataError?.code ?? error.details?.code ?? error.code;
    assert.deepEqual([error.statusCode, found], [status, code], error.message);
    return error;
  }
  assert.fail(`${status} ${code} was expected, but the request succeeded`);
}
