"""kill -9 while clients write: what was acknowledged is there after the restart, and no batch is half there."""
import random
import threading
import time

import pytest
import requests
from azure.core.exceptions import (DecodeError, HttpResponseError, IncompleteReadError, ServiceRequestError,
                                   ServiceResponseError)
from azure.data.tables import TableClient, UpdateMode

from helpers import entity, instant
from server import Server

ROUNDS, WRITERS, SECONDS = 8, 4, 0.6
# What the SDK raises when the server vanishes before, during or after an answer.
GONE = (ServiceRequestError, ServiceResponseError, IncompleteReadError, DecodeError, requests.exceptions.RequestException)


class Writer:
    """Writes to a partition of its own and remembers what was acknowledged, and what may or may not be there."""

    def __init__(self, client, number):
        self.client, self.partition, self.random = client, f"w{number}", random.Random(number)
        self.known = {}        # row -> value, acknowledged
        self.open = None       # rows -> value of the one request whose answer never came
        self.generation, self.acknowledged, self.fault = 0, 0, None

    def run(self, stop):
        try:
            while not stop.is_set():
                self.step()
                self.acknowledged += 1
        except GONE:
            pass
        except Exception as fault:  # noqa: BLE001  (reported by the main thread)
            self.fault = fault

    def step(self):
        self.generation += 1
        kind = self.random.choice(("insert", "upsert", "merge", "delete", "batch"))
        if kind == "insert":
            self.attempt({f"i{self.generation}": self.generation},
                         lambda: self.client.create_entity(entity(self.partition, f"i{self.generation}", N=self.generation)))
        elif kind == "batch":
            size = self.random.randint(2, 100)
            change = {f"b{n:03}": self.generation for n in range(size)}
            self.attempt(change, lambda: self.client.submit_transaction(
                [("upsert", entity(self.partition, row, N=self.generation)) for row in change]))
        elif kind == "delete" and self.known:
            row = self.random.choice(sorted(self.known))
            self.attempt({row: None}, lambda: self.client.delete_entity(self.partition, row))
        else:
            row = f"u{self.random.randint(0, 9)}"
            mode = UpdateMode.MERGE if kind == "merge" else UpdateMode.REPLACE
            self.attempt({row: self.generation},
                         lambda: self.client.upsert_entity(entity(self.partition, row, N=self.generation), mode=mode))

    def attempt(self, change, act):
        self.open = change
        act()
        self.settle(change)

    def settle(self, change):
        self.open = None
        for row, value in change.items():
            if value is None:
                self.known.pop(row, None)
            else:
                self.known[row] = value

    def verify(self):
        """Compares with the server; the one open request counts as wholly done or wholly not done."""
        query = self.client.query_entities("PartitionKey eq @p", parameters={"p": self.partition})
        found = {e["RowKey"]: e["N"] for e in query}
        if found == self.known:
            self.open = None
            return
        assert self.open is not None, self.difference(found)
        self.settle(self.open)
        assert found == self.known, self.difference(found)

    def difference(self, found):
        rows = [r for r in {*found, *self.known} if found.get(r) != self.known.get(r)]
        return f"{self.partition}: {[(r, self.known.get(r), found.get(r)) for r in sorted(rows)[:10]]} (row, known, found)"


@pytest.mark.ours
def test_nothing_acknowledged_is_lost(credential):
    with Server() as server:
        clients = [TableClient(server.endpoint, "survivors", credential=credential, retry_total=0) for _ in range(WRITERS)]
        clients[0].create_table()
        writers = [Writer(client, number) for number, client in enumerate(clients)]
        for _ in range(ROUNDS):
            stop = threading.Event()
            threads = [threading.Thread(target=w.run, args=(stop,)) for w in writers]
            [t.start() for t in threads]
            time.sleep(SECONDS * random.uniform(0.3, 1))
            server.kill()
            stop.set()
            [t.join() for t in threads]
            assert not [w.fault for w in writers if w.fault]
            server.start()
            for writer in writers:
                writer.verify()
        total = sum(w.acknowledged for w in writers)
        print(f"{ROUNDS} kills, {total} acknowledged writes")
        assert total > ROUNDS * WRITERS
        assert server.stop() == 0 and "panicked" not in server.log()


@pytest.mark.ours
def test_a_clean_stop_keeps_everything(credential):
    with Server() as server:
        with TableClient(server.endpoint, "keeper", credential=credential, retry_total=0) as client:
            client.create_table()
            etag = client.create_entity(entity(A=1))["etag"]
            assert server.stop() == 0
            with pytest.raises((HttpResponseError, *GONE)):
                client.get_entity("p", "r")
            server.start()
            found = client.get_entity("p", "r")
            assert (found["A"], found.metadata["etag"]) == (1, etag)
            assert instant(client.update_entity(entity(A=2))["etag"]) > instant(etag)
