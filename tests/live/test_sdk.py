#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Handlers made with the SDKs, many messages at a time in each process: real Kafka, real Redis, processes that end.
Arguments: build folder [scenario…]."""
from lib.latchwork import exec_handler
from lib.scenario import main, scenario

SETTINGS = {"handler": exec_handler("coroutine.py", processes=2, in_flight=50), "work_ms": "5-15"}


def most_at_once(runs):
    """Returns the largest number of runs that were under way at one moment in one worker."""
    events = sorted((at, step, r.pid) for r in runs if r.end_us for at, step in ((r.start_us, 1), (r.end_us, -1)))
    now, most = {}, 0
    for _, step, pid in events:
        now[pid] = now.get(pid, 0) + step
        most = max(most, now[pid])
    return most


@scenario
def python_coroutines(t):
    """One process of coroutines has many messages in flight; each key has one at a time, in order."""
    t.start_redis()
    t.make_topics()
    for topic in t.topics:
        t.kafka.produce(topic, [(i % 4, b"k-%d" % (i % 300), b"{}") for i in range(3000)])
    status, _ = t.start("--drain", **SETTINGS).wait(120)
    t.same(status, 0, "status of --drain")
    runs, again = t.judge()
    t.same(again, [], "re-runs")
    most = most_at_once(runs)
    t.check(50 < most <= 100, "most messages at once in a worker: %d" % most)
    t.figure(most_at_once=most)


@scenario
def a_process_that_ends(t):
    """A message that ends its process: the others that it had come back without an attempt, and are done."""
    t.start_redis()
    t.make_topics()
    topic = t.topics[0]
    t.kafka.produce(topic, [(i % 4, b"k-%d" % i, b'{"do":"exit"}' if i % 200 == 100 else b"{}") for i in range(1000)])
    status, out = t.start("--drain", retry={"max_attempts": 5, "backoff_ms": 10}, **SETTINGS).wait(120)
    t.same(status, 0, "status of --drain")
    t.check(out.startswith("done 1000 dead 0 "), "summary: %r" % out)
    runs, _ = t.judge()
    charged = {r.identity for r in runs if r.attempt > 1}
    t.check(len(charged) <= 5, "attempts were counted for %d messages" % len(charged))


if __name__ == "__main__":
    main()
