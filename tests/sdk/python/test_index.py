"""Secondary indexes through the SDK, which knows nothing of them: the same queries, answered without a scan."""
import json
import time

import postgres
import pytest
import raw
from azure.data.tables import TableTransactionError
from helpers import Plans, entity, keys, refused, rows
from server import Server

pytestmark = pytest.mark.ours

COUNT = 120
CITIES = ["Oslo", "Bergen", "Rome"]


def person(n):
    # In two partitions, so that results in the order of keys are not in the order of n.
    values = {"Email": f"{n}@example.com", "City": CITIES[n % 3]}
    if n % 10:
        values["Age"] = n * 7 % 50
    return entity(f"p{n % 2}", f"{n:03}", **values)


@pytest.fixture
def people(table):
    for partition in range(2):
        of_partition = [n for n in range(COUNT) if n % 2 == partition]
        table.submit_transaction([("create", person(n)) for n in of_partition])
    return table


@pytest.fixture
def declare(endpoint, name):
    def declare(*properties, **more):
        body = json.dumps({"properties": properties, **more})
        answer = raw.send(endpoint, "PUT", f"/{name}", body, query="comp=index")
        assert answer.status == 201, answer
        deadline = time.monotonic() + 60
        while True:
            listed = raw.send(endpoint, "GET", f"/{name}", query="comp=index").json()["value"]
            state = next(index["state"] for index in listed if index["name"] == answer.json()["name"])
            if state != "building":
                return state
            assert time.monotonic() < deadline, listed
            time.sleep(0.02)
    return declare


def found(table, text, **options):
    plans = Plans()
    entities = list(table.query_entities(text, raw_response_hook=plans, **options))
    return entities, plans


def test_one_command_ends_the_scan(people, declare):
    text = "Email eq '17@example.com'"
    before, plans = found(people, text)
    assert (plans.kinds, plans.examined) == (["table-scan"], COUNT)
    assert declare("Email") == "ready"
    after, plans = found(people, text)
    assert after == before
    assert plans.kinds == ["index(Email)"] and plans.examined <= 2


@pytest.mark.parametrize("text", [
    "Email eq '17@example.com'",
    "Email in ('17@example.com','18@example.com','x')",
    "Age lt 3",
    "Age ge 48 and City eq 'Oslo'",
    "City eq 'Rome' or Email eq '1@example.com'",
    "startswith(Email,'11')",
    "not (Age ge 2)",
    "Age ne 7 and PartitionKey eq 'p1'",
    "PartitionKey eq 'p0' and Age eq 14",
    "City eq 'Rome' and contains(Email,'2@')",
    "Age eq 14L",
    "Age eq '14'",
])
@pytest.mark.parametrize("size", [None, 7])
def test_no_answer_changes(people, declare, text, size):
    options = {"results_per_page": size} if size else {}
    before, _ = found(people, text, **options)
    for properties in (["Email"], ["Age"], ["City", "Age"]):
        assert declare(*properties) == "ready"
    after, _ = found(people, text, **options)
    assert after == before
    assert keys(after) == sorted(keys(after))


def test_an_index_follows_every_write(people, declare):
    declare("Email")

    def of(email):
        entities, plans = found(people, f"Email eq '{email}'")
        assert plans.kinds == ["index(Email)"]
        return keys(entities)

    people.create_entity(entity("p0", "new", Email="new"))
    assert of("new") == [("p0", "new")]
    people.update_entity(entity("p0", "new", Email="other"))
    assert (of("new"), of("other")) == ([], [("p0", "new")])
    people.upsert_entity(entity("p1", "new", Email="other"))
    assert of("other") == [("p0", "new"), ("p1", "new")]
    people.submit_transaction([("delete", entity("p0", "new")), ("create", entity("p0", "newer", Email="other"))])
    assert of("other") == [("p0", "newer"), ("p1", "new")]
    people.upsert_entity(entity("p1", "new"), mode="replace")
    assert of("other") == [("p0", "newer")]
    people.delete_entity("p0", "newer")
    assert of("other") == []


def test_pages_through_an_index(people, declare):
    declare("City")
    pages = people.query_entities("City eq 'Rome'", results_per_page=9).by_page()
    sizes = [len(list(page)) for page in pages]
    assert sizes == [9, 9, 9, 9, 4]


