#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests faults of Redis: it is wiped, killed, frozen or full, its scripts are deleted, its replies
are lost, or its maxmemory policy evicts keys.
Usage: test_redis.py [BUILD [SCENARIO…]]"""

import re
import signal
import time

from lib.latchwork import exec_handler, readyz
from lib.ports import free_port
from lib.process import alive, boot_us, descendants, send, wait_until
from lib.scenario import ENDLESS, NO_LEASE_ENDS, SOAK, main, scenario
from lib.tool import tool


def under_load(t, messages, rate, keys=200, zipf=0.8, **start):
    """Starts workers and a load that lasts for messages / rate seconds. Returns the workers."""
    t.make_topics()
    run = t.start(**start)
    run.wait_workers(4)
    t.generate(messages, keys=keys, rate=rate, zipf=zipf, wait=False)
    wait_until(lambda: t.ends_so_far() > min(messages // 20, rate), 60, "load", 0.02)
    return run


def finish(t, run, **judge):
    t.wait_finished()
    t.judge_idle()
    run.stop()
    return t.judge(**judge)


def check_same_workers(t, run, before):
    t.same(sorted(run.workers()), before, "workers: none ended because of this")


def back_at_work(t, since_us):
    """O6: waits for the next run after a fault. Returns the number of seconds from the fault to the
    start of the run."""
    return (
        wait_until(
            lambda: next((r for r in t.runs() if r.start_us > since_us), None),
            60,
            "run after the fault",
        ).start_us
        / 1e6
        - since_us / 1e6
    )


def check_refused(t, run, when):
    """Checks that the instance `run` ends by itself, with status 78, and that its log names the
    rejected maxmemory-policy and the fix."""
    status, _ = run.wait(60)
    t.same(status, 78, "exit status, an evicting policy " + when)
    t.check(
        re.search("maxmemory-policy allkeys-lru.*set noeviction", run.log()),
        "no word of the policy and its fix " + when,
    )


@scenario
def flushall_twice(t):
    """Fault 5: all data is deleted, twice. The epoch is lost, the quarantine lasts one TTL, and
    partitions are rewound. No message may be lost, and no two runs of a key may overlap."""
    t.start_redis()
    run = under_load(t, ENDLESS, 700)
    before = sorted(run.workers())
    sampler = t.sample_commits()
    pauses = []
    for _ in range(2 * SOAK):
        t.redis.call("FLUSHALL")
        pauses.append(back_at_work(t, boot_us() + 200000))
        time.sleep(1.5)
    check_same_workers(t, run, before)
    t.end_load()
    finish(t, run, wiped=True, samples=sampler.end())
    t.check(" is lost: " in run.log(), "no epoch was lost")
    t.figure(longest_pause="%.1f s" % max(pauses))


@scenario
def flushall_slow_handlers(t):
    """Fault 5 (all data is deleted) with handlers that run for longer than the quarantine. They
    must be cancelled or finish, but must never run at the same time as another handler of the same
    key."""
    t.start_redis()
    run = under_load(
        t,
        120 * SOAK,
        30,
        keys=24,
        zipf=0,
        work_ms="300-2500",
        lock={"ttl_ms": 1000},
        handler=exec_handler(processes=8),
    )
    for _ in range(3 * SOAK):
        t.redis.call("FLUSHALL")
        time.sleep(2)
    t.wait_finished(240)
    run.stop()
    t.judge(wiped=True)


@scenario
def script_flush(t):
    """Fault 8: the scripts are deleted repeatedly, and the workers load them again. No message of a
    pipeline may be lost or run twice."""
    t.start_redis()
    run = under_load(t, 6000 * SOAK, 900, lock=NO_LEASE_ENDS)
    n = 0
    while t.producing():
        t.redis.call("SCRIPT", "FLUSH", "SYNC")
        n += 1
        time.sleep(0.1)
    _, again = finish(t, run)
    t.same(again, [], "re-runs")
    missed = t.redis.info("errorstats").get("errorstat_NOSCRIPT")
    t.check(missed, "no call met a missing script")
    t.figure(flushes=n, met=(missed or "count=0").split("=")[1])


@scenario
def replies_lost(t):
    """Fault 13: connections are cut repeatedly. Calls whose replies were lost must be sent again,
    and a call that Redis had already executed must change nothing the second time. No lease may
    end meanwhile, also on a slow machine, because that too runs a message again."""
    t.start_redis()
    run = under_load(t, 6000 * SOAK, 700, lock=NO_LEASE_ENDS)
    before = sorted(run.workers())
    n = 0
    while t.producing():
        n += t.redis.call("CLIENT", "KILL", "TYPE", "normal")
        time.sleep(0.3)
    check_same_workers(t, run, before)
    _, again = finish(t, run)
    t.same(again, [], "re-runs")
    t.figure(connections_cut=n)


@scenario
def redis_killed_empty(t):
    """Fault 5: Redis is killed (kill -9) and comes back empty. No worker may end, and no message
    may be lost."""
    t.start_redis()
    run = under_load(t, 6000 * SOAK, 700)
    before = sorted(run.workers())
    sampler = t.sample_commits()
    for _ in range(2):
        t.redis.kill()
        time.sleep(1)
        t.redis.start()
        back = back_at_work(t, boot_us())
    check_same_workers(t, run, before)
    finish(t, run, wiped=True, samples=sampler.end())
    t.figure(last_pause="%.1f s" % back)


@scenario
def redis_killed_everysec(t):
    """Fault 6: Redis with appendfsync everysec is killed (kill -9). Redis comes back with most of
    its data, but the workers must not trust the data."""
    t.start_redis("--appendonly", "yes", "--appendfsync", "everysec")
    run = under_load(t, 6000 * SOAK, 700)
    before = sorted(run.workers())
    for _ in range(2):
        t.redis.kill()
        time.sleep(0.5)
        t.redis.start()
        back_at_work(t, boot_us())
    check_same_workers(t, run, before)
    finish(t, run, wiped=True)
    t.check(" is lost: " in run.log(), "no epoch was lost")


@scenario
def redis_frozen(t):
    """Fault 12: Redis is stopped for longer than the TTL, and some handlers would work for longer
    than their leases. Each handler must be killed before its lease ends, and messages must run
    again when Redis continues."""
    t.start_redis()
    run = under_load(
        t,
        120 * SOAK,
        30,
        keys=24,
        zipf=0,
        work_ms="200-2500",
        lock={"ttl_ms": 1200},
        handler=exec_handler(processes=8),
    )
    before = sorted(run.workers())
    for _ in range(2 * SOAK):
        t.redis.signal(signal.SIGSTOP)
        frozen_us = boot_us()
        time.sleep(3.2)
        # No lease can have been renewed while Redis was stopped.
        late = [r for r in t.runs() if r.last_us > frozen_us + 1300000]
        t.check(not late, "ran on without a lease: %r" % late[:3])
        t.redis.signal(signal.SIGCONT)
        time.sleep(2)
    check_same_workers(t, run, before)
    t.wait_finished(240)
    run.stop()
    t.judge()


@scenario
def maxmemory(t):
    """Fault 9: Redis is full. No new messages may be admitted, and the waiting messages must be
    granted one after the other. When Redis has room again, the workers must continue without a
    restart."""
    t.start_redis("--maxmemory-policy", "noeviction")
    run = under_load(t, 4000 * SOAK, 1500, keys=20, work_ms="5-20", lock=NO_LEASE_ENDS)
    before = sorted(run.workers())

    def waiting():
        return [k for k in t.redis.keys() if k.startswith(t.prefix() + b"wait:")]

    wait_until(waiting, 60, "parked messages")
    t.redis.call("CONFIG", "SET", "maxmemory", int(t.redis.info("memory")["used_memory"]) // 2)
    parked = len(waiting())
    wait_until(lambda: not waiting(), 60, "end of the waiting lists at maxmemory")
    wait_until(lambda: "maxmemory" in run.log(), 60, "word of it in the log")
    time.sleep(1)
    stalled = t.ends_so_far()
    time.sleep(1)
    t.same(t.ends_so_far(), stalled, "ends while Redis is full")
    t.redis.call("CONFIG", "SET", "maxmemory", 0)
    check_same_workers(t, run, before)
    _, again = finish(t, run)
    t.same(again, [], "re-runs")
    t.check(stalled < 4000 * SOAK, "all was done before Redis was full")
    t.figure(lanes_drained=parked, done_when_full=stalled)


@scenario
def refused_starts_no_more(t):
    """A refused worker has jobs in its queue for its four handlers. The worker must start none of
    these jobs, even if it takes long to leave Kafka, because the broker is stopped. Runs take 2 s,
    so that hardly any can start between the end of the worker's loop and the reading of the
    journal."""
    t.start_redis("--maxmemory-policy", "noeviction")
    t.make_topics(1)
    t.kafka.produce(t.topics[0], [(i % 4, b"k%d" % i, b"{}") for i in range(400)])
    run = t.start(workers=1, work_ms="2000-2000")
    wait_until(lambda: t.ends_so_far() >= 4, 60, "load")
    send(t.kafka.pid(), signal.SIGSTOP)
    try:
        t.redis.call("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        wait_until(lambda: "maxmemory-policy allkeys-lru" in run.log(), 60, "the refusal", 0.001)
        before = len(t.runs())
        check_refused(t, run, "in mid run")
        after = len(t.runs()) - before
    finally:
        send(t.kafka.pid(), signal.SIGCONT)
    t.check(after < 4, "runs that began after the refusal: %d" % after)
    t.figure(before=before, after=after)


@scenario
def policy_evicts(t):
    """If an evicting maxmemory-policy is set while `latchwork run` runs, this instance must end
    with status 78, and so must the next instance. After the policy is set back, a new instance must
    handle all remaining messages."""
    t.start_redis("--maxmemory-policy", "noeviction")
    run = under_load(t, 4000 * SOAK, 1000, keys=20, work_ms="5-20")
    family = descendants(run.pid)
    t.redis.call("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    check_refused(t, run, "in mid run")
    wait_until(lambda: not any(alive(p) for p in family), 10, "end of the refused run's processes")
    done = t.ends_so_far()
    t.check(done < 4000 * SOAK, "all was done before the policy was seen")
    check_refused(t, t.start(), "at start")
    t.same(t.ends_so_far(), done, "ends after the refused start")
    t.redis.call("CONFIG", "SET", "maxmemory-policy", "noeviction")
    run = t.start()
    run.wait_workers(4)
    finish(t, run)
    t.figure(done_when_refused=done)


@scenario
def lists_deleted(t):
    """An operator deletes the waiting lists of a paused lane and of busy lanes while workers run.
    The log must report the deletion, the deleted messages must be read from Kafka again, and none
    may be lost. The order within those lanes may be lost."""
    t.start_redis()
    t.make_topics(1)
    run = t.start(work_ms="3-6")
    run.wait_workers(4)
    tool(t, "queue", "pause", "k-1")
    t.generate(4000 * SOAK, keys=8, rate=600, wait=False)
    wait_list = t.prefix() + b"wait:"
    wait_until(lambda: t.redis.call("LLEN", wait_list + b"k-1") >= 50, 60, "a long list")
    deleted, lost_from = {b"k-1"}, t.redis.call("LLEN", wait_list + b"k-1")
    t.same(t.redis.call("DEL", wait_list + b"k-1"), 1, "lists of k-1")
    wait_until(
        lambda: re.search(
            "the waiting list of lane .* has vanished.*read from Kafka again", run.log()
        ),
        30,
        "word of it",
    )
    while t.producing():
        for name in t.redis.keys():
            if (
                name.startswith(wait_list)
                and not name.endswith(b":k-1")
                and t.redis.call("LLEN", name) > 1
                and t.redis.call("DEL", name)
            ):
                deleted.add(name[len(wait_list) :])
        time.sleep(0.2)
    tool(t, "queue", "resume", "k-1")
    t.wait_finished()
    t.check(len(deleted) >= 2, "no busy lane had a list to delete: %r" % deleted)
    run.stop()
    t.judge(unordered={r.identity for r in t.runs() if bytes.fromhex(r.key) in deleted})
    t.figure(
        lanes=len(deleted), waited_in_the_first=lost_from, told=run.log().count("has vanished")
    )


@scenario
def rights_taken(t):
    """The workers' Redis user loses rights under load: to commands, to names of keys, and to log
    in. Each time the workers must stop working, and the log and /readyz must name the missing
    right. When the right is given back, the workers must continue. A script that failed in the
    middle must not have lost a message."""
    port = free_port()
    t.start_redis()
    t.rights_taken = True
    run = under_load(t, ENDLESS, 400, keys=60, http={"listen": "127.0.0.1:%d" % port})
    before = sorted(run.workers())
    sampler = t.sample_commits()
    mine = "~lw:{%s.[0-9]*}:" % t.id

    def acl(*rules):
        t.redis.call("ACL", "SETUSER", t.id, *rules)

    def new_password():
        acl("resetpass", ">another")
        t.redis.call("CLIENT", "KILL", "USER", t.id)

    losses = [
        (
            lambda name=name: acl("-" + name),
            lambda name=name: acl("+" + name),
            "may not run [A-Z or]*" + name.upper(),
        )
        for name in ("lpush", "setrange", "zadd", "evalsha", "time")
    ]
    # Deny the keys whose names begin with wait:, state: or epoch. A pattern of an ACL can exclude
    # only a single character, so deny all names with the same first letter.
    losses += [
        (
            lambda first=first: acl("resetkeys", mine + "[^%s]*" % first),
            lambda: acl("resetkeys", mine + "*"),
            "may not use a key",
        )
        for first in ("w", "s", "e")
    ]
    losses += [
        (lambda: acl("-brpoplpush"), lambda: acl("+brpoplpush"), "brpoplpush"),
        (new_password, lambda: acl(">secret"), "WRONGPASS"),
    ]
    for take, give, said in losses:
        at = len(run.log())
        take()
        wait_until(lambda: re.search(said, run.log()[at:]), 60, "word in the log of " + said)
        wait_until(
            lambda: readyz(port)[0] == 503 and re.search(said, readyz(port)[1]),
            60,
            "word at /readyz of " + said,
        )
        give()
        back_at_work(t, boot_us())
        wait_until(lambda: readyz(port)[0] == 200, 60, "/readyz 200 after " + said)
    check_same_workers(t, run, before)
    t.end_load()
    t.wait_finished()
    # If a script was denied a write in the middle, it left the mark of a message without its
    # envelope, and the message was read from Kafka again. Scripts report the lanes of such messages
    # in the stream `vanished`, whose entries are meant to stay for a while.
    t.redis.call("DEL", "lw:{%s.0}:vanished" % t.id)
    finish(t, run, samples=sampler.end())
    t.figure(rights=len(losses), refused=len(t.redis.refusals()))


if __name__ == "__main__":
    main()
