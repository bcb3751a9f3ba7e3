# SPDX-License-Identifier: Apache-2.0
"""Common parts of the tests of the HTTP API (/api/v1/): a client, and a running supervisor on a
private Redis and the dev broker."""

import http.client
import json
import os
import sys
import tempfile
import time
import unittest
import urllib.parse

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from test_metrics import World  # noqa: E402
from lib.process import wait_until  # noqa: E402

TOKEN = "a-token-that-nobody-guesses"
P = "lw:{audit.0}:"


def quote(text):
    return urllib.parse.quote(text, safe="")


def envelope(offset, key, first_ms=None):
    payload = b'{"total":%d}' % offset
    key = key.encode()
    line = "1 orders 9 %d 0 %d 5 %d 0 0 %d\n" % (
        offset,
        int(time.time() * 1000) if first_ms is None else first_ms,
        len(key),
        len(payload),
    )
    return line.encode() + key + payload


class ApiCase(unittest.TestCase):
    """The base class of tests that need a supervisor with three dead letters."""

    more = None  # further settings

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="lw-api-")
        cls.w = World(cls.folder.name, token=TOKEN, more=cls.more)
        cls.addClassCleanup(cls.folder.cleanup)
        cls.addClassCleanup(cls.w.close)
        wait_until(cls.w.serving, 60, "metrics and ready workers")
        cls.w.produce("--messages", 3, "--keys", 3, "--prefix", "bad-", "--seed", 2)
        wait_until(lambda: cls.w.sum("messages_total") == 3, 60, "end of all messages")

    def call(self, *args):
        return self.w.redis.call(*args)

    def setUp(self):
        self.addCleanup(self.forget)

    def forget(self):
        """Removes the lanes that tests have added. These lanes are paused, so no worker changes
        them."""
        for key in self.w.redis.keys():
            if key.startswith(
                tuple(
                    (P + name).encode()
                    for name in ("wait:t-", "wait:dead-", "lock:t-", "state:orders:9")
                )
            ):
                self.call("DEL", key)
        for name in ("lanes", "paused"):
            self.call("DEL", P + name)

    def plant(self, lane, *offsets, first_ms=None):
        self.call("SADD", P + "paused", lane)
        for at in offsets:
            self.call("LPUSH", P + "wait:" + lane, envelope(at, lane, first_ms))
            self.call("BITFIELD", P + "state:orders:9:0", "SET", "u2", "#%d" % at, 1)
        if offsets:
            self.call("ZADD", P + "lanes", "9e15", lane)

    def ask(self, path, method="GET", body=None, status=200, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.w.port, timeout=30)
        try:
            connection.request(
                method, path, body, {k.replace("_", "-"): v for k, v in headers.items()}
            )
            r = connection.getresponse()
            text = r.read().decode()
            self.headers = r.headers
        finally:
            connection.close()
        self.assertEqual(r.status, status, text)
        if method == "HEAD":
            return text
        v = json.loads(text)
        self.assertEqual(r.headers["Content-Type"], "application/json")
        if status >= 400:
            self.assertEqual(list(v), ["error"])
            self.assertTrue(v["error"])
        return v

    def post(self, path, body=None, status=200, token=TOKEN, **headers):
        if token:
            headers["Authorization"] = "Bearer " + token
        return self.ask(path, "POST", body, status, **headers)

    def pages(self, path, name):
        rows, cursor, n = [], None, 0
        while True:
            page = self.ask(path + ("&cursor=" + quote(cursor) if cursor else ""))
            rows += page[name]
            cursor, n = page["next"], n + 1
            self.assertLess(n, 1000)
            if cursor is None:
                return rows, n

    def dead(self):
        return self.ask("/api/v1/dead?limit=500")["dead"]
