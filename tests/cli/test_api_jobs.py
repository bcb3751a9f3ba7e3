#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests actions of the HTTP API over many lanes and messages, which run as jobs, on a private Redis and
the dev broker.
Usage: test_api_jobs.py [BUILD [TEST…]]
No test asserts a time. Waits have limits only to make a hang a failure."""
import glob
import json
import os
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from api_case import ApiCase, P, envelope, quote  # noqa: E402
from lib.process import wait_until  # noqa: E402


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
        wait_until(lambda: self.ask("/api/v1/jobs/" + job)["state"] != "running", 60, "end of the job")
        return self.ask("/api/v1/jobs/" + job)

    def do(self, path, **body):
        """Executes an action through the HTTP API, and waits until its job has ended. Returns the job."""
        v = self.post("/api/v1/" + path, json.dumps(dict(body, execute=True)), status=202)
        return self.ended(v["job"])

    def dry(self, path, status=200, **body):
        return self.post("/api/v1/" + path, json.dumps(body), status=status)

    def kill(self, n, key="dead-%d", first=1000, reason="r"):
        """Adds dead letters of a partition that no worker consumes. The payload of each letter is
        {"total":OFFSET}. Returns the ids."""
        ids = ["0:" + self.call("XADD", P + "dead", "*", "envelope", envelope(first + i, key % i if "%" in key else key), "reason", reason,
                                 "attempts", 5, "first_ms", 1, "last_ms", 2).decode() for i in range(n)]
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
        self.assertEqual(count("dead/count?reason=counted&where=%2Ftotal%3E%3D1010"), {"count": 10, "scanned": 23, "complete": True})
        self.ask("/api/v1/lanes/count?limit=3", status=400)

    # --- dead letters -----------------------------------------------------------------------------

    def test_replay_of_many(self):
        """A dry run must change nothing and tell what would happen. Then a job must do the same to all
        messages."""
        ids = self.kill(30, reason="again")
        v = self.dry("dead/replay", filter={"reason": "again"})
        self.assertEqual((v["count"], v["complete"], v["failed"], len(v["sample"])), (30, True, 0, 10))
        self.assertRegex(v["sample"][0]["name"], "^orders/9/1000#[0-9]+$")
        self.assertEqual(v["sample"][0]["result"], "would be put")
        self.assertEqual(self.call("XLEN", P + "dead"), 33)
        self.call("SADD", P + "paused", *["dead-%d" % i for i in range(30)])
        j = self.do("dead/replay", filter={"reason": "again"}, limit=20)
        self.assertEqual((j["state"], j["what"], j["done"], j["total"], j["failed"], j["dry_run"]), ("done", "dead replay", 20, 20, 0, False))
        self.assertEqual(self.call("XLEN", P + "dead"), 13)
        self.assertEqual(self.call("LLEN", P + "wait:dead-0"), 1)
        self.assertEqual(self.call("GET", P + "job"), None)
        j = self.do("dead/replay", ids=[ids[29], ids[28], "0:1-1"])
        self.assertEqual((j["done"], j["failed"], j["sample"]), (2, 1, [{"name": "0:1-1", "result": "not found"}]))
        end = [e for e in self.audit() if e[b"event"] == b"end"][-1]
        self.assertEqual((int(end[b"job"]), end[b"state"], end[b"done"]), (j["number"], b"finished", b"2"))
        self.assertTrue(end[b"who"].startswith(b"http:") and j["by"] == end[b"who"].decode(), end)
        for i in range(30):
            self.call("DEL", P + "wait:dead-%d" % i)

    def test_drop_of_many(self):
        """Messages that are dropped must be written to a backup first, unless the request refuses the
        backup."""
        for left in glob.glob("latchwork-dead-drop-*"):
            os.unlink(left)  # removes what an earlier run left that failed
        self.kill(5, reason="old")
        self.assertEqual(self.dry("dead/drop", filter={"reason": "old"})["sample"][0]["result"], "would be dropped")
        j = self.do("dead/drop", filter={"reason": "old", "where": "/total>1001"})
        self.assertEqual((j["done"], j["state"]), (3, "done"))
        # The backup is in the current folder, because the supervisor runs there, too.
        with open("latchwork-dead-drop-%d.jsonl" % j["number"]) as f:
            self.assertEqual([json.loads(line)["payload"] for line in f], ['{"total":%d}' % n for n in (1002, 1003, 1004)])
        os.unlink(f.name)
        j = self.do("dead/drop", filter={"reason": "old"}, backup=False)
        self.assertEqual((j["done"], glob.glob("latchwork-dead-drop-*")), (2, []))
        self.assertEqual(len(self.dead()), 3)

    def test_rate_and_cancel(self):
        """While a slow job runs, the API must show how far it is and refuse a second job. The job must
        stop when it is cancelled."""
        self.kill(50, reason="slow", key="dead-slow")
        self.call("SADD", P + "paused", "dead-slow")
        self.addCleanup(self.call, "DEL", P + "wait:dead-slow")
        job = self.post("/api/v1/dead/replay", '{"filter":{"reason":"slow"},"rate_per_s":2,"execute":true}', status=202)["job"]
        wait_until(lambda: self.ask("/api/v1/jobs/" + job)["done"] >= 2, 30, "first replays")
        v = self.ask("/api/v1/jobs")["jobs"][0]
        self.assertEqual((v["id"], v["state"]), (job, "running"))
        self.assertLess(v["done"], 50)
        self.assertIn(job, self.post("/api/v1/lanes/pause", '{"ids":["a"],"execute":true}', status=409)["error"])
        self.assertIn("under way", self.post("/api/v1/dead/%s/replay" % quote(self.dead()[0]["id"]), '{"execute":true}', status=409)["error"])
        self.assertTrue(self.call("EXISTS", P + "job"))
        self.post("/api/v1/jobs/%s/cancel" % job)
        v = self.ended(job)
        self.assertEqual(v["state"], "cancelled")
        self.assertLess(v["done"], 50)
        self.assertEqual(self.call("LLEN", P + "wait:dead-slow"), v["done"])
        self.assertEqual(self.call("EXISTS", P + "job"), 0)
        self.assertEqual([e for e in self.audit() if e[b"event"] == b"end"][-1][b"state"], b"cancelled")
        self.assertEqual(self.post("/api/v1/jobs/%s/cancel" % job)["state"], "cancelled")
        self.post("/api/v1/jobs/1/cancel", status=404)

    def test_a_job_elsewhere(self):
        """While a command on another host runs a job, the API must refuse jobs that replay or drop."""
        self.kill(1)
        self.call("SET", P + "job", "99 x", "PX", 60000)
        try:
            v = self.post("/api/v1/dead/replay", '{"filter":{"match":"*"},"execute":true}', status=409)
            self.assertIn("job 99", v["error"])
            self.dry("dead/replay", filter={"match": "*"})
            self.assertEqual(self.do("lanes/pause", ids=["t-x"])["done"], 1)
        finally:
            self.call("DEL", P + "job")

    # --- lanes ------------------------------------------------------------------------------------

    def test_pause_and_resume_of_many(self):
        for i in range(200):
            self.plant("t-%03d" % i, i + 1)
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
        self.assertEqual(self.call("SMISMEMBER", P + "paused", "t-000", "t-001", "t-002"), [0, 0, 1])
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
        j = self.do("lanes/drop", filter={"key": ["t-a", "t-b"], "where": ["/total>2", "/total<5"]}, backup=False)
        self.assertEqual(j["done"], 2)
        self.assertEqual(self.ask("/api/v1/keys/t-b")["waiting"], 1)

    def test_replay_from_kafka(self):
        """The dry run of a replay from Kafka must be a job, too, because it takes longer than a request
        may take."""
        identity = self.dead()[0]["identity"].split("#")[0]
        job = self.post("/api/v1/lanes/replay", json.dumps({"messages": [identity], "again": True}), status=202)["job"]
        j = self.ended(job)
        self.assertEqual((j["state"], j["dry_run"], j["done"], j.get("error")), ("done", True, 1, None))
        self.assertEqual(j["sample"][0]["result"], "would be put")

    # --- bad requests, and faults -----------------------------------------------------------------

    def test_bad_requests(self):
        for path, body in (("dead/replay", "{}"), ("dead/replay", '{"ids":[]}'), ("dead/replay", '{"filter":{}}'), ("dead/replay", '{"ids":"a"}'),
                           ("dead/replay", '{"ids":[1]}'), ("dead/replay", '{"filter":{"frob":"x"}}'), ("dead/replay", '{"filter":{"key":[1]}}'),
                           ("dead/replay", '{"filter":{"match":"*"},"limit":0}'), ("dead/replay", '{"filter":{"match":"*"},"rate_per_s":0}'),
                           ("dead/replay", '{"filter":{"where":"x"}}'), ("dead/replay", '{"filter":{"key":"a","match":"b"}}'),
                           ("dead/replay", '{"filter":{"partition":-1}}'), ("dead/replay", '{"filter":{"older_than":"soon"}}'),
                           ("dead/replay", json.dumps({"ids": ["0:1-%d" % i for i in range(257)]})),
                           ("lanes/pause", json.dumps({"ids": ["%d" % i for i in range(257)]})), ("lanes/pause", '{"filter":{"reason":"x"}}'),
                           ("lanes/pause", '{"ids":["a"],"filter":{"key":"b"}}'), ("lanes/drop", '{"execute":true}')):
            self.post("/api/v1/" + path, body, status=400)
        self.assertIn('"frob" is not known here', self.post("/api/v1/dead/drop", '{"filter":{"frob":"x"}}', status=400)["error"])
        self.assertFalse(self.ask("/api/v1/jobs/1", status=404).get("id"))
        self.post("/api/v1/dead/drop", '{"filter":{"match":"*"},"execute":true}', status=401, token=None)

    def test_many_jobs(self):
        """The API must remember only the last 50 jobs, and list the newest first."""
        for i in range(52):
            last = self.do("lanes/pause", ids=["t-%d" % i])
        jobs = self.ask("/api/v1/jobs")["jobs"]
        self.assertEqual((len(jobs), jobs[0]["id"]), (50, last["id"]))
        self.assertEqual(sorted((j["id"] for j in jobs), reverse=True), [j["id"] for j in jobs])

    def test_redis_ends_while_a_job_runs(self):
        self.kill(50, reason="cut", key="dead-cut")
        self.call("SADD", P + "paused", "dead-cut")
        job = self.post("/api/v1/dead/replay", '{"filter":{"reason":"cut"},"rate_per_s":5,"execute":true}', status=202)["job"]
        wait_until(lambda: self.ask("/api/v1/jobs/" + job)["done"] >= 2, 30, "first replays")
        for line in self.call("CLIENT", "LIST").decode().splitlines():
            if "name=latchwork:operator" in line:
                self.call("CLIENT", "KILL", "ID", dict(w.split("=", 1) for w in line.split())["id"])
        j = self.ended(job)
        self.assertEqual(j["state"], "failed")
        self.assertTrue(j["error"].startswith("shard 0: Redis"), j["error"])
        self.call("DEL", P + "job", P + "wait:dead-cut")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)
