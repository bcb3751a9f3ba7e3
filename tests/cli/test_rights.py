#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the rights of Redis users. Compares the table of rights in cli/check/redis_rights.c with
the commands that the code calls and with the documentation. Runs fleets, operators' commands and
locks as the user that `check --acl` prints.
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
from lib.latchwork import Instance, config, merged, readyz  # noqa: E402
from lib.ports import free_port  # noqa: E402
from lib.process import wait_until  # noqa: E402
from lib.redis import Redis  # noqa: E402

BUILD = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "build")
HANDLER = r'''
import json, sys
for line in sys.stdin:
    m = json.loads(line)
    if "cancel" in m: continue
    first = {"7": "dead", "3": "retry"}.get(m["key"][-1:], "done")
    outcome = "done" if m["attempt"] > 1 else first
    print(json.dumps({"id": m["id"], "outcome": outcome, "reason": "it says so"}), flush=True)
'''


def read(name):
    with open(os.path.join(ROOT, name)) as f:
        return f.read()


def table():
    """Returns the table of rights in cli/check/redis_rights.c as {command: set of roles}."""
    rows = re.findall(r'\{"([A-Z]+)", ([A-Z_ |]+|0), "', read("cli/check/redis_rights.c"))
    assert len(rows) > 50
    return {
        name: {
            r.strip()[len("LW_RIGHT_") :].lower()
            for r in roles.replace("LANES", "WORKER | LW_RIGHT_OPERATOR").split("|")
        }
        if roles != "0"
        else set()
        for name, roles in rows
    }


