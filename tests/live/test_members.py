#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests deaths and restarts of members of the consumer group, with heartbeat.interval.ms at its
default. Only the partitions of the dead worker may be affected.
Usage: test_members.py [BUILD [SCENARIO…]]

The log shows whether the other workers are affected: none of them may have a partition revoked or
assigned. A time only distinguishes two cases: partitions that come back at once, and partitions
that wait for session.timeout.ms. That is 60 s here, so that also a busy machine is far from it, and
the default in the one scenario that waits for it."""

import os
import re
import signal
import subprocess
import time

from lib.process import boot_us, wait_until
from lib.scenario import NO_LEASE_ENDS, main, scenario

# The time limit, in seconds, for partitions that come back at once. It is far less than the session
# timeout, and far more than is usually needed.
AT_ONCE_S = 40
SESSIONS = {"session.timeout.ms": "60000", "heartbeat.interval.ms": None}
REBALANCE = re.compile(r"worker (\d+): kafka: (\d+) partitions (assigned|revoked|lost)")


def begin(t, *options, label=None, workers=4, properties=(), **over):
    kafka = dict({"properties": dict(SESSIONS, **dict(properties))}, **over.pop("kafka", {}))
    return t.start(
        *options, label=label, workers=workers, kafka=kafka, log={"level": "debug"}, **over
    )


def load(t, rate=200, seconds=1200):
    """Produces messages of many keys, so that hardly any message waits for the lease of a dead
    worker."""
    t.generate(
        rate * seconds, keys=rate * seconds, rate=rate, zipf=0, partitioner="roundrobin", wait=False
    )


def rebalances(run, since=0):
    return [(int(w), what, int(n)) for w, n, what in REBALANCE.findall(run.log()[since:])]


def owned(run):
    """Returns {worker: number of its partitions}, read from the log."""
    n = {}
    for worker, what, count in rebalances(run):
        n[worker] = count if what == "assigned" else 0
    return n


def settled(t, runs, partitions=8):
    """Waits until each worker has its share of the partitions, and messages of every partition
    run."""
    wait_until(
        lambda: (
            sum(sum(owned(r).values()) for r in runs) == partitions
            and all(len(owned(r)) == r.settings["workers"] and all(owned(r).values()) for r in runs)
        ),
        90,
        "share for every worker",
    )
    working(t)


def working(t, since_us=None, limit_s=60, partitions=8, without=()):
    """Waits until a message of each partition has begun to run after `since_us`. Runs of the
    workers in `without` do not count. Returns the number of seconds from `since_us` until the last
    partition had such a run."""
    since_us = since_us or boot_us()

    def first():
        seen = {}
        for r in t.runs():
            if r.start_us > since_us and r.pid not in without:
                seen.setdefault(r.partition, r.start_us)
        return seen if len(seen) == partitions else None

    return (
        max(wait_until(first, limit_s, "work on every partition", 0.3).values()) - since_us
    ) / 1e6


def longest_gap(t, partitions, since_us, until_us):
    """Returns the longest time, in seconds, during which any one of the given partitions began no
    run."""
    longest = 0
    for p in partitions:
        times = (
            [since_us]
            + sorted(
                r.start_us
                for r in t.runs()
                if r.partition == p and since_us < r.start_us < until_us
            )
            + [until_us]
        )
        longest = max([longest] + [b - a for a, b in zip(times, times[1:])])
    return longest / 1e6


def partitions_of(t, pids):
    """Returns the partitions of which the given workers ran more messages in the last two seconds
    than all other workers together. A single run proves nothing, because a parked message may run
    on any worker."""
    balance, since_us = {}, boot_us() - 2000000
    for r in t.runs():
        if r.start_us > since_us:
            balance[r.partition] = balance.get(r.partition, 0) + (1 if r.pid in pids else -1)
    return {p for p, n in balance.items() if n > 0}


def end(t, *runs):
    for tool in t.tools:
        tool.kill()
        tool.wait(10)
    t.tools = []
    t.wait_finished()
    for run in runs:
        run.stop()
    return t.judge()


def plugin(t):
    out = os.path.join(t.dir, "plugin")
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
    environment = {
        k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")
    }
    subprocess.run(
        [
            "make",
            "-s",
            "-C",
            os.path.join(root, "tests/plugins/crash"),
            "OUT=" + out,
            "CPPFLAGS=-I" + os.path.abspath(os.path.join(root, "include")),
        ],
        check=True,
        env=environment,
        timeout=120,
    )
    return {"type": "plugin", "path": os.path.join(out, "crash.so"), "threads": 4}


def index_of(run, pid):
    return int(re.search(r"worker (\d+): started as \S+-%d-" % pid, run.log()).group(1))


@scenario
def worker_killed(t):
    """One worker of four is killed by kill -9. The other workers must not be affected, and messages
    of the killed worker's partitions must run again long before the session timeout."""
    t.start_redis()
    t.make_topics()
    run = begin(t)
    load(t)
    settled(t, [run])
    for _ in range(2):
        victim = run.workers()[0]
        index, mine = index_of(run, victim), partitions_of(t, {victim})
        others = {"%s/%d" % (topic, p) for topic in t.topics for p in range(4)} - mine
        mark, at = len(run.log()), boot_us()
        run.kill_worker(victim)
        back = working(t, at, without={victim})
        # The sleep is longer than a heartbeat interval, so a rebalance would have reached the other
        # workers.
        time.sleep(4)
        t.same(
            sorted({w for w, _, _ in rebalances(run, mark)}),
            [index],
            "workers that saw a rebalance",
        )
        t.check(back < AT_ONCE_S, "the dead worker's share was back after %.1f s" % back)
        gap = longest_gap(t, others, at, boot_us())
        t.check(gap < AT_ONCE_S, "another worker's partition stood still for %.1f s" % gap)
        t.figure(share_back_s="%.1f" % back, others_longest_gap_s="%.1f" % gap)
    end(t, run)


