#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures what open web pages cost a busy fleet. A run consists of pairs of periods: in one period
of a pair no page is open, in the other period several pages of the overview are open. The order of
the two periods is reversed from each pair to the next.

usage: bench/pages.py [BUILD]        (make bench-pages; options: --help)

Each page is a client that reads the stream of the overview, /api/v1/events, as a browser does, but
draws nothing. The handler does nothing, so the fleet spends all its time on work that a page could
disturb.

The program reports two results. The first is the throughput with pages divided by the throughput
without pages, for each pair, with a confidence interval. The second is the CPU time of the process
that serves the pages, per second and as a share of the fleet's CPU time. The second result hardly
depends on the other load of the machine. The program fails if no page gets an event, or if there
are not enough messages for three pairs."""

import argparse
import http.client
import json
import os
import socket
import statistics
import sys
import threading
import time

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "tests", "live"))
from lib import scenario  # noqa: E402
from lib.ports import free_port  # noqa: E402
from lib.process import descendants, listens, wait_until  # noqa: E402

SETTLE_S = (
    # A page gets the data of the last 15 minutes once, when the page opens. The measurement starts
    # SETTLE_S later, so that this cost is not counted.
    0.3
)


class Page(threading.Thread):
    """Reads the stream of events until it is closed, and counts the events and their bytes."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.socket = socket.create_connection(("127.0.0.1", port), 30)
        self.socket.sendall(b"GET /api/v1/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        self.events = self.bytes = 0
        self.start()

    def run(self):
        try:
            while True:
                part = self.socket.recv(1 << 16)
                if not part:
                    return
                self.bytes += len(part)
                self.events += part.count(b"event: now")
        except OSError:
            pass  # close() has ended the connection

    def close(self):
        self.socket.shutdown(socket.SHUT_RDWR)
        self.join(10)
        self.socket.close()


def cpu_s(pids):
    """Returns the CPU time that the given processes have used so far, in seconds."""
    total = 0
    for pid in pids:
        try:
            for task in os.listdir("/proc/%d/task" % pid):
                with open("/proc/%d/task/%s/schedstat" % (pid, task)) as f:
                    total += int(f.read().split()[0])
        except OSError:
            pass  # the process or the thread has ended
    return total / 1e9


class Fleet:
    def __init__(self, t, workers):
        self.port, self.events = free_port(), 0
        plugin = os.path.join(t.rig.build, "bench/bench.so")
        self.run = t.start(
            workers=workers,
            lock={"ttl_ms": 10000},
            handler={"type": "plugin", "path": plugin, "config": {}, "threads": 2},
            http={"listen": "127.0.0.1:%d" % self.port},
            environment={"LATCHWORK_JOURNAL": ""},
        )
        wait_until(lambda: self.done() > 0, 60, "a start")
        (self.server,) = [pid for pid in descendants(self.run.pid) if listens(pid, self.port)]

    def done(self):
        self.run.check_running()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("GET", "/api/v1/counters")
            return json.loads(connection.getresponse().read())["done"]
        except OSError:
            return 0  # the web server does not listen yet
        finally:
            connection.close()

    def reading(self):
        pids = [self.run.pid, *descendants(self.run.pid)]
        return time.monotonic(), self.done(), cpu_s([self.server]), cpu_s(pids)

    def window(self, pages, seconds):
        """Keeps `pages` pages open for `seconds` seconds. Returns the messages per second, and the
        CPU seconds per second of the server and of the fleet."""
        opened = [Page(self.port) for _ in range(pages)]
        time.sleep(SETTLE_S)
        before = [p.events for p in opened]
        a = self.reading()
        time.sleep(seconds)
        b = self.reading()
        self.events += sum(p.events - n for p, n in zip(opened, before))
        for p in opened:
            p.close()
        took = b[0] - a[0]
        return [(y - x) / took for x, y in zip(a[1:], b[1:])]


def pairs(fleet, total, pages, seconds, most):
    """Yields the results of one pair of periods after the other, as (without pages, with pages).
    Ends when there are too few messages for another pair."""
    rate = 0
    for i in range(most):
        if total - fleet.done() < 3 * rate * (seconds + SETTLE_S):
            return
        one = fleet.window(pages if i % 2 else 0, seconds)
        two = fleet.window(0 if i % 2 else pages, seconds)
        rate = max(rate, one[0], two[0])
        if not rate:
            return
        yield (two, one) if i % 2 else (one, two)


def interval(values):
    """Returns the mean, and half the width of its 95 % confidence interval (normal
    approximation)."""
    return statistics.mean(values), 1.96 * statistics.stdev(values) / len(values) ** 0.5


def report(got, pages):
    ratios = [with_[0] / without[0] for without, with_ in got]
    mean, half = interval(ratios)
    print("%d pairs; load of the machine %.1f" % (len(got), os.getloadavg()[0]))
    print(
        "messages/s without a page: median %.0f; with %d: %.0f"
        % (statistics.median(w[0] for w, _ in got), pages, statistics.median(w[0] for _, w in got))
    )
    print(
        "throughput with %d pages over that without: median %.3f, mean %.3f +- %.3f (95 %%), %.3f to %.3f"
        % (pages, statistics.median(ratios), mean, half, min(ratios), max(ratios))
    )
    server = [statistics.mean(w[i][1] for w in got) for i in (0, 1)]
    share = [sum(w[i][1] for w in got) / sum(w[i][2] for w in got) for i in (0, 1)]
    print(
        "CPU of the process that serves pages: %.2f %% of a core without, %.2f %% with %d"
        % (100 * server[0], 100 * server[1], pages)
    )
    print(
        "its share of the fleet's CPU: %.2f %% without, %.2f %% with %d; pages cost %.2f %% of the fleet's CPU"
        % (100 * share[0], 100 * share[1], pages, 100 * (share[1] - share[0]))
    )


def make_topic(rig, messages):
    t = scenario.Scenario(rig, "pages")
    t.make_topics(1)
    t.generate(messages, keys=10000, zipf=0)
    return t.topics


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    p.add_argument("build", nargs="?", default="build")
    p.add_argument(
        "--messages", type=int, default=4000000, help="messages in the topic (default: 4,000,000)"
    )
    p.add_argument(
        "--pages", type=int, default=10, help="open pages (default: 10; the server allows 16)"
    )
    p.add_argument(
        "--window", type=float, default=2, metavar="S", help="seconds of a window (default: 2)"
    )
    p.add_argument(
        "--pairs", type=int, default=20, help="maximum number of pairs per run (default: 20)"
    )
    p.add_argument(
        "--runs", type=int, default=4, help="times that the fleet reads the topic (default: 4)"
    )
    p.add_argument("--workers", type=int, default=2, help="workers of the fleet (default: 2)")
    o = p.parse_args()
    rig, got, events = scenario.Rig(o.build), [], 0
    try:
        topics = make_topic(rig, o.messages)
        for i in range(o.runs):
            t = scenario.Scenario(rig, "run-%d" % i)
            t.topics = topics
            try:
                t.start_redis()
                fleet = Fleet(t, o.workers)
                got += pairs(fleet, o.messages, o.pages, o.window, o.pairs)
                events += fleet.events
            finally:
                t.close()
    finally:
        rig.close(keep=False)
    if len(got) < 3:
        sys.exit("only %d pairs: too few messages, take more (--messages)" % len(got))
    report(got, o.pages)
    print("events that each page got per second: %.2f" % (events / len(got) / o.pages / o.window))
    if not events:
        sys.exit("no page got an event")


if __name__ == "__main__":
    main()
