#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests that Latchwork keeps its promises when there are no faults, and that only the first run of
an application's name needs no quarantine. doc/design/faults.md explains oracles such as O1.
Usage: test_lanes.py [BUILD [SCENARIO…]]"""

import re

from lib.process import wait_until
from lib.scenario import NO_LEASE_ENDS, SOAK, main, scenario

SUMMARY = re.compile(
    r"^done (\d+) dead (\d+) dropped (\d+) skipped (\d+) parked (\d+) drained (\d+) retried (\d+)  in [0-9.]+ s  \((\d+) msg/s\)$"
)


@scenario
def no_faults_drain(t):
    """O1, O2, O5: each message must run once, in order, and never at the same time as another
    message of its key. --drain must end with status 0, and the counts of its summary must be
    right."""
    t.start_redis()
    t.make_topics()
    t.generate(12000 * SOAK, keys=300)
    sampler = t.sample_commits()
    status, out = t.start("--drain", lock=NO_LEASE_ENDS).wait(120 * SOAK)
    t.same(status, 0, "status of --drain")
    runs, again = t.judge(samples=sampler.end())
    t.same(again, [], "re-runs")
    t.same(len(runs), 12000 * SOAK, "runs")
    found = SUMMARY.match(out.strip())
    if not found:
        t.check(False, "the summary line is %r" % out)
        return
    done, dead, dropped, skipped, parked, drained, reruns, rate = map(int, found.groups())
    t.same((done, dead, dropped, skipped, reruns), (len(runs), 0, 0, 0, 0), "summary")
    # If Kafka redelivers a waiting message, the message is counted as parked again. Such
    # redeliveries occur while the workers start one after the other.
    t.check(parked >= drained, "drained %d, but parked %d" % (drained, parked))
    t.same(len([r for r in runs if r.attempt != 1]), 0, "attempts beyond the first")
    t.check(drained > 0, "nothing was ever parked: the test does not test much")
    t.figure(parked=parked, drained=drained, per_second=rate)


@scenario
def no_faults_idle(t):
    """O4: when all messages are done, Redis must have no lock, waiting list, lane, hint or count of
    attempts."""
    t.start_redis()
    t.make_topics()
    run = t.start(lock=NO_LEASE_ENDS)
    t.generate(4000 * SOAK, keys=50, rate=1500)
    t.wait_finished()
    t.judge_idle()
    run.stop()
    _, again = t.judge()
    t.same(again, [], "re-runs")
    t.figure(keys_left=len(t.redis.keys()))


@scenario
def first_run(t):
    """If the name of the application has never been used before, the first run must not need a
    quarantine, even if the TTL is long. After Redis was wiped, the next run must have a quarantine,
    because the group's commits show that the name was used."""
    t.start_redis()
    t.make_topics()
    t.generate(400, keys=50)
    run = t.start(lock={"ttl_ms": 600000})
    t.wait_finished()
    t.check("no quarantine" in run.log(), "the log does not say that there was no quarantine")
    t.check("quarantine for" not in run.log(), "the log alarms with a quarantine that there is not")
    run.stop()
    runs, again = t.judge()
    t.same(again, [], "re-runs")
    t.redis.call("FLUSHALL")
    epoch = t.prefix() + b"epoch"
    run = t.start(label="wiped", lock={"ttl_ms": 600000})
    wait_until(
        lambda: t.redis.call("HGET", epoch, "id") and not t.redis.call("HGET", epoch, "first"),
        60,
        "word of the group's commits",
    )
    t.check(
        int(t.redis.call("HGET", epoch, "not_before")) > 0, "the quarantine after a wipe was lifted"
    )
    t.check(
        "no quarantine" not in run.log(), "the log says that there was no quarantine after a wipe"
    )
    run.stop()
    t.figure(runs=len(runs))


if __name__ == "__main__":
    main()
