#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The rights of the Redis user: the table against the code, and a fleet with operators that has exactly those of doc/how-to/deploy.md.

Usage: test_rights.py [BUILD]"""
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
sys.path.insert(0, os.path.join(ROOT, "tests/live"))
sys.dont_write_bytecode = True
from lib.latchwork import Instance, config  # noqa: E402
from lib.process import wait_until  # noqa: E402
from lib.redis import Redis  # noqa: E402

BUILD = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "build")
HANDLER = r'''
import json, sys
for line in sys.stdin:
    m = json.loads(line)
    if "cancel" in m: continue
    outcome = "done" if m["attempt"] > 1 else "dead" if m["key"].endswith("7") else "retry" if m["key"].endswith("3") else "done"
    print(json.dumps({"id": m["id"], "outcome": outcome, "reason": "it says so"}), flush=True)
'''


def read(name):
    with open(os.path.join(ROOT, name)) as f:
        return f.read()


def table():
    """{command: set of roles}"""
    rows = re.findall(r'\{"([A-Z]+)", ([A-Z_ |]+|0), "', read("cli/check/redis_rights.c"))
    assert len(rows) > 50
    return {name: {r.strip()[len("LW_RIGHT_"):].lower() for r in roles.split("|")} if roles != "0" else set() for name, roles in rows}


def acl_line():
    return re.search(r"ACL SETUSER orders on >secret (.*)\n", read("doc/how-to/deploy.md")).group(1).split(" ")


class Rights(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.dir = cls.folder.name
        cls.redis = Redis(os.path.join(cls.dir, "redis"))
        cls.redis.start()
        cls.broker = subprocess.Popen([BUILD + "/tests/tools/mockcluster", "orders:3"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        brokers = cls.broker.stdout.readline().decode().strip()
        handler = os.path.join(cls.dir, "handler.py")
        with open(handler, "w") as f:
            f.write(HANDLER)
        cls.settings = config("orders", brokers, cls.redis.url.replace("unix://", "unix://orders:secret@"), ["orders"], workers=2,
                              redis={"shards": 2}, retry={"backoff_ms": 20}, dedup={"id": "json:/id", "window_s": 60},
                              kafka={"properties": {"session.timeout.ms": "6000"}},
                              handler={"type": "exec", "command": [sys.executable, "-S", "-E", handler], "processes": 2, "timeout_ms": 60000})
        cls.path = os.path.join(cls.dir, "rights.json")
        with open(cls.path, "w") as f:
            json.dump(cls.settings, f)
        cls.brokers = brokers

    @classmethod
    def tearDownClass(cls):
        cls.broker.stdin.close()
        cls.broker.wait(10)
        cls.redis.stop()
        cls.folder.cleanup()

    def be(self, rights):
        self.redis.call("ACL", "SETUSER", "orders", "reset", "on", ">secret", *rights)

    def command(self, *args, status=0, given=None):
        done = subprocess.run([BUILD + "/latchwork", *args, "-c", self.path], capture_output=True, text=True, timeout=120, cwd=self.dir,
                              input=given)
        self.assertEqual(done.returncode, status, (args, done.stdout, done.stderr))
        self.assertNotRegex(done.stderr + done.stdout, "NOPERM|no permission")
        return done.stdout

    def test_the_table_is_what_the_code_calls(self):
        found = subprocess.run([os.path.join(ROOT, "scripts/redis-rights.sh")], stdout=subprocess.PIPE, check=True, text=True).stdout
        used = {}
        for line in found.splitlines():
            role, command = line.split(" ")
            used.setdefault(command, set()).add(role)
        rows = table()
        for command, roles in used.items():
            self.assertIn(command, rows, "the code calls %s: it needs a row in cli/check/redis_rights.c, and the right in deploy.md" % command)
            if rows[command]:
                self.assertEqual(rows[command], roles, command)
        self.assertEqual(sorted(set(rows) - set(used)), [], "rows of commands that nobody calls")

    def test_the_page_has_the_whole_table(self):
        wanted = {"+" + c.lower() if c != "SCRIPT" else "+script|load" for c, roles in table().items() if roles and c != "AUTH"}
        self.assertEqual({r for r in acl_line() if r[0] == "+"}, wanted)
        self.assertEqual([r for r in acl_line() if r[0] != "+"], ["~lw:{orders.*}:*"])

    def test_the_names_are_those_of_the_code(self):
        names = set(re.findall(r'"([a-z_]+:?)"', read("cli/check/redis_rights.c").split("lw_redis_names[] = ")[1]))
        documented = set()
        for line in read("doc/reference/redis-keys.md").splitlines():
            row = re.match(r"\| `([a-z_]+)(:?)[^`]*` \| (hash|string|list|zset|set|stream) \|", line)
            if row:
                documented.add(row.group(1) + row.group(2))
        self.assertGreater(len(documented), 12)
        self.assertEqual(names, documented)

    def test_the_least_rights_are_enough(self):
        """A fleet, and every command of operators, as this user: nothing is refused."""
        self.be(acl_line())
        self.redis.call("FLUSHALL")
        self.redis.call("ACL", "LOG", "RESET")
        self.command("check", "--connect")
        one = Instance(BUILD, self.dir, "one", self.settings, {})
        try:
            one.wait_workers(2)
            subprocess.run([BUILD + "/tests/tools/kafkatool", self.brokers, "generate", "orders", "--messages", "3000", "--keys", "20",
                            "--partitioner", "roundrobin", "--seed", "1"], check=True, stdout=subprocess.DEVNULL)
            dead = wait_until(lambda: self.command("dead", "ls", "--limit", "0", "--json").splitlines(), 60, "a dead letter")
            ident = json.loads(dead[0])
            key = ident["key"]
            self.operators(ident, key)
            one.stop()
        finally:
            one.destroy()
        with open(one.log_path) as f:
            self.assertNotRegex(f.read(), "NOPERM|no permission")
        log = self.redis.call("ACL", "LOG")
        refused = [dict(zip(e[::2], e[1::2])) for e in log]
        self.assertEqual([(e[b"reason"], e[b"object"]) for e in refused], [])

    def operators(self, letter, key):
        self.command("queue", "pause", key)
        for args in (["queue", "ls"], ["queue", "ls", "--json"], ["queue", "show", key], ["queue", "stats"], ["queue", "stats", "--over", "200ms"],
                     ["queue", "audit"], ["queue", "export"], ["dead", "ls"], ["dead", "show", letter["id"]], ["dead", "export"],
                     ["lock", "ls"], ["lock", "show", key], ["lock", "break", key, "--execute"], ["top", "--once"], ["top", "--once", "--json"]):
            self.command(*args)
        self.command("dead", "replay", letter["id"], "--execute")
        self.command("dead", "drop", "--match", "*", "--limit", "1", "--execute")
        exported = self.command("queue", "export", "--key", key)
        self.command("queue", "drop", "--key", key, "--limit", "1", "--execute")
        self.command("queue", "import", "-", "--execute", given=exported)
        self.command("queue", "replay", "--topic", "orders", "--key", key, "--limit", "2", "--again", "--execute")
        self.command("queue", "resume", key)
        subprocess.run([BUILD + "/latchwork", "lock", "exec", "a-key-of-mine", "-c", self.path, "--wait", "30000", "--", "sleep", "1"], check=True,
                       timeout=60)
        subprocess.run([BUILD + "/latchwork", "ledger", "-c", self.path], stdout=subprocess.DEVNULL, timeout=60)

    def checked_as(self, rights, user):
        self.redis.call("ACL", "SETUSER", user, "reset", "on", ">secret", *rights)
        url = "redis.url=" + self.redis.url.replace("unix://", "unix://%s:secret@" % user)
        done = subprocess.run([BUILD + "/latchwork", "check", "--connect", "-c", self.path, "--set", url], capture_output=True, text=True,
                              timeout=120)
        return done.returncode, done.stderr

    def test_each_right_that_is_missing_is_named(self):
        rights = acl_line()
        self.assertEqual(self.checked_as(rights, "whole")[0], 0)
        removed = [r for r in rights if r[0] == "+"]
        patterns = ["~lw:{orders.0}:*", "~lw:{other.*}:*", "~lw:{orders.*}:[^s]*", "%R~lw:{orders.*}:*"]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:  # each waits most of its time for its handler
            commands = list(pool.map(lambda r: self.checked_as([x for x in rights if x != r], "no-" + r[1:].split("|")[0]), removed))
            names = list(pool.map(lambda p: self.checked_as([x for x in rights if x[0] != "~"] + [p], "names%d" % patterns.index(p)), patterns))
        for right, (status, said) in zip(removed, commands):
            self.assertEqual(status, 1, right)
            self.assertRegex(re.sub("unix:.*?: ", "", said.lower()), r"\b%s\b" % right[1:].split("|")[0], right)
        for pattern, (status, said) in zip(patterns, names):
            self.assertEqual(status, 1, pattern)
            self.assertIn("give it the key pattern ~lw:{orders.*}:*", said, pattern)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
