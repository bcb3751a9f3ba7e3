#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests an upgrade: workers of an earlier version and of this version work in one fleet under load,
and machines change to the new version and back. Each version must be able to read the data that the
other has left in Redis and Kafka. The test builds the earlier version, so it is not part of `make
check`. `make upgrade-test` runs it.

Usage: upgrade.py [BUILD [SCENARIO…]]
$LW_FROM is the tag or the commit of the earlier version. The default is the newest tag before this
commit, or the constant FIRST if there is no tag. The version is built once, in build/upgrade.

A format of data changes only if LW_SCHEMA_VERSION (queue/lane.h) changes. If the two versions have
different schema versions, they can't work in one fleet. The test then checks only that each version
refuses the other's data with a text that names both schema versions."""

import os
import random
import re
import subprocess
import sys
import time

from lib import oracles
from lib.process import boot_us, wait_until
from lib.scenario import SOAK, main, scenario, variants
from lib.tool import tool

TOP = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
# FIRST is used instead of a tag, because there is no release yet. It is the first commit with the
# schema of this version: an older one would show only that each refuses the other's data.
FIRST = "356f215d17f5ba5b6f83e3dbed40c439c7d4f348"
MACHINES = ("one", "two", "three")
WORKERS = 2  # number of workers per machine


