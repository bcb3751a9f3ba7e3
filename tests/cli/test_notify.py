#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the messages that `latchwork run` sends to its service manager (sd_notify), with a socket
of the test in place of systemd's, on a private Redis and the dev broker.
Usage: test_notify.py [BUILD]
No test asserts a time. Time limits only turn a hang into a failure."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
sys.path.insert(0, os.path.join(ROOT, "tests/live"))
sys.dont_write_bytecode = True
from lib.latchwork import Instance, config  # noqa: E402
from lib.process import send, wait_until  # noqa: E402
from lib.redis import Redis  # noqa: E402

BUILD = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "build")
LIMIT_S = 60
HANDLER = r'''
import json, os, sys
seen = [name for name in os.environ if name in ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")]
with open(os.environ["SEEN"], "w") as f: f.write(" ".join(seen))
for line in sys.stdin:
    m = json.loads(line)
    if "cancel" not in m: print(json.dumps({"id": m["id"], "outcome": "done"}), flush=True)
'''


class Manager:
    """Acts as a service manager: listens on a socket, and keeps all messages, each of them as a
    dict."""

    def __init__(self, directory):
        self.path = os.path.join(directory, "notify")
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.socket.settimeout(LIMIT_S)
        self.messages = []

    def next(self):
        text = self.socket.recv(4096).decode()
        self.messages.append(dict(line.split("=", 1) for line in text.split("\n")))
        return self.messages[-1]

    def until(self, name):
        """Receives messages up to the first message that has a field called `name`. Returns all
        these messages."""
        got = [self.next()]
        while name not in got[-1]:
            got.append(self.next())
        return got

    def close(self):
        self.socket.close()


def names(messages):
    return {name for m in messages for name in m}


class Notify(unittest.TestCase):
    """Tests one `latchwork run` with two workers. The tests run in the order of their names. Each
    test begins in the state in which the test before it ended."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="lw-notify-")
        cls.addClassCleanup(folder.cleanup)
        cls.redis = Redis(os.path.join(folder.name, "redis"))
        cls.broker = subprocess.Popen(
            [BUILD + "/tests/tools/mockcluster", "orders:3"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        cls.addClassCleanup(cls.end_broker)
        brokers = cls.broker.stdout.readline().decode().strip()
        handler, cls.seen = (
            os.path.join(folder.name, "handler.py"),
            os.path.join(folder.name, "seen"),
        )
        with open(handler, "w") as f:
            f.write(HANDLER)
        cls.manager = Manager(folder.name)
        cls.addClassCleanup(cls.manager.close)
        settings = config(
            "notify",
            brokers,
            cls.redis.url,
            ["orders"],
            workers=2,
            kafka={"properties": {"session.timeout.ms": "6000"}},
            handler={
                "type": "exec",
                "command": [sys.executable, "-S", "-E", handler],
                "processes": 1,
                "timeout_ms": 20000,
            },
        )
        environment = {
            "NOTIFY_SOCKET": cls.manager.path,
            "WATCHDOG_USEC": "20000000",
            "SEEN": cls.seen,
        }
        cls.instance = Instance(BUILD, folder.name, "one", settings, environment)
        cls.config_path = os.path.join(folder.name, "one.json")
        cls.addClassCleanup(cls.redis.stop)
        cls.addClassCleanup(cls.instance.destroy)

    @classmethod
    def end_broker(cls):
        cls.broker.stdin.close()
        cls.broker.stdout.close()
        cls.broker.wait(10)

    def test_1_not_ready_while_redis_is_away(self):
        # A hung worker is replaced after 90 s plus shutdown.grace_ms, which is 10 s here. The
        # watchdog interval is one minute longer, so it is 160 s.
        self.assertEqual(self.manager.next(), {"WATCHDOG_USEC": "160000000"})

        def says_why():
            return "redis" in self.manager.until("STATUS")[-1]["STATUS"]

        wait_until(says_why, LIMIT_S, "a status that names Redis", 0)
        self.assertRegex(
            self.manager.messages[-1]["STATUS"],
            r"^0 of 2 workers are ready; worker 0: .*redis.*; done 0, dead 0, waiting 0$",
        )
        self.assertNotIn("READY", names(self.manager.messages))

    def test_2_ready(self):
        self.redis.start()
        self.assertRegex(
            self.manager.until("READY")[-1]["STATUS"], "^2 of 2 workers are ready; done "
        )
        self.assertEqual(self.manager.messages[-1]["READY"], "1")
        self.assertEqual(self.manager.until("WATCHDOG")[-1], {"WATCHDOG": "1"})

    def test_3_handlers_cannot_speak_for_the_run(self):
        with open(self.seen) as f:
            self.assertEqual(f.read(), "")

    def test_4_reload(self):
        before = self.instance.workers()
        self.instance.signal(signal.SIGHUP)
        self.assertGreater(int(self.manager.until("RELOADING")[-1]["MONOTONIC_USEC"]), 0)
        got = self.manager.until("READY")
        self.assertEqual(got[-1], {"READY": "1", "STATUS": "reload: done"})
        self.assertIn("EXTEND_TIMEOUT_USEC", names(got))
        after = self.instance.workers()
        self.assertFalse(
            set(before) & set(after),
            "a worker was not replaced when the reload was reported as done",
        )
        self.assertEqual(len(after), 2)

    def test_5_reload_of_a_bad_configuration(self):
        with open(self.config_path) as f:
            good = f.read()
        with open(self.config_path, "w") as f:
            f.write("{")
        self.instance.signal(signal.SIGHUP)
        self.manager.until("RELOADING")
        self.assertEqual(
            self.manager.until("READY")[-1]["STATUS"],
            "reload: the configuration has errors (see the log); the old one stays",
        )
        with open(self.config_path, "w") as f:
            f.write(good)

    def test_6_watchdog(self):
        worker = self.instance.workers()[0]
        self.manager.until("WATCHDOG")
        send(worker, signal.SIGSTOP)
        try:
            # Skip the messages up to the second status, because a ping of the watchdog may have
            # been under way when the worker was stopped.
            self.manager.until("STATUS")
            self.manager.until("STATUS")
            self.assertNotIn("WATCHDOG", names(self.manager.until("STATUS")))
        finally:
            send(worker, signal.SIGCONT)
        self.manager.until("WATCHDOG")

    def test_7_stop(self):
        self.instance.signal(signal.SIGTERM)
        # The stop may take 25 s. A worker that does not end is killed after shutdown.grace_ms
        # (10 s here) plus 5 s, and the supervisor then has 10 s to end.
        self.assertEqual(
            self.manager.until("STOPPING")[-1],
            {
                "STOPPING": "1",
                "EXTEND_TIMEOUT_USEC": "25000000",
                "STATUS": "stopping: finishing what is in a handler",
            },
        )
        status, _ = self.instance.wait(LIMIT_S)
        self.assertEqual(status, 0, self.instance.log())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
