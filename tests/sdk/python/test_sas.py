"""Shared access signatures: what each grants, and that nothing beyond it is granted."""
from datetime import datetime, timedelta, timezone

import pytest
from azure.core.credentials import AzureSasCredential
from azure.core.exceptions import HttpResponseError
from azure.data.tables import (AccountSasPermissions, ResourceTypes, TableAccessPolicy, TableClient, TableServiceClient,
                               UpdateMode, generate_account_sas, generate_table_sas)

from helpers import code_of, entity, keys, refused

LATER = datetime.now(timezone.utc) + timedelta(hours=1)
EARLIER = datetime.now(timezone.utc) - timedelta(hours=1)
DENIED = (403, "AuthorizationPermissionMismatch")


@pytest.fixture
def open_table(endpoint, credential, table):
    """Makes clients of the test's table that hold a signature instead of the key."""
    clients = []

    def make(**options):
        token = generate_table_sas(credential, options.pop("table_name", table.table_name),
                                   **{"expiry": LATER, **options})
        clients.append(TableClient(endpoint, table.table_name, credential=AzureSasCredential(token), retry_total=0))
        return clients[-1]

    table.create_entity(entity(row="there", A=1))
    yield make
    for client in clients:
        client.close()


OPERATIONS = {
    "r": lambda t: (t.get_entity("p", "there"), list(t.list_entities())),
    "a": lambda t: t.create_entity(entity(row="new")),
    "u": lambda t: (t.update_entity(entity(row="there")), t.update_entity(entity(row="there"), mode=UpdateMode.REPLACE)),
    "d": lambda t: t.delete_entity("p", "there"),
}


@pytest.mark.parametrize("granted", OPERATIONS)
@pytest.mark.parametrize("wanted", OPERATIONS)
def test_each_permission_of_a_table(open_table, granted, wanted):
    client = open_table(permission=granted)
    if granted == wanted:
        OPERATIONS[wanted](client)
    else:
        with refused(*DENIED):
            OPERATIONS[wanted](client)


def test_upsert_needs_add_and_update(open_table):
    for letters in ("a", "u", "rd"):
        for mode in UpdateMode:
            with refused(*DENIED):
                open_table(permission=letters).upsert_entity(entity(row="x"), mode=mode)
    open_table(permission="au").upsert_entity(entity(row="x"))


def test_batch_needs_what_each_operation_needs(open_table):
    operations = [("create", entity(row="new")), ("delete", entity(row="there"))]
    with pytest.raises(HttpResponseError) as caught:
        open_table(permission="a").submit_transaction(operations)
    assert caught.value.status_code == 403
    open_table(permission="ad").submit_transaction(operations)


def test_never_for_tables_and_policies(open_table):
    client = open_table(permission="raud")
    with refused(403, "AuthorizationFailure"):
        client.get_table_access_policy()
    with pytest.raises(HttpResponseError) as caught:
        client.delete_table()
    assert caught.value.status_code == 403


def test_other_table(open_table):
    with refused(403, "AuthorizationFailure"):
        list(open_table(permission="r", table_name="othertable").list_entities())


def test_case_of_the_table_name(open_table, table):
    assert list(open_table(permission="r", table_name=table.table_name.upper()).list_entities())


@pytest.mark.parametrize("options, code", [
    ({"expiry": EARLIER}, "AuthenticationFailed"),
    ({"start": LATER, "expiry": LATER + timedelta(hours=1)}, "AuthenticationFailed"),
    ({"ip_address_or_range": "10.1.2.3"}, "AuthorizationSourceIPMismatch"),
    ({"protocol": "https"}, "AuthorizationProtocolMismatch"),
    ({"policy_id": "nobody"}, "AuthenticationFailed"),
], ids=["expired", "not yet", "address", "protocol", "policy"])
def test_limits_of_a_signature(open_table, options, code):
    with refused(403, code):
        list(open_table(permission="r", **options).list_entities())


def test_limits_that_hold(open_table):
    client = open_table(permission="r", start=EARLIER, ip_address_or_range="127.0.0.1-127.0.0.9", protocol="https,http")
    assert list(client.list_entities())


@pytest.mark.parametrize("field", ["sig", "sp", "se", "tn", "sv", "spk"])
def test_tampering(endpoint, credential, table, field):
    token = generate_table_sas(credential, table.table_name, permission="r", expiry=LATER, start_pk="b")
    parts = dict(p.split("=", 1) for p in token.split("&"))
    parts[field] = {"sig": "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA%3D", "sp": "raud", "se": "2098-01-01T00%3A00%3A00Z",
                    "tn": "other", "sv": "2018-03-28", "spk": "a"}[field]
    changed = "&".join(f"{k}={v}" for k, v in parts.items())
    with TableClient(endpoint, table.table_name, credential=AzureSasCredential(changed), retry_total=0) as client:
        with refused(403, "AuthenticationFailed"):
            list(client.list_entities())


