"""The service as a whole: properties, statistics, CORS, the secondary, wrong keys, odd requests."""
import base64
import email.utils
import hashlib
import hmac
from datetime import datetime, timezone

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError
from azure.data.tables import (TableAnalyticsLogging, TableCorsRule, TableMetrics, TableRetentionPolicy, TableServiceClient)

import raw
from helpers import code_of, entity, refused
from server import ACCOUNT, KEY

OFF = {"analytics_logging": TableAnalyticsLogging(), "hour_metrics": TableMetrics(), "minute_metrics": TableMetrics(), "cors": []}


@pytest.fixture
def properties(service):
    """Puts the defaults back, so that tests do not meet."""
    yield service
    service.set_service_properties(**OFF)


def test_service_properties(properties):
    days = TableRetentionPolicy(enabled=True, days=5)
    properties.set_service_properties(
        analytics_logging=TableAnalyticsLogging(read=True, write=True, delete=True, retention_policy=days),
        hour_metrics=TableMetrics(enabled=True, include_apis=True, retention_policy=days),
        minute_metrics=TableMetrics(enabled=True, include_apis=False, retention_policy=TableRetentionPolicy()),
        cors=[TableCorsRule(["http://a.example", "http://b.example"], ["GET", "PUT"], allowed_headers=["x-ms-*"],
                            exposed_headers=["*"], max_age_in_seconds=60)])
    found = properties.get_service_properties()
    assert found["analytics_logging"].read and found["analytics_logging"].retention_policy.days == 5
    assert found["hour_metrics"].include_apis and not found["minute_metrics"].include_apis
    [rule] = found["cors"]
    assert rule.allowed_origins == ["http://a.example", "http://b.example"] and rule.max_age_in_seconds == 60
    properties.set_service_properties(cors=[])  # Sections that are not named stay.
    after = properties.get_service_properties()
    assert after["cors"] == [] and after["analytics_logging"].read


@pytest.mark.parametrize("change", [
    {"analytics_logging": TableAnalyticsLogging(retention_policy=TableRetentionPolicy(enabled=True, days=366))},
    {"cors": [TableCorsRule(["*"], ["GET"]) for _ in range(6)]},
], ids=["retention", "rules"])
def test_properties_have_limits(properties, change):
    with refused(400, "InvalidXmlDocument"):
        properties.set_service_properties(**change)


def test_statistics_come_from_the_secondary(endpoint, credential):
    with TableServiceClient(endpoint, credential=credential, secondary_hostname=f"{endpoint.split('://')[1]}-secondary") as client:
        stats = client.get_service_stats()
    assert stats["geo_replication"]["status"] in ("live", "bootstrap", "unavailable")
    primary = raw.send(endpoint, "GET", "/", query="restype=service&comp=stats")
    assert (primary.status, primary.code) == (400, "InvalidQueryParameterValue"), primary


def test_the_secondary_reads_and_does_not_write(endpoint, table):
    table.create_entity(entity(A=1))
    path = f"/{table.table_name}(PartitionKey='p',RowKey='r')"
    assert raw.send(endpoint + "-secondary", "GET", path).json()["A"] == 1
    for method, body in (("PUT", "{}"), ("DELETE", None)):
        answer = raw.send(endpoint + "-secondary", method, path, body, headers={"If-Match": "*"})
        assert (answer.status, answer.code) == (403, "InsufficientAccountPermissions"), answer


def test_cross_origin_requests(endpoint, properties):
    properties.set_service_properties(cors=[
        TableCorsRule(["http://a.example"], ["GET"], allowed_headers=["x-ms-*", "accept"], exposed_headers=["x-ms-request-id"],
                      max_age_in_seconds=60)])

    def ask(origin, method, headers="x-ms-date"):
        return raw.send(endpoint, "OPTIONS", "/Tables", sign=False,
                        headers={"Origin": origin, "Access-Control-Request-Method": method, "Access-Control-Request-Headers": headers})

    yes = ask("http://a.example", "GET")
    assert yes.status == 200 and yes.headers["access-control-allow-origin"] == "http://a.example", yes
    assert yes.headers["access-control-allow-methods"] == "GET" and yes.headers["access-control-max-age"] == "60"
    for refused_ in (ask("http://b.example", "GET"), ask("http://a.example", "PUT"), ask("http://a.example", "GET", "other")):
        assert (refused_.status, refused_.code) == (403, "CorsPreflightFailure"), refused_
    missing = raw.send(endpoint, "OPTIONS", "/Tables", sign=False, headers={"Origin": "http://a.example"})
    assert missing.status == 400, missing
    real = raw.send(endpoint, "GET", "/Tables", headers={"Origin": "http://a.example"})
    assert real.status == 200 and real.headers["access-control-allow-origin"] == "http://a.example"
    assert real.headers["vary"] == "Origin" and "x-ms-request-id" in real.headers["access-control-expose-headers"]
    other = raw.send(endpoint, "GET", "/Tables", headers={"Origin": "http://b.example"})
    assert "access-control-allow-origin" not in other.headers


