#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the cost of the web page and the HTTP API on a private Redis with many lanes: the
duration of each request, the longest command in Redis, and the memory of the process that serves
the page.

usage: tests/scale/api.py BUILD [LANES]
LANES is 1,000,000 by default, which takes 1 GB of memory and some minutes.

scale.py makes the lanes. No lane is due, so the supervisor on the same Redis has nothing to do. The
script fails if an answer is not as expected, if a lane was lost, or if the serving process needs
more than 64 MiB. The duration of a command in Redis includes waiting for a processor core. On a
busy machine, set LW_REDIS_SERVER to a script that runs `chrt -f 1 redis-server "$@"`, as root."""

import http.client
import json
import os
import re
import statistics
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(HERE, "..", "live"))
import scale  # noqa: E402
from lib.latchwork import Instance  # noqa: E402
from lib.ports import free_port  # noqa: E402
from lib.process import descendants, listens, wait_until  # noqa: E402
from lib.redis import Redis  # noqa: E402

TOKEN, MIB_MAX, NEXT_PAGES = "a-token-for-this-measurement", 64, 50
# A lane with this score is not due before the year 287,000.
LATER = 9 * 10**15


class Server:
    def __init__(self, build, directory, redis):
        self.redis, self.port = redis, free_port()
        settings = {
            "name": "t",
            "workers": 1,
            "kafka": {"topics": ["idle"], "properties": {"bootstrap.servers": "127.0.0.1:1"}},
            "redis": {"url": redis.url},
            "handler": {"type": "exec", "command": ["cat"], "processes": 1},
            "http": {"listen": "127.0.0.1:%d" % self.port, "token": TOKEN},
        }
        self.run = Instance(build, directory, "one", settings, {})
        wait_until(lambda: self.ask("version", failing=None), 60, "the API")
        (self.pid,) = [p for p in descendants(self.run.popen.pid) if listens(p, self.port)]

    def ask(self, path, body=None, failing=AssertionError):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(
                "POST" if body is not None else "GET",
                "/api/v1/" + path,
                None if body is None else json.dumps(body),
                {"Authorization": "Bearer " + TOKEN},
            )
            r = connection.getresponse()
            text = r.read()
        except OSError:
            if failing:
                raise
            return None
        finally:
            connection.close()
        assert r.status in (200, 202), "%s: %d %s" % (path, r.status, text[:300])
        return json.loads(text)

    def first_event(self):
        """Waits for the first event named `now`, which contains the figures of the overview.
        Returns the size of the event's data line in bytes."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("GET", "/api/v1/events")
        answer = connection.getresponse()
        line = answer.readline()
        while not line.startswith(b"event: now"):
            assert line, "the stream has ended without an event"
            line = answer.readline()
        size = len(answer.readline())
        answer.close()
        connection.close()
        return size

    def mib(self):
        with open("/proc/%d/status" % self.pid) as f:
            return int(re.search(r"VmHWM:\s+(\d+)", f.read()).group(1)) / 1024


class Measure:
    def __init__(self, server, redis):
        self.server, self.redis = server, redis
        print(
            "%-52s %6s %9s %9s %9s %12s %12s"
            % ("request", "times", "median ms", "max ms", "calls", "Redis CPU ms", "slowest us")
        )

    def __call__(self, name, ask, times=10):
        """Calls ask() several times, and prints how long the calls took and how much work they
        caused in Redis. Returns the last answer."""
        self.redis.call("SLOWLOG", "RESET"), self.redis.call("CONFIG", "RESETSTAT")
        before, took = scale.cpu(self.redis), []
        for _ in range(times):
            begun = time.monotonic()
            answer = ask()
            took.append(1000 * (time.monotonic() - begun))
        used = scale.cpu(self.redis) - before
        slow = max(self.redis.call("SLOWLOG", "GET", 128), key=lambda e: e[2], default=None)
        calls = sum(
            int(re.search(r"calls=(\d+)", v).group(1))
            for k, v in self.redis.info("commandstats").items()
            if k[8:] in OUTER
        )
        print(
            "%-52s %6d %9.1f %9.1f %9.0f %12.1f %12s"
            % (
                name,
                times,
                statistics.median(took),
                max(took),
                calls / times,
                1000 * used / times,
                "%d %s" % (slow[2], slow[3][0].decode()) if slow else "< 1000",
            )
        )
        sys.stdout.flush()
        return answer


# The commands that the API sends most. No script calls them, so they count the API's own calls.
OUTER = ("evalsha", "zscan", "sscan", "scan", "xrevrange")


