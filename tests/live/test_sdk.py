#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests handlers made with the SDKs on a real Kafka and Redis. Each handler process has many
unanswered messages, and some of the processes end while the test runs.
Usage: test_sdk.py [BUILD [SCENARIO…]]"""

import os
import subprocess
import time

from lib.latchwork import HANDLERS, exec_handler
from lib.scenario import NO_LEASE_ENDS, main, variants

WORK_MS = "5-15"
os.environ["LW_TEST_BOOT_OFFSET_US"] = str(
    (time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.clock_gettime_ns(time.CLOCK_MONOTONIC))
    // 1000
)


def python_handler(t):
    return exec_handler("coroutine.py", processes=2, in_flight=50)


def node_handler(t):
    return dict(
        python_handler(t), command=["node", os.path.abspath(os.path.join(HANDLERS, "sdk.js"))]
    )


def go_handler(t):
    program = os.path.join(t.dir, "sdk_go")
    subprocess.run(
        ["go", "build", "-o", program, "."],
        cwd=os.path.join(HANDLERS, "sdk_go"),
        check=True,
        timeout=300,
        env=dict(os.environ, GOPROXY="off"),
    )
    return dict(python_handler(t), command=[program])


def most_at_once(runs):
    """Returns the largest number of runs that one worker had at the same time."""
    events = sorted(
        (at, step, r.pid)
        for r in runs
        if r.end_us
        for at, step in ((r.start_us, 1), (r.end_us, -1))
    )
    now, most = {}, 0
    for _, step, pid in events:
        now[pid] = now.get(pid, 0) + step
        most = max(most, now[pid])
    return most


def many_at_once(t, handler_of):
    """A process must have many messages in flight, but only one message per key at a time. It must
    get the messages of each key in order. Some messages come back a second later, without an
    attempt: not before, and behind none of their key."""
    t.start_redis()
    t.make_topics()
    for topic in t.topics:
        t.kafka.produce(
            topic,
            [
                (i % 4, b"k-%d" % (i % 300), b'{"do":"later"}' if i % 500 == 7 else b"{}")
                for i in range(1500)
            ],
        )
    # long enough for a busy machine to begin fifty before the first one ends
    status, _ = t.start(
        "--drain", handler=handler_of(t), work_ms="100-200", lock=NO_LEASE_ENDS
    ).wait(120)
    t.same(status, 0, "status of --drain")
    runs, again = t.judge()
    t.same(again, [], "re-runs")
    first = {r.identity: r for r in runs if r.outcome == "retry"}
    t.same(len(first), 3 * len(t.topics), "messages that came back later")
    for r in runs:
        before = first.get(r.identity, r)
        if before is not r:
            t.same(r.attempt, 1, "attempt of %s when it came back" % r.identity)
            t.check(r.start_us - before.end_us >= 1000000, "%r came too early: %r" % (r, before))
    most = most_at_once(runs)
    t.check(50 < most <= 100, "most messages at once in a worker: %d" % most)
    t.figure(most_at_once=most)


def a_process_ends(t, handler_of):
    """Some messages make the handler's process end. The other messages of that process must be
    given back without counting an attempt, and must be done later."""
    t.start_redis()
    t.make_topics()
    topic = t.topics[0]
    t.kafka.produce(
        topic,
        [(i % 4, b"k-%d" % i, b'{"do":"exit"}' if i % 200 == 100 else b"{}") for i in range(1000)],
    )
    status, out = t.start(
        "--drain",
        retry={"max_attempts": 5, "backoff_ms": 10},
        handler=handler_of(t),
        work_ms=WORK_MS,
    ).wait(120)
    t.same(status, 0, "status of --drain")
    t.check(out.startswith("done 1000 dead 0 "), "summary: %r" % out)
    runs, _ = t.judge()
    culprits = {r.identity for r in runs if int(bytes.fromhex(r.key)[2:]) % 200 == 100}
    innocent = {r.identity for r in runs if r.attempt > 1} - culprits
    t.same(sorted(innocent), [], "messages with a counted attempt that did not end a process")


variants(
    many_at_once,
    python_coroutines=python_handler,
    node_promises=node_handler,
    go_routines=go_handler,
)
variants(
    a_process_ends,
    a_process_that_ends=python_handler,
    a_node_process_that_ends=node_handler,
    a_go_process_that_ends=go_handler,
)


if __name__ == "__main__":
    main()