def test_key_range(open_table, table):
    for key in (("a", "9"), ("b", "1"), ("b", "2"), ("c", "5"), ("d", "1"), ("d", "2"), ("e", "0")):
        table.create_entity(entity(*key))
    client = open_table(permission="raud", start_pk="b", start_rk="2", end_pk="d", end_rk="1")
    inside = [("b", "2"), ("c", "5"), ("d", "1")]
    assert keys(client.list_entities()) == inside
    assert keys(client.query_entities("RowKey ge '0'", results_per_page=1)) == inside
    assert keys(client.query_entities("PartitionKey eq 'a' or PartitionKey eq 'e'")) == []
    client.upsert_entity(entity("c", "new"))
    for outside in (("a", "9"), ("b", "1"), ("d", "2"), ("e", "0")):
        with pytest.raises(HttpResponseError) as caught:
            client.get_entity(*outside)
        assert caught.value.status_code in (403, 404)
        for write in (client.create_entity, client.upsert_entity, client.update_entity):
            with refused(403, "AuthorizationFailure"):
                write(entity(outside[0], outside[1], A=1))
        with refused(403, "AuthorizationFailure"):
            client.delete_entity(*outside)
        with pytest.raises(HttpResponseError) as caught:
            client.submit_transaction([("upsert", entity(*outside))])
        assert caught.value.status_code == 403 and code_of(caught.value) == "AuthorizationFailure"


def test_stored_policy(open_table, table):
    table.set_table_access_policy({"readers": TableAccessPolicy(permission="r", expiry=LATER, start=EARLIER)})
    client = open_table(policy_id="readers", expiry=None)
    assert list(client.list_entities())
    with refused(*DENIED):
        client.create_entity(entity(row="new"))
    table.set_table_access_policy({"readers": TableAccessPolicy(permission="r", expiry=EARLIER)})
    with refused(403, "AuthenticationFailed"):
        list(client.list_entities())
    table.set_table_access_policy({})
    with refused(403, "AuthenticationFailed"):
        list(client.list_entities())


@pytest.fixture
def account(endpoint, credential):
    clients = []

    def make(types, letters, **options):
        token = generate_account_sas(credential, ResourceTypes.from_string(types), AccountSasPermissions.from_string(letters),
                                     **{"expiry": LATER, **options})
        clients.append(TableServiceClient(endpoint, credential=AzureSasCredential(token), retry_total=0))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


def test_account_signature_grants(account, service, name):
    account("c", "c").create_table(name)
    assert name in [t.name for t in account("c", "l").list_tables()]
    objects = account("o", "raud").get_table_client(name)
    objects.create_entity(entity())
    objects.upsert_entity(entity(A=1))
    assert objects.get_entity("p", "r")["A"] == 1
    objects.submit_transaction([("delete", entity()), ("create", entity(row="other"))])
    objects.delete_entity("p", "other")
    assert account("s", "r").get_service_properties()
    account("s", "w").set_service_properties(cors=[])
    account("c", "d").delete_table(name)


@pytest.mark.parametrize("types, letters, act, code", [
    ("o", "c", lambda c: c.create_table("nevermade"), "AuthorizationResourceTypeMismatch"),
    ("c", "l", lambda c: c.create_table("nevermade"), "AuthorizationPermissionMismatch"),
    ("so", "l", lambda c: list(c.list_tables()), "AuthorizationResourceTypeMismatch"),
    ("c", "r", lambda c: list(c.list_tables()), "AuthorizationPermissionMismatch"),
    ("co", "r", lambda c: c.get_service_properties(), "AuthorizationResourceTypeMismatch"),
    ("s", "w", lambda c: c.get_service_properties(), "AuthorizationPermissionMismatch"),
], ids=str)
def test_account_signature_refuses(account, types, letters, act, code):
    with refused(403, code):
        act(account(types, letters))


def test_account_signature_on_entities(account, table):
    with refused(403, "AuthorizationResourceTypeMismatch"):
        list(account("sc", "rl").get_table_client(table.table_name).list_entities())
    with refused(403, "AuthorizationPermissionMismatch"):
        account("o", "r").get_table_client(table.table_name).create_entity(entity())
    with refused(403, "AuthorizationFailure"):
        account("sco", "rwdlacu").get_table_client(table.table_name).get_table_access_policy()