@scenario
def plugin_crashed(t):
    """A handler crashes its worker. As after a kill, the other workers must not be affected."""
    t.start_redis()
    t.make_topics()
    run = begin(t, handler=plugin(t))
    load(t)
    settled(t, [run])
    before, mark = set(run.workers()), len(run.log())
    t.kafka.produce(t.topics[0], [(1, b"poison", b"once:segv")])
    wait_until(lambda: "started again in" in run.log()[mark:], 30, "crash")
    at = boot_us()
    back = working(t, at, without=before - set(run.workers()))
    time.sleep(4)
    died = sorted({int(w) for w in re.findall(r"worker (\d+) died of signal", run.log()[mark:])})
    t.same(
        sorted({w for w, _, _ in rebalances(run, mark)}),
        died,
        "workers that saw a rebalance, beside those that died",
    )
    t.check(len(died) < 4, "every worker died")
    t.check(back < AT_ONCE_S, "the dead worker's share was back after %.1f s" % back)
    t.figure(share_back_s="%.1f" % back)
    end(t, run)


@scenario
def reloaded(t):
    """At SIGHUP, each worker must give its partitions to its own successor, and no other worker may
    have a partition revoked."""
    t.start_redis()
    t.make_topics()
    run = begin(t)
    load(t)
    settled(t, [run])
    before, mark, at = owned(run), len(run.log()), boot_us()
    run.signal(signal.SIGHUP)
    wait_until(lambda: "reload: done" in run.log(), 120, "end of the reload")
    gap = longest_gap(
        t, {"%s/%d" % (topic, p) for topic in t.topics for p in range(4)}, at, boot_us()
    )
    working(t)
    time.sleep(4)
    seen = rebalances(run, mark)
    t.same(
        sorted((w, what, n) for w, what, n in seen),
        sorted((w, what, n) for w, n in before.items() for what in ("assigned", "revoked")),
        "one revoke and one assignment a worker",
    )
    t.check(gap < AT_ONCE_S, "a partition stood still for %.1f s" % gap)
    t.figure(longest_gap_s="%.1f" % gap)
    end(t, run)


@scenario
def own_ids(t):
    """With group.instance.id in kafka.properties, each worker of each fleet must get an id made
    from this setting, and a rolling restart of both fleets must move no partition."""
    t.start_redis()
    t.make_topics()
    fleets = [
        begin(t, label=name, workers=2, properties={"group.instance.id": name}, lock=NO_LEASE_ENDS)
        for name in ("here", "there")
    ]
    load(t)
    settled(t, fleets)
    t.same(
        sorted(
            set(
                re.findall(
                    r"group.instance.id (\S+-\d+)-[0-9a-f]{8}", "".join(run.log() for run in fleets)
                )
            )
        ),
        ["here-0", "here-1", "there-0", "there-1"],
        "ids",
    )
    before, marks = [owned(run) for run in fleets], [len(run.log()) for run in fleets]
    for run in fleets:
        run.signal(signal.SIGHUP)
        wait_until(lambda: "reload: done" in run.log(), 120, "end of the reload")
    working(t)
    time.sleep(4)
    for run, was, mark in zip(fleets, before, marks):
        t.same(
            sorted(rebalances(run, mark)),
            sorted((w, what, n) for w, n in was.items() for what in ("assigned", "revoked")),
            "one revoke and one assignment a worker of " + run.label,
        )
    _, reruns = end(t, *fleets)
    t.same(reruns, [], "re-runs")


