"""Fixtures: one server for the run, one fresh table for each test.

`--endpoint URL` runs the tests against something else that speaks the protocol, for comparison. What is ours
alone (`x-rowhouse-plan`, killing the process) is skipped then.
"""
import itertools
import pathlib
import sys
import uuid

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.data.tables import TableServiceClient

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from server import ACCOUNT, KEY, Server  # noqa: E402  (the path above is what makes it importable)

_run, _numbers = uuid.uuid4().hex[:8], itertools.count(1)


def pytest_addoption(parser):
    parser.addoption("--endpoint", help="run against this endpoint instead of a server of our own")


def pytest_collection_modifyitems(config, items):
    if config.getoption("--endpoint"):
        for item in items:
            if item.get_closest_marker("ours"):
                item.add_marker(pytest.mark.skip(reason="only our own server has this"))


def pytest_configure(config):
    config.addinivalue_line("markers", "ours: about what only Rowhouse does")


@pytest.fixture(scope="session")
def endpoint(request):
    """The address of the account, path style."""
    foreign = request.config.getoption("--endpoint")
    if foreign:
        yield foreign.rstrip("/")
        return
    with Server() as server:
        yield server.endpoint
        status, log = server.stop(), server.log()
    assert status == 0, f"the server did not stop cleanly:\n{log[-2000:]}"
    assert "panicked" not in log, log[-4000:]


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
