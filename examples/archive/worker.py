"""Moves employees from the table Current to the table Archive, one for each message in a queue.

    worker.py CONNECTION_STRING [--outbox] [--once] [--attempts 5] [--hidden 30]

Start as many as there is work for, and kill them whenever you like: what a worker was about comes back to another when its
visibility has passed. A message is {"department": "sales", "employee": "000223"}; one that fails too often goes to the
poison queue.

Without --outbox each step is safe to repeat, and for a moment an employee is in both tables. With it an employee is at
every moment in exactly one of them.
"""
import argparse
import json
import time

from azure.core.exceptions import AzureError, ResourceNotFoundError
from azure.data.tables import TableServiceClient, UpdateMode
from azure.storage.queue import QueueServiceClient

from outbox import Outbox, Refused, wire

ORDERS, POISON = "leavers", "leavers-poison"


class Worker:
    """Takes orders; each way of moving adds what it does with one."""

    def __init__(self, connection, attempts, hidden):
        self.attempts, self.hidden = attempts, hidden
        tables, self.queues = TableServiceClient.from_connection_string(connection), QueueServiceClient.from_connection_string(connection)
        self.current, self.archive = tables.get_table_client("Current"), tables.get_table_client("Archive")

    def run(self, once):
        """Works for ever, or until there are no orders."""
        orders = self.queues.get_queue_client(ORDERS)
        while True:
            try:
                if not self.work_on(orders):
                    if once and not orders.get_queue_properties().approximate_message_count:
                        return
                    time.sleep(0.1)
            except (AzureError, OSError):
                time.sleep(0.1)     # the server is not there; it will be

    def work_on(self, orders):
        """Whether there was something to do."""
        messages = list(orders.receive_messages(max_messages=8, messages_per_page=8, visibility_timeout=self.hidden))
        for message in messages:
            try:
                self.handle(message)
            except (KeyError, TypeError, ValueError, ResourceNotFoundError, Refused) as fault:
                if message.dequeue_count >= self.attempts:
                    self.give_up(message, fault)
                else:
                    orders.update_message(message, visibility_timeout=0)     # somebody tries again
        return bool(messages)


class Steps(Worker):
    """Copy, remove, done: whoever repeats a step changes nothing."""

    def handle(self, message):
        order = json.loads(message.content)
        keys = order["department"], order["employee"]
        try:
            employee = self.current.get_entity(*keys)
        except ResourceNotFoundError:
            self.archive.get_entity(*keys)      # it was moved before, or the order makes no sense
        else:
            self.archive.upsert_entity(employee, mode=UpdateMode.REPLACE)
            self.current.delete_entity(*keys)
        self.finish(message)

    def give_up(self, message, fault):
        self.queues.get_queue_client(POISON).send_message(json.dumps({"order": message.content, "fault": repr(fault)}))
        self.finish(message)

    def finish(self, message):
        try:
            self.queues.get_queue_client(ORDERS).delete_message(message)
        except ResourceNotFoundError:
            pass    # it took too long, and another has it


class WithOutbox(Worker):
    """The employee leaves one table, comes into the other and the order is done, in one commit."""

    def __init__(self, connection, attempts, hidden):
        super().__init__(connection, attempts, hidden)
        said = dict(part.split("=", 1) for part in connection.split(";") if part)
        self.outbox = Outbox(said["AccountName"], said["AccountKey"], said["TableEndpoint"], said["QueueEndpoint"])

    def handle(self, message):
        order = json.loads(message.content)
        employee = self.current.get_entity(order["department"], order["employee"])
        gone = self.outbox.remove("Current", employee["PartitionKey"], employee["RowKey"], employee.metadata["etag"])
        self.outbox.commit(gone, self.outbox.insert("Archive", wire(employee)), self.outbox.take_off(ORDERS, message))

    def give_up(self, message, fault):
        poison = self.outbox.put(POISON, json.dumps({"order": message.content, "fault": repr(fault)}))
        try:
            self.outbox.commit(poison, self.outbox.take_off(ORDERS, message))
        except Refused:
            pass    # it took too long, and another has it


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("connection", help="connection string")
    ap.add_argument("--outbox", action="store_true", help="with both tables and the message in one commit")
    ap.add_argument("--once", action="store_true", help="end when there are no orders")
    ap.add_argument("--attempts", type=int, default=5, help="how often a message is tried")
    ap.add_argument("--hidden", type=int, default=30, help="seconds for which a message is hidden from other workers")
    args = ap.parse_args()
    worker = (WithOutbox if args.outbox else Steps)(args.connection, args.attempts, args.hidden)
    print("at work", flush=True)
    worker.run(args.once)


if __name__ == "__main__":
    main()
