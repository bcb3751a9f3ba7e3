#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests what the web page shows of groups in a real browser, on a running `latchwork dev
--tenants`, in which one tenant has more orders than its limit: figures, limits, pauses, and why a
key does not run.
Usage: test_groups.py [BUILD [TEST…]]
No test asserts how long something takes. Time limits only turn a hang into a failure."""

import re
import sys
import unittest

sys.dont_write_bytecode = True
from page import EVIL, PageTest, quote  # noqa: E402
from world import P  # noqa: E402

ROWS = """
const rows = {};
for (const tr of document.querySelectorAll('main tbody tr')) {
  const cells = [...tr.cells].map((e) => [e.dataset.label, e.innerText.trim()]);
  rows[cells[0][1]] = Object.fromEntries(cells);
}
return rows;
"""


class Groups(PageTest):
    dev = ("--tenants",)

    def row(self, name, label, wanted):
        """Waits until the row of a group shows a text that the pattern fits."""
        self.b.until_text("main tbody", ".")
        return self.b.until(
            "%s %r of %s in %s" % (label, wanted, name, self.b.run(ROWS)),
            lambda: re.search(wanted, self.b.run(ROWS).get(name, {}).get(label, "")),
            60,
        )

    def act(self, what, name):
        self.b.click('button[aria-label="%s %s"]' % (what, name))
        self.b.one("dialog")

    def set_limits(self, of, **limits):
        """Enters limits of a group, or of the fleet, and presses the button."""
        self.act("Set the limits of", of)
        for name, value in limits.items():
            self.b.fill("#limit-" + name, value)
        self.b.press("Set the limits", "dialog")

    def limit(self, of):
        value = self.w.redis("HGET", P + "limits", of)
        return value and value.decode()

    def test_figures(self):
        self.view("groups")
        for name in ("acme", "birch", "cedar"):
            self.row(name, "Starts per second", r"^[\d.]*[1-9]")
            self.row(name, "Handler time", r"^[\d.]*[1-9][\d.]* %$")
        self.row("The fleet", "Handler time", "^100 %$")
        self.row("acme", "State", '^limited.*: group "acme" (has no free|waits for a token)')
        self.row("acme", "Waiting lanes", "[1-9]")
        told = {g["group"]: g for g in self.w.command("group", "ls")}
        self.assertEqual(set(told), {None, "acme", "birch", "cedar"})
        limits = told["acme"]["limits"]
        self.row("acme", "Starts per second", "of %d$" % limits["per_second"])
        self.row("acme", "Limits from", "^(file|limits.group)$")
        shares = [told[name]["share"] for name in ("acme", "birch", "cedar")]
        self.assertTrue(0.9 <= sum(shares) <= 1.01, shares)

    def test_set_and_lift(self):
        b = self.b
        self.view("groups")
        before = self.w.redis("HGETALL", P + "limits")
        self.act("Set the limits of", "group acme")
        b.press("Cancel", "dialog")
        b.until("no dialog", lambda: not b.all("dialog"))
        self.set_limits("group acme")  # nothing is changed
        b.until("no dialog", lambda: not b.all("dialog"))
        self.assertEqual(self.w.redis("HGETALL", P + "limits"), before)
        self.set_limits("group acme", per_second="7", running="2")
        b.until_text("#toasts", "group acme: at most 2 at once, at most 7 per second")
        self.row("acme", "Starts per second", "of 7$")
        self.row("acme", "Running", "^[012] of 2$")
        self.row("acme", "Limits from", "^set$")
        self.assertRegex(self.limit("group:acme"), "^2 7 ")
        self.set_limits("group acme", running="")
        self.row("acme", "Running", r"^\d+$")
        self.assertRegex(self.limit("group:acme"), "^0 7 ")
        # a number that is none does not leave the browser
        self.set_limits("group acme", running="0")
        self.assertTrue(b.all("dialog"))
        b.keys("Escape")
        b.click("#set-each")
        b.fill("#limit-per_second", "30")
        b.press("Set the limits", "dialog")
        b.until_text("#each", "at most 30 per second, burst 3.*\\(set\\)")
        self.set_limits("the fleet", running="900")
        self.row("The fleet", "Running", "of 900$")
        self.view("audit")
        b.until_text("tbody", "Set limits of the fleet: running 900")
        b.until_text("tbody", "Set limits of each group.*: per_second 30")
        b.until_text("tbody", "Set limits of group acme: running none")
        self.restore(dict(pairs(before)))

    def restore(self, limits):
        """Sets the limits of the fleet, each group and acme that were in force before."""
        for field, of in (("fleet", "--fleet"), ("each", "--each"), ("group:acme", "acme")):
            old = limits.get(field.encode(), limits[b"each"]).decode().split()
            running, rate = [n if n != "0" else "none" for n in old[:2]]
            self.w.command("group", "set", of, "--running", running, "--per-second", rate)

    def test_pause_and_why(self):
        b = self.b
        lane = lambda group: next(
            (k.decode() for k, v in pairs(self.w.redis("HGETALL", P + "group")) if v == group), None
        )
        self.view("groups")
        self.act("Pause", "group birch")
        b.keys("Enter")  # the button that changes nothing has the focus
        b.until("no dialog", lambda: not b.all("dialog"))
        self.assertIsNone(self.limit("paused:birch"))
        self.act("Pause", "group birch")
        b.press("Pause", "dialog")
        self.row("birch", "State", '^paused for .*: group "birch" is paused')
        self.assertTrue(self.limit("paused:birch"))
        key = b.until("a lane of birch that waits", lambda: lane(b"birch"), 60)
        self.view("key/" + quote(key))
        b.until_text("#holder", 'Waits because\\s+group "birch" is paused', 60)
        # a tenant at its limit
        before = self.w.redis("HGETALL", P + "limits")
        key = b.until("a lane of acme that waits", lambda: lane(b"acme"), 60)
        self.w.command("group", "set", "acme", "--per-second", "1", "--running", "1")
        self.view("key/" + quote(key))
        b.until_text("#holder", 'Waits because\\s+group "acme" (has no free place|waits for)', 60)
        self.view("groups")
        self.act("Resume", "group birch")
        b.press("Resume", "dialog")
        b.until("no pause", lambda: not self.limit("paused:birch"))
        self.row("birch", "State", "^(?!paused)")
        self.restore(dict(pairs(before)))

    def test_many_and_hostile_names(self):
        names = ["group:more-%03d" % i for i in range(150)] + ["group:" + EVIL]
        self.w.redis("HSET", P + "limits", *(x for n in names for x in (n, "5 0 0 -")))
        try:
            self.view("groups")
            self.b.until_text("#more-groups", r"and 5\d more")
            self.assertEqual(len(self.b.all("main tbody tr")), 101)
            self.w.redis("HDEL", P + "limits", *names[:-1])
            self.row("⟨U+202E⟩" + EVIL[1:], "Limits from", "set")
            self.assertEqual(self.b.text("#more-groups"), "")
            self.assertIsNone(self.b.run("return window.pwned"))
        finally:
            self.w.redis("HDEL", P + "limits", *names)

    def test_widths_and_accessible(self):
        b = self.b
        for scheme, width in (("light", 1280), ("dark", 1280), ("light", 390), ("light", 360)):
            b.media(prefers_color_scheme=scheme)
            b.resize(width)
            self.open("groups")
            self.load_axe()
            self.row("acme", "Handler time", "%")
            where = "%s, %d px" % (scheme, width)
            inner, wide = b.run("return [innerWidth, document.documentElement.scrollWidth]")
            self.assertLessEqual(wide, inner, where)
            cut = b.run(
                "return [...document.querySelectorAll('.scroll')].filter((e) => e.scrollWidth > e.clientWidth + 1).length"
            )
            self.assertEqual(cut, 0, where)
            self.assertEqual(self.violations(), [], where)
            self.act("Set the limits of", "group acme")
            self.assertEqual(self.violations(), [], "the dialog, " + where)
            b.keys("Escape")


def pairs(flat):
    return zip(flat[::2], flat[1::2])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *("Groups." + name for name in sys.argv[2:])], verbosity=2)
