#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks how far the summary in the log may be from the outcomes that Redis recorded if workers
die, and that `ledger` knows better.
Usage: test_counts.py [BUILD [SCENARIO…]]"""

import re
import signal
import time

from lib.latchwork import crash_plugin, exec_handler
from lib.process import wait_until
from lib.scenario import ENDLESS, main, scenario
from lib.tool import tool

# the most outcomes that a worker of these tests has sent to Redis and not heard of when it dies
UNSETTLED = 16

WHAT = (b"retry", b"dead", b"nothing")  # what a message asks of its handler


def counts(run):
    """Returns {outcome: count} of the last summary in the log."""
    lines = re.findall(r"supervisor: done (\d+) dead (\d+) dropped (\d+) skipped (\d+)", run.log())
    return dict(zip(("done", "dead", "dropped", "skipped"), map(int, lines[-1]))) if lines else {}


@scenario
def settles_that_nobody_heard_of(t):
    """While Redis is stopped, the workers send outcomes and are killed. Redis then continues and
    records the outcomes. The summary may be short by these outcomes, and by no more. The ledger
    must find no difference."""
    t.start_redis()
    t.make_topics()
    run = t.start(workers=2, handler=exec_handler(processes=8), work_ms="1-3")
    run.wait_workers(2)
    t.generate(ENDLESS, keys=400, rate=300, wait=False)
    deaths = unheard = 0
    for _ in range(6):
        before = t.ends_so_far()
        wait_until(lambda: t.ends_so_far() > before + 50, 60, "load")
        before = t.ends_so_far()
        t.redis.signal(signal.SIGSTOP)
        # Handlers end during the sleep. The calls that report their outcomes wait in the sockets of
        # Redis, which does not read them.
        time.sleep(0.3)
        for pid in run.workers():
            run.kill_worker(pid)
            deaths += 1
        # Nobody has heard of what ended since Redis stopped, nor of what was under way then.
        unheard += t.ends_so_far() - before + 2 * UNSETTLED
        t.redis.signal(signal.SIGCONT)
        run.wait_workers(2)
    t.end_load()
    n = sum(high - low for low, high in t.wait_finished().values())
    run.stop()
    t.judge()
    t.figure(deaths=deaths, **counts(run))
    found = counts(run)
    t.same(dict(found, done=0), {"done": 0, "dead": 0, "dropped": 0, "skipped": 0}, "the summary")
    t.check(
        n - unheard <= found["done"] <= n,
        "done in the summary: %d of %d, and %d may be missing" % (found["done"], n, unheard),
    )
    rows = tool(t, "ledger")
    t.check(rows[-1]["ok"], "ledger: %r" % rows)


@scenario
def plugin_crashes(t):
    """A plugin crashes its worker repeatedly. Only outcomes that a worker had sent to Redis and not
    heard of when it died may be uncounted."""
    t.start_redis()
    t.make_topics(1)
    bodies = [b"segv" if i % 40 == 7 else b"{}" for i in range(200)]
    t.kafka.produce(t.topics[0], [(i % 4, b"k%d" % i, body) for i, body in enumerate(bodies)])
    run = t.start(
        workers=2,
        handler=crash_plugin(t),
        retry={"max_attempts": 2, "backoff_ms": 20},
        lock={"ttl_ms": 1500},
    )
    t.wait_finished(120)
    run.stop()
    dead = bodies.count(b"segv")
    t.figure(workers_replaced=run.log().count("started again in"), **counts(run))
    found, deaths = counts(run), run.log().count("started again in")
    t.same((found["dropped"], found["skipped"]), (0, 0), "dropped and skipped in the summary")
    t.check(found["dead"] <= dead, "dead in the summary: %d, not %d" % (found["dead"], dead))
    # one thread of each worker crashes it, so three others may have an outcome under way
    n = found["done"] + found["dead"]
    t.check(
        len(bodies) - 2 * 3 * deaths <= n <= len(bodies),
        "done and dead in the summary: %d of %d after %d deaths" % (n, len(bodies), deaths),
    )


@scenario
def what_waits_adds_up(t):
    """Messages of busy keys wait, and messages of all keys fail once or twice before they end. One
    worker serves everything, so Kafka delivers nothing again: as many messages must leave the
    waiting lists as went in, however often each was tried."""
    t.start_redis()
    t.make_topics(1)
    n = 600
    t.kafka.produce(
        t.topics[0],
        [
            (i % 4, b"k%d" % (i % 40), b'{"do":"%s","times":%d}' % (WHAT[i % 3], 1 + i % 2))
            for i in range(n)
        ],
    )
    run = t.start(
        workers=1,
        handler=exec_handler(processes=8),
        work_ms="1-3",
        retry={"max_attempts": 5, "backoff_ms": 20},
    )
    t.wait_finished(120)
    run.stop()
    runs = t.runs()
    failed = len([r for r in runs if r.outcome == "retry"])
    line = re.findall(
        r"supervisor: done (\d+) dead (\d+) dropped 0 skipped 0 parked (\d+) drained (\d+) retried (\d+)",
        run.log(),
    )[-1]
    done, dead, parked, drained, retried = map(int, line)
    t.figure(parked=parked, drained=drained, retried=retried)
    t.same((done + dead, retried), (n, failed), "ended, and retried")
    t.same(drained, parked, "drained and parked")
    t.check(failed >= n // 3, "too few attempts failed: %d" % failed)


if __name__ == "__main__":
    main()
