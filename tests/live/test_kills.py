#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests workers that die (kill -9), or that are stopped until their leases have ended (SIGSTOP).
doc/design/faults.md explains the numbers of faults, and oracles such as O3.
Usage: test_kills.py [BUILD [SCENARIO…]]"""

import os
import random
import signal
import sqlite3
import time

from lib import orders
from lib.ports import free_port
from lib.limits import check_limits, most_at_once
from lib.process import alive, boot_us, descendants, send, stop, wait_until
from lib.scenario import NO_LEASE_ENDS, SOAK, main, scenario
from lib.tool import tool

CONFLICT_UPDATE = {
    "type": "insert",
    "table": "orders",
    "columns": {"id": "/id", "seq": "/seq", "amount": "/amount"},
    "primary_key": ["id"],
    "on_conflict": "update",
    "create": True,
}
CONFLICT_IGNORE = {
    "type": "insert",
    "table": "orders",
    "columns": {"seq": "/seq", "id": "/id"},
    "primary_key": ["seq"],
    "on_conflict": "ignore",
    "create": True,
}


def kill_often(t, run, every_s):
    """Kills a random worker with kill -9 every `every_s` seconds while there is load. Returns the
    number of kills."""
    kills = 0
    while t.producing():
        time.sleep(every_s)
        workers = run.workers()
        if workers:
            run.kill_worker(random.choice(workers))
            kills += 1
    return kills


def check_blame(t, run, again):
    """Checks that each message that ran again had been run by a killed worker before. Adds to the
    figures the number of kills and the largest number of messages that ran again after one kill."""
    for earlier, later in again:
        t.check(
            earlier.pid in run.deaths,
            "ran again though nobody was killed: %r, then %r" % (earlier, later),
        )
    # The handlers of a killed worker must write nothing later than one TTL after its death, because
    # all leases of the worker have then ended.
    for r in t.runs():
        t.check(
            r.last_us < run.deaths.get(r.pid, 1 << 62) + run.settings["lock"]["ttl_ms"] * 1000,
            "outlived its worker and its lease: %r" % r,
        )
    # A message of a killed worker runs again if it was running, or if its outcome was not recorded
    # yet.
    per_kill = {}
    for earlier, _ in again:
        per_kill[earlier.pid] = per_kill.get(earlier.pid, 0) + 1
    t.figure(kills=len(run.deaths), most_reruns_of_a_kill=max(per_kill.values(), default=0))


def make_store(path):
    """Makes the table, and a second table that records every write to the first one, so that rows
    which were overwritten later can be checked too."""
    db = sqlite3.connect(path)
    db.executescript("""
        PRAGMA journal_mode = WAL;
        CREATE TABLE orders (id TEXT PRIMARY KEY, seq INTEGER, amount INTEGER);
        CREATE TABLE history (n INTEGER PRIMARY KEY, id TEXT, seq INTEGER);
        CREATE TRIGGER inserted AFTER INSERT ON orders
            BEGIN INSERT INTO history (id, seq) VALUES (NEW.id, NEW.seq); END;
        CREATE TRIGGER updated AFTER UPDATE ON orders
            BEGIN INSERT INTO history (id, seq) VALUES (NEW.id, NEW.seq); END;
    """)
    db.close()


def judge_store(t, path, messages):
    orders.judge(
        t, rows(path, "id, seq", "history ORDER BY n"), rows(path, "id, seq, amount"), messages
    )


def rows(path, columns, source="orders"):
    db = sqlite3.connect(path)
    try:
        return db.execute("SELECT %s FROM %s" % (columns, source)).fetchall()
    finally:
        db.close()


@scenario
def kill_workers(t):
    """Faults 1, 2 and 3: a random worker is killed by kill -9 every 1.5 s. No message may be lost
    or run out of order, no two runs of a key may overlap, and only messages in flight may run
    again. Meanwhile two clients ask the page's process for all that it tells."""
    port = free_port()
    t.start_redis()
    t.make_topics()
    run = t.start(http={"listen": "127.0.0.1:%d" % port})
    run.wait_workers(4)
    sampler = t.sample_commits()
    visitors = [t.visit(port), t.visit(port)]
    t.generate(12000 * SOAK, keys=300, rate=900, wait=False)
    kill_often(t, run, 1.5)
    t.wait_finished()
    visits = [visitor.end() for visitor in visitors]
    t.check(all(visits), "the page's process told nothing while workers were killed")
    t.figure(visits=sum(visits))
    t.judge_idle()
    run.stop()
    runs, again = t.judge(samples=sampler.end())
    check_blame(t, run, again)
    t.check(run.deaths, "nobody was killed")


