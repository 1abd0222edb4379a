"""`az storage table`, `entity`, `queue` and `message` with a connection string."""
import json
import os
import pathlib
import subprocess
import sys
import urllib.error
import urllib.request

import checks

CONNECTION, TABLES, QUEUES = (os.environ[name] for name in ("CLIENT_CONNECTION", "CLIENT_TABLES", "CLIENT_QUEUES"))
EXPIRY = "2099-01-01T00:00Z"
SECONDS = 120
ENVIRONMENT = os.environ | {
    # Its files, apart from those of the developer's own Azure account.
    "AZURE_CONFIG_DIR": str(pathlib.Path(os.environ["CLIENT_SCRATCH"]) / "azure"),
    "AZURE_CORE_COLLECT_TELEMETRY": "false",
    "AZURE_CORE_ONLY_SHOW_ERRORS": "true",
}


def command(*words, connection=CONNECTION):
    return subprocess.run([sys.executable, "-m", "azure.cli", "storage", *words, "--connection-string", connection, "--output", "json"],
                          env=ENVIRONMENT, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS)


def az(*words, **more):
    """What a command prints, parsed. It must succeed."""
    done = command(*words, **more)
    assert done.returncode == 0, f"az storage {' '.join(words)}: status {done.returncode}\n{done.stderr[-2000:]}"
    return json.loads(done.stdout) if done.stdout.strip() else None


def refused(reason, *words, **more):
    """The command must fail, for this reason."""
    done = command(*words, **more)
    assert done.returncode != 0, f"az storage {' '.join(words)} succeeded:\n{done.stdout}"
    assert reason in done.stderr, done.stderr[-2000:]


def with_sas(token):
    return f"TableEndpoint={TABLES};QueueEndpoint={QUEUES};SharedAccessSignature={token}"


def status(url):
    try:
        with urllib.request.urlopen(url, timeout=SECONDS) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def tables():
    """table create, exists, list, delete"""
    assert az("table", "create", "--name", "First") == {"created": True}
    refused("TableAlreadyExists", "table", "create", "--name", "First", "--fail-on-exist")
    assert az("table", "exists", "--name", "First") == {"exists": True}
    assert {"name": "First"} in az("table", "list")
    assert az("table", "delete", "--name", "First") == {"deleted": True}
    assert az("table", "exists", "--name", "First") == {"exists": False}


def entities():
    """entity insert, show, merge, replace, delete"""
    az("table", "create", "--name", "Entities")
    key = ("--table-name", "Entities", "--partition-key", "p", "--row-key", "r 1")
    new = ("--table-name", "Entities", "--entity", "PartitionKey=p", "RowKey=r 1")
    az("entity", "insert", *new, "Name=Jürgen", "Age=42", "Age@odata.type=Edm.Int32")
    refused("already exists", "entity", "insert", *new)
    found = az("entity", "show", *key)
    assert (found["Name"], found["Age"]) == ("Jürgen", 42)
    az("entity", "merge", *new, "City=Köln")
    found = az("entity", "show", *key, "--select", "Name", "City")
    assert (found["Name"], found["City"], "Age" in found) == ("Jürgen", "Köln", False)
    az("entity", "replace", *new, "City=Rome")
    found = az("entity", "show", *key)
    assert (found["City"], "Name" in found) == ("Rome", False)
    refused("UpdateConditionNotSatisfied", "entity", "delete", *key, "--if-match", "W/\"datetime'2000-01-01T00%3A00%3A00Z'\"")
    az("entity", "delete", *key)
    refused("ResourceNotFound", "entity", "show", *key)


def queries():
    """entity query with filter, select, and in pages"""
    az("table", "create", "--name", "Queries")
    for row in ("a", "b", "c"):
        az("entity", "insert", "--table-name", "Queries", "--entity", "PartitionKey=p", f"RowKey={row}",
           f"Number={ord(row)}", "Number@odata.type=Edm.Int32")
    query = ("entity", "query", "--table-name", "Queries")
    found = az(*query, "--filter", "PartitionKey eq 'p' and Number gt 97", "--select", "RowKey")["items"]
    assert [(entity["RowKey"], "Number" in entity) for entity in found] == [("b", False), ("c", False)]
    page = az(*query, "--num-results", "2")
    assert [entity["RowKey"] for entity in page["items"]] == ["a", "b"]
    marker = [f"{name}={value}" for name, value in page["nextMarker"].items()]
    assert [entity["RowKey"] for entity in az(*query, "--num-results", "2", "--marker", *marker)["items"]] == ["c"]


