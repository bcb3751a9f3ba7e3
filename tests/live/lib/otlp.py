# SPDX-License-Identifier: Apache-2.0
"""A receiver of OTLP over HTTP with JSON. It checks that each request has the form that OTLP
prescribes, without using a library for OTLP.

r = Receiver(); r.url, r.requests, r.spans()
r.answers.append((503, {"Retry-After": "1"}, "later"))   # the next response (default: 200)
r.delay_s = 5                                            # delay of each response, in seconds
r.stop(), r.start()                                      # end, and start again on the same port"""

import collections
import http.server
import json
import re
import threading
import time

ATTRIBUTE = {"stringValue": str, "intValue": str, "boolValue": bool}


class OtlpError(Exception):
    pass


def need(good, what):
    if not good:
        raise OtlpError(what)


def plain(attributes):
    """Returns a list of OTLP attributes as a dict. Fails if an attribute occurs twice or does not
    have the form that OTLP prescribes."""
    out = {}
    for a in attributes:
        need(set(a) == {"key", "value"} and len(a["value"]) == 1, "attribute %r" % a)
        ((kind, value),) = a["value"].items()
        need(type(value) is ATTRIBUTE.get(kind) and a["key"] not in out, "attribute %r" % a)
        out[a["key"]] = int(value) if kind == "intValue" else value
    return out


def check_span(s):
    """Checks a span against the rules of opentelemetry-proto for JSON: ids are hexadecimal, 64-bit
    numbers are strings, enums are numbers, and names are in lowerCamelCase."""
    known = {
        "traceId",
        "spanId",
        "parentSpanId",
        "traceState",
        "flags",
        "name",
        "kind",
        "startTimeUnixNano",
        "endTimeUnixNano",
        "attributes",
        "status",
    }
    need(set(s) <= known, "unknown fields: %s" % (set(s) - known))
    need(re.fullmatch("[0-9a-f]{32}", s["traceId"]) and set(s["traceId"]) != {"0"}, "traceId")
    need(re.fullmatch("[0-9a-f]{16}", s["spanId"]) and set(s["spanId"]) != {"0"}, "spanId")
    need(re.fullmatch("[0-9a-f]{16}", s.get("parentSpanId", "1" * 16)), "parentSpanId")
    need(s["flags"] & 1 and bool(s["flags"] & 0x200) == ("parentSpanId" in s), "flags")
    need(s["kind"] == 5 and isinstance(s["kind"], int), "kind")
    need(
        all(re.fullmatch("[0-9]+", s[t]) for t in ("startTimeUnixNano", "endTimeUnixNano")), "times"
    )
    need(
        int(s["startTimeUnixNano"]) <= int(s["endTimeUnixNano"])
        and abs(int(s["endTimeUnixNano"]) / 1e9 - time.time()) < 600,
        "times",
    )
    need(
        s.get("status", {"code": 2})["code"] == 2
        and set(s.get("status", {})) <= {"code", "message"},
        "status",
    )


def spans_of(request):
    """Returns the spans of a request. Each span has its attributes as a dict, and also the
    attributes of its resource."""
    out = []
    need(set(request) == {"resourceSpans"}, "request")
    for rs in request["resourceSpans"]:
        resource = plain(rs["resource"]["attributes"])
        for ss in rs["scopeSpans"]:
            need(
                ss["scope"]["name"] == "latchwork"
                and ss["schemaUrl"].startswith("https://opentelemetry.io/schemas/"),
                "scope",
            )
            for s in ss["spans"]:
                check_span(s)
                out.append(dict(s, attributes=plain(s["attributes"]), resource=resource))
    return out


class Receiver:
    def __init__(self, port=0, tls=None):
        """`tls` is an ssl.SSLContext; with it, the receiver speaks HTTPS."""
        self.tls = tls
        self.requests, self.taken, self.errors, self.answers = [], [], [], collections.deque()
        self.delay_s, self.port, self.lock = 0, port, threading.Lock()
        self.start()

    @property
    def url(self):
        return "%s://127.0.0.1:%d" % ("https" if self.tls else "http", self.port)

    def start(self):
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                time.sleep(receiver.delay_s)
                status, headers, text = receiver.take(self, body)
                self.send_response(status)
                for h in headers.items():
                    self.send_header(*h)
                self.send_header("Content-Length", str(len(text.encode())))
                self.end_headers()
                self.wfile.write(text.encode())

            def log_message(self, *_):
                pass

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True

            # Print no error if the client closes the connection before it gets the response.
            def handle_error(self, *_):
                pass

        self.server = Server(("127.0.0.1", self.port), Handler)
        self.port = self.server.server_port
        if self.tls:
            # The TLS handshake happens at the first read, which runs on the connection's own
            # thread.
            self.server.socket = self.tls.wrap_socket(
                self.server.socket, server_side=True, do_handshake_on_connect=False
            )
        threading.Thread(
            target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True
        ).start()

    def stop(self):
        self.server.shutdown()
        self.server.server_close()

    def take(self, handler, body):
        """Records a request, and returns the response: status, headers and body."""
        with self.lock:
            request = {
                "at": time.monotonic(),
                "path": handler.path,
                "headers": {k.lower(): v for k, v in handler.headers.items()},
                "body": body,
                "spans": [],
            }
            self.requests.append(request)
            status, headers, text = self.answers.popleft() if self.answers else (200, {}, "{}")
            try:
                need(
                    handler.path == "/v1/traces"
                    and request["headers"]["content-type"] == "application/json",
                    "path or type",
                )
                request["spans"] = spans_of(json.loads(body))
            except (OtlpError, ValueError, KeyError, TypeError) as e:
                self.errors.append("%r: %r" % (e, body[:2000]))
                return 400, {}, str(e)
            if status == 200:
                self.taken += request["spans"]
            return status, dict({"Content-Type": "application/json"}, **headers), text

    def spans(self):
        with self.lock:
            return list(self.taken)