def git(*args):
    done = subprocess.run(
        ["git", "-C", TOP] + list(args),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    return done.stdout.strip() if done.returncode == 0 else ""


def earlier_commit():
    # Start the search at HEAD^. When a release is tested, HEAD has the tag of that release, so the
    # release would be compared with itself.
    name = os.environ.get("LW_FROM") or git("describe", "--tags", "--abbrev=0", "HEAD^") or FIRST
    commit = git("rev-parse", "--verify", name + "^{commit}")
    if not commit:
        sys.exit(
            "upgrade.py: this clone has no commit %s; fetch it (git fetch --unshallow), or name another by LW_FROM"
            % name
        )
    return name, commit


def build_earlier(commit):
    """Builds the program of the commit unless an earlier run has built it, and returns the folder
    of its source tree."""
    tree = os.path.join(TOP, "build/upgrade", commit[:12])
    if os.path.exists(os.path.join(tree, ".complete")):
        return tree
    os.makedirs(tree, exist_ok=True)
    subprocess.run(
        ["sh", "-c", 'git archive "$1" | tar -xf - -C "$2"', "sh", commit, tree],
        check=True,
        cwd=TOP,
    )
    environment = {
        k: v
        for k, v in os.environ.items()
        if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "B", "WERROR")
    }
    print("upgrade.py: building %s (once)" % commit[:12], flush=True)
    done = subprocess.run(
        ["make", "-s", "-j%d" % os.cpu_count(), "-C", tree, "all"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if done.returncode:
        sys.exit("upgrade.py: %s does not build: %s" % (commit, done.stdout[-3000:]))
    open(os.path.join(tree, ".complete"), "w").close()
    return tree


def schema(tree):
    with open(os.path.join(tree, "queue/lane.h")) as f:
        return int(re.search(r"LW_SCHEMA_VERSION = (\d+)", f.read()).group(1))


class Version:
    """One of the two programs: the folder of its build, and its schema version."""

    def __init__(self, label, tree, build):
        self.label, self.build, self.schema = label, build, schema(tree)


def versions():
    name, commit = earlier_commit()
    tree = build_earlier(commit)
    print(
        "from %s (%s, schema %d) to this tree (schema %d)"
        % (name[:12], commit[:12], schema(tree), schema(TOP)),
        flush=True,
    )
    build = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "build")
    return Version("old", tree, os.path.join(tree, "build")), Version("new", TOP, build)


OLD, NEW = versions()


def together(function):
    """Adds a scenario in which workers of the old and the new version form one fleet. Leaves the
    scenario out if the schema versions differ, because one fleet is then impossible."""
    return scenario(function) if OLD.schema == NEW.schema else function


def start(t, version, machine, **over):
    number = sum(i.label.startswith(machine) for i in t.instances)
    run = t.start(
        label="%s-%d-%s" % (machine, number, version.label),
        build=version.build,
        workers=WORKERS,
        **over,
    )
    run.wait_workers(WORKERS)
    return run


def load(t):
    t.generate(1500 * SOAK, keys=50, rate=500, wait=False)


def all_work(t, fleet):
    """Continues the load until each supervisor's workers have finished a message that began to run
    after the call."""
    since = boot_us()

    def idle():
        if not t.producing():
            load(t)
        pids = {r.pid for r in t.runs() if r.start_us > since and r.outcome == "done"}
        return [machine for machine, run in fleet.items() if not pids & set(run.workers())]

    wait_until(lambda: not idle(), 90, "work of each supervisor", 0.5)


def nothing_again(t, deaths=()):
    """Checks that no message ran again, except messages that a killed worker had run before."""
    for earlier, later in oracles.reruns(t.runs()):
        t.check(
            earlier.pid in deaths,
            "ran again though its worker was not killed: %r, then %r" % (earlier, later),
        )


@together
def rolled_and_back(t):
    """The machines change to the new version one by one, and then back to the old version. An
    orderly stop must make no message run again, and the promises must hold all the time."""
    t.start_redis()
    t.make_topics(2, 6)
    fleet = {machine: start(t, OLD, machine) for machine in MACHINES}
    sampler = t.sample_commits()
    all_work(t, fleet)
    for version in (NEW, OLD):
        for machine in MACHINES:
            load(t)
            fleet[machine].stop()
            fleet[machine] = start(t, version, machine)
            all_work(t, fleet)
    t.wait_finished()
    t.judge_idle()
    t.check(tool(t, "ledger", build=NEW.build)[-1]["ok"], "the ledger does not agree")
    for run in fleet.values():
        run.stop()
    nothing_again(t)
    t.judge(samples=sampler.end())
    t.figure(replaced=2 * len(MACHINES))


@together
def killed_while_mixed(t):
    """Workers of both versions are killed while they work in one fleet, so that each version takes
    over the messages that the other has left."""
    t.start_redis()
    t.make_topics(2, 6)
    fleet = {"one": start(t, OLD, "one"), "two": start(t, NEW, "two")}
    sampler = t.sample_commits()
    all_work(t, fleet)
    for _ in range(4 * SOAK):
        for run in fleet.values():
            run.wait_workers(WORKERS)
            load(t)
            time.sleep(1)
            run.kill_worker(random.choice(run.workers()))
    all_work(t, fleet)
    t.wait_finished()
    t.judge_idle()
    for run in fleet.values():
        run.stop()
    deaths = {pid for run in fleet.values() for pid in run.deaths}
    nothing_again(t, deaths)
    t.judge(samples=sampler.end())
    t.figure(kills=len(deaths))


def waiting(t, version):
    """Reads the waiting messages and the dead letters with the program of the given version.
    Returns {identity: payload} of the waiting messages, and {identity: reason} of the dead
    letters."""
    queue = {r["identity"]: r["payload"] for r in tool(t, "queue", "export", build=version.build)}
    dead = {
        r["identity"]: r.get("reason")
        for r in tool(t, "dead", "ls", "--limit", "0", build=version.build)
    }
    return queue, dead


def paused(t, version):
    return sorted(
        r["key"]
        for r in tool(t, "queue", "ls", "--limit", "0", build=version.build)
        if r.get("paused")
    )


def leave(t, version):
    """Runs the version until it has left three things: waiting messages in paused lanes, dead
    letters, and a message that failed several times. Returns the instance, which has ended."""
    run = start(
        t, version, "first", retry={"max_attempts": 100, "backoff_ms": 400, "backoff_max_ms": 400}
    )
    topic = t.topics[0]
    for key in ("p0", "p1", "p2"):
        tool(t, "queue", "pause", key, build=version.build)
    t.kafka.produce(topic, [(i % 4, b"k%d" % (i % 20), b"{}") for i in range(800)])
    t.kafka.produce(topic, [(i % 4, b"p%d" % (i % 3), b'{"n":%d}' % i) for i in range(120)])
    t.kafka.produce(topic, [(i % 4, b"d%d" % i, b'{"do":"dead"}') for i in range(20)])
    t.kafka.produce(topic, [(0, b"r", b'{"do":"retry","times":12}'), (0, b"r", b"{}")])
    wait_until(
        lambda: (
            sum(r.outcome == "done" for r in t.runs()) == 800
            and any(r.attempt == 3 and r.outcome for r in t.runs())
        ),
        90,
        "the work of " + version.label,
    )
    wait_until(
        lambda: len(waiting(t, version)[1]) == 20 and len(waiting(t, version)[0]) >= 120,
        30,
        "what is left of " + version.label,
    )
    run.stop()
    return run


def left_behind(t, pair):
    """One version leaves unfinished messages. The other version must read and show the same
    messages, continue where the first version stopped, and finish all messages."""
    first, then = pair
    t.start_redis()
    t.make_topics(1)
    leave(t, first)
    queue, dead = waiting(t, first)
    t.check(len(queue) >= 121, "only %d messages wait" % len(queue))
    t.same(waiting(t, then), (queue, dead), "what waits and is dead, as the other version reads it")
    t.same((paused(t, first), paused(t, then)), (["p0", "p1", "p2"],) * 2, "paused lanes")
    t.check(tool(t, "ledger", build=then.build)[-1]["ok"], "the ledger does not agree")
    t.dead.update(dead)
    run = start(
        t, then, "then", retry={"max_attempts": 100, "backoff_ms": 400, "backoff_max_ms": 400}
    )
    for key in ("p0", "p1", "p2"):
        tool(t, "queue", "resume", key, build=then.build)
    t.wait_finished()
    nothing_again(t)
    t.same(
        sorted(r.attempt for r in t.runs() if r.key == b"r".hex() and r.attempt > 1),
        list(range(2, 14)),
        "attempts of the message that failed",
    )
    t.judge()
    tool(t, "dead", "replay", "--match", "*", "--execute", build=then.build)
    wait_until(
        lambda: sum("#" in r.identity and r.outcome == "dead" for r in t.runs()) == 20,
        60,
        "replays of the dead letters",
    )
    wait_until(lambda: len(waiting(t, then)[1]) == 20, 30, "dead letters of the replays")
    t.check(
        tool(t, "ledger", build=then.build)[-1]["ok"], "the ledger does not agree after the replays"
    )
    run.stop()


if OLD.schema == NEW.schema:
    variants(left_behind, left_by_the_old=(OLD, NEW), left_by_the_new=(NEW, OLD))


def refuses(t, version, found):
    run = t.start(label="refused-" + version.label, build=version.build, workers=1)
    status, _ = run.wait(60)
    t.same(status, 78, "status of %s" % version.label)
    t.check(
        "version %d" % found in run.log() or "schema %d" % found in run.log(),
        "%s does not name schema %d: %s" % (version.label, found, run.log()[-800:]),
    )
    if version is NEW:
        t.check(
            "schema %d" % NEW.schema in run.log(),
            "the refusal does not name the own schema %d: %s" % (NEW.schema, run.log()[-800:]),
        )


@scenario
def another_schema_is_refused(t):
    """A worker must not change the data of another schema version. If both versions have the same
    schema version, the test writes a different schema version to Redis."""
    t.start_redis()
    t.make_topics(1)
    for first, second in ((OLD, NEW), (NEW, OLD)):
        run = start(t, first, "first")
        t.kafka.produce(t.topics[0], [(None, b"k", b"{}")] * 10)
        t.wait_finished()
        run.stop()
        found = first.schema
        if OLD.schema == NEW.schema:
            found += 1
            t.redis.call("HSET", t.prefix() + b"epoch", "version", str(found))
        before = sorted((name, t.redis.call("DUMP", name)) for name in t.redis.keys())
        refuses(t, second, found)
        t.same(
            sorted((name, t.redis.call("DUMP", name)) for name in t.redis.keys()) == before,
            True,
            "Redis is as it was",
        )
        t.redis.call("FLUSHALL")
    t.judge(wiped=True)


if __name__ == "__main__":
    main()
