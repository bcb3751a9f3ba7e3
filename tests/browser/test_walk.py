#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Follows doc/tutorial-page.md on `latchwork dev --faults`, with the web page alone:
find the stuck key, break its lock, find out why ten messages died, correct the payload of one
message, replay the ten messages at 5 per second, and watch the replay in the charts.
Usage: test_walk.py [BUILD [FOLDER]]
If FOLDER is given, a screenshot of each step is stored in it (make screenshots). No test asserts
how long something takes. Time limits only turn a hang into a failure."""

import json
import os
import re
import sys

sys.dont_write_bytecode = True
from driver import Browser  # noqa: E402
from world import P, World  # noqa: E402

BUILD = sys.argv[1] if len(sys.argv) > 1 else "build"
SHOTS = sys.argv[2] if len(sys.argv) > 2 else None
STUCK = "customer-7"


class Walk:
    def __init__(self, world, browser):
        self.w, self.b = world, browser

    def shot(self, name):
        if not SHOTS:
            return
        self.b.run(
            "document.querySelectorAll('.toast').forEach((e) => e.remove())"
            if name in ("overview", "after", "fleet")
            else ""
        )
        self.b.shot(os.path.join(SHOTS, "page-%s.png" % name))

    def look(self):
        """The overview must show the number of dead letters, the reasons of the failures, and the
        state of the workers."""
        b = self.b
        b.go(self.w.link)
        b.until_text("#connection", "^Live$")
        assert "token" not in b.url, "the token leaves the address: %s" % b.url
        b.until_text("#dead-badge", "^10$", 60)
        b.until_text("main", "NO_RATE: no exchange rate for CHF")
        b.until_text("main", "BAD_AMOUNT")
        b.until_text("#figures", "2 of 2 workers ready, 8 partitions")
        b.until("a lane that waits", lambda: self.w.get("api/v1/stats")["waiting"] > 5, 60)
        if SHOTS:  # For a screenshot, wait until the charts show the last few minutes.
            b.until("minutes of history", lambda: b.run("return live.points.length") > 14, 400)
        self.shot("overview")

    def find(self):
        """If the list of lanes is sorted by age, the stuck lane must come first."""
        b = self.b
        b.click("nav a[href='#/lanes']")
        b.until_text("table", STUCK)
        b.press("Age", "thead")
        b.press("Age", "thead")
        assert b.one("th[aria-sort=descending]").text.startswith("Age")
        b.until("the stuck key first", lambda: b.text("tbody tr td:nth-child(2)") == STUCK)
        self.shot("lanes")
        b.click("tbody tr a")
        lane = self.w.lane(STUCK)
        b.until_text("#holder", re.escape(lane["holder"]))
        b.until_text("#holder", "Fence\\s+%d" % lane["fence"])
        b.until_text("main", r"orders-(web|shop)/\d/\d+")
        self.fence = lane["fence"]
        self.shot("key")

    def break_it(self):
        b = self.b
        b.press("Break the lock", "main")
        b.until_text("dialog #dry-run", "has held it for")
        assert self.w.lane(STUCK)["fence"] == self.fence, "the dry run changes nothing"
        self.shot("break")
        b.press("Break the lock", "dialog")
        b.until_text("#toasts", "is broken; the fence is ")
        b.until("a lane that moves on", lambda: not (self.w.lane(STUCK) or {}).get("waiting"), 60)
        b.until(
            "a higher fence",
            lambda: int(self.w.redis("GET", P + "fence") or self.fence + 1) > self.fence,
        )
        b.until_text("main", "Nothing waits|orders-")

    def why(self):
        b = self.b
        b.click("nav a[href='#/dead']")
        b.until_text("#count", "^10 match; 10 on this page")
        b.until_text(".reasons", "9 × NO_RATE.*1 × BAD_AMOUNT")
        self.shot("dead")
        b.until("a click on the second reason", lambda: b.all(".reasons li a")[1].click() or True)
        b.until_text("#count", "^1 match; 1 on this page")
        b.click("tbody a[href^='#/dead/']")
        b.until_text("main dl", r'BAD_AMOUNT: /amount must be a number, but is "12,50"')

    def correct(self):
        b = self.b
        area = b.one("#payload")
        wrong = area.value
        assert '"amount":"12,50"' in wrong, wrong
        b.fill("#payload", wrong.replace('"12,50"', ""))
        b.until_text("#valid", "This is no JSON")
        assert not b.button("Save", "#main .stack").enabled
        right = wrong.replace('"12,50"', "1250")
        b.fill("#payload", right)
        b.until_text("#valid", "Valid JSON")
        assert '-   "amount": "12,50"' in b.text("#diff del") and '+   "amount": 1250' in b.text(
            "#diff ins"
        ), b.text("#diff")
        self.shot("edit")
        b.press("Save", "#main .stack")
        b.press("Save", "dialog")
        b.until_text("#toasts", "Saved")
        b.until("the payload in Redis", lambda: right in [m.get("payload") for m in self.w.dead()])
        assert len(self.w.dead()) == 10, "an edit takes none away"

    def replay(self):
        b = self.b
        b.click("nav a[href='#/dead']")
        b.until_text("#count", "^10 match")
        b.click("#all-that-match")
        b.until_text("#chosen", "10 selected")
        b.press("Replay", "main")
        b.until_text("dialog #dry-run", "The dry run found 10 dead letters")
        assert len(self.w.dead()) == 10, "the dry run changes nothing"
        b.fill("#rate", "5")
        self.shot("replay")
        b.press("Replay 10 dead letters", "dialog")
        b.until_text("#toasts", "Job .*: done, 10 of 10", 60)
        b.until_text("#count", "^0 match", 60)
        assert self.w.dead() == [], "the ten are done"

    def watch(self):
        b = self.b
        b.click("nav a[href='#/jobs']")
        b.until_text("tbody", r"done\s+10 of 10")
        b.click("nav a[href='#/overview']")
        b.until_text(".charts", r"Dead letters.*kept 0\b")
        b.until(
            "no badge",
            lambda: b.run(
                "return document.getElementById('dead-badge').classList.contains('none')"
            ),
        )
        drawn = b.run(
            "return [...document.querySelectorAll('.chart path')].map((e) => (e.getAttribute('d') || '').length)"
        )
        assert len(drawn) == 12 and min(drawn) > 20, drawn
        self.shot("after")
        b.click("nav a[href='#/audit']")
        b.until_text("tbody", "break")
        who = set(re.findall(r"http:\S+", b.text("tbody")))
        assert who and all("token" in name and "127.0.0.1" in name for name in who), who
        words = json.dumps(self.w.command("queue", "audit"))
        assert "edit" in words and "replay" in words and STUCK in words, words

    def fleet(self):
        """Only for its picture (test_conditions.py tests it): three supervisors, one killed."""
        b = self.b
        for _ in range(2):
            self.w.another()
        b.click("nav a[href='#/overview']")
        b.until_text("#fleet", "^3 supervisors: 3 up. .* 4 of 4 workers ready", 60)
        killed = self.w.others[-1]
        killed.kill()
        killed.wait(30)
        b.until_text("#trouble", r"^Supervisor \S+ \(process %d\) is silent" % killed.pid, 120)
        self.shot("fleet")


STEPS = ("look", "find", "break_it", "why", "correct", "replay", "watch")
if SHOTS:
    STEPS += ("fleet",)


def main():
    world = World(BUILD, "--faults")
    try:
        browser = Browser(1220, 840)
        try:
            walk = Walk(world, browser)
            for step in STEPS:
                try:
                    getattr(walk, step)()
                except BaseException:
                    print("FAILED: %s" % step)
                    raise
            problems = browser.problems()
            assert not problems, problems
        finally:
            browser.close()
    finally:
        world.close()
    print("%d steps passed" % len(STEPS))


if __name__ == "__main__":
    main()
