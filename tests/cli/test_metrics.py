#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the metrics, the health checks and the ledger of a running supervisor, on a private Redis
and the dev broker.
Usage: test_metrics.py [BUILD]
No test asserts a time. Time limits only turn a hang into a failure."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest
import urllib.error
import urllib.request

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
sys.path.insert(0, os.path.join(ROOT, "tests/live"))
sys.dont_write_bytecode = True
from lib.latchwork import Instance, config  # noqa: E402
from lib.ports import free_port  # noqa: E402
from lib.process import children, wait_until  # noqa: E402
from lib.redis import Redis  # noqa: E402

BUILD = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "build")
HANDLER = r'''
import json, os, sys, time
for line in sys.stdin:
    m = json.loads(line)
    if "cancel" in m: continue
    while os.path.exists(os.environ["GATE"]): time.sleep(0.01)
    bad = m["key"].startswith("bad")
    outcome, reason = ("dead", "it says so") if bad else ("done", "")
    print(json.dumps({"id": m["id"], "outcome": outcome, "reason": reason}), flush=True)
'''
SAMPLE = re.compile(
    r'^(latchwork_[a-z_]+)(?:\{([a-z]+="(?:[^"\\\n]|\\["\\n])*"(?:,[a-z]+="(?:[^"\\\n]|\\["\\n])*")*)\})? (-?[0-9.e+-]+|\+Inf|NaN)$'
)


def parse(text):
    """Parses a response of /metrics. Returns the samples as {(name, labels): value}, and the types
    of the metrics as {name: type}. Fails if the text breaks a rule of Prometheus. For example, one
    HELP line and one TYPE line must come before the samples of each metric."""
    assert text.endswith("\n")
    samples, types, family = {}, {}, None
    for line in text.splitlines():
        if line.startswith("# HELP "):
            family = line.split(" ", 3)[2]
            assert family not in types and line.split(" ", 3)[3], line
        elif line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            assert name == family and kind in ("counter", "gauge", "histogram"), line
            types[name] = kind
        else:
            match = SAMPLE.match(line)
            assert match, "not a sample: " + line
            name, labels, value = match.groups()
            base = (
                re.sub("_(bucket|sum|count)$", "", name)
                if types.get(family) == "histogram"
                else name
            )
            assert base == family and (name, labels) not in samples, line
            assert types[family] != "counter" or name.endswith("_total"), line
            samples[name, labels] = float(value)
    for name in (n for n, kind in types.items() if kind == "histogram"):
        buckets = [v for (n, _), v in samples.items() if n == name + "_bucket"]
        assert buckets == sorted(buckets) and buckets[-1] == samples[name + "_count", None], name
    return samples, types


