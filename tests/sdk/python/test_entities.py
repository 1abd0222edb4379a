"""Single entities: every operation, every type, every condition, every limit."""
import math
import uuid
from datetime import datetime, timedelta, timezone

import pytest
from azure.core import MatchConditions
from azure.core.exceptions import ResourceExistsError, ResourceModifiedError, ResourceNotFoundError
from azure.data.tables import EdmType, EntityProperty, UpdateMode

import raw
from helpers import code_of, entity, instant, refused

WHEN = datetime(1999, 12, 31, 23, 59, 59, 123456, tzinfo=timezone.utc)
ID = uuid.UUID("c9da6455-213d-42c9-9a79-3e9149a57833")


def int64(number):
    return EntityProperty(number, EdmType.INT64)


@pytest.mark.parametrize("value", [
    "", "text", "quotes ' \" and \\ and / and é and 😀 and \x00 and \u2028", "x" * 32768,
    0, 1, -(2**31), 2**31 - 1,
    int64(0), int64(2**53 + 1), int64(-(2**63)), int64(2**63 - 1),
    0.0, 1.0, 0.1, -1.5e300, 5e-324, 123456789.125, float("inf"), float("-inf"),
    True, False,
    WHEN, datetime(1601, 1, 1, tzinfo=timezone.utc), datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=timezone.utc),
    ID, b"", b"\x00\xff" * 100, b"z" * 65536,
], ids=lambda v: f"{type(v).__name__}-{str(v)[:12]!a}")
def test_round_trip_of_every_type(table, value):
    table.create_entity(entity(Value=value))
    found = table.get_entity("p", "r")["Value"]
    assert found == value and type(found).__name__.replace("TablesEntityDatetime", "datetime") == type(value).__name__
    [listed] = table.list_entities()
    assert listed["Value"] == value


def test_not_a_number(table):
    table.create_entity(entity(Value=float("nan")))
    assert math.isnan(table.get_entity("p", "r")["Value"])


def test_ticks_of_100_nanoseconds(table):
    table.create_entity(entity(A=EntityProperty("2020-02-03T04:05:06.1234567Z", EdmType.DATETIME),
                               B=EntityProperty("2020-02-03T04:05:06.5000000+02:00", EdmType.DATETIME)))
    found = table.get_entity("p", "r")
    assert found["A"].tables_service_value == "2020-02-03T04:05:06.1234567Z"
    assert found["B"].tables_service_value == "2020-02-03T02:05:06.5Z"


def test_numbers_keep_their_type(endpoint, table):
    """1 is an Int32 and 1.0 a Double, whatever the client's language makes of them."""
    body = ('{"PartitionKey":"p","RowKey":"r","I":1,"D":1.0,"E":1e3,"L@odata.type":"Edm.Int64","L":"1",'
            '"F":5,"F@odata.type":"Edm.Double","B":"true","B@odata.type":"Edm.Boolean"}')
    made = raw.send(endpoint, "POST", f"/{table.table_name}", body)
    assert made.status == 201, made
    assert '"I":1,"D":1.0,"E":1000.0,"L@odata.type":"Edm.Int64","L":"1","F":5.0,"B":true}' in made.body
    plain = raw.send(endpoint, "GET", f"/{table.table_name}(PartitionKey='p',RowKey='r')",
                     headers={"Accept": "application/json;odata=nometadata"})
    assert '"I":1,"D":1.0,"E":1000.0,"L":"1","F":5.0,"B":true}' in plain.body and "odata" not in plain.body, plain


