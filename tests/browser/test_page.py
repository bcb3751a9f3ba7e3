#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the program's web page in a real browser, on a running `latchwork dev --faults`: its files,
each view, the effect of each action in Redis, tokens, and messages that contain HTML or scripts.
test_conditions.py tests the rest.
Usage: test_page.py [BUILD [TEST…]]
No test asserts how long something takes. Time limits only turn a hang into a failure."""

import http.client
import json
import os
import re
import subprocess
import sys
import unittest

sys.dont_write_bytecode = True
from page import BUILD, EVIL, PageTest, quote  # noqa: E402
from world import P, ROOT  # noqa: E402

PAGE = os.path.join(ROOT, "monitor/page")
FILES = ("index.html", "app.js", "app.css", "favicon.svg")
BYTES_MAX = 150 * 1024
SHOWN = EVIL.replace("\u202e", "⟨U+202E⟩")
SHIFTS = """
const done = arguments[arguments.length - 1];
const moved = [];
const name = (s) => (s.node ? `${s.node.nodeName} ${(s.node.textContent || "").slice(0, 60)}` : "?");
new PerformanceObserver((list) => list.getEntries().forEach(
    (e) => moved.push(`${e.value.toFixed(4)}: ${e.sources.map(name).join(", ")}`)))
  .observe({ type: "layout-shift", buffered: false });
