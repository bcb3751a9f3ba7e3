#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests `queue import --from-list`, which moves the messages of another queue system from a
list in Redis to a topic. The messages must keep their order, and no message may be lost if the
command is killed or Kafka is not reachable.
Usage: test_import_list.py [BUILD]"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
BUILD = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "build")
sys.path.insert(0, os.path.join(ROOT, "tests/live"))
from lib.process import wait_until  # noqa: E402
from lib.redis import Redis  # noqa: E402

LIST = "orders:waiting"


class Import(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="latchwork-import.")
        self.addCleanup(shutil.rmtree, self.dir)
        self.redis, self.old = (
            Redis(os.path.join(self.dir, "redis")),
            Redis(os.path.join(self.dir, "old")),
        )
        for server in (self.redis, self.old):
            server.start()
            self.addCleanup(server.kill)
        self.redis.call("HSET", "lw:{t.0}:epoch", "id", "e1", "not_before", "0", "ttl_ms", "10000")
        self.broker = subprocess.Popen(
            [BUILD + "/tests/tools/mockcluster", "orders:3"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.addCleanup(self.end_broker)
        self.brokers = self.broker.stdout.readline().decode().strip()
        self.configure(self.brokers)

    def end_broker(self):
        self.broker.kill()
        self.broker.wait()
        self.broker.stdin.close()
        self.broker.stdout.close()

    def configure(self, brokers, **kafka):
        self.config = os.path.join(self.dir, "t.json")
        with open(self.config, "w") as f:
            json.dump(
                {
                    "name": "t",
                    "kafka": dict(
                        {"topics": ["orders"], "properties": {"bootstrap.servers": brokers}},
                        **kafka,
                    ),
                    "redis": {"url": self.redis.url, "shards": 1},
                    "handler": {"type": "exec", "command": ["cat"]},
                },
                f,
            )

    def command(self, *args):
        return [
            BUILD + "/latchwork",
            "queue",
            "import",
            "-c",
            self.config,
            "--list-redis",
            self.old.url,
            *args,
        ]

    def run_import(self, *args):
        return subprocess.run(self.command(*args), capture_output=True, text=True, timeout=150)

    def fill(self, n, keys=7):
        for i in range(n):
            self.old.call("LPUSH", LIST, json.dumps({"id": "c-%d" % (i % keys), "seq": i}))

    def produced(self):
        done = subprocess.run(
            [BUILD + "/tests/tools/kafkatool", self.brokers, "dump", "orders"],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        return [json.loads(line) for line in done.stdout.splitlines()]

    def sequences(self):
        """Returns, for each key, the numbers of its messages in the order of the topic."""
        out = {}
        for r in sorted(self.produced(), key=lambda r: (r["partition"], r["offset"])):
            out.setdefault(r["key"], []).append(json.loads(r["payload"])["seq"])
        return out

    def test_a_dry_run_counts_and_changes_nothing(self):
        self.fill(150)
        done = self.run_import("--from-list", LIST, "--list-key", "json:/id")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("150", done.stdout + done.stderr)
        self.assertEqual(self.old.call("LLEN", LIST), 150)
        self.assertEqual(self.old.call("EXISTS", LIST + ":importing"), 0)
        self.assertEqual(self.produced(), [])

    def test_everything_moves_oldest_first(self):
        self.fill(1000)
        done = self.run_import("--from-list", LIST, "--list-key", "json:/id", "--execute")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stdout.count(": sent\n"), 19)
        self.assertIn("... (use --json to see all)\n1000 messages; 1000 sent; job ", done.stdout)
        self.assertEqual(self.old.call("EXISTS", LIST, LIST + ":importing", LIST + ":refused"), 0)
        self.assertEqual(self.sequences(), {"c-%d" % k: list(range(k, 1000, 7)) for k in range(7)})
        self.assertEqual({h[0] for r in self.produced() for h in r["headers"]}, {"latchwork-list"})

    def test_what_has_no_key_goes_to_another_list(self):
        self.fill(3)
        for bad in ('{"seq":7}', "no json"):
            self.old.call("LPUSH", LIST, bad)
        self.fill(2)
        done = self.run_import("--from-list", LIST, "--list-key", "json:/id", "--execute")
        self.assertEqual(done.returncode, 1)
        self.assertIn(LIST + "#4", done.stdout + done.stderr)
        self.assertIn("2 refused, in %s:refused\n" % LIST, done.stdout)
        self.assertEqual(
            self.old.call("LRANGE", LIST + ":refused", 0, -1), [b"no json", b'{"seq":7}']
        )
        self.assertEqual(len(self.produced()), 5)

    def test_limit_and_killed_in_between(self):
        self.fill(5000)
        self.assertEqual(
            self.run_import(
                "--from-list", LIST, "--list-key", "json:/id", "--execute", "--limit", "10"
            ).returncode,
            0,
        )
        self.assertEqual(len(self.produced()), 10)
        p = subprocess.Popen(
            self.command(
                "--from-list", LIST, "--list-key", "json:/id", "--execute", "--rate", "500"
            ),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wait_until(lambda: self.old.call("LLEN", LIST) < 4700, 60, "messages that moved")
        p.send_signal(signal.SIGKILL)
        p.wait()
        left = self.old.call("LLEN", LIST) + self.old.call("LLEN", LIST + ":importing")
        self.assertGreater(left, 0)
        until = time.time() + 60  # A killed job blocks the next job for 30 s.
        while (
            done := self.run_import("--from-list", LIST, "--list-key", "json:/id", "--execute")
        ).returncode and time.time() < until:
            time.sleep(1)
        self.assertEqual(done.returncode, 0, done.stderr)
        for key, seqs in self.sequences().items():
            first = list(dict.fromkeys(seqs))
            # The topic must contain all messages in order. It may contain some messages twice.
            self.assertEqual(first, list(range(int(key[2:]), 5000, 7)))
        self.assertEqual(self.old.call("EXISTS", LIST, LIST + ":importing"), 0)

    def test_kafka_is_away(self):
        self.fill(20)
        self.configure(
            "127.0.0.1:1",
            properties={"bootstrap.servers": "127.0.0.1:1", "message.timeout.ms": "2000"},
        )
        done = self.run_import("--from-list", LIST, "--list-key", "json:/id", "--execute")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(
            self.old.call("LLEN", LIST) + self.old.call("LLEN", LIST + ":importing"), 20
        )
        self.configure(self.brokers)
        until = time.time() + 60
        while (
            done := self.run_import("--from-list", LIST, "--list-key", "json:/id", "--execute")
        ).returncode and time.time() < until:
            time.sleep(1)
        self.assertEqual(self.sequences(), {"c-%d" % k: list(range(k, 20, 7)) for k in range(7)})

    def test_wrong_usage(self):
        for args, why in (
            (("--from-list", LIST, "x.jsonl"), "either FILE or --from-list"),
            ((), "either FILE or --from-list"),
            (("--from-list", ""), "1 to 512 bytes"),
            (("--from-list", LIST, "--list-key", "/id"), "expected json:/POINTER"),
        ):
            done = self.run_import(*args)
            self.assertEqual(done.returncode, 2, args)
            self.assertIn(why, done.stderr)
        self.old.call("SET", "text", "x")
        done = self.run_import("--from-list", "text")
        self.assertEqual(done.returncode, 1)
        self.assertIn("WRONGTYPE", done.stderr)
        self.fill(1)
        # In this configuration key.from is message-key, so the option --list-key is needed.
        done = self.run_import("--from-list", LIST)
        self.assertIn("--list-key json:/id", done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], warnings="ignore")
