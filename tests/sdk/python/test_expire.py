"""Entities that expire and deleting by a filter: what the SDK sees of them, which knows nothing of either."""
import json
import time
from datetime import datetime, timedelta, timezone
from urllib.parse import quote

import pytest
import raw
from azure.core import MatchConditions
from azure.core.exceptions import ResourceModifiedError, ResourceNotFoundError
from azure.data.tables import UpdateMode
from helpers import Plans, entity, rows

pytestmark = pytest.mark.ours

COUNT = 60


def later(**delta):
    return datetime.now(timezone.utc) + timedelta(**delta)


@pytest.fixture
def expire(endpoint, name):
    def expire(**body):
        answer = raw.send(endpoint, "PUT", f"/{name}", json.dumps(body), query="comp=ttl")
        assert answer.status == 200, answer
        return answer.json()
    return expire


@pytest.fixture
def delete(endpoint, name):
    def delete(comp, **options):
        query = "&".join([f"comp={comp}"] + [f"{option}={quote(str(value))}" for option, value in options.items()])
        return raw.send(endpoint, "POST", f"/{name}", query=query)
    return delete


@pytest.fixture
def sessions(table):
    """Every third one has ended, every third one never does."""
    until = [later(hours=-1), later(hours=1), None]
    for n in range(COUNT):
        values = {"Number": n}
        if until[n % 3]:
            values["Until"] = until[n % 3]
        table.create_entity(entity(f"p{n % 2}", f"{n:03}", **values))
    return table


def living():
    return {f"{n:03}" for n in range(COUNT) if n % 3}


def test_what_has_expired_is_not_there(sessions, expire, endpoint, name):
    assert len(rows(sessions.list_entities())) == COUNT
    assert expire(property="Until") == {"expires": True, "seconds": 0, "property": "Until"}
    assert set(rows(sessions.list_entities())) == living()
    assert set(rows(sessions.list_entities(results_per_page=7))) == living()
    with pytest.raises(ResourceNotFoundError):
        sessions.get_entity("p1", "003")
    # The SDK keeps to itself that there was nothing to delete.
    path = f"/{name}(PartitionKey='p1',RowKey='003')"
    assert raw.send(endpoint, "DELETE", path, headers={"If-Match": "*"}).status == 404
    with pytest.raises(ResourceNotFoundError):
        sessions.update_entity(entity("p1", "003", Number=9), mode=UpdateMode.REPLACE)
    # A merge finds nothing, and an insert succeeds.
    sessions.upsert_entity(entity("p1", "003", Other=1), mode=UpdateMode.MERGE)
    assert "Number" not in sessions.get_entity("p1", "003")
    sessions.create_entity(entity("p0", "006", Until=later(hours=2)))
    sessions.submit_transaction([("create", entity("p1", "009")), ("create", entity("p1", "015"))])
    assert set(rows(sessions.list_entities())) == living() | {"003", "006", "009", "015"}


def test_it_is_removed_and_does_not_come_back(sessions, expire, endpoint, name):
    expire(property="Until")
    deadline = time.monotonic() + 60
    while True:
        plans = Plans()
        left = rows(sessions.list_entities(raw_response_hook=plans))
        assert set(left) == living()
        if plans.examined == len(left):
            break
        assert time.monotonic() < deadline, plans.examined
        time.sleep(0.1)
    assert raw.send(endpoint, "DELETE", f"/{name}", query="comp=ttl").status == 204
    assert set(rows(sessions.list_entities())) == living()


def test_by_age(table, expire):
    expire(seconds=2)
    table.create_entity(entity("p", "a"))
    table.create_entity(entity("p", "b"))
    assert set(rows(table.list_entities())) == {"a", "b"}
    end = time.monotonic() + 6
    while time.monotonic() < end:
        table.upsert_entity(entity("p", "b", At=time.monotonic()))
        time.sleep(0.2)
    assert set(rows(table.list_entities())) == {"b"}, "what is written again lives on"


def test_it_is_deleted_by_a_filter(sessions, delete):
    options = {"$filter": "Number lt 40 and PartitionKey eq 'p1'"}
    dry = delete("delete", **options, dryrun="true").json()
    assert (dry["matched"], dry["deleted"], dry["done"]) == (20, 0, True)
    assert len(rows(sessions.list_entities())) == COUNT
    deleted, place = 0, {}
    while place is not None:
        answer = delete("delete", **options, **{"$top": 6}, **place)
        assert answer.status == 200, answer
        step = answer.json()
        deleted += step["deleted"]
        tokens = {token: answer.headers.get(f"x-ms-continuation-{token.lower()}") for token in ("NextPartitionKey", "NextRowKey")}
        place = None if step["done"] else tokens
    assert deleted == 20
    assert set(rows(sessions.list_entities())) == {f"{n:03}" for n in range(COUNT) if n >= 40 or n % 2 == 0}
    assert delete("truncate").json()["deleted"] == COUNT - 20
    assert rows(sessions.list_entities()) == []


def test_a_stale_tag_stays_stale(table, expire, delete):
    """An entity that is made again after it was gone has another tag."""
    old = table.create_entity(entity("p", "r"))["etag"]
    assert delete("truncate").json()["deleted"] == 1
    table.create_entity(entity("p", "r"))
    with pytest.raises(ResourceModifiedError):
        table.delete_entity("p", "r", etag=old, match_condition=MatchConditions.IfNotModified)


def test_who_may(sessions, endpoint, name, delete):
    assert delete("delete").code == "InvalidInput"
    assert delete("delete", **{"$filter": "Number eq"}).status == 400
    nobody = raw.send(endpoint, "POST", f"/{name}", query="comp=truncate", sign=False)
    assert nobody.status in (401, 403)
    assert len(rows(sessions.list_entities())) == COUNT