def test_metadata_levels(endpoint, table):
    table.create_entity(entity(row="it's", When=WHEN))
    path = f"/{table.table_name}(PartitionKey='p',RowKey='it''s')"
    full = raw.send(endpoint, "GET", path, headers={"Accept": "application/json;odata=fullmetadata"}).json()
    assert full["odata.type"] == f"devstoreaccount1.{table.table_name}"
    assert full["odata.id"] == f"{endpoint}{path}" and full["odata.editLink"] == path[1:]
    assert full["Timestamp@odata.type"] == "Edm.DateTime" and full["When@odata.type"] == "Edm.DateTime"
    assert list(full)[:7] == ["odata.metadata", "odata.type", "odata.id", "odata.etag", "odata.editLink", "PartitionKey", "RowKey"]
    minimal = raw.send(endpoint, "GET", path, query="$format=application/json;odata%3Dminimalmetadata",
                       headers={"Accept": "application/json;odata=fullmetadata"})
    assert minimal.headers["content-type"] == "application/json;odata=minimalmetadata;streaming=true;charset=utf-8"
    assert "odata.id" not in minimal.body and minimal.json()["odata.etag"] == minimal.headers["etag"]
    assert minimal.json()["odata.metadata"] == f"{endpoint}/$metadata#{table.table_name}/@Element"


@pytest.mark.parametrize("key", ["", "O'Brien", "a%b", "a%2Fb", "a+b", "a b", "a&b=c", '"', "é", "😀", "a:b;c,d", "(x)", "k" * 1024,
                                 "!@$^*_-~.|<>{}[]`"], ids=lambda key: ascii(key[:12]))
def test_keys_of_every_kind(table, key):
    table.create_entity(entity(key, key, Value=1))
    assert table.get_entity(key, key)["Value"] == 1
    table.update_entity(entity(key, key, Value=2), mode=UpdateMode.REPLACE)
    quoted = key.replace("'", "''")
    [found] = table.query_entities(f"PartitionKey eq '{quoted}' and RowKey eq '{quoted}'")
    assert (found["PartitionKey"], found["RowKey"], found["Value"]) == (key, key, 2)
    table.submit_transaction([("upsert", entity(key, key, Value=3))])
    table.delete_entity(key, key)
    with pytest.raises(ResourceNotFoundError):
        table.get_entity(key, key)


@pytest.mark.parametrize("character", ["/", "\\", "#", "?", "\t", "\n", "\x00", "\x7f", "\x85"], ids=ascii)
def test_forbidden_key_characters(table, character):
    for bad in (entity(partition=f"a{character}b"), entity(row=f"a{character}b")):
        with refused(400, "OutOfRangeInput"):
            table.create_entity(bad)


def test_insert_and_its_refusals(table, service, name):
    made = table.create_entity(entity(Value=1))
    assert made["etag"].startswith("W/\"datetime'")
    with pytest.raises(ResourceExistsError) as caught:
        table.create_entity(entity(Value=2))
    assert code_of(caught.value) == "EntityAlreadyExists"
    with refused(404, "TableNotFound"):
        service.get_table_client(name + "x").create_entity(entity())
    for incomplete in ({"RowKey": "r"}, {"PartitionKey": "p"}):
        with pytest.raises(ValueError):
            table.create_entity(incomplete)
    assert table.get_entity("p", "r")["Value"] == 1


def test_insert_with_content(endpoint, table):
    body = '{"PartitionKey":"p","RowKey":"r","a":"b"}'
    made = raw.send(endpoint, "POST", f"/{table.table_name}()", body, headers={"Prefer": "return-content"})
    assert made.status == 201 and made.headers["preference-applied"] == "return-content"
    assert made.headers["location"] == f"{endpoint}/{table.table_name}(PartitionKey='p',RowKey='r')"
    assert made.json()["odata.etag"] == made.headers["etag"] and made.json()["a"] == "b"


def test_get_and_select(table):
    table.create_entity(entity(A=1, B="two"))
    found = table.get_entity("p", "r", select=["B", "Missing"])
    assert dict(found) == {"B": "two", "Missing": None}
    whole = table.get_entity("p", "r", select="*")
    assert (whole["A"], whole["B"], whole["PartitionKey"]) == (1, "two", "p")
    with refused(404, "ResourceNotFound"):
        table.get_entity("p", "other")


