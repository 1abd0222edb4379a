#!/usr/bin/env python3
"""Copies a table from Azurite to Rowhouse and from Rowhouse to Azurite, killed twice each way, imports Azurite's data
file, and follows a Rowhouse that is written to into Azurite with `copy --watch`, killed on the way. The official SDK
compares every entity at the destination, and the access policies of the table, with what was written at the source.
Keys that Azurite sorts in another order than Rowhouse are exported and copied too.

    run.py [ENTITIES] [from | to | watch | keys]

Without a direction, all. Azurite saves its whole file again and again, and beyond some size cannot do so at all: large
tables it holds in memory, and there is no file to import. Needs .work/azurite (scripts/setup azurite), .work/venv
(scripts/setup python) and the built binary.
"""
import contextlib
import datetime
import json
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
from azure.data.tables import TableAccessPolicy, TableServiceClient  # noqa: E402
from server import ACCOUNT, KEY, Server, binary  # noqa: E402

AZURITE = ROOT / ".work" / "azurite" / "node_modules" / "azurite" / "dist" / "src" / "table" / "main.js"
TABLE = "Everything"
KILLS = 2
# Beyond so many entities Azurite does not save them.
SAVED_MAX = 50_000
# First characters of keys: U+E000 to U+FFFF come before U+10000 and beyond in UTF-8, and after them in UTF-16.
FIRSTS = ["a", "é", "\ue000", "\uf8ff", "\ufb00", "\ufffd", "\U00010000", "\U0001f600", "\U0001f601"]


