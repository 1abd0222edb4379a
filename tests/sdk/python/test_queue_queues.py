"""Queues themselves: made, described, listed, removed."""
import pytest
from azure.core.exceptions import ResourceExistsError, ResourceNotFoundError
from azure.storage.queue import QueueClient, QueueServiceClient

import queue_raw as raw
from helpers import refused
from server import ACCOUNT, KEY


def names(queues):
    return [found.name for found in queues]


def test_create_and_delete(queues, queue_name):
    client = queues.get_queue_client(queue_name)
    with refused(404, "QueueNotFound"):
        client.get_queue_properties()
    client.create_queue()
    assert client.get_queue_properties().approximate_message_count == 0
    with pytest.raises(ResourceExistsError):
        client.create_queue()
    client.delete_queue()
    with refused(404, "QueueNotFound"):
        client.delete_queue()
    with pytest.raises(ResourceNotFoundError):
        client.send_message("nowhere")
    client.create_queue()       # the name is free again at once
    client.delete_queue()


def test_create_again(queue_endpoint, queue_name):
    """201, then 204 with the same metadata, 409 with others, and what is there stays."""
    path, red, blue = f"/{queue_name}", {"x-ms-meta-color": "red"}, {"x-ms-meta-color": "blue"}
    assert raw.send(queue_endpoint, "PUT", path, headers=red).status == 201
    assert raw.send(queue_endpoint, "PUT", path, headers=red).status == 204
    for other in (blue, {}, {**red, "x-ms-meta-size": "1"}):
        assert raw.send(queue_endpoint, "PUT", path, headers=other).is_error(409, "QueueAlreadyExists")
    found = raw.send(queue_endpoint, "GET", path, query="comp=metadata")
    assert found.headers["x-ms-meta-color"] == "red" and "x-ms-meta-size" not in found.headers
    assert raw.send(queue_endpoint, "DELETE", path).status == 204


def test_a_new_queue_of_an_old_name_is_empty(queues, queue_name):
    client = queues.create_queue(queue_name, metadata={"a": "1"})
    old = client.send_message("old")
    client.delete_queue()
    client.create_queue()
    assert client.get_queue_properties().metadata == {}
    assert client.peek_messages(32) == []
    with refused(404, "MessageNotFound"):
        client.delete_message(old)
    client.delete_queue()


def test_metadata(queue):
    assert queue.get_queue_properties().metadata == {}
    queue.set_queue_metadata({"color": "red", "empty_": "x", "_n1": "a b  c"})
    assert queue.get_queue_properties().metadata == {"color": "red", "empty_": "x", "_n1": "a b  c"}
    queue.set_queue_metadata({"size": "5"})         # replaces all pairs
    assert queue.get_queue_properties().metadata == {"size": "5"}
    queue.set_queue_metadata({})
    assert queue.get_queue_properties().metadata == {}


def test_metadata_of_nothing(queues, queue_name):
    with refused(404, "QueueNotFound"):
        queues.get_queue_client(queue_name).set_queue_metadata({"a": "b"})


def test_metadata_by_head(queue_endpoint, queue):
    queue.set_queue_metadata({"color": "red"})
    queue.send_message("one", visibility_timeout=60)
    for method in ("GET", "HEAD"):
        answer = raw.send(queue_endpoint, method, f"/{queue.queue_name}", query="comp=metadata")
        assert (answer.status, answer.body) == (200, ""), answer
        assert answer.headers["x-ms-meta-color"] == "red"
        assert answer.headers["x-ms-approximate-messages-count"] == "1"     # it counts what is hidden too
        assert answer.headers["cache-control"] == "no-cache"


@pytest.mark.parametrize("headers, code", [
    ({"x-ms-meta-1a": "x"}, "InvalidMetadata"),
    ({"x-ms-meta-a-b": "x"}, "InvalidMetadata"),
    ({"x-ms-meta-big": "x" * 8192}, "MetadataTooLarge"),
    ({f"x-ms-meta-n{n}": "x" * 1000 for n in range(9)}, "MetadataTooLarge"),
], ids=["digit", "dash", "large", "sum"])
def test_metadata_has_limits(queue_endpoint, queue, headers, code):
    for path, query in ((f"/{queue.queue_name}", "comp=metadata"), (f"/{queue.queue_name}-new", "")):
        assert raw.send(queue_endpoint, "PUT", path, query=query, headers=headers).is_error(400, code)
    assert queue.get_queue_properties().metadata == {}


