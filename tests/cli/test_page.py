#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests what a running supervisor serves for the web page: the files of the page, tokens, outcomes
and events. Runs on a private Redis and the dev broker.
Usage: test_page.py [BUILD [TEST…]]
No test asserts a time. Time limits only turn a hang into a failure."""

import gzip
import http.client
import json
import os
import socket
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from test_metrics import ROOT, World  # noqa: E402
from lib.process import wait_until  # noqa: E402
from lib.redis import Client  # noqa: E402

ANNA, BEN, ONE = (
    "anna-reads-what-is-there",
    "ben-may-change-everything",
    "the-text-of-the-one-token",
)
STREAMS = 16
POINT = {
    "at_ms",
    "received",
    "done",
    "retried",
    "dead",
    "skipped",
    "dropped",
    "parked",
    "drained",
    "lag",
    "waiting",
    "in_handler",
    "dead_letters",
    "lanes",
    "handler_p50_us",
    "handler_p99_us",
    "end_to_end_p50_us",
    "end_to_end_p99_us",
}
LEDGER = {"received", "done", "dead", "dropped", "skipped", "waiting", "in_handler", "unfinished"}


class Stream:
    """The stream of events that one open web page gets."""

    def __init__(self, port, token=None):
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        self.connection.request(
            "GET", "/api/v1/events", headers={"Authorization": "Bearer " + token} if token else {}
        )
        self.answer = self.connection.getresponse()

    def next(self):
        """Returns the next event as (name, data), or None at the end of the stream."""
        name = data = None
        while True:
            line = self.answer.readline().decode()
            if not line:
                return None
            key, _, value = line.rstrip("\n").partition(": ")
            if key == "event":
                name = value
            elif key == "data":
                data = json.loads(value)
            elif not key and name:
                return name, data

    def close(self):
        self.answer.close()
        self.connection.close()


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="lw-page-")
        cls.w = World(
            cls.folder.name,
            token=ONE,
            read_tokens={"anna": ANNA},
            write_tokens={"ben": BEN},
            hosts=["page.example"],
            payloads="hide",
        )
        cls.addClassCleanup(cls.folder.cleanup)
        cls.addClassCleanup(cls.w.close)
        wait_until(cls.w.serving, 60, "metrics and ready workers")
        cls.w.produce("--messages", 3, "--keys", 1, "--prefix", "bad-", "--seed", 2)
        cls.w.produce("--messages", 40, "--keys", 5, "--prefix", "good-", "--seed", 3)
        wait_until(lambda: cls.w.sum("messages_total") == 43, 60, "end of all messages")

    def ask(self, path, status=200, method="GET", token=None, body=None, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.w.port, timeout=30)
        headers = {k.replace("_", "-"): v for k, v in headers.items()}
        if token:
            headers["Authorization"] = "Bearer " + token
        try:
            connection.request(method, path, body, headers)
            r = connection.getresponse()
            text = r.read().decode()
            self.headers = r.headers
        finally:
            connection.close()
        self.assertEqual(r.status, status, text)
        return json.loads(text) if r.headers["Content-Type"] == "application/json" else text

    # --- files ------------------------------------------------------------------------------------

    def test_files_are_served_as_they_are(self):
        types = {
            "index.html": "text/html; charset=utf-8",
            "app.js": "text/javascript; charset=utf-8",
            "app.css": "text/css; charset=utf-8",
            "favicon.svg": "image/svg+xml",
        }
        for name, kind in types.items():
            with open(os.path.join(ROOT, "monitor/page", name)) as f:
                self.assertEqual(self.ask("/" + ("" if name == "index.html" else name)), f.read())
            self.assertEqual(self.headers["Content-Type"], kind)
            policy = self.headers["Content-Security-Policy"]
            self.assertIn("default-src 'none'; script-src 'self'", policy)
            self.assertIn("frame-ancestors 'none'", policy)
            self.assertNotIn("unsafe", policy)
            self.assertEqual(self.headers["Referrer-Policy"], "no-referrer")
            self.assertEqual(self.headers["X-Content-Type-Options"], "nosniff")
            for policy in ("Opener", "Resource"):
                self.assertEqual(self.headers["Cross-Origin-%s-Policy" % policy], "same-origin")
            self.assertIsNone(self.headers["Set-Cookie"])
        self.ask("/app.js", 405, "POST")
        self.ask("/nothing.js", 404)

    def test_files_are_compressed_and_kept(self):
        """A browser must get the page's files compressed, and must not get a file again that has
        not changed."""
        for name in ("", "app.js", "app.css", "favicon.svg"):
            tags = set()
            for encoding in ("identity", "gzip"):
                status, headers, body = self.raw("/" + name, Accept_Encoding=encoding)
                self.assertEqual(
                    (status, headers["Content-Encoding"]),
                    (200, "gzip" if encoding == "gzip" else None),
                )
                with open(os.path.join(ROOT, "monitor/page", name or "index.html"), "rb") as f:
                    self.assertEqual(
                        gzip.decompress(body) if encoding == "gzip" else body, f.read()
                    )
                self.assertEqual(
                    (headers["Vary"], headers["Cache-Control"]), ("Accept-Encoding", "no-cache")
                )
                tags.add(headers["ETag"])
                status, again, body = self.raw(
                    "/" + name, Accept_Encoding=encoding, If_None_Match=headers["ETag"]
                )
                self.assertEqual((status, body, again["ETag"]), (304, b"", headers["ETag"]))
                self.assertEqual(
                    self.raw("/" + name, Accept_Encoding=encoding, If_None_Match='"another"')[0],
                    200,
                )
            self.assertEqual(len(tags), 2, "what is compressed is another text")
        status, headers, _ = self.raw("/api/v1/session", Accept_Encoding="gzip")
        self.assertEqual(
            (status, headers["Content-Encoding"], headers["ETag"], headers["Cache-Control"]),
            (200, None, None, "no-store"),
        )

    def raw(self, path, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.w.port, timeout=30)
        try:
            connection.request(
                "GET", path, headers={k.replace("_", "-"): v for k, v in headers.items()}
            )
            r = connection.getresponse()
            return r.status, r.headers, r.read()
        finally:
            connection.close()

    def test_the_page_names_only_relative_addresses(self):
        for name in ("index.html", "app.js"):
            with open(os.path.join(ROOT, "monitor/page", name)) as f:
                self.assertNotRegex(f.read(), r'(src|href)="(/|https?:)')

    # --- who may ask ------------------------------------------------------------------------------

    def test_session(self):
        self.assertEqual(
            self.ask("/api/v1/session"),
            {
                "name": None,
                "read": False,
                "write": False,
                "needs_token": True,
                "payloads": "hide",
                "version": self.ask("/version")["version"],
                "application": "audit",
                "dead_topic": None,
            },
        )
        for token, name, write in ((ANNA, "anna", False), (BEN, "ben", True), (ONE, "token", True)):
            s = self.ask("/api/v1/session", token=token)
            self.assertEqual((s["name"], s["read"], s["write"]), (name, True, write))
        self.assertIsNone(self.ask("/api/v1/session", token="x" * 30)["name"])

    def test_reading_needs_a_token(self):
        for path in (
            "/api/v1",
            "/api/v1/stats",
            "/api/v1/outcomes",
            "/api/v1/events",
            "/api/v1/lanes",
            "/api/v1/version",
        ):
            self.assertIn("token", self.ask(path, 401)["error"])
            self.assertEqual(self.headers["WWW-Authenticate"], "Bearer")
            self.ask(path, 401, token=ANNA + "x")
        for path in ("/api/v1/stats", "/api/v1/lanes", "/api/v1/outcomes"):
            for token in (ANNA, BEN, ONE):
                self.ask(path, token=token)
        for path in ("/metrics", "/healthz", "/readyz", "/version", "/"):
            self.ask(path)

    def test_writing_needs_a_write_token(self):
        path = "/api/v1/lanes/t-1/pause"
        self.ask(path, 401, "POST")
        self.assertIn("may only read", self.ask(path, 403, "POST", ANNA)["error"])
        for token in (BEN, ONE):
            self.ask(path, 200, "POST", token)
            self.ask("/api/v1/lanes/t-1/resume", 200, "POST", token)
        for path in ("/api/v1/stats", "/api/v1/outcomes", "/api/v1/events", "/api/v1/session"):
            self.assertIn("GET", self.ask(path, 405, "POST", BEN)["error"])

    def test_hosts_and_origins(self):
        for host in ("page.example", "page.example:443", "localhost", "127.0.0.1:%d" % self.w.port):
            self.ask("/version", Host=host)
        self.ask("/version", 421, Host="evil.example")
        here = "127.0.0.1:%d" % self.w.port
        self.ask("/version", Origin="http://" + here)
        self.ask("/version", Host="page.example", Origin="https://page.example")
        for origin in ("http://evil.example", "null", "http://127.0.0.1"):
            self.ask("/version", 403, Origin=origin)
            self.ask("/api/v1/lanes/t-1/pause", 403, "POST", BEN, Origin=origin)

    def test_other_sites_do_not_call_the_api(self):
        for site in ("cross-site", "same-site"):
            self.ask("/api/v1/session", 403, Sec_Fetch_Site=site)
            self.ask("/api/v1/lanes/t-1/pause", 403, "POST", BEN, Sec_Fetch_Site=site)
            self.ask("/", Sec_Fetch_Site=site)  # a link to the page
        for site in ("same-origin", "none"):
            self.ask("/api/v1/session", Sec_Fetch_Site=site)

    def test_the_percentiles_of_the_page(self):
        self.addCleanup(self.forget_totals)
        self.w.produce("--messages", 10, "--keys", 5, "--prefix", "more-", "--seed", 5)
        point = self.ask("/api/v1/point", token=ANNA)
        self.assertEqual((point["every_ms"], set(point["point"])), (5000, POINT))

    # --- outcomes ---------------------------------------------------------------------------------

    def outcomes(self, query="", status=200):
        return self.ask("/api/v1/outcomes" + query, status, token=ANNA)

    def test_outcomes(self):
        answer = self.outcomes()
        rows = answer["outcomes"]
        self.assertEqual(len(rows), 43)
        self.assertTrue(answer["complete"], answer)
        self.assertEqual(
            [r["at_ms"] for r in rows], sorted((r["at_ms"] for r in rows), reverse=True)
        )
        self.assertEqual(len({(r["topic"], r["partition"], r["offset"]) for r in rows}), 43)
        for r in rows:
            bad = r["key"].startswith("bad-")
            self.assertEqual(
                (r["outcome"], r["reason"]), ("dead", "it says so") if bad else ("done", ""), r
            )
            self.assertTrue(
                r["topic"] == "orders"
                and r["attempt"] == 1
                and r["fence"] > 0
                and r["took_us"] > 0
                and r["worker"] in (0, 1),
                r,
            )
        self.assertEqual(
            [r["outcome"] for r in self.outcomes("?outcome=dead")["outcomes"]], ["dead"] * 3
        )
        self.assertEqual(
            len(self.outcomes("?outcome=dead&outcome=done&key=good-1")["outcomes"]),
            len([r for r in rows if r["key"] == "good-1"]),
        )
        self.assertEqual(len(self.outcomes("?outcome=dead&outcome=dead")["outcomes"]), 3)
        cut = self.outcomes("?limit=5")
        self.assertEqual(cut["outcomes"], rows[:5])
        self.assertFalse(cut["complete"])
        for query in ("?outcome=odd", "?limit=0", "?limit=501", "?limit=x", "?limit=5x", "?page=2"):
            self.assertIn("unknown parameter or value", self.outcomes(query, 400)["error"])

    # --- events -----------------------------------------------------------------------------------

    def open(self, token=ANNA):
        """Opens a stream; places of streams that the test before has closed may not be free yet."""
        opened = []

        def place():
            opened.append(Stream(self.w.port, token))
            self.addCleanup(opened[-1].close)
            return opened[-1].answer.status == 200

        wait_until(place, 30, "a place for a stream")
        return opened[-1]

    def test_events(self):
        stream = self.open()
        self.assertEqual(stream.answer.headers["Content-Type"], "text/event-stream")
        name, history = stream.next()
        self.assertEqual((name, history["every_ms"]), ("history", 5000))
        self.assertGreater(len(history["points"]), 0)
        self.assertEqual(set(history["points"][0]), POINT)
        for _ in range(3):
            name, now = stream.next()
            self.assertEqual(name, "now")
            self.assertEqual(set(now["point"]), POINT)
            self.assertEqual(set(now["ledger"]), LEDGER)
            self.assertEqual(
                (now["point"]["received"], now["point"]["done"], now["point"]["dead"]), (43, 40, 3)
            )
            self.assertEqual(
                (now["ledger"]["received"], now["ledger"]["done"], now["ledger"]["dead"]),
                (43, 40, 3),
            )
            self.assertEqual(len(now["workers"]), 2)
            self.assertEqual(len(now["partitions"]), 3)
            self.assertFalse(now["more_partitions"])
            self.assertEqual(now["stats"]["name"], "audit")
            self.assertEqual(
                [(f["outcome"], f["reason"]) for f in now["failures"]], [("dead", "it says so")] * 3
            )

    def test_events_tell_what_is_new(self):
        stream = self.open()
        done = self.outcomes("?outcome=done&limit=500")
        before = len(done["outcomes"])
        self.w.produce("--messages", 30, "--keys", 1, "--prefix", "hot-", "--seed", 4)
        self.addCleanup(self.forget_totals)
        now = self.until(stream, lambda now: now["point"]["done"] >= before + 30)
        self.assertEqual(now["point"]["done"], before + 30)
        self.assertEqual((now["hot"][0]["key"], now["hot"][0]["outcomes"]), ("hot-0", 30))
        self.until(stream, lambda now: now["hot"][0]["waiting"] == 0)

    def until(self, stream, wanted, most=60):
        """Reads the stream until wanted() is true for an event with the name `now`. Returns that
        event."""
        for _ in range(most):
            name, now = stream.next()
            if name == "now" and wanted(now):
                return now
        self.fail("not within %d events; the last one: %s" % (most, now))

    def test_what_waits_behind_hot_keys(self):
        """The events must contain the number of waiting messages of each of the ten hottest keys.
        Even if many pages are open, the supervisor may ask Redis only once for all of them."""
        self.addCleanup(self.forget_totals)
        self.w.produce("--messages", 60, "--keys", 12, "--prefix", "warm-", "--seed", 5)
        streams = [self.open() for _ in range(5)]
        key = self.until(streams[0], lambda now: len(now["hot"]) == 10)["hot"][3]["key"]
        self.w.redis.call("SADD", "lw:{audit.0}:paused", key)
        self.w.redis.call("LPUSH", "lw:{audit.0}:wait:" + key, *["not read by anybody"] * 7)
        row = lambda now: [r for r in now["hot"] if r["key"] == key]  # noqa: E731
        now = self.until(streams[0], lambda now: row(now) and row(now)[0]["waiting"] == 7)
        self.assertEqual([r["waiting"] for r in now["hot"] if r["key"] != key], [0] * 9)
        monitor, begun = Client(self.w.redis.path, 60), time.monotonic()
        self.addCleanup(monitor.close)
        monitor("MONITOR")
        for _ in range(10):
            self.until(streams[0], lambda now: True)
        seconds = time.monotonic() - begun
        self.w.redis.call("ECHO", "the end")
        calls = 0
        for line in iter(monitor.file.readline, b""):
            calls += b'"LLEN" "lw:{audit.0}:wait:' in line and b" lua]" not in line
            if b"the end" in line:
                break
        self.assertGreater(calls, 0)
        self.assertLessEqual(
            calls, (seconds + 2) * 16, "16 keys per second, for all five streams together"
        )

    def forget_totals(self):
        """Restarts the supervisor, because the other tests expect its counters to begin at 0."""
        type(self).doClassCleanups()
        type(self).setUpClass()

    def test_too_many_streams(self):
        streams = [self.open() for _ in range(STREAMS)]
        for s in streams:
            self.assertEqual(s.next()[0], "history")
        self.assertIn("too many streams", self.ask("/api/v1/events", 503, token=ANNA)["error"])
        streams.pop().close()

        def place():
            again = Stream(self.w.port, ANNA)
            self.addCleanup(again.close)
            return again.answer.status == 200

        wait_until(place, 30, "a place for another stream")

    def test_a_client_that_goes_away(self):
        # The server must notice that clients have closed their connections, so that it has a place
        # for the next client.
        for _ in range(3 * STREAMS):
            with socket.create_connection(("127.0.0.1", self.w.port), 30) as s:
                s.sendall(
                    b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n"
                    % ANNA.encode()
                )
        wait_until(
            lambda: Stream(self.w.port, ANNA).answer.status == 200, 30, "a place for a stream"
        )

    def test_the_server_ends_while_streams_are_open(self):
        streams = [self.open() for _ in range(3)]
        for s in streams:
            self.assertEqual(s.next()[0], "history")
        self.addCleanup(self.forget_totals)
        # The supervisor must end with status 0 and leave no process.
        self.w.instance.stop()
        for s in streams:
            try:
                while s.next():
                    pass
            except (http.client.HTTPException, OSError):
                pass  # The process ended in the middle of an event.


class Open(unittest.TestCase):
    """Without tokens, anyone may read, and no one may change anything."""

    def test_without_tokens(self):
        with tempfile.TemporaryDirectory(prefix="lw-page-") as folder:
            w = World(folder)
            self.addCleanup(w.close)
            wait_until(w.serving, 60, "metrics and ready workers")
            s = json.loads(w.get("/api/v1/session")[1])
            self.assertEqual(
                (s["read"], s["write"], s["needs_token"], s["payloads"]),
                (True, False, False, "show"),
            )
            stream = Stream(w.port)
            self.assertEqual(stream.next()[0], "history")
            stream.close()
            connection = http.client.HTTPConnection("127.0.0.1", w.port, timeout=30)
            connection.request(
                "POST", "/api/v1/lanes/a/pause", headers={"Authorization": "Bearer " + BEN}
            )
            answer = connection.getresponse()
            self.assertEqual(
                (answer.status, "no write token" in answer.read().decode()), (403, True)
            )
            connection.close()


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], "-v"] + sys.argv[2:])
