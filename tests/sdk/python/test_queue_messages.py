"""Messages: put, taken, looked at, changed, removed; when they are seen and how long they live."""
import time
import uuid
from datetime import datetime, timedelta, timezone
from urllib.parse import quote

import pytest
from azure.storage.queue import QueueMessage

import queue_raw as raw
from helpers import refused

WEEK = timedelta(days=7)
NEVER = datetime(9999, 12, 31, 23, 59, 59, tzinfo=timezone.utc)


def contents(messages):
    return [m.content for m in messages]


def until(act, seconds=10):
    """What the function returns as soon as that is something."""
    deadline = time.monotonic() + seconds
    while not (found := act()):
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)
    return found


def with_receipt(message, receipt):
    """The same message with another receipt."""
    other = QueueMessage(content=None)
    other.id, other.pop_receipt = message.id, receipt
    return other


def test_send_and_receive(queue):
    sent = queue.send_message("hello")
    assert uuid.UUID(sent.id) and sent.pop_receipt and sent.content == "hello"
    assert sent.expires_on - sent.inserted_on == WEEK
    assert abs((datetime.now(timezone.utc) - sent.inserted_on).total_seconds()) < 60
    got = queue.receive_message(visibility_timeout=30)
    assert (got.id, got.content, got.dequeue_count) == (sent.id, "hello", 1)
    assert (got.inserted_on, got.expires_on) == (sent.inserted_on, sent.expires_on)
    assert 28 <= (got.next_visible_on - datetime.now(timezone.utc)).total_seconds() <= 31
    assert got.pop_receipt != sent.pop_receipt
    assert queue.receive_message() is None and queue.peek_messages() == []
    queue.delete_message(got)
    assert queue.get_queue_properties().approximate_message_count == 0


def test_peek_changes_nothing(queue):
    for text in "abc":
        queue.send_message(text)
    for _ in range(3):
        peeked = queue.peek_messages(max_messages=32)
        assert contents(peeked) == ["a", "b", "c"]
        assert [m.dequeue_count for m in peeked] == [0, 0, 0]
        assert all(m.pop_receipt is None and m.next_visible_on is None for m in peeked)
    assert contents(queue.peek_messages()) == ["a"]
    assert queue.receive_message().dequeue_count == 1
    assert contents(queue.peek_messages(max_messages=32)) == ["b", "c"]


def test_receive_many(queue):
    for number in range(40):
        queue.send_message(str(number))
    [first, second] = [list(page) for page in queue.receive_messages(messages_per_page=32, visibility_timeout=60).by_page()][:2]
    assert (len(first), len(second)) == (32, 8)
    assert contents(first + second) == [str(n) for n in range(40)]     # none was given back, so the order is that of arrival
    assert len({m.id for m in first + second}) == 40
    assert contents(queue.receive_messages(messages_per_page=32)) == []
    for message in first + second:
        queue.delete_message(message.id, message.pop_receipt)
    assert queue.get_queue_properties().approximate_message_count == 0


def test_at_most_so_many(queue):
    for number in range(5):
        queue.send_message(str(number))
    assert contents(queue.receive_messages(max_messages=3)) == ["0", "1", "2"]
    assert contents(queue.receive_messages(max_messages=3)) == ["3", "4"]


def test_clear(queue):
    sent = [queue.send_message(text) for text in ("seen", "hidden", "taken")]
    taken = queue.receive_message()
    queue.clear_messages()
    assert queue.get_queue_properties().approximate_message_count == 0
    assert queue.peek_messages(32) == []
    for message in (*sent, taken):
        with refused(404, "MessageNotFound"):
            queue.delete_message(message)
    queue.clear_messages()      # nothing to do
    queue.send_message("again")
    assert contents(queue.peek_messages(32)) == ["again"]


def test_sent_for_later(queue):
    sent = queue.send_message("later", visibility_timeout=2)
    assert queue.receive_message() is None and queue.peek_messages() == []
    assert queue.get_queue_properties().approximate_message_count == 1
    got = until(queue.receive_message)
    assert got.id == sent.id and got.dequeue_count == 1


