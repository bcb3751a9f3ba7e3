#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the HTTP API (/api/v1/) of a running supervisor, on a private Redis and the dev broker.
Usage: test_api.py [BUILD [TEST…]]
No test asserts how long something takes. Time limits only turn a hang into a failure."""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from api_case import ApiCase, P, TOKEN, envelope, quote  # noqa: E402
from test_metrics import BUILD, World  # noqa: E402
from lib.process import wait_until  # noqa: E402


class Api(ApiCase):
    more = {"group": {"from": "header:tenant"}, "limits": {"groups": {"slow": {"running": 1}}}}

    # --- reading ----------------------------------------------------------------------------------

    def test_index_names_what_there_is(self):
        v = self.ask("/api/v1")
        self.assertEqual((v["name"], v["writable"]), ("audit", True))
        for path in v["get"]:
            # Do not request exports, whose responses contain more than one JSON value, or the
            # stream of events, which does not end.
            if not re.search(r"\*|/export$|/events$", path):
                self.ask(path)
        self.assertEqual(self.ask("/api/v1/"), v)
        self.assertEqual(self.ask("/api/v1/version"), self.ask("/version"))
        self.assertEqual(self.ask("/api/v1", "HEAD"), "")

    def test_stats(self):
        wait_until(
            lambda: self.ask("/api/v1/stats")["shards"][0]["dead"] == len(self.dead()),
            30,
            "look at Redis",
        )
        # Workers and Redis are not ready at once if an earlier test has stopped Redis for a while.
        ready = lambda v: v["ready"] == 2 and v["shards"][0]["up"]
        wait_until(lambda: ready(self.ask("/api/v1/stats")), 60, "two ready workers")
        v = self.ask("/api/v1/stats")
        self.assertEqual((v["name"], v["workers"], v["ready"], v["partitions"]), ("audit", 2, 2, 3))
        self.assertGreaterEqual(v["counters"]["dead"], 3)

    def test_lanes_and_filters(self):
        old = int(time.time() * 1000) - 3600000
        self.plant("t-a", 1, 2)
        self.plant("t-b", 3, first_ms=old)
        self.plant("t-idle")
        keys = lambda query: sorted(r["key"] for r in self.ask("/api/v1/lanes" + query)["lanes"])
        self.assertEqual(keys(""), ["t-a", "t-b", "t-idle"])
        self.assertEqual(keys("?match=t-%5Bab%5D"), ["t-a", "t-b"])
        self.assertEqual(keys("?key=t-a"), ["t-a"])
        self.assertEqual(keys("?older_than=30m"), ["t-b"])
        self.assertEqual(keys("?topic=other"), [])
        self.assertEqual(keys("?topic=orders&partition=9"), ["t-a", "t-b"])
        a = self.ask("/api/v1/lanes?key=t-a")["lanes"][0]
        self.assertEqual(
            (a["waiting"], a["paused"], a["holder"], a["oldest"]), (2, True, None, "orders/9/1")
        )

    def test_groups(self):
        def groups():
            rows = self.ask("/api/v1/groups")["groups"]
            self.assertEqual([r["fleet"] for r in rows], [True] + [False] * (len(rows) - 1))
            return {r["group"]: r for r in rows}

        wait_until(lambda: self.call("HGET", P + "limits", "version"), 60, "a worker's file")
        limits = {"running": 3, "per_second": 50, "burst": 5}
        v = self.post("/api/v1/groups/acme/set", '{"running":3,"per_second":50}')
        self.assertEqual((v["limits"], v["changed"]), (limits, True))
        self.assertFalse(self.post("/api/v1/groups/acme/set", '{"running":3}')["changed"])
        self.assertTrue(self.post("/api/v1/groups/acme/pause")["changed"])
        self.assertEqual(groups()["acme"]["limits"], limits)
        self.assertGreater(groups()["acme"]["paused_ms"], 0)
        self.assertFalse(self.post("/api/v1/groups/acme/pause")["changed"])
        self.assertIsNone(self.post("/api/v1/groups/acme/resume")["paused_ms"])
        self.assertTrue(self.post("/api/v1/fleet/pause")["paused_ms"])
        self.assertTrue(groups()[None]["paused_ms"])
        self.assertTrue(self.post("/api/v1/fleet/resume")["changed"])
        for body in (
            '{"running":0}',
            '{"per_second":1000001}',
            "{}",
            '{"weight":1}',
            '{"burst":null}',
        ):
            self.post("/api/v1/groups/acme/set", body, status=400)
        v = self.post("/api/v1/groups/acme/set", '{"per_second":null}')
        none = {"running": None, "per_second": None, "burst": None}
        self.assertEqual((v["limits"], v["from"]), (dict(none, running=3), "set"))
        v = self.post("/api/v1/each-group/set", '{"running":7}')
        self.assertEqual(v, {"limits": dict(none, running=7), "from": "set", "changed": True})
        each = self.ask("/api/v1/groups")["each"]
        self.assertEqual(each, {"limits": dict(none, running=7), "from": "set"})
        self.post("/api/v1/each-group/set", '{"running":null}')
        self.assertTrue(self.post("/api/v1/groups/acme/reset")["changed"])
        self.assertFalse(self.post("/api/v1/groups/acme/reset")["changed"])
        self.assertFalse(self.post("/api/v1/fleet/reset")["changed"])
        self.assertFalse(self.post("/api/v1/each-group/reset")["changed"])
        self.post("/api/v1/each-group/pause", status=404)
        # what is in force does not allow the change: that is no failure of Redis
        said = self.post("/api/v1/groups/acme/set", '{"burst":9}', status=409)["error"]
        self.assertIn("no limit per second", said)
        full = ["group:full-%d" % i for i in range(4000)]
        self.call("HSET", P + "limits", *(x for name in full for x in (name, "1 0 0 -")))
        try:
            said = self.post("/api/v1/groups/one-more/pause", status=409)["error"]
            self.assertIn("4000 groups", said)
            v = self.ask("/api/v1/groups?limit=5")
            self.assertEqual((len(v["groups"]), v["complete"]), (6, True))
            self.assertGreater(v["more"], 3990)
        finally:
            self.call("HDEL", P + "limits", *full)
        self.post("/api/v1/groups/acme/pause", token=None, status=401)
        long = "x" * 6000  # known by its hash, as a long key is
        self.assertTrue(self.post("/api/v1/groups/%s/pause" % long)["group"].startswith("\x01"))
        self.assertTrue(self.post("/api/v1/groups/%s/resume" % long)["changed"])

    def test_limited_is_counted(self):
        count = lambda: self.w.sum("limited_total")
        row = lambda: {g["group"]: g for g in self.ask("/api/v1/groups")["groups"]}["slow"]

        def produce(tenant):
            done = self.w.sum("messages_total")
            lines = "".join("%d|%s-%d|{}\n" % (i % 3, tenant, i) for i in range(12))
            command = [BUILD + "/tests/tools/kafkatool", self.w.brokers, "produce", "orders"]
            subprocess.run(
                [*command, "--header", "tenant=" + tenant],
                input=lines.encode(),
                check=True,
                stdout=subprocess.DEVNULL,
                timeout=60,
            )
            return lambda: self.w.sum("messages_total") == done + 12

        before = count()
        wait_until(produce("free"), 60, "end of messages without a limit")
        self.assertEqual(count(), before)
        with open(self.w.gate, "w"):  # handlers wait while it is there
            pass
        try:
            all_done = produce("slow")
            wait_until(lambda: count() > before, 60, "a worker that got less than it wanted")
            wait_until(lambda: (row()["why"] or {}).get("reason") == "place", 60, "the reason")
            self.assertEqual((row()["running"], row()["from"]), (1, "file"))
        finally:
            os.remove(self.w.gate)
        wait_until(all_done, 60, "end of all messages")
        wait_until(lambda: (row()["share"] or 0) > 0, 60, "a measured share")

    def test_lanes_by_cursor(self):
        for i in range(700):
            self.plant("t-%03d" % i, *([i] if i % 2 else []))
        rows, pages = self.pages("/api/v1/lanes?limit=50", "lanes")
        self.assertEqual(sorted({r["key"] for r in rows}), ["t-%03d" % i for i in range(700)])
        self.assertGreater(pages, 4)
        for cursor in ("x", "0.l.", "9.l.0", "0.q.0", "0.l.0;", "-1.l.0", "0.l." + 20 * "9"):
            self.ask("/api/v1/lanes?cursor=" + quote(cursor), status=400)

    def test_one_lane(self):
        self.plant("t-a/b %", *range(1, 31))
        self.call("SET", P + "lock:t-a/b %", "host-7-ab.9:1700000000000123", "PX", 60000)
        v = self.ask("/api/v1/lanes/" + quote("t-a/b %") + "?limit=10")
        self.assertEqual(
            (v["key"], v["waiting"], v["holder"], v["fence"], v["more"]),
            ("t-a/b %", 30, "host-7-ab", 1700000000000123, True),
        )
        self.assertEqual(
            [m["identity"] for m in v["messages"]], ["orders/9/%d" % i for i in range(1, 11)]
        )
        self.assertEqual(v["messages"][0]["payload"], '{"total":1}')
        v = self.ask("/api/v1/lanes/t-nothing")
        self.assertEqual((v["waiting"], v["messages"], v["more"]), (0, [], False))

    def test_key(self):
        """The response about one key must contain its holder, its waiting messages in order, its
        newest dead letters, and who paused it."""
        self.plant("t-a", 3, 1, 2, first_ms=int(time.time() * 1000) - 60000)
        self.call("SREM", P + "paused", "t-a")
        path = "/api/v1/keys/t-a"
        self.post("/api/v1/lanes/t-a/pause")
        self.call("SET", P + "lock:t-a", "my-host-77-0a1b2c3d.9:1700000000000123", "PX", 60000)
        v = self.ask(path)
        self.assertEqual(
            (
                v["key"],
                v["waiting"],
                v["lane"]["waiting"],
                v["more"],
                v["dead"],
                v["dead_complete"],
            ),
            ("t-a", 3, 3, False, [], True),
        )
        self.assertEqual(
            [m["identity"] for m in v["messages"]], ["orders/9/3", "orders/9/1", "orders/9/2"]
        )
        self.assertGreaterEqual(min(m["age_ms"] for m in v["messages"]), 60000)
        holder = dict(v["holder"], lease_left_ms=0)
        self.assertEqual(
            holder,
            {
                "worker": "my-host-77-0a1b2c3d",
                "host": "my-host",
                "pid": 77,
                "since_ms": 1700000000000,
                "lease_left_ms": 0,
                "fence": 1700000000000123,
                "running": None,
            },
        )
        run = "my-host-77-0a1b2c3d.9:1700000000000123 orders/9/3 2 1700000000500"
        self.call("SET", P + "run:t-a", run, "PX", 60000)
        running = {"identity": "orders/9/3", "attempt": 2, "since_ms": 1700000000500}
        v = self.ask(path)
        self.assertEqual((v["holder"]["running"], v["lane"]["running"]), (running, running))
        (lock,) = self.ask("/api/v1/locks?key=t-a")["locks"]
        self.assertEqual(lock["holder"]["running"], running)
        would = self.post("/api/v1/lanes/t-a/break")
        self.assertEqual(would["running"], running)
        self.call("SET", P + "run:t-a", run.replace(":17", ":18", 1), "PX", 60000)
        self.assertIsNone(self.ask(path)["holder"]["running"], "another holder's")
        self.assertTrue(0 < v["holder"]["lease_left_ms"] <= 60000)
        self.assertTrue(v["paused"]["by"].startswith("http:"), v["paused"])
        self.assertGreater(v["paused"]["at_ms"], 1700000000000)
        v = self.ask(path + "?limit=1")
        self.assertEqual(
            ([m["identity"] for m in v["messages"]], v["more"]), (["orders/9/3"], True)
        )
        self.call("SET", P + "lock:t-a", "backoff:100", "PX", 60000)
        self.assertEqual(
            (self.ask(path)["holder"], self.ask(path)["lane"]["backoff"]), (None, True)
        )
        self.assertEqual(self.ask(path)["why"]["reason"], "paused")
        one = self.dead()[0]
        v = self.ask("/api/v1/keys/" + quote(one["key"]))
        self.assertEqual(
            (v["lane"], v["holder"], v["paused"], v["waiting"], v["messages"]),
            (None, None, None, 0, []),
        )
        self.assertIn(one["id"], [d["id"] for d in v["dead"]])
        self.ask("/api/v1/keys/t-a?key=b", status=400)

    def test_message(self):
        """A record of the application's topics must be found in Kafka by its identity, with its
        key; a replay's identity names the same record."""
        one = self.dead()[0]
        v = self.ask("/api/v1/messages/" + quote(one["identity"]))
        self.assertEqual((v["identity"], v["key"]), (one["identity"], one["key"]))
        self.assertEqual(v["payload"][:250], one["payload"][:250])
        again = self.ask("/api/v1/messages/" + quote(one["identity"] + "#7"))
        self.assertEqual((again["key"], again["identity"]), (one["key"], one["identity"]))
        for wrong, says in (
            ("orders/0/987654", "not in the log"),
            ("other/0/1", "kafka.topics"),
            ("nothing", "TOPIC/PARTITION/OFFSET"),
        ):
            self.assertIn(says, self.ask("/api/v1/messages/" + quote(wrong), status=404)["error"])

    def test_dead(self):
        rows = self.dead()
        self.assertEqual(sorted(r["key"][:4] for r in rows), ["bad-"] * len(rows))
        one = self.ask("/api/v1/dead/" + quote(rows[0]["id"]))
        self.assertEqual((one["identity"], one["reason"]), (rows[0]["identity"], "it says so"))
        self.assertEqual(
            self.ask("/api/v1/dead/" + quote(rows[0]["identity"]))["id"], rows[0]["id"]
        )
        self.ask("/api/v1/dead/0:1-1", status=404)
        newest = self.ask("/api/v1/dead?order=newest")["dead"]
        self.assertEqual([r["id"] for r in newest], [r["id"] for r in reversed(rows)])
        for order in ("newest", "oldest"):
            paged, pages = self.pages("/api/v1/dead?limit=1&order=" + order, "dead")
            self.assertEqual(
                [r["id"] for r in paged], [r["id"] for r in (newest if order == "newest" else rows)]
            )
            self.assertGreaterEqual(pages, len(rows))
        self.assertEqual(self.ask("/api/v1/dead?error=nothing+like+it")["dead"], [])
        for cursor in ("7:1-1", "0:1", "0:1-", "0:-1-1", "0:1-1-1", "0:" + 30 * "9" + "-1"):
            self.ask("/api/v1/dead?cursor=" + cursor, status=400)
            self.ask("/api/v1/dead/export?cursor=" + cursor, status=400)

    def test_bad_paths_and_queries(self):
        for path in (
            "/api/v1/nonsense",
            "/api/v1/lanes/a/b",
            "/api/v1/lanes/",
            "/api/v1//lanes",
            "/api/v1/lanes/%zz",
            "/api/v1/lanes/%00",
            "/api/v2",
            "/api/",
            "/api/v1/lanes/..%2f..%2f/x/y/z/1",
            "/api/v1lanes",
        ):
            self.ask(path, status=404)
        for query in (
            "limit=0",
            "limit=501",
            "limit=x",
            "frob=1",
            "partition=-1",
            "older_than=soon",
            "key=a&match=b",
            "where=x",
            "order=up",
            "a=%0",
            "&".join("key=%d" % i for i in range(100)),
        ):
            self.ask("/api/v1/lanes?" + query, status=400)
        self.ask("/api/v1/lanes", "PUT", status=405)
        self.ask("/api/v1/lanes/a/pause", status=405)
        self.assertEqual(self.headers["Allow"], "POST")
        self.post("/api/v1/lanes", status=405)

    # --- access -----------------------------------------------------------------------------------

    def test_host(self):
        for path in ("/api/v1/lanes", "/api/v1/stats", "/metrics"):
            self.assertEqual(self.w.get(path, Host="evil.example")[0], 421)
        self.ask("/api/v1/lanes", Host="localhost:1")
        self.post("/api/v1/lanes/t-a/pause", status=421, Host="evil.example")
        self.assertFalse(self.call("SISMEMBER", P + "paused", "t-a"))

    def test_token(self):
        path = "/api/v1/lanes/t-a/pause"
        for token in (None, "", "x", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), TOKEN + TOKEN):
            self.post(path, status=401, token=token)
        self.ask(path, "POST", status=401, Authorization="Basic " + TOKEN)
        self.assertEqual(self.headers["WWW-Authenticate"], "Bearer")
        self.post(path + "?token=" + TOKEN, status=401, token=None)
        self.assertFalse(self.call("SISMEMBER", P + "paused", "t-a"))
        self.assertNotIn(TOKEN, self.w.instance.log())

    def test_bodies(self):
        path = "/api/v1/lanes/t-a/break"
        for body in (
            "x",
            "[]",
            '{"execute":1}',
            '{"execute":true,"more":1}',
            '{"execute":true,"execute":true}',
            b"\xff",
            "{}{}",
        ):
            self.post(path, body, status=400)
        self.post(path, "{}" + " " * (64 << 10), status=413)
        # The server must refuse a request whose body is too large before the body is sent.
        with socket.create_connection(("127.0.0.1", self.w.port), 30) as s:
            s.sendall(
                b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5000000000\r\n\r\n"
                % path.encode()
            )
            self.assertTrue(s.makefile("rb").readline().startswith(b"HTTP/1.1 413 "))

    def test_endless_body(self):
        """A body with the chunked transfer encoding does not announce its length, so the server
        cannot refuse the request at once. The server must close the connection when the body
        becomes too large."""
        with socket.create_connection(("127.0.0.1", self.w.port), 30) as s:
            s.sendall(
                b"POST /api/v1/lanes/t-a/pause HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
            )
            with self.assertRaises(OSError):
                while True:
                    s.sendall(b"10000\r\n" + b"x" * 65536 + b"\r\n")
        self.ask("/api/v1/stats")

    # --- writing ----------------------------------------------------------------------------------

    def test_pause_and_resume(self):
        path = "/api/v1/lanes/" + quote("t-a/b")
        self.assertEqual(self.post(path + "/pause"), {"key": "t-a/b", "result": "paused"})
        self.assertTrue(self.call("SISMEMBER", P + "paused", "t-a/b"))
        self.assertEqual(self.post(path + "/pause")["result"], "was paused")
        self.assertEqual(self.post(path + "/resume")["result"], "resumed")
        self.assertFalse(self.call("SISMEMBER", P + "paused", "t-a/b"))
        self.assertEqual(self.post(path + "/resume")["result"], "was not paused")
        who = [row[1] for row in self.call("XRANGE", P + "audit", "-", "+") if b"pause" in row[1]]
        self.assertTrue(any(x.startswith(b"http:token@127.0.0.1") for x in who[0]), who)
        self.assertRegex(self.w.instance.log(), "api: pause of lanes, asked for by 127.0.0.1")

    def test_break(self):
        self.plant("t-a", 1)
        path = "/api/v1/lanes/t-a/break"
        self.assertEqual(self.post(path)["result"], "nobody holds it")
        self.call("SET", P + "lock:t-a", "host-7-ab.9:1700000000000123", "PX", 60000)
        v = self.post(path)
        self.assertEqual((v["result"], v["holder"]), ("would be broken", "host-7-ab"))
        self.assertTrue(self.call("EXISTS", P + "lock:t-a"))
        v = self.post(path, '{"execute":true}')
        self.assertEqual((v["result"], v["holder"]), ("broken", "host-7-ab"))
        self.assertGreater(v["fence"], 1700000000000123)
        self.assertFalse(self.call("EXISTS", P + "lock:t-a"))
        self.assertEqual(self.post(path, '{"execute":true}')["result"], "nobody holds it")

    def test_replay(self):
        one = self.dead()[0]
        path = "/api/v1/dead/%s/replay" % quote(one["id"])
        v = self.post(path)
        self.assertTrue(v["summary"]["dry_run"])
        self.assertEqual(v["results"][0]["result"], "would be put")
        self.assertIn(one["id"], [r["id"] for r in self.dead()])
        before = self.w.sum("messages_total")
        v = self.post(path, '{"execute":true}')
        self.assertEqual(v["results"][0]["result"], "put")
        wait_until(lambda: self.w.sum("messages_total") == before + 1, 60, "run of the replay")
        wait_until(
            lambda: any(r["identity"].startswith(one["identity"] + "#") for r in self.dead()),
            30,
            "its new death",
        )
        self.post(path, '{"execute":true}', status=404)
        self.call("SET", P + "job", "99 x", "PX", 60000)
        try:
            self.post(
                "/api/v1/dead/%s/replay" % quote(self.dead()[0]["id"]),
                '{"execute":true}',
                status=409,
            )
        finally:
            self.call("DEL", P + "job")
        who = [
            self.call("HGET", key, "who")
            for key in self.w.redis.keys()
            if key.startswith((P + "job:").encode())
        ]
        self.assertTrue(any(x and x.startswith(b"http:token@127.0.0.1") for x in who), who)

    # --- many requests, and faults ----------------------------------------------------------------

    def test_concurrent_readers(self):
        for i in range(300):
            self.plant("t-%03d" % i, i)
        wrong = []

        def read(i):
            for _ in range(10):
                connection = http.client.HTTPConnection("127.0.0.1", self.w.port, timeout=60)
                try:
                    connection.request(
                        "GET",
                        (
                            "/api/v1/lanes?limit=500",
                            "/metrics",
                            "/api/v1/dead",
                            "/api/v1/lanes/t-001",
                        )[i % 4],
                    )
                    r = connection.getresponse()
                    text = r.read()
                    # The status 503 is also allowed, because the server refuses requests while too
                    # many requests are waiting.
                    if r.status != 200 and not (
                        r.status == 503 and i % 4 != 1 and b'"error"' in text
                    ):
                        wrong.append((i, r.status, text[:200]))
                finally:
                    connection.close()

        threads = [threading.Thread(target=read, args=(i,)) for i in range(12)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(wrong, [])

    def test_redis_that_hangs(self):
        """If Redis hangs, the API must report the fault, and must still answer requests that need
        no Redis."""
        self.w.redis.signal(signal.SIGSTOP)
        try:
            found = []
            asking = [
                threading.Thread(target=lambda: found.append(self.w.get("/api/v1/lanes")))
                for _ in range(20)
            ]
            for t in asking:
                t.start()
            for path in ("/metrics", "/healthz", "/api/v1/stats", "/api/v1/workers"):
                self.assertEqual(self.w.get(path)[0], 200)
            for t in asking:
                t.join()
            self.assertEqual({status for status, _ in found}, {503})
            texts = {json.loads(text)["error"] for _, text in found}
            self.assertTrue(any(x.startswith("shard 0: Redis") for x in texts), texts)
            self.assertIn("too many requests wait; ask again", texts)
        finally:
            self.w.redis.signal(signal.SIGCONT)
        wait_until(lambda: self.w.get("/api/v1/lanes")[0] == 200, 30, "answers again")


class Alone(unittest.TestCase):
    """Tests of a supervisor with two shards and no API token. The last test stops the Redis of the
    supervisor."""

    def pages(self, w, path, name):
        rows, cursor = [], ""
        while cursor is not None:
            page = json.loads(w.get(path + ("&cursor=" + quote(cursor) if cursor else ""))[1])
            rows += page[name]
            cursor = page["next"]
        return rows

    def two_shards(self, w):
        for shard in (0, 1):
            for i in range(130):
                w.redis.call("SADD", "lw:{audit.%d}:paused" % shard, "t-%d-%d" % (shard, i))
            for i in range(3):
                w.redis.call(
                    "XADD",
                    "lw:{audit.%d}:dead" % shard,
                    "%d-0" % (i + 1),
                    "envelope",
                    envelope(i, "k"),
                    "reason",
                    "r",
                    "attempts",
                    1,
                    "first_ms",
                    1,
                    "last_ms",
                    1000 * i + shard,
                )
        keys = {r["key"] for r in self.pages(w, "/api/v1/lanes?limit=10", "lanes")}
        self.assertEqual(keys, {"t-%d-%d" % (s, i) for s in (0, 1) for i in range(130)})
        for order, ids in (("oldest", (1, 2, 3)), ("newest", (3, 2, 1))):
            for limit in (1, 2, 3, 4, 100):
                rows = self.pages(w, "/api/v1/dead?limit=%d&order=%s" % (limit, order), "dead")
                self.assertEqual(
                    [r["id"] for r in rows], ["%d:%d-0" % (s, i) for s in (0, 1) for i in ids]
                )

    def test_redis_that_is_gone(self):
        with tempfile.TemporaryDirectory(prefix="lw-api-") as folder:
            w = World(folder, shards=2)
            try:
                wait_until(w.serving, 60, "metrics and ready workers")
                status, text = w.get("/api/v1/lanes")
                self.assertEqual((status, json.loads(text)), (200, {"lanes": [], "next": None}))
                for token in (None, "", TOKEN):
                    connection = http.client.HTTPConnection("127.0.0.1", w.port, timeout=30)
                    connection.request(
                        "POST",
                        "/api/v1/lanes/a/pause",
                        None,
                        {"Authorization": "Bearer " + token} if token is not None else {},
                    )
                    r = connection.getresponse()
                    self.assertEqual(r.status, 403, r.read())
                    connection.close()
                self.assertFalse(json.loads(w.get("/api/v1")[1])["writable"])
                self.two_shards(w)
                w.redis.kill()
                for path in (
                    "/api/v1/lanes",
                    "/api/v1/dead",
                    "/api/v1/lanes/a",
                    "/api/v1/dead/0:1-1",
                ):
                    status, text = w.get(path)
                    self.assertEqual(status, 503)
                    self.assertIn(": Redis", json.loads(text)["error"])
                self.assertEqual(w.get("/metrics")[0], 200)
                w.redis.start()
                self.assertEqual(w.get("/api/v1/lanes")[0], 200)
            finally:
                w.close()


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)
