"""What is put comes back: every text that XML can carry, and a clear refusal of what it cannot."""
import pytest
from azure.core.exceptions import DecodeError
from azure.storage.queue import (BinaryBase64DecodePolicy, BinaryBase64EncodePolicy, TextBase64DecodePolicy, TextBase64EncodePolicy)

import queue_raw as raw
from helpers import refused

LIMIT = 65536


@pytest.mark.parametrize("text", [
    " ", "  mess\t age1\n", "\n", "\t", "<&>\"'", "&amp;lt;message1&amp;gt;", "<message1>", "]]>", "<![CDATA[x]]>", "&#x41;",
    "ä ß ☃ 漢字 😀", "\u0085\u2028\ufffd", "{\"a\": [1, 2]}",
], ids=repr)
def test_texts(queue, text):
    sent = queue.send_message(text)
    assert queue.peek_messages()[0].content == text
    got = queue.receive_message()
    assert got.content == text
    queue.update_message(got, content=text + "!", visibility_timeout=0)
    got = queue.receive_message()
    assert (got.id, got.content) == (sent.id, text + "!")


def test_ends_of_lines(queue):
    """The SDK writes a carriage return as it is, and XML makes one line feed of it."""
    queue.send_message("a\r\nb\rc\n")
    assert queue.receive_message().content == "a\nb\nc\n"


def test_empty(queue_endpoint, queue):
    queue.send_message("")
    answer = raw.send(queue_endpoint, "GET", f"/{queue.queue_name}/messages", query="peekonly=true")
    assert "<MessageText />" in answer.body or "<MessageText></MessageText>" in answer.body or "<MessageText/>" in answer.body, answer
    assert not queue.receive_message().content


@pytest.mark.parametrize("line, text", [
    ("a\r\nb\rc", "a\nb\nc"),                       # XML makes one of every end of a line
    ("a&#xD;&#10;b", "a\r\nb"),                     # unless it is spelled out
    ("<![CDATA[<x> & y]]>", "<x> & y"),
    ("&lt;&#x1F600;&quot;&apos;", "<😀\"'"),
    ("a<!-- no text -->b", "ab"),
], ids=repr)
def test_xml_as_sent(queue_endpoint, queue, line, text):
    body = f"<QueueMessage><MessageText>{line}</MessageText></QueueMessage>"
    assert raw.send(queue_endpoint, "POST", f"/{queue.queue_name}/messages", body).status == 201
    assert queue.receive_message().content == text


@pytest.mark.parametrize("start", ["\ufeff", "<?xml version='1.0' encoding='utf-8'?>\n",
                                   '<?xml version="1.0" encoding="UTF-8" standalone="yes"?>'], ids=repr)
def test_starts_of_documents(queue_endpoint, queue, start):
    body = f"{start}<QueueMessage><Extra>1</Extra>\n<MessageText> m </MessageText></QueueMessage>"
    assert raw.send(queue_endpoint, "POST", f"/{queue.queue_name}/messages", body).status == 201
    assert queue.receive_message().content == " m "


@pytest.mark.parametrize("text", ["x" * LIMIT, "😀" * (LIMIT // 4), "<" * LIMIT, "é" * (LIMIT // 2)],
                         ids=["ascii", "four bytes", "escaped", "two bytes"])
def test_largest(queue, text):
    queue.send_message(text)
    got = queue.receive_message()
    assert got.content == text
    queue.update_message(got, content=text, visibility_timeout=0)
    assert queue.peek_messages()[0].content == text


@pytest.mark.parametrize("text", ["x" * (LIMIT + 1), "😀" * (LIMIT // 4) + "x", "<" * (LIMIT + 1)],
                         ids=["ascii", "four bytes", "escaped"])
def test_too_large(queue_endpoint, queue, text):
    with refused(413, "RequestBodyTooLarge"):
        queue.send_message(text)
    sent = queue.send_message("small")
    with refused(413, "RequestBodyTooLarge"):
        queue.update_message(sent, content=text, visibility_timeout=0)
    escaped = text.replace("<", "&lt;")
    body = f"<QueueMessage><MessageText>{escaped}</MessageText></QueueMessage>"
    answer = raw.send(queue_endpoint, "POST", f"/{queue.queue_name}/messages", body)
    assert answer.is_error(413, "RequestBodyTooLarge", MaxLimit=str(LIMIT))
    assert [m.content for m in queue.peek_messages(32)] == ["small"]


@pytest.mark.parametrize("line", ["\x01", "\x00", "\x1f", "&#1;", "&#0;", "&#xFFFE;", "\ufffe", "&#xD800;", "&unknown;", "a & b"],
                         ids=repr)
def test_what_xml_cannot_carry(queue_endpoint, queue, line):
    body = f"<QueueMessage><MessageText>{line}</MessageText></QueueMessage>"
    answer = raw.send(queue_endpoint, "POST", f"/{queue.queue_name}/messages", body)
    assert answer.is_error(400, "InvalidXmlDocument")
    assert queue.get_queue_properties().approximate_message_count == 0


def test_control_character_by_the_sdk(queue):
    with refused(400, "InvalidXmlDocument"):
        queue.send_message("mes\x01sage")


def test_bytes_that_are_no_text(queue_endpoint, queue):
    body = b"<QueueMessage><MessageText>\xff\xfe</MessageText></QueueMessage>"
    assert raw.send(queue_endpoint, "POST", f"/{queue.queue_name}/messages", body).is_error(400, "InvalidXmlDocument")


def coded(queues, queue, encode, decode):
    return queues.get_queue_client(queue.queue_name, message_encode_policy=encode, message_decode_policy=decode)


def test_base64_text(queues, queue):
    client = coded(queues, queue, TextBase64EncodePolicy(), TextBase64DecodePolicy())
    client.send_message("ä\x01<&>")
    assert queue.peek_messages()[0].content == "w6QBPCY+"        # the server sees and keeps nothing but text
    assert client.receive_message().content == "ä\x01<&>"


def test_base64_bytes(queues, queue):
    client = coded(queues, queue, BinaryBase64EncodePolicy(), BinaryBase64DecodePolicy())
    every = bytes(range(256)) * 192      # 48 KiB, the most that fits
    client.send_message(every)
    got = client.receive_message()
    assert got.content == every
    with refused(413, "RequestBodyTooLarge"):
        client.send_message(every + b"x")
    queue.clear_messages()
    queue.send_message("x")
    with pytest.raises(DecodeError):
        client.peek_messages()
