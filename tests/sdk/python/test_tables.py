"""Tables and their access policies: create, list, filter, page, delete, and each refusal."""
from datetime import datetime, timezone

import pytest
from azure.core.exceptions import ResourceExistsError, ResourceNotFoundError
from azure.data.tables import TableAccessPolicy

import raw
from helpers import code_of, entity, refused


def test_create_and_delete(service, name):
    assert service.create_table(name).table_name == name
    with pytest.raises(ResourceExistsError) as caught:
        service.create_table(name.upper())
    assert code_of(caught.value) == "TableAlreadyExists"
    assert service.create_table_if_not_exists(name).table_name == name
    service.delete_table(name)
    service.delete_table(name)  # The SDK takes 404 for success.


def test_deleted_table_is_gone_at_once_and_comes_back_empty(service, name):
    table = service.create_table(name)
    table.create_entity(entity())
    table.delete_table()
    with refused(404, "TableNotFound"):
        table.get_entity("p", "r")
    table.create_table()
    assert list(table.list_entities()) == []
    table.delete_table()


def test_answers_of_create_table(endpoint, name):
    """What the SDK does not show: bodies at each level, and what `Prefer` does."""
    body = f'{{"TableName":"{name}"}}'
    made = raw.send(endpoint, "POST", "/Tables", body, headers={"Prefer": "return-content"})
    assert made.status == 201 and made.headers["preference-applied"] == "return-content", made
    assert made.headers["location"] == f"{endpoint}/Tables('{name}')"
    assert made.json() == {"odata.metadata": f"{endpoint}/$metadata#Tables/@Element", "TableName": name}
    assert raw.send(endpoint, "DELETE", f"/Tables('{name}')").status == 204
    again = raw.send(endpoint, "DELETE", f"/Tables('{name}')")
    assert (again.status, again.code) == (404, "ResourceNotFound"), again
    bare = raw.send(endpoint, "POST", "/Tables", body, headers={"Prefer": "return-no-content"})
    assert (bare.status, bare.body, bare.headers["dataserviceid"]) == (204, "", f"{endpoint}/Tables('{name}')"), bare
    one = raw.send(endpoint, "GET", f"/Tables('{name}')", headers={"Accept": "application/json;odata=nometadata"})
    assert (one.status, one.json()) == (200, {"TableName": name}), one
    full = raw.send(endpoint, "GET", "/Tables", query=f"$filter=TableName%20eq%20'{name}'",
                    headers={"Accept": "application/json;odata=fullmetadata"})
    assert full.json()["value"] == [{"odata.type": "devstoreaccount1.Tables", "odata.id": f"{endpoint}/Tables('{name}')",
                                     "odata.editLink": f"Tables('{name}')", "TableName": name}], full
    assert raw.send(endpoint, "DELETE", f"/Tables('{name}')").status == 204
    missing = raw.send(endpoint, "GET", f"/Tables('{name}')")
    assert (missing.status, missing.code) == (404, "ResourceNotFound"), missing


@pytest.mark.parametrize("bad, code", [
    ("ab", "OutOfRangeInput"),
    ("a" * 64, "OutOfRangeInput"),
    ("1abc", "InvalidResourceName"),
    ("my-table", "InvalidResourceName"),
    ("tablé", "InvalidResourceName"),
], ids=lambda text: ascii(text[:20]))
def test_illegal_names(endpoint, bad, code):
    answer = raw.send(endpoint, "POST", "/Tables", f'{{"TableName":"{bad}"}}')
    assert (answer.status, answer.code) == (400, code), answer


def test_reserved_name_is_refused(endpoint):
    assert raw.send(endpoint, "POST", "/Tables", '{"TableName":"Tables"}').status == 400


def test_longest_and_shortest_name(service):
    for good in ("abc", "Z" + "9" * 62):
        service.create_table(good)
        service.delete_table(good)


def test_list_in_order_by_page(service, name):
    made = [f"{name}{letter}" for letter in "bDaCe"]
    for each in made:
        service.create_table(each)
    wanted = sorted(made, key=str.lower)
    query = f"TableName ge '{name}' and TableName lt '{name}z'"
    assert [t.name for t in service.query_tables(query)] == wanted
    pages = [[t.name for t in page] for page in service.query_tables(query, results_per_page=2).by_page()]
    assert pages == [wanted[:2], wanted[2:4], wanted[4:]]

    first = service.query_tables(query, results_per_page=2).by_page()
    next(first)
    rest = service.query_tables(query, results_per_page=2).by_page(continuation_token=first.continuation_token)
    assert [t.name for page in rest for t in page] == wanted[2:]

    everything = [t.name for t in service.list_tables(results_per_page=3)]
    assert [n for n in everything if n.startswith(name)] == wanted
    assert [t.name for t in service.query_tables("TableName eq @name", parameters={"name": made[1]})] == [made[1]]
    assert list(service.query_tables(f"TableName eq '{name}x'")) == []
    for each in made:
        service.delete_table(each)


def test_access_policies(table):
    assert table.get_table_access_policy() == {}
    start = datetime(2024, 1, 2, 3, 4, 5, 600000, tzinfo=timezone.utc)
    expiry = datetime(2099, 1, 1, tzinfo=timezone.utc)
    table.set_table_access_policy({
        "full": TableAccessPolicy(start=start, expiry=expiry, permission="raud"),
        "read only": TableAccessPolicy(permission="r"),
        "empty": None,
    })
    found = table.get_table_access_policy()
    assert list(found) == ["full", "read only", "empty"]
    assert found["full"].permission == "raud"
    assert str(found["full"].start).startswith("2024-01-02") and str(found["full"].expiry).startswith("2099-01-01")
    assert found["read only"].permission == "r" and found["empty"] is None
    table.set_table_access_policy({})
    assert table.get_table_access_policy() == {}


def test_policy_times_come_back_with_seven_digits(endpoint, table):
    path, query = f"/{table.table_name}", "comp=acl"
    body = ("<SignedIdentifiers><SignedIdentifier><Id>a</Id><AccessPolicy><Start>2011-10-11</Start>"
            "<Expiry>2099-10-12T01:02:03.5Z</Expiry><Permission>rd</Permission></AccessPolicy></SignedIdentifier></SignedIdentifiers>")
    put = raw.send(endpoint, "PUT", path, body, query=query, headers={"Content-Type": "application/xml"})
    assert (put.status, put.body) == (204, ""), put
    got = raw.send(endpoint, "GET", path, query=query)
    assert got.headers["content-type"] == "application/xml"
    assert "<Start>2011-10-11T00:00:00.0000000Z</Start><Expiry>2099-10-12T01:02:03.5000000Z</Expiry>" in got.body, got
    assert raw.send(endpoint, "PUT", path, "", query=query, headers={"Content-Type": "application/xml"}).status == 204
    assert "<SignedIdentifiers />" in raw.send(endpoint, "GET", path, query=query).body


def test_too_many_policies(table):
    with pytest.raises(ValueError):
        table.set_table_access_policy({f"id{n}": None for n in range(6)})


def test_policies_of_a_missing_table(service, name):
    with pytest.raises(ResourceNotFoundError):
        service.get_table_client(name).get_table_access_policy()