@pytest.mark.parametrize("name, code", [
    ("Upper-case", "InvalidResourceName"), ("a_b", "InvalidResourceName"), ("-ab", "InvalidResourceName"),
    ("ab-", "InvalidResourceName"), ("a--b", "InvalidResourceName"), ("a%7Cb", "InvalidResourceName"),
    ("ab", "OutOfRangeInput"), ("a" * 64, "OutOfRangeInput"),
])
def test_names(queue_endpoint, name, code):
    assert raw.send(queue_endpoint, "PUT", f"/{name}").is_error(400, code)


@pytest.mark.parametrize("name", ["abc", "a" * 63, "0-9", "a-b-c"])
def test_names_at_the_limits(queues, name):
    client = queues.create_queue(name)
    assert name in names(queues.list_queues(name_starts_with=name))
    client.delete_queue()


@pytest.fixture
def seven(queues, queue_name):
    """Seven queues in an order that is not theirs, with a prefix of their own; their names in order."""
    made = [f"{queue_name}-{letter}" for letter in "gcafbed"]
    for name in made:
        queues.create_queue(name, metadata={"letter": name[-1]})
    yield queue_name, sorted(made)
    for name in made:
        queues.delete_queue(name)


def test_list(queues, seven):
    prefix, expected = seven
    found = list(queues.list_queues(name_starts_with=prefix))
    assert names(found) == expected and all(not q.metadata for q in found)
    with_metadata = list(queues.list_queues(name_starts_with=prefix, include_metadata=True))
    assert [q.metadata for q in with_metadata] == [{"letter": name[-1]} for name in expected]
    assert names(queues.list_queues(name_starts_with=expected[0])) == expected[:1]
    assert names(queues.list_queues(name_starts_with=prefix + "-zzz")) == []
    assert set(expected) <= set(names(queues.list_queues()))


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8])
def test_list_by_pages(queues, seven, size):
    prefix, expected = seven
    pages = [names(page) for page in queues.list_queues(name_starts_with=prefix, results_per_page=size).by_page()]
    assert pages == [expected[at:at + size] for at in range(0, 7, size)]


def test_list_goes_on_from_a_token(queues, seven):
    prefix, expected = seven
    pages = queues.list_queues(name_starts_with=prefix, results_per_page=3).by_page()
    assert names(next(pages)) == expected[:3]
    token = pages.continuation_token
    # A queue that goes between two pages takes no other with it.
    queues.delete_queue(expected[3])
    rest = queues.list_queues(name_starts_with=prefix, results_per_page=3).by_page(token)
    assert [name for page in rest for name in names(page)] == expected[4:]
    queues.create_queue(expected[3])


def test_list_as_xml(queue_endpoint, seven):
    prefix, expected = seven
    answer = raw.send(queue_endpoint, "GET", "/", query=f"comp=list&prefix={prefix}&maxresults=1&include=metadata")
    assert answer.status == 200 and answer.headers["content-type"] == "application/xml", answer
    assert answer.headers["cache-control"] == "no-cache"
    assert answer.element("Prefix") == prefix and answer.element("MaxResults") == "1" and "<Marker" not in answer.body
    assert answer.element("Name") == expected[0] and answer.element("letter") == "a" and answer.element("NextMarker")
    assert raw.send(queue_endpoint, "GET", "/", query=f"comp=list&prefix={prefix}&maxresults=5001").status == 200
    for value in ("0", "-1"):
        answer = raw.send(queue_endpoint, "GET", "/", query=f"comp=list&maxresults={value}")
        assert answer.is_error(400, "OutOfRangeQueryParameterValue", QueryParameterName="maxresults", QueryParameterValue=value)
    assert raw.send(queue_endpoint, "GET", "/", query="comp=list&maxresults=x").is_error(400, "InvalidQueryParameterValue")


def test_connection_string(queue_endpoint, queue_name):
    text = f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY};QueueEndpoint={queue_endpoint};"
    with QueueServiceClient.from_connection_string(text, retry_total=0) as service:
        service.create_queue(queue_name)
    with QueueClient.from_connection_string(text, queue_name, retry_total=0) as client:
        client.send_message("hello")
        assert client.receive_message().content == "hello"
        client.delete_queue()


@pytest.mark.ours
def test_host_style(server, queue_name):
    url = server.queue_host_endpoint
    host, port = url.split("://")[1].rsplit(":", 1)
    answer = raw.send(f"http://127.0.0.1:{port}", "PUT", f"/{queue_name}", headers={"Host": f"{host}:{port}"})
    assert answer.status == 201, answer
    listed = raw.send(f"http://127.0.0.1:{port}", "GET", "/", query="comp=list", headers={"Host": f"{host}:{port}"})
    assert f"<Name>{queue_name}</Name>" in listed.body and f'ServiceEndpoint="{url}/"' in listed.body
    assert raw.send(server.queue_endpoint, "DELETE", f"/{queue_name}").status == 204