def test_comes_back(queue):
    """Unless it is deleted it is seen again, counted, and the receipt of the first taker is worth nothing any more."""
    queue.send_message("m")
    first = queue.receive_message(visibility_timeout=1)
    assert queue.receive_message() is None
    second = until(lambda: queue.receive_message(visibility_timeout=30))
    assert (second.id, second.dequeue_count) == (first.id, 2) and second.pop_receipt != first.pop_receipt
    with refused(404, "MessageNotFound"):
        queue.delete_message(first)
    with refused(404, "MessageNotFound"):
        queue.update_message(first, visibility_timeout=0)
    queue.delete_message(second)
    with refused(404, "MessageNotFound"):
        queue.delete_message(second)


def test_a_late_delete_succeeds_when_nobody_has_taken_it(queue):
    queue.send_message("m")
    got = queue.receive_message(visibility_timeout=1)
    until(lambda: queue.peek_messages())
    queue.delete_message(got)
    assert queue.peek_messages() == []


def test_dequeue_count(queue):
    queue.send_message("poison")
    for count in range(1, 7):
        got = queue.receive_message(visibility_timeout=30)
        assert got.dequeue_count == count
        queue.update_message(got, visibility_timeout=0)     # given back at once; this does not count
        assert queue.peek_messages()[0].dequeue_count == count


def test_the_sender_holds_a_receipt(queue):
    sent = queue.send_message("draft", visibility_timeout=60)
    changed = queue.update_message(sent, content="final", visibility_timeout=0)
    assert changed.pop_receipt != sent.pop_receipt
    got = queue.receive_message()
    assert (got.content, got.dequeue_count) == ("final", 1)
    other = queue.send_message("unwanted")
    queue.delete_message(other)
    assert queue.receive_message() is None


def test_update(queue):
    queue.send_message("old")
    got = queue.receive_message(visibility_timeout=30)
    longer = queue.update_message(got, visibility_timeout=100)                        # no content: only the time
    assert 98 <= (longer.next_visible_on - datetime.now(timezone.utc)).total_seconds() <= 101
    with refused(404, "MessageNotFound"):
        queue.update_message(with_receipt(got, got.pop_receipt), content="by the old receipt")
    changed = queue.update_message(with_receipt(got, longer.pop_receipt), content="new", visibility_timeout=0)
    seen = queue.receive_message()
    assert (seen.content, seen.dequeue_count, seen.inserted_on, seen.expires_on) == ("new", 2, got.inserted_on, got.expires_on)
    with refused(404, "MessageNotFound"):
        queue.delete_message(with_receipt(got, changed.pop_receipt))
    queue.delete_message(seen)


def test_update_keeps_the_text_or_empties_it(queue_endpoint, queue):
    sent = queue.send_message("text", visibility_timeout=60)
    path = f"/{queue.queue_name}/messages/{sent.id}"

    def update(receipt, body):
        answer = raw.send(queue_endpoint, "PUT", path, body, query=f"popreceipt={quote(receipt, safe='')}&visibilitytimeout=0")
        assert (answer.status, answer.body) == (204, ""), answer
        assert answer.headers["x-ms-time-next-visible"].endswith(" GMT")
        return answer.headers["x-ms-popreceipt"]

    receipt = update(sent.pop_receipt, None)
    assert queue.peek_messages()[0].content == "text"
    receipt = update(receipt, "<QueueMessage><MessageText></MessageText></QueueMessage>")
    assert queue.peek_messages()[0].content in ("", None)
    update(receipt, '<?xml version="1.0"?><QueueMessage>\n <MessageText>again</MessageText>\n</QueueMessage>')
    assert queue.peek_messages()[0].content == "again"


