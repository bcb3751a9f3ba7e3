# SPDX-License-Identifier: Apache-2.0
"""Tests of the Python SDK. Some use the protocol's test vectors. The others start handlers as
processes, and do what Latchwork would do.

python3 -m unittest discover -s sdk/python/tests"""

import asyncio
import base64
import io
import json
import os
import re
import select
import subprocess
import sys
import tempfile
import textwrap
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
SDK = os.path.dirname(HERE)
VECTORS = os.path.join(HERE, "../../../tests/vectors/exec")
LIMIT_S = 30
sys.path.insert(0, SDK)
import latchwork  # noqa: E402  (without LATCHWORK_FDS it writes nothing)
from latchwork import testing  # noqa: E402


def vectors(name):
    with open(os.path.join(VECTORS, name), encoding="utf-8") as f:
        return [json.loads(line) for line in f]


def plain(text):
    """Returns the value as the files of test vectors contain it: text unchanged, and bytes as the
    object {"base64": …}."""
    return {"base64": base64.b64encode(text).decode()} if isinstance(text, bytes) else text


class Vectors(unittest.TestCase):
    def test_requests(self):
        cases = vectors("requests.jsonl")
        self.assertGreater(len(cases), 3)
        for case in cases:
            request = json.loads(case["line"])
            if "cancel" in request:
                continue
            messages = [latchwork.Message(r) for r in request.get("batch", [request])]
            self.assertEqual(len(messages), len(case["messages"]))
            for m, want in zip(messages, case["messages"]):
                got = {
                    name: getattr(m, name)
                    for name in (
                        "id",
                        "fence",
                        "attempt",
                        "topic",
                        "partition",
                        "offset",
                        "timestamp_ms",
                    )
                }
                got.update(
                    key=plain(m.key),
                    payload=plain(m.payload),
                    headers=[[plain(n), plain(v)] for n, v in m.headers],
                )
                self.assertEqual(got, {name: want[name] for name in got})
                self.assertEqual(
                    m.deadline, want["deadline_ms"] / 1000 if "deadline_ms" in want else None
                )

    def test_answers_are_what_the_vectors_allow(self):
        known = [case["answers"][0] for case in vectors("answers.jsonl") if "answers" in case]
        forms = {(frozenset(k for k, v in a.items() if v is not None), a["outcome"]) for a in known}
        m = latchwork.Message(request("t/0/1"))
        for error in (
            None,
            latchwork.Retry("no time"),
            latchwork.Retry("no time", after=60),
            latchwork.Retry("no time", counts=False),
            latchwork.Retry(after=0.005, counts=False),
            latchwork.Dead("no use"),
            ValueError("\u00e9\n"),
            latchwork.Cancelled(),
        ):
            with open(os.devnull, "w") as null:
                stderr, sys.stderr = sys.stderr, null
                try:
                    line, done = latchwork._answer(m, error)
                finally:
                    sys.stderr = stderr
            answer = json.loads(line)
            self.assertIn((frozenset(answer), answer["outcome"]), forms)
            self.assertEqual((line.count("\n"), done), (1, error is None))

    def test_a_retry_says_when(self):
        m = latchwork.Message(request("t/0/1"))

        def said(**when):
            answer = json.loads(latchwork._answer(m, latchwork.Retry("r", **when))[0])
            return answer.get("after_ms"), answer.get("counts")

        self.assertEqual(said(), (None, None))
        self.assertEqual(said(after=60), (60000, None))
        self.assertEqual(said(after=0, counts=False), (0, False))
        self.assertEqual(said(after=0.0001), (1, None))
        self.assertEqual(said(after=1e300), (3600000, None))
        for bad in (-1, float("nan"), float("inf"), "60"):
            with self.assertRaisesRegex(ValueError, "from 0 to 3600"):
                latchwork.Retry("r", after=bad)
        with self.assertRaisesRegex(ValueError, "True or False"):
            latchwork.Retry("r", counts=0)