def test_replace_merge_and_nothing(table):
    table.create_entity(entity(A=1, B=2))
    table.update_entity(entity(B="changed type", C=3), mode=UpdateMode.MERGE)
    assert {k: v for k, v in table.get_entity("p", "r").items() if len(k) == 1} == {"A": 1, "B": "changed type", "C": 3}
    table.update_entity(entity(D=4), mode=UpdateMode.REPLACE)
    assert {k: v for k, v in table.get_entity("p", "r").items() if len(k) == 1} == {"D": 4}
    for mode in UpdateMode:
        with refused(404, "ResourceNotFound"):
            table.update_entity(entity(row="missing"), mode=mode)


def test_null_properties(endpoint, table):
    path = f"/{table.table_name}(PartitionKey='p',RowKey='r')"
    table.create_entity(entity(A=1, B=2))
    assert raw.send(endpoint, "PATCH", path, '{"A":null,"Timestamp":null}', headers={"If-Match": "*"}).status == 204
    assert table.get_entity("p", "r")["A"] == 1
    assert raw.send(endpoint, "PUT", path, '{"A":null,"B":3}').status == 204
    assert "A" not in table.get_entity("p", "r")


def test_upsert_modes(table):
    for mode in UpdateMode:
        row = mode.value
        table.upsert_entity(entity(row=row, A=1), mode=mode)
        table.upsert_entity(entity(row=row, B=2), mode=mode)
        kept = {k for k in table.get_entity("p", row) if len(k) == 1}
        assert kept == ({"A", "B"} if mode == UpdateMode.MERGE else {"B"})


@pytest.mark.parametrize("verb, headers", [
    ("MERGE", {}), ("PATCH", {}), ("POST", {"X-HTTP-Method": "MERGE"}), ("POST", {"X-HTTP-Method": "PATCH"}),
])
def test_every_spelling_of_merge(endpoint, table, verb, headers):
    table.create_entity(entity(A=1))
    answer = raw.send(endpoint, verb, f"/{table.table_name}(PartitionKey='p',RowKey='r')", '{"B":2}',
                      headers={"If-Match": "*", **headers})
    assert answer.status == 204 and answer.headers["etag"], answer
    assert table.get_entity("p", "r")["A"] == 1 and table.get_entity("p", "r")["B"] == 2


def test_etag_conditions(table):
    first = table.create_entity(entity(A=1))["etag"]
    second = table.update_entity(entity(A=2), etag=first, match_condition=MatchConditions.IfNotModified)["etag"]
    assert second != first
    for mode in UpdateMode:
        with pytest.raises(ResourceModifiedError) as caught:
            table.update_entity(entity(A=3), mode=mode, etag=first, match_condition=MatchConditions.IfNotModified)
        assert (caught.value.status_code, code_of(caught.value)) == (412, "UpdateConditionNotSatisfied")
    with pytest.raises(ResourceModifiedError):
        table.delete_entity("p", "r", etag=first, match_condition=MatchConditions.IfNotModified)
    found = table.get_entity("p", "r")
    assert found["A"] == 2 and found.metadata["etag"] == second
    stamp = found.metadata["timestamp"].tables_service_value
    assert second == "W/\"datetime'" + stamp.replace(":", "%3A") + "'\""
    table.delete_entity("p", "r", etag=second, match_condition=MatchConditions.IfNotModified)
    table.delete_entity("p", "r")  # The SDK takes 404 for success.


@pytest.mark.parametrize("verb, tag, status, code", [
    ("PUT", 'W/"wrong"', 412, "UpdateConditionNotSatisfied"),
    ("PATCH", 'W/"wrong"', 412, "UpdateConditionNotSatisfied"),
    ("DELETE", 'W/"wrong"', 412, "UpdateConditionNotSatisfied"),
    ("PUT", "test", 400, "InvalidInput"),
    ("PATCH", "test", 400, "InvalidInput"),
    ("DELETE", "test", 400, "InvalidInput"),
    ("DELETE", None, 400, "InvalidInput"),
])
def test_odd_conditions(endpoint, table, verb, tag, status, code):
    table.create_entity(entity())
    answer = raw.send(endpoint, verb, f"/{table.table_name}(PartitionKey='p',RowKey='r')", None if verb == "DELETE" else "{}",
                      headers={"If-Match": tag})
    assert (answer.status, answer.code) == (status, code), answer


