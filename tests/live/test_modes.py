#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests settings that change how messages are handled: several shards, business ids,
retry.order skip, queue.on_busy latest. Each setting is also tested while workers are killed.
Usage: test_modes.py [BUILD [SCENARIO…]]"""

import hashlib
import json
import random
import re
import signal
import time
from collections import defaultdict

from lib import oracles
from lib.process import boot_us, wait_until
from lib.scenario import NO_LEASE_ENDS, SOAK, main, scenario

COUNTS = re.compile(r"supervisor: done (\d+) dead (\d+) dropped (\d+) skipped (\d+)")


def counts(run):
    """Returns {outcome: count} of the last summary in the log."""
    return dict(
        zip(("done", "dead", "dropped", "skipped"), map(int, COUNTS.findall(run.log())[-1]))
    )


# the most outcomes that a worker of these tests has sent to Redis and not heard of when it dies
UNSETTLED = 16


def judge_after_deaths(t, run, found, **want):
    """Checks counts of the summary. Each count may be too low by what the dead workers had sent to
    Redis and not heard of (doc/how-to/monitor.md)."""
    for name, n in want.items():
        t.check(
            n - UNSETTLED * len(run.deaths) <= found[name] <= n,
            "%s in the summary: %d, not %d" % (name, found[name], n),
        )


def kill_one(t, run):
    """Kills a random worker with kill -9 under load. Returns when another worker has replaced
    it."""
    before = t.ends_so_far()
    wait_until(
        lambda: t.ends_so_far() > before + 20 or (t.tools and not t.producing()), 60, "load", 0.02
    )
    run.kill_worker(random.choice(run.workers()))
    run.wait_workers(4)


def identity(topic, partition, offset):
    return "%s/%d/%d" % (topic, partition, offset)


def records(t):
    """Returns all produced records as [(identity, key, payload)]."""
    return [
        (identity(topic, r["partition"], r["offset"]), r["key"], r["payload"])
        for topic in t.topics
        for r in t.kafka.dump(topic)
    ]


def finished(runs):
    return {r.identity for r in runs if r.outcome == "done"}


# --- shards ---------------------------------------------------------------------------------------


class Lanes:
    """Records the servers and shards on which the lock or the waiting list of each key was seen:
    {key in hex: {(server, shard)}}."""

    def __init__(self, t):
        self.t, self.seen = t, defaultdict(set)

    def look(self):
        for i, server in enumerate(self.t.servers):
            for name in server.keys():
                found = re.match(rb"lw:\{.*\.(\d+)\}:(?:lock|wait):(.*)", name, re.S)
                if found:
                    self.seen[found[2].hex()].add((i, int(found[1])))

    def judge(self):
        """Checks that each key is in one shard, that each shard is on one server, and that every
        shard has keys."""
        t = self.t
        for key, places in self.seen.items():
            t.same(len(places), 1, "shards of key %s" % bytes.fromhex(key))
        places = {place for places in self.seen.values() for place in places}
        t.same(
            places,
            {(shard % len(t.servers), shard) for shard in range(t.shards)},
            "(server, shard) that got keys",
        )

    def shard_of(self, key):
        return next(iter(self.seen.get(key, {(None, None)})))[1]


def sharded(t, servers, wipe):
    """With three shards, two workers are killed, and the server with the number `wipe` is wiped
    unless `wipe` is None. Keys on other servers must not be affected."""
    t.start_redis(servers=servers, shards=3)
    t.make_topics()
    run = t.start(lock={"ttl_ms": 1500})
    run.wait_workers(4)
    sampler = t.sample_commits()
    t.generate(6000 * SOAK, keys=90, rate=600, zipf=0.4, wait=False)
    lanes = Lanes(t)
    kill_one(t, run)
    lanes.look()
    if wipe is not None:
        t.servers[wipe].call("FLUSHALL")
        wiped_us = boot_us()
    while t.producing():
        lanes.look()
        time.sleep(0.05)
        if len(run.deaths) < 2 and (wipe is None or boot_us() > wiped_us + 4000000):
            kill_one(t, run)
    t.wait_finished()
    t.judge_idle()
    run.stop()
    runs, _ = t.judge(wiped=wipe is not None, samples=sampler.end())
    lanes.judge()
    if wipe is not None:
        lost = set(range(wipe, 3, servers))
        t.same(
            sorted(set(re.findall(r"shard (\d): epoch \S+ is lost", run.log()))),
            [str(s) for s in sorted(lost)],
            "shards that lost their epoch",
        )
        healthy = [r for r in runs if lanes.shard_of(r.key) not in lost | {None}]
        t.expect(oracles.backwards(healthy))
        t.check(healthy or len(lost) == t.shards, "no run of a shard that was not wiped")
    t.figure(kills=len(run.deaths), keys=len(lanes.seen))


@scenario
def shards_on_one_server(t):
    """With three shards on one Redis, each shard must have its keys, and no shard may lose a
    message when workers die."""
    sharded(t, servers=1, wipe=None)


@scenario
def shards_on_two_servers(t):
    """With three shards on two Redis servers, one server loses its data. The shards of this server
    must start a new epoch, and the shards of the other server must not be affected."""
    sharded(t, servers=2, wipe=0)


@scenario
def shards_all_wiped(t):
    """Three shards are on one Redis that loses its data, so all epochs are lost at once."""
    sharded(t, servers=1, wipe=0)


@scenario
def a_shard_hangs_beside_groups(t):
    """Each of forty groups has one key, so each waits on one of two shards. The server of one shard
    hangs. The groups of the other one must go on, though those that hang have had the least."""
    t.start_redis(servers=2, shards=2)
    t.make_topics(1)
    keys = [b"k-%d" % i for i in range(40)]
    records = [(k % 4, key, b'"%s"' % key) for _ in range(100 * SOAK) for k, key in enumerate(keys)]
    t.kafka.produce(t.topics[0], records)
    run = t.start(workers=1, work_ms="5-5", group={"from": "message-key"}, lock=NO_LEASE_ENDS)
    wait_until(lambda: t.ends_so_far() > 400, 60, "the first messages")
    t.servers[1].signal(signal.SIGSTOP)
    begin_us = boot_us()
    time.sleep(3)
    end_us = boot_us()
    t.servers[1].signal(signal.SIGCONT)
    t.wait_finished()
    run.stop()
    runs, again = t.judge()
    t.same(again, [], "re-runs")
    started = sum(begin_us + 500000 < r.start_us < end_us for r in runs)
    t.figure(started=started)
    t.check(started > 200, "only %d messages started beside the shard that hung" % started)


# --- business ids ---------------------------------------------------------------------------------


def duplicates(ids, keys, first):
    """Returns two records for each business id, with the same key, in two partitions."""
    out = []
    for n in range(first, first + ids):
        key, body = b"k-%d" % (n % keys), json.dumps({"order": "o-%d" % n}).encode()
        for p in random.sample(range(4), 2):
            out.append((p, key, body))
    return out


def by_business_id(t):
    """Returns the identities of each business id's records: {(key, business id): [identity]}."""
    found = defaultdict(list)
    for name, key, payload in records(t):
        found[key, json.loads(payload)["order"]].append(name)
    return found


