#!/usr/bin/env python3
"""Copies a table from Azurite to Rowhouse and back to another Azurite, killed twice each way, and imports Azurite's
data file; follows a Rowhouse that is written to with `copy --watch`, killed on the way, into Azurite. The official SDK
compares every entity on both sides.

    run.py [ENTITIES]

Needs .work/azurite (scripts/setup azurite), .work/venv (scripts/setup python) and the built binary.
"""
import contextlib
import os
import pathlib
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "sdk"))
import moved  # noqa: E402  (the path above is what makes it importable)
from azure.core.exceptions import AzureError  # noqa: E402
from azure.data.tables import TableServiceClient  # noqa: E402
from server import ACCOUNT, KEY, Server, binary  # noqa: E402

AZURITE = ROOT / ".work" / "azurite" / "node_modules" / "azurite" / "dist" / "src" / "table" / "main.js"
TABLE = "Everything"
KILLS = 2


class Azurite:
    """One running Azurite with a directory of its own."""

    def __init__(self, scratch):
        scratch.mkdir()
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        command = ["node", AZURITE, "--tableHost", "127.0.0.1", "--tablePort", str(self.port), "--location", scratch,
                   "--silent", "--skipApiVersionCheck", "--disableTelemetry"]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                        stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 180
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("Azurite did not start")
            time.sleep(0.1)

    @property
    def connection_string(self):
        return (f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY};"
                f"TableEndpoint=http://127.0.0.1:{self.port}/{ACCOUNT};")

    def stop(self):
        """It writes its file before it ends."""
        self.process.terminate()
        self.process.wait(120)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def write(table, batch):
    """Azurite drops connections while it saves a large file; writing a batch again changes nothing."""
    for attempt in range(6):
        try:
            table.submit_transaction([("upsert", entity) for entity in batch])
            return
        except AzureError:
            if attempt == 5:
                raise
            time.sleep(2 ** attempt)


def table_of(server):
    return TableServiceClient.from_connection_string(server.connection_string).get_table_client(TABLE)


def rowhouse(*arguments, **more):
    env = {name: value for name, value in os.environ.items() if not name.startswith("ROWHOUSE_")}
    return subprocess.Popen([binary(), *arguments], env=env, stdin=subprocess.DEVNULL, text=True, **more)


def copy(source, target, state, seconds):
    """Copies with kills in the middle; returns how long it took in all and what the last run said."""
    command = ["copy", source.connection_string, target.connection_string, "--tables", TABLE, "--resume", state]
    began, kills = time.monotonic(), 0
    while kills < KILLS:
        run = rowhouse(*command, stdout=subprocess.DEVNULL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            run.wait(seconds * random.uniform(0.5, 1.5))
            print("  ended before it could be killed")
            break
        run.kill()
        run.wait()
        kills += 1
        print(f"  killed after {time.monotonic() - began:.0f} s, state of {state.stat().st_size if state.exists() else 0} bytes")
    run = rowhouse(*command, "--verify", stdout=subprocess.PIPE)
    said, _ = run.communicate()
    assert run.returncode == 0, said
    return time.monotonic() - began, said


def follow(server, azurite, state):
    """Changes of every kind at Rowhouse, followed into Azurite by a command that is killed; what it said in the end."""
    service = TableServiceClient.from_connection_string(server.connection_string)
    table = service.create_table(TABLE)
    command = ["copy", server.connection_string, azurite.connection_string, "--watch", "--resume", state]
    for batch in moved.batches(500):
        write(table, batch)
    for round_ in range(KILLS + 1):
        run = rowhouse(*command, stdout=subprocess.DEVNULL)
        time.sleep(random.uniform(1, 3))
        for number in range(round_ * 100, round_ * 100 + 150):
            entity = moved.entity(number)
            table.delete_entity(entity["PartitionKey"], entity["RowKey"])
        for batch in moved.batches(200 + round_):
            write(table, [{**entity, "Round": round_} for entity in batch[::2]])
        run.kill()
        run.wait()
    run = rowhouse(*command, "--until-caught-up", "--verify", stdout=subprocess.PIPE)
    said, _ = run.communicate()
    assert run.returncode == 0, said
    return table, said


def refuse_to_follow(azurite, server):
    run = rowhouse("copy", azurite.connection_string, server.connection_string, "--watch", stderr=subprocess.PIPE)
    _, said = run.communicate()
    assert run.returncode == 1 and "has no change feed" in said, said
    print(f"Azurite as a source to follow: {said.rstrip()}")


def judge(what, expected, table):
    found = moved.content(table)
    assert len(found) == len(expected), f"{what}: {len(found)} entities instead of {len(expected)}"
    different = [key for key in expected if found.get(key) != expected[key]]
    assert not different, f"{what}: {different[0]} is {found.get(different[0])} instead of {expected[different[0]]}"
    print(f"{what}: {len(found)} entities, every value and type the same")


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="rowhouse-copy-"))
    try:
        with Azurite(scratch / "first") as first, Azurite(scratch / "second") as second, Server() as server:
            service = TableServiceClient.from_connection_string(first.connection_string)
            table, began = service.create_table(TABLE), time.monotonic()
            for batch in moved.batches(count):
                write(table, batch)
            print(f"{count} entities written to Azurite in {time.monotonic() - began:.0f} s")
            seconds = max(2.0, count / 20_000)
            expected = moved.content(table)
            for what, source, target in (("Azurite to Rowhouse", first, server), ("Rowhouse to Azurite", server, second)):
                took, said = copy(source, target, scratch / f"{what[0]}.state", seconds)
                print(f"{what}: {took:.0f} s with kills and verification\n{said.rstrip()}")
                judge(what, expected, table_of(target))
            refuse_to_follow(first, server)
            first.stop()
            with Server() as other:
                run = rowhouse("import", "azurite", scratch / "first" / "__azurite_db_table__.json", "--connection",
                               other.connection_string, stdout=subprocess.PIPE)
                said, _ = run.communicate()
                print(said.rstrip())
                assert run.returncode == 0
                judge("Azurite's data file", expected, table_of(other))
        with Azurite(scratch / "third") as third, Server("--keep-changes", "1h") as source:
            table, said = follow(source, third, scratch / "watch.state")
            print(said.rstrip())
            judge("changes of Rowhouse followed into Azurite", moved.content(table), table_of(third))
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print("5 passed, 0 failed, 0 skipped")


if __name__ == "__main__":
    main()
