"""Many at once: every message is had by one taker, and none is left."""
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

from azure.core.exceptions import ResourceNotFoundError

MESSAGES, CONSUMERS = 1000, 16


def client_of(queues, queue):
    return queues.get_queue_client(queue.queue_name)


def test_every_message_is_seen_once(queues, queue):
    with ThreadPoolExecutor(CONSUMERS) as pool:
        list(pool.map(lambda n: queue.send_message(f"m{n}"), range(MESSAGES)))
    assert queue.get_queue_properties().approximate_message_count == MESSAGES

    def consume(number):
        client, seen, size = client_of(queues, queue), [], 1 + number * 2
        while page := list(client.receive_messages(max_messages=min(size, 32), messages_per_page=min(size, 32), visibility_timeout=300)):
            for message in page:
                assert message.dequeue_count == 1
                seen.append(message.content)
                client.delete_message(message)
        return seen

    with ThreadPoolExecutor(CONSUMERS) as pool:
        seen = Counter(text for texts in pool.map(consume, range(CONSUMERS)) for text in texts)
    assert seen == Counter(f"m{n}" for n in range(MESSAGES))
    assert queue.get_queue_properties().approximate_message_count == 0


def test_while_others_still_send(queues, queue):
    senders_left, seen, lock = [4], Counter(), threading.Lock()

    def send(number):
        client = client_of(queues, queue)
        for n in range(50):
            client.send_message(f"{number}-{n}")
        with lock:
            senders_left[0] -= 1

    def take(_):
        client = client_of(queues, queue)
        while True:
            done = senders_left[0] == 0
            page = list(client.receive_messages(max_messages=8, messages_per_page=8, visibility_timeout=300))
            for message in page:
                client.delete_message(message)
            with lock:
                seen.update(m.content for m in page)
            if done and not page:
                return

    with ThreadPoolExecutor(8) as pool:
        results = [pool.submit(send, n) for n in range(4)] + [pool.submit(take, n) for n in range(4)]
        [result.result() for result in results]
    assert seen == Counter(f"{s}-{n}" for s in range(4) for n in range(50))


def test_one_of_many_deletes(queues, queue):
    """Of those that delete the same message with the same receipt one succeeds."""
    for _ in range(10):
        queue.send_message("m")
        got = queue.receive_message()

        def delete(_, got=got):
            try:
                client_of(queues, queue).delete_message(got)
                return 1
            except ResourceNotFoundError:
                return 0

        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(delete, range(8))) == 1


def test_one_of_many_updates_wins(queues, queue):
    """A receipt is good once: of those that update with it one succeeds, and its text is what stays."""
    for _ in range(10):
        queue.send_message("m")
        got = queue.receive_message()

        def update(number, got=got):
            try:
                client_of(queues, queue).update_message(got.id, got.pop_receipt, content=f"by {number}", visibility_timeout=0)
                return [f"by {number}"]
            except ResourceNotFoundError:
                return []

        with ThreadPoolExecutor(8) as pool:
            winners = [text for found in pool.map(update, range(8)) for text in found]
        assert winners == [queue.peek_messages()[0].content]
        queue.clear_messages()