def beside(server, ask, during):
    """Calls ask() repeatedly while during() runs. Returns the duration of each call in
    milliseconds."""
    took, over = [], threading.Event()

    def loop():
        while not over.is_set():
            begun = time.monotonic()
            ask()
            took.append(1000 * (time.monotonic() - begun))

    thread = threading.Thread(target=loop)
    thread.start()
    try:
        during()
    finally:
        over.set()
        thread.join()
    return took


def expect(what, got, wanted):
    print(
        "%s %s: %s%s"
        % (
            "ok    " if got == wanted else "FAILED",
            what,
            got,
            "" if got == wanted else ", wanted %s" % wanted,
        )
    )
    return got != wanted


def measure(server, redis, lanes):
    m, last = Measure(server, redis), lanes + lanes // 5 - 1
    at = [None]

    def next_page():
        page = server.ask("lanes?limit=100" + ("&cursor=" + at[0] if at[0] else ""))
        at[0] = page["next"]
        return page

    m("overview: the first event with all figures", server.first_event)
    m("lanes?limit=100", lambda: server.ask("lanes?limit=100"))
    m("lanes: the next pages by cursor", next_page, NEXT_PAGES)
    m("lanes?match=l99*", lambda: server.ask("lanes?match=l99*&limit=100"))
    m("lanes?older_than=1h", lambda: server.ask("lanes?older_than=1h&limit=100"))
    m("keys/l17", lambda: server.ask("keys/l17"))
    m("keys/long (100 of its messages)", lambda: server.ask("keys/long"))
    counted = m("lanes/count", lambda: server.ask("lanes/count"))
    some = m("lanes/count?match=l99*", lambda: server.ask("lanes/count?match=l99*"), 3)
    few = m("lanes/count?topic=orders", lambda: server.ask("lanes/count?topic=orders"), 3)
    dry = m(
        "lanes/pause of all: dry run",
        lambda: server.ask("lanes/pause", {"filter": {"match": "*"}}),
        2,
    )
    where = m(
        "lanes/drop where /total>5: dry run",
        lambda: server.ask("lanes/drop", {"filter": {"where": ["/total>5"]}}),
        2,
    )
    m("dead?limit=100", lambda: server.ask("dead?limit=100"))
    m("dead/count?reason=error 3", lambda: server.ask("dead/count?reason=error%203"), 3)
    m(
        "dead/IDENTITY of the last one",
        lambda: server.ask("dead/orders%%2F%d%%2F%d" % (last % 4, last // 4)),
        2,
    )
    m("locks", lambda: server.ask("locks"), 2)
    took = beside(
        server,
        lambda: server.ask("keys/l17"),
        lambda: [server.ask("lanes/count?topic=orders") for _ in range(3)],
    )
    print(
        "keys/l17 beside counts: %d answers, median %.1f ms, max %.1f ms"
        % (len(took), statistics.median(took), max(took))
    )
    print(
        "looked at within the time allowed: count?match %d, count?topic %d, dry runs %d and %d"
        % (some["scanned"], few["scanned"], dry["scanned"], where["scanned"])
    )
    bad = expect("lanes counted", counted["count"] - lanes in (0, 1), True) + expect(
        "keys answered beside a count", len(took) > 3, True
    )
    bad += expect("lanes are still there", redis.call("ZCARD", scale.P + "lanes"), lanes + 1)
    mib = server.mib()
    return bad + expect(
        "the server's memory is below %d MiB (%.1f)" % (MIB_MAX, mib), mib < MIB_MAX, True
    )


def main():
    build, lanes = (
        os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "build"),
        int(sys.argv[2]) if len(sys.argv) > 2 else 1000000,
    )
    lanes -= lanes % 80
    with tempfile.TemporaryDirectory() as directory:
        redis, server = Redis(os.path.join(directory, "redis")), None
        redis.start()
        try:
            redis.call("CONFIG", "SET", "slowlog-log-slower-than", 1000)
            scale.fill(redis, lanes, later=LATER)
            print(
                "%d lanes, %.0f MB of Redis %s, load %.1f"
                % (
                    lanes + 1,
                    int(redis.info("memory")["used_memory"]) / 1e6,
                    redis.info("server")["redis_version"],
                    os.getloadavg()[0],
                )
            )
            server = Server(build, directory, redis)
            bad = measure(server, redis, lanes)
        finally:
            if server:
                server.run.popen.terminate()
                server.run.popen.wait(60)
            redis.stop()
    print("%d failed" % bad)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