def judge_ids(t, run):
    """Checks that each business id took effect under one identity. A second identity is right only
    if the worker that ran the first identity died before it had recorded the effect. Returns the
    number of messages that were dropped, and the number of second (or further) identities that took
    effect."""
    ids, twice = by_business_id(t), []
    done = defaultdict(list)
    for r in t.runs():
        if r.outcome == "done":
            done[r.identity].append(r)
    dropped, doubled = 0, 0
    for (key, name), identities in ids.items():
        ran = sorted((done[i] for i in identities if done[i]), key=lambda rs: rs[0].end_us)
        t.check(ran, "no message with the id %s of key %s took effect" % (name, key))
        for rs in ran[:-1]:
            # An id may take effect twice only if its first effect was not recorded, because the
            # worker died shortly after the run. An outcome is recorded within one turn of the
            # worker's loop, but later if Redis is slow, so allow two seconds.
            if not all(r.pid in run.deaths and r.end_us > run.deaths[r.pid] - 2000000 for r in rs):
                twice.append("the id %s took effect twice: %r, then %r" % (name, rs, ran[-1]))
            doubled += 1
        dropped += len(identities) - len(ran)
        t.dead |= set(i for i in identities if not done[i])
    t.expect(twice)
    t.figure(ids=len(ids), dropped=dropped, doubled_by_deaths=doubled)
    return dropped, doubled