def request(identity, key="k", payload="{}", attempt=1, headers=()):
    topic, partition, offset = identity.split("/")
    return {
        "id": identity,
        "key": key,
        "fence": 7,
        "attempt": attempt,
        "topic": topic,
        "partition": int(partition),
        "offset": int(offset),
        "timestamp_ms": 1,
        "headers": list(headers),
        "payload": payload,
    }


class Handler:
    """A handler in a process of its own. If `side` is true, the process may use descriptors 3 and 4
    for the protocol."""

    def __init__(self, code, side=True):
        def pipe():
            return os.pipe()

        (in_r, self.stdin), (self.stdout, out_w), (self.answers, side_w) = pipe(), pipe(), pipe()
        env = dict(os.environ, PYTHONPATH=SDK)
        # Both descriptors are first moved to high numbers. Otherwise dup2() to 3 or 4 might
        # overwrite one of them.
        setup = (
            "import os\nr, w = os.dup(%d), os.dup(%d)\nr, w = [os.dup2(fd, n, inheritable=True) for fd, n in ((r, 60), (w, 61))]\n"
            % (in_r, side_w)
        )
        setup += (
            "os.dup2(60, 3, inheritable=True); os.dup2(61, 4, inheritable=True); os.close(60); os.close(61)\n"
            if side
            else ""
        )
        setup += (
            "import sys\nos.execv(sys.executable, [sys.executable, '-c', %r])\n"
            % textwrap.dedent(code)
        )
        env.pop("LATCHWORK_FDS", None)
        if side:
            env["LATCHWORK_FDS"] = "3,4"
        self.process = subprocess.Popen(
            [sys.executable, "-c", setup],
            stdin=in_r,
            stdout=out_w,
            stderr=subprocess.PIPE,
            env=env,
            pass_fds=(in_r, side_w),
        )
        for fd in (in_r, out_w, side_w):
            os.close(fd)
        if not side:
            os.close(self.answers)
            self.answers, self.stdout = self.stdout, None
        self.rest = b""
        if side:
            assert self.answer() == {"hello": 1}

    def send(self, *requests):
        os.write(self.stdin, b"".join(json.dumps(r).encode() + b"\n" for r in requests))

    def answer(self):
        """Returns the next answer, or None at the end of the answers."""
        until = time.monotonic() + LIMIT_S
        while b"\n" not in self.rest:
            if not select.select([self.answers], [], [], max(0, until - time.monotonic()))[0]:
                raise AssertionError("no answer")
            data = os.read(self.answers, 1 << 16)
            if not data:
                return None
            self.rest += data
        line, self.rest = self.rest.split(b"\n", 1)
        return json.loads(line)

    def log(self, pattern):
        """Reads stderr until it matches the pattern, and returns what was read."""
        until, said = time.monotonic() + LIMIT_S, b""
        while not re.search(pattern, said):
            fd = self.process.stderr.fileno()
            if not select.select([fd], [], [], max(0, until - time.monotonic()))[0]:
                raise AssertionError("no %r in %r" % (pattern, said))
            said += os.read(fd, 1 << 16)
        return said

    def end(self):
        """Closes the input of the process, and waits for its end. Returns the answers that were not
        yet read, the printed text, stderr, and the exit status."""
        os.close(self.stdin)
        left = []
        while (answer := self.answer()) is not None:
            left.append(answer)
        printed = b""
        if self.stdout is not None:
            while data := os.read(self.stdout, 1 << 16):
                printed += data
            os.close(self.stdout)
        os.close(self.answers)
        stderr = self.process.stderr.read().decode()
        self.process.stderr.close()
        return left, printed.decode(), stderr, self.process.wait(LIMIT_S)


OUTCOMES = """
    import latchwork
    @latchwork.handler
    %sdef handle(m):
        what = m.json()["do"]
        print("stray", m.key)
        if what == "retry": raise latchwork.Retry("later")
        if what == "dead": raise latchwork.Dead("never")
        if what == "fail": raise KeyError("id")
        assert latchwork.current() is m
        assert m.traceparent == "00-aa-bb-01", m.headers
    latchwork.run(%s)
"""


