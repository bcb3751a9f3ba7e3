#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests what the web page shows in a real browser, on a running `latchwork dev --faults`, while its
supervisor or another of the fleet is gone, Redis does not answer, or a proxy serves it; and at each
width, in each colour scheme, by keyboard and for assistive programs.
Usage: test_conditions.py [BUILD [TEST…]]
No test asserts how long something takes. Time limits only turn a hang into a failure."""

import http.client
import http.server
import json
import os
import re
import signal
import sys
import threading
import unittest
import urllib.error
import urllib.request

sys.dont_write_bytecode = True
from page import EVIL, VIEWS, PageTest, quote  # noqa: E402
from world import P  # noqa: E402


class PrefixProxy(http.server.BaseHTTPRequestHandler):
    """A reverse proxy that serves the web page below /lw/. It keeps the Host header, and forwards
    each part of a stream as soon as it arrives."""

    target = None

    def log_message(self, *args):
        pass

    def do_GET(self):
        assert self.path.startswith("/lw/"), self.path
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        there = http.client.HTTPConnection(self.target, timeout=60)
        there.request(self.command, self.path[len("/lw") :], body, dict(self.headers))
        r = there.getresponse()
        self.send_response(r.status)
        for name, value in r.getheaders():
            if name.lower() not in ("connection", "transfer-encoding", "content-length"):
                self.send_header(name, value)
        self.send_header("Connection", "close")
        self.end_headers()
        try:
            while True:
                part = r.read1(65536)
                if not part:
                    break
                self.wfile.write(part)
        except OSError:
            pass  # The browser has closed the connection, or the test has ended.
        there.close()

    do_POST = do_GET


class Conditions(PageTest):
    def test_the_fleet(self):
        """The overview must show every supervisor: one that was killed as silent, one that has
        stopped not at all, and what others wrote as unknown."""
        b, redis = self.b, self.w.redis
        pages = [self.w.another(), self.w.another()]
        killed, stopped = self.w.others[-2:]
        rows = lambda: b.texts("main > section:nth-of-type(1) tbody tr")  # noqa: E731
        b.until("three supervisors", lambda: len(rows()) == 3, 60)
        b.until_text("#fleet", r"^3 supervisors: 3 up\. .* of 4 workers ready and 8 partitions", 60)
        self.assertEqual(["(this one)" in r for r in rows()].count(True), 1)
        linked = lambda: [  # noqa: E731
            a.attribute("href") for a in b.all("main > section:nth-of-type(1) tbody a")
        ]
        b.until("a link to each other one", lambda: sorted(linked()) == sorted(pages), 60)
        ids = {
            i.decode().split("-")[-2]: i for i in redis("ZRANGE", P + "fleet", 0, -1)
        }  # by process
        one, other = ids[str(killed.pid)], ids[str(stopped.pid)]

        killed.kill()
        killed.wait(30)
        # what its last heartbeat said 15 seconds ago, as if it had been of another host
        redis("ZINCRBY", P + "fleet", -15000, one)
        text = dict(json.loads(redis("GET", P + "fleet:" + one.decode())), host="web-9")
        redis("SET", P + "fleet:" + one.decode(), json.dumps(text), "PX", 600000)
        self.addCleanup(redis, "ZREM", P + "fleet", one)
        row = lambda pid: [r for r in rows() if r.split()[1] == str(pid)]  # noqa: E731
        b.until("a silent one", lambda: "silent for" in row(killed.pid)[0], 60)
        b.until_text("#fleet", r"^3 supervisors: 2 up, 1 silent\. ")
        told = lambda: b.run("return document.getElementById('trouble').title")  # noqa: E731
        sentence = r"supervisor web-9 \(process %d\) is silent for \d+ s" % killed.pid
        self.view("locks")
        b.until("the silent one on every view", lambda: re.search(sentence, told()), 60)
        self.assertTrue(b.run("return document.querySelector('#trouble.bad[href]') !== null"))
        self.assertTrue(self.w.get("readyz", plain=True), "this host is ready nevertheless")
        self.view("overview")
        fleet = self.w.command("queue", "stats")[0]["fleet"]
        self.assertEqual([fleet["sums"][name] for name in ("supervisors", "silent")], [3, 1])
        self.assertTrue(fleet["complete"])
        stopped.send_signal(signal.SIGTERM)
        self.assertEqual(stopped.wait(60), 0)
        self.assertIsNone(redis("ZSCORE", P + "fleet", other))
        self.assertIsNone(redis("GET", P + "fleet:" + other.decode()))
        b.until("no trace of the other one", lambda: not row(stopped.pid), 60)

        now = redis("ZRANGE", P + "fleet", -1, -1, "WITHSCORES")[1]
        hostile = {
            b"h\xff\x00": b"\xff\x00",
            EVIL.encode(): json.dumps({"host": EVIL, "ready": "many"}).encode(),
            b"link": b'{"host":"x/../javascript:1","listen":"javascript:1","pid":7}',
            b"large": b'{"host":"' + b"x" * (1 << 20) + b'"}',
        }
        for name, text in hostile.items():
            self.addCleanup(redis, "ZREM", P + "fleet", name)
            redis("ZADD", P + "fleet", now, name)
            redis("SET", P.encode() + b"fleet:" + name, text, "PX", 60000)
        said = b.until("what others wrote", lambda: len(rows()) == 6 and rows(), 60)
        self.assertEqual(["unknown: malformed heartbeat" in r for r in said].count(True), 3, said)
        b.until_text("#fleet", r"^6 supervisors: 2 up, 1 silent, 3 unknown\. .* have at least ")
        self.assertEqual(len(b.all("main > section:nth-of-type(1) tbody a")), 0)
        self.assertIsNone(b.run("return window.pwned"))

    # --- the server goes away; the page is served at another address ------------------------------

    def test_stale_and_restarted(self):
        b = self.b
        b.until_text("#connection", "^Live$")
        b.until("history", lambda: b.run("return live.points.length") > 0)
        pid = self.w.exporter()
        os.kill(pid, signal.SIGSTOP)
        try:
            b.until_text("#connection", "^Stale", 30)
            self.assertTrue(b.run("return document.documentElement.classList.contains('stale')"))
        finally:
            os.kill(pid, signal.SIGCONT)
        b.until_text("#connection", "^Live$")
        os.kill(pid, signal.SIGKILL)
        b.until("a new process", lambda: self.w.exporter() not in (None, pid), 60)
        before = b.text("#ledger")
        b.until_text("#connection", "^Live$", 60)
        b.until("figures that go on", lambda: b.text("#ledger") != before, 60)
        self.view("dead")
        b.until_text("#count", r"\d+ match")

    def test_unknown_is_not_none(self):
        """While Redis does not answer, no list may say that there is nothing."""
        b = self.b
        lists = "return [...document.querySelectorAll('p.empty')].filter((e) => !e.hidden).map((e) => e.textContent)"
        nothing = r"(?i)nothing|^no |^none|never wait"
        self.letters("unknown-1")
        self.view("key/nobody-home")
        b.until("an empty list", lambda: "Nothing waits." in b.run(lists))
        self.view("dead?key=unknown-1")
        b.until_text("#count", "1 match")
        redis = self.w.redis_server()
        os.kill(redis, signal.SIGSTOP)
        try:
            b.run("refresh()")
            b.until("old rows that say so", lambda: any("As of" in x for x in b.run(lists)), 60)
            self.assertEqual(b.text("#count"), "How many match is unknown.")
            for name in ("lanes", "dead", "locks", "audit", "key/nobody-home"):
                self.view(name)
                known = [x for x in b.run(lists) if x.startswith(("Not known yet.", "Unknown: "))]
                self.assertTrue(known, name)
                b.until("unknown", lambda: any("Unknown: " in x for x in b.run(lists)), 60)
                for said in b.run(lists):
                    if not said.startswith("No outcome of this key"):  # which this host knows
                        self.assertNotRegex(said, nothing, name)
            self.assertRegex(b.text("#holder"), r"Holder\s+unknown\s+Waiting\s+unknown")
            self.view("overview")
            b.until_text("#figures", "unknown while it does not answer", 60)
            b.until_text("#fleet", "^The fleet is unknown: .*no answer in time", 60)
            b.until_text("#dead-badge", r"\?", 60)
        finally:
            os.kill(redis, signal.SIGCONT)
        self.view("key/nobody-home")
        b.until("an empty list", lambda: "Nothing waits." in b.run(lists), 60)
        self.view("overview")
        b.until_text("#figures", "with waiting messages", 60)
        b.until_text("#fleet", r"^\d+ supervisors?: \d+ up", 60)

    def test_what_is_wrong_now(self):
        """Each view must say in a sentence what is wrong now, with a link to more, and /readyz must
        say the same."""
        b = self.b
        told = "return document.getElementById('trouble').title"
        self.letters("wrong-now", 2)
        self.view("locks")
        b.until(
            "dead letters",
            lambda: re.search(r"\d+ dead letters? in the last minute", b.run(told)),
            60,
        )
        redis = self.w.redis_server()
        os.kill(redis, signal.SIGSTOP)
        try:
            self.view("workers")
            b.until_text("#trouble", r"^Redis shard 0 does not answer for \d+ s", 60)
            address = self.w.base + "readyz"

            def unready():
                try:
                    return not urllib.request.urlopen(address, timeout=20)
                except urllib.error.HTTPError as e:
                    return "Redis shard 0 does not answer for" in e.read().decode()

            b.until("the same sentence at /readyz", unready, 60)
            b.one("#trouble").click()
            b.until_text("h1", "Overview")
        finally:
            os.kill(redis, signal.SIGCONT)
        b.until("an end of it", lambda: "Redis shard" not in b.run(told), 60)
        self.view("workers")

    def test_dialogs_and_wrong_addresses(self):
        """A dialog must close when the view changes, and its safe button must have the focus. An
        address without a view must say so."""
        b = self.b
        name = P + "lock:safe-lock"
        self.w.redis("SET", name, "my-host-77-0a1b2c3d.9:1700000000000123", "PX", 600000)
        self.open("key/safe-lock")
        b.until_text("#holder", "my-host")
        b.press("Break the lock", "main")
        b.until_text("dialog #dry-run", "my-host-77-0a1b2c3d has held it for")
        self.assertEqual(b.run("return document.activeElement.textContent"), "Cancel")
        b.run("location.hash = '#/audit'")
        b.until_text("h1", "Audit")
        b.until("no dialog", lambda: not b.run("return document.querySelector('dialog')"))
        self.assertIsNotNone(self.w.redis("GET", name), "the dialog was not answered")
        (letter,) = self.letters("safe-button")
        self.open("dead/" + quote(letter["id"]))
        b.until_text("main", re.escape(letter["reason"]))
        b.press("Drop", "main")
        b.until_text("dialog #dry-run", "1 dead letter")
        self.assertEqual(b.run("return document.activeElement.textContent"), "Cancel")
        b.run("document.activeElement.click()")
        b.until("no dialog", lambda: not b.run("return document.querySelector('dialog')"))
        self.assertEqual(len(self.of("safe-button")), 1)
        for wrong in ("nonsense", "constructor", "lane?key=1"):
            self.view(wrong)
            b.until_text("h1", "No such view")
            self.assertIn('no view "/%s"' % wrong, b.text("main"))

    def test_left_and_come_back(self):
        """A page must close its connection when the user leaves it, because a browser opens at most
        six connections per server."""
        b = self.b
        for i in range(8):
            self.view("lanes?match=left-%d" % i)
            b.go("about:blank")
            b.go(self.w.base + "?%d#/overview" % i)
            b.until_text("#connection", "^Live$")
        b.do("POST", "/back", {})
        b.do("POST", "/back", {})
        b.until_text("h1", "Overview|Lanes")
        b.until_text("#connection", "^Live$")
        before = b.run("return live.at")
        b.until("figures that go on", lambda: b.run("return live.at") > before)

    def test_below_a_prefix(self):
        b = self.b
        PrefixProxy.target = self.w.base.split("/")[2]
        proxy = http.server.ThreadingHTTPServer(("127.0.0.1", 0), PrefixProxy)
        proxy.daemon_threads = True
        threading.Thread(target=proxy.serve_forever, daemon=True).start()
        try:
            self.open("key/customer-41", "http://127.0.0.1:%d/lw/" % proxy.server_port)
            b.until_text("#connection", "^Live$")
            b.press("Pause", "main")
            b.until_text("#holder", "Paused.*yes")
            self.assertIn(b"customer-41", self.w.redis("SMEMBERS", P + "paused"))
            b.press("Resume", "main")
            b.until_text("#holder", "Paused\\s+no")
            self.open("overview")
        finally:
            proxy.shutdown()
            proxy.server_close()

    # --- accessibility ----------------------------------------------------------------------------

    def test_dark(self):
        b = self.b
        back = "return getComputedStyle(document.body).backgroundColor"
        light = b.run(back)
        b.media(prefers_color_scheme="dark")
        b.until("a dark page", lambda: b.run(back) != light)
        dark = b.run(back)
        b.run("localStorage.clear()")
        b.click("#theme")
        b.click("#theme")
        b.until_text("#theme", "Theme: light")
        self.assertEqual(b.run(back), light)
        self.open("overview")
        self.assertEqual(b.run(back), light, "the choice is kept")
        b.run("localStorage.clear()")
        self.open("overview")
        self.assertEqual(b.run(back), dark)

    def test_widths(self):
        letter = self.letters("sir-wide")[0]
        for width in (360, 768, 2560):
            self.b.resize(width)
            for view in (*VIEWS, "dead/" + quote(letter["id"])):
                self.view(view)
                self.b.until(
                    "the view",
                    lambda: self.b.run(
                        "return !document.querySelector('#count') || document.querySelector('#count').textContent !== '…'"
                    ),
                )
                inner, wide = self.b.run(
                    "return [innerWidth, document.documentElement.scrollWidth]"
                )
                self.assertLessEqual(
                    wide, inner, "%s at %d: the page does not scroll sideways" % (view, width)
                )
        self.view("overview")
        self.b.until_text("#ledger", "received")
        glued = "return [...document.querySelectorAll('table.cards td')].filter((e) => e.textContent && getComputedStyle(e).display !== 'grid').length"
        banner = "const e = document.querySelector('#now'); document.querySelector('#trouble').textContent = 'Partition orders-web/2 is blocked for 110 s by key customer-7'; return e.scrollWidth <= e.clientWidth && e.scrollHeight <= e.clientHeight"
        for width in (390, 640):  # a phone, and 1280 px at 200 %
            self.b.resize(width)
            self.assertEqual(self.b.run(glued), 0, "labels and values stand apart")
            self.assertTrue(self.b.run(banner), "the banner shows its whole sentence")
        self.b.resize(1280)
        for view in (*VIEWS, "find/customer-1"):
            self.view(view)
            self.b.until("a quiet page", lambda: self.b.run("return !current.pending"), 60)
            cut = self.b.run(
                "return [...document.querySelectorAll('.scroll')].filter((e) => e.scrollWidth > e.clientWidth + 1).map((e) => `${e.getAttribute('aria-label')}: ${e.scrollWidth} > ${e.clientWidth}`)"
            )
            self.assertEqual(cut, [], view)
            over = self.b.run(
                "for (const t of document.querySelectorAll('td time')) t.textContent = '59 min 59 s ago'; return [...document.querySelectorAll('main td')].filter((e) => getComputedStyle(e).overflowX === 'visible' && e.scrollWidth > e.clientWidth).map((e) => `${e.dataset.label}: ${e.textContent}`)"
            )
            self.assertEqual(over, [], "cells whose text lies on the next one, in " + view)
        self.b.resize(360)
        self.view("dead")
        self.b.until_text("#count", r"\d+ match")
        sizes = self.b.run(
            "return [...document.querySelectorAll('main *')].filter((e) => e.checkVisibility() && e.textContent.trim() && !e.children.length)"
            ".map((e) => parseFloat(getComputedStyle(e).fontSize))"
        )
        self.assertGreaterEqual(min(sizes), 10)

    def test_keyboard(self):
        b = self.b
        b.keys("Tab")
        self.assertEqual(b.run("return document.activeElement.className"), "skip")
        seen = []
        for _ in range(11):
            b.keys("Tab")
            name, style, width = b.run(
                "const e = document.activeElement, s = getComputedStyle(e); return [e.textContent.trim() || e.id, s.outlineStyle, parseFloat(s.outlineWidth)]"
            )
            seen.append(name)
            self.assertTrue(style != "none" and width >= 2, "%s: the focus is visible" % name)
        self.assertEqual(
            [n.split(" ")[0] for n in seen[1:9]],
            ["Overview", "Lanes", "Dead", "Locks", "Groups", "Jobs", "Audit", "Workers"],
            seen,
        )
        b.keys("?")
        b.until_text("dialog", "Keys of this page")
        self.assertTrue(
            b.run("return document.querySelector('dialog').contains(document.activeElement)")
        )
        b.keys("Escape")
        b.until("no dialog", lambda: not b.all("dialog"))
        b.keys("g", "d")
        b.until_text("h1", "Dead letters")
        self.assertEqual(
            b.run("return document.activeElement.id"), "main", "the focus goes to what has changed"
        )

    def test_reduced_motion(self):
        self.b.media(prefers_reduced_motion="reduce")
        self.open("overview")
        moving = "return [...document.querySelectorAll('*')].filter((e) => { const s = getComputedStyle(e); return parseFloat(s.transitionDuration) || s.animationName !== 'none' }).length"
        self.assertEqual(self.b.run(moving), 0)

    def test_accessible(self):
        b = self.b
        letter = self.letters("lady-axe")[0]
        base, in_topic, message = self.topic_page("axe-topic")
        views = (*VIEWS, *("dead/" + quote(letter["id"]), "find/customer-1", "nonsense"))
        views += ("message/" + quote(message), "message/no-message")
        pages = {self.w.base: views, base: ("overview", "dead", in_topic)}
        for scheme, width in (("light", 1280), ("dark", 1280), ("light", 390)):
            b.media(prefers_color_scheme=scheme)
            b.resize(width)
            for page, its_views in pages.items():
                self.open("overview", page)
                self.load_axe()
                for view in its_views:
                    self.view(view)
                    b.until("a quiet page", lambda: b.run("return !current.pending"), 60)
                    where = "%s%s, %s, %d px" % (page, view, scheme, width)
                    self.assertEqual(self.violations(), [], where)
            b.run("help()")
            b.one("dialog")
            self.assertEqual(self.violations(), [], "a dialog, %s, %d px" % (scheme, width))
            b.keys("Escape")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *("Conditions." + name for name in sys.argv[2:])], verbosity=2)