def test_timestamps_rise_and_clients_cannot_set_them(table):
    stamps = []
    for n in range(20):
        table.upsert_entity({**entity(N=n), "Timestamp": datetime(2000, 1, 1, tzinfo=timezone.utc)})
        stamps.append(table.get_entity("p", "r").metadata["timestamp"].tables_service_value)
    assert stamps == sorted(set(stamps), key=instant)
    newest = table.get_entity("p", "r").metadata["timestamp"]
    assert abs(datetime.now(timezone.utc) - newest) < timedelta(minutes=5)


def test_property_limits(table):
    table.create_entity(entity(row="most", **{f"p{n}": n for n in range(252)}))
    assert len(table.get_entity("p", "most")) == 254
    cases = [
        ({f"p{n}": n for n in range(253)}, "TooManyProperties"),
        ({"n" * 256: 1}, "PropertyNameTooLong"),
        ({"a-b": 1}, "PropertyNameInvalid"),
        ({"Value": "x" * 32769}, "PropertyValueTooLarge"),
        ({"Value": b"x" * 65537}, "PropertyValueTooLarge"),
        ({f"p{n}": "x" * 32000 for n in range(17)}, "EntityTooLarge"),
    ]
    for values, code in cases:
        with refused(400, code):
            table.create_entity(entity(row="over", **values))
    table.create_entity(entity(row="name", **{"n" * 255: 1}))
    with refused(400, "TooManyProperties"):
        table.update_entity(entity(row="most", one_more=1), mode=UpdateMode.MERGE)
    with refused(400, "PropertyValueTooLarge"):
        table.create_entity(entity(row="k" * 1025))


@pytest.mark.parametrize("body, code", [
    ("{", "InvalidInput"),
    ("[]", "InvalidInput"),
    ('{"PartitionKey":"p","RowKey":"r","A":[1]}', "InvalidInput"),
    ('{"PartitionKey":"p","RowKey":"r","A":{}}', "InvalidInput"),
    ('{"PartitionKey":"p","RowKey":"r","A":1e400}', "InvalidInput"),
    ('{"PartitionKey":"p","RowKey":"r","A":"zzz","A@odata.type":"Edm.Guid"}', "InvalidInput"),
    ('{"PartitionKey":"p","RowKey":"r","A":"9223372036854775808","A@odata.type":"Edm.Int64"}', "InvalidInput"),
    ('{"PartitionKey":"p","RowKey":"r","A":"?","A@odata.type":"Edm.Binary"}', "InvalidInput"),
    ('{"PartitionKey":"p","RowKey":"r","A":"1500-01-01T00:00:00Z","A@odata.type":"Edm.DateTime"}', "OutOfRangeInput"),
    ('{"PartitionKey":"p","RowKey":"r","A":1,"A":2}', "DuplicatePropertiesSpecified"),
    ('{"PartitionKey":"p"}', "PropertiesNeedValue"),
], ids=lambda text: text[-40:])
def test_bad_bodies(endpoint, table, body, code):
    answer = raw.send(endpoint, "POST", f"/{table.table_name}", body)
    assert (answer.status, answer.code) == (400, code), answer


def test_url_decides_and_must_agree(endpoint, table):
    path = f"/{table.table_name}(PartitionKey='p',RowKey='r')"
    answer = raw.send(endpoint, "PUT", path, '{"PartitionKey":"other","RowKey":"r"}')
    assert answer.status == 400, answer
    assert raw.send(endpoint, "PUT", path, '{"A":1}').status == 204
    assert table.get_entity("p", "r")["A"] == 1
    count = raw.send(endpoint, "GET", f"/{table.table_name}(PartitionKey='p')")
    assert (count.status, count.code) == (400, "InvalidInput"), count
    assert "does not match number of key properties" in count.message
