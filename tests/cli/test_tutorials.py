#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Follows the tutorials for handlers (doc/tutorial-python.md, -node.md, -cpp.md) as a new user
would: starts in an empty folder, uses only the files that `make install` installs, runs each
command and writes each file as the page shows it.
Usage: test_tutorials.py [BUILD]"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
sys.path.insert(0, os.path.join(ROOT, "tests/live"))
sys.dont_write_bytecode = True
from lib.process import listens, wait_until  # noqa: E402

BUILD = sys.argv[1] if len(sys.argv) > 1 else "build"
LIMIT_S = 600
SERVICE = 8377  # the port of the service in the tutorial for Node


def steps(page):
    """Yields (language, code, the text before the block) for each block of the page. Blocks without
    a language show output."""
    text, code, language = [], [], None
    with open(os.path.join(ROOT, "doc", page)) as f:
        lines = f.readlines()
    for line in lines:
        if not line.startswith("```"):
            (text if language is None else code).append(line)
        elif language is None:
            language = line.strip()[3:]
        else:
            if language:
                yield language, "".join(code), " ".join("".join(text).split())
            text, code, language = [], [], None


class Tutorials(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.prefix = tempfile.mkdtemp(prefix="latchwork-installed-")
        cls.addClassCleanup(shutil.rmtree, cls.prefix)
        env = {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")}
        made = subprocess.run(
            ["make", "--no-print-directory", "install", "B=" + BUILD, "PREFIX=" + cls.prefix],
            cwd=ROOT,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=600,
        )
        assert made.returncode == 0, made.stdout

    def setUp(self):
        self.home = tempfile.mkdtemp(prefix="latchwork-tutorial-")
        self.addCleanup(shutil.rmtree, self.home)
        self.env = dict(
            os.environ,
            PATH=self.prefix + "/bin:" + os.environ["PATH"],
            PKG_CONFIG_PATH=self.prefix + "/lib/pkgconfig",
            TMPDIR=self.home,
            CXX="c++",
        )
        for name in ("LATCHWORK_JOURNAL", "BROKER", "REDIS", "MAKEFLAGS", "MFLAGS", "MAKELEVEL"):
            self.env.pop(name, None)
        self.here = self.home
        self.terminals = []
        self.addCleanup(self.close_terminals)

    def close_terminals(self):
        for p in reversed(self.terminals):
            if p.poll() is None:
                os.killpg(p.pid, signal.SIGINT)
            try:
                p.wait(30)
            except subprocess.TimeoutExpired:
                os.killpg(p.pid, signal.SIGKILL)
                p.wait()

    def run_here(self, code):
        """Runs a block as the reader would in one terminal: the current folder and exported
        variables are the same for all blocks. Returns the output."""
        state = os.path.join(self.home, ".state")
        script = 'cd "%s"\n%s\n{ pwd; env -0; } >"%s"\n' % (self.here, code, state)
        p = subprocess.run(
            ["bash", "-ec", script],
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            timeout=LIMIT_S,
        )
        self.assertEqual(p.returncode, 0, "%s\n%s\n%s" % (code, p.stdout[-3000:], p.stderr[-3000:]))
        self.assertNotIn("AUTOCREATE", p.stderr)
        with open(state) as f:
            folder, env = f.read().split("\n", 1)
        self.here = folder
        self.env.update(v.split("=", 1) for v in env.split("\0") if "=" in v)
        return p.stdout

    def open_terminal(self, code):
        dev = "latchwork dev" in code
        # The handlers of a busy machine, too, must be faster than orders come: else a drain, which
        # leaves no key out, takes as long as 64 messages of each (lock.max_run).
        code = code.strip() + (" --rate 50" if dev else "")
        out = os.path.join(self.home, ".terminal%d" % len(self.terminals))
        with open(out, "wb") as f:
            self.terminals.append(
                subprocess.Popen(
                    ["bash", "-ec", "exec " + code],
                    cwd=self.here,
                    env=self.env,
                    stdin=subprocess.DEVNULL,
                    stdout=f,
                    stderr=f,
                    start_new_session=True,
                )
            )
        if dev:
            # Let `latchwork dev` produce orders until a few hundred are done. A later command of
            # the page drains them.
            many = r"^ +\d+ s +([2-9]|\d,\d)\d\d of "
            wait_until(lambda: re.search(many, self.said(out), re.M), 300, "few hundred orders")
            self.dev = self.said(out)
        else:
            wait_until(
                lambda: listens(self.terminals[-1].pid, SERVICE), 60, "service at port %d" % SERVICE
            )

    @staticmethod
    def said(path):
        with open(path, errors="replace") as f:
            return f.read()

    def follow(self, page):
        """Runs the commands and writes the files of the page. Returns the commands' output."""
        out = ""
        for language, code, text in steps(page):
            named = re.findall(r"`([^` ]+)`", text)
            if language != "sh":
                self.assertTrue(named, "no file is named before: " + code)
                name = [n for n in named if "." in n][-1] if "Replace" in text else named[-1]
                with open(os.path.join(self.here, name), "w") as f:
                    f.write(code)
            elif re.search(r"in a (second|third) terminal,", text):
                self.open_terminal(code)
            elif code.startswith("export BROKER="):
                broker = re.search(r"^  broker +(\S+)", self.dev, re.M).group(1)
                redis = re.search(r"^  redis +(\S+)", self.dev, re.M).group(1)
                out += self.run_here("export BROKER=%s REDIS=%s" % (broker, redis))
            else:
                out += self.run_here(code)
        self.assertGreaterEqual(out.count("; as expected"), 3)
        self.drained = int(re.search(r"^done (\d+) dead 0 .* in ", out, re.M).group(1))
        self.assertGreater(self.drained, 100)
        return out

    def test_python(self):
        out = self.follow("tutorial-python.md")
        self.assertIn("\n14\n", out)
        self.assertRegex(out.splitlines()[-1], r"^\d+\|\d+$")

    def test_node(self):
        out = self.follow("tutorial-node.md")
        self.assertGreater(int(out.split()[-1]), 100)

    def test_cpp(self):
        self.follow("tutorial-cpp.md")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
