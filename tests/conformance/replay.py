#!/usr/bin/env python3
"""Replays recorded traffic of the Azure Table, Queue or Blob service against an endpoint and compares the answers.

    replay.py --endpoint http://127.0.0.1:10002/devstoreaccount1 recordings
    replay.py --endpoint http://127.0.0.1:10001/devstoreaccount1 recordings-queue

Each recorded session runs on its own tables: a random prefix goes in front of every table name we send
and is taken out of every answer, so ordering and range filters on names keep their meaning. ETags,
timestamps and continuation tokens of earlier live answers replace the recorded ones in later requests.
The recorded answer is the truth; a live one must agree in status, error, headers and body.
See README.md for how to read a failure.
"""
import argparse
import base64
import collections
import email.utils
import fnmatch
import hashlib
import hmac
import http.client
import json
import pathlib
import random
import re
import sys
import time
import uuid
import xml.etree.ElementTree as ET
from xml.sax import saxutils
from urllib.parse import quote, unquote, unquote_plus, urlsplit

EMULATOR_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
SAFE = "%/:=&?~+!$,;'@()*[]-._"     # recorded URLs are partly decoded; encode only what cannot be sent
TABLE = r"[A-Za-z][A-Za-z0-9]{2,55}"
ENTITY = re.compile(rf"/({TABLE})\(PartitionKey='(.*)', ?RowKey='(.*)'\)$", re.S)
TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{0,6}[1-9])?Z")
ETAG = re.compile(r"W/\"datetime'\d{4}-\d\d-\d\dT\d\d%3A\d\d%3A\d\d(\.\d{0,6}[1-9])?Z'\"")
BOUNDARY = re.compile(r"(batch|changeset)response_[0-9a-f-]{36}", re.I)
# Sent back exactly as recorded, or absent exactly where the recording has none.
EXACT = ["Location", "DataServiceId", "Preference-Applied", "Cache-Control", "X-Content-Type-Options",
         "x-ms-version"]
EXACT_IN_PART = EXACT[:-1] + ["DataServiceVersion", "Content-ID"]
PRESENT = ["x-ms-continuation-NextPartitionKey", "x-ms-continuation-NextRowKey", "x-ms-continuation-NextTableName"]


class Number(str):
    """A JSON number as written: 5 is Edm.Int32, 5.0 is Edm.Double."""

    def same(self, other):
        real = [any(c in n for c in ".eE") for n in (self, other)]
        return real[0] == real[1] and float(self) == float(other)


def load(text):
    return json.loads(text, parse_float=Number, parse_int=Number)


class Skip(Exception):
    """The exchange cannot be judged; the message says why."""


class Reply:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, {k.lower(): v for k, v in headers.items()}, body or ""
        self.spelled = sorted(k for k in headers if k.lower().startswith("x-ms-meta-"))

    def header(self, name):
        return self.headers.get(name.lower())


class Endpoint:
    """One account, addressed in path style or host style; signs with SharedKey."""

    def __init__(self, url, account, key, timeout):
        parts = urlsplit(url.rstrip("/"))
        self.scheme, self.host, self.root, self.timeout = parts.scheme, parts.netloc, parts.path, timeout
        self.account = account or (self.root.strip("/") if self.root else self.host.split(".")[0])
        self.key = base64.b64decode(key)
        self.connections = {}

    def base(self, secondary=False):
        host, root = self.host, self.root
        if secondary and root:
            root += "-secondary"
        elif secondary:
            host = host.replace(".", "-secondary.", 1)
        return host, root

    def send(self, method, path, query, headers, body, secondary=False):
        host, root = self.base(secondary)
        path = quote(root + path, safe=SAFE)
        query = quote(query, safe=SAFE)
        headers = dict(headers)
        headers["x-ms-date"] = email.utils.formatdate(usegmt=True)
        comp = re.search(r"(?:^|&)comp=([^&]*)", query)
        resource = "/" + self.account + path + ("?comp=" + comp[1] if comp else "")
        text = "\n".join([method, "", headers.get("Content-Type", ""), headers["x-ms-date"], resource])
        digest = hmac.new(self.key, text.encode(), hashlib.sha256).digest()
        headers["Authorization"] = f"SharedKey {self.account}:{base64.b64encode(digest).decode()}"
        url = path + ("?" + query if query else "")
        data = body.encode() if body is not None else None
        for attempt in (1, 2):
            conn = self.connections.get(host)
            if conn is None:
                kind = http.client.HTTPSConnection if self.scheme == "https" else http.client.HTTPConnection
                conn = self.connections[host] = kind(host, timeout=self.timeout)
            try:
                conn.request(method, url, data, headers)
                answer = conn.getresponse()
                return Reply(answer.status, dict(answer.getheaders()), answer.read().decode("utf-8-sig", "replace"))
            except (OSError, http.client.HTTPException) as fault:
                self.connections.pop(host).close()    # an idle connection may be closed under us, once
                if attempt == 2 or not isinstance(fault, (ConnectionResetError, BrokenPipeError)):
                    raise

    def tables(self):
        answer = self.send("GET", "/Tables", "", {"Accept": "application/json;odata=nometadata",
                                                  "x-ms-version": "2019-02-02", "DataServiceVersion": "3.0",
                                                  "User-Agent": "replay-setup"}, None)
        if answer.status != 200:
            sys.exit(f"cannot list tables: {answer.status} {answer.body[:300]}")
        return [t["TableName"] for t in load(answer.body)["value"]]


