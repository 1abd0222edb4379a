"""Signed requests to queues by hand, for what the SDK cannot say: odd parameters, odd bodies, bare answers."""
import base64
import email.utils
import hashlib
import hmac
import http.client
import re
from urllib.parse import parse_qsl, urlsplit

from server import ACCOUNT, KEY

VERSION = "2021-02-12"


class Answer:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, {k.lower(): v for k, v in headers}, body

    def __repr__(self):
        return f"{self.status} {self.headers} {self.body[:600]}"

    def element(self, name):
        """The text of the first element of this name, as it stands."""
        found = re.search(rf"<{name}>([^<]*)</{name}>", self.body)
        return found and found[1]

    @property
    def code(self):
        return self.headers.get("x-ms-error-code")

    def is_error(self, status, code, **elements):
        """Whether it is this error, by header and body, with these elements."""
        said = (self.status, self.code, *(self.element(name) for name in ("Code", *elements)))
        assert said == (status, code, code, *elements.values()), self
        return True


def string_to_sign(method, target, query, headers):
    """The long form of Shared Key, of requests without conditions."""
    low = {name.lower(): value for name, value in headers.items()}
    length = low.get("content-length", "")
    lines = [method, "", "", "" if length == "0" else length, low.get("content-md5", ""), low.get("content-type", ""),
             "" if "x-ms-date" in low else low.get("date", ""), "", "", "", "", ""]
    lines += [f"{name}:{value}" for name, value in sorted(low.items()) if name.startswith("x-ms-")]
    lines.append(f"/{ACCOUNT}{target}")
    lines += [f"{name}:{value}" for name, value in sorted((n.lower(), v) for n, v in parse_qsl(query, keep_blank_values=True))]
    return "\n".join(lines)


def send(endpoint, method, path, body=None, query="", headers=(), key=KEY, sign=True):
    """One request on a connection of its own. `path` and `query` go out as they stand."""
    url = urlsplit(endpoint)
    data = body.encode() if isinstance(body, str) else body
    sent = {"x-ms-version": VERSION, "x-ms-date": email.utils.formatdate(usegmt=True),
            "Content-Length": str(len(data or b"")), **dict(headers)}
    if data is not None and "Content-Type" not in sent:
        sent["Content-Type"] = "application/xml"
    sent = {name: value for name, value in sent.items() if value is not None}
    target = url.path + path
    if sign:
        text = string_to_sign(method, target, query, sent)
        digest = hmac.new(base64.b64decode(key), text.encode(), hashlib.sha256).digest()
        sent["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}"
    connection = http.client.HTTPConnection(url.netloc, timeout=30)
    try:
        connection.request(method, target + (f"?{query}" if query else ""), data, sent)
        answer = connection.getresponse()
        return Answer(answer.status, answer.getheaders(), answer.read().decode("utf-8-sig", "replace"))
    finally:
        connection.close()