@scenario
def supervisor_gone(t):
    """One of two supervisors is killed. If it never comes back, messages of its partitions wait
    until session.timeout.ms has passed, and messages of the other supervisor's partitions may wait
    only during the rebalance that follows. If the killed supervisor comes back in time, it must get
    its partitions back at once, and the other supervisor must not be affected."""
    t.start_redis()
    t.make_topics()
    default = {"session.timeout.ms": None}
    stays, dies = (
        begin(t, label=label, workers=2, properties=default) for label in ("stays", "dies")
    )
    load(t)
    settled(t, [stays, dies])
    lost = set(dies.workers())
    mark, at = len(stays.log()), boot_us()
    dies.destroy()
    again = begin(t, label="again", workers=2, properties=default)
    back = working(t, at, without=lost)
    t.same(rebalances(stays, mark), [], "rebalances at the other supervisor")
    time.sleep(2)
    kept, lost, at = partitions_of(t, set(stays.workers())), set(again.workers()), boot_us()
    again.destroy()
    gone = working(t, at, 90, without=lost)
    gap = longest_gap(t, kept, at, boot_us())
    t.check(
        gap < gone,
        "partitions of the other supervisor stood still for %.1f s, the dead one's for %.1f s"
        % (gap, gone),
    )
    t.figure(restarted_s="%.1f" % back, gone_s="%.1f" % gone, others_longest_gap_s="%.1f" % gap)
    end(t, stays)


@scenario
def supervisor_stopped(t):
    """After SIGTERM, the partitions of a supervisor must go to the other supervisor at once. With
    kafka.on_stop "stay", the partitions must instead wait until their supervisor is started again,
    and the other supervisor must not be affected."""
    t.start_redis()
    t.make_topics()
    stays, stops = (
        begin(t, label="stays", workers=2, lock=NO_LEASE_ENDS),
        begin(t, label="stops", workers=2, lock=NO_LEASE_ENDS, kafka={"on_stop": "stay"}),
    )
    load(t)
    settled(t, [stays, stops])
    mark = len(stays.log())
    stops.stop()
    at = boot_us()
    again = begin(t, label="again", workers=2, lock=NO_LEASE_ENDS)
    back = working(t, at)
    t.same(rebalances(stays, mark), [], "rebalances at the other supervisor")
    again.stop()
    left = working(t, boot_us(), 90)
    t.check(left < AT_ONCE_S, "the share of the stopped supervisor stood still for %.1f s" % left)
    t.figure(restarted_s="%.1f" % back, left_s="%.1f" % left)
    _, reruns = end(t, stays)
    t.same(reruns, [], "re-runs")


@scenario
def same_id(t):
    """Two supervisors have the same group.instance.id. The first must lose its place, report the
    loss, and continue as a dynamic member. The two must not repeatedly take the place from each
    other."""
    t.start_redis()
    t.make_topics()
    one = begin(t, label="one", workers=1, properties={"group.instance.id": "the-same"})
    load(t)
    settled(t, [one])
    two = begin(t, label="two", workers=1, properties={"group.instance.id": "the-same"})
    wait_until(lambda: "which is this worker's id" in one.log(), 60, "word of the loss of the id")
    wait_until(lambda: owned(one).get(0) == 4 and owned(two).get(0) == 4, 90, "share for both")
    time.sleep(5)
    t.same(
        (one.log() + two.log()).count("which is this worker's id"),
        1,
        "how often a worker was thrown out",
    )
    end(t, one, two)


@scenario
def stopped_in_a_rebalance(t):
    """`latchwork run` gets SIGTERM at various moments of a rebalance. It must end with status 0,
    and must never call a Kafka handle that is closing."""
    t.start_redis()
    t.make_topics()
    base = begin(t, label="base", workers=1, lock=NO_LEASE_ENDS)
    load(t)
    settled(t, [base])
    for i in range(6):
        run = begin(t, label="run-%d" % i, workers=2, lock=NO_LEASE_ENDS)
        run.wait_workers(2)
        # The new workers join the group, and the first worker learns of the rebalance from a
        # heartbeat within 3 s. Sleeps of different lengths reach different moments of the
        # rebalance.
        time.sleep(0.4 * i)
        run.stop()
        for bad in ("can't ask", "does not tell", "Local: Broker handle destroyed"):
            t.check(bad not in run.log(), "run %d: %s" % (i, bad))
    _, reruns = end(t, base)
    t.same(reruns, [], "re-runs")


@scenario
def drain_beside_others(t):
    """`latchwork run --drain` must end although another supervisor of the same application keeps
    running. In the first case the other supervisor handles messages. In the second case the other
    supervisor is idle and owns every partition."""
    t.start_redis()
    t.make_topics()
    base = begin(t, label="base", workers=8)
    t.generate(4000, keys=200, wait=True)
    for label in ("busy", "idle"):
        status, _ = begin(t, "--drain", label=label, workers=1).wait(90)
        t.same(status, 0, "status of --drain beside a fleet that is " + label)
        committed = t.kafka.committed(t.id, t.topics)
        late = [tp for tp, (low, high) in t.kafka.ends(t.topics).items() if committed[tp][0] < high]
        t.same(late, [], "partitions that were not drained")
        t.wait_finished()
    base.stop()
    t.judge()


if __name__ == "__main__":
    main()
