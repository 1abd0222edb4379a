"""Fixtures: one server for the run, one fresh table or queue for each test.

`--endpoint URL` and `--queue-endpoint URL` run the tests against something else that speaks the protocols, for
comparison. What is ours alone (`x-rowhouse-plan`, killing the process) is skipped then.
"""
import itertools
import pathlib
import sys
import uuid

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.data.tables import TableServiceClient
from azure.storage.queue import QueueServiceClient

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from server import ACCOUNT, KEY, Server  # noqa: E402  (the path above is what makes it importable)

# The client of queues tells the account of a path-style address only if it is told.
KEY_OF_QUEUES = {"account_name": ACCOUNT, "account_key": KEY}
_run, _numbers = uuid.uuid4().hex[:8], itertools.count(1)


def pytest_addoption(parser):
    parser.addoption("--endpoint", help="run against this endpoint instead of a server of our own")
    parser.addoption("--queue-endpoint", help="the same for the tests of queues")


def pytest_collection_modifyitems(config, items):
    if config.getoption("--endpoint") or config.getoption("--queue-endpoint"):
        for item in items:
            if item.get_closest_marker("ours"):
                item.add_marker(pytest.mark.skip(reason="only our own server has this"))


def pytest_configure(config):
    config.addinivalue_line("markers", "ours: about what only Rowhouse does")


@pytest.fixture(scope="session")
def server():
    """A server of our own."""
    with Server() as server:
        yield server
        status, log = server.stop(), server.log()
    assert status == 0, f"the server did not stop cleanly:\n{log[-2000:]}"
    assert "panicked" not in log, log[-4000:]


@pytest.fixture(scope="session")
def endpoint(request):
    """The address of the account, path style."""
    foreign = request.config.getoption("--endpoint")
    return foreign.rstrip("/") if foreign else request.getfixturevalue("server").endpoint


@pytest.fixture(scope="session")
def queue_endpoint(request):
    """The address of the account's queues, path style."""
    foreign = request.config.getoption("--queue-endpoint")
    return foreign.rstrip("/") if foreign else request.getfixturevalue("server").queue_endpoint


@pytest.fixture(scope="session")
def credential():
    return AzureNamedKeyCredential(ACCOUNT, KEY)


@pytest.fixture(scope="session")
def service(endpoint, credential):
    with TableServiceClient(endpoint, credential=credential, retry_total=0) as client:
        yield client


@pytest.fixture
def name():
    """A table name that no other test has."""
    return f"t{_run}{next(_numbers):04}"


@pytest.fixture
def table(service, name):
    client = service.create_table(name)
    yield client
    service.delete_table(name)


@pytest.fixture(scope="session")
def queues(queue_endpoint):
    with QueueServiceClient(queue_endpoint, credential=KEY_OF_QUEUES, retry_total=0) as client:
        yield client


@pytest.fixture
def queue_name():
    """A queue name that no other test has."""
    return f"q-{_run}-{next(_numbers):04}"


@pytest.fixture
def queue(queues, queue_name):
    client = queues.create_queue(queue_name)
    yield client
    client.delete_queue()
