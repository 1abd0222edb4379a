"""One batch of changes to entities of any tables and to messages, committed all or none.

The SDK has no words for such a batch, so the request is written and signed here: about as much as a batch takes.
"""
import base64
import datetime
import email.utils
import hashlib
import hmac
import http.client
import json
import math
import re
import uuid
from urllib.parse import quote, urlsplit
from xml.sax.saxutils import escape


class Refused(Exception):
    """Nothing of the batch was done, and trying again would not help by itself."""


def wire(entity):
    """An entity that the SDK has read, as JSON of the protocol: every type is kept."""
    said = {}
    for name, value in entity.items():
        kind = None
        if isinstance(value, tuple):            # of the SDK: a value that Python has no type for, and its type
            value, kind = str(value[0]), str(getattr(value[1], "value", value[1]))
        elif isinstance(value, datetime.datetime):
            exact = getattr(value, "tables_service_value", None)
            value, kind = exact or value.astimezone(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ"), "Edm.DateTime"
        elif isinstance(value, uuid.UUID):
            value, kind = str(value), "Edm.Guid"
        elif isinstance(value, bytes):
            value, kind = base64.b64encode(value).decode(), "Edm.Binary"
        elif isinstance(value, float):
            value, kind = value if math.isfinite(value) else {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN"), "Edm.Double"
        said[name] = value
        if kind:
            said[f"{name}@odata.type"] = kind
    return json.dumps(said)


class Outbox:
    def __init__(self, account, key, table_endpoint, queue_endpoint):
        self.account, self.key = account, base64.b64decode(key)
        self.tables, self.queues = table_endpoint.rstrip("/"), queue_endpoint.rstrip("/")

    # The parts of a batch: method and URL, headers, body.

    def insert(self, table, entity):
        """`entity` is what `wire` has made of one."""
        return f"POST {self.tables}/{table}", ["Content-Type: application/json", "Prefer: return-no-content"], entity

    def remove(self, table, partition, row, etag):
        keys = ",".join(f"{name}='{quote(text.replace(chr(39), chr(39) * 2), safe='')}'"
                        for name, text in (("PartitionKey", partition), ("RowKey", row)))
        return f"DELETE {self.tables}/{table}({keys})", [f"If-Match: {etag}"], ""

    def put(self, queue, text):
        body = f"<QueueMessage><MessageText>{escape(text)}</MessageText></QueueMessage>"
        return f"POST {self.queues}/{queue}/messages?messagettl=-1", ["Content-Type: application/xml"], body

    def take_off(self, queue, message):
        url = f"{self.queues}/{queue}/messages/{message.id}?popreceipt={quote(message.pop_receipt, safe='')}"
        return f"DELETE {url}", [], ""

    def commit(self, *parts):
        """All of it, or Refused. Any other exception means that nobody knows: the message comes back and tells."""
        batch, changeset = f"batch_{uuid.uuid4()}", f"changeset_{uuid.uuid4()}"
        lines = [f"--{batch}", f"Content-Type: multipart/mixed; boundary={changeset}", ""]
        for line, headers, body in parts:
            lines += [f"--{changeset}", "Content-Type: application/http", "Content-Transfer-Encoding: binary", "",
                      f"{line} HTTP/1.1", "Accept: application/json;odata=minimalmetadata", *headers,
                      f"Content-Length: {len(body.encode())}", "", body]
        lines += [f"--{changeset}--", f"--{batch}--", ""]
        status, answer = self._send("\r\n".join(lines).encode(), f"multipart/mixed; boundary={batch}")
        statuses = [int(code) for code in re.findall(r"(?m)^HTTP/1\.1 (\d{3})", answer)]
        worst = max([status, *statuses])
        if 400 <= worst < 500:
            raise Refused(f"{worst} {answer}")
        if worst >= 300 or len(statuses) != len(parts):
            raise OSError(f"{len(parts)} parts were answered with {status} {answer}")   # too busy, or not in time

    def _send(self, body, kind):
        url, date = urlsplit(self.tables), email.utils.formatdate(usegmt=True)
        path = f"{url.path}/$batch"
        signed = hmac.new(self.key, f"{date}\n/{self.account}{path}".encode(), hashlib.sha256).digest()
        headers = {"Content-Type": kind, "x-ms-date": date, "x-ms-version": "2019-02-02", "DataServiceVersion": "3.0",
                   "x-rowhouse-transaction": "account",     # more than one table
                   "Authorization": f"SharedKeyLite {self.account}:{base64.b64encode(signed).decode()}"}
        connection = http.client.HTTPConnection(url.netloc, timeout=30)
        try:
            connection.request("POST", path, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()
