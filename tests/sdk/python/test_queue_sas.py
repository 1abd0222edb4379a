"""Access to queues: policies that are kept, shared access signatures letter by letter, and nothing beyond them."""
from datetime import datetime, timedelta, timezone

import azure.data.tables as tables
import pytest
from azure.core.credentials import AzureNamedKeyCredential, AzureSasCredential
from azure.core.exceptions import HttpResponseError
from azure.storage.queue import (AccessPolicy, AccountSasPermissions, QueueClient, QueueSasPermissions, QueueServiceClient,
                                 ResourceTypes, generate_account_sas, generate_queue_sas)

import queue_raw as raw
from helpers import code_of, refused
from server import ACCOUNT, KEY

LATER = datetime.now(timezone.utc) + timedelta(hours=1)
EARLIER = datetime.now(timezone.utc) - timedelta(hours=1)
MISMATCH = "AuthorizationPermissionMismatch"


@pytest.fixture
def open_queue(queue_endpoint, queue):
    """Makes clients of the test's queue that hold a signature instead of the key."""
    clients = []

    def make(permission=None, queue_name=None, **options):
        letters = permission and QueueSasPermissions.from_string(permission)
        token = generate_queue_sas(ACCOUNT, queue_name or queue.queue_name, KEY, permission=letters,
                                   **{"expiry": LATER, **options})
        clients.append(QueueClient(queue_endpoint, queue.queue_name, credential=AzureSasCredential(token), retry_total=0))
        return clients[-1]

    yield make
    for client in clients:
        client.close()



OPERATIONS = {
    "peek": ("r", lambda c, m: c.peek_messages()),
    "properties": ("r", lambda c, m: c.get_queue_properties()),
    "put": ("a", lambda c, m: c.send_message("new")),
    "get": ("p", lambda c, m: c.receive_message()),
    "delete": ("p", lambda c, m: c.delete_message(m)),
    "update": ("u", lambda c, m: c.update_message(m, content="changed", visibility_timeout=0)),
    "clear": (None, lambda c, m: c.clear_messages()),
    "set metadata": (None, lambda c, m: c.set_queue_metadata({"a": "b"})),
    "remove": (None, lambda c, m: c.delete_queue()),
    "get policies": (None, lambda c, m: c.get_queue_access_policy()),
    "set policies": (None, lambda c, m: c.set_queue_access_policy({})),
}


@pytest.mark.parametrize("granted", ["r", "a", "u", "p", "raup"])
@pytest.mark.parametrize("wanted", OPERATIONS)
def test_each_letter(open_queue, queue, granted, wanted):
    message = queue.send_message("there")
    client, (letter, act) = open_queue(granted), OPERATIONS[wanted]
    if letter and letter in granted:
        act(client, message)
        return
    with pytest.raises(HttpResponseError) as caught:
        act(client, message)
    assert caught.value.status_code == 403, caught.value
    assert code_of(caught.value) in (MISMATCH, "AuthorizationFailure"), caught.value
    if letter:
        assert code_of(caught.value) == MISMATCH
    assert [m.content for m in queue.peek_messages(32)] == ["there"]       # and nothing was done


@pytest.mark.parametrize("options, code", [
    ({"expiry": EARLIER}, "AuthenticationFailed"),
    ({"start": LATER, "expiry": LATER + timedelta(hours=1)}, "AuthenticationFailed"),
    ({"ip": "10.1.2.3"}, "AuthorizationSourceIPMismatch"),
    ({"protocol": "https"}, "AuthorizationProtocolMismatch"),
    ({"policy_id": "nobody"}, "AuthenticationFailed"),
    ({"queue_name": "another-queue"}, "AuthenticationFailed"),
], ids=["expired", "not yet", "address", "protocol", "policy", "queue"])
def test_limits_of_a_signature(open_queue, options, code):
    with refused(403, code):
        open_queue("r", **options).peek_messages()