class Testing(unittest.TestCase):
    """What a handler's own tests use."""

    def test_outcomes(self):
        def plain_handler(m):
            self.assertIs(latchwork.current(), m)
            if m.json()["do"] == "later":
                raise latchwork.Retry("not yet", after=60, counts=False)
            if m.json()["do"] == "fail":
                raise KeyError("id")
            return m.json().get("value")

        async def coroutine(m):
            await asyncio.sleep(0)
            return plain_handler(m)

        stderr, sys.stderr = sys.stderr, io.StringIO()
        try:
            for handler in (plain_handler, coroutine):
                end = lambda **payload: testing.handle(handler, testing.message(payload))  # noqa
                self.assertEqual(end(do="go"), ("done", "", None, True, None))
                self.assertEqual(end(do="later")[:4], ("retry", "not yet", 60, False))
                failed = end(do="fail")
                self.assertEqual(failed[:2], ("retry", "KeyError: 'id'"))
                self.assertIsInstance(failed.error, KeyError)
                self.assertRegex(end(do="go", value=1).reason, "must return nothing")
                self.assertEqual(testing.handle(handler, testing.message("x")).outcome, "dead")
        finally:
            sys.stderr = stderr

    def test_messages(self):
        m = testing.message(
            b"\xff", key="c-1", id="a/b/2/7", headers=[("n", b"\xfe"), ("n", None)], deadline=1.5
        )
        got = (m.payload, m.key, m.topic, m.partition, m.offset, m.headers, m.deadline)
        headers = [("n", b"\xfe"), ("n", None)]
        self.assertEqual(got, (b"\xff", "c-1", "a/b", 2, 7, headers, 1.5))
        self.assertEqual(testing.message([1]).json(), [1])
        self.assertEqual(testing.message(key=b"\xff").key, b"\xff")
        self.assertIsNone(testing.message().payload)

    def test_what_is_public(self):
        names = {n for n in dir(latchwork) if not n.startswith("_")}
        self.assertEqual(names, set(latchwork.__all__))


