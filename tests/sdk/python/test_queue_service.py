"""The queue service as a whole: properties, statistics, CORS, the secondary, wrong keys, odd requests."""
import email.utils
from datetime import datetime, timedelta, timezone

import pytest
from azure.core.exceptions import ClientAuthenticationError
from azure.storage.queue import CorsRule, Metrics, QueueAnalyticsLogging, QueueClient, RetentionPolicy

import queue_raw as raw
from helpers import refused
from server import ACCOUNT, KEY

OFF = {"analytics_logging": QueueAnalyticsLogging(), "hour_metrics": Metrics(), "minute_metrics": Metrics(), "cors": []}


@pytest.fixture
def properties(queues):
    """Puts the defaults back, so that tests do not meet."""
    yield queues
    queues.set_service_properties(**OFF)


def test_service_properties(properties):
    days = RetentionPolicy(enabled=True, days=5)
    properties.set_service_properties(
        analytics_logging=QueueAnalyticsLogging(read=True, write=True, delete=True, retention_policy=days),
        hour_metrics=Metrics(enabled=True, include_apis=True, retention_policy=days),
        minute_metrics=Metrics(enabled=True, include_apis=False, retention_policy=RetentionPolicy()),
        cors=[CorsRule(["http://a.example", "http://b.example"], ["GET", "PUT"], allowed_headers=["x-ms-*"], exposed_headers=["*"],
                       max_age_in_seconds=60)])
    found = properties.get_service_properties()
    assert found["analytics_logging"].read and found["analytics_logging"].retention_policy.days == 5
    assert found["hour_metrics"].include_apis and not found["minute_metrics"].include_apis
    [rule] = found["cors"]
    assert rule.allowed_origins == "http://a.example,http://b.example" and rule.max_age_in_seconds == 60
    properties.set_service_properties(cors=[])          # Sections that are not named stay.
    after = properties.get_service_properties()
    assert after["cors"] == [] and after["analytics_logging"].read


@pytest.mark.ours
def test_properties_are_not_those_of_tables(properties, service):
    properties.set_service_properties(cors=[CorsRule(["http://queues.example"], ["GET"])])
    assert service.get_service_properties()["cors"] == []
    properties.set_service_properties(cors=[])


@pytest.mark.parametrize("change", [
    {"analytics_logging": QueueAnalyticsLogging(retention_policy=RetentionPolicy(enabled=True, days=366))},
    {"cors": [CorsRule(["*"], ["GET"]) for _ in range(6)]},
], ids=["retention", "rules"])
def test_properties_have_limits(properties, change):
    with refused(400, "InvalidXmlDocument"):
        properties.set_service_properties(**change)


def test_statistics_come_from_the_secondary(queue_endpoint):
    """Asked by hand: the SDK makes an address of a path-style secondary that names the account twice."""
    stats = raw.send(queue_endpoint + "-secondary", "GET", "/", query="restype=service&comp=stats")
    assert stats.status == 200 and stats.element("Status") in ("live", "bootstrap", "unavailable"), stats
    assert stats.element("LastSyncTime").endswith(" GMT") and stats.headers["content-type"] == "application/xml"
    primary = raw.send(queue_endpoint, "GET", "/", query="restype=service&comp=stats")
    assert primary.is_error(400, "InvalidQueryParameterValue")


def test_the_secondary_reads_and_does_not_take(queue_endpoint, queue):
    sent = queue.send_message("m")
    queue.set_queue_metadata({"a": "b"})
    there, base = queue_endpoint + "-secondary", f"/{queue.queue_name}"
    for path, query in (("/", f"comp=list&prefix={queue.queue_name}"), (base, "comp=metadata"), (base, "comp=acl"),
                        (base + "/messages", "peekonly=true"), ("/", "restype=service&comp=properties")):
        assert raw.send(there, "GET", path, query=query).status == 200, (path, query)
    body = "<QueueMessage><MessageText>m</MessageText></QueueMessage>"
    receipt = "popreceipt=AAAAAAAAAAAAAAAAAAAAAA%3D%3D"
    for method, path, query, data in (
            ("PUT", base + "-other", "", None), ("DELETE", base, "", None), ("PUT", base, "comp=metadata", None),
            ("PUT", base, "comp=acl", ""), ("GET", base + "/messages", "", None), ("POST", base + "/messages", "", body),
            ("DELETE", base + "/messages", "", None), ("DELETE", f"{base}/messages/{sent.id}", receipt, None),
            ("PUT", f"{base}/messages/{sent.id}", receipt + "&visibilitytimeout=0", None),
            ("PUT", "/", "restype=service&comp=properties", "<StorageServiceProperties />")):
        answer = raw.send(there, method, path, data, query=query)
        assert answer.is_error(403, "InsufficientAccountPermissions"), (method, path, query)
    assert queue.peek_messages()[0].dequeue_count == 0 and queue.get_queue_properties().metadata == {"a": "b"}