def test_limits_that_hold(open_queue, queue):
    queue.send_message("m")
    client = open_queue("rp", start=EARLIER, ip="127.0.0.1-127.0.0.9", protocol="https,http")
    assert client.peek_messages() and client.receive_message().content == "m"


@pytest.mark.parametrize("field, value", [("sig", "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA%3D"), ("sp", "raup"),
                                          ("se", "2098-01-01T00%3A00%3A00Z"), ("sv", "2018-03-28")])
def test_tampering(queue_endpoint, queue, field, value):
    token = generate_queue_sas(ACCOUNT, queue.queue_name, KEY, permission=QueueSasPermissions(read=True), expiry=LATER)
    parts = dict(p.split("=", 1) for p in token.split("&")) | {field: value}
    changed = "&".join(f"{k}={v}" for k, v in parts.items())
    with QueueClient(queue_endpoint, queue.queue_name, credential=AzureSasCredential(changed), retry_total=0) as client:
        with refused(403, "AuthenticationFailed"):
            client.peek_messages()


def test_policies(queue):
    assert queue.get_queue_access_policy() == {}
    queue.set_queue_access_policy({"full": AccessPolicy(permission="raup", expiry=LATER, start=EARLIER), "bare": AccessPolicy()})
    found = queue.get_queue_access_policy()
    assert set(found) == {"full", "bare"} and found["full"].permission == "raup"
    assert found["full"].start.startswith(EARLIER.strftime("%Y-%m-%dT%H:%M:%S"))
    queue.set_queue_access_policy({"only": AccessPolicy(permission="r")})
    assert set(queue.get_queue_access_policy()) == {"only"}
    queue.set_queue_access_policy({})
    assert queue.get_queue_access_policy() == {}


def test_policies_as_xml(queue_endpoint, queue):
    """Times come back in one form, and what was left out stays out."""
    def policies(*texts):
        return f"<SignedIdentifiers>{''.join(texts)}</SignedIdentifiers>"

    def put(body):
        return raw.send(queue_endpoint, "PUT", f"/{queue.queue_name}", body, query="comp=acl")

    one = "<SignedIdentifier><Id>{}</Id><AccessPolicy>{}</AccessPolicy></SignedIdentifier>"
    assert put(policies(one.format("a", "<Expiry>2099-02-03T04:05:06Z</Expiry><Permission>r</Permission>"))).status == 204
    found = raw.send(queue_endpoint, "GET", f"/{queue.queue_name}", query="comp=acl")
    assert found.element("Expiry") == "2099-02-03T04:05:06.0000000Z" and "<Start>" not in found.body, found
    assert put(policies(one.format("a", "<Permission>rwdl</Permission>"))).is_error(400, "InvalidXmlDocument", LineNumber="0")
    assert put(policies(*(one.format(n, "<Permission>r</Permission>") for n in range(6)))).is_error(400, "InvalidXmlDocument")
    assert set(queue.get_queue_access_policy()) == {"a"}        # what was refused has changed nothing
    assert put("").status == 204 and queue.get_queue_access_policy() == {}


def test_policies_of_nothing(queues, queue_name):
    client = queues.get_queue_client(queue_name)
    with refused(404, "QueueNotFound"):
        client.get_queue_access_policy()
    with refused(404, "QueueNotFound"):
        client.set_queue_access_policy({})


def test_a_stored_policy(open_queue, queue):
    queue.send_message("m")
    queue.set_queue_access_policy({"readers": AccessPolicy(permission="r", expiry=LATER, start=EARLIER)})
    client = open_queue(policy_id="readers", expiry=None)
    assert client.peek_messages()
    with refused(403, MISMATCH):
        client.receive_message()
    queue.set_queue_access_policy({"readers": AccessPolicy(permission="r", expiry=EARLIER)})
    with refused(403, "AuthenticationFailed"):
        client.peek_messages()
    queue.set_queue_access_policy({})
    with refused(403, "AuthenticationFailed"):
        client.peek_messages()


