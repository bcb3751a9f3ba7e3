#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests Redis behind Sentinels: the master is killed, or replaced in a planned failover, with and
without TLS.
Usage: test_sentinel.py [BUILD [SCENARIO…]]
LW_SOAK=1 kills the master 20 times."""

import time

from lib.limits import check_limits
from lib.oracles import under_lease
from lib.process import boot_us, wait_until
from lib.redis import PASSWORD
from lib.scenario import ENDLESS, SOAK, main, scenario
from lib.sentinel import NAME, USER_PASSWORD, Guarded
from lib.tool import tool

RATE = 250
KILLS = 20 if SOAK > 1 else 3
# The maximum number of seconds until messages run again: lock.ttl_ms plus ten seconds.
BACK_S = 2 + 10
# Limits of the fleet and of the group "", in which all messages are. They are above RATE, so they
# hold up what waits after a fault.
FLEET = {"per_second": 600, "burst": 20, "running": 10}
GROUP = {"per_second": 500, "burst": 20, "running": 8}
LIMITED = {"group": {"from": "json:/tenant"}, "limits": dict(FLEET, group=GROUP)}


def start(t, tls=False):
    t.redis = Guarded(t.dir, tls)
    t.servers = [t.redis]
    t.redis.start()
    t.make_topics()
    run = t.start(redis=t.redis.settings(t.id), **LIMITED)
    run.wait_workers(4)
    t.generate(ENDLESS, keys=200, rate=RATE, wait=False)
    wait_until(lambda: t.ends_so_far() > RATE, 60, "load", 0.02)
    return run, sorted(run.workers())


def back_at_work(t, since_us):
    """Waits for the next run after the Sentinels have agreed on a new master. Returns the number of
    seconds from this agreement to the run, and from the fault to the run."""
    named_us = boot_us()

    def later():
        return next((r for r in t.runs() if r.start_us > named_us), None)

    start_us = wait_until(later, BACK_S, "run after the fail-over").start_us
    return (start_us - named_us) / 1e6, (start_us - since_us) / 1e6


def finish(t, run, before, pauses):
    t.same(sorted(run.workers()), before, "workers: none ended because of this")
    t.end_load()
    t.wait_finished(240)
    t.judge_idle()
    run.stop()
    # A replica that becomes the master may lack the last writes of the old master, so judge this
    # scenario as if data were lost.
    runs, _ = t.judge(wiped=True)
    leased = under_lease(runs, t.stops)
    check_limits(t, leased, FLEET, "the fleet")
    check_limits(t, leased, GROUP, "the group")
    ours = max(pause for pause, _ in pauses)
    t.figure(
        longest_pause="%.1f s" % ours,
        with_the_election="%.1f s" % max(pause for _, pause in pauses),
    )


@scenario
def master_killed(t):
    """Fault 7: the master is repeatedly killed (kill -9) under load. No message may be lost, no two
    leases of a key may overlap, no limit may be exceeded, and messages must run again when the
    replica has become the master."""
    run, before = start(t)
    pauses = []
    for _ in range(KILLS):
        killed_us = boot_us()
        old = t.redis.kill_master()
        pauses.append(back_at_work(t, killed_us))
        t.redis.restore(old)
    t.figure(kills=KILLS)
    finish(t, run, before, pauses)
    t.check(" is lost: " in run.log(), "no epoch was lost")


@scenario
def master_switched(t):
    """After SENTINEL FAILOVER, the old master serves its clients for some ten seconds more, before
    it becomes a replica. The workers must leave it at once, and not grant a key that a worker which
    has started since may also run. That worker must not take the others for another fleet. Commands
    must find the new master."""
    run, before = start(t)
    switched_us = boot_us()
    t.redis.switch()
    fresh = t.start(redis=t.redis.settings(t.id), label="fresh", workers=1, **LIMITED)
    pauses = [back_at_work(t, switched_us)]
    t.redis.wait_ready()
    t.check(fresh.running(), "the instance that started after the failover has ended")
    for each in (run, fresh):
        t.check("another fleet" not in each.log(), "%s: taken for another fleet" % each.label)
    fresh.stop()
    tool(t, "queue", "ls")
    tool(t, "lock", "ls")
    # Allow any exit status, because `check` runs the handler without the environment that start()
    # gives to the handler.
    checked = tool(t, "check", "--connect", status=None)
    t.check(
        "1 replica, 3 Sentinels, quorum 2" in str(checked),
        "check says nothing of the Sentinels: %r" % checked,
    )
    check_names_what_a_replica_lacks(t, checked)
    time.sleep(1)
    finish(t, run, before, pauses)


def check_names_what_a_replica_lacks(t, checked):
    """At first, the user has all rights on the replica, and `check` must report no missing right.
    Then the user loses one right, and later the right to log in. `check` must report each loss."""
    t.check(
        "this user" not in str(checked) and "the user" not in str(checked),
        "check misses a right for no reason: %r" % checked,
    )
    replica = next(
        server
        for port, server in t.redis.data.items()
        if port != t.redis.sentinels[0].master_port()
    )
    for rule, said in (
        ("-zadd", "this user may not run ZADD"),
        ("off", "it refuses the user or password"),
    ):
        replica.call("ACL", "SETUSER", t.id, rule)
        check_lines(t, ["a replica of %s" % NAME, said])
    replica.call("ACL", "SETUSER", t.id, "on", "+zadd")


def check_lines(t, wanted):
    """Waits until `check --connect` prints all of the given lines about the Sentinels. Returns its
    output."""

    def said():
        # `check` may fail, because it runs the handler without the environment that start() gives
        # to the handler.
        text = str(tool(t, "check", "--connect", status=None))
        return all(line in text for line in wanted) and text

    return wait_until(said, 60, "word of `check` about the Sentinels: %s" % wanted, 0.5)


@scenario
def tls_and_check(t):
    """All connections to Redis and the Sentinels use TLS, and clients log in to the Sentinels as a
    separate user. The master is killed under load. Afterwards `check --connect` must report each
    cause that would prevent the next failover: a Sentinel that is down, a quorum that is too large,
    and a Sentinel that does not know the master."""
    run, before = start(t, tls=True)
    first = t.redis.sentinels[0]
    text = check_lines(
        t,
        [
            "sentinel 127.0.0.1:%d: master 127.0.0.1:%d, 1 replica, 3 Sentinels, quorum 2"
            % (s.port, first.master_port())
            for s in t.redis.sentinels
        ],
    )
    t.check(
        "nothing could take over" not in text and "it takes the master for down" not in text,
        "check warns for no reason: " + text,
    )
    t.check(USER_PASSWORD not in text and PASSWORD not in text, "check shows a password")
    killed_us = boot_us()
    old = t.redis.kill_master()
    pauses = [back_at_work(t, killed_us)]
    t.redis.restore(old)
    finish(t, run, before, pauses)
    t.check(USER_PASSWORD not in run.log(), "the log shows the password of the Sentinels")
    for s in t.redis.sentinels:
        t.same(s.call("ACL", "LOG"), [], "refusals of a Sentinel")
    _, second, third = t.redis.sentinels
    third.kill()
    second.call("SENTINEL", "SET", NAME, "quorum", "9")
    check_lines(
        t,
        [
            "sentinel 127.0.0.1:%d: Connection refused" % third.port,
            "sentinel 127.0.0.1:%d: its quorum, 9, is more than the Sentinels that it knows (3)"
            % second.port,
        ],
    )
    second.call("SENTINEL", "REMOVE", NAME)
    check_lines(
        t, ["sentinel 127.0.0.1:%d: SENTINEL MASTER %s: ERR No such master" % (second.port, NAME)]
    )


if __name__ == "__main__":
    main()
