# SPDX-License-Identifier: Apache-2.0
"""A running `latchwork dev --faults`, for the tests of the web page."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.request

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
sys.path.insert(0, os.path.join(ROOT, "tests/live"))
sys.dont_write_bytecode = True
from lib.process import descendants, wait_until  # noqa: E402
from lib.redis import Client  # noqa: E402

P = "lw:{dev.0}:"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class World:
    def __init__(self, build, *options):
        self.build = os.path.abspath(build)
        self.folder = tempfile.mkdtemp(prefix="lw-page-", dir="/tmp")
        self.out = os.path.join(self.folder, "out")
        self.env = dict(os.environ, TMPDIR=self.folder, LC_ALL="C.UTF-8")
        self.env.pop("LATCHWORK_JOURNAL", None)
        with open(self.out, "wb") as out:
            self.dev = subprocess.Popen(
                [self.build + "/latchwork", "dev", *options],
                cwd=self.folder,
                env=self.env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
        self.others = []
        try:
            wait_until(
                lambda: (
                    re.search(r"^  workers +\d", self.said(), re.M) or self.dev.poll() is not None
                ),
                60,
                "a welcome of dev",
            )
            (self.link,) = re.findall(r"^  page +(\S+)", self.said(), re.M)
            self.base, self.token = self.link.split("#/?token=")
            (self.config,) = re.findall(r"^  config +(\S+)", self.said(), re.M)
            self.redis = Client(re.findall(r"^  redis +unix://(\S+)", self.said(), re.M)[0])
            (self.brokers,) = re.findall(r"^  broker +(\S+)", self.said(), re.M)
            wait_until(lambda: self.get("readyz", plain=True), 60, "a ready worker")
        except BaseException:
            print(self.said())
            self.close()
            raise

    def said(self):
        with open(self.out, errors="replace") as f:
            return f.read()

    def close(self):
        for p in [*self.others, self.dev]:
            if p.poll() is None:
                p.send_signal(signal.SIGINT)
            try:
                p.wait(40)
            except subprocess.TimeoutExpired:
                os.killpg(p.pid, signal.SIGKILL)
                p.wait(10)
        if hasattr(self, "redis"):
            self.redis.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def get(self, path, plain=False, base=None):
        try:
            with urllib.request.urlopen(
                urllib.request.Request(
                    (base or self.base) + path, headers={"Authorization": "Bearer " + self.token}
                ),
                timeout=20,
            ) as r:
                text = r.read().decode()
        except OSError:
            return None
        return text if plain else json.loads(text)

    def command(self, *words, stdin=None):
        """Runs a `latchwork` command for operators with --json, and returns the printed lines."""
        done = subprocess.run(
            [self.build + "/latchwork", *words, "-c", self.config, "--json"],
            cwd=self.folder,
            env=self.env,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, "%s: %s%s" % (words, done.stdout, done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def dead(self):
        return self.command("dead", "ls")

    def lane(self, key):
        return self.get("api/v1/lanes/" + key)

    def put(self, lines):
        """Produces messages to a topic of `latchwork dev`. Each line has the form
        partition|key|payload."""
        subprocess.run(
            [self.build + "/tests/tools/kafkatool", self.brokers, "produce", "orders-web"],
            input=lines.encode(),
            check=True,
            stdout=subprocess.DEVNULL,
            timeout=60,
        )

    def exporter(self):
        """Returns the id of the process that serves the web page, which is the process that listens
        on the page's port. Returns None if there is none."""
        port = int(self.base.rsplit(":", 1)[1].strip("/"))
        for pid in descendants(self.dev.pid):
            if port in listening(pid):
                return pid
        return None

    def redis_server(self):
        """Returns the id of the process of `latchwork dev`'s Redis."""
        for pid in descendants(self.dev.pid):
            with open("/proc/%d/cmdline" % pid, "rb") as f:
                if b"redis-server" in f.read():
                    return pid
        return None

    def another(self, dead=None, **http):
        """Starts another `latchwork run`, which uses the broker and the Redis of `latchwork dev`.
        The arguments are the section `dead`, if any, and HTTP settings that only this process gets.
        Returns the address of its web page."""
        with open(self.config) as f:
            settings = json.load(f)
        port = free_port()
        settings["workers"] = 1
        settings["http"] = dict(http, listen="127.0.0.1:%d" % port)
        if dead:
            settings["dead"] = dead
        path = os.path.join(self.folder, "other-%d.json" % port)
        with open(path, "w") as f:
            json.dump(settings, f)
        with open(path + ".log", "wb") as log:
            self.others.append(
                subprocess.Popen(
                    [self.build + "/latchwork", "run", "-c", path],
                    cwd=self.folder,
                    env=self.env,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            )
        base = "http://127.0.0.1:%d/" % port

        def serves():
            assert self.others[-1].poll() is None, open(path + ".log").read()
            try:
                return urllib.request.urlopen(base + "version", timeout=5).status == 200
            except OSError:
                return False

        wait_until(serves, 30, "the other page")
        return base

    def end_of_another(self):
        """Stops the `latchwork run` that another() has started last."""
        p = self.others.pop()
        p.send_signal(signal.SIGTERM)
        assert p.wait(60) == 0


def listening(pid):
    """Returns the ports of 127.0.0.1 on which the process `pid` listens."""
    inodes = set()
    try:
        for fd in os.listdir("/proc/%d/fd" % pid):
            inodes.update(
                re.findall(r"^socket:\[(\d+)\]$", os.readlink("/proc/%d/fd/%s" % (pid, fd)))
            )
        with open("/proc/%d/net/tcp" % pid) as f:
            rows = [line.split() for line in f.readlines()[1:]]
    except OSError:
        return set()
    return {int(r[1].split(":")[1], 16) for r in rows if r[3] == "0A" and r[9] in inodes}