@pytest.mark.ours
@pytest.mark.parametrize("headers", [{"Origin": "http://b.example"}, {"Host": "b.example"}], ids=["origin", "host"])
def test_a_foreign_page_cannot_use_the_public_key(endpoint, headers):
    """Everybody knows the development key, so a page in a browser could sign with it; only its address betrays it."""
    answer = raw.send(endpoint, "GET", "/Tables", headers=headers)
    assert (answer.status, answer.code) == (403, "AuthorizationFailure"), answer


def test_wrong_key(endpoint):
    wrong = AzureNamedKeyCredential(ACCOUNT, KEY.replace("E", "F", 1))
    with TableServiceClient(endpoint, credential=wrong, retry_total=0) as client:
        with pytest.raises(ClientAuthenticationError) as caught:
            list(client.list_tables())
    assert (caught.value.status_code, code_of(caught.value)) == (403, "AuthenticationFailed")


def test_wrong_account(endpoint):
    other = endpoint.replace(ACCOUNT, "someoneelse")
    with TableServiceClient(other, credential=AzureNamedKeyCredential("someoneelse", KEY), retry_total=0) as client:
        with pytest.raises(HttpResponseError) as caught:
            list(client.list_tables())
    assert caught.value.status_code in (403, 404)


@pytest.mark.parametrize("headers, sign, status, code", [
    ({}, False, 403, "AuthenticationFailed"),
    ({"Authorization": "SharedKey nonsense"}, False, 400, "InvalidAuthenticationInfo"),
    ({"x-ms-date": "Mon, 27 Jun 2022 15:25:14 GMT"}, True, 403, "AuthenticationFailed"),
    ({"x-ms-version": "yesterday"}, True, 400, "InvalidHeaderValue"),
], ids=["anonymous", "malformed", "old", "version"])
def test_refused_at_the_door(endpoint, headers, sign, status, code):
    answer = raw.send(endpoint, "GET", "/Tables", headers=headers, sign=sign)
    assert (answer.status, answer.code) == (status, code), answer


def test_any_later_version_is_served_and_echoed(endpoint):
    answer = raw.send(endpoint, "GET", "/Tables", headers={"x-ms-version": "2031-01-01", "x-ms-client-request-id": "mine"})
    assert (answer.status, answer.headers["x-ms-version"]) == (200, "2031-01-01"), answer
    assert answer.headers["x-ms-client-request-id"] == "mine" and answer.headers["x-ms-request-id"]


def test_unsupported_method(endpoint, table):
    assert raw.send(endpoint, "PUT", "/Tables", "{}").status == 405
    assert raw.send(endpoint, "DELETE", f"/{table.table_name}").status == 400


def test_lite_signatures(endpoint):
    """Shared Key Lite, as the JavaScript and .NET clients sign."""
    date = email.utils.formatdate(usegmt=True)
    text = f"{date}\n/{ACCOUNT}/{ACCOUNT}/Tables"
    signature = base64.b64encode(hmac.new(base64.b64decode(KEY), text.encode(), hashlib.sha256).digest()).decode()
    headers = {"x-ms-date": date, "Authorization": f"SharedKeyLite {ACCOUNT}:{signature}"}
    assert raw.send(endpoint, "GET", "/Tables", headers=headers, sign=False).status == 200


def test_date_of_an_answer(endpoint):
    answer = raw.send(endpoint, "GET", "/Tables")
    served = datetime.strptime(answer.headers["date"], "%a, %d %b %Y %H:%M:%S GMT").replace(tzinfo=timezone.utc)
    assert abs((datetime.now(timezone.utc) - served).total_seconds()) < 60
