#!/usr/bin/env python3
"""Kills the workers of examples/archive, and their server, again and again; then looks for every employee and every message.

    run.py [ROUNDS]

In each round employees leave, some orders make no sense, workers are killed (SIGKILL) at random moments, in every third round
the server too, and others finish the work. Both ways of moving are at it at once, on servers of their own. ROWHOUSE_SEED repeats
the choices of a run. Run it with the Python of .work/venv, which make prepares.
"""
import datetime
import json
import os
import pathlib
import random
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "sdk"))
from azure.core.exceptions import AzureError, ResourceNotFoundError  # noqa: E402
from azure.data.tables import EdmType, EntityProperty, TableServiceClient  # noqa: E402
from azure.storage.queue import QueueServiceClient  # noqa: E402

from server import Server  # noqa: E402  (the path above is what makes it importable)

ROUNDS, EMPLOYEES, WORKERS, KILLS = 3, 20, 2, 3
# More than a message of sense can be taken: once for each kill, and some for a machine that is busy.
ATTEMPTS, HIDDEN = 12, 1
FINISH_SECONDS = 120
QUEUES = ("leavers", "leavers-poison")
SENSELESS = ("no JSON", '{"department": "sales"}', '{"department": "nowhere", "employee": "nobody"}')


def person(number, n):
    """An employee with a value of every type."""
    since = datetime.datetime(2020, 2, 29, 12, 30, n, 123456, tzinfo=datetime.timezone.utc)
    return {"PartitionKey": f"d{number:04}", "RowKey": f"{n:06}", "Name": f"O'Neil <{n}> & Sons", "Age": n, "Active": n % 2 == 0,
            "Badge": EntityProperty(2**40 + n, EdmType.INT64), "Since": since, "Photo": bytes([n, 0, 255]), "Pay": 1.0,
            "Token": uuid.UUID(int=n)}


