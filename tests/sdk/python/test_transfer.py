"""rowhouse export, import and copy, judged by the SDK: what arrives has the same values of the same types."""
import json
import os
import subprocess
import time

import pytest
from azure.data.tables import TableServiceClient

import moved
from server import Server, binary

pytestmark = pytest.mark.ours
COUNT = 400


def rowhouse(directory, *arguments):
    env = {name: value for name, value in os.environ.items() if not name.startswith("ROWHOUSE_")}
    done = subprocess.run([binary(), *arguments], cwd=directory, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def pair():
    """Two servers, the first with a table."""
    with Server() as source, Server() as target:
        service = TableServiceClient.from_connection_string(source.connection_string)
        people = service.create_table("People")
        for batch in moved.batches(COUNT):
            people.submit_transaction([("create", entity) for entity in batch])
        yield source, target, moved.content(people)


def arrived(server, table):
    return moved.content(TableServiceClient.from_connection_string(server.connection_string).get_table_client(table))


@pytest.mark.parametrize("ending", ["ndjson", "csv"])
def test_through_a_file(pair, tmp_path, ending):
    source, target, expected = pair
    file, table = f"people.{ending}", f"From{ending}"
    rowhouse(tmp_path, "export", "People", "--out", file, "--connection", source.connection_string)
    rowhouse(tmp_path, "import", table, file, "--create", "--connection", target.connection_string)
    assert len(expected) == COUNT
    assert arrived(target, table) == expected


def test_a_copy(pair, tmp_path):
    source, target, expected = pair
    said = rowhouse(tmp_path, "copy", source.connection_string, target.connection_string, "--tables", "People",
                    "--verify")
    assert " same" in said, said
    assert arrived(target, "People") == expected


def test_a_server_that_comes_back(tmp_path):
    """An export waits for a server that is killed and started again, and misses nothing."""
    count = 20_000
    with open(tmp_path / "in.ndjson", "w") as file:
        for number in range(count):
            file.write(json.dumps({"PartitionKey": f"p{number % 50:02}", "RowKey": f"{number:06}", "N": number}) + "\n")
    with Server() as server:
        rowhouse(tmp_path, "import", "Many", "in.ndjson", "--create", "--connection", server.connection_string)
        command = [binary(), "export", "Many", "--out", "out.ndjson", "--jobs", "2", "--connection", server.connection_string]
        export = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        part = tmp_path / "out.ndjson.part"
        while export.poll() is None and not (part.exists() and part.stat().st_size):
            time.sleep(0.002)
        server.kill()
        interrupted = export.poll() is None
        time.sleep(0.5)
        server.start()
        _, said = export.communicate(timeout=120)
        assert export.returncode == 0, said
    numbers = sorted(json.loads(line)["N"] for line in open(tmp_path / "out.ndjson"))
    assert numbers == list(range(count))
    assert interrupted, "the export was quicker than the kill"