class Rights(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.dir = cls.folder.name
        cls.redis = Redis(os.path.join(cls.dir, "redis"))
        cls.redis.start()
        cls.broker = subprocess.Popen(
            [BUILD + "/tests/tools/mockcluster", "orders:3"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        brokers = cls.broker.stdout.readline().decode().strip()
        handler = os.path.join(cls.dir, "handler.py")
        with open(handler, "w") as f:
            f.write(HANDLER)
        cls.settings = config(
            "orders",
            brokers,
            cls.redis.url.replace("unix://", "unix://orders:secret@"),
            ["orders"],
            workers=2,
            redis={"shards": 2},
            retry={"backoff_ms": 20},
            dedup={"id": "json:/id", "window_s": 60},
            kafka={"properties": {"session.timeout.ms": "6000"}},
            handler={
                "type": "exec",
                "command": [sys.executable, "-S", "-E", handler],
                "processes": 2,
                "timeout_ms": 60000,
            },
        )
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

    def acl(self, *args, status=0):
        done = subprocess.run(
            [BUILD + "/latchwork", "check", "--acl", *args],
            capture_output=True,
            text=True,
            timeout=60,
        )
        self.assertEqual(done.returncode, status, done.stderr)
        return done.stderr if status else done.stdout

    def rules(self, *args):
        """Returns the rules that follow the user's name in the printed ACL line."""
        line, rest = self.acl("orders", *(args or ("-c", self.path))).split("\n")
        self.assertEqual(rest, "")
        self.assertEqual(line.split(" ")[:4], ["ACL", "SETUSER", "orders", "on"])
        return line.split(" ")[4:]

    def be(self, rules, user="orders"):
        self.redis.call("ACL", "SETUSER", user, "reset", "on", ">secret", *rules)

    def command(self, *args, status=0, given=None):
        done = subprocess.run(
            [BUILD + "/latchwork", *args, "-c", self.path],
            capture_output=True,
            text=True,
            timeout=120,
            cwd=self.dir,
            input=given,
        )
        self.assertEqual(done.returncode, status, (args, done.stdout, done.stderr))
        self.assertNotRegex(done.stderr + done.stdout, "NOPERM|no permission")
        return done.stdout

    def test_the_table_is_what_the_code_calls(self):
        found = subprocess.run(
            [os.path.join(ROOT, "scripts/redis-rights.sh")],
            stdout=subprocess.PIPE,
            check=True,
            text=True,
        ).stdout
        used = {}
        for line in found.splitlines():
            role, command = line.split(" ")
            used.setdefault(command, set()).add(role)
        rows = table()
        for command, roles in used.items():
            self.assertIn(
                command,
                rows,
                "the code calls %s: it needs a row in cli/check/redis_rights.c, and the right in deploy.md"
                % command,
            )
            if rows[command]:
                # A branch of mutex_drop.lua calls ZPOPMIN, but operators' commands never reach that
                # branch.
                roles -= {"operator"} if command == "ZPOPMIN" else set()
                self.assertEqual(rows[command], roles, command)
        self.assertEqual(sorted(set(rows) - set(used)), [], "rows of commands that nobody calls")

    def test_the_line_has_the_whole_table(self):
        for args, roles, names in (
            (("-c", self.path), {"worker", "operator"}, ["~lw:{orders.[0-9]*}:*"]),
            (("--for", "lock"), {"lock"}, ["~lwl:*", "&lwl:*"]),
        ):
            only = {"SCRIPT": "script|load", "CLIENT": "client|setname", "CLUSTER": "cluster|slots"}
            wanted = {
                "+" + only.get(c, c.lower())
                for c, who in table().items()
                if who & roles and c != "AUTH"
            }
            rules = self.rules(*args)
            self.assertEqual({r for r in rules if r[0] == "+"}, wanted)
            self.assertEqual(
                [r for r in rules if r[0] != "+"],
                ["clearselectors", "resetkeys", "resetchannels", "-@all"] + names,
            )

    def test_the_page_shows_what_is_printed(self):
        shown = re.search(r"(ACL SETUSER orders on .*\n)", read("doc/how-to/deploy.md")).group(1)
        self.assertEqual(shown, self.acl("orders", "-c", self.path))

    def test_the_line_replaces_rights_and_leaves_passwords(self):
        """Pipes the line of `check --acl` into redis-cli, twice. At first the user has too many
        rights. The line must remove these rights, and must keep the user's password."""
        self.redis.call(
            "ACL",
            "SETUSER",
            "orders",
            "reset",
            "on",
            ">secret",
            "~*",
            "&*",
            "+@all",
            "(~other:* +get)",
        )
        for _ in range(2):
            done = subprocess.run(
                ["redis-cli", "-s", self.redis.path],
                input=self.acl("orders", "-c", self.path),
                capture_output=True,
                text=True,
                timeout=60,
            )
            self.assertEqual(done.stdout, "OK\n")
        shown = self.redis.call("ACL", "GETUSER", "orders")
        user = dict(zip(shown[::2], shown[1::2]))
        self.assertEqual(
            (user[b"keys"], user[b"channels"], user[b"selectors"]),
            (b"~lw:{orders.[0-9]*}:*", b"", []),
        )
        self.assertEqual(len(user[b"passwords"]), 1)
        self.assertEqual(
            set(user[b"commands"].decode().split(" ")),
            {"-@all"} | {r for r in self.rules() if r[0] == "+"},
        )

    def test_only_names_of_this_application(self):
        for name, allowed in (
            (b"lw:{orders.0}:epoch", True),
            (b"lw:{orders.17}:wait:a}b", True),
            (b"lw:{orders.eu.0}:epoch", False),
            (b"lw:{orders2.0}:epoch", False),
            (b"lw:{order.0}:epoch", False),
            (b"lwl:{a}:lock", False),
        ):
            self.be(self.rules())
            self.assertEqual(
                self.redis.call("ACL", "DRYRUN", "orders", "GET", name) == b"OK", allowed, name
            )

    def test_misuse(self):
        for args in (
            ["default", "-c", self.path],
            ["two words", "-c", self.path],
            ["", "-c", self.path],
            ["orders"],
            ["orders", "-c", "none.json"],
            ["orders", "-c", self.path, "--connect"],
            ["orders", "-c", self.path, "--for", "nobody"],
        ):
            self.acl(*args, status=2)

    def test_the_names_are_those_of_the_code(self):
        names = set(
            re.findall(
                r'"([a-z_]+:?)"', read("cli/check/redis_rights.c").split("lw_redis_names[] = ")[1]
            )
        )
        documented = set()
        for line in read("doc/reference/redis-keys.md").splitlines():
            row = re.match(
                r"\| `([a-z_]+)(:?)[^`]*` \| (hash|string|list|zset|set|stream) \|", line
            )
            if row:
                documented.add(row.group(1) + row.group(2))
        self.assertGreater(len(documented), 12)
        self.assertEqual(names, documented)

    def test_the_least_rights_are_enough(self):
        """Runs a fleet and every operators' command as the user that `check --acl` prints. Redis
        must refuse no command."""
        self.be(self.rules())
        self.redis.call("FLUSHALL")
        self.redis.call("ACL", "LOG", "RESET")
        self.command("check", "--connect")
        one = Instance(BUILD, self.dir, "one", self.settings, {})
        try:
            one.wait_workers(2)
            subprocess.run(
                [
                    BUILD + "/tests/tools/kafkatool",
                    self.brokers,
                    "generate",
                    "orders",
                    "--messages",
                    "3000",
                    "--keys",
                    "20",
                    "--partitioner",
                    "roundrobin",
                    "--seed",
                    "1",
                ],
                check=True,
                stdout=subprocess.DEVNULL,
            )
            dead = wait_until(
                lambda: self.command("dead", "ls", "--limit", "0", "--json").splitlines(),
                60,
                "a dead letter",
            )
            ident = json.loads(dead[0])
            key = ident["key"]
            self.operators(ident, key)
            one.stop()
        finally:
            one.destroy()
        with open(one.log_path) as f:
            self.assertNotRegex(f.read(), "NOPERM|no permission")
        self.nothing_refused()

    def nothing_refused(self):
        refused = [dict(zip(e[::2], e[1::2])) for e in self.redis.call("ACL", "LOG")]
        self.assertEqual([(e[b"reason"], e[b"object"]) for e in refused], [])

    def test_the_rights_of_locks_are_enough(self):
        """Runs `lock --redis` as the user that `check --acl --for lock` prints. This user must be
        allowed to take a lock, to wait for a lock (which needs a subscription), to show a lock and
        to break it."""
        self.be(self.rules("--for", "lock"), "locks")
        self.redis.call("ACL", "LOG", "RESET")
        url = ["--redis", self.redis.url.replace("unix://", "unix://locks:secret@")]
        holder = subprocess.Popen(
            [BUILD + "/latchwork", "lock", "exec", "a", *url, "--", "cat"], stdin=subprocess.PIPE
        )
        wait_until(lambda: self.redis.call("EXISTS", "lwl:{a}:lock"), 30, "lock")
        waiter = subprocess.Popen(
            [BUILD + "/latchwork", "lock", "exec", "a", *url, "--wait", "60000", "--", "true"]
        )
        wait_until(lambda: self.redis.call("EXISTS", "lwl:{a}:wait"), 30, "waiter")
        for args in (["ls"], ["show", "a"]):
            subprocess.run(
                [BUILD + "/latchwork", "lock", *args, *url],
                check=True,
                stdout=subprocess.DEVNULL,
                timeout=60,
            )
        holder.stdin.close()
        self.assertEqual((holder.wait(60), waiter.wait(60)), (0, 0))
        subprocess.run(
            [BUILD + "/latchwork", "lock", "break", "a", *url, "--execute"],
            stdout=subprocess.DEVNULL,
            timeout=60,
        )
        self.nothing_refused()

    def test_a_right_that_is_taken_away_is_named(self):
        """When a right has been taken away, the log and /readyz must name the right until the user
        has it again. The scenario rights_taken in tests/live/test_redis.py tests the same under
        load."""
        self.be(self.rules())
        self.redis.call("FLUSHALL")
        port = free_port()
        one = Instance(
            BUILD,
            self.dir,
            "taken",
            merged(self.settings, {"http": {"listen": "127.0.0.1:%d" % port}}),
            {},
        )
        names = "~lw:{orders.[0-9]*}:"

        def acl(*rules):
            self.redis.call("ACL", "SETUSER", "orders", *rules)

        def new_password():
            acl("resetpass", ">another")
            self.redis.call("CLIENT", "KILL", "USER", "orders")

        try:
            wait_until(lambda: readyz(port)[0] == 200, 60, "/readyz 200")
            for take, give, said in (
                (lambda: acl("-evalsha"), lambda: acl("+evalsha"), "may not run EVALSHA"),
                (lambda: acl("-time"), lambda: acl("+time"), "may not run TIME"),
                (
                    lambda: acl("resetkeys", names + "[^e]*"),
                    lambda: acl("resetkeys", names + "*"),
                    r"may not use a key.* needs ~lw:{orders",
                ),
                (
                    lambda: acl("-brpoplpush"),
                    lambda: acl("+brpoplpush"),
                    "hints of waiting messages are refused: .*'brpoplpush'",
                ),
                (new_password, lambda: acl(">secret"), "not connected: .*WRONGPASS"),
            ):
                take()
                wait_until(
                    lambda: readyz(port)[0] == 503 and re.search(said, readyz(port)[1]),
                    60,
                    "word at /readyz of " + said,
                )
                give()
                wait_until(lambda: readyz(port)[0] == 200, 60, "/readyz 200 after " + said)
            with open(one.log_path) as f:
                log = f.read()
            for said in (
                "a right is missing: .* may not run TIME",
                "a right is missing: .* may not use a key",
                "Redis rejected the pop of hints: .*'brpoplpush'",
                "WRONGPASS",
                "Redis accepts all commands again",
            ):
                self.assertRegex(log, said)
            one.stop()
        finally:
            one.destroy()

    def operators(self, letter, key):
        self.command("queue", "pause", key)
        for args in (
            ["queue", "ls"],
            ["queue", "ls", "--json"],
            ["queue", "show", key],
            ["queue", "stats"],
            ["queue", "stats", "--over", "200ms"],
            ["queue", "audit"],
            ["queue", "export"],
            ["dead", "ls"],
            ["dead", "show", letter["id"]],
            ["dead", "export"],
            ["lock", "ls"],
            ["lock", "show", key],
            ["lock", "break", key, "--execute"],
            ["queue", "stats"],
        ):
            self.command(*args)
        self.command("dead", "replay", letter["id"], "--execute")
        self.command("dead", "drop", "--match", "*", "--limit", "1", "--execute")
        exported = self.command("queue", "export", "--key", key)
        self.command("queue", "drop", "--key", key, "--limit", "1", "--execute")
        self.command("queue", "import", "-", "--execute", given=exported)
        self.command(
            "queue",
            "replay",
            "--topic",
            "orders",
            "--key",
            key,
            "--limit",
            "2",
            "--again",
            "--execute",
        )
        self.command("queue", "resume", key)
        subprocess.run(
            [
                BUILD + "/latchwork",
                "lock",
                "exec",
                "a-key-of-mine",
                "-c",
                self.path,
                "--wait",
                "30000",
                "--",
                "sleep",
                "1",
            ],
            check=True,
            timeout=60,
        )
        subprocess.run(
            [BUILD + "/latchwork", "ledger", "-c", self.path], stdout=subprocess.DEVNULL, timeout=60
        )

    def checked_as(self, rules, user):
        self.be(rules, user)
        url = "redis.url=" + self.redis.url.replace("unix://", "unix://%s:secret@" % user)
        done = subprocess.run(
            [BUILD + "/latchwork", "check", "--connect", "-c", self.path, "--set", url],
            capture_output=True,
            text=True,
            timeout=120,
        )
        return done.returncode, done.stderr

    def test_each_right_that_is_missing_is_named(self):
        rules = self.rules()
        self.assertEqual(self.checked_as(rules, "whole")[0], 0)
        removed = [r for r in rules if r[0] == "+"]
        patterns = [
            "~lw:{orders.0}:*",
            "~lw:{other.*}:*",
            "~lw:{orders.*}:[^s]*",
            "%R~lw:{orders.*}:*",
        ]
        # The checks run in parallel, because each of them mostly waits for its handler.
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            commands = list(
                pool.map(
                    lambda r: self.checked_as(
                        [x for x in rules if x != r], "no-" + r[1:].split("|")[0]
                    ),
                    removed,
                )
            )
            names = list(
                pool.map(
                    lambda p: self.checked_as(
                        [x for x in rules if x[0] != "~"] + [p], "names%d" % patterns.index(p)
                    ),
                    patterns,
                )
            )
        for right, (status, said) in zip(removed, commands):
            self.assertEqual(status, 1, right)
            self.assertRegex(
                re.sub("unix:.*?: ", "", said.lower()), r"\b%s\b" % right[1:].split("|")[0], right
            )
        for i, (status, said) in enumerate(names):
            self.assertEqual(status, 1, patterns[i])
            self.assertIn(
                "give it the key pattern: ACL SETUSER names%d ~lw:{orders.[0-9]*}:*" % i,
                said,
                patterns[i],
            )

    def mend(self, user, rules):
        """Gives the user the rights that `latchwork check` proposes, and repeats this until the
        check succeeds. Returns the number of times that rights had to be given."""
        self.be(rules, user)
        for n in range(3):
            url = "redis.url=" + self.redis.url.replace("unix://", "unix://%s:secret@" % user)
            done = subprocess.run(
                [BUILD + "/latchwork", "check", "--connect", "-c", self.path, "--set", url],
                capture_output=True,
                text=True,
                timeout=120,
            )
            if not done.returncode:
                return n
            for words in re.findall(r"ACL SETUSER (.*)", done.stderr):
                self.redis.call("ACL", "SETUSER", *words.split(" "))
        self.fail(done.stderr)

    def test_all_that_is_missing_is_named_at_once(self):
        rules = self.rules()
        few = [r for r in rules if r not in ("+zadd", "+brpoplpush", "+zscan", "+script|load")]
        self.assertEqual(self.mend("few", few), 1)
        self.assertEqual(
            self.mend("part", [r for r in few if r[0] != "~"] + ["~lw:{orders.*}:[^s]*"]), 1
        )
        # If the user may not run EVAL, `check` cannot test the other rights in a script. It then
        # uses ACL DRYRUN. If the user may not run ACL DRYRUN either, `check` sends commands in a
        # transaction that it discards.
        self.assertEqual(
            self.mend("noeval", ["~lw:{orders.*}:[^s]*", "+@all", "-eval", "-zadd", "-acl"]), 1
        )
        self.assertEqual(
            self.mend("dryrun", ["~lw:{orders.*}:[^s]*", "+@all", "-eval", "-zadd", "-multi"]), 1
        )
        status, said = self.checked_as([r for r in rules if r not in ("+eval", "+zadd")], "neither")
        self.assertEqual(status, 1)
        self.assertIn("give it all of them: latchwork check --acl neither -c FILE", said)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
