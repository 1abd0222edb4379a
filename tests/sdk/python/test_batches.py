"""Entity group transactions: all or nothing, and each rule with its error and the index of the offender."""
import pytest
from azure.core import MatchConditions
from azure.data.tables import RequestTooLargeError, TableTransactionError, UpdateMode

import raw
from helpers import code_of, entity, rows


def failure(table, operations):
    with pytest.raises(TableTransactionError) as caught:
        table.submit_transaction(operations)
    return caught.value.status_code, code_of(caught.value), caught.value.index


def test_every_operation_in_one(table):
    for row in ("replace", "merge", "delete"):
        table.create_entity(entity(row=row, Old=1))
    result = table.submit_transaction([
        ("create", entity(row="create", N=0)),
        ("update", entity(row="replace", N=1), {"mode": UpdateMode.REPLACE}),
        ("update", entity(row="merge", N=2), {"mode": UpdateMode.MERGE}),
        ("upsert", entity(row="upsert-replace", N=3), {"mode": UpdateMode.REPLACE}),
        ("upsert", entity(row="upsert-merge", N=4), {"mode": UpdateMode.MERGE}),
        ("delete", entity(row="delete")),
    ])
    assert len(result) == 6 and all(part["etag"] for part in result[:5])
    found = {e["RowKey"]: e for e in table.list_entities()}
    assert sorted(found) == ["create", "merge", "replace", "upsert-merge", "upsert-replace"]
    assert "Old" not in found["replace"] and found["merge"]["Old"] == 1
    assert found["create"].metadata["etag"] == result[0]["etag"]


def test_a_hundred_operations_and_not_one_more(table):
    table.submit_transaction([("create", entity(row=f"{n:03}")) for n in range(100)])
    assert len(list(table.list_entities())) == 100
    status, code, index = failure(table, [("delete", entity(row=f"{n:03}")) for n in range(101)])
    assert (status, code, index) == (400, "InvalidInput", 99)
    assert len(list(table.list_entities())) == 100


@pytest.mark.parametrize("at", [0, 3])
def test_nothing_happens_when_one_fails(table, at):
    table.create_entity(entity(row="there"))
    good = [("create", entity(row=f"new{n}")) for n in range(5)]
    assert failure(table, good[:at] + [("create", entity(row="there"))] + good[at:]) == (409, "EntityAlreadyExists", at)
    assert failure(table, good[:at] + [("update", entity(row="missing"))] + good[at:]) == (404, "ResourceNotFound", at)
    assert failure(table, good[:at] + [("delete", entity(row="missing"))] + good[at:]) == (404, "ResourceNotFound", at)
    stale = {"etag": 'W/"datetime\'2001-01-01T00%3A00%3A00Z\'"', "match_condition": MatchConditions.IfNotModified}
    assert failure(table, good[:at] + [("update", entity(row="there"), stale)] + good[at:]) == \
        (412, "UpdateConditionNotSatisfied", at)
    assert failure(table, good[:at] + [("delete", entity(row="there"), stale)] + good[at:]) == \
        (412, "UpdateConditionNotSatisfied", at)
    assert rows(table.list_entities()) == ["there"]


def test_a_row_may_appear_once(table):
    operations = [("create", entity(row="a")), ("create", entity(row="b")), ("upsert", entity(row="a"))]
    assert failure(table, operations) == (400, "InvalidDuplicateRow", 2)
    assert rows(table.list_entities()) == []


def test_bad_entities(table):
    assert failure(table, [("create", entity(row="a")), ("create", entity(row="b/c"))])[:2] == (400, "OutOfRangeInput")
    over = [("create", entity(row="a")), ("create", entity(row="b", Value="x" * 40000))]
    assert failure(table, over) == (400, "PropertyValueTooLarge", 1)
    assert rows(table.list_entities()) == []


def test_missing_table(service, name):
    assert failure(service.get_table_client(name), [("create", entity())]) == (404, "TableNotFound", 0)


def test_too_large_as_a_whole(table):
    with pytest.raises(RequestTooLargeError):
        table.submit_transaction([("create", entity(row=str(n), **{f"p{i}": "x" * 30000 for i in range(10)}))
                                  for n in range(15)])
    assert rows(table.list_entities()) == []