@pytest.mark.parametrize("direction", ["", " desc"])
def test_the_order_of_a_property(people, declare, direction):
    def ordered(**options):
        plans = Plans()
        pages = people.list_entities(params={"$orderby": f"Age{direction}"}, raw_response_hook=plans, **options)
        return [(e["Age"], e["PartitionKey"], e["RowKey"]) for e in pages], plans

    expected = sorted(((n * 7 % 50, f"p{n % 2}", f"{n:03}") for n in range(COUNT) if n % 10), reverse=bool(direction))
    with refused(400, "InvalidInput"):
        list(people.list_entities(params={"$orderby": f"Age{direction}"}))
    # Sorted for every page, and then from the index.
    found, plans = ordered(results_per_page=50)
    assert found == expected and set(plans.kinds) == {"table-scan"}
    declare("Age")
    for options in ({}, {"results_per_page": 50}, {"results_per_page": 7}):
        found, plans = ordered(**options)
        assert found == expected and set(plans.kinds) == {"index(Age)"}
    assert plans.examined <= len(expected) + len(plans.seen)


def test_a_token_of_a_dropped_index(people, declare, endpoint, name):
    declare("Age")
    pages = people.list_entities(params={"$orderby": "Age"}, results_per_page=5).by_page()
    next(pages)
    assert raw.send(endpoint, "DELETE", f"/{name}", query="comp=index&name=Age").status == 204
    again = people.list_entities(params={"$orderby": "Age"}, results_per_page=5)
    with refused(400, "InvalidInput"):
        next(again.by_page(continuation_token=pages.continuation_token))


def test_unique_values(people, declare):
    # Over nodes a value is unique within its partition only.
    spread = postgres.wanted() and postgres.store() == "citus"
    assert declare(*(["PartitionKey", "Email"] if spread else ["Email"]), unique=True, name="mail") == "ready"
    taken = entity("p1", "new", Email="17@example.com")
    with refused(409, "UniqueIndexViolation"):
        people.create_entity(taken)
    with refused(409, "UniqueIndexViolation"):
        people.upsert_entity(entity("p1", "019", Email="17@example.com"))
    with pytest.raises(TableTransactionError) as caught:
        people.submit_transaction([("create", entity("p1", "free", Email="free")), ("create", taken)])
    assert caught.value.index == 1
    assert rows(people.query_entities("Email eq 'free'")) == []
    people.delete_entity("p1", "017")
    people.create_entity(taken)


def test_values_that_repeat(people, declare):
    spread = postgres.wanted() and postgres.store() == "citus"
    assert declare(*(["PartitionKey", "City"] if spread else ["City"]), unique=True) == "notUnique"
    people.create_entity(entity("p0", "new", City="Rome"))


def test_explained(people, declare, endpoint, name):
    def explain(query):
        answer = raw.send(endpoint, "GET", f"/{name}()", query=f"$explain=true&{query}")
        assert answer.status == 200, answer
        return answer.json()

    asked = "$filter=Email%20eq%20%2717@example.com%27"
    told = explain(asked)
    assert (told["plan"], told["examined"], told["returned"]) == ("table-scan", COUNT, 1)
    assert told["advice"] == [f"rowhouse index create {name} Email avoids this scan."]
    costly = raw.send(endpoint, "GET", f"/{name}", query="comp=queries").json()["value"]
    assert [(q["filter"], q["count"]) for q in costly] == [("Email eq ?", 1)]
    declare("Email")
    told = explain(asked)
    assert (told["plan"], told["estimated"], told["advice"]) == ("index(Email)", 1, [])


def test_strict_knows_no_index():
    with Server("--strict") as server:
        raw.send(server.endpoint, "POST", "/Tables", '{"TableName":"People"}')
        for method in ("GET", "PUT", "DELETE"):
            body = '{"properties":["A"]}' if method == "PUT" else None
            answer = raw.send(server.endpoint, method, "/People", body, query="comp=index")
            assert (answer.status, answer.code) == (400, "InvalidQueryParameterValue"), answer
        answer = raw.send(server.endpoint, "GET", "/People()", query="$explain=true")
        assert (answer.status, answer.code) == (501, "NotImplemented"), answer
