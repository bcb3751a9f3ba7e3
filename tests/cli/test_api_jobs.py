#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests actions of the HTTP API that run as jobs because they concern many lanes or messages. The
tests use a private Redis and the dev broker.
Usage: test_api_jobs.py [BUILD [TEST…]]
No test asserts how long something takes. Time limits only turn a hang into a failure."""

import glob
import http.client
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from api_case import ApiCase, P, TOKEN, envelope, quote  # noqa: E402
from test_metrics import BUILD, World  # noqa: E402
from lib.process import Limit, wait_until  # noqa: E402


class Jobs(ApiCase):
    def setUp(self):
        super().setUp()
        self.killed = []
        self.addCleanup(self.end_jobs)

    def end_jobs(self):
        for j in self.ask("/api/v1/jobs")["jobs"]:
            if j["state"] == "running":
                self.post("/api/v1/jobs/%s/cancel" % j["id"])
                self.ended(j["id"])
        if self.killed:
            self.call("XDEL", P + "dead", *[i.split(":")[1] for i in self.killed])

    def ended(self, job):
        wait_until(
            lambda: self.ask("/api/v1/jobs/" + job)["state"] != "running", 60, "end of the job"
        )
        return self.ask("/api/v1/jobs/" + job)

    def do(self, path, **body):
        """Executes an action through the HTTP API, waits until its job has ended, and returns the
        job."""
        v = self.post("/api/v1/" + path, json.dumps(dict(body, execute=True)), status=202)
        return self.ended(v["job"])

    def dry(self, path, status=200, **body):
        return self.post("/api/v1/" + path, json.dumps(body), status=status)

    def kill(self, n, key="dead-%d", first=1000, reason="r"):
        """Adds n dead letters of a partition that no worker consumes. The payload of each dead
        letter is {"total":OFFSET}. Returns their ids."""
        ids = [
            "0:"
            + self.call(
                "XADD",
                P + "dead",
                "*",
                "envelope",
                envelope(first + i, key % i if "%" in key else key),
                "reason",
                reason,
                "attempts",
                5,
                "first_ms",
                1,
                "last_ms",
                2,
            ).decode()
            for i in range(n)
        ]
        self.killed += ids
        return ids

    def audit(self):
        return [dict(zip(f[::2], f[1::2])) for _, f in self.call("XRANGE", P + "audit", "-", "+")]

    # --- counts -----------------------------------------------------------------------------------

    def test_counts(self):
        for i in range(40):
            self.plant("t-%02d" % i, *([i + 1] if i < 30 else []))
        count = lambda path: self.ask("/api/v1/" + path)  # noqa: E731
        self.assertEqual(count("lanes/count"), {"count": 40, "scanned": 40, "complete": True})
        v = count("lanes/count?match=t-0*")
        self.assertEqual((v["count"], v["complete"]), (10, True))
        self.assertGreaterEqual(v["scanned"], 40)
        self.assertEqual(count("lanes/count?topic=orders")["count"], 30)
        self.assertEqual(count("lanes/count?key=t-01&key=t-35")["count"], 2)
        self.kill(20, reason="counted")
        self.assertEqual(count("dead/count"), {"count": 23, "scanned": 0, "complete": True})
        self.assertEqual(count("dead/count?reason=counted")["count"], 20)
        self.assertEqual(
            count("dead/count?reason=counted&where=%2Ftotal%3E%3D1010"),
            {"count": 10, "scanned": 23, "complete": True},
        )
        self.ask("/api/v1/lanes/count?limit=3", status=400)

    def test_keys_are_shown_while_lanes_are_counted(self):
        """A dry run over many lanes reads all waiting messages, which takes seconds. The API must
        meanwhile show a key, list lanes and pause a lane: each of these requests must once begin
        and end within a dry run. If the API served one request at a time, none ever would."""
        n, chunk = 30000, 1000
        for first in range(0, n, chunk):
            names = ["t-%d" % i for i in range(first, first + chunk)]
            self.call("SADD", P + "paused", *names)
            self.call("ZADD", P + "lanes", *[word for name in names for word in ("9e15", name)])
            self.call(
                "EVAL",
                "for i, k in ipairs(KEYS) do redis.call('LPUSH', k, ARGV[i]) end",
                chunk,
                *[P + "wait:" + name for name in names],
                *[envelope(first + i, name) for i, name in enumerate(names)],
            )
        # Set the marks of the waiting messages directly, 16,384 marks per segment.
        self.call("SETRANGE", P + "state:orders:9:0", 0, b"\x55" * 4096)
        self.call("SETRANGE", P + "state:orders:9:1", 0, b"\x55" * 4096)
        answers, over, reads = [], threading.Event(), lambda: self.calls_of("evalsha")

        def dry_runs():
            while not over.is_set():
                answers.append(
                    self.dry("lanes/drop", filter={"match": "t-*", "where": ["/total>-1"]})
                )

        def within_a_dry_run(request):
            for _ in range(100):
                n, before = len(answers), reads()
                wait_until(lambda: reads() > before + 20, 60, "a dry run that reads", every_s=0.01)
                self.assertTrue(request())
                if len(answers) == n:
                    return
            self.fail("no request ended within a dry run")

        dry = threading.Thread(target=dry_runs)
        dry.start()
        try:
            within_a_dry_run(lambda: self.ask("/api/v1/keys/t-17")["waiting"] == 1)
            within_a_dry_run(lambda: len(self.ask("/api/v1/lanes?limit=20")["lanes"]) >= 20)
            within_a_dry_run(lambda: self.post("/api/v1/lanes/t-new/pause")["result"])
        finally:
            over.set()
            dry.join(60)

    def calls_of(self, command):
        return int(
            re.search(
                rb"cmdstat_%s:calls=(\d+)" % command.encode(), self.call("INFO", "commandstats")
            ).group(1)
        )

    # --- dead letters -----------------------------------------------------------------------------

    def test_replay_of_many(self):
        """A dry run must change nothing and report what would happen. Then a job must really replay
        the dead letters."""
        ids = self.kill(30, reason="again")
        v = self.dry("dead/replay", filter={"reason": "again"})
        self.assertEqual(
            (v["count"], v["complete"], v["failed"], len(v["sample"])), (30, True, 0, 10)
        )
        self.assertRegex(v["sample"][0]["name"], "^orders/9/1000#[0-9]+$")
        self.assertEqual(v["sample"][0]["result"], "would be put")
        self.assertEqual(self.call("XLEN", P + "dead"), 33)
        self.call("SADD", P + "paused", *["dead-%d" % i for i in range(30)])
        j = self.do("dead/replay", filter={"reason": "again"}, limit=20)
        self.assertEqual(
            (j["state"], j["what"], j["done"], j["total"], j["failed"], j["dry_run"]),
            ("done", "dead replay", 20, 20, 0, False),
        )
        self.assertEqual(self.call("XLEN", P + "dead"), 13)
        self.assertEqual(self.call("LLEN", P + "wait:dead-0"), 1)
        self.assertEqual(self.call("GET", P + "job"), None)
        j = self.do("dead/replay", ids=[ids[29], ids[28], "0:1-1"])
        self.assertEqual(
            (j["done"], j["failed"], j["sample"]),
            (2, 1, [{"name": "0:1-1", "result": "not found"}]),
        )
        end = [e for e in self.audit() if e[b"event"] == b"end"][-1]
        self.assertEqual(
            (int(end[b"job"]), end[b"state"], end[b"done"]), (j["number"], b"finished", b"2")
        )
        self.assertTrue(end[b"who"].startswith(b"http:") and j["by"] == end[b"who"].decode(), end)
        for i in range(30):
            self.call("DEL", P + "wait:dead-%d" % i)

    def test_drop_of_many(self):
        """Messages that are dropped must first be written to a backup file, unless the request
        says that it needs no backup."""
        for left in glob.glob("latchwork-dead-drop-*"):
            # Remove the backup that a failed run of this test has left.
            os.unlink(left)
        self.kill(5, reason="old")
        self.assertEqual(
            self.dry("dead/drop", filter={"reason": "old"})["sample"][0]["result"],
            "would be dropped",
        )
        j = self.do("dead/drop", filter={"reason": "old", "where": "/total>1001"})
        self.assertEqual((j["done"], j["state"]), (3, "done"))
        # The backup is in the current folder, because the supervisor also runs in that folder.
        with open("latchwork-dead-drop-%d.jsonl" % j["number"]) as f:
            self.assertEqual(
                [json.loads(line)["payload"] for line in f],
                ['{"total":%d}' % n for n in (1002, 1003, 1004)],
            )
        os.unlink(f.name)
        j = self.do("dead/drop", filter={"reason": "old"}, backup=False)
        self.assertEqual((j["done"], glob.glob("latchwork-dead-drop-*")), (2, []))
        self.assertEqual(len(self.dead()), 3)

    def test_rate_and_cancel(self):
        """While a slow job runs, the API must show the job's progress and refuse a second job. The
        job must stop when it is cancelled."""
        self.kill(50, reason="slow", key="dead-slow")
        self.call("SADD", P + "paused", "dead-slow")
        self.addCleanup(self.call, "DEL", P + "wait:dead-slow")
        job = self.post(
            "/api/v1/dead/replay",
            '{"filter":{"reason":"slow"},"rate_per_s":2,"execute":true}',
            status=202,
        )["job"]
        wait_until(lambda: self.ask("/api/v1/jobs/" + job)["done"] >= 2, 30, "first replays")
        v = self.ask("/api/v1/jobs")["jobs"][0]
        self.assertEqual((v["id"], v["state"]), (job, "running"))
        self.assertLess(v["done"], 50)
        self.assertIn(
            job,
            self.post("/api/v1/lanes/pause", '{"ids":["a"],"execute":true}', status=409)["error"],
        )
        self.assertIn(
            "under way",
            self.post(
                "/api/v1/dead/%s/replay" % quote(self.dead()[0]["id"]),
                '{"execute":true}',
                status=409,
            )["error"],
        )
        self.assertTrue(self.call("EXISTS", P + "job"))
        self.post("/api/v1/jobs/%s/cancel" % job)
        v = self.ended(job)
        self.assertEqual(v["state"], "cancelled")
        self.assertLess(v["done"], 50)
        self.assertEqual(self.call("LLEN", P + "wait:dead-slow"), v["done"])
        self.assertEqual(self.call("EXISTS", P + "job"), 0)
        self.assertEqual(
            [e for e in self.audit() if e[b"event"] == b"end"][-1][b"state"], b"cancelled"
        )
        self.assertEqual(self.post("/api/v1/jobs/%s/cancel" % job)["state"], "cancelled")
        self.post("/api/v1/jobs/1/cancel", status=404)

    def test_a_job_elsewhere(self):
        """While a command on another host runs a job, the API must refuse to start jobs that replay
        or drop messages."""
        self.kill(1)
        self.call("SET", P + "job", "99 x", "PX", 60000)
        try:
            v = self.post(
                "/api/v1/dead/replay", '{"filter":{"match":"*"},"execute":true}', status=409
            )
            self.assertIn("job 99", v["error"])
            self.dry("dead/replay", filter={"match": "*"})
            self.assertEqual(self.do("lanes/pause", ids=["t-x"])["done"], 1)
        finally:
            self.call("DEL", P + "job")

    # --- lanes ------------------------------------------------------------------------------------

    def test_pause_and_resume_of_many(self):
        for i in range(200):
            self.plant("t-%03d" % i, i + 1)
            # no worker drains the lane while it is not paused
            self.call("SET", P + "lock:t-%03d" % i, "host-7-ab.9:1", "PX", 600000)
        self.call("DEL", P + "paused")
        self.call("SADD", P + "paused", "t-idle")
        v = self.dry("lanes/pause", filter={"match": "t-0*"})
        self.assertEqual((v["count"], v["complete"]), (100, True))
        self.assertEqual(self.call("SCARD", P + "paused"), 1)
        j = self.do("lanes/pause", filter={"match": "t-[0i]*"})
        self.assertEqual((j["state"], j["done"], j["left_out"]), ("done", 100, 1))
        self.assertEqual(self.call("SCARD", P + "paused"), 101)
        self.assertEqual(self.dry("lanes/resume", filter={"match": "*"})["count"], 101)
        self.call("SADD", P + "paused", *["t-%03d" % i for i in range(200)])
        j = self.do("lanes/resume", ids=["t-000", "t-001", "t-gone"])
        self.assertEqual((j["done"], j["total"]), (2, 2))
        self.assertEqual(
            self.call("SMISMEMBER", P + "paused", "t-000", "t-001", "t-002"), [0, 0, 1]
        )
        pauses = [e for e in self.audit() if e[b"event"] in (b"pause", b"resume")]
        self.assertEqual([int(e[b"done"]) for e in pauses[-2:]], [100, 2])

    def test_drop_of_waiting(self):
        for lane, offsets in (("t-a", (1, 2, 3)), ("t-b", (4, 5))):
            self.plant(lane, *offsets)
        v = self.dry("lanes/drop", ids=["t-a"])
        self.assertEqual((v["count"], v["sample"][0]["name"]), (3, "orders/9/1"))
        j = self.do("lanes/drop", ids=["t-a"], messages=["orders/9/2"], backup=False)
        self.assertEqual((j["done"], j["failed"]), (1, 0))
        v = self.ask("/api/v1/keys/t-a")
        self.assertEqual([m["identity"] for m in v["messages"]], ["orders/9/1", "orders/9/3"])
        j = self.do(
            "lanes/drop",
            filter={"key": ["t-a", "t-b"], "where": ["/total>2", "/total<5"]},
            backup=False,
        )
        self.assertEqual(j["done"], 2)
        self.assertEqual(self.ask("/api/v1/keys/t-b")["waiting"], 1)

    def test_replay_from_kafka(self):
        """Even the dry run of a replay from Kafka must be a job, because it takes longer than an
        HTTP request may take."""
        identity = self.dead()[0]["identity"].split("#")[0]
        job = self.post(
            "/api/v1/lanes/replay", json.dumps({"messages": [identity], "again": True}), status=202
        )["job"]
        j = self.ended(job)
        self.assertEqual(
            (j["state"], j["dry_run"], j["done"], j.get("error")), ("done", True, 1, None)
        )
        self.assertEqual(j["sample"][0]["result"], "would be put")

    # --- one dead letter --------------------------------------------------------------------------

    def test_edit(self):
        """An edit of a dead letter must check the new payload first, and must keep the original. It
        may also replay the dead letter at once."""
        one, other = self.kill(2, reason="edit", key="dead-edit")
        path = "/api/v1/dead/%s/edit" % quote(one)
        v = self.post(path, '{"payload":"{\\"total\\":7}"}')
        self.assertEqual(
            (v["valid"], v["changed"], v["old"], v["new"], v["result"], v["id"]),
            (True, True, '{"total":1000}', '{"total":7}', "would be edited", one),
        )
        v = self.post(path, '{"payload":"{total"}')
        self.assertFalse(v["valid"])
        self.assertRegex(
            v["error"], "^line 1, column .*expected JSON, because the payload was JSON"
        )
        self.post(path, '{"payload":"{total","execute":true}', status=400)
        for body in (
            "{}",
            '{"payload":"a","payload_base64":"YQ=="}',
            '{"payload_base64":"?"}',
            '{"payload":7}',
        ):
            self.post(path, body, status=400)
        self.assertEqual(self.ask("/api/v1/dead/" + quote(one))["payload"], '{"total":1000}')
        v = self.post(path, '{"payload_base64":"eyJ0b3RhbCI6N30=","execute":true}')
        self.assertEqual(v["result"], "edited")
        self.killed.append(v["id"])
        now = self.ask("/api/v1/dead/" + quote(v["id"]))
        self.assertEqual(
            (now["payload"], now["original_payload"]), ('{"total":7}', '{"total":1000}')
        )
        self.assertTrue(now["edited_by"].startswith("http:token@127."), now)
        self.post(path, '{"payload":"{}","execute":true}', status=404)
        edit = [e for e in self.audit() if e[b"event"] == b"edit"][-1]
        self.assertTrue(edit[b"who"].startswith(b"http:token@"), edit)
        self.call("SADD", P + "paused", "dead-edit")
        self.addCleanup(self.call, "DEL", P + "wait:dead-edit")
        v = self.post(
            "/api/v1/dead/%s/edit" % quote(other),
            '{"payload":"{\\"total\\":8}","execute":true,"replay":true}',
        )
        self.assertEqual((v["result"], v["replayed"]["results"][0]["result"]), ("edited", "put"))
        self.assertEqual(
            [m["payload"] for m in self.ask("/api/v1/keys/dead-edit")["messages"]], ['{"total":8}']
        )

    def test_drop_of_one(self):
        one = self.kill(1, reason="drop")[0]
        path = "/api/v1/dead/%s/drop" % quote(one)
        self.assertEqual(self.post(path)["results"][0]["result"], "would be dropped")
        self.ask("/api/v1/dead/" + quote(one))
        v = self.post(path, '{"execute":true,"backup":false}')
        self.assertEqual(
            (v["results"][0]["result"], v["summary"]["state"]), ("dropped", "finished")
        )
        self.ask("/api/v1/dead/" + quote(one), status=404)
        self.post(path, '{"execute":true,"backup":false}', status=404)

    # --- audit, locks, ledger ---------------------------------------------------------------------

    def test_audit(self):
        """The audit must list the newest entry first. If a client reads the audit in several
        responses, each response must begin after the last entry of the one before it."""
        for i in range(7):
            self.post("/api/v1/lanes/t-%d/pause" % i)
        rows, pages = self.pages("/api/v1/audit?limit=3", "audit")
        self.assertEqual(len(rows), len(self.audit()))
        self.assertGreater(pages, 2)
        one = self.ask("/api/v1/audit?limit=%d" % len(rows))
        self.assertEqual((one["audit"], one["next"]), (rows, None))
        self.assertEqual(
            [r["words"]["words"] for r in rows[:7]], [["t-%d" % i] for i in range(6, -1, -1)]
        )
        self.assertEqual(
            (rows[0]["event"], rows[0]["who"], rows[0]["done"]),
            ("pause", "http:token@127.0.0.1", 1),
        )
        self.assertEqual(
            [r["at_ms"] for r in rows], sorted((r["at_ms"] for r in rows), reverse=True)
        )
        for cursor in ("x", "1-1.9", "1-1", "1-1.0;", "-1-1.0"):
            self.ask("/api/v1/audit?cursor=" + quote(cursor), status=400)

    def test_locks(self):
        for i in range(60):
            self.plant("t-%02d" % i, i + 1)
            self.call(
                "SET", P + "lock:t-%02d" % i, "host-7-0a1b2c3d.9:1700000000000123", "PX", 60000
            )
        self.call("SET", P + "lock:t-back", "backoff:100", "PX", 60000)
        rows, _ = self.pages("/api/v1/locks?limit=10", "locks")
        self.assertEqual(sorted({r["key"] for r in rows}), ["t-%02d" % i for i in range(60)])
        self.assertEqual(
            (
                rows[0]["holder"]["host"],
                rows[0]["holder"]["fence"],
                rows[0]["waiting"],
                rows[0]["paused"],
            ),
            ("host", 1700000000000123, 1, True),
        )
        self.assertEqual(
            [r["key"] for r in self.pages("/api/v1/locks?match=t-0[7]", "locks")[0]], ["t-07"]
        )
        for cursor in ("x", "0", "9.0", "0.x", "0." + 20 * "9"):
            self.ask("/api/v1/locks?cursor=" + cursor, status=400)

    def test_ledger(self):
        self.assertEqual(set(self.ask("/api/v1/ledger")), {"ledger"})
        j = self.ended(self.post("/api/v1/ledger", status=202)["job"])
        self.assertEqual((j["state"], j.get("error")), ("done", None))
        v = self.ask("/api/v1/ledger")["ledger"]
        self.assertEqual(
            (v["ok"], v["wrong"], sum(p["consumed"] for p in v["partitions"])), (True, [], 3)
        )
        code, out, _ = self.w.ledger("--json")
        lines = [json.loads(line) for line in out.splitlines()]
        self.assertEqual((code, lines[:-1]), (0, v["partitions"]))
        self.plant("t-lost")
        self.call("LPUSH", P + "wait:t-lost", envelope(1, "t-lost"))
        self.addCleanup(self.call, "DEL", P + "wait:t-lost")
        self.assertEqual(
            self.ended(self.post("/api/v1/ledger", status=202)["job"])["result"]["ok"], False
        )
        v = self.ask("/api/v1/ledger")["ledger"]
        self.assertIn("unseen", [w["difference"] for w in v["wrong"]])

    # --- export -----------------------------------------------------------------------------------

    def export(self, path):
        """Returns all messages of an export, and the number of HTTP responses in which they
        came."""
        rows, cursor, n, late = [], None, 0, Limit(60)
        while n == 0 or cursor:
            connection = http.client.HTTPConnection("127.0.0.1", self.w.port, timeout=30)
            connection.request("GET", path + ("&cursor=" + quote(cursor) if cursor else ""))
            r = connection.getresponse()
            if r.status == 503 and not late.over():  # Redis did not answer in time
                connection.close()
                continue
            self.assertEqual(r.headers["Content-Type"], "application/x-ndjson")
            rows += [json.loads(line) for line in r.read().splitlines()]
            cursor, n = r.headers["Latchwork-Next"], n + 1
            connection.close()
            self.assertLess(n, 100)
        return rows, n

    def test_export_of_dead_letters(self):
        """An export of dead letters must contain all of them, in responses that follow each other
        without gaps, and an import must accept its lines."""
        self.kill(30, reason="export")
        rows, parts = self.export("/api/v1/dead/export?reason=export")
        self.assertEqual(
            ([r["payload"] for r in rows], parts),
            (['{"total":%d}' % (1000 + i) for i in range(30)], 1),
        )
        lines = "".join(json.dumps(r) + "\n" for r in rows)
        done = subprocess.run(
            [
                BUILD + "/latchwork",
                "queue",
                "import",
                "-",
                "--again",
                "--json",
                "-c",
                self.w.config_path,
            ],
            input=lines,
            capture_output=True,
            text=True,
            check=True,
        )
        self.assertEqual(json.loads(done.stdout.splitlines()[-1])["results"], {"would be put": 30})
        big = b"x" * 1000000
        line = "1 orders 9 5000 0 1 5 1 0 0 %d\n" % len(big)
        self.killed += [
            "0:"
            + self.call(
                "XADD",
                P + "dead",
                "*",
                "envelope",
                line.encode() + b"k" + big,
                "reason",
                "export",
                "attempts",
                5,
                "first_ms",
                1,
                "last_ms",
                2,
            ).decode()
            for _ in range(20)
        ]
        rows, parts = self.export("/api/v1/dead/export?reason=export")
        self.assertEqual([len(r["payload"]) for r in rows][30:], [len(big)] * 20)
        self.assertGreater(parts, 1)
        self.ask("/api/v1/dead/export?cursor=x", status=400)

    def test_export_of_lanes(self):
        """If a response of an export ends within a lane, the next response must begin after the
        last message of the earlier response."""
        want = []
        for lane, n in (("t-a", 30), ("t-b/c", 5), ("t-big", 20)):
            first = len(want) + 1
            self.plant(lane, *range(first, first + n))
            want += ["orders/9/%d" % i for i in range(first, first + n)]
        rows, parts = self.export("/api/v1/lanes/export?topic=orders")
        self.assertEqual((sorted(r["identity"] for r in rows), parts), (sorted(want), 1))
        for i in range(36, 56):
            line = "1 orders 9 %d 0 1 5 5 0 0 1000000\n" % i
            self.call("LPUSH", P + "wait:big-new", line.encode() + b"t-big" + b"x" * 1000000)
        # the workers would take a lane whose list is absent for a moment out of `lanes`
        self.call("RENAME", P + "wait:big-new", P + "wait:t-big")
        for path in (
            "/api/v1/lanes/export?topic=orders",
            "/api/v1/lanes/export?key=t-big&key=t-a&key=t-b%2Fc",
        ):
            rows, parts = self.export(path)
            self.assertEqual(sorted(r["identity"] for r in rows), sorted(want))
            self.assertGreater(parts, 1)
        rows, _ = self.export("/api/v1/lanes/export?where=%2Ftotal%3E30")
        self.assertEqual([r["identity"] for r in rows], want[30:35])
        for cursor in ("x", "0", "9.0", "0.0.zz.a", "0.0.", "-1.0", "0." + 20 * "9"):
            self.ask("/api/v1/lanes/export?cursor=" + quote(cursor), status=400)

    # --- bad requests, and faults -----------------------------------------------------------------

    def test_bad_requests(self):
        for path, body in (
            ("dead/replay", "{}"),
            ("dead/replay", '{"ids":[]}'),
            ("dead/replay", '{"filter":{}}'),
            ("dead/replay", '{"ids":"a"}'),
            ("dead/replay", '{"ids":[1]}'),
            ("dead/replay", '{"filter":{"frob":"x"}}'),
            ("dead/replay", '{"filter":{"key":[1]}}'),
            ("dead/replay", '{"filter":{"match":"*"},"limit":0}'),
            ("dead/replay", '{"filter":{"match":"*"},"rate_per_s":0}'),
            ("dead/replay", '{"filter":{"where":"x"}}'),
            ("dead/replay", '{"filter":{"key":"a","match":"b"}}'),
            ("dead/replay", '{"filter":{"partition":-1}}'),
            ("dead/replay", '{"filter":{"older_than":"soon"}}'),
            ("dead/replay", json.dumps({"ids": ["0:1-%d" % i for i in range(257)]})),
            ("lanes/pause", json.dumps({"ids": ["%d" % i for i in range(257)]})),
            ("lanes/pause", '{"filter":{"reason":"x"}}'),
            ("lanes/pause", '{"ids":["a"],"filter":{"key":"b"}}'),
            ("lanes/drop", '{"execute":true}'),
            # what stands behind a byte 0 must not be cut off: the rest may be another key
            ("lanes/pause", '{"ids":["t-a\\u0000b"]}'),
            ("lanes/pause", '{"filter":{"key":["t-a\\u0000b"]}}'),
            ("lanes/pause", '{"filter":{"match":"*\\u0000b"}}'),
            ("dead/drop", '{"ids":["0:1-1\\u0000b"]}'),
        ):
            self.post("/api/v1/" + path, body, status=400)
        self.assertIn(
            'unknown member "frob"',
            self.post("/api/v1/dead/drop", '{"filter":{"frob":"x"}}', status=400)["error"],
        )
        self.assertFalse(self.ask("/api/v1/jobs/1", status=404).get("id"))
        self.post(
            "/api/v1/dead/drop", '{"filter":{"match":"*"},"execute":true}', status=401, token=None
        )

    def test_many_jobs(self):
        """The API must remember only the last 50 jobs, and list the newest first."""
        for i in range(52):
            last = self.do("lanes/pause", ids=["t-%d" % i])
        jobs = self.ask("/api/v1/jobs")["jobs"]
        self.assertEqual((len(jobs), jobs[0]["id"]), (50, last["id"]))
        self.assertEqual(sorted((j["id"] for j in jobs), reverse=True), [j["id"] for j in jobs])

    def cut_connections(self):
        for line in self.call("CLIENT", "LIST").decode().splitlines():
            if "name=latchwork:operator" in line:
                self.call("CLIENT", "KILL", "ID", dict(w.split("=", 1) for w in line.split())["id"])

    def test_redis_has_cut_idle_connections(self):
        """Redis may close idle connections, for example because of its setting `timeout`. The next
        request must reconnect and succeed, although a POST is never sent twice. This must hold for
        both threads that serve requests."""
        for _ in range(2):
            self.dry("dead/drop", filter={"reason": "none"})
            self.post("/api/v1/lanes/idle/pause")
            self.post("/api/v1/lanes/idle/resume")
            self.cut_connections()

    def test_redis_ends_while_a_job_runs(self):
        self.kill(50, reason="cut", key="dead-cut")
        self.call("SADD", P + "paused", "dead-cut")
        job = self.post(
            "/api/v1/dead/replay",
            '{"filter":{"reason":"cut"},"rate_per_s":5,"execute":true}',
            status=202,
        )["job"]
        wait_until(lambda: self.ask("/api/v1/jobs/" + job)["done"] >= 2, 30, "first replays")
        self.cut_connections()
        j = self.ended(job)
        self.assertEqual(j["state"], "failed")
        self.assertTrue(j["error"].startswith("shard 0: Redis"), j["error"])
        self.call("DEL", P + "job", P + "wait:dead-cut")


class Masked(unittest.TestCase):
    """Tests a supervisor whose API masks some values of each payload (http.payloads: mask), and
    another one whose API shows no payload (http.payloads: hide)."""

    def look(self, payloads, **more):
        with tempfile.TemporaryDirectory(prefix="lw-api-") as folder:
            w = World(folder, token=TOKEN, payloads=payloads, **more)
            try:
                wait_until(w.serving, 60, "metrics and ready workers")
                ident = w.redis.call(
                    "XADD",
                    P + "dead",
                    "*",
                    "envelope",
                    envelope(1, "k"),
                    "original",
                    envelope(4711, "k"),
                    "reason",
                    "r",
                    "attempts",
                    1,
                    "first_ms",
                    1,
                    "last_ms",
                    2,
                ).decode()
                w.redis.call(
                    "XADD",
                    P + "dead",
                    "*",
                    "envelope",
                    b"torn 4711",
                    "reason",
                    "r",
                    "attempts",
                    1,
                    "first_ms",
                    1,
                    "last_ms",
                    2,
                )
                w.redis.call("SADD", P + "paused", "k")
                w.redis.call("LPUSH", P + "wait:k", envelope(4711, "k"))
                w.redis.call(
                    "BITFIELD", P + "state:orders:9:1", "SET", "u2", "#%d" % (4711 - 4096), 1
                )
                w.redis.call("ZADD", P + "lanes", "9e15", "k")
                one = "/api/v1/dead/" + quote("0:" + ident)
                texts = [
                    w.get(path)[1]
                    for path in ("/api/v1/dead", one, "/api/v1/lanes/k", "/api/v1/keys/k")
                ]
                connection = http.client.HTTPConnection("127.0.0.1", w.port, timeout=30)
                connection.request(
                    "POST", one + "/edit", '{"payload":"x"}', {"Authorization": "Bearer " + TOKEN}
                )
                edit = connection.getresponse()
                texts.append(edit.read().decode())
                connection.close()
                self.assertEqual(edit.status, 403)
                self.assertEqual([t for t in texts if "4711}" in t or "torn" in t], [])
                found = json.loads(w.get("/api/v1/dead/count?where=%2Ftotal%3D1")[1])
                self.assertEqual(found["count"], 1)
                return [json.loads(t) for t in texts[:4]]
            finally:
                w.close()

    def test_mask(self):
        dead, one, lane, key = self.look("mask", mask=["/total"])
        self.assertEqual(
            (dead["dead"][0]["payload"], dead["dead"][0]["payload_masked"]),
            ('{"total":"•••"}', True),
        )
        self.assertEqual(
            (dead["dead"][1]["envelope"], dead["dead"][1]["payload_hidden"]), (None, True)
        )
        self.assertEqual(
            (one["original_payload"], one["original_payload_masked"]), ('{"total":"•••"}', True)
        )
        self.assertEqual(
            (lane["messages"][0]["payload"], key["messages"][0]["payload"]),
            ('{"total":"•••"}', '{"total":"•••"}'),
        )
        self.assertEqual(key["dead"][0]["payload"], '{"total":"•••"}')

    def test_hide(self):
        dead, one, lane, key = self.look("hide")
        for m in (dead["dead"][0], one, lane["messages"][0], key["messages"][0], key["dead"][0]):
            self.assertEqual((m["payload"], m["payload_hidden"]), (None, True))
        self.assertEqual(
            (one["payload_size"], one["original_payload"], one["original_payload_hidden"]),
            (11, None, True),
        )


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)