class Azurite:
    """One running Azurite with a directory of its own."""

    def __init__(self, scratch, saves):
        scratch.mkdir()
        self.file = scratch / "__azurite_db_table__.json"
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        place = ["--location", scratch] if saves else ["--inMemoryPersistence"]
        command = ["node", "--max-old-space-size=8192", AZURITE, "--tableHost", "127.0.0.1", "--tablePort", str(self.port),
                   *place, "--silent", "--skipApiVersionCheck", "--disableTelemetry"]
        self.process = subprocess.Popen(command, cwd=scratch, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
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


def fill(server, count, scratch):
    """Writes in the order of keys, which is how Azurite reads fastest. The SDK would take an hour for a million."""
    began = time.monotonic()
    if count <= SAVED_MAX:
        table = TableServiceClient.from_connection_string(server.connection_string).create_table(TABLE)
        for batch in moved.batches(count):
            write(table, batch)
    else:
        file = scratch / f"{TABLE}.ndjson"
        with open(file, "w", encoding="utf-8") as out:
            for batch in moved.batches(count):
                out.writelines(map(moved.line, batch))
        run = rowhouse("import", TABLE, file, "--create", "--jobs", "1", "--connection", server.connection_string,
                       stdout=subprocess.DEVNULL)
        assert run.wait() == 0
        file.unlink()
    guard(table_of(server))
    print(f"{count} entities written in {time.monotonic() - began:.0f} s", flush=True)


def guard(table):
    """Gives the table two access policies. Azurite refuses those without times."""
    start, expiry = (datetime.datetime(year, 2, 3, 4, 5, 6, tzinfo=datetime.timezone.utc) for year in (2020, 2099))
    table.set_table_access_policy({
        "readers": TableAccessPolicy(start=start, expiry=expiry, permission="r"),
        "writers": TableAccessPolicy(start=start, expiry=expiry, permission="raud"),
    })


def policies(table):
    """The access policies of a table, in a form that can be compared."""
    found = {}
    for name, policy in table.get_table_access_policy().items():
        times = [str(time)[:19].replace("T", " ") if time else None for time in (policy.start, policy.expiry)] if policy else []
        found[name] = (*times, policy.permission if policy else None)
    return found


def copy(what, source, target, state, count):
    """Copies with kills in the middle, and tells how long it took in all and what the last run said."""
    command = ["copy", source.connection_string, target.connection_string, "--tables", TABLE, "--resume", state]
    began, kills = time.monotonic(), 0
    while kills < KILLS:
        run = rowhouse(*command, stdout=subprocess.DEVNULL)
        while run.poll() is None and copied(state) < count * (kills + 1) / (KILLS + 2):
            time.sleep(0.05)
        assert run.poll() is None, f"the copy ended before it could be killed: {count} entities are too few"
        run.kill()
        run.wait()
        kills += 1
        print(f"  killed after {time.monotonic() - began:.0f} s, {copied(state)} entities noted", flush=True)
    run = rowhouse(*command, stdout=subprocess.DEVNULL)
    assert run.wait() == 0
    print(f"{what}: {time.monotonic() - began:.0f} s with kills", flush=True)
    expected, found = (policies(table_of(side)) for side in (source, target))
    assert len(expected) == 2 and found == expected, f"{what}: the policies are {found} in place of {expected}"
    # Everything is copied: this is about comparing.
    began = time.monotonic()
    run = rowhouse(*command, "--verify", stdout=subprocess.PIPE)
    said, _ = run.communicate()
    assert run.returncode == 0 and " same" in said and "not compared" not in said, said
    print(f"{said.rstrip()}\ncompared in {time.monotonic() - began:.0f} s", flush=True)


def copied(state):
    return json.loads(state.read_text())["entities"] if state.exists() else 0


def judge(what, table, count):
    began = time.monotonic()
    for difference in moved.differences(table, count):
        raise AssertionError(f"{what}: {difference}")
    took = time.monotonic() - began
    print(f"{what}: {count} entities, every value and type the same; read by the SDK in {took:.0f} s", flush=True)


def from_azurite(scratch, count):
    saves = count <= SAVED_MAX
    with Azurite(scratch / "source", saves) as azurite:
        fill(azurite, count, scratch)
        with Server() as server:
            copy("Azurite to Rowhouse", azurite, server, scratch / "from.state", count)
            judge("Azurite to Rowhouse", table_of(server), count)
        if not saves:
            return 1
        azurite.stop()
        with Server() as server:
            run = rowhouse("import", "azurite", azurite.file, "--connection", server.connection_string,
                           stdout=subprocess.PIPE)
            said, _ = run.communicate()
            print(said.rstrip())
            assert run.returncode == 0
            judge("Azurite's data file", table_of(server), count)
            assert set(policies(table_of(server))) == {"readers", "writers"}
    return 2


def to_azurite(scratch, count):
    with Server() as server, Azurite(scratch / "target", count <= SAVED_MAX) as azurite:
        fill(server, count, scratch)
        copy("Rowhouse to Azurite", server, azurite, scratch / "to.state", count)
        judge("Rowhouse to Azurite", table_of(azurite), count)
    return 1


def watch(scratch, _count):
    with Azurite(scratch / "watch", True) as azurite, Server("--keep-changes", "1h") as server:
        table = follow(server, azurite, scratch / "watch.state")
        expected, found = moved.content(table), moved.content(table_of(azurite))
        assert found == expected, f"{len(found)} entities at Azurite, {len(expected)} at Rowhouse, or their values differ"
        print(f"changes of Rowhouse followed into Azurite: {len(found)} entities, every value and type the same")
        refuse_to_follow(azurite, server)
    return 2


def follow(server, azurite, state):
    """Makes changes of every kind at Rowhouse, which a command that is killed follows into Azurite; tells the table."""
    table = TableServiceClient.from_connection_string(server.connection_string).create_table(TABLE)
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
    print(said.rstrip())
    return table


def keys(scratch, _count):
    """Reads side by side what two services sort differently: no key twice, none missing."""
    with Azurite(scratch / "keys", True) as azurite, Server() as server:
        table = TableServiceClient.from_connection_string(azurite.connection_string).create_table(TABLE)
        for partition in FIRSTS:
            for first in FIRSTS:
                write(table, [{"PartitionKey": partition, "RowKey": f"{first}{row}"} for row in range(40)])
        count = len(FIRSTS) ** 2 * 40
        guard(table)
        run = rowhouse("export", TABLE, "--jobs", "8", "--connection", azurite.connection_string, stdout=subprocess.PIPE)
        said, _ = run.communicate()
        assert run.returncode == 0
        lines = [json.loads(line) for line in said.splitlines()]
        found = {(entity["PartitionKey"], entity["RowKey"]) for entity in lines}
        assert len(lines) == len(found) == count, f"{len(lines)} lines, {len(found)} keys, {count} entities"
        for source, target in ((azurite, server), (server, azurite)):
            run = rowhouse("copy", source.connection_string, target.connection_string, "--jobs", "8", "--verify",
                           stdout=subprocess.PIPE)
            said, _ = run.communicate()
            assert run.returncode == 0 and said.startswith(f"Copied {count} entities"), said
        print(f"keys that are sorted differently: {count} entities, each exported and copied once")
    return 1


def refuse_to_follow(azurite, server):
    run = rowhouse("copy", azurite.connection_string, server.connection_string, "--watch", stderr=subprocess.PIPE)
    _, said = run.communicate()
    assert run.returncode == 1 and "has no change feed" in said, said
    print(f"Azurite as a source to follow: {said.rstrip()}")


def main():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 20_000
    directions = {"from": from_azurite, "to": to_azurite, "watch": watch, "keys": keys}
    chosen = [directions[name] for name in sys.argv[2:] or directions]
    scratch = pathlib.Path(tempfile.mkdtemp(prefix="rowhouse-copy-"))
    try:
        passed = sum(direction(scratch, count) for direction in chosen)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    print(f"{passed} passed, 0 failed, 0 skipped")


if __name__ == "__main__":
    main()