def test_cross_origin_requests(queue_endpoint, properties, queue):
    properties.set_service_properties(cors=[
        CorsRule(["http://a.example"], ["GET"], allowed_headers=["x-ms-*", "accept"], exposed_headers=["x-ms-request-id"],
                 max_age_in_seconds=60)])
    path = f"/{queue.queue_name}/messages"

    def ask(origin, method, headers="x-ms-date"):
        return raw.send(queue_endpoint, "OPTIONS", path, sign=False,
                        headers={"Origin": origin, "Access-Control-Request-Method": method, "Access-Control-Request-Headers": headers})

    yes = ask("http://a.example", "GET")
    assert yes.status == 200 and yes.headers["access-control-allow-origin"] == "http://a.example", yes
    assert yes.headers["access-control-allow-methods"] == "GET" and yes.headers["access-control-max-age"] == "60"
    for no in (ask("http://b.example", "GET"), ask("http://a.example", "PUT"), ask("http://a.example", "GET", "other")):
        assert no.is_error(403, "CorsPreflightFailure")
    real = raw.send(queue_endpoint, "GET", path, query="peekonly=true", headers={"Origin": "http://a.example"})
    assert real.status == 200 and real.headers["access-control-allow-origin"] == "http://a.example", real
    assert real.headers["vary"] == "Origin" and "x-ms-request-id" in real.headers["access-control-expose-headers"]
    other = raw.send(queue_endpoint, "GET", path, query="peekonly=true", headers={"Origin": "http://b.example"})
    assert "access-control-allow-origin" not in other.headers, other


def test_wrong_key(queue_endpoint, queue):
    credential = {"account_name": ACCOUNT, "account_key": KEY.replace("E", "F")}
    with QueueClient(queue_endpoint, queue.queue_name, credential=credential, retry_total=0) as client:
        with pytest.raises(ClientAuthenticationError) as caught:
            client.peek_messages()
    assert caught.value.status_code == 403 and caught.value.error_code == "AuthenticationFailed"


@pytest.mark.parametrize("minutes", [-16, 16])
def test_skewed_clock(queue_endpoint, minutes):
    then = (datetime.now(timezone.utc) + timedelta(minutes=minutes)).timestamp()
    headers = {"x-ms-date": email.utils.formatdate(then, usegmt=True)}
    answer = raw.send(queue_endpoint, "GET", "/", query="comp=list", headers=headers)
    assert (answer.status, answer.code) == (403, "AuthenticationFailed"), answer


def test_refused_at_the_door(queue_endpoint):
    anonymous = raw.send(queue_endpoint, "GET", "/", query="comp=list", sign=False)
    assert anonymous.status in (401, 403) and anonymous.code in ("NoAuthenticationInformation", "AuthenticationFailed"), anonymous
    malformed = raw.send(queue_endpoint, "GET", "/", query="comp=list", sign=False, headers={"Authorization": "SharedKey nonsense"})
    assert (malformed.status, malformed.code) == (400, "InvalidAuthenticationInfo"), malformed
    version = raw.send(queue_endpoint, "GET", "/", query="comp=list", headers={"x-ms-version": "yesterday"})
    assert (version.status, version.code) == (400, "InvalidHeaderValue"), version


@pytest.mark.parametrize("version", ["2009-09-19", "2011-08-18", "2012-02-12", "2013-08-15", "2014-02-14", "2015-02-21", "2015-04-05",
                                     "2016-05-31", "2017-07-29", "2026-10-06", "2031-01-01"])
def test_versions(queue_endpoint, queue, version):
    """From the oldest that clients send to those to come; each is signed by its own rules and echoed."""
    path, headers = f"/{queue.queue_name}/messages", {"x-ms-version": version, "Content-Length": None}
    answer = raw.send(queue_endpoint, "GET", path, query="peekonly=true", headers=headers)
    assert (answer.status, answer.headers.get("x-ms-version")) == (200, version), answer
    body = "<QueueMessage><MessageText>m</MessageText></QueueMessage>"
    put = raw.send(queue_endpoint, "POST", path, body, headers={"x-ms-version": version})
    assert put.status == 201 and bool(put.body) == (version >= "2016-05-31"), put


def test_unsupported_method(queue_endpoint, queue):
    assert raw.send(queue_endpoint, "PATCH", f"/{queue.queue_name}").status in (400, 405)
    assert raw.send(queue_endpoint, "POST", f"/{queue.queue_name}").status in (400, 405)


def test_date_of_an_answer(queue_endpoint):
    answer = raw.send(queue_endpoint, "GET", "/", query="comp=list")
    served = datetime.strptime(answer.headers["date"], "%a, %d %b %Y %H:%M:%S GMT").replace(tzinfo=timezone.utc)
    assert abs((datetime.now(timezone.utc) - served).total_seconds()) < 60 and answer.headers["x-ms-request-id"]


def test_body_of_an_error(queue_endpoint, queue_name):
    answer = raw.send(queue_endpoint, "GET", f"/{queue_name}", query="comp=metadata")
    assert answer.is_error(404, "QueueNotFound") and answer.headers["content-type"] == "application/xml"
    first, second, third = answer.element("Message").split("\n")
    assert first == "The specified queue does not exist."
    assert second == f"RequestId:{answer.headers['x-ms-request-id']}" and third.startswith("Time:") and third.endswith("Z")
    head = raw.send(queue_endpoint, "HEAD", f"/{queue_name}", query="comp=metadata")
    assert (head.status, head.code, head.body) == (404, "QueueNotFound", "")
