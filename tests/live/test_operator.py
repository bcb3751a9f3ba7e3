#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests operators' commands that race with workers and with each other, and that are killed (kill
-9). No message may be lost or doubled, and the ledger must agree.
Usage: test_operator.py [BUILD [SCENARIO…]]"""

import json
import os
import random
import time
from collections import Counter, defaultdict

from lib import oracles
from lib.process import boot_us, wait_until
from lib.scenario import SOAK, main, scenario
from lib.tool import begin, lines, tool

KEYS = 20
SEED = int(os.environ.get("LW_SEED", "6"))


def produce(t, n, keys=KEYS):
    t.start_redis()
    t.make_topics(1)
    t.kafka.produce(t.topics[0], [(i % keys % 4, b"k%d" % (i % keys), b"{}") for i in range(n)])


def replays(t):
    return [r for r in t.runs() if "#" in r.identity]


def originals(t, *keys):
    """Returns the identities of the records whose key is one of `keys`."""
    return [
        "%s/%d/%d" % (t.topics[0], r["partition"], r["offset"])
        for r in t.kafka.dump(t.topics[0])
        if not keys or r["key"] in keys
    ]


def key_of(r):
    return bytes.fromhex(r.key).decode()


def ended(t):
    return sum(1 for r in replays(t) if r.outcome)


def judge_replays(t, wanted):
    """Checks that each of the given replays ran once, and that no other replay ran."""
    ran = Counter(r.identity for r in replays(t) if r.outcome == "done")
    t.same(sorted(ran.elements()), sorted(wanted), "replays that are done")


def agree(t):
    """Checks that `ledger` finds no differences. Returns its summary."""
    rows = tool(t, "ledger")
    t.check(rows[-1]["ok"], "ledger: %r" % rows)
    return rows[-1]


def kill_in_the_middle(t, p, until):
    wait_until(lambda: until() or p.poll() is not None, 60, "some progress of the tool")
    t.same(p.poll(), None, "end of the tool before it was killed")
    p.kill()
    p.wait()


def job_is_free(t):
    """Deletes the key `job`, which a killed command left, so that another command can start at
    once. Otherwise the key would expire only after up to 30 s."""
    t.redis.call("DEL", t.prefix() + b"job")


def vanished(t):
    """Returns the lanes whose waiting list was deleted, according to the stream in which the
    scripts report such lanes."""
    return {fields[1] for _, fields in t.redis.call("XRANGE", t.prefix() + b"vanished", "-", "+")}


@scenario
def two_jobs_at_once(t):
    """Several commands start at the same time while workers drain. Only one job may run at a time,
    the other commands must be refused, and each replay must run once under the number of its
    job."""
    produce(t, 1000)
    t.start(work_ms="0-1")
    t.wait_finished()
    t.generate(4000 * SOAK, keys=KEYS, rate=1000, wait=False)
    args = ("queue", "replay", "--topic", t.topics[0], "--key", "k3", "--to", "@200", "--again")
    first = begin(t, *args, "--execute", "--rate", "3")
    wait_until(lambda: replays(t), 30, "the first replay")
    tool(t, *args, "--execute", status=1)
    tool(t, "queue", "drop", "--key", "k4", "--execute", status=1)
    tool(t, "queue", "import", "-", "--execute", status=1, given=b"{}")
    # Commands that only read must not be refused.
    (tool(t, "queue", "ls"), tool(t, "queue", "stats"), agree(t))
    t.same(tool(t, *args)[-1]["dry_run"], True, "a dry run beside it")
    t.same(first.poll(), None, "end of the first, which was to be under way")
    t.same(first.wait(60), 0, "status of the first")
    tool(t, "queue", "pause", "k3")  # From now on, new replays of key k3 must wait.
    time.sleep(0.5)
    one = tool(t, "queue", "replay", t.topics[0] + "/3/0", "--again", "--execute")
    t.same(tool(t, "ledger")[-1]["replays"], 1, "replays in the ledger")
    lane = t.prefix() + b"wait:k3"
    kept = t.redis.call("LRANGE", lane, 0, -1)
    t.redis.call("DEL", lane)
    wait_until(lambda: vanished(t), 30, "a worker's sign that the list was deleted")
    rows = [r for r in tool(t, "ledger", status=1) if "difference" in r]
    t.check(
        {"missing"} == {r["difference"] for r in rows}
        and 1 in {bool(r.get("replay")) for r in rows},
        "a replay that was lost: %r" % rows,
    )
    # Put the deleted messages back, as the oldest messages of the list.
    t.redis.call("RPUSH", lane, *kept)
    tool(t, "queue", "resume", "k3")
    wanted = {r["identity"] for r in lines(first) + one if r.get("result") == "put"}
    side = [begin(t, *args, "--execute") for _ in range(4)]
    ends = [p.wait(60) for p in side]
    t.check(ends.count(0) >= 1 and set(ends) <= {0, 1}, "ends of four at once: %r" % ends)
    numbers = [lines(p)[-1]["job"] for p in side if p.returncode == 0]
    t.same(len(set(numbers)), len(numbers), "numbers of jobs")
    for p in side:
        put = [r["identity"] for r in lines(p) if r.get("result") == "put"]
        t.check(bool(put) == (p.returncode == 0), "a refused job put something: %r" % put)
        wanted |= set(put)
    t.wait_finished()
    wait_until(lambda: ended(t) >= len(wanted), 60, "replays")
    judge_replays(t, wanted)
    t.same(vanished(t), {b"k3"}, "lanes whose list was deleted")
    # Delete the report of the deleted list, which would otherwise stay for 100 × TTL.
    t.redis.call("DEL", t.prefix() + b"vanished")
    judge_operated(t)
    t.figure(replays=len(wanted), refused=ends.count(1))
    t.instances[-1].stop()


@scenario
def drop_killed_while_workers_drain(t):
    """A drop from one paused lane and two lanes that workers drain is killed (kill -9) twice, and
    is resumed each time. Each message must be done, or must be dropped and in the backup. A message
    may be both done and dropped only if its batch was under way at a kill and its lane was not
    paused."""
    produce(t, 6000)
    t.start(work_ms="2-4")
    wait_until(lambda: t.ends_so_far() > 100, 30, "a start")
    tool(t, "queue", "pause", "k1")
    wait_until(lambda: len(tool(t, "queue", "export", "--key", "k1")) > 150, 60, "a long lane")
    backup = os.path.join(t.dir, "backup.jsonl")
    args = (
        "queue",
        "drop",
        "--key",
        "k1",
        "--key",
        "k4",
        "--key",
        "k7",
        "--execute",
        "--backup",
        backup,
    )

    def backed_up():
        return sum(1 for _ in open(backup)) if os.path.exists(backup) else 0

    for tried in range(2):
        have = backed_up()
        kill_in_the_middle(
            t,
            begin(t, *args, "--rate", "100", *(["--resume", "1"] if tried else [])),
            lambda: backed_up() > have + 30,
        )
        job_is_free(t)
        agree(t)
    rows = tool(t, *args, "--resume", "1")
    t.check(rows[-1]["results"].get("dropped", 0) > 0, "the last dropped nothing: %r" % rows[-1])
    kept = ["%(topic)s/%(partition)d/%(offset)d" % json.loads(line) for line in open(backup)]
    tool(t, "queue", "resume", "k1")
    t.dead = set(kept)
    t.wait_finished()
    done = Counter(r.identity for r in t.runs() if r.outcome == "done")
    t.same([i for i, n in done.items() if n > 1], [], "done twice")
    both = set(kept) & set(done)
    t.check(
        len(both) <= 2 * 25,
        "dropped and done: %d, more than the two batches under way (%r…)"
        % (len(both), sorted(both)[:5]),
    )
    t.same(
        [i for i in both if i in set(originals(t, "k1"))],
        [],
        "of a lane that stood, dropped and done",
    )
    judge_operated(t)
    t.figure(dropped=len(kept), killed_batches=len(both))
    t.instances[-1].stop()


@scenario
def import_killed(t):
    """Messages were dropped from paused lanes. An import, which is killed and resumed, must bring
    them back from the backup, and each message must run once."""
    produce(t, 3000)
    t.start(work_ms="2-4")
    wait_until(lambda: t.ends_so_far() > 50, 30, "a start")
    tool(t, "queue", "pause", "k1", "k2")
    wait_until(lambda: len(tool(t, "queue", "export", "--key", "k1")) > 80, 60, "a long lane")
    backup = os.path.join(t.dir, "backup.jsonl")
    # During the sleep, the handlers finish the messages that were granted before the pause.
    time.sleep(0.5)
    n = tool(t, "queue", "drop", "--key", "k1", "--key", "k2", "--execute", "--backup", backup)[-1][
        "results"
    ]["dropped"]
    tool(t, "queue", "resume", "k1", "k2")
    kept = ["%(topic)s/%(partition)d/%(offset)d" % json.loads(line) for line in open(backup)]
    t.same(len(kept), n, "lines of the backup")
    args = ("queue", "import", backup, "--again", "--execute")
    kill_in_the_middle(t, begin(t, *args, "--rate", "60"), lambda: len(replays(t)) > 20)
    job_is_free(t)
    agree(t)
    rows = tool(t, *args, "--resume", "2")
    t.same(sum(rows[-1]["results"].values()), n, "messages of the rest")
    t.dead = set(kept)
    t.wait_finished()
    wait_until(lambda: ended(t) >= n, 60, "what was imported")
    judge_replays(t, [i + "#2" for i in kept])
    judge_operated(t)
    t.figure(imported=n, by_the_last=rows[-1]["results"].get("put", 0))
    t.instances[-1].stop()


@scenario
def pauses_and_breaks_under_load(t):
    """Under load, lanes are paused and resumed and locks are broken at random. No message may be
    granted in a paused lane, all messages must be done, and fences must grow."""
    produce(t, 0)
    t.start(work_ms="0-3")
    t.generate(6000 * SOAK, keys=KEYS, rate=800, wait=False)
    wait_until(lambda: t.ends_so_far() > 100, 30, "a start")
    chance, spans = random.Random(SEED), []
    keys = sorted({key_of(r) for r in t.runs()})
    while t.producing():
        some = chance.sample(keys, 3)
        tool(t, "queue", "pause", *some)
        fence, since = int(t.redis.call("GET", t.prefix() + b"fence")), boot_us()
        for _ in range(3):
            # Allow any exit status, because the status is 1 if no one holds the lock.
            tool(t, "lock", "break", chance.choice(keys), "--execute", status=None)
        time.sleep(chance.random() / 4)
        spans += [(key, fence, since, boot_us()) for key in some]
        tool(t, "queue", "resume", *some)
    t.wait_finished()
    runs = t.runs()
    for key, fence, since, until in spans:
        t.same(
            [
                r
                for r in runs
                if key_of(r) == key and since < r.start_us < until and r.fence > fence
            ],
            [],
            "granted in a paused lane",
        )
    broken = sum(len(fences) for fences in broken_fences(t).values())
    t.check(broken > 0, "no lane was held when it was to be broken: the test does not test much")
    judge_operated(t, runs)
    t.figure(pauses=len(spans), breaks=broken)
    t.instances[-1].stop()


def broken_fences(t):
    """Returns the fences at which locks were broken, read from the audit: {key: fences}."""
    out = defaultdict(list)
    for _, f in t.redis.call("XRANGE", t.prefix() + b"audit", "-", "+"):
        entry = dict(zip(f[::2], f[1::2]))
        if entry.get(b"did") == b"lock break":
            out[entry[b"key"].decode()].append(int(entry[b"fence"]))
    return out


def judge_operated(t, runs=None):
    """Applies the oracles. If a lock is broken, its holder may still finish its message. Therefore
    the runs of a lane between two breaks are judged separately."""
    runs = runs or t.runs()
    broken = broken_fences(t)
    lines_of = defaultdict(list)
    for r in runs:
        lines_of[r.key, sum(r.fence >= f for f in broken.get(key_of(r), ()))].append(r)
    for line in lines_of.values():
        t.expect(oracles.overlaps(line))
        t.expect(oracles.fences(line))
    t.expect(oracles.misordered(runs))
    t.expect(
        oracles.lost(t.kafka.ends(t.topics), [r for r in runs if "#" not in r.identity], t.dead)
    )
    again = [later for _, later in oracles.reruns(runs)]
    t.same(
        [r for r in again if key_of(r) not in broken], [], "ran again, and nobody broke its lane"
    )
    last = agree(t)
    t.same((last["waiting"], last["lanes"], last["locks"]), (0, 0, 0), "left")
    # Delete the keys that jobs leave on purpose: job:…, audit and replays.
    for name in t.redis.keys():
        if name[len(t.prefix()) :].startswith((b"job:", b"audit", b"replays")):
            t.redis.call("DEL", name)
    t.judge_idle()
    t.figure(runs=len(runs), reruns=len(again))


if __name__ == "__main__":
    main()