class Session:
    """Plays one recorded session and collects the differences."""

    def __init__(self, endpoint, foreign):
        self.endpoint, self.foreign = endpoint, foreign
        self.prefix = "q" + "".join(random.choices("bcdfghjkmnpqrstvwxz", k=6))
        self.tables, self.etags, self.newest = set(), {}, {}
        self.times, self.tokens, self.settings = {}, {}, {}
        self.diffs = []

    # -- requests ------------------------------------------------------------------------------------

    def name(self, table):
        self.tables.add(self.prefix + table)
        return self.prefix + table

    def live_path(self, path):
        path = re.sub(rf"^(/Tables\(')({TABLE})('\))", lambda m: m[1] + self.name(m[2]) + m[3], path)
        return re.sub(rf"^/(?!Tables(?:\W|$))({TABLE})(?![A-Za-z0-9_-])", lambda m: "/" + self.name(m[1]), path)

    def live_query(self, request):
        out = []
        for part in filter(None, request["query"].split("&")):
            name, _, value = part.partition("=")
            plain = unquote(name)
            if plain.startswith("Next"):
                token = self.tokens.get(unquote_plus(value))
                if not token:
                    raise Skip("the endpoint gave no continuation token to go on with")
                value = quote(token, safe="")
            elif plain == "$filter" and request["path"].startswith("/Tables"):
                value = re.sub(r"((?:%27|').*?(?:%27|'))", lambda m: re.sub(r"^(%27|')", r"\1" + self.prefix, m[1]), value)
            elif plain == "$filter":
                for old, new in self.times.items():
                    value = value.replace(old, new).replace(quote(old, safe=""), quote(new, safe=""))
            out.append(name + "=" + value)
        return "&".join(out)

    def live_etag(self, path, etag):
        return self.etags.get((self.entity(path), etag)) or self.etags.get(etag, etag)

    def live_batch(self, text):
        """Points the parts at our tables and repairs If-Match and Content-Length."""
        base = self.endpoint.scheme + "://" + "".join(self.endpoint.base())
        parts = re.split(r"(?m)^(?=--(?:batch|changeset)_)", text)
        for i, part in enumerate(parts):
            line = re.search(r"(?m)^(GET|POST|PUT|PATCH|MERGE|DELETE) \{base\}(/\S.*?) (HTTP/1\.1)", part)
            if not line:
                continue
            part = part.replace("{base}" + line[2], base + quote(self.live_path(line[2]), safe=SAFE), 1)
            part = re.sub(r"(?im)^(If-Match: *)(.*?)(\r?)$",
                          lambda m: m[1] + self.live_etag(line[2], m[2]) + m[3], part)
            head, gap, body = part.partition("{")
            length = len((gap + body).rstrip("\r\n").encode())
            parts[i] = re.sub(r"(?im)^(Content-Length: *)[1-9]\d*", lambda m: m[1] + str(length), head) + gap + body
        return "".join(parts)

    def send(self, request):
        headers = dict(request["headers"])
        if "If-Match" in headers:
            headers["If-Match"] = self.live_etag(request["path"], headers["If-Match"])
        body = request.get("body")
        if request["path"] == "/$batch" and body:
            for boundary in set(re.findall(r"(?m)^--((?:batch|changeset)_[^\r\n]*?)\r?$", body)):
                if not boundary.endswith("--"):
                    body = body.replace(boundary, boundary.split("_")[0] + "_" + str(uuid.uuid4()))
            headers["Content-Type"] = "multipart/mixed; boundary=" + re.match(r"--(batch_\S+)", body)[1]
            body = self.live_batch(body)
        elif request["path"] == "/Tables" and body:
            body = re.sub(rf'("TableName": *")({TABLE})"', lambda m: m[1] + self.name(m[2]) + '"', body)
        answer = self.endpoint.send(request["method"], self.live_path(request["path"]), self.live_query(request),
                                    headers, body, request.get("secondary", False))
        answer.body = self.plain(answer.body)
        answer.headers = {k: v if k.startswith("x-ms-continuation-") else self.plain(v) for k, v in answer.headers.items()}
        return answer

    def plain(self, text):
        """Takes out of a live text what only this run put in: base URL, account, table prefix."""
        for secondary in (True, False):
            text = text.replace(self.endpoint.scheme + "://" + "".join(self.endpoint.base(secondary)), "{base}")
        text = re.sub(r"""("odata\.type": *"|for the resource ')""" + re.escape(self.endpoint.account) + r"\.",
                      r"\1{account}.", text)
        return text.replace(self.prefix, "")

    def prepare(self, before):
        common = {"x-ms-version": "2019-02-02", "DataServiceVersion": "3.0", "Accept": "application/json;odata=nometadata",
                  "Content-Type": "application/json", "Prefer": "return-no-content", "User-Agent": "replay-setup"}
        wanted = [("/Tables", json.dumps({"TableName": self.name(t)})) for t in before["tables"]]
        # An entity of a table that the session makes itself cannot have been there before.
        wanted += [("/" + self.name(e["table"]), e["entity"]) for e in before["entities"] if e["table"] in before["tables"]]
        for path, body in wanted:
            answer = self.endpoint.send("POST", path, "", common, body)
            if answer.status not in (201, 204):
                self.differ("setup", "the state before the session", f"{answer.status} {answer.body[:200]}")

    def clean_up(self):
        for table in sorted(self.tables):
            self.endpoint.send("DELETE", f"/Tables('{table}')", "", {"x-ms-version": "2019-02-02", "Accept": "application/json",
                                                                     "User-Agent": "replay-setup"}, None)

    # -- comparing -----------------------------------------------------------------------------------

    def differ(self, aspect, recorded, live):
        self.diffs.append((aspect, str(recorded), str(live)))

    def play(self, exchange):
        """Sends one recorded request and returns the differences; raises Skip when it cannot be judged."""
        self.diffs = []
        request, response = exchange["request"], exchange["response"]
        recorded = Reply(response["status"], response["headers"], (response.get("body") or "").lstrip("\ufeff"))
        if request.get("redacted"):
            raise Skip("the query was redacted in the recording")
        if recorded.status in (401, 403):
            raise Skip("outcome of an authorization whose credentials are not in the recording")
        if "TableBeingDeleted" in recorded.body:
            raise Skip("deletion still under way when recorded; a matter of timing")
        if request["auth"] == "bearer" and "comp=acl" in request["query"]:
            raise Skip("ACL under a bearer token; replayed with the account key it means something else")
        listing = request["method"] == "GET" and request["path"] == "/Tables" and "filter" not in request["query"]
        try:
            live = self.send(request)
        except (OSError, http.client.HTTPException) as fault:
            self.differ("transport", recorded.status, repr(fault))
            return self.diffs
        for name in PRESENT:
            if recorded.header(name) and live.header(name):
                self.tokens[recorded.header(name)] = live.header(name)
        if "unstable" in exchange:
            raise Skip(exchange["unstable"])
        if listing and self.foreign:
            raise Skip("unfiltered listing of an account that holds other tables")
        if recorded.status != live.status:
            self.differ("status", recorded.status, f"{live.status} {self.code(live)}".strip())
        self.compare_headers("", recorded, live, request, EXACT)
        self.compare_body("", recorded, live, request)
        return self.diffs

    def compare_headers(self, where, recorded, live, request, exact):
        for name in exact:
            if recorded.header(name) != live.header(name):
                self.differ(f"{where}header:{name}", recorded.header(name), live.header(name))
        for name in PRESENT:
            if bool(recorded.header(name)) != bool(live.header(name)):
                self.differ(f"{where}header:{name}", recorded.header(name), live.header(name))
        kinds = [re.sub(r"\s", "", r.header("Content-Type") or "").lower() for r in (recorded, live)]
        kinds = [k.split("=")[0] if k.startswith("multipart") else k for k in kinds]
        if kinds[0] != kinds[1]:
            self.differ(f"{where}header:Content-Type", *kinds)
        code = recorded.header("x-ms-error-code")     # the live service omits it on JSON errors; having it is harmless
        if code and code != live.header("x-ms-error-code"):
            self.differ(f"{where}header:x-ms-error-code", code, live.header("x-ms-error-code"))
        if not where and recorded.header("x-ms-client-request-id") and \
                live.header("x-ms-client-request-id") != request["headers"].get("x-ms-client-request-id"):
            self.differ("header:x-ms-client-request-id", "echoed", live.header("x-ms-client-request-id"))
        etags = recorded.header("ETag"), live.header("ETag")
        if bool(etags[0]) != bool(etags[1]):
            self.differ(f"{where}header:ETag", *etags)
        elif etags[0]:
            self.check_etag(f"{where}header:ETag", self.entity(live.header("Location") or request["path"]), *etags)

    @staticmethod
    def entity(url):
        match = ENTITY.search(unquote(url))
        return match and (match[1].lower(), match[2].replace("''", "'"), match[3].replace("''", "'"))

    def check_etag(self, aspect, entity, recorded, live):
        """An ETag has a form, stays while the recorded one stays, and changes when that changes."""
        known, newest = self.etags.get((entity, recorded)), self.newest.get(entity)
        if not ETAG.fullmatch(live):
            self.differ(aspect, recorded, live)
        elif entity and known and known != live:
            self.differ(aspect, "unchanged " + known, live)
        elif entity and newest and newest[0] != recorded and newest[1] == live:
            self.differ(aspect, "a new value", "unchanged " + live)
        self.etags[entity, recorded] = self.etags[recorded] = live
        self.newest[entity] = recorded, live

    @staticmethod
    def code(reply):
        match = re.search(r'"code":\s*"(\w*)"|<(?:m:)?[cC]ode>(\w*)', reply.body)
        return (match[1] or match[2] or "") if match else ""

    def compare_body(self, where, recorded, live, request):
        kind = recorded.header("Content-Type") or ""
        if not recorded.body:
            if live.body:
                self.differ(where + "body", "empty", live.body[:120])
        elif recorded.status >= 400:
            self.compare_error(where, recorded, live)
        elif live.status >= 400:
            pass                                       # the status says it; the bodies have nothing in common
        elif "multipart" in kind:
            self.compare_batch(recorded, live, request)
        elif "xml" in kind:
            self.compare_xml(recorded, live, request)
        else:
            try:
                self.compare_json(where + "body", load(recorded.body), load(live.body), request)
            except ValueError:
                self.differ(where + "body", recorded.body[:120], live.body[:120])

    def compare_error(self, where, recorded, live):
        if self.code(recorded) != self.code(live):
            self.differ(where + "code", self.code(recorded), self.code(live) or live.body[:120])
        texts = []
        for reply in (recorded, live):
            match = re.search(r'"value":\s*("(?:[^"\\]|\\.)*")', reply.body)
            if match:
                texts.append(json.loads(match[1]))
            else:
                match = re.search(r"<(?:m:)?[mM]essage[^>]*>([^<]*)", reply.body)
                texts.append(match[1] if match else "")
        texts = [re.split(r"\r?\nRequestId:", t)[0] for t in texts]
        if texts[0] != texts[1]:
            self.differ(where + "message", *texts)
        forms = [self.error_form(r.body) for r in (recorded, live)]
        if forms[0] != forms[1] and live.status >= 400:
            self.differ(where + "body:error", recorded.body[:100], live.body[:100])

    @staticmethod
    def error_form(body):
        if '"odata.error"' in body:
            return "json"
        root = re.search(r"<([\w:]+)[ >]", body.split("?>")[-1])
        return root[1] if root else "none"

    def compare_json(self, where, recorded, live, request):
        if isinstance(recorded, dict) and isinstance(live, dict):
            if list(recorded) != ["odata.metadata", "value"] and not {"PartitionKey", "RowKey"} - set(recorded):
                table = re.match(rf"/({TABLE})", request["path"])
                entity = table and (table[1].lower(), recorded["PartitionKey"], recorded["RowKey"])
            else:
                entity = self.entity(request["path"])
            for name in [n for n in recorded if n not in live]:
                self.differ(f"{where}.{name}", json.dumps(recorded[name]), "absent")
            for name in [n for n in live if n not in recorded]:
                self.differ(f"{where}.{name}", "absent", json.dumps(live[name]))
            for name in [n for n in recorded if n in live]:
                if name == "odata.etag":
                    self.check_etag(f"{where}.{name}", entity, recorded[name], str(live[name]))
                elif name == "Timestamp" and isinstance(live[name], str):
                    self.times[recorded[name]] = live[name]
                    if not TIMESTAMP.fullmatch(live[name]):
                        self.differ(f"{where}.{name}", recorded[name], live[name])
                    etag = live.get("odata.etag")
                    if etag and etag != "W/\"datetime'" + live[name].replace(":", "%3A") + "'\"":
                        self.differ(f"{where}.odata.etag", "agrees with Timestamp", etag)
                else:
                    self.compare_json(f"{where}.{name}", recorded[name], live[name], request)
        elif isinstance(recorded, list) and isinstance(live, list):
            if len(recorded) != len(live):
                self.differ(f"{where}.length", len(recorded), len(live))
            for i, (a, b) in enumerate(zip(recorded, live)):
                self.compare_json(f"{where}[{i}]", a, b, request)
        elif isinstance(recorded, Number) and isinstance(live, Number):
            if not recorded.same(live):
                self.differ(where, recorded, live)
        elif type(recorded) is not type(live) or recorded != live:
            self.differ(where, json.dumps(recorded), json.dumps(live))

    # -- batches -------------------------------------------------------------------------------------

    @staticmethod
    def parts(reply):
        """[(nested?, Reply)] of a multipart body; raises ValueError when it is not well formed."""
        def split(body, content_type):
            boundary = re.search(r'boundary="?([^";]+)', content_type)[1]
            pieces = re.split(r"(?:^|\r\n)--" + re.escape(boundary) + r"(?:\r\n|--)", body)
            if len(pieces) < 3 or pieces[0] or pieces[-1].strip():
                raise ValueError("boundaries")
            return pieces[1:-1], boundary

        def fields(text):
            lines = [line.partition(":") for line in text.split("\r\n") if line]
            if any(not colon or " " in name for name, colon, _ in lines):
                raise ValueError("header line in " + repr(text[:80]))
            return {name: value.strip() for name, _, value in lines}

        out, names = [], []
        pieces, boundary = split(reply.body, reply.header("Content-Type") or "")
        names.append(boundary)
        for piece in pieces:
            head, gap, body = piece.partition("\r\n\r\n")
            kind = {k.lower(): v for k, v in fields(head).items()}.get("content-type", "")
            inner = [piece]
            if kind.startswith("multipart"):
                inner, boundary = split(body, kind)
                names.append(boundary)
            for text in inner:
                head, gap, message = text.partition("\r\n\r\n")
                outer = fields(head)
                line, gap, rest = message.partition("\r\n")
                status = re.fullmatch(r"HTTP/1\.1 (\d{3}) .+", line)
                if not status:
                    raise ValueError("status line " + repr(line[:80]))
                head, gap, content = rest.partition("\r\n\r\n")
                out.append((kind.startswith("multipart"),
                            Reply(int(status[1]), {**outer, **fields(head)}, content.strip("\r\n"))))
        return out, names

    def compare_batch(self, recorded, live, request):
        truth, _ = self.parts(recorded)
        try:
            found, names = self.parts(live)
        except (ValueError, TypeError) as fault:
            return self.differ("batch:malformed", "well-formed multipart", f"{fault}: {live.body[:160]!r}")
        for name in names:
            if not BOUNDARY.fullmatch(name):
                self.differ("batch:boundary", "batchresponse_/changesetresponse_ and a GUID", name)
        if len(truth) != len(found):
            self.differ("batch:parts", len(truth), len(found))
        urls = re.findall(r"(?m)^[A-Z]+ \{base\}(/\S.*?) HTTP/1\.1", request["body"])
        for i, ((nested, a), (nested_live, b)) in enumerate(zip(truth, found)):
            where = f"part[{i}]."
            if nested != nested_live:
                self.differ(where + "nesting", nested, nested_live)
            if a.status != b.status:
                self.differ(where + "status", a.status, f"{b.status} {self.code(b)}".strip())
            inner = {"path": urls[i] if len(truth) == len(urls) else "", "headers": {}, "body": ""}
            self.compare_headers(where, a, b, inner, EXACT_IN_PART)
            self.compare_body(where, a, b, inner)

    # -- XML -----------------------------------------------------------------------------------------

    def compare_xml(self, recorded, live, request):
        try:
            a, b = ET.fromstring(recorded.body), ET.fromstring(live.body)
        except ET.ParseError:
            return self.differ("body:xml", recorded.body[:120], live.body[:120])
        sections = None
        if a.tag == "StorageServiceProperties":
            # Settings the session did not make, or that had not taken effect yet (the service needs up to
            # 30 s), only have to be there.
            sections = [tag for tag, put in self.settings.items() if put <= self.leaves(a.find(tag))]
        self.compare_element("body:" + a.tag, a, b, sections)

    @staticmethod
    def leaves(element):
        return {(e.tag, (e.text or "").strip()) for e in element.iter() if not len(e)} if element is not None else set()

    def compare_element(self, where, a, b, sections=None):
        order = [[e.tag for e in x] for x in (a, b)]
        if a.tag != b.tag or sorted(order[0]) != sorted(order[1]):
            return self.differ(where, f"<{a.tag}>: {' '.join(order[0])}", f"<{b.tag}>: {' '.join(order[1])}")
        texts = [(x.text or "").strip() for x in (a, b)]
        if a.tag == "LastSyncTime":
            texts = [re.sub(r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT", "a time", t) for t in texts]
        if texts[0] != texts[1]:
            self.differ(where, *texts)
        for tag in dict.fromkeys(order[0]):
            if sections is not None and tag not in sections:
                continue
            for x, y in zip(a.findall(tag), b.findall(tag)):
                self.compare_element(f"{where}.{tag}", x, y)

    def remember(self, exchange):
        request = exchange["request"]
        if request["method"] == "PUT" and "comp=properties" in request["query"] and exchange["response"]["status"] < 300:
            self.settings.update((e.tag, self.leaves(e)) for e in ET.fromstring(request["body"].encode()))


# --- Queue and Blob ---------------------------------------------------------------------------------

ETAG_FORM = re.compile(r'"?0x[0-9A-F]{15,16}"?')
GUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{7}Z")
HTTP_TIME = re.compile(r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT")
NEVER = "Fri, 31 Dec 9999 23:59:59 GMT"
RESOURCE = re.compile(r"[a-z0-9](-?[a-z0-9])*")
# Judged in both directions: sent back exactly as recorded, absent exactly where the recording has none.
PLAIN_HEADERS = """Content-Type Cache-Control Content-Encoding Content-Language Content-Disposition Content-MD5 Content-Range
    Accept-Ranges Location X-Content-Type-Options x-ms-version x-ms-blob-content-md5 x-ms-content-crc64 x-ms-blob-type
    x-ms-lease-state x-ms-lease-status x-ms-lease-duration x-ms-server-encrypted x-ms-request-server-encrypted
    x-ms-access-tier x-ms-access-tier-inferred x-ms-archive-status x-ms-rehydrate-priority x-ms-blob-sequence-number
    x-ms-blob-committed-block-count x-ms-blob-append-offset x-ms-blob-content-length x-ms-blob-public-access
    x-ms-has-immutability-policy x-ms-has-legal-hold x-ms-default-encryption-scope x-ms-deny-encryption-scope-override
    x-ms-immutable-storage-with-versioning-enabled x-ms-copy-status x-ms-copy-progress x-ms-copy-source x-ms-incremental-copy
    x-ms-delete-type-permanent x-ms-tag-count x-ms-blob-sealed x-ms-approximate-messages-count x-ms-is-current-version
    x-ms-existing-source x-ms-sequence-number-action""".split()
# The service makes these up: they must have the form, and what a session sends back later is the live value.
MADE_HEADERS = {"ETag": ETAG_FORM, "Last-Modified": HTTP_TIME, "x-ms-creation-time": HTTP_TIME, "x-ms-lease-id": GUID,
                "x-ms-snapshot": INSTANT, "x-ms-version-id": INSTANT, "x-ms-copy-id": GUID,
                "x-ms-copy-completion-time": HTTP_TIME, "x-ms-access-tier-change-time": HTTP_TIME,
                "x-ms-copy-destination-snapshot": INSTANT, "x-ms-popreceipt": re.compile(r"\S+"),
                "x-ms-time-next-visible": HTTP_TIME, "x-ms-lease-time": re.compile(r"\d+"),
                "x-ms-sku-name": re.compile(r"\w+"), "x-ms-account-kind": re.compile(r"\w+"), "x-ms-is-hns-enabled": re.compile(r"\w+")}
MADE_ELEMENTS = {"MessageId": GUID, "PopReceipt": re.compile(r"\S+"), "InsertionTime": HTTP_TIME, "ExpirationTime": HTTP_TIME,
                 "TimeNextVisible": HTTP_TIME, "Etag": ETAG_FORM, "Last-Modified": HTTP_TIME, "Creation-Time": HTTP_TIME,
                 "Snapshot": INSTANT, "VersionId": INSTANT, "CopyId": GUID, "CopyCompletionTime": HTTP_TIME,
                 "AccessTierChangeTime": HTTP_TIME, "CopySource": re.compile(r"\S+"),
                 "DeletedTime": HTTP_TIME, "RemainingRetentionDays": re.compile(r"\d+"), "LastSyncTime": HTTP_TIME,
                 "QueryParameterValue": re.compile(".*", re.S), "HeaderValue": re.compile(".*", re.S)}
VERSIONING = {"x-ms-version-id", "x-ms-is-current-version", "VersionId", "IsCurrentVersion", "HasVersionsOnly"}
TRACKING = {"LastAccessTime", "OrMetadata"}       # settings of the recorded account
BACK = {"snapshot", "versionid", "prevsnapshot", "copyid", "popreceipt", "marker"}     # query parameters we got from the service
ETAG_CONDITIONS = {"if-match", "if-none-match", "x-ms-source-if-match", "x-ms-source-if-none-match"}
TIME_CONDITIONS = {"if-modified-since", "if-unmodified-since", "x-ms-source-if-modified-since", "x-ms-source-if-unmodified-since"}


def seconds(text):
    return email.utils.parsedate_to_datetime(text).timestamp()


class StorageReply(Reply):
    """An answer whose body is bytes; .body is its text when it is XML or JSON."""

    def __init__(self, status, headers, data):
        super().__init__(status, headers, "")
        self.data = data
        if re.search("xml|json", self.header("Content-Type") or "") or status >= 400:
            self.body = data.decode("utf-8-sig", "replace")

    @classmethod
    def recorded(cls, response):
        data = base64.b64decode(response["base64"]) if "base64" in response else (response.get("body") or "").encode()
        return cls(response["status"], response["headers"], data)


class StorageEndpoint(Endpoint):
    """Signs as Queue and Blob want it: SharedKey over all headers, or a SAS made anew from the recorded one."""

    def __init__(self, url, account, key, timeout, service):
        super().__init__(url, account, key, timeout)
        self.service = service

    def hmac(self, text):
        return base64.b64encode(hmac.new(self.key, text.encode(), hashlib.sha256).digest()).decode()

    def sas(self, wanted, path, query=""):
        """The recorded SAS again, valid now and signed with our key."""
        now = time.time()
        p = {k: v for k, v in wanted.items() if k not in ("sip", "spr")}
        p["se"] = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now + 3600))
        get = lambda n: p.get(n, "")     # noqa: E731
        if "ss" in p:
            lines = [self.account, get("sp"), get("ss"), get("srt"), "", p["se"], "", "", get("sv")]
            lines += [get("ses")] if get("sv") >= "2020-12-06" else []
            p["sig"] = self.hmac("\n".join(lines) + "\n")
        else:
            parts = unquote(path).lstrip("/").split("/", 1)
            whole = self.service == "queue" or get("sr") == "c"
            resource = f"/{self.service}/{self.account}/" + (parts[0] if whole else "/".join(parts))
            lines = [get("sp"), "", p["se"], resource, get("si"), "", "", get("sv")]
            if self.service == "blob":
                moment = re.search(r"(?:^|&)(?:snapshot|versionid)=([^&]*)", query)
                lines += [get("sr"), unquote(moment[1]) if moment and get("sr") in ("bs", "bv") else ""] + ([get("ses")] if get("sv") >= "2020-12-06" else [])
                lines += [get(n) for n in ("rscc", "rscd", "rsce", "rscl", "rsct")]
            p["sig"] = self.hmac("\n".join(lines))
        return "&".join(f"{k}={quote(v, safe='')}" for k, v in p.items())

    def source(self, url):
        """A URL of ours that may be read without credentials, for copies."""
        token = self.sas({"sv": "2020-10-02", "ss": "b", "srt": "sco", "sp": "rwdlac"}, "")
        return url + ("&" if "?" in url else "?") + token

    def send(self, method, path, query, headers, body, secondary=False, sas=None, anonymous=False):
        host, root = self.base(secondary)
        plain = path
        path, query = quote(root + path, safe=SAFE), quote(query, safe=SAFE).replace("+", "%20")
        headers = {k: v.strip() for k, v in headers.items()}
        lower = {k.lower(): v for k, v in headers.items()}
        headers["x-ms-date"] = lower["x-ms-date"] = email.utils.formatdate(usegmt=True)
        if sas:
            query += ("&" if query else "") + self.sas(sas, plain, query)
        elif not anonymous:
            own = sorted((k, re.sub(r"\s+", " ", v)) for k, v in lower.items() if k.startswith("x-ms-"))
            args = collections.defaultdict(list)
            for part in filter(None, query.split("&")):
                name, _, value = part.partition("=")
                args[unquote(name).lower()].append(unquote(value))
            text = [method] + [lower.get(n, "") for n in ("content-encoding", "content-language")]
            text += [str(len(body)) if body else "", lower.get("content-md5", ""), lower.get("content-type", ""), ""]
            text += [lower.get(n, "") for n in ("if-modified-since", "if-match", "if-none-match", "if-unmodified-since", "range")]
            text += [f"{k}:{v}" for k, v in own] + ["/" + self.account + path]
            text = "\n".join(text) + "".join(f"\n{k}:{','.join(sorted(v))}" for k, v in sorted(args.items()))
            headers["Authorization"] = f"SharedKey {self.account}:{self.hmac(text)}"
        url = path + ("?" + query if query else "")
        headers = {k: v.encode("utf-8") for k, v in headers.items()}
        for attempt in (1, 2):
            conn = self.connections.get(host)
            if conn is None:
                kind = http.client.HTTPSConnection if self.scheme == "https" else http.client.HTTPConnection
                conn = self.connections[host] = kind(host, timeout=self.timeout)
            try:
                conn.request(method, url, body or None, headers)
                answer = conn.getresponse()
                return StorageReply(answer.status, dict(answer.getheaders()), answer.read())
            except (OSError, http.client.HTTPException) as fault:
                self.connections.pop(host).close()
                if attempt == 2 or not isinstance(fault, (ConnectionResetError, BrokenPipeError)):
                    raise

    def names(self):
        answer = self.send("GET", "/", "comp=list", {"x-ms-version": "2020-10-02", "User-Agent": "replay-setup"}, None)
        if answer.status != 200:
            sys.exit(f"cannot list: {answer.status} {answer.body[:300]}")
        return re.findall(r"<Name>([^<]*)</Name>", answer.body)


class StorageSession(Session):
    """Plays one recorded session of the Queue or Blob service."""

    def __init__(self, endpoint, foreign, head, options):
        super().__init__(endpoint, foreign)
        self.service, self.account, self.options = head["service"], head.get("account", {}), options
        self.ignored = set(TRACKING)
        if self.account.get("versioning") and not options.versioning:
            self.ignored |= VERSIONING
        if self.account.get("soft_delete") and not options.soft_delete:
            self.ignored |= {"x-ms-delete-type-permanent"}
        self.known, self.gone, self.learned, self.modified, self.clock, self.ends = set(), set(), {}, {}, None, 0

    # -- requests ------------------------------------------------------------------------------------

    def name(self, name):
        if not RESOURCE.fullmatch(name) or not 3 <= len(name) <= 63:
            if name.startswith("$"):
                self.tables.add(name)
            return name
        live = self.prefix[:max(0, 63 - len(name))] + name
        self.tables.add(live)
        return live

    def live_path(self, path):
        first, slash, rest = path[1:].partition("/")
        if self.service == "queue" and rest.startswith("messages/"):
            rest = "messages/" + self.learned.get(unquote(rest[9:]), rest[9:])
        return "/" + self.name(first) + slash + rest

    def live_query(self, request):
        out = []
        for part in filter(None, request["query"].split("&")):
            name, equals, value = part.partition("=")
            if name in BACK and unquote(value) in self.learned:
                value = quote(self.learned[unquote(value)], safe="")
            elif name == "marker" and value and "!" in unquote(value):
                raise Skip("the endpoint gave no marker to go on with")
            elif name == "prefix" and request["path"] == "/" and value:
                value = self.prefix + value
            out.append(name + equals + value)
        return "&".join(out)

    def live_headers(self, exchange):
        headers, date = {}, {k.lower(): v for k, v in exchange["response"]["headers"].items()}.get("date")
        for name, value in exchange["request"]["headers"].items():
            low = name.lower()
            if low in ETAG_CONDITIONS and value != "*":
                live = self.learned.get(value.strip('"'))
                value = value.replace(value.strip('"'), live) if live else value
            elif low in ("x-ms-lease-id", "x-ms-source-lease-id"):
                value = self.learned.get(value, value)
            elif low in TIME_CONDITIONS and HTTP_TIME.fullmatch(value):
                if value in self.modified:
                    value = self.modified[value]
                elif date:
                    value = email.utils.formatdate(time.time() + seconds(value) - seconds(date), usegmt=True)
            elif low in ("x-ms-copy-source", "x-ms-previous-snapshot-url"):
                url, _, rest = value.replace("{base}", "", 1).partition("?")
                rest = self.live_query({"query": rest, "path": url})
                host, root = self.endpoint.base()
                value = self.endpoint.scheme + "://" + host + root + quote(self.live_path(url), safe=SAFE) + ("?" + rest if rest else "")
                if exchange["request"].get("source_sas"):
                    value = self.endpoint.source(value)
            headers[name] = value
        return headers

    def send(self, exchange):
        request = exchange["request"]
        body = base64.b64decode(request["base64"]) if "base64" in request else (request.get("body") or "").encode()
        body = body.replace(b"{base}", (self.endpoint.scheme + "://" + "".join(self.endpoint.base())).encode()) if b"{base}" in body else body
        sas = request.get("sas")
        if sas and (self.options.no_sas or "si" in sas or "sp" not in sas or not sas.get("sv")):
            sas = None                    # a stored policy has the recorded, long past dates
        answer = self.endpoint.send(request["method"], self.live_path(request["path"]), self.live_query(request),
                                    self.live_headers(exchange), body, request.get("secondary", False), sas, request["auth"] == "none")
        answer.markers = re.search(r"<NextMarker>([^<]+)", answer.body)
        answer.body = self.plain(answer.body)
        answer.headers = {k: self.plain(v) for k, v in answer.headers.items()}
        return answer

    def prepare(self, before):
        for name in before.get("queues", []) + before.get("containers", []):
            query = "restype=container" if self.service == "blob" else ""
            answer = self.endpoint.send("PUT", "/" + self.name(name), query, {"x-ms-version": "2020-10-02", "User-Agent": "replay-setup"}, None)
            self.known.add(name)
            if answer.status != 201:
                self.differ("setup", "the state before the session", f"{answer.status} {answer.body[:200]}")

    def clean_up(self):
        common = {"x-ms-version": "2020-10-02", "User-Agent": "replay-setup"}
        query = "restype=container" if self.service == "blob" else ""
        for name in sorted(self.tables):
            answer = self.endpoint.send("DELETE", "/" + name, query, common, None)
            if answer.status == 412:      # leased
                self.endpoint.send("PUT", "/" + name, query + "&comp=lease",
                                   {**common, "x-ms-lease-action": "break", "x-ms-lease-break-period": "0"}, None)
                self.endpoint.send("DELETE", "/" + name, query, common, None)

    def wait(self, exchange):
        """Leases, visibility timeouts and times to live run out: wait as the recording did, as long as one is running."""
        request, date = exchange["request"], {k.lower(): v for k, v in exchange["response"]["headers"].items()}.get("date")
        now = seconds(date) if date else None
        if now and self.clock and now - self.clock >= 2:
            time.sleep(max(0, min(now - self.clock + 0.5, self.ends - time.time() + 1, self.options.patience)))
        self.clock = now or self.clock
        spans = re.findall(r"(?:^|&)(?:visibilitytimeout|messagettl)=(\d+)", request["query"])
        spans += [v for k, v in request["headers"].items() if k.lower() in ("x-ms-lease-duration", "x-ms-lease-break-period")]
        if self.service == "queue" and request["method"] == "GET" and "/messages" in request["path"] and "peekonly" not in request["query"] \
                and not spans:
            spans = ["30"]
        self.ends = max([self.ends] + [time.time() + int(s) for s in spans if s.isdigit() and int(s) < 3600])

    # -- comparing -----------------------------------------------------------------------------------

    def play(self, exchange):
        self.diffs = []
        request = exchange["request"]
        recorded = StorageReply.recorded(exchange["response"])
        if recorded.status in (401, 403) and request["auth"] != "none":
            raise Skip("outcome of an authorization whose credentials are not in the recording")
        if re.search("BeingDeleted|OperationTimedOut|ServerBusy|InternalError", recorded.header("x-ms-error-code") or ""):
            raise Skip("a matter of timing")
        if request.get("secondary") and recorded.status == 404:
            raise Skip("not yet replicated when recorded; a matter of timing")
        if "VersionId" in self.ignored and re.search(r"versionid=|include=[^&]*versions", request["query"]):
            raise Skip("the recorded account kept versions")
        if self.account.get("soft_delete") and not self.options.soft_delete and re.search(r"include=[^&]*deleted", request["query"]):
            raise Skip("the recorded account kept deleted blobs")
        listing = request["method"] == "GET" and request["path"] == "/" and "comp=list" in request["query"]
        if listing and recorded.status == 200:
            shown = set(re.findall(r"<(?:Container|Queue)><Name>([^<]*)", recorded.body))
            if shown - self.known:
                raise Skip("the recorded account held other queues or containers")
            if "prefix=" not in request["query"] and self.foreign:
                raise Skip("unfiltered listing of an account that holds others")
        first, _, rest = request["path"][1:].partition("/")
        if not rest and request["method"] == "PUT" and recorded.status < 300:
            self.known.add(first)
            self.gone.discard(first)
        if not rest and request["method"] == "DELETE" and recorded.status < 300:
            if first in self.gone:
                raise Skip("deletion still under way when recorded; a matter of timing")
            self.gone.add(first)
        self.wait(exchange)
        try:
            live = self.send(exchange)
        except (OSError, http.client.HTTPException) as fault:
            self.differ("transport", recorded.status, repr(fault))
            return self.diffs
        if recorded.status != live.status:
            self.differ("status", recorded.status, f"{live.status} {self.code(live) or live.header('x-ms-error-code') or ''}".strip())
        self.compare_made(recorded, live, request)
        self.compare_plain(recorded, live, request)
        self.compare_content(recorded, live, request)
        return self.diffs

    def learn(self, aspect, recorded, live, form):
        """A value the service makes up: right in form, and the same value where the recording has the same."""
        bare, bare_live = recorded.strip('"'), live.strip('"')
        if not form.fullmatch(live) and form.fullmatch(recorded):
            self.differ(aspect, recorded, live)
        elif form is HTTP_TIME:
            self.modified[recorded] = live
            return
        elif form in (GUID, ETAG_FORM, INSTANT) and self.learned.get(bare, bare_live) != bare_live:
            self.differ(aspect, "unchanged " + self.learned[bare], live)
        self.learned[bare] = bare_live

    def compare_made(self, recorded, live, request):
        for name, form in MADE_HEADERS.items():
            a, b = recorded.header(name), live.header(name)
            if name in self.ignored or (a is None and b is None):
                continue
            if bool(a) != bool(b):
                if live.status < 400 or not a:
                    self.differ(f"header:{name}", a, b)
            elif name == "ETag":
                self.check_version(request, recorded, live)
            elif name == "x-ms-time-next-visible":
                self.check_span(f"header:{name}", recorded, live, a, b)
            elif name == "x-ms-lease-time":
                if not b.isdigit() or not int(a) - 1 <= int(b) <= int(a) + 15:
                    self.differ(f"header:{name}", a, b)
            else:
                self.learn(f"header:{name}", a, b, form)

    def check_version(self, request, recorded, live):
        """ETag and Last-Modified: of one resource the ETag stays and changes as the recorded one does, and as long
        as it stays the time stays."""
        a, b = recorded.header("ETag"), live.header("ETag")
        resource = request["path"], re.search(r"(?:snapshot|versionid)=[^&]*", request["query"] or "x")
        resource = resource[0] + (resource[1][0] if resource[1] else "")
        known, newest = self.etags.get((resource, a)), self.newest.get(resource)
        if not ETAG_FORM.fullmatch(b) or (b.startswith('"') != a.startswith('"')):
            self.differ("header:ETag", a, b)
        elif known and known[0] != b:
            self.differ("header:ETag", "unchanged " + known[0], b)
        elif newest and newest[0] != a and newest[1] == b:
            self.differ("header:ETag", "a new value", "unchanged " + b)
        elif known and known[1] and live.header("Last-Modified") and known[1] != live.header("Last-Modified") \
                and recorded.header("Last-Modified") == known[2]:
            self.differ("header:Last-Modified", "unchanged, as the ETag", f"{known[1]} became {live.header('Last-Modified')}")
        self.etags[resource, a] = b, live.header("Last-Modified"), recorded.header("Last-Modified")
        self.newest[resource] = a, b
        self.learned[a.strip('"')] = b.strip('"')

    def check_span(self, aspect, recorded, live, a, b, base=None, slack=3):
        """A time is as far from now (or from base) as the recorded one was."""
        if not HTTP_TIME.fullmatch(b) or (a == NEVER) != (b == NEVER):
            return self.differ(aspect, a, b)
        if a == NEVER:
            return None
        origin = base or (recorded.header("Date"), live.header("Date"))
        if not all(origin):
            return None
        spans = seconds(a) - seconds(origin[0]), seconds(b) - seconds(origin[1])
        if abs(spans[0] - spans[1]) > slack:
            self.differ(aspect, f"{spans[0]:.0f} s on", f"{spans[1]:.0f} s on")

    def compare_plain(self, recorded, live, request):
        names = PLAIN_HEADERS + sorted({h for r in (recorded, live) for h in r.headers if h.startswith("x-ms-meta-")})
        for name in names:
            a, b = recorded.header(name), live.header(name)
            if name == "Content-Type":
                a, b = (re.sub(r"\s", "", x).lower() if x and "xml" in x else x for x in (a, b))
            if name in self.ignored or a == b or (name.startswith("x-ms-copy-") and recorded.header("x-ms-copy-status") == "pending"):
                continue                  # how far a copy has come is a matter of timing
            if live.status >= 400 > recorded.status and name not in ("x-ms-version", "Content-Type"):
                continue                  # the status says it
            self.differ(f"header:{'x-ms-meta-*' if name.startswith('x-ms-meta-') else name}", a, b)
        if recorded.spelled != live.spelled and [n.lower() for n in recorded.spelled] == [n.lower() for n in live.spelled]:
            self.differ("header:x-ms-meta-*", f"names {recorded.spelled}", f"names {live.spelled}")
        if request["method"] in ("GET", "HEAD") and recorded.header("Accept-Ranges") and live.status == recorded.status < 400 \
                and recorded.header("Content-Length") != live.header("Content-Length"):
            self.differ("header:Content-Length", recorded.header("Content-Length"), live.header("Content-Length"))
        code = recorded.header("x-ms-error-code")
        if code and code != live.header("x-ms-error-code"):
            self.differ("code" if request["method"] == "HEAD" else "header:x-ms-error-code", code, live.header("x-ms-error-code"))
        sent = {k.lower(): v for k, v in request["headers"].items()}.get("x-ms-client-request-id")
        if recorded.header("x-ms-client-request-id") and live.header("x-ms-client-request-id") != sent:
            self.differ("header:x-ms-client-request-id", "echoed", live.header("x-ms-client-request-id"))

    def compare_content(self, recorded, live, request):
        kind = recorded.header("Content-Type") or ""
        if request["method"] == "HEAD":
            return
        if recorded.status >= 400:
            if recorded.body or live.body:
                self.compare_fault(recorded, live)
        elif live.status >= 400:
            return
        elif "xml" in kind and recorded.body.lstrip("\ufeff").startswith("<") and not (request["path"].count("/") > 1 and "comp=" not in request["query"]
                                                            and self.service == "blob"):
            try:
                a, b = ET.fromstring(recorded.body.lstrip("\ufeff").encode()), ET.fromstring(live.body.encode())
            except ET.ParseError:
                return self.differ("body:xml", recorded.body[:120], live.body[:120])
            if a.tag == "StorageServiceProperties":
                return self.compare_xml(Reply(200, {}, recorded.body.lstrip("\ufeff")), Reply(200, {}, live.body), request)
            self.compare_tree(a.tag, a, b, recorded, live)
        elif recorded.data != live.data:
            self.differ("body", f"{len(recorded.data)} bytes {recorded.data[:60]!r}", f"{len(live.data)} bytes {live.data[:60]!r}")

    def compare_fault(self, recorded, live):
        if not recorded.body.lstrip("\ufeff").startswith("<"):
            if recorded.body.strip() != live.body.strip():
                self.differ("body:error", recorded.body[:100] or "empty", live.body[:100] or "empty")
            return
        self.compare_error("", recorded, live)
        if live.status < 400 or not live.body.startswith("<"):
            return
        try:
            a, b = ET.fromstring(recorded.body.lstrip("\ufeff").encode()), ET.fromstring(live.body.encode())
        except ET.ParseError:
            return self.differ("body:error", recorded.body[:100], live.body[:100])
        details = [{e.tag: (e.text or "") for e in x if e.tag not in ("Code", "Message")} for x in (a, b)]
        for tag in dict.fromkeys([*details[0], *details[1]]):
            x, y = details[0].get(tag), details[1].get(tag)
            if (x is None) != (y is None) or (tag not in MADE_ELEMENTS and x != y):
                self.differ(f"body:Error.{tag}", x, y)

    def compare_tree(self, where, a, b, recorded, live):
        if a.tag != b.tag:
            return self.differ(f"body:{where}", f"<{a.tag}>", f"<{b.tag}>")
        for name in dict.fromkeys([*a.attrib, *b.attrib]):
            if a.get(name) != b.get(name):
                self.differ(f"body:{where}@{name}", a.get(name), b.get(name))
        texts = [(x.text or "") if not len(x) else "" for x in (a, b)]
        if a.tag in MADE_ELEMENTS and not len(a):
            if bool(texts[0]) != bool(texts[1]):
                self.differ(f"body:{where}", texts[0], texts[1])
            elif texts[0] and a.tag not in ("ExpirationTime", "TimeNextVisible"):
                self.learn(f"body:{where}", texts[0], texts[1], MADE_ELEMENTS[a.tag])
            return
        if a.tag in ("Marker", "NextMarker"):
            if bool(texts[0]) != bool(texts[1]):
                self.differ(f"body:{where}", texts[0], texts[1])
            elif a.tag == "NextMarker" and live.markers:
                self.learned[texts[0]] = saxutils.unescape(live.markers[1])
            return
        if texts[0] != texts[1]:
            self.differ(f"body:{where}", texts[0], texts[1])
        if a.tag == "QueueMessage":
            x, y = ({e.tag: e.text or "" for e in m} for m in (a, b))
            if "TimeNextVisible" in x and "TimeNextVisible" in y:
                self.check_span(f"body:{where}.TimeNextVisible", recorded, live, x["TimeNextVisible"], y["TimeNextVisible"])
            if "ExpirationTime" in x and "ExpirationTime" in y:
                self.check_span(f"body:{where}.ExpirationTime", recorded, live, x["ExpirationTime"], y["ExpirationTime"],
                                (x.get("InsertionTime"), y.get("InsertionTime")), 1)
        tags = [collections.Counter(e.tag for e in x if e.tag not in self.ignored) for x in (a, b)]
        for tag in dict.fromkeys([*tags[0], *tags[1]]):
            if tags[0][tag] != tags[1][tag]:
                one = max(tags[0][tag], tags[1][tag]) == 1
                self.differ(f"body:{where}.{tag}" + ("" if one else ".number"),
                            tags[0][tag] if not one else "present" if tags[0][tag] else "absent",
                            tags[1][tag] if not one else "present" if tags[1][tag] else "absent")
        for tag in tags[0]:
            for x, y in zip(a.findall(tag), b.findall(tag)):
                self.compare_tree(f"{where}.{tag}", x, y, recorded, live)

    def remember(self, exchange):
        request = exchange["request"]
        if request["method"] == "PUT" and request["path"] == "/" and "comp=properties" in request["query"] \
                and exchange["response"]["status"] < 300 and request.get("body"):
            self.settings.update((e.tag, self.leaves(e)) for e in ET.fromstring(request["body"].encode()))


# --- Running and reporting --------------------------------------------------------------------------

def category(aspect):
    last = re.sub(r"^part\[\d+\]\.", "", aspect)
    if last == "status" or last in ("transport", "setup", "batch:parts"):
        return "status"
    if last in ("code", "message"):
        return "error"
    return "headers" if last.startswith("header:") else "body"


def read_expectations(paths):
    """Lines of `session-glob step aspect-glob reason`; step is a number or *."""
    out = []
    for path in paths:
        for number, line in enumerate(pathlib.Path(path).read_text().splitlines(), 1):
            if line.strip() and not line.startswith("#"):
                fields = line.split(None, 3)
                if len(fields) < 4:
                    sys.exit(f"{path}:{number}: session step aspect reason, please")
                out.append({"where": f"{path}:{number}", "session": fields[0], "step": fields[1], "aspect": fields[2],
                            "reason": fields[3], "used": 0})
    return out


def expected(expectations, session, step, aspect):
    for e in expectations:
        if fnmatch.fnmatchcase(session, e["session"]) and e["step"] in ("*", str(step)) \
                and fnmatch.fnmatchcase(aspect.replace("[", "(").replace("]", ")"),
                                        e["aspect"].replace("[", "(").replace("]", ")")):
            e["used"] += 1
            return e["reason"]
    return None


def main():
    ap = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    ap.add_argument("--endpoint", required=True, help="http://host:port/account, or https://account.table.suffix")
    ap.add_argument("--account", help="account name when it is not the path or the first label of the host")
    ap.add_argument("--key", default=EMULATOR_KEY)
    ap.add_argument("--only", default="*", metavar="GLOB", help="sessions to run, as set/name")
    ap.add_argument("--checks", default="status,error,headers,body", help="what counts as a failure")
    ap.add_argument("--report", metavar="FILE", help="write everything as JSON")
    ap.add_argument("--expect", metavar="FILE", action="append", default=[], help="known differences, each with a reason")
    ap.add_argument("--strict", action="store_true", help="an expectation that covers nothing is a failure, too")
    ap.add_argument("--timeout", type=float, default=30)
    ap.add_argument("--patience", type=float, default=65, help="longest wait for a lease or timeout to run out, in seconds")
    ap.add_argument("--versioning", action="store_true", help="the blob account keeps versions")
    ap.add_argument("--soft-delete", action="store_true", help="the blob account keeps deleted blobs")
    ap.add_argument("--no-sas", action="store_true", help="replay with the account key what was signed with a SAS")
    ap.add_argument("--quiet", action="store_true", help="counts only, no list of failures")
    ap.add_argument("dirs", nargs="+", metavar="DIR", type=pathlib.Path)
    args = ap.parse_args()
    checks = set(args.checks.split(","))
    expectations = read_expectations(args.expect)
    files = sorted(f for d in args.dirs for f in ([d] if d.is_file() else d.rglob("*.jsonl")))
    if not files:
        sys.exit("no recordings there")
    with open(files[0], encoding="utf-8") as first:
        service = json.loads(first.readline()).get("service", "table")
    if service == "table":
        endpoint = Endpoint(args.endpoint, args.account, args.key, args.timeout)
    else:
        endpoint = StorageEndpoint(args.endpoint, args.account, args.key, args.timeout, service)
    try:
        foreign = bool(endpoint.tables() if service == "table" else endpoint.names())
    except OSError as fault:
        sys.exit(f"cannot reach {args.endpoint}: {fault}")
    counts, aspects, results = collections.Counter(), collections.Counter(), []

    def record(session, step, request, outcome, diffs=(), reason=None):
        counts[outcome] += 1
        results.append({"session": session, "step": step, "request": f"{request['method']} {request['path']}",
                        "query": request["query"], "outcome": outcome, "reason": reason,
                        "diffs": [{"aspect": a, "recorded": r, "live": v} for a, r, v in diffs]})

    for file in files:
        name = f"{file.parent.name}/{file.stem}"
        if not fnmatch.fnmatchcase(name, args.only):
            continue
        header, *exchanges = [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n") if line]
        if header.get("service", "table") != service:
            sys.exit(f"{name} is of the {header['service']} service, the others are not")
        session = Session(endpoint, foreign) if service == "table" else StorageSession(endpoint, foreign, header, args)
        session.prepare(header["before"])
        setup = session.diffs
        for step, exchange in enumerate(exchanges, 1):
            request = exchange["request"]
            try:
                diffs = session.play(exchange) + setup
                setup = []    # belongs to the first exchange that is judged
                session.remember(exchange)
            except Skip as why:
                record(name, step, request, "skipped", reason=str(why))
                continue
            diffs = [d for d in diffs if category(d[0]) in checks]
            unexplained = [d for d in diffs if not expected(expectations, name, step, d[0])]
            for aspect, _, _ in unexplained:
                aspects[re.sub(r"\[\d+\]", "[]", aspect)] += 1
            outcome = "failed" if unexplained else "expected" if diffs else "passed"
            record(name, step, request, outcome, unexplained or diffs)
        session.clean_up()

    if not args.quiet:
        for r in (r for r in results if r["outcome"] == "failed"):
            print(f"FAIL {r['session']} step {r['step']}: {r['request']}{'?' + r['query'] if r['query'] else ''}")
            for d in r["diffs"][:12]:
                print(f"     {d['aspect']}: recorded {d['recorded'][:160]} | live {d['live'][:160]}")
        print("\nDifferences by aspect:")
        for aspect, n in aspects.most_common(40):
            print(f"  {n:5} {aspect}")
        print("Skipped:")
        for reason, n in collections.Counter(r["reason"] for r in results if r["outcome"] == "skipped").most_common():
            print(f"  {n:5} {reason}")
    idle = [e["where"] for e in expectations if not e["used"]]
    for where in idle:
        print(f"the expectation at {where} covered nothing")
    if args.report:
        report = {"counts": counts, "aspects": aspects, "idle": idle, "results": results}
        pathlib.Path(args.report).write_text(json.dumps(report, indent=1))
    known = f", {counts['expected']} failed as expected" if counts["expected"] else ""
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped{known}")
    return 1 if counts["failed"] or (args.strict and idle) else 0


if __name__ == "__main__":
    sys.exit(main())