class World:
    def __init__(self, directory, shards=1, more=None, **http):
        self.dir = directory
        self.gate = os.path.join(directory, "gate")
        self.redis = Redis(os.path.join(directory, "redis"))
        self.redis.start()
        self.broker = subprocess.Popen(
            [BUILD + "/tests/tools/mockcluster", "orders:3"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.brokers = self.broker.stdout.readline().decode().strip()
        self.port, self.health_port = free_port(), free_port()
        path = os.path.join(directory, "handler.py")
        with open(path, "w") as f:
            f.write(HANDLER)
        self.settings = config(
            "audit",
            self.brokers,
            self.redis.url,
            ["orders"],
            workers=2,
            http=dict(
                http,
                listen="127.0.0.1:%d" % self.port,
                health_listen="127.0.0.1:%d" % self.health_port,
            ),
            kafka={"properties": {"session.timeout.ms": "6000"}},
            redis={"shards": shards},
            handler={
                "type": "exec",
                "command": [sys.executable, "-S", "-E", path],
                "processes": 2,
                "timeout_ms": 60000,
            },
            **(more or {}),
        )
        self.instance = Instance(BUILD, directory, "one", self.settings, {"GATE": self.gate})
        self.config_path = os.path.join(directory, "one.json")

    def get(self, path, port=None, **headers):
        request = urllib.request.Request(
            "http://127.0.0.1:%d%s" % (port or self.port, path), headers=headers
        )
        try:
            with urllib.request.urlopen(request, timeout=10) as r:
                return r.status, r.read().decode()
        except urllib.error.HTTPError as e:
            return e.code, e.read().decode()

    def scrape(self):
        return parse(self.get("/metrics")[1])[0]

    def sum(self, name):
        return sum(v for (n, _), v in self.scrape().items() if n == "latchwork_" + name)

    def caught_up(self):
        lag = [v for (n, _), v in self.scrape().items() if n == "latchwork_kafka_lag"]
        return lag == [0, 0, 0] and self.sum("waiting_messages") == 0

    def produce(self, *arguments):
        subprocess.run(
            [BUILD + "/tests/tools/kafkatool", self.brokers, "generate", "orders"]
            + [str(a) for a in arguments],
            check=True,
            stdout=subprocess.DEVNULL,
        )

    def serving(self):
        self.instance.check_running()
        try:
            return self.get("/readyz")[0] == 200
        except OSError:
            return False

    def ledger(self, *options):
        done = subprocess.run(
            [BUILD + "/latchwork", "ledger", "-c", self.config_path, *options],
            capture_output=True,
            text=True,
            timeout=120,
        )
        return done.returncode, done.stdout, done.stderr

    def let_wait(self, messages, seed):
        """Makes messages of two keys wait. First creates the file `gate`, because no handler ends
        while that file exists. Returns when the output of the ledger no longer changes."""
        open(self.gate, "w").close()
        self.produce(
            "--messages", messages, "--keys", 2, "--partitioner", "roundrobin", "--seed", seed
        )
        wait_until(
            lambda: self.sum("lanes") > 0 and self.sum("waiting_messages") > 0,
            60,
            "messages that wait",
        )
        last = None

        def settled():
            nonlocal last
            was, last = last, self.ledger("--json")[1]
            return last == was

        wait_until(settled, 60, "nothing that moves", 0.5)

    def close(self):
        if os.path.exists(self.gate):
            os.unlink(self.gate)
        self.instance.destroy()
        self.broker.stdin.close()
        self.broker.stdout.close()
        self.broker.wait(10)
        self.redis.stop()


class Running(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="lw-metrics-")
        cls.w = World(cls.folder.name)
        cls.addClassCleanup(cls.folder.cleanup)
        cls.addClassCleanup(cls.w.close)
        wait_until(cls.w.serving, 60, "metrics and ready workers")
        cls.w.produce("--messages", 1500, "--keys", 40)
        cls.w.produce("--messages", 5, "--keys", 5, "--prefix", "bad-", "--seed", 2)
        wait_until(lambda: cls.w.sum("messages_total") == 1505, 60, "end of all messages")
        cls.first = cls.w.scrape()

    def setUp(self):
        if os.path.exists(self.w.gate):
            os.unlink(self.w.gate)

    def test_counts(self):
        s = self.first
        self.assertEqual(s["latchwork_messages_total", 'outcome="done"'], 1500)
        self.assertEqual(s["latchwork_messages_total", 'outcome="dead"'], 5)
        self.assertEqual(s["latchwork_end_to_end_seconds_count", None], 1505)
        self.assertEqual(s["latchwork_handler_duration_seconds_count", None], 1505)
        self.assertEqual(s["latchwork_wait_seconds_count", None], 1505)
        self.assertGreater(s["latchwork_redis_round_trip_seconds_count", None], 0)
        self.assertGreater(s["latchwork_lock_acquire_total", 'result="granted"'], 0)
        self.assertEqual(s["latchwork_workers", 'state="ready"'], 2)
        wait_until(lambda: self.w.sum("dead_letters") == 5, 30, "count of the dead letters")
        self.assertEqual(
            s[
                "latchwork_build_info",
                'version="%s"' % json.loads(self.w.get("/version")[1])["version"],
            ],
            1,
        )

    def test_every_name_is_told_of(self):
        names = subprocess.run(
            [BUILD + "/latchwork", "check", "--metric-names"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        wait_until(
            lambda: self.w.sum("redis_up") == 1 and self.w.caught_up(),
            30,
            "look at Redis, and all partitions",
        )
        # Metrics of the http handler exist only if a worker has such a handler.
        self.assertEqual(
            {n for n, _ in self.w.scrape()},
            {n for n in names if not n.startswith("latchwork_handler_http_")},
        )

    def test_paths(self):
        self.assertEqual(self.w.get("/healthz"), (200, "ok\n"))
        self.assertEqual(self.w.get("/nonsense")[0], 404)
        self.assertEqual(self.w.get("/metrics", Host="evil.example")[0], 421)
        self.assertEqual(self.w.get("/metrics", Host="localhost:1")[0], 200)
        workers = json.loads(self.w.get("/api/v1/workers")[1])
        self.assertEqual([w["state"] for w in workers], ["ready", "ready"])
        self.assertGreaterEqual(json.loads(self.w.get("/api/v1/counters")[1])["done"], 1500)
        partitions = json.loads(self.w.get("/api/v1/partitions")[1])
        self.assertEqual(sorted(p["partition"] for p in partitions), [0, 1, 2])

    def test_health_has_a_port_of_its_own(self):
        """Where everybody may reach the port of metrics and health, nobody may read keys there."""
        port = self.w.health_port
        for path in ("/healthz", "/readyz", "/metrics"):
            self.assertEqual(self.w.get(path, port)[0], 200)
        for path in ("/", "/app.js", "/api/v1/session", "/api/v1/lanes", "/version"):
            self.assertEqual(self.w.get(path, port)[0], 404, path)

    def test_no_payload_and_no_key_in_the_log(self):
        line = next(
            line for line in self.w.instance.log().splitlines() if "is a dead letter" in line
        )
        self.assertRegex(
            line,
            r'warn .*orders/\d/\d+ is a dead letter: it says so id=orders/\d/\d+ key_hash=[0-9a-f]{16} attempt=1 fence=\d+ duration_ms=\d+$',
        )
        self.assertNotIn("bad-", self.w.instance.log())
        self.assertNotIn("amount", self.w.instance.log())

    def test_state_of_a_worker_in_the_log(self):
        os.kill(self.w.instance.pid, signal.SIGUSR1)
        wait_until(lambda: self.w.instance.log().count("dump: end") >= 2, 30, "both dumps")
        log = self.w.instance.log()
        self.assertRegex(
            log,
            r"dump: orders:0 watermark \d+ for \d+ ms, committed \d+, next \d+, unfinished 0, waiting 0\n",
        )
        self.assertRegex(log, r"dump: shard 0 ready, epoch [0-9a-f]{32}")

    def test_counters_go_on_when_a_worker_dies(self):
        before, types = parse(self.w.get("/metrics")[1])
        starts = self.w.sum("worker_starts_total")
        self.w.instance.kill_worker(self.w.instance.workers()[0])
        wait_until(lambda: self.w.sum("worker_starts_total") > starts, 60, "new worker")
        self.w.produce("--messages", 100, "--keys", 10, "--seed", 3)
        done = before["latchwork_messages_total", 'outcome="done"']
        last = before

        def all_done():
            nonlocal last
            s = self.w.scrape()
            for key, value in last.items():
                family = re.sub("_(bucket|sum|count)$", "", key[0])
                if types.get(key[0]) == "counter" or types.get(family) == "histogram":
                    self.assertGreaterEqual(s[key], value, key)
            last = s
            return s["latchwork_messages_total", 'outcome="done"'] >= done + 100

        wait_until(all_done, 60, "end of what came after the kill")
        wait_until(self.w.caught_up, 60, "end of the lag")

    def test_exporter_comes_back(self):
        count = lambda: self.w.instance.log().count("metrics on http://")  # noqa: E731
        was = count()
        exporter = next(self.exporters())
        os.kill(exporter, signal.SIGKILL)
        wait_until(lambda: count() > was and self.w.serving(), 30, "metrics again")

    def exporters(self):
        found = set(children(self.w.instance.pid)) - set(self.w.instance.workers())
        port = "%04X" % self.w.port
        with open("/proc/net/tcp") as f:
            rows = [line.split() for line in f]
        inodes = {row[9] for row in rows if row[1].endswith(":" + port) and row[3] == "0A"}
        for pid in found:
            for fd in os.listdir("/proc/%d/fd" % pid):
                if os.readlink("/proc/%d/fd/%s" % (pid, fd)) in {"socket:[%s]" % i for i in inodes}:
                    yield pid

    def test_ledger_agrees_while_it_runs(self):
        self.w.let_wait(300, 10)
        status, out, err = self.w.ledger("--json")
        self.assertEqual((status, err), (0, ""))
        rows = [json.loads(line) for line in out.splitlines()]
        self.assertTrue(rows[-1]["ok"])
        self.assertGreater(rows[-1]["waiting"], 0)
        for row in rows[:-1]:
            self.assertEqual(
                row["consumed"],
                sum(row[k] for k in ("committed", "done", "dead", "waiting", "in_hand")),
            )
            self.assertEqual(row["begin"] + row["consumed"] + row["not_gated"], row["end"])
            self.assertEqual(row["waiting"], row["listed"])
        wait_until(lambda: self.w.sum("waiting_age_seconds") > 0, 30, "age of what waits")
        os.unlink(self.w.gate)
        # The ledger must also find no difference while messages leave the waiting lists.
        while self.w.sum("waiting_messages"):
            status, out, err = self.w.ledger()
            self.assertEqual((status, err), (0, ""), out)
        wait_until(self.w.caught_up, 60, "end of all messages")
        status, out, _ = self.w.ledger()
        self.assertEqual(status, 0, out)
        self.assertIn("it agrees: 0 messages and 0 replays waiting in 0 lanes", out)

    def test_ledger_says_what_does_not_answer(self):
        status, out, err = self.w.ledger("--set", "redis.url=unix:///nonexistent/redis.sock")
        self.assertEqual((status, out), (1, ""))
        self.assertIn("Redis at /nonexistent/redis.sock", err)


class Faults(unittest.TestCase):
    """Tests that the ledger finds faults. The tests make the faults by hand after the workers have
    ended, so no worker repairs them."""

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="lw-metrics-")
        cls.w = World(cls.folder.name)
        cls.addClassCleanup(cls.folder.cleanup)
        cls.addClassCleanup(cls.w.close)
        wait_until(cls.w.serving, 60, "metrics and ready workers")
        cls.w.produce("--messages", 100, "--keys", 10)
        wait_until(
            lambda: cls.w.sum("messages_total") == 100 and cls.w.caught_up(),
            60,
            "end of all messages",
        )
        cls.w.let_wait(200, 11)
        cls.w.instance.destroy()
        # The tests of this class use one message, the newest of a waiting list.
        cls.list = next(k for k in cls.w.redis.keys() if k.startswith(b"lw:{audit.0}:wait:"))
        cls.lane = cls.list[len(b"lw:{audit.0}:wait:") :]
        cls.envelope = cls.w.redis.call("LINDEX", cls.list, 0)
        _, topic, cls.partition, cls.offset = cls.envelope.split(b" ", 4)[:4]
        cls.state = b"lw:{audit.0}:state:%s:%s:%d" % (
            topic,
            cls.partition,
            int(cls.offset) // 16384,
        )
        cls.bit = 2 * (int(cls.offset) % 16384)

    def setUp(self):
        self.agrees()

    def tearDown(self):
        self.agrees()

    def agrees(self):
        status, out, err = self.w.ledger()
        self.assertEqual((status, err), (0, ""), out)

    def differs(self, *words):
        status, out, _ = self.w.ledger("--json")
        self.assertEqual(status, 1, out)
        found = [json.loads(line) for line in out.splitlines() if '"difference"' in line]
        self.assertEqual(sorted({f["difference"] for f in found}), sorted(words), out)
        status, out, _ = self.w.ledger()
        self.assertEqual(status, 1)
        self.assertIn("\ndifference: ", out)
        self.assertIn("it does not agree", out)
        return found[0]

    def redis(self, *args):
        return self.w.redis.call(*args)

    def test_state_flipped_from_waiting_to_unseen(self):
        self.redis("SETBIT", self.state, self.bit + 1, 0)
        self.assertEqual(self.differs("unmarked")["offset"], int(self.offset))
        self.redis("SETBIT", self.state, self.bit + 1, 1)

    def test_state_of_a_message_that_was_never_parked(self):
        # Use an offset beyond the end of the log, which no message has yet.
        free = 2 * 16000
        self.redis("SETBIT", self.state, free + 1, 1)
        self.differs("missing", "beyond")
        self.redis("SETBIT", self.state, free + 1, 0)

    def test_message_taken_out_of_its_list(self):
        self.redis("LPOP", self.list)
        self.assertEqual(self.differs("missing")["offset"], int(self.offset))
        self.redis("LPUSH", self.list, self.envelope)

    def test_message_in_two_lists(self):
        self.redis("LPUSH", "lw:{audit.0}:wait:other", self.envelope)
        self.redis("ZADD", "lw:{audit.0}:lanes", "9e15", "other")
        self.assertEqual(self.differs("twice")["offset"], int(self.offset))
        self.redis("DEL", "lw:{audit.0}:wait:other")
        self.redis("ZREM", "lw:{audit.0}:lanes", "other")

    def test_list_that_nobody_looks_after(self):
        score = self.redis("ZSCORE", "lw:{audit.0}:lanes", self.lane)
        self.redis("ZREM", "lw:{audit.0}:lanes", self.lane)
        self.assertEqual(self.differs("unseen")["lane"], self.lane.decode())
        self.redis("ZADD", "lw:{audit.0}:lanes", score, self.lane)

    def test_replays_in_a_long_list_count_once(self):
        """The ledger reads a long list by several requests whose ranges overlap. It must count each
        replay only once."""
        _, topic, partition, _, _, rest = self.envelope.split(b" ", 5)
        for i in range(600):
            replay = b"1 %s %s %d 7 %s" % (topic, partition, i, rest)
            self.redis("LPUSH", "lw:{audit.0}:wait:other", replay)
        self.redis("ZADD", "lw:{audit.0}:lanes", "9e15", "other")
        status, out, _ = self.w.ledger("--json")
        self.assertEqual(status, 0, out)
        rows = [json.loads(line) for line in out.splitlines()]
        self.assertEqual(sum(row["replays"] for row in rows[:-1]), 600, out)
        self.redis("DEL", "lw:{audit.0}:wait:other")
        self.redis("ZREM", "lw:{audit.0}:lanes", "other")

    def test_what_is_not_a_message(self):
        self.redis("LPUSH", self.list, "garbage")
        self.differs("torn")
        self.redis("LPOP", self.list)

    def test_floor_above_the_commit(self):
        name = b"orders:" + self.partition
        floor = self.redis("HGET", "lw:{audit.0}:floor", name)
        self.redis("HINCRBY", "lw:{audit.0}:floor", name, 1)
        status, out, _ = self.w.ledger("--json")
        self.assertEqual(status, 1, out)
        self.assertIn('"difference":"floor"', out)
        self.redis("HSET", "lw:{audit.0}:floor", name, floor)

    def test_commit_above_what_waits(self):
        # Commit to another group, because the dev broker accepts no commit from outside for a group
        # that has ever had members.
        tool = [BUILD + "/tests/tools/kafkatool", self.w.brokers, "set-offsets", "beyond", "orders"]
        for partition in range(3):
            floor = int(self.redis("HGET", "lw:{audit.0}:floor", "orders:%d" % partition) or 0)
            offset = int(self.offset) + 1 if partition == int(self.partition) else floor
            subprocess.run(tool + [str(partition), str(offset)], check=True)
        status, out, _ = self.w.ledger("--json", "--set", "kafka.properties.group.id=beyond")
        self.assertEqual(status, 1, out)
        self.assertEqual(
            {json.loads(line)["difference"] for line in out.splitlines() if '"difference"' in line},
            {"committed"},
            out,
        )

    def test_floor_of_a_partition_that_is_not_there(self):
        self.redis("HSET", "lw:{audit.0}:floor", "orders:9", 5)
        self.agrees()
        self.redis("HDEL", "lw:{audit.0}:floor", "orders:9")


class Deploy(unittest.TestCase):
    def test_dashboard_and_alerts_use_names_that_exist(self):
        names = set(
            subprocess.run(
                [BUILD + "/latchwork", "check", "--metric-names"],
                capture_output=True,
                text=True,
                check=True,
            ).stdout.split()
        )
        for path in ("deploy/grafana-dashboard.json", "deploy/prometheus-alerts.yml"):
            with open(os.path.join(ROOT, path)) as f:
                text = f.read()
            used = set(re.findall(r"\blatchwork_[a-z_]+", text))
            self.assertGreater(len(used), 5, path)
            self.assertEqual(used - names, set(), path)

    def test_dashboard_is_json_with_queries(self):
        with open(os.path.join(ROOT, "deploy/grafana-dashboard.json")) as f:
            dashboard = json.load(f)
        panels = [p for p in dashboard["panels"] if p["type"] != "row"]
        self.assertTrue(all(t["expr"] for p in panels for t in p["targets"]))
        self.assertEqual(len({p["id"] for p in dashboard["panels"]}), len(dashboard["panels"]))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
