#!/usr/bin/env python3
"""Looks up entities by a property, one after the other, with the official SDK as it is.

    query.py ENDPOINT TABLE PROPERTY VALUE...

Prints a JSON list with, for each value, how long the query took and how many entities it found:
[{"ms": 1.25, "found": 1}, ...]. Run by `loadgen index` with the Python of .work/venv, before there is an index and
afterwards; nothing here knows of indexes. The server is one with the development account.
"""
import json
import pathlib
import sys
import time

from azure.core.credentials import AzureNamedKeyCredential
from azure.data.tables import TableServiceClient

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "sdk"))
from server import ACCOUNT, KEY  # noqa: E402  (the path above is what makes it importable)


def ask(table, property, value):
    began = time.perf_counter()
    found = list(table.query_entities(f"{property} eq @value", parameters={"value": value}))
    took = time.perf_counter() - began
    right = [entity for entity in found if entity[property] == value]
    return {"ms": 1000 * took, "found": len(right) if len(right) == len(found) else 0}


def main():
    endpoint, name, property, *values = sys.argv[1:]
    credential = AzureNamedKeyCredential(ACCOUNT, KEY)
    with TableServiceClient(endpoint, credential=credential, retry_total=0) as service:
        table = service.get_table_client(name)
        # Connects, so that the first query does not have to.
        list(table.query_entities("PartitionKey eq '' and RowKey eq ''"))
        print(json.dumps([ask(table, property, value) for value in values]))


if __name__ == "__main__":
    sys.exit(main())