class Processes(unittest.TestCase):
    def outcomes(self, code, side=True):
        h = Handler(code, side)
        wanted = {}
        for i, (payload, want) in enumerate(
            [
                ('{"do":"go"}', ("done", None)),
                ('{"do":"retry"}', ("retry", "later")),
                ('{"do":"dead"}', ("dead", "never")),
                ('{"do":"fail"}', ("retry", "KeyError: 'id'")),
                (
                    "x",
                    ("dead", "the payload is not JSON: Expecting value: line 1 column 1 (char 0)"),
                ),
                (None, ("dead", "the payload is null, not JSON")),
            ]
        ):
            wanted["t/0/%d" % i] = want
            h.send(
                request(
                    "t/0/%d" % i,
                    key="k%d" % i,
                    payload=payload,
                    headers=[["traceparent", "00-aa-bb-01"]],
                )
            )
        got = {}
        for _ in wanted:
            a = h.answer()
            got[a["id"]] = (a["outcome"], a.get("reason"))
        self.assertEqual(got, wanted)
        left, printed, stderr, status = h.end()
        self.assertEqual((left, status), ([], 0))
        self.assertEqual((printed if side else stderr).count("stray"), 4)
        self.assertIn("t/0/3: Traceback", stderr)

    def test_a_function(self):
        self.outcomes(OUTCOMES % ("", ""))

    def odd_errors(self, kind, arguments, exits):
        """Raises exceptions that cannot be written as they are. Each must still be a retry or a
        dead letter, and the process must go on."""
        h = Handler(
            """
            import latchwork, sys
            class Mute(Exception):
                def __str__(self): raise ValueError("no")
            %sdef handle(m):
                if m.payload == "mute": raise Mute()
                if m.payload == "half": raise latchwork.Dead("x \\ud83d")
                if m.payload == "long": raise latchwork.Dead("x" * 3000000)
                if m.payload == "exit": sys.exit(3)
            latchwork.run(handle%s)
        """
            % (kind, arguments)
        )
        payloads = ["mute", "half", "long"] + (["exit"] * 4 if exits else []) + ["ok"]
        for i, payload in enumerate(payloads):
            h.send(request("t/0/%d" % i, key="k%d" % i, payload=payload, attempt=2))
        got = {a["id"]: a for a in (h.answer() for _ in payloads)}
        self.assertEqual({a["attempt"] for a in got.values()}, {2})
        self.assertEqual(got["t/0/0"]["outcome"], "retry")
        self.assertIn("Mute: no text", got["t/0/0"]["reason"])
        self.assertEqual((got["t/0/1"]["outcome"], got["t/0/1"]["reason"]), ("dead", "x \ufffd"))
        self.assertEqual(len(got["t/0/2"]["reason"]), latchwork.REASON_MAX)
        for i in range(3, len(payloads) - 1):
            self.assertEqual(got["t/0/%d" % i]["outcome"], "retry")
            self.assertEqual(got["t/0/%d" % i]["reason"], "SystemExit: 3")
        self.assertEqual(got["t/0/%d" % (len(payloads) - 1)]["outcome"], "done")
        self.assertEqual(h.end()[0::3], ([], 0))

    def test_odd_errors(self):
        self.odd_errors("", "", False)

    def test_odd_errors_on_threads(self):
        self.odd_errors("", ", threads=3", True)

    def test_odd_errors_of_coroutines(self):
        self.odd_errors("async ", "", False)

    def test_a_function_on_threads(self):
        self.outcomes(OUTCOMES % ("", "threads=4"))

    def test_a_coroutine(self):
        self.outcomes(OUTCOMES % ("async ", ""))

    def test_stdin_and_stdout_where_there_is_nothing_else(self):
        self.outcomes(OUTCOMES % ("", ""), side=False)

    def together(self, code, n=50):
        """Checks that n messages can be in their handlers at once. `code` is a handler that returns
        only when n messages have arrived."""
        h = Handler(code)
        h.send(*[request("t/0/%d" % i, key="k%d" % i) for i in range(n)])
        self.assertEqual({h.answer()["id"] for _ in range(n)}, {"t/0/%d" % i for i in range(n)})
        self.assertEqual(h.end()[0::3], ([], 0))

    def test_many_coroutines_at_once(self):
        self.together("""
            import asyncio, latchwork
            count, all_here = 0, None
            async def handle(m):
                global count, all_here
                all_here = all_here or asyncio.Event()
                count += 1
                if count == 50: all_here.set()
                await all_here.wait()
            latchwork.run(handle)
        """)

    def test_many_threads_at_once(self):
        self.together("""
            import latchwork, threading
            barrier = threading.Barrier(50)
            latchwork.run(lambda m: [barrier.wait()] and None, threads=50)
        """)

    def test_a_cancelled_coroutine(self):
        h = Handler("""
            import asyncio, latchwork
            async def handle(m):
                if m.key == "slow": await asyncio.sleep(1000)
            latchwork.run(handle)
        """)
        h.send(request("t/0/0", key="slow"), request("t/0/1", key="fast"))
        self.assertEqual(h.answer(), {"id": "t/0/1", "attempt": 1, "outcome": "done"})
        h.send({"cancel": "t/0/0"}, {"cancel": "t/0/99"})
        self.assertEqual(h.answer(), {"id": "t/0/0", "attempt": 1, "outcome": "retry"})
        self.assertEqual(h.end()[0::3], ([], 0))

    def test_a_handler_that_blocks_the_loop(self):
        """A handler that blocks the event loop must be named in the log while it does and
        afterwards, and in the answer for a message that was cancelled because of it."""
        h = Handler("""
            import asyncio, latchwork, os, time
            latchwork.BLOCKED_S = 0.2
            async def handle(m):
                if m.key == "other": await asyncio.sleep(1000)
                while m.key == "blocks" and not os.path.exists(m.payload): time.sleep(0.01)
            latchwork.run(handle)
        """)
        with tempfile.TemporaryDirectory() as folder:
            go = os.path.join(folder, "go")
            h.send(request("t/0/0", key="other"), request("t/0/1", key="blocks", payload=go))
            said = h.log(rb"so far; .*\n.*so far; .*\n")
            h.send({"cancel": "t/0/0"}, request("t/0/2", key="fast"))
            open(go, "w").close()
            answers = {a["id"]: a for a in (h.answer(), h.answer(), h.answer())}
        blocked = r"handler of t/0/1 blocked the loop for \d+\.\d s \(\S+:6\)"
        self.assertRegex(said.decode(), blocked + r" so far; put a call that waits")
        self.assertRegex(answers["t/0/0"]["reason"], "^" + blocked + "$")
        self.assertEqual(answers["t/0/1"], {"id": "t/0/1", "attempt": 1, "outcome": "done"})
        self.assertEqual(answers["t/0/2"]["outcome"], "done")
        answers, _, logged, status = h.end()
        self.assertEqual((answers, status), ([], 0))
        self.assertRegex(logged, blocked + r"\n")

    def cancelled_function(self, threads):
        h = Handler(
            """
            import latchwork, time
            def handle(m):
                if m.key == "first": return
                while not m.cancelled: time.sleep(0.001)
                raise latchwork.Cancelled()
            latchwork.run(handle, threads=%d)
        """
            % threads
        )
        h.send(request("t/0/0"))
        # Give the message time to reach its handler. If this time is too short, the test still
        # passes, but it does not test the cancellation of a handler that runs.
        time.sleep(0.05)
        h.send(request("t/0/1", key="first"), {"cancel": "t/0/0"})
        self.assertEqual({h.answer()["id"] for _ in range(2)}, {"t/0/0", "t/0/1"})
        self.assertEqual(h.end()[0::3], ([], 0))

    def test_a_cancelled_function(self):
        self.cancelled_function(1)

    def test_a_cancelled_thread(self):
        self.cancelled_function(2)

    def batch(self, kind):
        h = Handler(
            """
            import latchwork
            seen = []
            %sdef handle(m):
                assert m.offset == len(seen), seen
                seen.append(m.offset)
                if m.offset == 2: raise latchwork.Retry("enough")
            latchwork.run(handle)
        """
            % kind
        )
        h.send({"batch": [request("t/0/%d" % i) for i in range(5)]})
        self.assertEqual([h.answer()["outcome"] for _ in range(3)], ["done", "done", "retry"])
        self.assertEqual(h.end()[0::3], ([], 0))

    def test_a_batch_ends_with_the_first_that_is_not_done(self):
        self.batch("")
        self.batch("async ")

    def test_the_end_waits_for_what_is_under_way(self):
        h = Handler("""
            import asyncio, latchwork
            async def handle(m): await asyncio.sleep(0.3)
            latchwork.run(handle)
        """)
        h.send(*[request("t/0/%d" % i, key=str(i)) for i in range(3)])
        self.assertEqual([a["outcome"] for a in h.end()[0]], ["done"] * 3)

    def test_a_program_that_it_starts_does_not_get_the_descriptors(self):
        h = Handler("""
            import latchwork, subprocess, sys
            def handle(m):
                raise latchwork.Dead(subprocess.check_output([sys.executable, "-c", "import os; print('LATCHWORK_FDS' in os.environ)"]).decode().strip())
            latchwork.run(handle)
        """)
        h.send(request("t/0/0"))
        self.assertEqual(h.answer()["reason"], "False")
        h.end()

    def test_logging_names_the_message(self):
        h = Handler("""
            import latchwork, logging
            latchwork.run(lambda m: logging.getLogger("orders").warning("two\\nlines"))
        """)
        h.send(request("t/0/5"))
        h.answer()
        self.assertIn("t/0/5: warning orders: two | lines\n", h.end()[2])

    RETURNS = """
        import asyncio, latchwork
        %sdef handle(m):
            return %s
        latchwork.run(handle)
    """

    def test_a_handler_that_returns_something(self):
        for kind in ("", "async "):
            for value, text in (
                ('latchwork.Dead("x")', "returned Dead; raise it instead: raise latchwork.Dead("),
                ("latchwork.Retry", "returned Retry; raise it instead: raise latchwork.Retry("),
                ("KeyError(1)", "returned KeyError; raise it instead"),
                ("False", "returned False; it must return nothing"),
                ("asyncio.sleep(1)", "returned a coroutine that nobody awaits"),
            ):
                h = Handler(self.RETURNS % (kind, value))
                h.send(request("t/0/5"))
                answer = h.answer()
                self.assertEqual(answer["outcome"], "retry", value)
                self.assertIn("TypeError: the handler " + text, answer["reason"])
                self.assertIn("t/0/5: TypeError: ", h.end()[2])

    def test_two_handlers(self):
        h = Handler("""
            import latchwork
            @latchwork.handler
            def one(m): pass
            @latchwork.handler
            def two(m): pass
            latchwork.run()
        """)
        _, _, stderr, status = h.end()
        self.assertEqual(status, 1)
        self.assertIn("a program has one handler, and this one has two: one and two", stderr)

    def test_threads_for_a_coroutine(self):
        h = Handler("""
            import latchwork
            async def handle(m): pass
            latchwork.run(handle, threads=4)
        """)
        _, _, stderr, status = h.end()
        self.assertEqual(status, 1)
        self.assertIn("ValueError: threads are for plain functions", stderr)

    def test_lines_that_are_no_requests(self):
        for kind in ("", "async "):
            for line in ("hello", "[]", '{"key":"k"}'):
                h = Handler(self.RETURNS % (kind, "None"), side=False)
                os.write(h.stdin, line.encode() + b"\n")
                _, _, stderr, status = h.end()
                self.assertEqual(status, 1, stderr)
                self.assertIn("latchwork: malformed request %r" % line, stderr)
                self.assertIn("try `latchwork handler test`", stderr)
                self.assertNotIn("Traceback", stderr)

    def test_a_terminal(self):
        ours, theirs = os.openpty()
        env = {k: v for k, v in os.environ.items() if k != "LATCHWORK_FDS"}
        p = subprocess.Popen(
            [sys.executable, "-c", "import latchwork; latchwork.run(lambda m: None)"],
            stdin=theirs,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=dict(env, PYTHONPATH=SDK),
            text=True,
        )
        try:
            os.close(theirs)
            os.write(ours, b"\x04")
            self.assertIn("try `latchwork handler test`", p.communicate(timeout=LIMIT_S)[1])
        finally:
            os.close(ours)
            p.kill()
            p.wait()

    def test_no_handler(self):
        h = Handler("import latchwork; latchwork.run()")
        left, _, stderr, status = h.end()
        self.assertEqual((left, status), ([], 1))
        self.assertIn("write @latchwork.handler above your function", stderr)

    def test_no_run(self):
        """A program that never calls run() must print advice when it ends. After an exception,
        the traceback must be the last text in stderr."""
        marked = "import latchwork\n@latchwork.handler\ndef handle(m): pass\n"
        for code, last, wanted in (
            (marked, "write latchwork.run() at its end", 0),
            (marked + "raise KeyError('x')\n", "KeyError: 'x'", 1),
        ):
            left, _, stderr, status = Handler(code).end()
            self.assertEqual((left, status), ([], wanted))
            self.assertIn(last, stderr.splitlines()[-1])
        self.assertEqual(
            Handler(marked, side=False).end()[2], ""
        )  # a program without descriptors 3 and 4 was not started by Latchwork


if __name__ == "__main__":
    unittest.main()
