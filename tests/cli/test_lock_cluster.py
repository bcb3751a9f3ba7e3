#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests `latchwork lock`, and operators' commands while a slot moves, on a real Redis Cluster and
behind real Sentinels.
Usage: test_lock_cluster.py [BUILD]"""

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import unittest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
sys.path.insert(0, os.path.join(ROOT, "tests/live"))
sys.dont_write_bytecode = True
from lib.cluster import Cluster, slot_of  # noqa: E402
from lib.latchwork import config  # noqa: E402
from lib.redis import PASSWORD  # noqa: E402
from lib.sentinel import Guarded  # noqa: E402

BUILD = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "build")
PROGRAM = os.path.join(BUILD, "latchwork")
SHARDS, USER = 3, "locks"


def run(*args, status=0, env=None):
    done = subprocess.run(
        [PROGRAM, *args],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, **(env or {})},
    )
    assert done.returncode == status, (args, done.returncode, done.stdout, done.stderr)
    return done.stdout + done.stderr


class Holder:
    """Runs `lock exec` in the background. Its command holds the lock until end() is called, and
    exits with 0 then, also if the lock was lost before and SIGTERM has come for that reason."""

    def __init__(self, *args, env=None):
        self.p = subprocess.Popen(
            [
                PROGRAM,
                "lock",
                "exec",
                *args,
                "--",
                "sh",
                "-c",
                "trap : TERM; echo $LATCHWORK_FENCE; cat; exit 0",
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **(env or {})},
        )
        self.fence = int(self.p.stdout.readline())

    def end(self, status=0):
        self.p.communicate(timeout=60)
        assert self.p.returncode == status, self.p.returncode


class Locks:
    """Tests that run twice: once on a cluster, and once behind Sentinels. `Servers` is the class
    that starts the servers."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.dir = folder.name
        cls.redis = cls.Servers(cls.dir)
        cls.addClassCleanup(cls.redis.stop)
        cls.redis.start()

    def write_config(self, **redis):
        self.path = os.path.join(self.dir, "app.json")
        settings = config(
            "app",
            "127.0.0.1:1",
            None,
            ["t"],
            redis={**self.redis.settings("default"), **redis},
            lock={"ttl_ms": 3000},
        )
        settings["redis"] = {
            k: v
            for k, v in settings["redis"].items()
            if v is not None and k not in ("username", "password")
        }
        with open(self.path, "w") as f:
            json.dump(settings, f)

    def keys(self):
        return ["key-%d" % i for i in range(8)]

    def test_the_locks_of_lanes(self):
        for key in self.keys():
            holder = Holder(key, "-c", self.path, "--wait", "30000")
            self.assertIn(
                "could not be locked",
                run("lock", "exec", key, "-c", self.path, "--", "true", status=75),
            )
            self.assertIn(key, run("lock", "ls", "-c", self.path))
            self.assertIn(str(holder.fence), run("lock", "show", key, "-c", self.path))
            holder.end()
        holder = Holder(self.keys()[0], "-c", self.path, "--wait", "30000")
        self.assertIn("broke", run("lock", "break", self.keys()[0], "-c", self.path, "--execute"))
        self.assertIn("nobody holds it", run("lock", "show", self.keys()[0], "-c", self.path))
        holder.end(status=1)


class OnACluster(Locks, unittest.TestCase):
    Servers = Cluster

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.url = [
            "--redis",
            "redis://" + ",".join("127.0.0.1:%d" % n.port for n in cls.redis.nodes[:2]),
            "--cluster",
        ]

    def setUp(self):
        self.write_config(shards=SHARDS)

    def test_the_locks_of_the_library(self):
        holders = {key: Holder(key, *self.url) for key in self.keys()}
        listed = run("lock", "ls", *self.url)
        for key, holder in holders.items():
            self.assertIn(key, listed)
            self.assertIn(str(holder.fence), run("lock", "show", key, *self.url))
            self.assertIn(
                "could not be locked", run("lock", "exec", key, *self.url, "--", "true", status=75)
            )
        self.assertEqual(
            len({self.redis.owner_of("lwl:{%s}:lock" % key).port for key in holders}), 3
        )
        first, *rest = self.keys()
        self.assertIn("broke", run("lock", "break", first, *self.url, "--execute"))
        holders[first].end(status=1)
        for key in rest:
            holders[key].end()
        self.assertNotIn("key-", run("lock", "ls", *self.url))

    def test_the_rights_are_enough(self):
        """A Redis user with the rights that `check --acl --for lock` prints must be able to take a
        lock, and to renew it while the lock's slot moves. Another process that logs in as this user
        must be able to wait for the lock."""
        rules = run("check", "--acl", USER, "--for", "lock").split()[3:]
        for node in self.redis.nodes:
            node.call("ACL", "SETUSER", USER, "reset", ">" + PASSWORD, *rules)
            node.call("ACL", "LOG", "RESET")
        env = {"LATCHWORK_REDIS_USER": USER, "LATCHWORK_REDIS_PASSWORD": PASSWORD}
        holder = Holder("right", *self.url, "--ttl", "3000", env=env)
        waiter = subprocess.Popen(
            [PROGRAM, "lock", "exec", "right", *self.url, "--wait", "60000", "--", "true"],
            env={**os.environ, **env},
        )
        slot = slot_of("lwl:{right}:lock")
        target = next(m for m in self.redis.masters() if m is not self.redis.owner(slot))
        source = self.redis.open_slot(slot, target)
        while self.redis.move_keys(slot, source, target):
            pass
        # Sleep longer than the TTL. During the sleep, the holder must renew the lock at the node to
        # which the slot moves, and must send ASKING before each renewal.
        time.sleep(3.5)
        self.redis.close_slot(slot, target)
        holder.end()
        self.assertEqual(waiter.wait(60), 0)
        self.assertEqual(
            [
                entry
                for node in self.redis.nodes
                for entry in node.call("ACL", "LOG")
                if USER.encode() in entry
            ],
            [],
        )

    def test_operators_wait_for_a_slot_that_moves(self):
        tag = self.redis.tag("app", 0, SHARDS)
        slot = slot_of("lw:{%s}:epoch" % tag)
        # Take a lock once, because the first command starts the epoch that the test needs.
        Holder("key-0", "-c", self.path, "--wait", "30000").end()
        for shard in range(SHARDS):
            self.redis.call(
                "HSET", "lw:{%s}:epoch" % self.redis.tag("app", shard, SHARDS), "x", "y"
            )
        target = next(m for m in self.redis.masters() if m is not self.redis.owner(slot))
        source = self.redis.open_slot(slot, target)
        self.assertRegex(
            run("queue", "ls", "-c", self.path, status=1),
            r"shard 0: .*is being moved to another node.*try again when that is over",
        )

        def finish():
            time.sleep(1)
            while self.redis.move_keys(slot, source, target):
                pass
            time.sleep(1)
            self.redis.close_slot(slot, target)

        mover = threading.Thread(target=finish)
        mover.start()
        run("queue", "ls", "-c", self.path)
        mover.join()


class BehindSentinels(Locks, unittest.TestCase):
    Servers = Guarded

    def setUp(self):
        self.write_config()

    def test_z_after_a_failover(self):
        old = self.redis.kill_master()
        Holder("key-0", "-c", self.path, "--wait", "30000").end()
        self.redis.restore(old)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], warnings="ignore")
