#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests `latchwork handler new` and `handler test`. For each language, makes a project, builds it
and tests it, and then breaks it, which the project's test must notice. Other tests use handlers
that crash, hang, cannot start, or do not recognize a message that they have already handled.
Usage: test_handler.py [BUILD]"""

import json
import os
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
PROGRAM = os.path.join(ROOT, sys.argv[1] if len(sys.argv) > 1 else "build", "latchwork")
LIMIT_S = 120
sys.path.insert(0, os.path.join(ROOT, "tests/live"))
from lib.postgres import Postgres  # noqa: E402
from lib.ports import free_port  # noqa: E402
from lib.process import wait_until  # noqa: E402

BUILD = {"c": ["make", "-s"], "c++": ["make", "-s"], "go": ["go", "build", "-o", "handler", "."]}


class Case(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="latchwork-test-handler-")
        self.addCleanup(shutil.rmtree, self.dir)
        pc = os.path.join(self.dir, "latchwork.pc")
        with open(pc, "w") as f:
            f.write(
                "Name: latchwork\nDescription: of the tree\nVersion: 0\nCflags: -I%s/include\n"
                % ROOT
            )
        self.tmp = os.path.join(self.dir, "tmp")
        os.mkdir(self.tmp)
        # Remove the variables that `make` sets for its children, because the commands under test
        # must not get them.
        outer = {
            k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")
        }
        self.env = dict(
            outer,
            PKG_CONFIG_PATH=self.dir,
            TMPDIR=self.tmp,
            GOFLAGS="-mod=mod",
            GOPROXY="off",
            GOCACHE=os.environ.get("GOCACHE") or os.path.expanduser("~/.cache/go-build"),
        )

    def run_in(self, folder, *command):
        """Runs the command in the folder, and returns (exit status, stdout, stderr)."""
        p = subprocess.run(
            command,
            cwd=os.path.join(self.dir, folder),
            env=self.env,
            stdin=subprocess.DEVNULL,
            timeout=LIMIT_S,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        return p.returncode, p.stdout, p.stderr

    def new(self, lang):
        status, out, err = self.run_in("", PROGRAM, "handler", "new", "orders", "--lang", lang)
        self.assertEqual((status, err), (0, ""), out)
        for name in ("README.md", "messages.jsonl", "orders.json"):
            self.assertTrue(os.path.exists(self.path(name)), name)
        self.build(lang)

    def build(self, lang):
        if lang in BUILD:
            self.assertEqual(self.run_in("orders", *BUILD[lang]), (0, "", ""))

    def path(self, name):
        return os.path.join(self.dir, "orders", name)

    def write(self, name, text):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "w") as f:
            f.write(textwrap.dedent(text))

    def change(self, name, old, new):
        with open(self.path(name)) as f:
            text = f.read()
        self.assertIn(old, text)
        with open(self.path(name), "w") as f:
            f.write(text.replace(old, new, 1))

    def messages(self, *lines):
        self.write("messages.jsonl", "".join(json.dumps(line) + "\n" for line in lines))

    def try_it(self, *options):
        return self.run_in("orders", PROGRAM, "handler", "test", "-c", "orders.json", *options)

    def results(self, *options):
        """Runs `handler test --json`, and returns the exit status, the JSON objects of the
        messages, and the JSON object of the summary."""
        status, out, err = self.try_it("--json", *options)
        lines = [json.loads(line) for line in out.splitlines()]
        self.assertTrue(lines, err)
        self.assertEqual(lines[-1]["type"], "summary")
        return status, lines[:-1], lines[-1]

    def exec_handler(self, code, **more):
        """Makes a project whose handler is a Python program with the text `code`."""
        self.write("handler.py", code)
        config = {
            "kafka": {"topics": ["orders"], "properties": {"bootstrap.servers": "127.0.0.1:1"}},
            "redis": {"url": "redis://127.0.0.1:1"},
            "handler": dict(
                {"type": "exec", "command": [sys.executable, "handler.py"], "processes": 1}, **more
            ),
        }
        self.write("orders.json", json.dumps(config))
        shutil.copy(
            os.path.join(ROOT, "sdk/python/latchwork/__init__.py"), self.path("latchwork.py")
        )

    def plugin(self, body, **more):
        """Makes a project whose handler is a plugin in C. `body` is the body of the function
        `handle`."""
        self.write(
            "p.c",
            """
            #include <latchwork/handler.h>
            #include <stdio.h>
            #include <stdlib.h>
            #include <unistd.h>
            static int handle(void *self, const struct latchwork_message *m, char *reason,
                              size_t reason_size) {
                (void)self, (void)m, (void)reason, (void)reason_size;
                %s
            }
            LATCHWORK_EXPORT const struct latchwork_handler latchwork_handler = {
                LATCHWORK_HANDLER_INIT, .handle = handle};
        """
            % body,
        )
        config = {
            "kafka": {"topics": ["orders"], "properties": {"bootstrap.servers": "127.0.0.1:1"}},
            "redis": {"url": "redis://127.0.0.1:1"},
            "handler": dict({"type": "plugin", "path": "./p.so"}, **more),
        }
        self.write("orders.json", json.dumps(config))
        self.assertEqual(
            self.run_in(
                "orders",
                "cc",
                "-shared",
                "-fPIC",
                "-I",
                os.path.join(ROOT, "include"),
                "-o",
                "p.so",
                "p.c",
            )[0],
            0,
        )


class Projects(Case):
    def project(self, lang, name, old, new):
        """Makes a project, builds it and tests it. Then changes the project so that its test must
        fail, and tests it again."""
        self.new(lang)
        status, out, err = self.try_it()
        self.assertEqual(status, 0, out + err)
        self.assertIn("; as expected", out)
        self.assertEqual(self.try_it("--chaos")[0], 0)
        self.change(name, old, new)
        self.build(lang)
        status, out, err = self.try_it()
        self.assertEqual(status, 1, out + err)
        self.assertIn("not as expected", out)

    def test_c(self):
        self.project("c", "handler.c", "return LATCHWORK_DEAD;", "return LATCHWORK_RETRY;")

    def test_cpp(self):
        self.project(
            "c++",
            "handler.cpp",
            'throw Dead("the payload is empty")',
            'throw std::runtime_error("the payload is empty")',
        )

    def test_python(self):
        self.project("python", "handler.py", "raise latchwork.Dead", "raise latchwork.Retry")

    def test_python_without_run(self):
        self.new("python")
        self.change("handler.py", "latchwork.run()", "pass")
        status, out, err = self.try_it()
        self.assertEqual(status, 1, out + err)
        self.assertIn("write latchwork.run() at its end", out + err)

    def test_python_that_prints_before_the_import(self):
        self.new("python")
        self.change("handler.py", "import logging", "print('loading', flush=True)\nimport logging")
        status, out, err = self.try_it()
        self.assertEqual(status, 1, out + err)
        self.assertIn("was it printed before the SDK was loaded?", out + err)

    def test_node(self):
        self.project("node", "handler.js", "throw new latchwork.Dead", "throw new latchwork.Retry")

    def test_go(self):
        self.project("go", "handler.go", "return latchwork.Dead", "return latchwork.Retry")

    def test_a_folder_that_is_not_empty_is_left_alone(self):
        self.write("mine.txt", "mine")
        status, _, err = self.run_in("", PROGRAM, "handler", "new", "orders", "--lang", "c")
        self.assertEqual((status, os.listdir(self.path(""))), (2, ["mine.txt"]))
        self.assertIn("orders exists already and is not an empty folder", err)
        os.mkdir(os.path.join(self.dir, "empty"))
        self.assertEqual(
            self.run_in("", PROGRAM, "handler", "new", "empty", "--lang", "python")[0], 0
        )


class Messages(Case):
    ECHO = """
        import latchwork
        @latchwork.handler
        def handle(m):
            raise latchwork.Dead(repr(
                (m.key, m.payload, m.headers, m.topic, m.partition, m.offset, m.attempt)))
        latchwork.run()
    """

    def test_members(self):
        self.exec_handler(self.ECHO)
        self.messages(
            {"key": "k", "payload": {"b": 1, "a": [None]}},
            {"key": 17, "payload": "text", "headers": [["a", "b"], ["a", None]], "attempt": 3},
            {
                "key_base64": "/w==",
                "payload_base64": "AA==",
                "headers": {"x": {"base64": "/w=="}},
                "topic": "t",
                "partition": 2,
                "offset": 9,
            },
            {
                "topic": "t",
                "partition": 2,
                "offset": 10,
                "tstype": "create",
                "ts": 1,
                "headers": ["a", "b"],
                "key": "k2",
                "payload": "p",
                "identity": "t/2/10",
                "attempts": 5,
                "shard": 0,
                "reason": "x",
                "id": "0:1-1",
            },
            {"key": "k3"},
        )
        status, lines, _ = self.results()
        self.assertEqual(status, 0)
        self.assertEqual(
            [line["reason"] for line in lines],
            [
                repr(("k", '{"b":1,"a":[null]}', [], "orders", 0, 0, 1)),
                repr(("17", "text", [("a", "b"), ("a", None)], "orders", 0, 1, 3)),
                repr((b"\xff", "\0", [("x", b"\xff")], "t", 2, 9, 1)),
                repr(("k2", "p", [("a", "b")], "t", 2, 10, 1)),
                repr(("k3", None, [], "orders", 0, 2, 1)),
            ],
        )

    def test_keys_are_found_as_configured(self):
        self.exec_handler(self.ECHO)
        self.messages(
            {"payload": {"id": 7}, "expect": "dead"},
            {"payload": {}, "expect": {"outcome": "skipped"}},
        )
        status, lines, _ = self.results("--set", "key.from=json:/id", "--set", "key.missing=skip")
        self.assertEqual((status, lines[0]["key"], lines[1]["outcome"]), (0, "7", "skipped"))
        self.messages({"payload": {}, "expect": {"outcome": "dead", "reason": "/id"}})
        self.assertEqual(self.try_it("--set", "key.from=json:/id")[0], 0)

    def test_every_error_is_reported(self):
        self.exec_handler(self.ECHO)
        self.write(
            "messages.jsonl",
            '{"expekt":"done"}\n\n{"key":[\n{"key_base64":"A"}\n{"key_base64":"A%AA"}\n{"expect":"fine"}\n[]\n'
            '{"partition":-1}\n{"headers":[["a"]]}\n{"headers":["a"]}\n{"expect":{"reason":"x"}}\n{"topic":""}\n{"headers":[[null,"a"]]}\n'
            '{"payload":{"n":12345678901234567890123}}\n',
        )
        status, out, err = self.try_it()
        self.assertEqual((status, out), (2, ""))
        want = [
            (1, "expekt.*; did you mean expect"),
            (3, "not JSON"),
            (4, "multiple of 4"),
            (5, "not a base64 digit"),
            (6, "expect: must be"),
            (7, "must be a JSON object"),
            (8, "partition: expected a number from 0"),
            (9, "each must be"),
            (10, "a name without a value"),
            (11, "no members but outcome and reason"),
            (12, "topic: must be"),
            (13, "must not be null"),
            (14, "too large .*write the payload as a text"),
        ]
        self.assertEqual(len(err.splitlines()), len(want), err)
        for line, (number, text) in zip(err.splitlines(), want):
            self.assertRegex(line, r"messages\.jsonl:%d: .*%s" % (number, text))
        self.write("messages.jsonl", "\n")
        self.assertIn("no messages; expected", self.try_it()[2])

    def test_messages_of_a_key_run_in_order_and_in_batches(self):
        self.exec_handler(
            """
            import latchwork
            seen = {}
            @latchwork.handler
            def handle(m):
                number = m.json()
                assert seen.get(m.key, -1) < number, (m.key, number)
                seen[m.key] = number
                if number % 7 == 3: raise latchwork.Retry("enough")
            latchwork.run()
        """,
            batch=8,
            in_flight=4,
        )
        self.messages(
            *(
                {
                    "key": "k%d" % (i % 5),
                    "payload": i // 5,
                    "expect": "retry" if i // 5 % 7 == 3 else "done",
                }
                for i in range(200)
            )
        )
        status, lines, summary = self.results()
        self.assertEqual((status, summary["messages"], summary["retry"]), (0, 200, 30), lines)


class Trouble(Case):
    def test_a_plugin_that_crashes(self):
        """Several threads run messages. One message crashes the plugin, and another message makes
        the plugin end its process. Only these two messages may be reported as failed, and all other
        messages must still be tested."""
        self.plugin(
            """
            usleep(m->offset == 7 ? 5000 : 50000);
            if (m->offset == 7) abort();
            if (m->offset == 9) exit(3);
            return LATCHWORK_DONE;
        """,
            threads=4,
        )
        self.messages(*({"key": "k%d" % i, "expect": "done"} for i in range(20)))
        status, lines, summary = self.results()
        self.assertEqual((status, summary["crashed"], summary["done"]), (1, 2, 18))
        self.assertIn("signal 6", lines[7]["reason"])
        self.assertEqual(lines[9]["reason"], "the handler ended the process with status 3")

    def test_a_plugin_that_does_not_end(self):
        self.plugin("if (m->offset == 1) for (;;) sleep(1); return LATCHWORK_DONE;", timeout_ms=100)
        self.messages(
            {"key": "a", "expect": "done"},
            {"key": "a", "expect": "done"},
            {"key": "a", "expect": "done"},
        )
        status, lines, _ = self.results()
        self.assertEqual(
            (status, [line["outcome"] for line in lines]), (1, ["done", "stuck", "done"])
        )

    def test_a_command_that_cannot_start(self):
        for code, why in (
            ("import nowhere", "No module named 'nowhere'"),
            ("raise SystemExit(7)", "exited with status 7"),
        ):
            self.exec_handler(code)
            self.messages({"key": "a"})
            begin = time.monotonic()
            status, _, err = self.try_it()
            self.assertEqual(status, 1)
            self.assertRegex(err, "latchwork handler test: the handler cannot start: .*%s" % why)
            self.assertLess(time.monotonic() - begin, 30)
            self.assertNotIn("start: handler:", err)
        self.exec_handler("")
        for command, why in (
            ("./nothing", "No such file or directory in .*/orders \\(build it first\\?\\)"),
            ("/no/thing", "No such file or directory \\(build it first\\?\\)"),
            ("no-such-program", "not found in PATH"),
        ):
            self.assertRegex(
                self.try_it("--set", 'handler.command=["%s"]' % command)[2],
                'cannot start "%s": %s' % (command, why),
            )

    def test_a_plugin_that_does_not_load(self):
        self.plugin("return LATCHWORK_DONE;")
        self.write("p.so", "not a shared object")
        self.messages({"key": "a"})
        status, _, err = self.try_it()
        self.assertEqual(status, 1)
        self.assertIn("cannot be loaded", err)

    def test_a_process_that_dies_in_company(self):
        self.exec_handler(
            """
            import latchwork, os
            @latchwork.handler
            async def handle(m):
                if m.json() == "die": os._exit(9)
            latchwork.run()
        """,
            in_flight=50,
        )
        self.messages(
            *({"key": "k%d" % i, "payload": "\"die\"" if i == 33 else "1"} for i in range(100))
        )
        status, lines, summary = self.results()
        self.assertEqual((status, summary["done"], lines[33]["outcome"]), (0, 99, "retry"))
        self.assertIn("exited with status 9", lines[33]["reason"])

    def test_time_limits(self):
        self.exec_handler(
            """
            import latchwork, time
            @latchwork.handler
            def handle(m):
                assert 0 < m.deadline - time.time() <= 10
                if m.json(): time.sleep(60)
            latchwork.run()
        """,
            timeout_ms=10000,
        )
        self.messages(
            {"key": "a", "payload": 0, "expect": "done"},
            {"key": "b", "payload": 1, "expect": "retry"},
        )
        self.assertEqual(self.try_it()[0], 0)


class Chaos(Case):
    def rounds(self, *options):
        status, lines, _ = self.results("--chaos", *options)
        found = {}
        for line in lines:
            found.setdefault(line["round"], []).append((line["outcome"], line["ok"]))
        return status, found

    def test_a_handler_that_is_not_idempotent(self):
        self.exec_handler("""
            import latchwork
            seen = set()
            @latchwork.handler
            def handle(m):
                if m.id in seen: raise latchwork.Dead("seen")
                seen.add(m.id)
            latchwork.run()
        """)
        self.messages({"key": "a"})
        status, found = self.rounds()
        self.assertEqual(
            (status, found["first"], found["again"]), (1, [("done", True)], [("dead", False)])
        )
        self.assertIn(
            "a message that comes again must have the outcome of the first time",
            self.try_it("--chaos")[1],
        )

    FIRST_FAILS = """
        import latchwork
        seen = set()
        @latchwork.handler
        def handle(m):
            if m.id not in seen:
                seen.add(m.id)
                raise latchwork.%s("503")
        latchwork.run()
    """

    def test_after_a_retry_any_outcome_is_right(self):
        self.exec_handler(self.FIRST_FAILS % "Retry")
        self.messages({"key": "a"})
        status, found = self.rounds()
        self.assertEqual(
            (status, found["first"], found["again"], found["after"]),
            (0, [("retry", True)], [("done", True)], [("done", True)]),
        )
        self.exec_handler(self.FIRST_FAILS % "Dead")
        status, found = self.rounds()
        self.assertEqual((status, found["again"]), (1, [("done", False)]))

    def test_when_a_retry_comes_back_is_told(self):
        self.exec_handler(
            "import latchwork\n@latchwork.handler\ndef handle(m):\n"
            "    raise latchwork.Retry('busy', after=60, counts=False)\nlatchwork.run()\n"
        )
        self.messages({"key": "a"})
        _, out, _ = self.try_it()
        self.assertIn("  after 60.0 s  counts no attempt  busy", out)
        _, (message,), _ = self.results()
        self.assertEqual((message["after_ms"], message["counts"]), (60000, False))

    def test_what_was_expected_is_told(self):
        self.exec_handler("""
            import latchwork
            @latchwork.handler
            def handle(m):
                raise latchwork.Retry("no")
            latchwork.run()
        """)
        self.messages({"key": "a", "expect": "dead"})
        status, out, err = self.try_it("--chaos")
        self.assertEqual((status, err), (1, ""))
        self.assertEqual(out.count("messages.jsonl:1: expected dead\n"), 3, out)
        self.assertIn("; 3 of 5 deliveries not as expected", out)
        self.messages({"key": "a"}, {"key": "b"})
        status, out, err = self.try_it()
        self.assertEqual(
            (status, out.splitlines()[-1]),
            (0, '2 messages: 2 retry; no message has an expected outcome ("expect")'),
        )

    def test_cancellation(self):
        self.exec_handler(
            """
            import asyncio, latchwork
            @latchwork.handler
            async def handle(m): await asyncio.sleep(0.2)
            latchwork.run()
        """,
            in_flight=10,
        )
        self.messages({"key": "a", "expect": "done"}, {"key": "a", "expect": "done"})
        status, found = self.rounds()
        self.assertEqual(
            (status, found["cancel"], found["after"]),
            (0, [("back", True)] * 2, [("done", True)] * 2),
        )

    def test_a_plugin_that_ignores_cancellation_for_ever(self):
        self.plugin(
            """
            static int n;
            if (++n == 3) for (;;) sleep(1);
            return LATCHWORK_DONE;
        """,
            threads=1,
            timeout_ms=100,
        )
        self.messages({"key": "a", "expect": "done"})
        status, found = self.rounds()
        self.assertEqual(
            (status, found["cancel"], found["after"]), (1, [("stuck", False)], [("done", True)])
        )

    def test_fences(self):
        """`handler test` runs the messages in several rounds. In the round called "stale", all
        fences are smaller than those of other rounds. In the other rounds, the fences of a key grow
        from message to message."""
        self.exec_handler("""
            import latchwork
            top = {}
            @latchwork.handler
            def handle(m):
                if m.fence < top.get(m.key, 0): raise latchwork.Dead("stale")
                top[m.key] = m.fence
            latchwork.run()
        """)
        self.messages(*({"key": "k%d" % (i % 3), "expect": "done"} for i in range(9)))
        status, found = self.rounds()
        self.assertEqual((status, found["stale"]), (0, [("dead", True)] * 9))
        self.assertEqual(found["after"], [("done", True)] * 9)


class Insert(Case):
    def config(self, **more):
        self.write(
            "orders.json",
            json.dumps(
                {
                    "kafka": {
                        "topics": ["orders"],
                        "properties": {"bootstrap.servers": "127.0.0.1:1"},
                    },
                    "redis": {"url": "redis://127.0.0.1:1"},
                    "key": {"from": "json:/id"},
                    "handler": dict(
                        {
                            "type": "insert",
                            "store": "sqlite:real.db",
                            "table": "orders",
                            "columns": {"id": "/id", "amount": "/amount"},
                            "primary_key": ["id"],
                            "on_conflict": "dead",
                        },
                        **more,
                    ),
                }
            ),
        )
        self.messages(
            {"payload": {"id": 1, "amount": 2}, "expect": "done"},
            {"payload": {"id": 2, "amount": -2}},
            {
                "payload": {"id": 1, "amount": 3},
                "expect": {"outcome": "dead", "reason": "duplicate primary key"},
            },
        )

    def test_the_store_is_temporary(self):
        self.config(create=True)
        status, lines, _ = self.results("--chaos")
        self.assertEqual(
            (status, os.path.exists(self.path("real.db")), os.listdir(self.tmp)), (0, False, [])
        )
        self.assertEqual({line["outcome"] for line in lines if line["round"] == "stale"}, {"back"})

    def test_it_has_the_tables_of_the_real_one(self):
        self.config()
        db = sqlite3.connect(self.path("real.db"))
        db.execute("CREATE TABLE orders(id INTEGER PRIMARY KEY, amount INTEGER CHECK(amount > 0))")
        db.execute("INSERT INTO orders VALUES(1, 1)")
        db.commit()
        status, lines, _ = self.results()
        self.assertEqual(
            (status, [line["outcome"] for line in lines]), (0, ["done", "dead", "dead"])
        )
        self.assertEqual(db.execute("SELECT count(*) FROM orders").fetchall(), [(1,)])
        self.assertEqual(
            [name for (name,) in db.execute("SELECT name FROM sqlite_master")], ["orders"]
        )
        db.close()


class InsertPostgres(Insert):
    """Runs the tests of the class Insert, and some more tests, with PostgreSQL as the store."""

    @classmethod
    def setUpClass(cls):
        cls.pg = Postgres()
        cls.pg.start()
        cls.addClassCleanup(cls.pg.__exit__)

    def schemas(self):
        return self.pg.sql("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'latchwork%'")

    def test_the_store_is_temporary(self):
        self.config(create=True, store=self.pg.url, table="new_orders")
        status, lines, _ = self.results("--chaos")
        self.assertEqual(
            (
                status,
                self.schemas(),
                self.pg.sql(
                    "SELECT relname FROM pg_class WHERE relname = 'new_orders' OR relname LIKE 'latchwork%'"
                ),
            ),
            (0, [], []),
        )
        self.assertEqual({line["outcome"] for line in lines if line["round"] == "stale"}, {"back"})

    def test_it_has_the_tables_of_the_real_one(self):
        self.pg.sql("""CREATE SCHEMA sales;
            CREATE TABLE sales."Orders"(id bigint PRIMARY KEY, amount integer CHECK(amount > 0));
                       INSERT INTO sales."Orders" VALUES(1, 1)""")
        self.config(store=self.pg.url, table="sales.Orders")
        status, lines, _ = self.results()
        self.assertEqual(
            (status, [line["outcome"] for line in lines]), (0, ["done", "dead", "dead"]), lines
        )
        self.assertEqual(
            (self.pg.sql('SELECT count(*) FROM sales."Orders"'), self.schemas()), ([["1"]], [])
        )

    def test_a_pooler_is_refused(self):
        """With a connection pooler that ignores the search_path, the rows of `handler test` would
        go into the real tables. `handler test` must therefore refuse to run behind such a
        pooler."""
        self.pg.start_bouncer()
        for more in ("", "ignore_startup_parameters = options\n"):
            if more:
                self.pg.bouncer.kill()
                self.pg.bouncer.wait()
                with open(os.path.join(self.pg.dir, "pgbouncer.ini"), "a") as f:
                    f.write(more)
                self.pg.bouncer = self.pg.begin(
                    [os.path.join(self.pg.dir, "pgbouncer.ini")],
                    name="pgbouncer",
                    path=shutil.which("pgbouncer", path="/usr/sbin:/usr/bin:/usr/local/bin"),
                )
                wait_until(lambda: self.pg.answers(self.pg.bouncer_url), 60, "answer of PgBouncer")
            self.config(store=self.pg.bouncer_url, create=True, table="pooled")
            status, out, err = self.try_it()
            self.assertEqual((status, out), (1, ""), err)
            self.assertIn("does not take its search_path from PGOPTIONS, as behind a pooler", err)
            self.assertEqual(
                (self.schemas(), self.pg.sql("SELECT to_regclass('pooled') IS NULL")), ([], [["t"]])
            )

    def test_a_server_that_is_away(self):
        self.config(store="postgres://postgres@/postgres?host=/nowhere", create=True)
        status, out, err = self.try_it()
        self.assertEqual((status, out), (1, ""))
        self.assertIn("latchwork handler test: handler.store: ", err)


class Http(Case):
    def test_a_service(self):
        """Tests the service of examples/http-python, and then an address at which nothing
        listens."""
        port = free_port()
        shutil.copytree(os.path.join(ROOT, "examples/http-python"), self.path(""))
        os.rename(self.path("accounts.json"), self.path("orders.json"))
        self.env["SERVICE"] = "127.0.0.1:%d" % port
        server = subprocess.Popen([sys.executable, self.path("server.py"), str(port)])
        try:
            wait_until(lambda: not socket.socket().connect_ex(("127.0.0.1", port)), 20, "server")
            status, lines, _ = self.results("--chaos")
        finally:
            server.kill()
            server.wait()
        self.assertEqual(
            (status, [line["outcome"] for line in lines if line["round"] == "stale"]),
            (0, ["back", "back", "dead"]),
            lines,
        )
        status, lines, _ = self.results()
        self.assertEqual((status, lines[0]["outcome"]), (1, "retry"))
        self.assertIn("Connection refused", lines[0]["reason"])


class Watch(Case):
    def wait_for(self, log, text, times):
        until = time.monotonic() + 30
        while time.monotonic() < until:
            with open(log) as f:
                if f.read().count(text) >= times:
                    return
            time.sleep(0.05)
        with open(log) as f:
            self.fail("%r is not there %d times: %s" % (text, times, f.read()))

    def test_it_runs_again_when_a_file_changes(self):
        """`handler test --watch` must run the tests again when a file of the handler changes, but
        not when the handler itself writes into its folder."""
        self.exec_handler("""
            import latchwork
            @latchwork.handler
            def handle(m):
                with open("written", "a") as f: f.write(m.id)
            latchwork.run()
        """)
        self.messages({"key": "a", "expect": "done"})
        log = os.path.join(self.dir, "log")
        with open(log, "w") as out:
            p = subprocess.Popen(
                [PROGRAM, "handler", "test", "-c", "orders.json", "--watch"],
                cwd=self.path(""),
                env=self.env,
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        try:
            self.wait_for(log, "-- waiting", 1)
            self.messages({"key": "a", "expect": "dead"})
            self.wait_for(log, "messages.jsonl:1: expected dead", 1)
            self.wait_for(log, "1 not as expected", 1)
            # Replace the file by a new file, as sed -i and some editors do.
            self.write("sedAbc", '{"key": "a", "expect": "retry"}')
            os.rename(self.path("sedAbc"), self.path("messages.jsonl"))
            self.wait_for(log, "messages.jsonl:1: expected retry", 1)
            self.wait_for(log, "messages.jsonl has changed", 2)
            self.write("orders.json", "{")
            self.wait_for(log, "orders.json has changed", 1)
            self.wait_for(log, "-- waiting", 4)
            time.sleep(0.5)
            self.wait_for(log, "-- waiting", 4)
            with open(log) as f:
                self.assertEqual(f.read().count("-- waiting"), 4)
            p.send_signal(signal.SIGINT)
            self.assertEqual(p.wait(10), 130)
        finally:
            p.kill()
            p.wait()

    def test_a_source_that_is_not_built_yet(self):
        """A change of the source must not start a test of the outdated program. A build must start
        a test."""
        self.exec_handler("import latchwork; latchwork.run(lambda m: None)")
        program = "#!/bin/sh\nexec %s handler.py\n" % sys.executable
        self.write("handler", program)
        os.chmod(self.path("handler"), 0o755)
        self.messages({"key": "a", "expect": "done"})
        log = os.path.join(self.dir, "log")
        with open(log, "w") as out:
            p = subprocess.Popen(
                [PROGRAM, "handler", "test", "-c", "orders.json", "--watch"]
                + ["--set", 'handler.command=["./handler"]'],
                cwd=self.path(""),
                env=self.env,
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        try:
            self.wait_for(log, "; as expected", 1)
            self.wait_for(log, "-- waiting", 1)
            self.write("handler.go", "package main")
            self.wait_for(log, "-- handler.go is newer than ./handler: build it --", 1)
            self.write("handler", program)
            self.wait_for(log, "; as expected", 2)
            self.wait_for(log, "-- handler has changed --", 1)
            with open(log) as f:
                self.assertNotIn("handler.go has changed", f.read())
        finally:
            p.kill()
            p.wait()

    def test_a_signal_leaves_nothing_behind(self):
        self.plugin("for (;;) sleep(1);")
        self.messages({"key": "a"})
        p = subprocess.Popen(
            [PROGRAM, "handler", "test", "-c", "orders.json"],
            cwd=self.path(""),
            env=self.env,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        time.sleep(0.5)
        p.send_signal(signal.SIGTERM)
        self.assertEqual((p.wait(10), os.listdir(self.tmp)), (128 + signal.SIGTERM, []))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
