"""Signed requests by hand, for what the SDK cannot say: broken batches, odd headers, bare answers."""
import base64
import email.utils
import hashlib
import hmac
import http.client
import json
import re
import uuid
from urllib.parse import urlsplit

from server import ACCOUNT, KEY


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, {k.lower(): v for k, v in headers}, body

    def __repr__(self):
        return f"{self.status} {self.headers} {self.body[:600]}"

    def json(self):
        return json.loads(self.body)

    @property
    def code(self):
        """The error code, of a JSON or an XML error, at the top or in the first part of a batch."""
        match = re.search(r'"code":"(\w*)"|<m:code>(\w*)', self.body)
        return match and (match[1] or match[2])

    @property
    def message(self):
        match = re.search(r'"value":"([^"\\]*(?:\\.[^"\\]*)*)"', self.body)
        return match and json.loads(f'"{match[1]}"').split("\nRequestId:")[0]

    def part_statuses(self):
        return [int(s) for s in re.findall(r"(?m)^HTTP/1\.1 (\d{3}) ", self.body)]


def send(endpoint, method, path, body=None, query="", headers=(), key=KEY, sign=True):
    """One request on a connection of its own. `path` and `query` go out as they stand."""
    url = urlsplit(endpoint)
    sent = {"x-ms-version": "2019-02-02", "Accept": "application/json;odata=minimalmetadata",
            "x-ms-date": email.utils.formatdate(usegmt=True), **dict(headers)}
    sent = {k: v for k, v in sent.items() if v is not None}
    target = url.path + path
    if body is not None and "Content-Type" not in sent:
        sent["Content-Type"] = "application/json"
    if sign:
        comp = re.search(r"(?:^|&)comp=([^&]*)", query)
        resource = f"/{ACCOUNT}{target}" + (f"?comp={comp[1]}" if comp else "")
        text = "\n".join([method, "", sent.get("Content-Type", ""), sent["x-ms-date"], resource])
        digest = hmac.new(base64.b64decode(key), text.encode(), hashlib.sha256).digest()
        sent["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
    connection = http.client.HTTPConnection(url.netloc, timeout=30)
    try:
        data = body.encode() if isinstance(body, str) else body
        connection.request(method, target + (f"?{query}" if query else ""), data, sent)
        answer = connection.getresponse()
        return Answer(answer.status, answer.getheaders(), answer.read().decode("utf-8", "replace"))
    finally:
        connection.close()


def part(method, url, body=None, headers=()):
    """One operation of a batch, as text."""
    lines = [f"{method} {url} HTTP/1.1", "Accept: application/json;odata=minimalmetadata"]
    lines += [f"{name}: {value}" for name, value in dict(headers).items()]
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body.encode())}", "", body]
    else:
        lines += ["", ""]
    return "\r\n".join(lines)


def insert(endpoint, table, partition, row, **values):
    body = json.dumps({"PartitionKey": partition, "RowKey": row, **values})
    return part("POST", f"{endpoint}/{table}", body, {"Prefer": "return-no-content"})


def batch(endpoint, *parts, changesets=1, wrap=True):
    """Sends operations as one batch. Without `wrap` they stand outside a changeset, as a lone query does."""
    outer = f"batch_{uuid.uuid4()}"
    lines = []
    head = ["Content-Type: application/http", "Content-Transfer-Encoding: binary", ""]
    for _ in range(changesets):
        inner = f"changeset_{uuid.uuid4()}"
        if wrap:
            lines += [f"--{outer}", f"Content-Type: multipart/mixed; boundary={inner}", ""]
        for text in parts:
            lines += [f"--{inner if wrap else outer}", *head, text]
        if wrap:
            lines += [f"--{inner}--", ""]
    lines += [f"--{outer}--", ""]
    return send(endpoint, "POST", "/$batch", "\r\n".join(lines),
                headers={"Content-Type": f"multipart/mixed; boundary={outer}", "DataServiceVersion": "3.0"})