@pytest.fixture
def account(queue_endpoint):
    clients = []

    def make(types, letters, **options):
        token = generate_account_sas(ACCOUNT, KEY, ResourceTypes.from_string(types), AccountSasPermissions.from_string(letters),
                                     **{"expiry": LATER, **options})
        clients.append(QueueServiceClient(queue_endpoint, credential=AzureSasCredential(token), retry_total=0))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


def of(service, queue):
    return service.get_queue_client(queue.queue_name)


def test_account_signature_grants(account, queues, queue_name):
    made = account("c", "c").create_queue(queue_name)
    assert queue_name in [q.name for q in account("s", "l").list_queues()]
    assert of(account("c", "r"), made).get_queue_properties()
    of(account("c", "w"), made).set_queue_metadata({"a": "b"})
    of(account("o", "a"), made).send_message("m")
    assert of(account("o", "r"), made).peek_messages()
    taken = of(account("o", "p"), made).receive_message()
    kept = of(account("o", "u"), made).update_message(taken, visibility_timeout=60)
    of(account("o", "p"), made).delete_message(kept.id, kept.pop_receipt)
    of(account("o", "d"), made).clear_messages()
    assert account("s", "r").get_service_properties()
    account("s", "w").set_service_properties(cors=[])
    of(account("c", "d"), made).delete_queue()
    of(account("c", "w"), made).create_queue()
    queues.delete_queue(queue_name)


TYPE = "AuthorizationResourceTypeMismatch"


@pytest.mark.parametrize("types, letters, act, code", [
    ("so", "rwdlacup", lambda s, q: s.create_queue("never-made"), TYPE),
    ("c", "rdlaup", lambda s, q: s.create_queue("never-made"), MISMATCH),
    ("co", "rwdlacup", lambda s, q: list(s.list_queues()), TYPE),
    ("s", "rwdacup", lambda s, q: list(s.list_queues()), MISMATCH),
    ("sc", "rwdlacup", lambda s, q: of(s, q).peek_messages(), TYPE),
    ("o", "wdlacup", lambda s, q: of(s, q).peek_messages(), MISMATCH),
    ("sc", "rwdlacup", lambda s, q: of(s, q).send_message("m"), TYPE),
    ("o", "rwdlcup", lambda s, q: of(s, q).send_message("m"), MISMATCH),
    ("o", "rwdlacu", lambda s, q: of(s, q).receive_message(), MISMATCH),
    ("o", "rwlacup", lambda s, q: of(s, q).clear_messages(), MISMATCH),
    ("o", "rwdlacup", lambda s, q: of(s, q).get_queue_properties(), TYPE),
    ("c", "wdlacup", lambda s, q: of(s, q).get_queue_properties(), MISMATCH),
    ("c", "rdlacup", lambda s, q: of(s, q).set_queue_metadata({}), MISMATCH),
    ("c", "rwlacup", lambda s, q: of(s, q).delete_queue(), MISMATCH),
    ("co", "rwdlacup", lambda s, q: s.get_service_properties(), TYPE),
    ("s", "wdlacup", lambda s, q: s.get_service_properties(), MISMATCH),
])
def test_account_signature_refuses(account, queue, types, letters, act, code):
    with refused(403, code):
        act(account(types, letters), queue)
    assert queue.get_queue_properties().approximate_message_count == 0


def test_never_policies_by_an_account_signature(account, queue):
    for act in (lambda q: q.get_queue_access_policy(), lambda q: q.set_queue_access_policy({})):
        with pytest.raises(HttpResponseError) as caught:
            act(of(account("sco", "rwdlacup"), queue))
        assert caught.value.status_code == 403


def test_account_signature_of_another_service(queue_endpoint, queue):
    token = tables.generate_account_sas(AzureNamedKeyCredential(ACCOUNT, KEY), tables.ResourceTypes.from_string("sco"),
                                        tables.AccountSasPermissions.from_string("rwdlacup"), expiry=LATER)
    assert "ss=t" in token
    with QueueClient(queue_endpoint, queue.queue_name, credential=AzureSasCredential(token), retry_total=0) as client:
        with refused(403, "AuthorizationServiceMismatch"):
            client.peek_messages()
