#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests faults of Kafka, rebalances, deploys, slow handlers and commit metadata.
Usage: test_kafka.py [BUILD [SCENARIO…]]"""

import random
import signal
import time

from lib.latchwork import exec_handler
from lib.process import Failure, wait_until
from lib.scenario import NO_LEASE_ENDS, SOAK, main, scenario


@scenario
def broker_killed(t):
    """Fault 17: the broker is killed (kill -9) twice under load. Commits must be retried, the
    workers must not hang, and no message may be lost."""
    t.start_redis()
    t.make_topics()
    run = t.start()
    run.wait_workers(4)
    before = sorted(run.workers())
    sampler = t.sample_commits()
    t.generate(7000 * SOAK, keys=200, rate=700, wait=False)
    for _ in range(2):
        time.sleep(2)
        t.kafka.kill()
        time.sleep(1)
        t.kafka.start()
    t.wait_finished()
    t.judge_idle()
    t.same(sorted(run.workers()), before, "workers: none ended because of this")
    run.stop()
    t.judge(samples=sampler.end())


@scenario
def rebalances(t):
    """Faults 18 and 19: a second member of the group repeatedly joins and leaves. Each time,
    partitions must be drained, committed and handed over. Hardly any message may run again, and
    none may be lost."""
    t.start_redis()
    t.make_topics()
    run = t.start(workers=3, lock=NO_LEASE_ENDS)
    run.wait_workers(3)
    sampler = t.sample_commits()
    t.generate(8000 * SOAK, keys=200, rate=700, wait=False)
    n = 0
    while t.producing():
        other = t.start(label="other-%d" % n, workers=1, lock=NO_LEASE_ENDS)
        other.wait_workers(1)
        mine = other.workers()
        time.sleep(random.uniform(0.5, 1.5))
        # On a loaded machine, joining may take longer than this sleep. So every second time the
        # member stays until it has run a message.
        if n % 2 == 0:
            wait_until(
                lambda: not t.producing() or any(r.pid in mine for r in t.runs()),
                60,
                "work for %s" % other.label,
            )
        other.stop()
        n += 1
    t.wait_finished()
    t.judge_idle()
    run.stop()
    runs, again = t.judge(samples=sampler.end())
    members = {r.pid for r in runs}
    t.figure(
        joins=n,
        workers_that_ran=len(members),
        reruns_percent="%.3f" % (100 * len(again) / len(runs)),
    )
    t.check(
        n >= 2 and len(members) >= 3 + (n - 1) // 2,
        "the other members hardly ran: %d of them" % (len(members) - 3),
    )
    t.check(len(again) * 1000 <= len(runs), "re-runs above 0.1 %%: %d" % len(again))


@scenario
def revoke_with_backlog(t):
    """A rebalance must wait for handlers that have started, but not for messages that wait in
    Redis. In this scenario thousands of messages of a few keys wait in Redis, and shutdown.grace_ms
    gives running handlers a long time to end."""
    t.start_redis()
    t.make_topics(1)
    over = dict(
        kafka={"properties": {"session.timeout.ms": "10000"}},
        shutdown={"grace_ms": 90000},
        lock=NO_LEASE_ENDS,
        handler=exec_handler(processes=2),
    )
    run = t.start(workers=2, work_ms="20-30", **over)
    run.wait_workers(2)
    t.generate(2400, keys=6)
    wait_until(lambda: t.ends_so_far() > 100, 60, "load")
    time.sleep(2)  # During the sleep, the remaining messages are parked.
    begun = time.monotonic()
    other = t.start(label="other", workers=1, work_ms="0-1", log={"level": "debug"}, **over)
    wait_until(
        lambda: "partitions assigned" in other.log(),
        60,
        "the new member's assignment: a rebalance waits for a backlog",
    )
    t.figure(assigned_after="%.1f s" % (time.monotonic() - begun))
    t.check(t.ends_so_far() < 2200, "no backlog was left when the partitions moved")
    t.wait_finished(240)
    run.stop(100)
    other.stop(100)
    runs, again = t.judge()
    t.same(again, [], "re-runs")


@scenario
def partitions_added(t):
    """With auto.offset.reset latest, partitions are added to a topic while workers run, and records
    are written to them at once, before any worker has noticed them. These records must be handled,
    while those that were there before the first start are not."""
    t.start_redis()
    t.make_topics(1)
    topic = t.topics[0]
    t.kafka.produce(topic, [(p, b"old-%d" % p, b"{}") for p in range(4)])
    run = t.start(
        kafka={
            "properties": {
                "auto.offset.reset": "latest",
                "topic.metadata.refresh.interval.ms": "2000",
            }
        }
    )
    run.wait_workers(4)

    def committed():
        try:
            return sum(at >= 0 for at, _ in t.kafka.committed(t.id, t.topics).values()) == 4
        except Failure:  # the group has no coordinator yet
            return False

    # Each partition gets a commit where reading begins.
    wait_until(committed, 60, "a commit for each partition")
    t.kafka.tool("partitions", topic, "8")

    def written():
        try:
            t.kafka.produce(topic, [(p, b"new-%d" % p, b"{}") for p in range(4, 8)])
        except Failure:
            return False
        return True

    wait_until(written, 30, "records in the new partitions")
    wait_until(lambda: len({r.key for r in t.runs()}) >= 4, 60, "runs of the new partitions")
    keys = {bytes.fromhex(r.key) for r in t.runs()}
    t.same(keys, {b"new-%d" % p for p in range(4, 8)}, "keys that ran")
    run.stop()


@scenario
def deploy(t):
    """Fault 36: all workers get SIGTERM under load, three times. They must finish their handlers
    within 20 s and end with status 0. No attempt may be counted, and no message may be lost or run
    again."""
    t.start_redis()
    t.make_topics()
    t.generate(6000 * SOAK, keys=100)
    seen = 0
    for _ in range(3):
        run = t.start(work_ms="5-40", lock=NO_LEASE_ENDS)
        wait_until(lambda: t.ends_so_far() > seen + 300, 60, "load")
        run.stop(20)
        seen = t.ends_so_far()
        locks = [key for key in t.redis.keys() if key.startswith(t.prefix() + b"lock:")]
        t.same(locks, [], "leases of workers that have ended")
    t.check(seen < 6000 * SOAK, "all was done before the last SIGTERM")
    status, _ = t.start("--drain", work_ms="0-2", lock=NO_LEASE_ENDS).wait(120)
    t.same(status, 0, "status of --drain")
    runs, again = t.judge()
    t.same(again, [], "re-runs")
    t.same([r for r in runs if r.attempt != 1], [], "burnt attempts")
    t.same([r for r in runs if r.outcome != "done"], [], "runs that were not finished")


@scenario
def reload(t):
    """SIGHUP under load must replace one worker after the other. No message may be lost or run
    again."""
    t.start_redis()
    t.make_topics()
    run = t.start(lock=NO_LEASE_ENDS)
    run.wait_workers(4)
    before = set(run.workers())
    t.generate(6000 * SOAK, keys=100, rate=800, wait=False)
    wait_until(lambda: t.ends_so_far() > 300, 60, "load")
    run.signal(signal.SIGHUP)
    wait_until(lambda: "reload: done" in run.log(), 60, "end of the reload")
    run.wait_workers(4)
    t.check(not before & set(run.workers()), "a worker was not replaced")
    t.wait_finished()
    run.stop()
    _, again = t.judge()
    t.same(again, [], "re-runs")


@scenario
def slow_handler(t):
    """Fault 20: handlers take longer than max.poll.interval.ms. The workers must continue to poll,
    so that none is removed from the group and no message runs again."""
    t.start_redis()
    t.make_topics()
    run = t.start(
        kafka={"properties": {"max.poll.interval.ms": "6000", "session.timeout.ms": "6000"}},
        handler=exec_handler(timeout_ms=30000),
        lock=NO_LEASE_ENDS,
    )
    run.wait_workers(4)
    slow = b'{"do":"sleep","ms":9000}'
    for topic in t.topics:
        t.kafka.produce(topic, [(p, b"slow-%d" % p, slow) for p in range(4)])
        t.kafka.produce(topic, [(i % 4, b"k-%d" % (i % 50), b"{}") for i in range(500)])
    t.wait_finished()
    log = run.log()
    run.stop()
    runs, again = t.judge()
    t.same(again, [], "re-runs")
    t.check("polled too late" not in log, "a worker was thrown out of the group")
    t.figure(longest_run="%.1f s" % (max(r.end_us - r.start_us for r in runs) / 1e6))


@scenario
def foreign_metadata(t):
    """Fault 25: if commit metadata is corrupt or was written by another program, the worker must
    not treat any message as done because of this metadata."""
    t.start_redis()
    t.make_topics()
    t.generate(800, keys=50)
    status, _ = t.start("--drain", lock=NO_LEASE_ENDS).wait(60)
    t.same(status, 0, "status of --drain")
    wait_until(lambda: not any_members(t), 20, "end of the group's members")
    garbage = [
        "what is this",
        "lw1:AAAA:00000000",
        "lw2:AQE:12345678",
        "lw1:" + "A" * 4000 + ":89abcdef",
        "x" * 4096,
        "{}",
        "lw3:",
        "lw3:@1,2,",
        "\u00e9\u2713",
    ]
    committed = t.kafka.committed(t.id, t.topics)
    for text, ((topic, partition), (offset, _)) in zip(garbage, sorted(committed.items())):
        t.kafka.tool("set-offsets", t.id, topic, partition, offset, text)
    t.generate(800, keys=50)
    status, _ = t.start("--drain", lock=NO_LEASE_ENDS).wait(60)
    t.same(status, 0, "status of --drain")
    runs, again = t.judge()
    t.same(again, [], "re-runs")


def made_anew(t, topic, old, new, late):
    """Starts `latchwork run` and produces `old` records to a topic. When all of these records are
    done (if `late` is true, when half of them are done), deletes the topic, creates it again and
    produces `new` records. The running instance must end as refused. An instance that is started
    afterwards must also end as refused, because a restart must not hide the fault."""
    t.topics = [topic]
    t.kafka.create(topic, 1)
    before = t.ends_so_far()
    run = t.start(label="%s-1" % topic, workers=1, work_ms="15-20" if late else "0-2")
    run.wait_workers(1)
    t.kafka.produce(topic, [(0, b"k-%d" % (i % 20), b"{}") for i in range(old)])
    wait_until(
        lambda: t.ends_so_far() >= before + (old // 2 if late else old), 60, "the old records"
    )
    if not late:
        wait_until(
            lambda: t.kafka.committed(t.id, [topic])[topic, 0][0] == old,
            30,
            "the commit of the old records",
        )
    t.kafka.tool("delete", topic)

    def made():
        try:
            t.kafka.create(topic, 1)
            return True
        except Failure:
            return False

    wait_until(made, 30, "the new topic")
    t.kafka.produce(topic, [(0, b"k-%d" % (i % 20), b'{"new":1}') for i in range(new)])
    status, _ = run.wait(90)
    t.same(status, 78, "%s: exit status" % topic)
    t.check("recreated" in run.log(), "%s: the reason: %s" % (topic, run.log()[-600:]))
    again = t.start(label="%s-2" % topic, workers=1)
    status, _ = again.wait(90)
    t.same(status, 78, "%s: exit status of the next run" % topic)
    t.check("recreated" in again.log(), "%s: the reason, again: %s" % (topic, again.log()[-600:]))


@scenario
def topic_made_anew(t):
    """Fault 22: a topic is deleted and recreated while a worker runs. The new topic has more
    records than the old one, as many, or fewer. The worker must never skip records without
    reporting it."""
    t.start_redis()
    for old, new, late in (
        (100, 150, False),
        (30, 400, False),
        (60, 60, False),
        (200, 80, False),
        (150, 400, True),
    ):
        made_anew(t, "%s-%d-%d%s" % (t.id, old, new, "-late" if late else ""), old, new, late)


def any_members(t):
    """Returns True if the group has members. While the group has members, Kafka refuses offsets
    that a program outside the group commits."""
    topic, partition = t.topics[0], 0
    offset = t.kafka.committed(t.id, t.topics)[topic, partition][0]
    try:
        t.kafka.tool("set-offsets", t.id, topic, partition, offset)
        return False
    except Failure:
        return True


if __name__ == "__main__":
    main()