def test_time_to_live(queue):
    short = queue.send_message("short", time_to_live=1)
    hidden = queue.send_message("hidden", time_to_live=2, visibility_timeout=1)
    forever = queue.send_message("forever", time_to_live=-1)
    long = queue.send_message("long", time_to_live=2**31 - 1)
    assert short.expires_on - short.inserted_on == timedelta(seconds=1)
    assert forever.expires_on == NEVER and long.expires_on - long.inserted_on == timedelta(seconds=2**31 - 1)
    until(lambda: contents(queue.peek_messages(32)) == ["forever", "long"] and datetime.now(timezone.utc) > hidden.expires_on
          + timedelta(seconds=1))
    for gone in (short, hidden):
        with refused(404, "MessageNotFound"):
            queue.update_message(gone, visibility_timeout=0)
        with refused(404, "MessageNotFound"):
            queue.delete_message(gone)
    assert queue.get_queue_properties().approximate_message_count >= 2      # what has expired may still be counted
    assert contents(queue.receive_messages(messages_per_page=32)) == ["forever", "long"]


def test_expires_while_taken(queue):
    queue.send_message("m", time_to_live=2)
    got = queue.receive_message(visibility_timeout=60)
    time.sleep(2.2)
    with refused(404, "MessageNotFound"):
        queue.delete_message(got)
    with refused(404, "MessageNotFound"):
        queue.update_message(got, visibility_timeout=0)
    assert queue.peek_messages(32) == []


def test_receipts(queue_endpoint, queue):
    sent = queue.send_message("m")
    path, good = f"/{queue.queue_name}/messages", "AAAAAAAAAAAAAAAAAAAAAA%3D%3D"
    for method, query in (("DELETE", ""), ("PUT", "&visibilitytimeout=0")):
        def ask(identity, receipt):
            return raw.send(queue_endpoint, method, f"{path}/{identity}", query=f"popreceipt={receipt}{query}")
        assert ask(sent.id, good).is_error(404, "MessageNotFound")
        assert ask(uuid.uuid4(), good).is_error(404, "MessageNotFound")
        assert ask("no-guid", good).is_error(404, "MessageNotFound")
        assert ask(sent.id, "invalid").is_error(
            400, "InvalidQueryParameterValue", QueryParameterName="popreceipt", QueryParameterValue="invalid",
            Reason="Invalid pop receipt format")
        missing = raw.send(queue_endpoint, method, f"{path}/{sent.id}", query=query.lstrip("&"))
        assert missing.is_error(400, "MissingRequiredQueryParameter", QueryParameterName="popreceipt")
    no_time = raw.send(queue_endpoint, "PUT", f"{path}/{sent.id}", query=f"popreceipt={good}")
    assert no_time.is_error(400, "MissingRequiredQueryParameter", QueryParameterName="visibilitytimeout")
    assert contents(queue.peek_messages()) == ["m"]


def test_receipt_of_another_message(queue):
    one, other = queue.send_message("one"), queue.send_message("other")
    got = queue.receive_message()
    with refused(404, "MessageNotFound"):
        queue.delete_message(other.id, one.pop_receipt)     # superseded, and not its own
    queue.delete_message(got)
    assert contents(queue.peek_messages(32)) == ["other"]


BODY = "<QueueMessage><MessageText>m</MessageText></QueueMessage>"


@pytest.mark.parametrize("method, query, code, elements", [
    ("GET", "numofmessages=0", "OutOfRangeQueryParameterValue", {"QueryParameterName": "numofmessages", "MinimumAllowed": "1",
                                                                 "MaximumAllowed": "32"}),
    ("GET", "numofmessages=33", "OutOfRangeQueryParameterValue", {"QueryParameterValue": "33"}),
    ("GET", "numofmessages=33&peekonly=true", "OutOfRangeQueryParameterValue", {"QueryParameterValue": "33"}),
    ("GET", "numofmessages=many", "InvalidQueryParameterValue", {"QueryParameterName": "numofmessages"}),
    ("GET", "visibilitytimeout=0", "OutOfRangeQueryParameterValue", {"MinimumAllowed": "1", "MaximumAllowed": "604800"}),
    ("GET", "visibilitytimeout=604801", "OutOfRangeQueryParameterValue", {"QueryParameterName": "visibilitytimeout"}),
    ("POST", "visibilitytimeout=-1", "OutOfRangeQueryParameterValue", {"MinimumAllowed": "0"}),
    ("POST", "visibilitytimeout=604801", "OutOfRangeQueryParameterValue", {"MaximumAllowed": "604800"}),
    ("POST", "visibilitytimeout=10&messagettl=10", "InvalidQueryParameterValue",
     {"QueryParameterName": "visibilitytimeout", "Reason": "messagettl must be greater than visibilitytimeout"}),
], ids=str)
def test_parameters(queue_endpoint, queue, method, query, code, elements):
    answer = raw.send(queue_endpoint, method, f"/{queue.queue_name}/messages", BODY if method == "POST" else None, query=query)
    assert answer.is_error(400, code, **elements)
    assert queue.get_queue_properties().approximate_message_count == 0


