#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests that Latchwork keeps its promises with Kafka's new group protocol (KIP-848), and which
workers lose partitions with that protocol. The test needs librdkafka 2.15 and Kafka 4, so it is not
part of `make check`. `make live-new-protocol` runs this command:

    LW_KAFKA_VERSION=4.1.1 tests/matrix/librdkafka.sh 2.15.1 \
        tests/live/new_protocol.py build [SCENARIO…]"""

import os
import re
import signal
import time

from lib.kafka import Kafka
from lib.process import wait_until
from lib.scenario import main, scenario

NEW = {"group.protocol": "consumer", "session.timeout.ms": None, "heartbeat.interval.ms": None}
SETTINGS = (
    "group.consumer.min.session.timeout.ms=1000",
    "group.consumer.session.timeout.ms=6000",
    "group.consumer.min.heartbeat.interval.ms=500",
    "group.consumer.heartbeat.interval.ms=1000",
)
MOVES = re.compile(r"worker (\d+): kafka: (\d+) partitions (assigned|revoked|lost)")


def begin(t):
    if not t.rig.broker:
        t.rig.broker = Kafka(t.rig.build, os.path.join(t.rig.dir, "kafka"), *SETTINGS)
        t.rig.broker.start()
    t.start_redis()
    t.make_topics()


def start(t, label, workers=2, properties=(), **kafka):
    return t.start(
        label=label,
        workers=workers,
        log={"level": "debug"},
        kafka=dict(kafka, properties=dict(NEW, **dict(properties))),
    )


def moves(run, since=0):
    return [(int(w), what, int(n)) for w, n, what in MOVES.findall(run.log()[since:]) if int(n)]


def share(run):
    """Returns {worker: number of its partitions}, computed from the log. With the new group
    protocol, the log names only the partitions that a worker gets or loses."""
    n = {}
    for worker, what, count in moves(run):
        n[worker] = n.get(worker, 0) + (count if what == "assigned" else -count)
    return n


@scenario
def fleets_come_and_go(t):
    """Two fleets run under load. Workers are killed, and one fleet is stopped and started. The
    promises must hold, and Kafka must refuse no commit."""
    begin(t)
    one = start(t, "one")
    t.generate(12000, keys=300, rate=400, wait=False)
    wait_until(lambda: sum(share(one).values()) == 8, 60, "share of the first fleet")
    two = start(t, "two")
    wait_until(lambda: sum(share(two).values()) == 4, 60, "share of the second fleet")
    for _ in range(2):
        one.kill_worker(one.workers()[0])
        one.wait_workers(2)
        time.sleep(1)
    two.stop()
    three = start(t, "three")
    t.wait_finished()
    stale = sum(run.log().count("came with an old epoch") for run in (one, two, three))
    t.figure(stale_epochs=stale)
    one.stop()
    three.stop()
    t.judge()


@scenario
def reloaded(t):
    """SIGHUP replaces workers that are static members. Each worker must hand its partitions to its
    own successor, and no other worker may lose a partition."""
    begin(t)
    run = start(t, "run", workers=3, properties={"group.instance.id": "here"}, on_stop="stay")
    t.generate(6000, keys=300, rate=300, wait=False)
    wait_until(lambda: sorted(share(run).values()) == [2, 3, 3], 60, "share of each worker")
    before, mark = share(run), len(run.log())
    run.signal(signal.SIGHUP)
    wait_until(lambda: "reload: done" in run.log(), 120, "end of the reload")
    wait_until(
        lambda: sum(n for _, what, n in moves(run, mark) if what == "assigned") == 8,
        60,
        "share of the successors",
    )
    t.wait_finished()
    wanted = sorted((w, what, n) for w, n in before.items() for what in ("assigned", "revoked"))
    t.same(sorted(moves(run, mark)), wanted, "one revoke and one assignment a worker")
    run.stop()
    t.judge()


@scenario
def killed_with_a_place(t):
    """A static member is killed by kill -9. The group does not give its place to the successor
    before the session has ended. The successor must report the problem, and must work as a dynamic
    member."""
    begin(t)
    run = start(t, "run", workers=2, properties={"group.instance.id": "here"})
    t.generate(3000, keys=300, rate=200, wait=False)
    wait_until(lambda: sum(share(run).values()) == 8, 60, "share of the fleet")
    run.kill_worker(run.workers()[0])
    wait_until(
        lambda: "still has a member here-" in run.log(), 60, "word of the place that is taken"
    )
    wait_until(lambda: "restarts as a dynamic member" in run.log(), 10, "word of what comes")
    t.wait_finished()
    run.stop()
    t.judge()


if __name__ == "__main__":
    main()
