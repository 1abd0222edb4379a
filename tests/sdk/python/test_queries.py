"""Queries: every operator on every type, precedence, mismatches, projection, paging, errors."""
import uuid
from datetime import datetime, timezone

import pytest
from azure.data.tables import EdmType, EntityProperty

import raw
from helpers import entity, keys, refused, rows

LOW, MID, HIGH = "low", "mid", "high"
# For each type: three stored values in order, and the literal of the middle one.
TYPES = {
    "String": (["a", "b", "bB"], "'b'"),
    "Int32": ([-5, 7, 2**31 - 1], "7"),
    "Int64": ([EntityProperty(n, EdmType.INT64) for n in (-(2**63), 2**40, 2**63 - 1)], f"{2**40}L"),
    "Double": ([-1.5, 4.25, float("inf")], "4.25"),
    "Boolean": ([False, True, True], "true"),
    "DateTime": ([datetime(y, 1, 1, tzinfo=timezone.utc) for y in (1700, 2020, 2500)], "datetime'2020-01-01T00:00:00Z'"),
    "Guid": ([uuid.UUID(int=n) for n in (1, 2**127, 2**128 - 1)], f"guid'{uuid.UUID(int=2**127)}'"),
    "Binary": ([b"\x00", b"\x7f", b"\x7f\x00"], "X'7f'"),
}
MATCHES = {
    "eq": [MID], "ne": [LOW, HIGH], "lt": [LOW], "le": [LOW, MID], "gt": [HIGH], "ge": [MID, HIGH],
}


@pytest.mark.parametrize("operator", MATCHES)
@pytest.mark.parametrize("edm", TYPES)
def test_operator_on_type(table, edm, operator):
    values, literal = TYPES[edm]
    for row, value in zip((LOW, MID, HIGH), values):
        table.create_entity(entity(row=row, Value=value))
    table.create_entity(entity(row="without"))
    wanted = MATCHES[operator]
    if edm == "Boolean":  # There are only two values; the highest equals the middle one.
        wanted = {"eq": [MID, HIGH], "ne": [LOW], "lt": [LOW], "le": [LOW, MID, HIGH], "gt": [], "ge": [MID, HIGH]}[operator]
    assert rows(table.query_entities(f"Value {operator} {literal}")) == sorted(wanted)
    mirrored = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}.get(operator, operator)
    assert rows(table.query_entities(f"{literal} {mirrored} Value")) == sorted(wanted)


@pytest.fixture
def people(table):
    for row, age, name, active in (("1", 30, "Ann", True), ("2", 40, "O'Brien", False), ("3", 50, "Zoë 😀", True)):
        table.create_entity(entity(row=row, Age=age, Name=name, Active=active))
    table.create_entity(entity(row="4", Age="unknown"))
    return table


@pytest.mark.parametrize("text, wanted", [
    ("", "1234"),
    ("Age gt 30 and Age lt 50", "2"),
    ("Age lt 50", "124"),                                     # a stored text is less than any number
    ("Age eq 30 or Age eq 50 and Active eq false", "1"),      # and binds closer than or
    ("(Age eq 30 or Age eq 50) and Active eq true", "13"),
    ("not (Age eq 30)", "234"),
    ("not Active", "24"),
    ("Active", "13"),
    ("Name eq 'O''Brien'", "2"),
    ("Name eq 'Zoë 😀'", "3"),
    ("Name ne ''", "123"),                                    # has the property at all
    ("not (Name ne '')", "4"),
    ("Missing ne 1", ""),
    ("Age ne 30", "234"),
    ("Age ge 0", "123"),
    ("Age eq 30L", ""),                                       # a literal is never narrowed
    ("(RowKey eq '1')or(RowKey eq '3')", "13"),
    ("RowKey gt '1' and RowKey le '3'", "23"),
    ("PartitionKey eq 'p' and (RowKey lt '2' or RowKey gt '3')", "14"),
    ("PartitionKey eq 'q'", ""),
    ("Timestamp gt datetime'2020-01-01T00:00:00Z'", "1234"),
    ("Timestamp lt datetime'2020-01-01T00:00:00Z'", ""),
    ("true", "1234"),
    ("false", ""),
], ids=str)
def test_filters(people, text, wanted):
    assert "".join(rows(people.query_entities(text))) == wanted


def test_fifty_comparisons(people):
    text = " or ".join(f"Age eq {n}" for n in range(51))
    assert rows(people.query_entities(text)) == ["1", "2", "3"]


def test_parameters_of_the_sdk(people):
    found = people.query_entities("Name eq @name and Age eq @age", parameters={"name": "O'Brien", "age": 40})
    assert rows(found) == ["2"]


@pytest.mark.parametrize("text, status, code", [
    ("aaa bbb ccc", 400, "InvalidInput"),
    ("Age eq", 400, "InvalidInput"),
    ("Age eq 'open", 400, "InvalidInput"),
    ("(Age eq 1", 400, "InvalidInput"),
    ("Age EQ 1", 400, "InvalidInput"),
    ("Age eq null", 400, "InvalidInput"),
    ("Age lt null", 400, "InvalidInput"),
    ("1 eq 2", 501, "NotImplemented"),
    ("Age eq Name", 501, "NotImplemented"),
])
def test_bad_filters(people, text, status, code):
    with refused(status, code):
        list(people.query_entities(text))


def test_message_of_a_syntax_error(people):
    with refused(400, "InvalidInput") as caught:
        list(people.query_entities("aaa bbb ccc"))
    assert "Syntax error at position 7 in 'aaa bbb ccc'." in caught.value.message


