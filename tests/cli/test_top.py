#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests `latchwork top` while a supervisor runs, on a private Redis and the dev broker: on a
pseudo-terminal, as text and as JSON.
Usage: test_top.py [BUILD [TEST…]]
No test asserts a time. Time limits only turn a hang into a failure."""

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from test_metrics import BUILD, World  # noqa: E402
from lib.process import wait_until  # noqa: E402
from lib.redis import Client  # noqa: E402

P = "lw:{audit.0}:"
ESCAPE = re.compile(rb"\x1b(?:\[([?0-9;]*)([A-Za-z@])|[()]([A-Z0-9])|([78=>cDEHMZ]))")


class Screen:
    """Simulates a VT100 terminal. Supports only the escape sequences that ncurses uses."""

    def __init__(self, rows, cols):
        self.rows, self.cols, self.y, self.x = rows, cols, 0, 0
        self.cells = [[" "] * cols for _ in range(rows)]
        self.top, self.bottom = 0, rows - 1  # the first and last row of the region that scrolls
        self.rest = b""

    def text(self):
        return "\n".join("".join(row).rstrip() for row in self.cells)

    def feed(self, data):
        data = self.rest + data
        at = 0
        while at < len(data):
            c = data[at]
            if c == 0x1B:
                m = ESCAPE.match(data, at)
                if not m:
                    break  # The escape sequence is incomplete. Its remainder comes later.
                if m.group(2):
                    self.control(m.group(1).decode(), m.group(2).decode())
                elif m.group(4) == b"M":
                    if self.y == self.top:
                        self.cells.insert(self.top, [" "] * self.cols)
                        del self.cells[self.bottom + 1]
                    else:
                        self.y = max(self.y - 1, 0)
                at = m.end()
                continue
            n = 1 if c < 0x80 else 2 if c < 0xE0 else 3 if c < 0xF0 else 4
            if at + n > len(data):
                break
            self.put(c, data[at : at + n])
            at += n
        self.rest = data[at:]

    def put(self, c, raw):
        if c == 13:
            self.x = 0
        elif c == 10:
            if self.y == self.bottom:
                self.cells.insert(self.bottom + 1, [" "] * self.cols)
                del self.cells[self.top]
            else:
                self.y = min(self.y + 1, self.rows - 1)
        elif c == 9:
            self.x = min(self.x // 8 * 8 + 8, self.cols - 1)
        elif c == 8:
            self.x = max(self.x - 1, 0)
        elif c >= 32:
            if self.x == self.cols:
                self.x, self.y = 0, min(self.y + 1, self.rows - 1)
            if self.y < self.rows and self.x < self.cols:
                self.cells[self.y][self.x] = raw.decode(errors="replace")
            self.x += 1

    def control(self, text, final):
        if text.startswith("?"):
            return
        n = [int(x) if x else 0 for x in text.split(";")]
        first = n[0] or 1
        if final in "Hf":
            self.y = min(first, self.rows) - 1
            self.x = min((n[1] if len(n) > 1 else 0) or 1, self.cols) - 1
        elif final in "ABCD":
            self.y = min(max(self.y + {"A": -first, "B": first}.get(final, 0), 0), self.rows - 1)
            self.x = min(max(self.x + {"C": first, "D": -first}.get(final, 0), 0), self.cols - 1)
        elif final == "J":
            for y in range(self.rows):
                for x in range(self.cols):
                    after, before = (y, x) >= (self.y, self.x), (y, x) <= (self.y, self.x)
                    if n[0] == 2 or (n[0] == 0 and after) or (n[0] == 1 and before):
                        self.cells[y][x] = " "
        elif final == "K":
            for x in range(self.cols):
                if n[0] == 2 or (n[0] == 0 and x >= self.x) or (n[0] == 1 and x <= self.x):
                    self.cells[self.y][x] = " "
        elif final == "r":
            self.top, self.bottom = (
                first - 1,
                min((n[1] if len(n) > 1 else 0) or self.rows, self.rows) - 1,
            )
            self.y = self.x = 0
        elif final not in "mhl":
            raise AssertionError("what is CSI %s%s?" % (text, final))


def lines_of(path):
    with open(path) as f:
        return len(f.readlines())


class Terminal:
    """Runs `latchwork top` on a pseudo-terminal."""

    def __init__(self, arguments, directory, rows=24, cols=80):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(directory)
            fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))
            environment = {k: v for k, v in os.environ.items() if k not in ("LINES", "COLUMNS")}
            os.execve(
                BUILD + "/latchwork",
                ["latchwork", "top"] + arguments,
                dict(environment, TERM="vt100", LC_ALL="C.UTF-8"),
            )
        self.screen = Screen(rows, cols)
        self.raw = b""
        self.status = None

    def resize(self, rows, cols):
        self.screen = Screen(rows, cols)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))

    def read(self):
        if not select.select([self.fd], [], [], 0.05)[0]:
            return
        try:
            data = os.read(self.fd, 65536)
        except OSError:
            data = b""
        if not data:
            if self.status is None:
                self.status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
            return
        self.raw += data
        self.screen.feed(data)

    def wait(self, pattern, limit_s=30, absent=False):
        until = time.monotonic() + limit_s
        while bool(re.search(pattern, self.screen.text(), re.M)) == absent:
            self.read()
            if time.monotonic() > until or self.status is not None:
                raise AssertionError(
                    "no %r (status %s) in\n%s" % (pattern, self.status, self.screen.text())
                )
        return self.screen.text()

    def type(self, text):
        os.write(self.fd, text.encode())

    def end(self, limit_s=30):
        until = time.monotonic() + limit_s
        while self.status is None:
            self.read()
            if time.monotonic() > until:
                raise AssertionError("it does not end:\n" + self.screen.text())
        return self.status

    def close(self):
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.fd)


def plant(call, lane, *offsets):
    """Adds a paused lane, which workers do not touch, with a waiting message at each offset."""
    call("SADD", P + "paused", lane)
    for at in offsets:
        line = "1 orders 9 %d 0 %d 5 %d 0 0 1\n%s1" % (
            at,
            int(time.time() * 1000) - 1000 * at,
            len(lane),
            lane,
        )
        call("LPUSH", P + "wait:" + lane, line)
        call("BITFIELD", P + "state:orders:9:0", "SET", "u2", "#%d" % at, 1)
    call("ZADD", P + "lanes", "9e15", lane)


class Top(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="lw-top-")
        cls.w = World(cls.folder.name)
        cls.addClassCleanup(cls.folder.cleanup)
        cls.addClassCleanup(cls.w.close)
        wait_until(cls.w.serving, 60, "metrics and ready workers")
        cls.w.produce("--messages", 3, "--keys", 3, "--prefix", "bad-", "--seed", 2)
        cls.w.produce("--messages", 200, "--keys", 20)
        wait_until(lambda: cls.w.sum("messages_total") == 203, 60, "end of all messages")

    def setUp(self):
        self.plant("cold", 1, 2)
        self.plant("hot-1", *range(10, 40))
        self.plant("hot-2", *range(50, 70))
        self.addCleanup(self.forget)

    def forget(self):
        for key in self.w.redis.keys():
            if re.match(rb"lw:\{audit\.0\}:(wait|lock):(cold|hot|l-)", key) or key.endswith(
                (b":lanes", b":paused", b":state:orders:9:0")
            ):
                self.call("DEL", key)

    def plant(self, lane, *offsets):
        plant(self.call, lane, *offsets)

    def call(self, *args):
        return self.w.redis.call(*args)

    def top(self, *options, rows=24, cols=80):
        t = Terminal(
            ["-c", self.w.config_path, "--interval", "200ms", *options], self.w.dir, rows, cols
        )
        self.addCleanup(t.close)
        return t

    def plain(self, *options, status=0, **environment):
        done = subprocess.run(
            [BUILD + "/latchwork", "top", "-c", self.w.config_path, "--once", *options],
            capture_output=True,
            text=True,
            timeout=60,
            stdin=subprocess.DEVNULL,
            env=dict(
                {k: v for k, v in os.environ.items() if k not in ("LINES", "COLUMNS")},
                **environment,
            ),
        )
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stdout, done.stderr

    # --- without a terminal -----------------------------------------------------------------------

    def test_once(self):
        self.call(
            "SET",
            P + "lock:hot-1",
            "host-7-ab.9:%d" % (int(time.time() - 5) * 1000000),
            "PX",
            60000,
        )
        text, err = self.plain()
        lines = text.splitlines()
        self.assertLessEqual(len(lines), 24)
        self.assertLessEqual(max(len(x) for x in lines), 80)
        self.assertRegex(lines[0], "^latchwork top  audit  ")
        self.assertRegex(
            lines[1],
            r"^in [0-9.]+/s  out [0-9.]+/s  committed [0-9.]+/s  lag 0  waiting 52  oldest \d+ s",
        )
        self.assertRegex(
            lines[2], r"^lanes 3  paused 3  dead 3  workers 2/2 ready  in handler 0  done \d+$"
        )
        rows = [x.split()[0] for x in lines if re.match("(hot|cold)", x)]
        self.assertEqual(rows, ["hot-1", "hot-2", "cold"])
        self.assertRegex(text, r"(?m)^hot-1 +30 +\d+ s +0 host-7-ab, paused +\d+ s$")
        self.assertEqual(len(re.findall(r"(?m)^ +[01] +\d+ ready ", text)), 2)
        self.assertEqual(len(re.findall(r"(?m)orders/\d/\d+ +bad-.* it says so$", text)), 3)
        self.assertNotIn("\x1b", text)
        wide, _ = self.plain(COLUMNS="140", LINES="50")
        self.assertIn("orders/9/10", wide)
        self.assertEqual(
            [
                x.split()[0]
                for x in self.plain("--sort", "age")[0].splitlines()
                if re.match("(hot|cold)", x)
            ],
            ["hot-2", "hot-1", "cold"],
        )
        self.assertEqual(err, "")

    def test_json(self):
        v = json.loads(self.plain("--json", "--filter", "hot")[0])
        self.assertEqual(
            [(k["key"], k["waiting"]) for k in v["hot_keys"]], [("hot-1", 30), ("hot-2", 20)]
        )
        self.assertEqual(
            (v["name"], v["redis"], v["supervisor"], v["lanes"], v["paused"], v["dead"], v["lag"]),
            ("audit", True, True, 3, 3, 3, 0),
        )
        self.assertEqual([w["state"] for w in v["workers"]], ["ready", "ready"])
        self.assertEqual((v["waiting"], v["waiting_is_at_least"], v["failures"]), (50, False, []))
        self.assertEqual(
            json.loads(self.plain("--json", "--filter", "[b]ad*")[0])["failures"][0]["reason"],
            "it says so",
        )
        self.assertIsInstance(v["in_per_second"], float)

    def test_what_does_not_answer(self):
        text, _ = self.plain("--set", "http.listen=127.0.0.1:1")
        self.assertIn("no supervisor at http.listen 127.0.0.1:1: Connection refused", text)
        self.assertRegex(text, r"in -  out -  committed [0-9.]+/s  lag -  waiting 52 ")
        self.assertIn("http.listen is off", self.plain("--set", "http.listen=off")[0])
        self.assertIn("is another application's: audit", self.plain("--set", "name=other")[0])
        out, err = self.plain("--set", "redis.url=unix:///nonexistent", status=1)
        self.assertEqual(out, "")
        self.assertIn("shard 0", err)
        v = json.loads(self.plain("--json", "--set", "redis.url=unix:///nonexistent", status=1)[0])
        self.assertEqual((v["redis"], v["supervisor"]), (False, True))

    def test_many_lanes(self):
        """There are more lanes than one refresh examines. Later refreshes must still find the
        busiest lanes, and each refresh may send Redis only a bounded number of commands."""
        client = Client(self.w.redis.path)
        for i in range(3000):
            plant(client, "l-%04d" % i, 1000 + i)
        client.close()
        commands = int(self.w.redis.info("stats")["total_commands_processed"])
        t = self.top()
        t.wait(r"^hot-1 +30 ")
        t.wait(r"^hot-2 +20 ")
        t.wait("^lanes 3,003 ")
        t.type("q")
        self.assertEqual(t.end(), 0)
        self.assertGreater(int(self.w.redis.info("stats")["total_commands_processed"]), commands)
        before = self.busy()
        v = json.loads(self.plain("--json")[0])
        self.assertEqual(v["lanes"], 3003)
        # Two refreshes together may send Redis only a bounded number of commands.
        self.assertLess(self.busy() - before, 200)

    def busy(self):
        text = self.w.redis.info("commandstats")
        return sum(
            int(re.search(r"calls=(\d+)", text["cmdstat_" + c]).group(1))
            for c in ("eval", "zscan")
            if "cmdstat_" + c in text
        )

    # --- on a terminal ----------------------------------------------------------------------------

    def test_screen(self):
        t = self.top()
        t.wait(r"^hot-2 +20 ")
        text = t.wait("^in [0-9]")
        for pattern in (
            r"^latchwork top  audit  .* every 0.2 s  by waiting",
            r"^in .*/s  out .*/s  committed .*/s  lag 0",
            r"^KEY +WAITING",
            r"^WORKER +PID",
            r"^   DIED IDENTITY",
            r"^\? help  / filter .* D drop$",
            "it says so",
        ):
            self.assertRegex(text, "(?m)" + pattern)
        self.assertEqual(len(t.screen.cells), 24)
        self.assertIn("DROP", t.screen.text().upper().splitlines()[-1])
        t.type("?")
        t.wait("Capitals change the marked lane")
        t.type("x")
        t.wait("^KEY +WAITING")
        self.plant("hot-2", 80, 81)
        # After the key `x` was pressed, the display must still be refreshed.
        t.wait(r"^hot-2 +22 ")
        t.type("s")
        t.wait("by age")
        t.type("ss")
        t.wait("by waiting")

    def test_the_help_fits_into_80_columns(self):
        t = self.top()
        t.wait("^cold ")
        t.type("?")
        t.wait("a backup is written first")
        text = t.screen.text()
        for line in (
            "whose key contains this text",
            r"or matches this pattern \(\* \? \[a-z\]\)",
            "refused from now on",
            "the lane moves on",
            "a backup is written first",
        ):
            self.assertRegex(text, line)
        self.assertNotIn("…", text)

    def test_filter(self):
        t = self.top()
        t.wait("^cold ")
        t.type("/hot-")
        t.wait("^filter: hot-_")
        t.type("9\x7f2\r")
        t.wait("filter: hot-2$")
        t.wait("^cold ", absent=True)
        self.assertRegex(t.screen.text(), "(?m)^hot-2 ")
        self.assertNotIn("hot-1", t.screen.text())
        t.type("/nothing\r")
        t.wait("no lane that matches the filter")
        t.type("/\r")
        t.wait("^cold ")
        t.type("/zz\x1b")
        t.wait("^\\? help")
        self.assertRegex(t.screen.text(), "(?m)^cold ")

    def test_capitals_ask(self):
        self.call("SREM", P + "paused", "hot-1")
        self.call(
            "SET",
            P + "lock:hot-1",
            "host-7-ab.9:%d" % (int(time.time() - 5) * 1000000),
            "PX",
            600000,
        )
        t = self.top()
        t.wait("^hot-1 .* host-7-ab ")
        t.type("P")
        t.wait("^Pause hot-1\\? y/n")
        t.type("n")
        t.wait("^nothing was changed")
        self.assertFalse(self.call("SISMEMBER", P + "paused", "hot-1"))
        t.type("Py")
        t.wait("^hot-1: paused")
        self.assertTrue(self.call("SISMEMBER", P + "paused", "hot-1"))
        t.type("By")
        t.wait("^hot-1: broken; the fence is")
        self.assertIsNone(self.call("GET", P + "lock:hot-1"))
        # The lane hot-1 is selected. The key `j` selects the next lane, hot-2.
        t.type("j")
        t.type("D")
        t.wait("^Drop the waiting messages of hot-2\\? y/n")
        t.type("\r")
        t.wait("^nothing was changed")
        self.assertEqual(self.call("LLEN", P + "wait:hot-2"), 20)
        t.type("Dy")
        t.wait("^hot-2: 20 dropped; backup: ")
        t.wait("^hot-2 ", absent=True)
        self.assertEqual(self.call("LLEN", P + "wait:hot-2"), 0)
        backups = [f for f in os.listdir(self.w.dir) if f.startswith("latchwork-top-drop-")]
        self.assertEqual([lines_of(os.path.join(self.w.dir, f)) for f in backups], [20])
        for f in backups:
            os.unlink(os.path.join(self.w.dir, f))
        t.type("/cold\r")
        t.wait("filter: cold")
        t.type("Ry")
        t.wait("^cold: resumed")
        self.assertFalse(self.call("SISMEMBER", P + "paused", "cold"))

    def test_resize(self):
        t = self.top()
        t.wait("^hot-2 ")
        t.resize(50, 140)
        t.wait("^hot-2 .* orders/9/50")
        t.wait(r"D drop.*\Z")
        self.assertEqual(len(t.screen.text().splitlines()), 50)
        for rows, cols in ((10, 40), (5, 20), (3, 10), (1, 1), (2, 300)):
            t.resize(rows, cols)
            t.wait("", 1)
            time.sleep(0.1)
            t.read()
        t.resize(24, 80)
        t.wait("^hot-2 ")
        t.wait("D drop$")

    def test_the_terminal_is_restored(self):
        for how in ("q", "\x03", signal.SIGTERM):
            t = self.top()
            t.wait("^hot-2 ")
            self.assertFalse(termios.tcgetattr(t.fd)[3] & (termios.ECHO | termios.ICANON))
            if isinstance(how, str):
                t.type(how)
            else:
                os.kill(t.pid, how)
            self.assertEqual(t.end(), 0)
            now = termios.tcgetattr(t.fd)
            self.assertTrue(
                now[3] & termios.ECHO
                and now[3] & termios.ICANON
                and now[0] & termios.ICRNL
                and now[1] & termios.ONLCR
            )
            self.assertTrue(now[3] & termios.ISIG)

    def test_redis_that_comes_back(self):
        t = self.top()
        t.wait("^hot-2 ")
        self.w.redis.signal(signal.SIGSTOP)
        try:
            t.wait("^shard 0: Redis.*retrying")
            t.type("?")
            t.wait("Capitals change")
            t.type("?")
        finally:
            self.w.redis.signal(signal.SIGCONT)
        t.wait("retrying", absent=True)

    # --- usage ------------------------------------------------------------------------------------

    def test_usage(self):
        for options in (
            ["--sort", "x"],
            ["--interval", "1ms"],
            ["--interval", "soon"],
            ["--frob"],
            ["extra"],
            ["--set", "x"],
            ["--set", "nonsense=1"],
        ):
            out, err = self.plain(*options, status=2)
            self.assertEqual(out, "")
            self.assertTrue(err)
        done = subprocess.run(
            [BUILD + "/latchwork", "top", "-c", self.w.config_path],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
        )
        self.assertEqual(done.returncode, 2)
        self.assertIn("--once", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)