def judge_dropped_count(t, found, dropped):
    """Checks the count of dropped messages. The count may be too low: if a worker dies before it
    reads the answer to a call that dropped messages, another worker gets these messages as already
    finished, and does not count them."""
    t.check(
        dropped // 2 < found["dropped"] <= dropped,
        "the summary says dropped %d of %d" % (found["dropped"], dropped),
    )


DEDUP = {"id": "json:/order", "window_s": 600}


@scenario
def dedup(t):
    """Each business id is produced three times with the same key: twice at once, in different
    partitions, and once later. Of these three messages, one must take effect, and two must be
    dropped and counted."""
    t.start_redis()
    t.make_topics(1)
    topic, ids = t.topics[0], 500 * SOAK
    run = t.start(dedup=DEDUP, lock=NO_LEASE_ENDS)
    run.wait_workers(4)
    batch = duplicates(ids, 40, 0)
    t.kafka.produce(topic, batch)
    # Messages with the same business id but another key are not duplicates.
    t.kafka.produce(topic, [((p + 1) % 4, b"other-" + key, body) for p, key, body in batch[:100:2]])
    wait_until(lambda: t.ends_so_far() > ids // 2, 60, "load")
    t.kafka.produce(topic, [((p + 1) % 4, key, body) for p, key, body in batch[::2]])
    t.wait_finished()
    t.judge_idle()
    run.stop()
    dropped, doubled = judge_ids(t, run)
    _, again = t.judge()
    t.same((again, doubled), ([], 0), "re-runs, and ids that took effect twice")
    t.same(dropped, 2 * ids, "duplicates that did not run")
    t.same(
        counts(run), {"done": ids + 50, "dead": 0, "dropped": dropped, "skipped": 0}, "the summary"
    )


@scenario
def dedup_workers_killed(t):
    """Business ids are repeated while workers die. An id may take effect twice only if its worker
    died between the effect and its record."""
    t.start_redis()
    t.make_topics(1)
    topic, rounds = t.topics[0], 6 * SOAK
    run = t.start(dedup=DEDUP, work_ms="2-8")
    run.wait_workers(4)
    sent = []
    for n in range(rounds):
        batch = duplicates(250, 40, 250 * n)
        t.kafka.produce(
            topic,
            batch
            + [
                ((p + 1) % 4, key, body)
                for p, key, body in random.sample(sent, min(len(sent), 100))
            ],
        )
        sent += batch
        if n % 2:
            kill_one(t, run)
    t.wait_finished()
    t.judge_idle()
    run.stop()
    dropped, doubled = judge_ids(t, run)
    t.judge()
    found = counts(run)
    judge_after_deaths(t, run, found, done=len(by_business_id(t)))
    # A message whose effect was not recorded is delivered again. By then, another message with the
    # same id has taken effect, so the redelivered message is dropped as a duplicate.
    dropped += doubled
    judge_dropped_count(t, found, dropped)
    t.figure(kills=len(run.deaths), dropped_counted=found["dropped"])


@scenario
def dedup_forged_keys(t):
    """A stranger sends the lane's name of another sender's long key as a key, with the business ids
    that the other sender will use. All messages of both must take effect."""
    t.start_redis()
    t.make_topics(1)
    topic, n = t.topics[0], 40
    victims = [b"%0600d" % i for i in range(n)]
    forged = [b"\x01long:" + hashlib.sha256(key).hexdigest().encode() for key in victims]
    run = t.start(dedup=DEDUP)
    run.wait_workers(4)
    for keys in (forged, victims):
        t.kafka.produce(topic, [(i % 4, k, b'{"order":"o%d"}' % i) for i, k in enumerate(keys)])
        t.wait_finished()
    run.stop()
    done = {r.identity for r in t.runs() if r.outcome == "done"}
    t.same(len(done), 2 * n, "messages that took effect")
    t.same(counts(run), {"done": 2 * n, "dead": 0, "dropped": 0, "skipped": 0}, "the summary")


@scenario
def dedup_window_ends(t):
    """A business id must be forgotten after dedup.window_s. After that time, a message with the
    same id must run, because it no longer counts as a duplicate."""
    t.start_redis()
    t.make_topics(1)
    run = t.start(dedup=dict(DEDUP, window_s=1), lock=NO_LEASE_ENDS)
    run.wait_workers(4)
    body = [(n % 4, b"k-%d" % n, json.dumps({"order": "o-%d" % n}).encode()) for n in range(40)]
    for _ in range(2):
        t.kafka.produce(t.topics[0], body)
        t.wait_finished()
        wait_until(
            lambda: not any(b"}:dedup:" in name for name in t.redis.keys()), 60, "end of the window"
        )
    t.judge_idle()
    run.stop()
    _, again = t.judge()
    t.same(again, [], "re-runs")
    t.same(counts(run), {"done": 80, "dead": 0, "dropped": 0, "skipped": 0}, "the summary")


# --- retry.order skip -----------------------------------------------------------------------------

ATTEMPTS = 3
# The messages of each key, in order. Each element is (payload, number of attempts, True if the
# message becomes a dead letter).
LANE = [
    ({"do": "retry", "times": 2}, 3, False),
    ({}, 1, False),
    ({"do": "retry"}, ATTEMPTS, True),
    ({}, 1, False),
    ({"do": "dead"}, 1, True),
    ({}, 1, False),
]
SKIP = {"order": "skip", "max_attempts": ATTEMPTS, "backoff_ms": 800}


def failing_lanes(t, keys, prefix):
    """For each key, produces the messages of the list LANE, all in the same partition."""
    t.kafka.produce(
        t.topics[0],
        [
            (n % 4, b"%s-%d" % (prefix, n), json.dumps(payload).encode())
            for payload, _, _ in LANE
            for n in range(keys)
        ],
    )


def plan(t):
    """Returns {identity: (key, i)} for all records. The number i counts the records of a key, from
    0. LANE[i] says what the handler does with the record."""
    places, at = {}, defaultdict(int)
    for name, key, _ in records(t):
        places[name] = (key, at[key])
        at[key] += 1
    return places


def judge_skip(t, killed=False):
    """Checks that each message has as many attempts as its payload asks for, that dead messages are
    among the dead letters, and that in most lanes a good message overtook the failing message in
    front of it. Returns the identities of the messages whose payload is not empty, and the result
    of plan()."""
    places, tried = plan(t), defaultdict(list)
    for r in t.runs():
        tried[r.identity].append(r)
    overtaken = 0
    for name, (key, place) in places.items():
        payload, wanted, dies = LANE[place]
        attempts = [r.attempt for r in tried[name]]
        # The death of a worker counts no attempt, and an attempt that was not recorded is repeated
        # with the same number.
        if killed:
            t.same(attempts, sorted(attempts), "order of attempts of " + name)
            attempts = sorted(set(attempts))
        t.same(
            attempts, list(range(1, wanted + 1)), "attempts of %s, which does %r" % (name, payload)
        )
        if dies:
            t.dead.add(name)
        if place == 0 and tried[name]:
            behind = next(n for n, at in places.items() if at == (key, 1))
            overtaken += any(
                r.outcome == "done" and r.end_us < tried[name][-1].start_us for r in tried[behind]
            )
    lanes = len(places) // len(LANE)
    t.check(
        overtaken > lanes // 2, "only %d of %d failing heads were overtaken" % (overtaken, lanes)
    )
    failing = {name for name, (_, place) in places.items() if LANE[place][0]}
    t.figure(lanes=lanes, overtaken=overtaken)
    return failing, places


@scenario
def skip(t):
    """With retry.order skip, later messages must run before a head that fails. Each message must be
    done or dead after its attempts, and the dead letters in Redis must have the right numbers of
    attempts."""
    t.start_redis()
    t.make_topics(1)
    run = t.start(retry=SKIP, lock=NO_LEASE_ENDS)
    run.wait_workers(4)
    failing_lanes(t, 80, b"k")
    t.wait_finished()
    t.same(len(t.dead_letters()), 160, "dead letters")
    letters = sorted(int(letter[b"attempts"]) for letter in t.dead_letters())
    run.stop()
    failing, _ = judge_skip(t)
    t.same(letters, [1] * 80 + [ATTEMPTS] * 80, "attempts of the dead letters")
    _, again = t.judge(unordered=failing)
    t.same(again, [], "re-runs")
    t.same(counts(run), {"done": 320, "dead": 160, "dropped": 0, "skipped": 0}, "the summary")


@scenario
def skip_workers_killed(t):
    """Workers die while retry.order is skip and dead letters go to a topic. No dead letter may be
    missing, and the death of a worker must count no attempt."""
    t.start_redis()
    t.make_topics(1)
    grave = t.id + "-dead"
    t.kafka.create(grave, 2)
    run = t.start(retry=SKIP, dead={"to": "topic:" + grave}, work_ms="5-20")
    run.wait_workers(4)
    for turn in range(3):
        failing_lanes(t, 60, b"turn-%d" % turn)
        kill_one(t, run)
    t.wait_finished()
    t.judge_idle()
    run.stop()
    failing, _ = judge_skip(t, killed=True)
    headers = [dict(letter["headers"]) for letter in t.kafka.dump(grave)]
    t.same({header["latchwork-origin"] for header in headers}, t.dead, "dead letters in the topic")
    t.judge(unordered=failing)
    found = counts(run)
    judge_after_deaths(t, run, found, done=3 * 60 * 4, dead=3 * 60 * 2)
    t.figure(kills=len(run.deaths), dead=len(t.dead), letters=len(headers))


# --- only the newest ------------------------------------------------------------------------------

LATEST = {"on_busy": "latest"}


def judge_latest(t):
    """Checks that the last effect of each key in each partition is that of its newest message.
    Returns the number of all messages, and the identities of those that no handler has finished."""
    lane_of, newest, last = {}, {}, {}
    for name, key, _ in records(t):
        lane_of[name] = key, name.split("/")[1]
        newest[lane_of[name]] = name
    runs = [r for r in t.runs() if r.outcome == "done"]
    for r in sorted(runs, key=lambda r: r.end_us):
        last[lane_of[r.identity]] = r.identity
    wrong = [(k, name, last.get(k)) for k, name in newest.items() if last.get(k) != name]
    t.expect(["the newest of %r is %s, but its last effect is of %s" % w for w in wrong])
    gone = set(lane_of) - {r.identity for r in runs}
    t.dead |= gone
    t.figure(dropped=len(gone))
    return len(lane_of), gone


@scenario
def latest(t):
    """Messages of few keys come faster than handlers can be. Of each key and partition only what is
    the newest when a handler is free may run, and the others must be dropped and counted."""
    t.start_redis()
    t.make_topics(1)
    run = t.start(queue=LATEST, lock=NO_LEASE_ENDS, work_ms="10-10")
    run.wait_workers(4)
    t.generate(20000 * SOAK, keys=6)
    t.wait_finished()
    t.judge_idle()
    run.stop()
    n, gone = judge_latest(t)
    t.check(len(gone) > n // 2, "only %d of %d messages were dropped" % (len(gone), n))
    _, again = t.judge()
    t.same(again, [], "re-runs")
    done = {"done": n - len(gone), "dead": 0, "dropped": len(gone), "skipped": 0}
    t.same(counts(run), done, "the summary")


@scenario
def latest_workers_killed(t):
    """Workers die while only the newest message of a key runs. What a dead worker had dropped may
    run again behind a newer message, but the last effect must be that of the newest."""
    t.start_redis()
    t.make_topics(1)
    run = t.start(queue=LATEST, work_ms="5-20")
    run.wait_workers(4)
    for _ in range(3):
        t.generate(3000, keys=6, rate=3000, wait=False)
        kill_one(t, run)
        t.wait_produced()
    t.wait_finished()
    t.judge_idle()
    run.stop()
    n, gone = judge_latest(t)
    t.judge(unordered={name for name, _, _ in records(t)})
    judge_after_deaths(t, run, counts(run), dead=0)
    t.figure(kills=len(run.deaths), messages=n)


if __name__ == "__main__":
    main()