def test_select(endpoint, people):
    found = list(people.query_entities("RowKey le '2'", select=["Name", "RowKey", "Nothing"]))
    assert [dict(e) for e in found] == [
        {"Name": "Ann", "RowKey": "1", "Nothing": None}, {"Name": "O'Brien", "RowKey": "2", "Nothing": None}]
    assert all(e.metadata["etag"] for e in found)
    bare = raw.send(endpoint, "GET", f"/{people.table_name}()", query="$select=Name,Age&$top=1").json()
    assert bare["odata.metadata"] == f"{endpoint}/$metadata#{people.table_name}&$select=Name,Age"
    assert list(bare["value"][0]) == ["odata.etag", "Name", "Age"]


def test_three_forms_of_the_address(endpoint, people):
    name = people.table_name
    assert len(raw.send(endpoint, "GET", f"/{name}").json()["value"]) == 4
    assert len(raw.send(endpoint, "GET", f"/{name}()").json()["value"]) == 4
    assert raw.send(endpoint, "GET", f"/{name}(PartitionKey='p',RowKey='1')").json()["RowKey"] == "1"
    assert raw.send(endpoint, "GET", f"/{name}(PartitionKey='p', RowKey='1')".replace(" ", "%20")).json()["RowKey"] == "1"
    assert raw.send(endpoint, "GET", f"/{name.upper()}()").status == 200
    plus = raw.send(endpoint, "GET", f"/{name}()", query="$filter=RowKey+eq+%271%27").json()
    assert rows(plus["value"]) == ["1"]


@pytest.fixture(scope="module")
def many(service):
    """1,501 entities in two partitions."""
    table = service.create_table("manyentities")
    expected = []
    for partition, count in (("a", 1001), ("b", 500)):
        made = [entity(partition, f"{n:05}", N=n) for n in range(count)]
        for at in range(0, count, 100):
            table.submit_transaction([("create", e) for e in made[at:at + 100]])
        expected += keys(made)
    yield table, expected
    service.delete_table("manyentities")


def test_pages_of_a_thousand(many):
    table, expected = many
    pages = [keys(page) for page in table.list_entities().by_page()]
    assert [len(page) for page in pages] == [1000, 501]
    assert sum(pages, []) == expected


def test_pages_as_wished(many):
    table, expected = many
    query = table.query_entities("PartitionKey eq 'a' and N ge 990", results_per_page=4)
    assert [rows(page) for page in query.by_page()] == [
        ["00990", "00991", "00992", "00993"], ["00994", "00995", "00996", "00997"], ["00998", "00999", "01000"]]


def test_page_by_page_with_a_token(many):
    table, expected = many
    found, token = [], None
    while True:
        pages = table.list_entities(results_per_page=700).by_page(continuation_token=token)
        found += keys(next(pages))
        token = pages.continuation_token
        if not token:
            break
        assert all(str(half).isascii() for half in (token["PartitionKey"], token["RowKey"]))
    assert found == expected


def test_exact_page_has_no_token(endpoint, many):
    table, _ = many
    last = raw.send(endpoint, "GET", f"/{table.table_name}()", query="$filter=PartitionKey%20eq%20'b'&$top=500")
    assert len(last.json()["value"]) == 500 and "x-ms-continuation-nextpartitionkey" not in last.headers
    short = raw.send(endpoint, "GET", f"/{table.table_name}()", query="$filter=PartitionKey%20eq%20'b'&$top=499")
    assert short.headers["x-ms-continuation-nextpartitionkey"] and short.headers["x-ms-continuation-nextrowkey"]


def test_token_survives_the_entity_it_names(service, name):
    table = service.create_table(name)
    for n in range(4):
        table.create_entity(entity(row=str(n)))
    pages = table.list_entities(results_per_page=2).by_page()
    assert rows(next(pages)) == ["0", "1"]
    table.delete_entity("p", "2")
    rest = table.list_entities(results_per_page=2).by_page(continuation_token=pages.continuation_token)
    assert [row for page in rest for row in rows(page)] == ["3"]
    service.delete_table(name)


def test_empty_keys_at_the_edge_of_a_page(table):
    for key in (("", ""), ("", "r"), ("p", "")):
        table.create_entity(entity(*key))
    pages = [keys(page) for page in table.list_entities(results_per_page=1).by_page()]
    assert pages == [[("", "")], [("", "r")], [("p", "")]]


@pytest.mark.parametrize("top, status", [("0", 200), ("1000", 200), ("1001", 400), ("-1", 400), ("x", 400)])
def test_top(endpoint, people, top, status):
    answer = raw.send(endpoint, "GET", f"/{people.table_name}()", query=f"$top={top}")
    assert answer.status == status, answer
    if top == "0":
        assert answer.json()["value"] == [] and "x-ms-continuation-nextpartitionkey" not in answer.headers
    if status == 400:
        assert answer.code == "InvalidInput"


def test_order_of_keys(table):
    wanted = ["", "!", "A", "B", "a", "aa", "ab", "b", "é", "ｚ"]
    for row in reversed(wanted):
        table.create_entity(entity(row=row))
    assert rows(table.list_entities()) == wanted


def test_missing_table(service, name):
    with refused(404, "TableNotFound"):
        list(service.get_table_client(name).list_entities())


@pytest.mark.parametrize("accept, code", [
    ("application/atom+xml", "AtomFormatNotSupported"),
    ("text/plain", "MediaTypeNotSupported"),
])
def test_formats_that_are_not_served(endpoint, people, accept, code):
    answer = raw.send(endpoint, "GET", f"/{people.table_name}()", headers={"Accept": accept})
    assert (answer.status, answer.code) == (415, code), answer
