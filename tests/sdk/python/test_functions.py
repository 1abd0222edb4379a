"""Functions and lists in filters: what they find through the SDK, what is refused, and that `--strict` knows none."""
import postgres
import pytest
import raw
from helpers import Plans, entity, refused, rows
from server import Server

pytestmark = pytest.mark.ours

PEOPLE = {
    "1": "Ann",
    "2": "ANDERS",
    "3": "Zoë",
    "4": "O'Brien",
    "5": "",
    "6": "😀",
}


@pytest.fixture
def people(table):
    for row, name in PEOPLE.items():
        table.create_entity(entity(row=row, Name=name))
    table.create_entity(entity(row="7", Name=7))
    table.create_entity(entity(row="8"))
    return table


@pytest.mark.parametrize("text, wanted", [
    ("startswith(Name,'An')", "1"),
    ("startswith(tolower(Name),'an')", "12"),
    ("endswith(Name,'ë')", "3"),
    ("contains(toupper(Name),'Ë')", "3"),
    ("substringof('''',Name)", "4"),
    ("contains(Name,'')", "123456"),
    ("contains('Annabel',Name)", "15"),
    ("tolower(Name) eq 'anders'", "2"),
    ("toupper(Name) ge 'O'", "346"),
    ("length(Name) eq 2", "6"),
    ("length(Name) gt 3 and length(Name) lt 7L", "2"),
    ("Name in ('Ann','Zoë',7)", "137"),
    ("tolower(Name) in ('ann','zoë')", "13"),
    ("contains(Name,'n') eq false", "2356"),
    ("not contains(Name,'n')", "235678"),
    ("contains(Name,'n') ne true", "23567"),
    ("length(Name) lt 1", "57"),
    ("length(Name) lt 1 and Name ge ''", "5"),
    ("length(Missing) ne 3", ""),
])
def test_finds(people, text, wanted):
    assert "".join(rows(people.query_entities(text))) == wanted


def test_parameters_of_the_sdk_are_quoted(people):
    # The SDK looks for parameters between blanks.
    found = people.query_entities("contains(Name, @part ) and length(Name) gt @least", parameters={"part": "'B", "least": 3})
    assert rows(found) == ["4"]


def test_pages_of_a_filter_with_a_function(people):
    found = people.query_entities("contains(tolower(Name),'n')", results_per_page=1)
    assert [[e["RowKey"] for e in page] for page in found.by_page()] == [["1"], ["2"], ["4"]]


@pytest.mark.parametrize("text, kind, examined", [
    ("startswith(PartitionKey,'p')", "range", 8),
    ("PartitionKey eq 'p' and startswith(RowKey,'3')", "range", 1),
    ("PartitionKey eq 'p' and RowKey in ('1','3','x')", "multi-point", 2),
    ("PartitionKey in ('p','q')", "partition-scan", 8),
    ("contains(RowKey,'1')", "table-scan", 8),
])
def test_beginnings_and_lists_of_keys_read_nothing_else(people, text, kind, examined):
    plans = Plans()
    list(people.query_entities(text, raw_response_hook=plans))
    assert (plans.kinds, plans.examined) == ([kind], examined)


@pytest.mark.parametrize("text", [
    "contains(Name)", "contains(Name,5)", "tolower(Name) eq 5", "length(Name) eq 'x'", "contains(Name,'x') eq 1",
    "tolower(Name)", "Name in ()", "Name in ('x'", "length(Name) lt null", "Name in (null)",
])
def test_wrong_types_are_refused(people, text):
    with refused(400, "InvalidInput"):
        list(people.query_entities(text))


@pytest.mark.parametrize("text", [
    "indexof(Name,'x') eq 1", "tolower(Name) eq tolower(Other)", "Name in (Other)", "trim(Name) eq 'x'",
])
def test_other_functions_are_not_offered(people, text):
    with refused(501, "NotImplemented"):
        list(people.query_entities(text))


def test_tables_can_be_found_by_function(service, table, name):
    found = service.query_tables(f"endswith(TableName,'{name[1:]}') and length(TableName) eq {len(name)}")
    assert [t.name for t in found] == [name]


def test_strict_knows_no_extension(credential):
    # A feed that is kept must not show either; on Citus none can be kept.
    kept = [] if postgres.store() == "citus" else ["--keep-changes", "1h"]
    with Server("--strict", *kept) as server:
        raw.send(server.endpoint, "POST", "/Tables", '{"TableName":"People"}')

        def ask(path, query=""):
            return raw.send(server.endpoint, "GET", path, query=query)

        for text in ("contains(Name,%27x%27)", "Name%20in%20(%27x%27)", "length(Name)%20eq%201", "contains(Name)"):
            answer = ask("/People()", f"$filter={text}")
            assert (answer.status, answer.code) == (501, "NotImplemented"), answer
            assert answer.message == "The requested operation is not implemented on the specified resource."
        answer = ask("/People", "comp=changes")
        assert (answer.status, answer.code) == (400, "InvalidQueryParameterValue"), answer
        answer = ask("/People()", "$filter=Name%20eq%20%27x%27")
        assert answer.status == 200 and "x-rowhouse-plan" not in answer.headers