@pytest.mark.parametrize("ttl", ["0", "-2", "x", "2147483648"])
def test_impossible_times_to_live(queue_endpoint, queue, ttl):
    answer = raw.send(queue_endpoint, "POST", f"/{queue.queue_name}/messages", BODY, query=f"messagettl={ttl}")
    assert answer.status == 400 and answer.code in ("InvalidQueryParameterValue", "OutOfRangeQueryParameterValue"), answer
    assert queue.get_queue_properties().approximate_message_count == 0


def test_longest_times(queue):
    sent = queue.send_message("m", visibility_timeout=604799)
    assert (sent.next_visible_on - sent.inserted_on) == timedelta(seconds=604799)
    queue.send_message("now")
    assert queue.receive_message(visibility_timeout=604800).content == "now"


def test_answers_as_xml(queue_endpoint, queue):
    path = f"/{queue.queue_name}/messages"
    put = raw.send(queue_endpoint, "POST", path, BODY, headers={"x-ms-client-request-id": "mine"})
    assert put.status == 201 and put.headers["content-type"] == "application/xml", put
    assert put.headers["x-ms-client-request-id"] == "mine" and put.headers["x-ms-version"] == raw.VERSION
    tags = ["MessageId", "InsertionTime", "ExpirationTime", "PopReceipt", "TimeNextVisible"]
    places = [put.body.index(f"<{tag}>") for tag in tags]
    assert places == sorted(places) and "<DequeueCount>" not in put.body and "<MessageText>" not in put.body
    peeked = raw.send(queue_endpoint, "GET", path, query="peekonly=TRUE")
    assert "<PopReceipt>" not in peeked.body and peeked.element("DequeueCount") == "0", peeked
    got = raw.send(queue_endpoint, "GET", path)
    places = [got.body.index(f"<{tag}>") for tag in [*tags, "DequeueCount", "MessageText"]]
    assert places == sorted(places) and got.headers["cache-control"] == "no-cache"
    none = raw.send(queue_endpoint, "GET", path)
    assert none.status == 200 and "<QueueMessagesList" in none.body and "<QueueMessage>" not in none.body


@pytest.mark.parametrize("body", ["", "text", "<QueueMessage>", "<QueueMessage></QueueMessage>", "<Other><MessageText/></Other>",
                                  '<!DOCTYPE q [<!ENTITY e "x">]><QueueMessage><MessageText>&e;</MessageText></QueueMessage>'])
def test_bodies_that_are_none(queue_endpoint, queue, body):
    answer = raw.send(queue_endpoint, "POST", f"/{queue.queue_name}/messages", body)
    assert answer.is_error(400, "InvalidXmlDocument")


def test_missing_queue_wins(queue_endpoint, queue_name):
    path = f"/{queue_name}/messages"
    receipt = "popreceipt=AAAAAAAAAAAAAAAAAAAAAA%3D%3D"
    for method, more, body, query in (("POST", "", BODY, ""), ("GET", "", None, ""), ("GET", "", None, "peekonly=true"),
                                      ("DELETE", "", None, ""), ("DELETE", f"/{uuid.uuid4()}", None, receipt),
                                      ("PUT", f"/{uuid.uuid4()}", None, receipt + "&visibilitytimeout=0")):
        assert raw.send(queue_endpoint, method, path + more, body, query=query).is_error(404, "QueueNotFound")
