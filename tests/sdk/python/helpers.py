"""Small things that several test files need."""
import contextlib
import re

import pytest
from azure.core.exceptions import HttpResponseError


def code_of(error):
    """The error code as text. The SDK knows only some of them as enum members, and puts none on some errors."""
    code = getattr(error, "error_code", None)
    if code is None:
        found = re.search(r'"code":"(\w+)"', error.response.text())
        return found and found[1]
    return getattr(code, "value", code)


@contextlib.contextmanager
def refused(status, code):
    """The block must be answered with this status and this error code."""
    with pytest.raises(HttpResponseError) as caught:
        yield caught
    assert (caught.value.status_code, code_of(caught.value)) == (status, code), caught.value.message


def entity(partition="p", row="r", **values):
    return {"PartitionKey": partition, "RowKey": row, **values}


def keys(entities):
    return [(e["PartitionKey"], e["RowKey"]) for e in entities]


def rows(entities):
    return [e["RowKey"] for e in entities]


def instant(text):
    """The time in an ETag or a Timestamp in a form that sorts; fractions lose their trailing zeros on the wire."""
    date, _, fraction = re.search(r"\d{4}-[^'Z]*", text)[0].replace("%3A", ":").partition(".")
    return date, fraction.ljust(7, "0")


class Plans:
    """Collects `x-rowhouse-plan` of every answer it is given as `raw_response_hook`."""

    def __init__(self):
        self.seen = []

    def __call__(self, response):
        header = response.http_response.headers.get("x-rowhouse-plan")
        assert header, "every entity query says how it was run"
        kind, *fields = [field.strip() for field in header.split(";")]
        self.seen.append((kind, {k: int(v) for k, v in (field.split("=") for field in fields)}))

    @property
    def kinds(self):
        return [kind for kind, _ in self.seen]

    @property
    def examined(self):
        return sum(fields["examined"] for _, fields in self.seen)