def test_one_partition_one_table(endpoint, table, service, name):
    mixed = raw.batch(endpoint, raw.insert(endpoint, table.table_name, "p", "1"), raw.insert(endpoint, table.table_name, "q", "2"))
    assert (mixed.status, mixed.part_statuses(), mixed.code) == (202, [400], "CommandsInBatchActOnDifferentPartitions"), mixed
    assert mixed.message == "1:All commands in a batch must operate on same entity group."
    service.create_table(name + "b")
    tables = raw.batch(endpoint, raw.insert(endpoint, table.table_name, "p", "1"), raw.insert(endpoint, name + "b", "p", "2"))
    assert (tables.status, tables.part_statuses()) == (202, [400]), tables
    case = raw.batch(endpoint, raw.insert(endpoint, table.table_name, "p", "1"),
                     raw.insert(endpoint, table.table_name.upper(), "p", "2"))
    assert case.part_statuses() == [204, 204], case
    service.delete_table(name + "b")
    assert rows(table.list_entities()) == ["1", "2"]


def test_shape_of_the_answer(endpoint, table):
    answer = raw.batch(endpoint, raw.insert(endpoint, table.table_name, "p", "1"),
                       raw.part("POST", f"{endpoint}/{table.table_name}", '{"PartitionKey":"p","RowKey":"2"}'))
    assert answer.headers["content-type"].startswith("multipart/mixed; boundary=batchresponse_")
    assert answer.part_statuses() == [204, 201] and "\r\n--changesetresponse_" in answer.body
    assert f"Location: {endpoint}/{table.table_name}(PartitionKey='p',RowKey='1')\r\n" in answer.body
    assert "\n" not in answer.body.replace("\r\n", "")


def test_rules_about_queries(endpoint, table):
    table.create_entity(entity(A=1))
    get = raw.part("GET", f"{endpoint}/{table.table_name}(PartitionKey='p',RowKey='r')")
    lone = raw.batch(endpoint, get, wrap=False)
    assert (lone.status, lone.part_statuses()) == (202, [200]) and '"A":1' in lone.body, lone
    assert "changesetresponse_" not in lone.body
    query = raw.batch(endpoint, raw.part("GET", f"{endpoint}/{table.table_name}()?$filter=A%20eq%201"), wrap=False)
    assert query.part_statuses() == [200] and '"value":[{' in query.body, query
    missing = raw.batch(endpoint, raw.part("GET", f"{endpoint}/{table.table_name}(PartitionKey='p',RowKey='x')"), wrap=False)
    assert missing.part_statuses() == [404] and missing.message == "0:The specified resource does not exist.", missing
    for refused in (raw.batch(endpoint, get), raw.batch(endpoint, get, get, wrap=False),
                    raw.batch(endpoint, raw.insert(endpoint, table.table_name, "p", "1"), get)):
        assert refused.code == "InvalidInput", refused
    assert rows(table.list_entities()) == ["r"]


def test_malformed_batches(endpoint, table):
    insert = raw.insert(endpoint, table.table_name, "p", "1")
    assert raw.batch(endpoint).code == "InvalidInput"
    assert raw.batch(endpoint, insert, changesets=2).code == "InvalidInput"
    kind = {"Content-Type": "multipart/mixed; boundary=b"}
    for body, headers in (("", kind), ("nonsense", kind), ("--b\r\n", kind), ("--b\r\n--b--\r\n", kind),
                          ("{}", {"Content-Type": "application/json"}), ("--b--", {"Content-Type": "multipart/mixed"})):
        answer = raw.send(endpoint, "POST", "/$batch", body, headers=headers)
        assert (answer.status, answer.code) == (400, "InvalidInput"), (body, answer)
    assert rows(table.list_entities()) == []


def test_line_feeds_and_paths_alone(endpoint, table):
    """Old clients send bare line feeds and origin-form targets."""
    target = f"/devstoreaccount1/{table.table_name}"
    body = ("--b\nContent-Type: multipart/mixed; boundary=c\n\n--c\nContent-Type: application/http\n"
            f"Content-Transfer-Encoding: binary\n\nPOST {target} HTTP/1.1\nContent-ID: 7\nContent-Type: application/json\n\n"
            '{"PartitionKey":"p","RowKey":"1"}\n--c--\n--b--')
    answer = raw.send(endpoint, "POST", "/$batch", body, headers={"Content-Type": 'multipart/mixed; boundary="b"'})
    assert answer.part_statuses() == [201] and "Content-ID: 7\r\n" in answer.body, answer
