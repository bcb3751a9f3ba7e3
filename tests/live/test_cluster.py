#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests a Redis Cluster of three masters with one replica each: masters are killed, and slots move.
Usage: test_cluster.py [BUILD [SCENARIO…]]
LW_SOAK=1 causes each fault 20 times."""

import ctypes
import re
import time

from lib.cluster import Cluster, shard_tag, slot_of
from lib.limits import check_limits
from lib.process import boot_us, wait_until
from lib.scenario import ENDLESS, SOAK, main, scenario
from lib.tool import tool

SHARDS = 3
RATE = 250
KILLS = 20 if SOAK > 1 else 2
MOVES = 20 if SOAK > 1 else 3
# The maximum number of seconds after a fault until messages run again: lock.ttl_ms plus ten
# seconds.
BACK_S = 2 + 10
# Limits of the groups of the ten keys that are met most often. Each key is a group, and the others
# have no limits.
LIMIT = {"per_second": 60, "burst": 6, "running": 1}
LIMITED = ["k-%d" % i for i in range(10)]


def start(t, tls=False):
    t.redis = Cluster(t.dir, tls=tls)
    t.servers = [t.redis]
    t.shards = SHARDS
    t.redis.start()
    t.make_topics()
    run = t.start(
        redis=dict(t.redis.settings(t.id), shards=SHARDS),
        group={"from": "message-key"},
        limits={"groups": dict.fromkeys(LIMITED, LIMIT)},
    )
    run.wait_workers(4)
    t.generate(ENDLESS, keys=200, rate=RATE, wait=False)
    wait_until(lambda: t.ends_so_far() > RATE, 60, "load", 0.02)
    return run, sorted(run.workers())


def slot(t, shard):
    return slot_of(shard_tag(t.id, shard, SHARDS))


def owners(t):
    return {shard: t.redis.owner(slot(t, shard)) for shard in range(SHARDS)}


def epoch(t):
    """Returns the id of the epoch of shard 0."""
    owner = t.redis.owner(slot(t, 0))
    keys = owner.call("CLUSTER", "GETKEYSINSLOT", slot(t, 0), 10000)
    return owner.call("HGET", next(key for key in keys if key.endswith(b":epoch")), "id")


def shard_of(key):
    """Returns the shard of a key, computed as in queue/lane.c."""
    xxh = ctypes.CDLL("libxxhash.so.0")
    xxh.XXH3_64bits.restype = ctypes.c_uint64
    return (xxh.XXH3_64bits(key, len(key)) & 0xFFFFFFFF) % SHARDS


def key_of(r):
    return bytes.fromhex(r.key).decode()


def check_home_was_away(t):
    """Checks what ran while shard 0, the home of the limits, had no master: nothing of a group with
    limits, and whatever else was of other shards. The last tokens end within a second, and 2.5 s
    after the kill no new master has given any: it is elected and then has a quarantine. Each
    handler may write its start late."""
    handlers, kill_us = 16, t.redis.killed_us
    runs = [r for r in t.runs() if kill_us + 1e6 < r.start_us]
    limited = [r for r in runs if r.start_us < kill_us + 2.5e6 and key_of(r) in LIMITED]
    t.check(len(limited) <= handlers, "%d limited messages started without home" % len(limited))
    rest = [r for r in runs if key_of(r) not in LIMITED and shard_of(key_of(r).encode())]
    t.check(rest, "nothing ran in other shards while the home was away")
    t.figure(limited_while_home_away=len(limited), rest=len(rest))


def said_of(run, text, begin=0):
    """Returns the shards that occur in log lines with the given text. The search starts at byte
    `begin` of the log."""
    return {int(n) for n in re.findall(r"shard (\d+): [^\n]*" + text, run.log()[begin:])}


def back_at_work(t, shard):
    """Waits until a run of a message of the shard begins. Returns the number of seconds that
    passed."""
    now_us = boot_us()

    def later():
        return next(
            (
                r
                for r in t.runs()
                if r.start_us > now_us and shard_of(bytes.fromhex(r.key)) == shard
            ),
            None,
        )

    return (wait_until(later, BACK_S, "run of shard %d" % shard).start_us - now_us) / 1e6


def finish(t, run, before, pauses, wiped):
    t.same(sorted(run.workers()), before, "workers: none ended because of this")
    t.end_load()
    t.wait_finished(240)
    t.judge_idle()
    run.stop()
    runs, _ = t.judge(wiped=wiped)
    for group in LIMITED:
        check_limits(t, [r for r in runs if key_of(r) == group], LIMIT, group)
    t.figure(longest_pause="%.1f s" % max(pauses))


@scenario
def master_killed(t):
    """The master of a shard is killed by kill -9 under load, several times, each time the master of
    another shard. Only the shards of the killed node may have a quarantine. While shard 0 is away,
    nothing that is limited may start, and the rest must go on."""
    run, before = start(t)
    pauses = []
    for i in range(KILLS):
        begin, where, shard = len(run.log()), owners(t), i % SHARDS
        old = t.redis.kill_owner(slot(t, shard))
        if not shard:
            check_home_was_away(t)
        pauses.append(back_at_work(t, shard))
        hit = {s for s in where if where[s] is old}
        t.same(
            said_of(run, " is lost: ", begin) - hit,
            set(),
            "shards of other nodes that lost their epoch",
        )
        t.redis.restart(old)
    t.figure(kills=KILLS)
    finish(t, run, before, pauses, wiped=True)
    t.check(" is lost: " in run.log(), "no epoch was lost")
    # repeated warnings are counted, not written
    warnings = len(re.findall(r"^\S+ warn ", run.log(), re.M))
    t.check(warnings <= KILLS * 100, "%d warnings for %d failovers" % (warnings, KILLS))
    t.figure(warnings=warnings)


@scenario
def slots_moved(t):
    """The slot of a busy shard is migrated back and forth between two masters. No message may be
    lost, and no two runs of a key may overlap. Each move ends one epoch of this shard, and none of
    the others."""
    run, before = start(t)
    pauses, moved, epochs = [], 0, [epoch(t)]
    for i in range(MOVES):
        now = t.redis.owner(slot(t, 0))
        target = next(m for m in t.redis.masters() if m is not now)
        moved += t.redis.migrate(slot(t, 0), target)
        wait_until(lambda: epoch(t) != epochs[-1], 60, "another epoch after move %d" % (i + 1))
        epochs.append(epoch(t))
        pauses.append(back_at_work(t, 0))
        time.sleep(2)
    t.figure(moves=MOVES, keys=moved)
    t.check(moved > 0, "no key was moved")
    t.same(len(set(epochs)), MOVES + 1, "epochs of shard 0")
    t.same(said_of(run, " is lost: "), {0}, "shards that lost an epoch")
    t.check(run.log().count(" is lost: ") <= MOVES * len(before), "more epochs lost than moves")
    finish(t, run, before, pauses, wiped=True)


@scenario
def over_tls(t):
    """The nodes accept only TLS, even between each other. The workers and commands know two nodes
    from the configuration, and must find the other nodes."""
    after_a_switch(t, tls=True)


@scenario
def commands(t):
    """After a planned failover, commands must find the new master, and `check` must say on which
    node each shard is."""
    after_a_switch(t)


def after_a_switch(t, tls=False):
    run, before = start(t, tls)
    t.redis.switch(slot(t, 0))
    pauses = [back_at_work(t, 0)]
    tool(t, "queue", "ls")
    tool(t, "lock", "ls")
    tool(t, "dead", "ls")
    # The command `check` may fail, because it runs the handler without the environment that start()
    # gives to the handler.
    checked = str(tool(t, "check", "--connect", status=None))
    for shard, node in owners(t).items():
        t.check(
            "shard %d: slot %d, 127.0.0.1:%d" % (shard, slot(t, shard), node.port) in checked,
            "check does not say where shard %d is: %s" % (shard, checked),
        )
    t.same(len(set(owners(t).values())), SHARDS, "masters with shards")
    finish(t, run, before, pauses, wiped=True)


if __name__ == "__main__":
    main()
