# SPDX-License-Identifier: Apache-2.0
"""What the tests of the web page share: a browser on a running `latchwork dev`."""

import os
import subprocess
import sys
import unittest
import urllib.parse

from driver import Browser
from world import ROOT, World

BUILD = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "build")
VIEWS = (
    "overview",
    "lanes",
    "dead",
    "locks",
    "groups",
    "jobs",
    "audit",
    "workers",
    "key/customer-7",
)
# a script, and a character that reverses the order in which the rest of the line is shown
EVIL = '\u202e<img src=x onerror="window.pwned=1"><script>window.pwned=2</script>'


def quote(text):
    return urllib.parse.quote(text, safe="")


class PageTest(unittest.TestCase):
    dev = ("--faults", "--rate", "60")  # options of `latchwork dev`

    @classmethod
    def setUpClass(cls):
        cls.w = World(BUILD, *cls.dev)
        cls.addClassCleanup(cls.w.close)
        cls.b = Browser()
        cls.addClassCleanup(cls.b.close)

    def setUp(self):
        self.b.resize(1280)
        self.b.media(prefers_color_scheme="light", prefers_reduced_motion="no-preference")
        self.open("overview")
        self.b.problems()

    def open(self, view, base=None, token=True):
        """Reloads the web page and opens the view `view`."""
        self.b.go("about:blank")
        link = (base or self.w.base) + "#/" + view
        self.b.go(link + ("&" if "?" in link else "?") + "token=" + self.w.token if token else link)
        self.b.one("h1")

    def view(self, name):
        self.b.run("location.hash = '#/' + arguments[0]", name)
        self.b.one("h1")

    def topic_page(self, key):
        """Starts a supervisor whose dead letters go to a topic, which gets a letter of the key
        `key`. Returns the address of its page, the view of the letter, and its message. The
        supervisor ends with the test."""
        b, topic = self.b, "orders.dead"
        (letter,) = self.letters(key)  # a message that is dead; the letter moves to the topic
        self.w.command("dead", "drop", letter["id"], "--execute")
        base = self.w.another(dead={"to": "topic:" + topic}, write_tokens={"tess": self.w.token})
        self.addCleanup(self.w.end_of_another)
        headers = {"origin": letter["identity"], "reason": "NO_RATE: of EUR", "attempts": "3"}
        words = [w for n, v in headers.items() for w in ("--header", "latchwork-%s=%s" % (n, v))]
        subprocess.run(
            [BUILD + "/tests/tools/kafkatool", self.w.brokers, "produce", topic, *words],
            input=('0|k|{"id":"%s-0","customer":"%s","amount":13}\n' % (key, key)).encode(),
            check=True,
            stdout=subprocess.DEVNULL,
            timeout=60,
        )
        self.open("dead?key=" + key, base)
        b.until_text("#count", "^1 match", 60)
        view = b.one("tbody a[href^='#/dead/']").attribute("href")[2:]
        return base, view, letter["identity"]

    def letters(self, customer, n=1):
        """Makes n dead letters of the customer `customer`, and returns them."""
        self.w.put(
            "".join(
                '0|k|{"id":"%s-%d","customer":"%s","amount":"twelve"}\n' % (customer, i, customer)
                for i in range(n)
            )
        )
        return self.b.until(
            "%d dead letters of %s" % (n, customer),
            lambda: [x for x in [self.of(customer)] if len(x) == n],
            60,
        )[0]

    def load_axe(self):
        """Loads axe-core into the page, for violations()."""
        path = subprocess.run(
            [os.path.join(ROOT, "tests/browser/axe.sh"), os.path.dirname(BUILD + "/x")],
            check=True,
            capture_output=True,
            text=True,
            timeout=300,
        ).stdout
        with open(path.strip(), encoding="utf-8") as f:
            self.b.run(f.read() + "\nwindow.axe = axe;")

    def violations(self):
        found = self.b.run_async(
            "const done = arguments[arguments.length - 1]; axe.run(document, {resultTypes: ['violations']}).then((r) => done(r.violations))"
        )
        return [
            "%s: %s: %s"
            % (
                v["id"],
                v["help"],
                [
                    n["html"][:160] + " " + (n["any"] or [{"message": ""}])[0]["message"][:200]
                    for n in v["nodes"]
                ][:3],
            )
            for v in found
        ]

    def of(self, customer):
        return [m for m in self.w.dead() if m["key"] == customer]