def kill_one(t, run, after, then=lambda: None):
    """Kills a worker after so many messages have ended, calls `then`, and returns all runs."""
    run.wait_workers(4)
    wait_until(lambda: t.ends_so_far() > after, 60, "the first messages")
    run.kill_worker(random.choice(run.workers()))
    then()
    t.wait_finished()
    t.judge_idle()
    run.stop()
    runs, again = t.judge()
    check_blame(t, run, again)
    return runs


def tenants_record(tenant, i):
    """Returns record number i of a tenant, which has fifty keys."""
    key, payload = b"%s-%d" % (tenant.encode(), i % 50), b'{"tenant":"%s"}' % tenant.encode()
    return (i % 4, key, payload)


def produce_behind_flood(t, flood, tenants, each):
    """Starts Redis, and produces to each topic `flood` records of the tenant "flood", then `each`
    records of each other tenant."""
    t.start_redis()
    t.make_topics()
    records = [tenants_record("flood", i) for i in range(flood)]
    records += [tenants_record(tenant, i) for i in range(each) for tenant in tenants]
    for topic in t.topics:
        t.kafka.produce(topic, records)


def tenant_of(r):
    return bytes.fromhex(r.key).decode().split("-")[0]


def runs_by_tenant(runs):
    by_tenant = {}
    for r in runs:
        by_tenant.setdefault(tenant_of(r), []).append(r)
    return by_tenant


