"""pytest plugin: points the SDK's tests at our endpoint, shortens their sleeps, skips what cannot apply."""
import fnmatch
import os
import pathlib
import socket
import time

import pytest

CAP = float(os.environ.get("SUITE_SLEEP_CAP", "0.05"))
STYLES = {"any", *os.environ["SUITE_STYLES"].split()}
_sleep, _resolve = time.sleep, socket.getaddrinfo


def _resolve_locally(host, *args, **kwargs):
    """*.localhost is the loopback address, also where the system resolver does not know it."""
    local = isinstance(host, str) and host.endswith(".localhost")
    return _resolve("127.0.0.1" if local else host, *args, **kwargs)


def pytest_configure():
    time.sleep = lambda seconds=0: _sleep(min(seconds, CAP))
    socket.getaddrinfo = _resolve_locally


def _expectations():
    path = os.environ.get("SUITE_EXPECT")
    for line in pathlib.Path(path).read_text().splitlines() if path else []:
        if line.strip() and not line.startswith("#"):
            style, test, reason = line.split(None, 2)
            if style in STYLES:
                yield test, reason


def _point_at_tables():
    """The tests of tables build addresses themselves; those of queues ask our stand-in."""
    from _shared.testcase import TableTestCase

    def account_url(_self, account, endpoint_type):
        assert endpoint_type == "table", "the Cosmos side is not tested here"
        return os.environ["SUITE_URL"].replace("{account}", account)

    TableTestCase.account_url = account_url


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Skips what cannot apply, and notes the expectations that cover no test, so that the file shrinks."""
    if os.environ["SUITE_SERVICE"] == "table":
        _point_at_tables()
    idle = []
    for glob, reason in _expectations():
        covered = [item for item in items if fnmatch.fnmatchcase(item.nodeid.split("/")[-1], glob)]
        for item in covered:
            item.add_marker(pytest.mark.skip(reason="cannot apply: " + reason))
        if not covered:
            idle.append(f"{glob} {reason}\n")
    if os.environ.get("SUITE_IDLE"):
        pathlib.Path(os.environ["SUITE_IDLE"]).write_text("".join(idle))
