"""`$orderby` and counts through the SDK, which passes options on that it does not know."""
import pytest

import raw
from helpers import Plans, entity, keys, refused, rows

pytestmark = pytest.mark.ours

DESCENDING = {"$orderby": "PartitionKey desc,RowKey desc"}


@pytest.fixture
def lines(table):
    for partition in ("a", "b"):
        for row in range(5):
            table.create_entity(entity(partition, f"{row}", Line=row))
    return table


def test_the_last_lines_of_a_log(lines):
    plans = Plans()
    tail = lines.query_entities("PartitionKey eq 'a'", results_per_page=2, params={"$orderby": "RowKey desc"},
                                raw_response_hook=plans)
    assert rows(next(tail.by_page())) == ["4", "3"]
    assert plans.examined <= 3


def test_pages_go_backwards(lines):
    pages = lines.list_entities(results_per_page=3, params=DESCENDING).by_page()
    found = [keys(page) for page in pages]
    assert [len(page) for page in found] == [3, 3, 3, 1]
    assert sum(found, []) == sorted(keys(lines.list_entities()), reverse=True)


def test_an_order_goes_with_a_filter(lines):
    found = lines.query_entities("Line ge 3", params=DESCENDING)
    assert keys(found) == [("b", "4"), ("b", "3"), ("a", "4"), ("a", "3")]


@pytest.mark.parametrize("order", ["Line", "RowKey desc", "PartitionKey desc,RowKey asc", "PartitionKey down"])
def test_other_orders_are_refused(lines, order):
    with refused(400, "InvalidInput"):
        list(lines.list_entities(params={"$orderby": order}))


def test_counts(lines, endpoint, name):
    assert raw.send(endpoint, "GET", f"/{name}()/$count").body == "10"
    assert raw.send(endpoint, "GET", f"/{name}()/$count", query="$filter=Line%20lt%202").body == "4"
    answer = raw.send(endpoint, "GET", f"/{name}()", query="$filter=PartitionKey%20eq%20%27b%27&$count=true&$top=2")
    assert (answer.json()["odata.count"], len(answer.json()["value"])) == ("5", 2)