def check_flood_was_left(t, by_tenant, tenants):
    """Checks that a quarter of the flood waited when the last message of the other tenants started."""
    through = max(r.start_us for tenant in tenants for r in by_tenant[tenant])
    left = sum(r.start_us > through for r in by_tenant["flood"])
    t.check(left >= len(by_tenant["flood"]) // 4, "the others waited: %d of the flood left" % left)
    t.figure(flood=len(by_tenant["flood"]), left=left)


@scenario
def kill_a_worker_of_a_limited_fleet(t):
    """Four workers with a backlog share 500 starts a second and ten places, and one of them is
    killed. The handlers count."""
    limits = {"per_second": 500, "burst": 10, "running": 10}
    t.start_redis()
    t.make_topics()
    t.generate(3000 * SOAK, keys=300)
    runs = kill_one(t, t.start(limits=limits), 500)
    check_limits(t, runs, limits, "the fleet")
    seconds = (runs[-1].start_us - runs[0].start_us) / 1e6
    starts = sorted(r.start_us for r in runs)
    second = max(sum(s <= x < s + 1000000 for x in starts) for s in starts[::25])
    tenth = max(sum(s <= x < s + 100000 for x in starts) for s in starts[::25])
    t.figure(
        mean=round(len(runs) / seconds),
        worst_second=second,
        worst_100_ms=tenth,
        at_once=most_at_once(runs),
    )


@scenario
def kill_a_worker_while_a_tenant_floods(t):
    """The messages of one tenant stand before those of twenty others. Each tenant has its own
    limits, and a worker is killed. The others must be through while a part of the flood waits, and
    the handlers count what each tenant starts. Then the flood is paused, and goes on with a lower
    limit."""
    limits = {"per_second": 200, "burst": 20, "running": 2}
    flood, tenants = 1500, ["t%d" % i for i in range(20)]
    produce_behind_flood(t, flood, tenants, 20)

    def others_ended():
        return sum(tenant_of(r) != "flood" and r.end_us is not None for r in t.runs())

    def flood_started():
        return sum(tenant_of(r) == "flood" and r.start_us > at_us[-1] for r in t.runs())

    def pause_and_resume():
        others = len(t.topics) * 20 * len(tenants)
        wait_until(lambda: others_ended() >= others, 60, "the other tenants")
        tool(t, "group", "pause", "flood")
        # without a place, no worker can start any of it
        wait_until(
            lambda: not tool(t, "group", "show", "flood")[0]["running"], 60, "the end of what ran"
        )
        at_us.append(boot_us())
        more = [tenants_record("late", i) for i in range(40)]
        t.kafka.produce(t.topics[0], more)
        wait_until(lambda: others_ended() >= others + len(more), 60, "who is not paused")
        tool(t, "group", "set", "flood", "--running", "1")
        at_us.append(boot_us())
        tool(t, "group", "resume", "flood")
        wait_until(lambda: flood_started() >= 30, 60, "the flood that was resumed")
        at_us.append(boot_us())
        tool(t, "group", "set", "flood", "--running", "16", "--per-second", "2000")

    at_us = []
    run = t.start(group={"from": "json:/tenant"}, limits={"group": limits})
    by_tenant = runs_by_tenant(kill_one(t, run, 300, pause_and_resume))
    paused = [r for r in by_tenant["flood"] if at_us[0] < r.start_us < at_us[1]]
    resumed = [r for r in by_tenant["flood"] if at_us[1] < r.start_us < at_us[2]]
    t.same(paused, [], "runs of the flood while it was paused")
    t.check(most_at_once(resumed) <= 1, "%d of the flood at once" % most_at_once(resumed))
    late = by_tenant.pop("late")
    t.check(all(at_us[0] < r.start_us < at_us[1] for r in late), "a tenant waited for the flood")
    t.same(sorted(by_tenant), sorted(["flood", *tenants]), "the tenants whose messages ran")
    for tenant, those in by_tenant.items():
        check_limits(t, [r for r in those if r.start_us < at_us[2]], limits, tenant)
    check_flood_was_left(t, by_tenant, tenants)
    t.figure(resumed=len(resumed))


@scenario
def limited_tenants_beside_one_without_limits(t):
    """The messages of a tenant without limits stand before those of twenty that have some, and
    occupy all handlers. A worker is killed. The twenty must be through while a part of the
    flood waits."""
    limits = {"per_second": 200, "burst": 20, "running": 2}
    flood, tenants = 2000, ["t%d" % i for i in range(20)]
    produce_behind_flood(t, flood, tenants, 10)
    run = t.start(group={"from": "json:/tenant"}, limits={"groups": dict.fromkeys(tenants, limits)})
    by_tenant = runs_by_tenant(kill_one(t, run, 300))
    for tenant in tenants:
        check_limits(t, by_tenant[tenant], limits, tenant)
    check_flood_was_left(t, by_tenant, tenants)


@scenario
def a_flood_leaves_handlers_to_others(t):
    """The messages of one tenant stand before those of twenty others, and nothing is limited. The
    others must be through while at least half of the flood waits."""
    flood, tenants = 3000 * SOAK, ["t%d" % i for i in range(20)]
    produce_behind_flood(t, flood, tenants, 10)
    run = t.start(group={"from": "json:/tenant"}, lock=NO_LEASE_ENDS)
    t.wait_finished(120)
    run.stop()
    runs, again = t.judge()
    t.same(again, [], "re-runs")
    by_tenant = runs_by_tenant(runs)
    check_flood_was_left(t, by_tenant, tenants)
    t.check(2 * t.figures["left"] >= len(by_tenant["flood"]), "less than half of it was left")


@scenario
def kill_workers_that_bury(t):
    """Workers are killed while they make dead letters of records that have no key. The locks of a
    killed worker stay until their leases end, so its records wait in Redis when Kafka delivers them
    again. The workers that then get these records must make dead letters of them. No handler may
    get any record."""
    t.start_redis()
    t.make_topics()
    t.generate(12000 * SOAK, keys=300)
    run = t.start(key={"from": "json:/customer"}, lock={"ttl_ms": 2000})
    run.wait_workers(4)
    for _ in range(6):
        time.sleep(0.7)
        run.kill_worker(random.choice(run.workers()))
        wait_until(lambda: len(run.workers()) == 4, 30, "a worker in place of the killed one")
    t.wait_finished()
    run.stop()
    letters = t.dead_letters()
    t.same(t.runs(), [], "runs of the handler")
    t.same(len({m[b"envelope"].split(b"\n")[0] for m in letters}), 12000 * SOAK, "dead letters")
    t.check(
        all(b"the payload has no /customer" in m[b"reason"] for m in letters),
        "a dead letter has another reason",
    )
    t.figure(kills=len(run.deaths), dead=len(letters))


@scenario
def kill_workers_all_at_once(t):
    """All workers are killed at once, so no live worker knows which messages were in flight."""
    t.start_redis()
    t.make_topics()
    run = t.start(work_ms="2-10")
    run.wait_workers(4)
    t.generate(5000 * SOAK, keys=60, rate=700, wait=False)
    while t.producing():
        time.sleep(3)
        for pid in run.workers():
            run.kill_worker(pid)
    t.wait_finished()
    run.stop()
    runs, again = t.judge()
    check_blame(t, run, again)


@scenario
def kill_supervisor(t):
    """The supervisor is killed. Its workers and handlers must then end, and an instance that is
    started afterwards must handle the remaining messages."""
    t.start_redis()
    t.make_topics()
    t.generate(5000, keys=100)
    run = t.start(work_ms="5-15")
    run.wait_workers(4)
    wait_until(lambda: t.ends_so_far() > 500, 60, "load")
    family = descendants(run.pid)
    t.check(len(family) >= 4 + 16, "only %d processes" % len(family))
    run.signal(signal.SIGKILL)
    wait_until(lambda: not any(alive(p) for p in family), 10, "end of the workers and handlers")
    dead_us = boot_us()
    pids = {r.pid for r in t.runs()}
    status, _ = t.start("--drain", work_ms="0-4").wait(120)
    t.same(status, 0, "status of --drain")
    runs, again = t.judge()
    for earlier, later in again:
        t.check(
            earlier.pid in pids and earlier.start_us < dead_us,
            "ran again though nobody was killed: %r, then %r" % (earlier, later),
        )


@scenario
def kill_workers_insert_update(t):
    """O3: the statement of the handler replaces an earlier row of the same id. The table must
    finally contain the newest record of each id."""
    t.start_redis()
    t.make_topics(1)
    store = os.path.join(t.dir, "orders.db")
    make_store(store)
    run = t.start(handler=dict(CONFLICT_UPDATE, store="sqlite:" + store))
    run.wait_workers(4)
    t.generate(15000 * SOAK, keys=400, rate=1500, partitioner="key", wait=False)
    kill_often(t, run, 1.5)
    t.wait_finished()
    run.stop()
    _, again = t.judge()
    check_blame(t, run, again)
    judge_store(t, store, 15000 * SOAK)


@scenario
def kill_workers_insert_ignore(t):
    """O3: each message of two topics must become a separate row, and no message may be missing."""
    t.start_redis()
    t.make_topics()
    store = os.path.join(t.dir, "orders.db")
    run = t.start(handler=dict(CONFLICT_IGNORE, store="sqlite:" + store))
    run.wait_workers(4)
    t.generate(10000 * SOAK, keys=400, rate=1500, wait=False)
    kill_often(t, run, 1.5)
    t.wait_finished()
    run.stop()
    _, again = t.judge()
    check_blame(t, run, again)
    t.same(
        sorted(s for (s,) in rows(store, "seq")) == list(range(10000 * SOAK)),
        True,
        "the table holds each message once",
    )


def stop_for(t, pids, ms):
    """Stops processes, a worker first, and lets them go on after some time."""
    t.stops.append((pids[0], stop(*pids)))
    time.sleep(ms / 1000)
    for p in reversed(pids):
        send(p, signal.SIGCONT)


def stop_often(t, run, ttl_ms, family):
    """While there is load, and at least three times, stops a random worker by SIGSTOP for 3 × TTL
    and then sends SIGCONT. If `family` is true, also stops the worker's handlers."""
    n = 0
    while t.producing() or n < 3:
        time.sleep(0.5)
        workers = run.workers()
        if not workers:
            continue
        pid = random.choice(workers)
        pids = [pid] + (descendants(pid) if family else [])
        stop_for(t, pids, 3 * ttl_ms)
        n += 1
    t.figure(stops=n)


@scenario
def stop_workers(t):
    """Fault 4: workers and their handlers are stopped for 3 × TTL. Meanwhile other workers must
    take over their keys, and the late reports of the stopped workers must be refused."""
    t.start_redis()
    t.make_topics()
    run = t.start(lock={"ttl_ms": 600}, work_ms="2-10")
    run.wait_workers(4)
    sampler = t.sample_commits()
    t.generate(9000 * SOAK, keys=60, rate=700, wait=False)
    stop_often(t, run, 600, family=True)
    t.wait_finished()
    run.stop()
    t.judge(samples=sampler.end())


@scenario
def stop_workers_insert(t):
    """Fault 4, O3: a worker is stopped while it waits for the store, and continues only when other
    workers have taken over its partitions and keys. Its late writes must be refused."""
    t.start_redis()
    t.make_topics(1)
    store = os.path.join(t.dir, "orders.db")
    make_store(store)
    run = t.start(
        lock={"ttl_ms": 500},
        handler=dict(CONFLICT_UPDATE, store="sqlite:" + store),
        kafka={"properties": {"session.timeout.ms": "1000", "heartbeat.interval.ms": "200"}},
    )
    run.wait_workers(4)
    t.generate(12000 * SOAK, keys=40, rate=1000, partitioner="key", wait=False)
    n = 0
    while t.producing() or n < 3:
        wait_until(lambda: len(run.workers()) == 4, 30, "workers")
        gate = sqlite3.connect(store, timeout=20, isolation_level=None)
        # Open a transaction that makes every worker wait for the store while its leases are live.
        gate.execute("BEGIN IMMEDIATE")
        time.sleep(0.2)
        pid = random.choice(run.workers())
        t.stops.append((pid, stop(pid)))
        gate.close()
        time.sleep(2.2)
        send(pid, signal.SIGCONT)
        n += 1
    t.wait_finished()
    run.stop()
    t.judge()
    judge_store(t, store, 12000 * SOAK)
    t.figure(stops=n)


if __name__ == "__main__":
    main()