def table_signatures():
    """table policy, table generate-sas"""
    az("table", "create", "--name", "Signed")
    az("entity", "insert", "--table-name", "Signed", "--entity", "PartitionKey=p", "RowKey=r")
    az("table", "policy", "create", "--table-name", "Signed", "--name", "reader", "--permissions", "r", "--expiry", EXPIRY)
    assert az("table", "policy", "list", "--table-name", "Signed")["reader"]["permission"] == "r"
    for terms in (["--policy-name", "reader"], ["--permissions", "r", "--expiry", EXPIRY]):
        token = az("table", "generate-sas", "--name", "Signed", *terms)
        assert status(f"{TABLES}/Signed()?{token}") == 200, token
        assert status(f"{TABLES}/Entities()?{token}") == 403, token
    az("table", "policy", "delete", "--table-name", "Signed", "--name", "reader")
    assert az("table", "policy", "list", "--table-name", "Signed") == {}


def queues():
    """queue create, exists, list, metadata in mixed case, delete"""
    assert az("queue", "create", "--name", "first", "--metadata", "Color=Red", "shapeName=round") == {"created": True}
    assert az("queue", "exists", "--name", "first") == {"exists": True}
    assert az("queue", "metadata", "show", "--name", "first") == {"Color": "Red", "shapeName": "round"}
    listed = {queue["name"]: queue["metadata"] for queue in az("queue", "list", "--include-metadata")}
    assert listed["first"] == {"Color": "Red", "shapeName": "round"}
    az("queue", "metadata", "update", "--name", "first", "--metadata", "otherName=Blue")
    assert az("queue", "metadata", "show", "--name", "first") == {"otherName": "Blue"}
    assert az("queue", "delete", "--name", "first", "--fail-not-exist") == {"deleted": True}
    refused("QueueNotFound", "queue", "delete", "--name", "first", "--fail-not-exist")
    assert az("queue", "exists", "--name", "first") == {"exists": False}


def messages():
    """message put, peek, get, update, delete, clear"""
    az("queue", "create", "--name", "messages")
    queue = ("--queue-name", "messages")
    az("message", "put", *queue, "--content", "Grüße <&> 東京")
    [peeked] = az("message", "peek", *queue)
    assert (peeked["content"], peeked["dequeueCount"], peeked["popReceipt"]) == ("Grüße <&> 東京", 0, None)
    [taken] = az("message", "get", *queue, "--visibility-timeout", "300")
    assert (taken["content"], taken["dequeueCount"]) == ("Grüße <&> 東京", 1)
    assert az("message", "get", *queue) == []
    one = (*queue, "--id", taken["id"], "--pop-receipt")
    updated = az("message", "update", *one, taken["popReceipt"], "--content", "second", "--visibility-timeout", "0")
    refused("MessageNotFound", "message", "delete", *one, taken["popReceipt"])
    assert az("message", "peek", *queue)[0]["content"] == "second"
    az("message", "delete", *one, updated["popReceipt"])
    for text in ("a", "b"):
        az("message", "put", *queue, "--content", text)
    assert [message["content"] for message in az("message", "peek", *queue, "--num-messages", "5")] == ["a", "b"]
    az("message", "clear", *queue)
    assert az("message", "peek", *queue) == []


def queue_signatures():
    """queue policy, queue generate-sas"""
    az("queue", "create", "--name", "signed")
    az("queue", "policy", "create", "--queue-name", "signed", "--name", "sender", "--permissions", "a", "--expiry", EXPIRY)
    assert az("queue", "policy", "list", "--queue-name", "signed")["sender"]["permission"] == "a"
    token = az("queue", "generate-sas", "--name", "signed", "--policy-name", "sender")
    az("message", "put", "--queue-name", "signed", "--content", "sent", connection=with_sas(token))
    # The CLI replaces the error of the service with advice of its own.
    refused("You do not have the required permissions", "message", "peek", "--queue-name", "signed", connection=with_sas(token))
    assert [message["content"] for message in az("message", "peek", "--queue-name", "signed")] == ["sent"]


def account_signature():
    """account generate-sas, used for a queue"""
    token = az("account", "generate-sas", "--services", "qt", "--resource-types", "sco", "--permissions", "rwdlacup", "--expiry", EXPIRY)
    az("queue", "create", "--name", "by-sas", connection=with_sas(token))
    assert "by-sas" in [queue["name"] for queue in az("queue", "list", connection=with_sas(token))]


def services():
    """cors, logging and metrics of both services"""
    az("cors", "add", "--services", "tq", "--methods", "GET", "--origins", "https://example.org", "--max-age", "60")
    rules = {rule["Service"]: rule["AllowedOrigins"] for rule in az("cors", "list", "--services", "tq")}
    assert rules == {"table": "https://example.org", "queue": "https://example.org"}
    az("cors", "clear", "--services", "tq")
    assert az("cors", "list", "--services", "tq") == []
    assert set(az("logging", "show", "--services", "tq")) == {"table", "queue"}
    assert set(az("metrics", "show", "--services", "tq")) == {"table", "queue"}


if __name__ == "__main__":
    sys.exit(checks.run(tables, entities, queries, table_signatures, queues, messages, queue_signatures, account_signature, services))