class Trial:
    """One way of moving, on a server of its own."""

    def __init__(self, name, options, seed):
        self.name, self.options, self.random = name, options, random.Random(f"{seed} {name}")
        self.server, self.kills, self.server_kills, self.looks = Server(), 0, 0, 0
        connection = self.server.connection_string
        tables, self.queues = TableServiceClient.from_connection_string(connection), QueueServiceClient.from_connection_string(connection)
        self.current, self.archive = tables.create_table("Current"), tables.create_table("Archive")
        for queue in QUEUES:
            self.queues.create_queue(queue)

    def worker(self, *more):
        """A worker that has begun."""
        command = [sys.executable, ROOT / "examples" / "archive" / "worker.py", self.server.connection_string, *self.options,
                   "--attempts", str(ATTEMPTS), "--hidden", str(HIDDEN), *more]
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        assert child.stdout.readline() == "at work\n", "the worker did not begin"
        return child

    def order(self, number):
        """Employees, an order for each, and some that make no sense."""
        people = [person(number, n) for n in range(EMPLOYEES)]
        self.current.submit_transaction([("create", person) for person in people])
        texts = [json.dumps({"department": p["PartitionKey"], "employee": p["RowKey"]}) for p in people] + list(SENSELESS)
        self.random.shuffle(texts)
        for text in texts:
            self.queues.get_queue_client("leavers").send_message(text, time_to_live=-1)
        return people

    def disturb(self, number):
        """Kills workers, and perhaps the server, while they work."""
        for kill in range(KILLS):
            workers = [self.worker() for _ in range(WORKERS)]
            time.sleep(self.random.uniform(0, 0.4))
            if number % 3 == 0 and kill == 1:
                self.server.kill()
                self.server.start()
                self.server_kills += 1
                time.sleep(self.random.uniform(0, 0.2))
            for worker in workers:
                worker.kill()
                worker.wait()
                self.kills += 1

    def watch(self, people, stop, faults):
        """With the outbox everybody is at every moment in exactly one table. Nobody ever comes back, so two reads tell: who is in the
        archive is not in the other table afterwards, and who is not in the other table is in the archive afterwards."""
        def holds(table, keys):
            try:
                table.get_entity(*keys)
                return True
            except ResourceNotFoundError:
                return False

        while not stop.is_set():
            person = random.choice(people)
            keys = person["PartitionKey"], person["RowKey"]
            try:
                if self.looks % 2:
                    if holds(self.archive, keys) and holds(self.current, keys):
                        faults.append(f"{keys} was in both tables")
                elif not holds(self.current, keys) and not holds(self.archive, keys):
                    faults.append(f"{keys} was in neither table")
                self.looks += 1
            except (AzureError, OSError):
                time.sleep(0.05)    # the server was killed

    def round(self, number):
        people = self.order(number)
        stop, faults = threading.Event(), []
        watcher = threading.Thread(target=self.watch, args=(people, stop, faults))
        if "--outbox" in self.options:
            watcher.start()
        try:
            self.disturb(number)
            last = self.worker("--once")
            try:
                assert last.wait(FINISH_SECONDS) == 0, "the last worker failed"
            finally:
                last.kill()
        finally:
            stop.set()
            if watcher.ident:
                watcher.join()
        assert not faults, faults[:5]
        self.verify(number, people)

    def verify(self, number, people):
        left = [e["RowKey"] for e in self.current.list_entities()]
        assert not left, f"{left} have not left"
        found = {e["RowKey"]: dict(e) for e in self.archive.query_entities("PartitionKey eq @d", parameters={"d": f"d{number:04}"})}
        assert found == {p["RowKey"]: p for p in people}, f"the archive of round {number} is not what it should be: {sorted(found)}"
        poison = self.queues.get_queue_client("leavers-poison")
        orders = Counter(json.loads(m.content)["order"] for m in poison.receive_messages(messages_per_page=32))
        assert set(orders) == set(SENSELESS), f"given up were {orders}"
        # Without the outbox a worker that dies while it gives up leaves a second copy.
        assert "--outbox" not in self.options or set(orders.values()) == {1}, f"given up were {orders}"
        poison.clear_messages()
        for queue in QUEUES:
            left = self.queues.get_queue_client(queue).get_queue_properties().approximate_message_count
            assert left == 0, f"{left} messages are in {queue}"

    def close(self):
        log, status = self.server.log(), self.server.stop()
        self.server.close()
        assert status == 0 and "panicked" not in log, log[-2000:]


def run(trial, rounds, faults):
    try:
        for number in range(1, rounds + 1):
            trial.round(number)
            if number % 20 == 0:
                print(f"archive, {trial.name}: round {number}", flush=True)
        trial.close()
    except Exception as fault:  # noqa: BLE001  (told by the main thread)
        faults.append(f"archive, {trial.name}: {type(fault).__name__}: {fault}\n{trial.server.log()[-1000:]}")
        trial.server.close()


def main():
    told = sys.argv[1:] or [os.environ.get("ROWHOUSE_ARCHIVE_ROUNDS") or str(ROUNDS)]
    if len(told) != 1 or not told[0].isdigit() or int(told[0]) == 0:
        print("\n".join(__doc__.splitlines()[2:3]), file=sys.stderr)
        return 2
    rounds, seed, faults = int(told[0]), os.environ.get("ROWHOUSE_SEED") or str(random.getrandbits(32)), []
    print(f"ROWHOUSE_SEED={seed}", flush=True)
    trials = [Trial("by steps", [], seed), Trial("with the outbox", ["--outbox"], seed)]
    threads = [threading.Thread(target=run, args=(trial, rounds, faults)) for trial in trials]
    [t.start() for t in threads]
    [t.join() for t in threads]
    for trial in trials:
        print(f"archive, {trial.name}: {rounds} rounds, {rounds * EMPLOYEES} employees, {trial.kills} workers and "
              f"{trial.server_kills} servers killed" + (f", {trial.looks} looks for one in both tables or in neither" if trial.looks else ""))
    for fault in faults:
        print(fault)
    print(f"{len(trials) - len(faults)} passed, {len(faults)} failed, 0 skipped")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
