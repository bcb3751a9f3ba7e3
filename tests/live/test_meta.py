#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests commit metadata: a broker that accepts only little metadata, and two fleets that notice
each other through it.
Usage: test_meta.py [BUILD [SCENARIO…]]"""

import os
import re
import signal
import subprocess
import time

from lib.kafka import Kafka
from lib.process import send, wait_until
from lib.redis import Redis
from lib.scenario import main, scenario

SLOW = b'{"do":"sleep","ms":2500}'


@scenario
def small_metadata(t):
    """If the broker refuses the metadata of a commit, the worker must commit without metadata. The
    group's offset must advance, even after Redis lost its data."""
    t.rig.broker = Kafka(
        t.rig.build, os.path.join(t.rig.dir, "kafka-small"), "offset.metadata.max.bytes=48"
    )
    t.rig.broker.start()
    t.start_redis()
    t.make_topics(1)
    topic = t.topics[0]
    run = t.start()
    run.wait_workers(4)
    config = os.path.join(t.dir, run.label + ".json")
    subprocess.run(
        [os.path.join(t.rig.build, "latchwork"), "queue", "pause", "-c", config, "p"],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    # The first message runs for long. Before it ends, all messages of other keys than p finish, and
    # those of key p wait, because their lane is paused.
    t.kafka.produce(
        topic,
        [(0, b"slow", SLOW)] + [(0, b"p" if i % 2 else b"k-%d" % i, b"{}") for i in range(600)],
    )
    wait_until(lambda: "offset.metadata.max.bytes" in run.log(), 60, "word of the refusal")
    wait_until(
        lambda: t.kafka.committed(t.id, t.topics).get((topic, 0), (0, ""))[0] > 0,
        60,
        "commit without metadata",
    )
    _, metadata = t.kafka.committed(t.id, t.topics)[topic, 0]
    t.check(len(metadata) <= 48, "metadata of %d bytes" % len(metadata))
    t.redis.call("FLUSHALL")  # FLUSHALL also deletes the pause, so the messages of key p run.
    t.wait_finished()
    t.check(run.log().count("offset.metadata.max.bytes") <= 4, "said more than once a worker")
    run.stop()
    t.judge(wiped=True)


@scenario
def two_fleets(t):
    """Two fleets have the same name and group but use two Redis servers. The older fleet must log
    an error and continue, and the younger fleet must be refused within seconds. The worker of the
    younger fleet that reads the group's commits is stopped until the older fleet has logged its
    error. Otherwise the younger fleet might end before the older fleet has seen one of its
    commits."""
    t.rig.broker = Kafka(t.rig.build, os.path.join(t.rig.dir, "kafka-two"))
    t.rig.broker.start()
    t.start_redis()
    other = Redis(os.path.join(t.dir, "redis-other"))
    other.start()
    try:
        t.make_topics(1)
        older = t.start(label="older", workers=2)
        older.wait_workers(2)
        t.generate(60000, keys=50, rate=300, wait=False)
        wait_until(lambda: t.ends_so_far() > 200, 60, "load")
        begun = time.monotonic()
        younger = t.start(label="younger", workers=2, redis={"url": other.url})
        younger.wait_workers(2)
        looker = int(re.search(r"worker 0: started as \S+-(\d+)-", younger.log()).group(1))
        send(looker, signal.SIGSTOP)
        wait_until(lambda: "another fleet of" in older.log(), 60, "word of the older fleet")
        t.check(
            younger.running(),
            "the younger fleet ended while the worker stood still that looks at the group",
        )
        send(looker, signal.SIGCONT)
        status, _ = younger.wait(90)
        t.same(status, 78, "status of the younger fleet")
        t.check("another fleet of" in younger.log(), "the younger fleet did not say why")
        t.check(older.running(), "the older fleet ended")
        t.figure(noticed="%.0f s" % (time.monotonic() - begun))
        for tool in t.tools:
            tool.kill()
        older.stop()
    finally:
        other.stop()


@scenario
def wiped_is_no_rival(t):
    """Redis is wiped while a fleet runs, and again before the fleet is restarted. A wiped Redis
    looks like a different Redis, so the commits that the fleet made earlier may look like those of
    another fleet. The fleet must not take them for commits of another fleet, and must continue."""
    t.start_redis()
    t.make_topics(1)
    run = t.start(workers=2)
    run.wait_workers(2)
    t.generate(9000, keys=50, rate=600, wait=False)
    wait_until(lambda: t.ends_so_far() > 200, 60, "load")
    t.redis.call("FLUSHALL")
    wait_until(lambda: t.ends_so_far() > 2000, 60, "load")
    run.stop()
    t.redis.call("FLUSHALL")
    run = t.start(label="again", workers=2)
    t.wait_finished()
    t.check("another fleet" not in run.log(), "taken for another fleet")
    run.stop()
    t.judge(wiped=True)


if __name__ == "__main__":
    main()
