"""Starts the built server for tests: free ports, a fresh directory, and everything gone at the end.

Used by the Python tests, by the conformance driver and by the runner of the README's examples. Needs
nothing but Python. The binary is `ROWHOUSE_BIN`, or `target/release/rowhouse` of this repository.
With `ROWHOUSE_TEST_STORE=postgres` each server has a new PostgreSQL database; see postgres.py.
"""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import time
from urllib.parse import urlsplit

import postgres

ROOT = pathlib.Path(__file__).resolve().parents[2]
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
START_SECONDS = 20
# What the server logs of a task that held its thread for too long (crates/env/src/polls.rs).
LONG_POLL = "a task held its thread for too long"
# These suites run next to compilations, where a task is also charged for the time that the host takes from it. The strict
# limit, 10 ms in a release build, is kept by the tests of the crates (testkit/tests/it/polls.rs).
LONG_POLL_MILLIS = 50


def binary():
    path = pathlib.Path(os.environ.get("ROWHOUSE_BIN") or ROOT / "target" / "release" / "rowhouse")
    if not path.exists():
        raise FileNotFoundError(f"{path} is not there: run `cargo build --release -p rowhouse-cli` or set ROWHOUSE_BIN")
    return path


class Server:
    """One running server. A context manager: leaving it stops the server and removes its directory."""

    def __init__(self, *options, tls=False, table_port=0, queue_port=0):
        self.options, self.tls, self.table_port, self.queue_port = list(options), tls, table_port, queue_port
        self.scratch = pathlib.Path(tempfile.mkdtemp(prefix="rowhouse-test-"))
        self.data = self.scratch / "data"
        self.log_path = self.scratch / "server.log"
        self.store = postgres.create_database() if postgres.wanted() else None
        self.process = None
        self.start()

    def start(self):
        """Returns when the server says that it is ready, or raises with what it said instead."""
        ready = self.scratch / "ready.json"
        ready.unlink(missing_ok=True)
        command = [binary(), "serve", "--data", self.data, "--table-port", str(self.table_port),
                   "--queue-port", str(self.queue_port), "--admin-port", "0", "--ready-file", ready, *(["--tls-self-signed"] if self.tls else []), *self.options]
        # Options of the developer's own server must not reach this one.
        env = {name: value for name, value in os.environ.items() if not name.startswith("ROWHOUSE_")}
        # What a test has expire is removed at once.
        env["ROWHOUSE_TTL_GRACE_SECONDS"] = "0"
        # Tasks that hold their threads leave a line in the log, and leaving the server fails then.
        env["ROWHOUSE_WATCH_POLLS"] = "1"
        if self.store:
            # The option lets it use a database that does not wait for its disk, and its own files become temporary ones.
            command.append("--ephemeral")
            self.data.mkdir(exist_ok=True)
            env |= {"ROWHOUSE_STORE": self.store, "TMPDIR": str(self.data)}
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env)
        deadline = time.monotonic() + START_SECONDS
        while True:
            text = ready.read_text() if ready.exists() else ""
            if text.endswith("\n"):
                break
            if self.process.poll() is not None or time.monotonic() > deadline:
                said = self.log()[-2000:]
                self.close()
                raise RuntimeError(f"the server did not become ready; it said:\n{said}")
            time.sleep(0.005)
        ports = json.loads(text)
        # A restart must come back where clients look for it.
        self.table_port, self.queue_port = urlsplit(ports["table"]).port, urlsplit(ports["queue"]).port
        self.admin = ports["admin"]

    @property
    def endpoint(self):
        """Path style, as development connection strings have it."""
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.table_port}/{ACCOUNT}"

    @property
    def host_endpoint(self):
        """Host style. Names below `localhost` are the loopback address."""
        return f"{'https' if self.tls else 'http'}://{ACCOUNT}.table.localhost:{self.table_port}"

    @property
    def queue_endpoint(self):
        """The queue service, path style."""
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.queue_port}/{ACCOUNT}"

    @property
    def queue_host_endpoint(self):
        """The queue service, host style."""
        return f"{'https' if self.tls else 'http'}://{ACCOUNT}.queue.localhost:{self.queue_port}"

    @property
    def certificate(self):
        return next(self.data.rglob("tls-cert.pem"))

    @property
    def connection_string(self):
        return (f"DefaultEndpointsProtocol={'https' if self.tls else 'http'};AccountName={ACCOUNT};AccountKey={KEY};"
                f"TableEndpoint={self.endpoint};TableSecondaryEndpoint={self.endpoint}-secondary;"
                f"QueueEndpoint={self.queue_endpoint};QueueSecondaryEndpoint={self.queue_endpoint}-secondary;")

    def log(self):
        return self.log_path.read_text(errors="replace") if self.log_path.exists() else ""

    def long_polls(self):
        """The lines of the log about tasks that held their threads for too long."""
        lines = [line for line in self.log().splitlines() if LONG_POLL in line]
        return [line for line in lines if int(line.rsplit("millis=", 1)[-1]) >= LONG_POLL_MILLIS]

    def kill(self):
        """As a power cut would for the process: no chance to finish anything."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self, seconds=15):
        """Asks politely; returns the exit status."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(seconds)
            except subprocess.TimeoutExpired:
                self.kill()
        return self.process.returncode

    def close(self):
        self.stop()
        shutil.rmtree(self.scratch, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        self.stop()
        long_polls = self.long_polls()
        self.close()
        # Another failure is more important.
        if long_polls and kind is None:
            raise AssertionError("the server's tasks held their threads:\n" + "\n".join(long_polls))