setTimeout(() => done(moved), 4000);
"""


class Page(PageTest):
    # --- the files --------------------------------------------------------------------------------

    def test_small_and_without_inline_code(self):
        sizes = {}
        for name in FILES:
            served = self.w.get("" if name == "index.html" else name, plain=True)
            with open(os.path.join(PAGE, name), encoding="utf-8") as f:
                self.assertEqual(served, f.read(), name)
            sizes[name] = len(served.encode())
        self.assertLess(sum(sizes.values()), BYTES_MAX, sizes)
        html, script = self.w.get("", plain=True), self.w.get("app.js", plain=True)
        self.assertNotRegex(html, r"(?i)<style|\sstyle=|\son[a-z]+=|<script[^>]*>[^<]|https?://")
        self.assertNotRegex(
            script,
            r"innerHTML|outerHTML\s*=|insertAdjacentHTML|document\.write|\beval\(|new Function|setTimeout\(\s*[\"']",
        )
        self.assertNotRegex(script.replace("http://www.w3.org/2000/svg", ""), r"https?://")
        policy = http.client.HTTPConnection(self.w.base.split("/")[2], timeout=10)
        policy.request("GET", "/")
        text = policy.getresponse().headers["Content-Security-Policy"]
        for wanted in (
            "default-src 'none'",
            "script-src 'self'",
            "style-src 'self'",
            "frame-ancestors 'none'",
        ):
            self.assertIn(wanted, text)
        self.assertNotIn("unsafe", text)
        print("bytes of the page: %s, sum %d" % (sizes, sum(sizes.values())))

    # --- each view --------------------------------------------------------------------------------

    def test_overview(self):
        b = self.b
        b.until_text("#connection", "^Live$")
        b.until_text(".charts", r"Messages per second.*in [1-9].*done [1-9]")
        b.until_text("#ledger", r"[\d,]+ received: [\d,]+ done, \d+ dead, 0 dropped")
        b.until_text(
            "#lag",
            r"^Lag [\d,]+: [\d,]+ not yet read, [\d,]+ waiting, [\d,]+ in handlers or about to be, [\d,]+ done but behind an unfinished one",
        )
        b.until_text(".chart .top", r"^[\d.,]+ per second")
        b.until_text(".chart .axis", r"15 min ago\s+now")
        scale = lambda values: b.run("return Object.values(scaleOf(arguments[0]))", values)
        self.assertEqual(scale([4, 5, 6] * 10 + [900]), [20, 900], "an outlier flattens nothing")
        self.assertEqual(scale([4, 5, 6] * 10 + [20]), [20, None])
        self.assertEqual(scale([0] * 30 + [3]), [5, None])
        tables = b.texts("caption")
        self.assertEqual(
            tables,
            [
                "Supervisors of the fleet",
                "Recent failures on this host",
                "Hot keys on this host",
                "Workers of this host",
                "Partitions of this host",
            ],
        )
        self.assertEqual(len(b.texts("main > section:nth-last-of-type(1) tbody tr")), 8)
        b.until_text("main > section:nth-last-of-type(2) tbody", "ready")
        label = b.run("return document.querySelector('.chart svg').getAttribute('aria-label')")
        self.assertRegex(label, r"^Messages per second, last 15 minutes; now in \S+, done \S+$")
        b.until(
            "hot keys with what waits behind them",
            lambda: [
                r
                for r in b.texts(".pair .card:nth-of-type(2) tbody tr")
                if re.search(r"customer-\d+\s+\d+\s+\d+$", r)
            ],
        )
        first = b.text("#ledger")
        b.until("figures that change by themselves", lambda: b.text("#ledger") != first)

    def test_nothing_moves_while_it_updates(self):
        self.b.until_text("#ledger", "received")
        self.b.until_text(".charts", r"in [1-9]")
        self.b.until("the history", lambda: self.b.run("return live.points.length") > 2, 60)
        self.letters("mx-moving", 3)
        self.assertEqual(self.b.run_async(SHIFTS), [])

    def test_key_by_slash(self):
        b = self.b
        b.keys("/")
        self.assertEqual(b.run("return document.activeElement.id"), "key")
        b.one("#key").type("customer-7\ue007")
        b.until_text("h1", "customer-7")
        b.until_text("#holder", "Fence")
        b.until_text("#outcomes-note", r"\w{3,}")
        self.assertTrue(b.url.endswith("#/key/customer-7"))
        b.keys("/")
        b.one("#key").type("nobody\ue007")
        b.until_text("h1", "Key nobody")
        b.until_text("#holder", "nobody")
        b.until_text("main", "Nothing waits")
        b.until_text("#seen", "Nothing was ever seen of this key")

    def test_part_of_a_key(self):
        """A part of a key must find the keys that contain it, wherever they left a trace."""
        b = self.b
        self.letters("mx-find-dead")
        self.w.command("queue", "pause", "mx-find-[paused")
        b.keys("/")
        b.one("#key").type("*x-find-*\ue007")
        b.until_text("h1", "Keys that contain x-find-")
        b.until_text("#found-text", "^2 keys found", 60)
        rows = sorted(b.texts("tbody tr"))
        self.assertRegex(rows[0], r"^mx-find-\[paused\s+0 messages waiting, paused")
        self.assertRegex(rows[1], r"^mx-find-dead\s+dead letter orders-web/\d/\d+.*; dead \d")
        self.assertEqual(b.run("return document.getElementById('found').value"), 1)
        b.click("tbody a[href$='mx-find-dead']")
        b.until_text("h1", "Key mx-find-dead")
        self.assertFalse(b.all("#seen:not([hidden])"))
        self.view("find/" + quote("no-such-part"))
        b.until_text("#found-text", "^0 keys found", 60)
        b.until_text("main", "No key was found")
        self.w.command("queue", "resume", "mx-find-[paused")

    def test_workers(self):
        self.view("workers")
        self.b.until_text("main", "Workers.*ready.*Partitions.*orders-shop")

    def test_outcomes_of_a_key(self):
        letter = self.letters("mr-outcome")[0]
        self.view("key/mr-outcome")
        self.b.until_text("main", "dead.*" + re.escape(letter["identity"]))
        self.b.until_text("main", re.escape(letter["reason"]))
        # a key that only waits: nothing of it has run, and the page says so
        self.w.command("queue", "pause", "mr-waits")
        self.addCleanup(self.w.command, "queue", "resume", "mr-waits")
        self.view("key/mr-waits")
        self.b.until_text("main", "No outcome of this key is kept")
        self.w.put('0|k|{"id":"mr-waits-0","customer":"mr-waits","amount":13}\n')
        self.b.until_text("main", "None: of what waits nothing has run yet", 60)

    def test_locks(self):
        """The page must list the lock that the stuck handler holds, with its holder. A filter that
        matches no lock must give an empty list."""
        b = self.b
        lane = b.until(
            "a held lane", lambda: [x for x in [self.w.lane("customer-7")] if x["holder"]], 60
        )[0]
        self.open("locks?match=customer-7")
        b.until_text(
            "tbody", r"customer-7\s+%s\s+.*%d" % (re.escape(lane["holder"]), lane["fence"])
        )
        b.fill("#filter-match", "no-such-*")
        b.press("Filter", "main")
        b.until_text("main", "No lock is held")

    def test_hanging_message(self):
        """Wherever a held lane is shown, the page and the commands must name the message that its
        handler runs, with its payload. A partition that it blocks must lead to it and its key."""
        b = self.b
        runs = r"(orders-\w+/\d/\d+), attempt (\d+), for \d"
        self.open("key/customer-7")
        self.assertRegex(b.text("h1"), "customer-7")
        b.until_text("#holder", "Runs\\s+" + runs, 60)
        identity, attempt = re.search(runs, b.text("#holder")).groups()
        b.until_text("#holder", r'Its payload\s+\{.*"customer-7"')
        for words in (("queue", "show"), ("lock", "show")):
            shown = self.w.command(*words, "customer-7")[0]["running"]
            self.assertEqual((shown["identity"], shown["attempt"]), (identity, int(attempt)), words)
        b.press("Break the lock", "main")
        shown = r'.*Its payload\s+\{.*"customer-7"'
        b.until_text("dialog", "Runs\\s+" + re.escape(identity) + shown)
        b.press("Cancel", "dialog")
        b.until("no dialog", lambda: not b.all("dialog"))
        for view in ("locks?key=customer-7", "lanes?key=customer-7"):
            self.view(view)
            b.until_text("tbody", re.escape(identity) + ", attempt %s, for" % attempt)
        self.view("workers")
        link = "main > section:last-of-type a[href='#/message/%s']" % quote(identity)
        b.until("a link at the partition", lambda: b.all(link), 60)
        b.click(link)
        b.until_text("h1", "Message " + re.escape(identity))
        b.until_text("#about", r"Key\s+customer-7\s+State\s+It runs: .*, attempt %s, for" % attempt)
        b.until_text("#pretty", '"customer": "customer-7"')
        b.click("#about a[href='#/key/customer-7']")
        b.until_text("h1", "Key customer-7")
        self.view("message/" + quote("orders-web/0/99999999"))
        b.until_text("main", "is not in the log")
        self.view("message/" + quote("no-such-topic/0/1"))
        b.until_text("main", "expected TOPIC/PARTITION/OFFSET")

    # --- the effect of each action in Redis -------------------------------------------------------

    def test_break_in_the_list_of_locks(self):
        """Breaks a lock that this test has set itself, because other tests need the lock of the
        stuck handler."""
        b = self.b
        name = P + "lock:mr-lock"
        self.w.redis("SET", name, "my-host-77-0a1b2c3d.9:1700000000000123", "PX", 600000)
        self.open("locks?key=mr-lock")
        b.until_text("tbody", r"mr-lock\s+my-host-77-0a1b2c3d\s+my-host, 77\s+.*1700000000000123")
        b.press("Break", "tbody")
        b.until_text("dialog #dry-run", "my-host-77-0a1b2c3d has held it for")
        b.press("Cancel", "dialog")
        self.assertIsNotNone(self.w.redis("GET", name), "the dry run and Cancel change nothing")
        b.press("Break", "tbody")
        b.press("Break the lock", "dialog")
        b.until_text("#toasts", "is broken; the fence is ")
        self.assertIsNone(self.w.redis("GET", name))
        b.until_text("main", "No lock is held")

    def test_run_messages_again(self):
        """Reads the messages of two keys again from Kafka. The dry run, which is also a job, must
        print the number of messages. The job that follows the dry run must run each message once
        more, under the job's number."""
        b = self.b
        self.w.put(
            "".join(
                '0|%s|{"id":"%s-%d","customer":"%s","amount":12}\n' % (key, key, i, key)
                for key in ("ms-again-1", "ms-again-2")
                for i in range(3)
            )
        )
        seen = set()

        def ended():
            """Returns how many runs were seen to end. Newer outcomes push them out."""
            for key in ("ms-again-1", "ms-again-2"):
                for o in self.w.get("api/v1/outcomes?outcome=done&key=" + key)["outcomes"]:
                    seen.add((o["worker"], o["at_ms"], o["partition"], o["offset"], o["fence"]))
            return len(seen)

        b.until("the end of all six", lambda: ended() == 6, 60)
        self.open("lanes?match=ms-again-*")
        b.until_text("#count", "^0 match")
        b.click("#all-that-match")
        b.press("Run messages again", "main")
        b.until_text("dialog", "read again from Kafka")
        b.press("Dry run", "dialog")
        b.until_text("dialog #dry-run", "The dry run found 6 messages")
        self.assertEqual(ended(), 6, "the dry run runs nothing")
        b.fill("#rate", "0")
        b.press("Run again 6 messages", "dialog")
        b.until("all six, once more", lambda: ended() == 12, 60)
        b.until_text("#toasts", "Job .*: done, 6 of 6", 60)
        b.until(
            "a link to the job",
            lambda: b.run(
                "const a = [...document.querySelectorAll('#toasts a')].pop(); if (a) a.click(); return Boolean(a)"
            ),
        )
        b.until_text("main", r"queue replay.*done.*6 of 6, 0 failed")
        self.assertIn("#/jobs/", b.url)
        self.view("lanes?older_than=1h")
        b.until_text("#count", "match")
        b.click("#all-that-match")
        b.press("Run messages again", "main")
        b.until_text("#toasts .bad", "clear these filters")

    def test_ledger(self):
        b = self.b
        self.view("jobs")
        b.press("Run the ledger", "main")
        b.until_text("#toasts", "Job .*: done", 60)
        b.until_text(
            "#ledger-result",
            r"Nothing is lost.*8 partitions, \d+ lanes? with \d+ waiting messages?",
        )
        ledger = self.w.get("api/v1/ledger")["ledger"]
        self.assertTrue(ledger["ok"], ledger)
        self.assertIn("ledger run", b.text("tbody"))

    def test_pause_and_resume(self):
        b = self.b
        self.view("key/customer-9")
        b.press("Pause", "main")
        b.until_text("#holder", "Paused.*yes")
        self.assertIn(b"customer-9", self.w.redis("SMEMBERS", P + "paused"))
        b.until("messages that wait", lambda: self.w.lane("customer-9")["waiting"] > 0, 60)
        b.until_text("main", r"orders-(web|shop)/\d/\d+")
        b.press("Resume", "main")
        b.until_text("#holder", "Paused\\s+no")
        self.assertNotIn(b"customer-9", self.w.redis("SMEMBERS", P + "paused"))
        b.until("nothing that waits", lambda: self.w.lane("customer-9")["waiting"] == 0, 60)

    def test_lanes_in_bulk(self):
        b = self.b
        for key in ("customer-21", "customer-22", "customer-23"):
            self.w.command("queue", "pause", key)

        def only_the_paused():  # for a moment, a message of another key may wait, too
            self.open("lanes?match=customer-2%3F")
            b.until_text("#count", r"^\d+ match")
            return b.text("#count").startswith("3 match")

        b.until("only the paused lanes", only_the_paused, 60)
        for i in (1, 2):
            b.click("tbody tr:nth-child(%d) input" % i)
        b.until_text("#chosen", "^2 selected")
        chosen = [row.split()[0].encode() for row in b.texts("tbody tr")[:2]]
        b.press("Resume", "main")
        b.until_text("dialog #dry-run", "The dry run found 2 lanes")
        self.assertEqual(
            len(set(chosen) & set(self.w.redis("SMEMBERS", P + "paused"))),
            2,
            "the dry run changes nothing",
        )
        b.press("Resume 2 lanes", "dialog")
        b.until(
            "two that are not paused",
            lambda: not set(chosen) & set(self.w.redis("SMEMBERS", P + "paused")),
        )
        self.open("lanes?match=customer-2%3F")
        b.click("#all-that-match")
        b.until_text("#chosen", "^(All|\\d+) selected")
        b.press("Pause", "main")
        b.until_text("dialog #dry-run", "The dry run found")
        b.press("Cancel", "dialog")
        self.w.command("queue", "resume", "--match", "customer-2?", "--execute")

    def test_another_key_than_the_one_shown(self):
        """A key that is no UTF-8 is shown as a text, which may be the key of somebody else. No
        action may take one for the other, nor cut a key of the address off."""
        b = self.b
        others = {b"base64:/3g=", b"%FFx"}
        for key in (b"\xffx", *others):
            self.w.command("queue", "pause", key)
        self.open("lanes")
        b.click("tbody tr:has(a[href='#/key/%FF%78']) input")
        b.press("Resume", "main")
        b.until_text("#toasts .bad", "not UTF-8")
        self.open("key/%FFx")
        b.until_text("#holder", "Paused.*yes")
        b.press("Replay its dead letters", "main")
        b.until_text("#toasts .bad", "not UTF-8")
        b.press("Resume", "main")
        b.until_text("#holder", "Paused\\s+no")
        paused = set(self.w.redis("SMEMBERS", P + "paused"))
        self.assertEqual(paused & {b"\xffx", *others}, others)
        for address, key in (("cut#off", b"cut#off"), ("cut\\..\\off", b"cut\\..\\off")):
            self.open("key/" + address)
            b.until_text("h1", re.escape(key.decode()))
            b.press("Pause", "main")
            b.until("a pause", lambda: key in self.w.redis("SMEMBERS", P + "paused"))
        self.w.command("queue", "pause", "off")
        self.open("key/%FF\\..\\off")
        b.until_text("#holder", "Paused\\s+no")
        self.open("key/..")
        b.until_text("main .problem", "A browser cannot ask")
        self.w.command("queue", "resume", *others, "cut#off", "cut\\..\\off", "off")

    def test_drop_waiting_messages(self):
        b = self.b
        self.w.command("queue", "pause", "customer-30")
        b.until("messages that wait", lambda: self.w.lane("customer-30")["waiting"] > 0, 60)
        self.open("lanes?key=customer-30")
        b.click("tbody tr:nth-child(1) input")
        b.press("Drop", "main")
        b.until_text("dialog", "What is dropped never runs")
        b.press("Drop the waiting messages", "dialog")
        b.until_text("#toasts", "Job .*: done", 30)
        self.w.command("queue", "resume", "customer-30")
        self.assertIn("drop", json.dumps(self.w.command("queue", "audit")))

    def test_dead_letters(self):
        b = self.b
        letters = self.letters("mrs-filter", 12)
        self.open("dead?match=mrs-f*&reason=BAD*")
        b.until_text("#count", "^12 match; 12 on this page")
        self.assertEqual(b.one("#filter-reason").value, "BAD*")
        b.until_text(".reasons", "^12 × BAD_AMOUNT$")
        b.press("Message", "thead")
        names = b.texts("tbody td:nth-child(4)")
        self.assertEqual(
            names,
            sorted(names, key=lambda n: [int(p) if p.isdigit() else p for p in n.split("/")]),
            "sorted by message",
        )
        exported = self.export()
        self.assertEqual({e["identity"] for e in exported}, {m["identity"] for m in letters})
        b.fill("#filter-where", "/amount=nothing")
        b.press("Filter", "main")
        b.until_text("#count", "^0 match")
        self.assertIn("where=", b.url)

    def test_dead_letters_in_a_topic(self):
        """The page must list, show and replay the dead letters of a topic, say that a letter was
        replayed, and not count them as those in Redis."""
        b = self.b
        base, view, message = self.topic_page("in-topic")
        b.until_text("#dead-topic", "go to the topic orders.dead, and stay there")
        b.until_text("tbody", r"in-topic\s+%s\s+NO_RATE: of EUR\s+3" % re.escape(message))
        b.until_text("#dead-badge", "topic$")
        title = b.run("return document.getElementById('dead-badge').title")
        self.assertIn("Those in the topic orders.dead are not counted", title)
        self.view(view)
        b.until_text("main dl", "NO_RATE: of EUR")
        b.until_text("#pretty", '"amount": 13')
        b.press("Replay", "main")
        b.until_text("dialog #dry-run", "found 1 dead letter")
        self.assertNotIn(b"in-topic", b"".join(self.w.redis("ZRANGE", P + "taken", 0, -1)))
        b.press("Replay 1 dead letter", "dialog")
        path = "api/v1/outcomes?outcome=done&key=in-topic"
        ends = lambda at: self.w.get(path, base=at)["outcomes"]  # each host knows its own
        b.until("its replay", lambda: len(ends(self.w.base) + ends(base)) == 1, 60)
        self.open("dead?key=in-topic", base)
        b.until_text("tbody", "replayed or edited NO_RATE: of EUR", 60)
        self.open("key/in-topic", base)
        b.until_text("main", "New dead letters go to a topic: look there for this key")

    def export(self):
        """Presses the Export button, and returns the rows of the file that the browser would
        store."""
        self.b.run(
            "URL.createObjectURL = (blob) => (blob.text().then((t) => (window.exported = t)), 'blob:none'); HTMLAnchorElement.prototype.click = () => {};"
        )
        self.b.press("Export JSONL", "main")
        text = self.b.until("an export", lambda: self.b.run("return window.exported"))
        return [json.loads(line) for line in text.splitlines()]

    def test_an_edited_letter_keeps_its_address(self):
        b = self.b
        (letter,) = self.letters("mr-moved")
        self.open("dead?key=mr-moved")
        b.until_text("tbody", "mr-moved")
        address = b.run("return document.querySelector(\"tbody a[href^='#/dead/']\").href")
        self.view("dead/" + quote(letter["id"]))  # the address as a person or a command writes it
        b.until_text("main dl", "BAD_AMOUNT")
        b.until("an address that outlives an edit", lambda: b.url == address)
        b.fill("#payload", '{"id":"mr-moved-0","customer":"mr-moved","amount":"eleven"}')
        b.press("Save", "main")
        b.press("Save", "dialog")
        b.until_text("#toasts", "Saved")
        b.until_text("#pretty", "eleven")
        self.assertNotEqual([m["id"] for m in self.of("mr-moved")], [letter["id"]])
        self.assertEqual(b.url, address)
        b.go("about:blank")
        b.go(address)
        b.until_text("#pretty", "eleven")

    def test_drop_one_and_replay_one(self):
        b = self.b
        one, two = self.letters("miss-drop", 2)
        self.view("dead/" + quote(one["id"]))
        b.until_text("main dl", "BAD_AMOUNT.*twelve")
        b.press("Drop", "main")
        b.until_text("dialog #dry-run", "found 1 dead letter")
        b.press("Cancel", "dialog")
        self.assertEqual(len(self.of("miss-drop")), 2, "a dry run and Cancel drop nothing")
        b.press("Drop", "main")
        b.press("Drop 1 dead letter", "dialog")
        b.until("one less", lambda: [m["id"] for m in self.of("miss-drop")] == [two["id"]])
        self.view("dead/" + quote(two["id"]))
        b.until_text("main dl", "BAD_AMOUNT")
        b.press("Replay", "main")
        b.until_text("dialog #dry-run", "found 1 dead letter")
        b.press("Replay 1 dead letter", "dialog")
        b.until(
            "the same, dead again under the number of a job",
            lambda: [m.get("replay", 0) > 0 for m in self.of("miss-drop")] == [True],
        )

    def test_cancel_a_job(self):
        b = self.b
        self.letters("ms-cancel", 8)
        self.open("dead?key=ms-cancel")
        b.until_text("#count", "^8 match")
        b.click("#all-that-match")
        b.press("Replay", "main")
        b.fill("#rate", "0.5")
        b.press("Replay", "dialog")
        self.view("jobs")
        b.press("Cancel", "tbody")
        b.until_text("tbody", "cancelled")
        self.assertIn(
            0, [m.get("replay", 0) for m in self.of("ms-cancel")], "what was not replayed stays"
        )

    def test_audit(self):
        self.w.command("queue", "pause", "customer-40")
        self.w.command("queue", "resume", "customer-40")
        self.open("audit")
        self.b.until_text("tbody", "Paused customer-40")
        self.b.until_text("tbody", "Resumed customer-40")
        self.b.fill("#find", "no-such-entry")
        self.b.until_text("main", "No entry")

    # --- who may do what --------------------------------------------------------------------------

    def test_read_only_without_a_token(self):
        b = self.b
        b.run("sessionStorage.clear()")
        self.open("key/customer-9", token=False)
        self.assertRegex(b.text("#who"), "Read-only")
        b.press("Pause", "main")
        b.until_text("dialog", "needs a write token")
        b.fill("dialog #token", "wrong")
        b.press("Use this token", "dialog")
        b.until_text("dialog .problem", r"\w+")
        b.keys("Escape")
        b.until("no dialog", lambda: not b.all("dialog"))
        self.assertNotIn(b"customer-9", self.w.redis("SMEMBERS", P + "paused"))

    def test_a_link_does_not_replace_the_token(self):
        b = self.b
        self.b.go("about:blank")
        b.go(self.w.base + "#/overview?token=of-somebody-else")
        b.one("h1")
        self.assertEqual(b.run("return sessionStorage.getItem('latchwork.token')"), self.w.token)
        self.assertNotIn("somebody", b.url)
        b.until_text("body", "keeps its token")

    def test_tokens_for_reading_and_writing_and_masked_payloads(self):
        b = self.b
        self.letters("dr-mask")
        base = self.w.another(
            read_tokens={"rita": "rita-reads-only-here"},
            write_tokens={"walter": "walter-may-write-here"},
            payloads="mask",
            mask=["/customer"],
        )
        self.open("dead?key=dr-mask", base, token=False)
        b.until_text("dialog", "Reading needs a token")
        b.fill("dialog #token", "rita-reads-only-here")
        b.press("Use this token", "dialog")
        b.until_text("#who", "rita: read-only")
        b.until_text("tbody", "•••")
        self.assertNotIn('"customer":"dr-mask"', b.text("tbody td:last-child"))
        b.click("tbody a[href^='#/dead/']")
        b.until_text("main", "cannot be edited here")
        b.press("Replay", "main")
        b.until_text("dialog", "needs a write token")
        b.fill("dialog #token", "walter-may-write-here")
        b.press("Use this token", "dialog")
        b.until_text("#who", "Token: walter")
        b.until(
            "the question, or the page",
            lambda: "dry run" in b.text("dialog") or not b.all("dialog"),
        )
        self.assertNotIn(
            "walter-may-write-here",
            b.run("return document.cookie + location.href + JSON.stringify(localStorage)"),
        )

    # --- what a stranger may put into a message ---------------------------------------------------

    def test_no_script_of_a_message_runs(self):
        b = self.b
        payload = json.dumps({"id": EVIL, "customer": EVIL, "amount": EVIL})
        subprocess.run(
            [
                BUILD + "/tests/tools/kafkatool",
                self.w.brokers,
                "produce",
                "orders-web",
                "--header",
                "trace=" + EVIL,
            ],
            input=("0|k|%s\n" % payload).encode(),
            check=True,
            stdout=subprocess.DEVNULL,
            timeout=60,
        )
        letter = b.until(
            "the dead letter", lambda: [m for m in self.w.dead() if m["key"] == EVIL], 60
        )[0]
        self.assertIn("<img", letter["reason"])
        self.view("dead/" + quote(letter["id"]))
        for part in ("main dl", "#pretty"):
            b.until_text(part, re.escape("<img src=x onerror="))
        self.assertEqual(
            b.run(
                "return [...document.querySelectorAll('dt')].find((e) => e.textContent === 'Header trace').nextSibling.textContent"
            ),
            SHOWN,
        )
        self.assertIn(json.dumps(EVIL), b.one("#payload").value)
        b.run(
            "const a = document.getElementById('payload'); a.value = a.value.replace('pwned=1', 'pwned=3'); a.dispatchEvent(new Event('input'));"
        )
        b.until_text("#diff", re.escape("<img src=x"))
        for view in ("dead", "overview", "audit", "key/" + quote(EVIL), "lanes?key=" + quote(EVIL)):
            self.view(view)
            if view not in ("audit", "lanes?key=" + quote(EVIL)):
                b.until_text("main", re.escape("<img src=x"))
                b.until_text("main", re.escape("⟨U+202E⟩<img src=x"))
            self.assertNotIn("\u202e", b.run("return document.body.innerText + document.title"))
        self.w.command("queue", "pause", EVIL)
        self.open("lanes")
        b.until_text("main", re.escape("<img src=x"))
        b.click("tbody a[href*='img']")
        b.until_text("h1", re.escape("<img src=x"))
        b.press("Replay its dead letters", "main")
        b.until_text("dialog #dry-run", "found 1 dead letter")
        self.w.command("queue", "resume", EVIL)
        self.assertIsNone(b.run("return window.pwned === undefined ? null : window.pwned"))
        self.assertEqual(
            b.run(
                "return document.querySelectorAll('main img, main script, dialog img, dialog script').length"
            ),
            0,
        )
        self.assertEqual(b.problems(), [])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *("Page." + name for name in sys.argv[2:])], verbosity=2)
