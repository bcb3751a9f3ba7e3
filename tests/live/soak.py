#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Everything at once, for hours: six applications, each with its own way of handling messages, on
one Kafka and one Redis behind Sentinels, with the page open in Chromium. Every few seconds comes a
random fault: kills, stops, wipes, failovers, deploys, replays, bad messages, trouble of services
and databases. Afterwards the oracles judge each application, and what the processes, Redis and the
databases hold must have been flat after the first ten minutes.

Usage: soak.py BUILD SAMPLES                    runs, and writes a line per sample
       soak.py --page SAMPLES PAGE IMAGES       draws the samples as SVG, and puts the figures into
                                                the page
LW_SOAK_S is the time under load in seconds (7200). LW_SEED chooses the faults."""

import json
import os
import random
import signal
import sys
import textwrap
import threading
import time
import traceback

import test_kills
import test_proof
from lib import oracles, scenario
from lib.ports import free_port
from lib.process import alive, children, descendants, wait_until
from lib.sentinel import Guarded
from lib.tool import tool

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "../../bench"))
sys.path.insert(0, os.path.join(HERE, "../browser"))
sys.dont_write_bytecode = True
import plot  # noqa: E402
from driver import Browser  # noqa: E402

SECONDS = int(os.environ.get("LW_SOAK_S", "7200"))
RATE = 60  # messages per second of each application
# A worker keeps the memory of the largest backlog that it had, for the next one. So the first
# backlog is larger than each that a fault leaves. What grows afterwards is a leak.
BACKLOG = 30000
EVERY_S = 5  # between two samples
PAUSE_S = 6  # between two faults
WARM_S = 600
# The last fault comes this long before the load ends. A message that fails while nothing else
# succeeds is charged to nobody and waits (guarantee 6), so the last ones need company.
CALM_S = min(120, SECONDS // 4)
# The times are longer than those of the matrix. A machine that stalls for seconds would otherwise
# have two masters, or workers without a place in their group, and this is not what is tested here.
TTL_MS, DOWN_MS = 5000, 3000
PROPERTIES = {"message.max.bytes": "10000000", "session.timeout.ms": "20000"}
WAYS = ("plugin", "exec", "Python SDK", "http", "insert, SQLite", "insert, PostgreSQL")
# These applications are deployed again and again, and their workers may be any age. Each of the
# others has a worker, its resident, that nothing ends, so that what leaks in it adds up.
DEPLOYED = ("plugin", "Python SDK")
# The faults of the matrix that may happen often in one run. The others change the database for
# good, end the supervisor, which is measured too, or end residents; and answers of a service that
# answers twice on busy connections are taken for others (guarantees.md, not promised, 17).
OWN = (
    "process killed|process exits|process crashes|half a line|garbage|a foreign answer|crashes"
    "|aborts|exits|500 for some keys|closes early|closes in the body|not HTTP"
    "|byte by byte|500 for all|service restarted|service stopped|locked|killed|connections ended"
    "|read-only|rights revoked|table gone"
).split("|")


# --- faults ---------------------------------------------------------------------------------------


def younger(t, run):
    """Returns the workers that a fault may end or stop."""
    return [pid for pid in run.workers() if pid != t.resident]


def worker_killed(t, run, door):
    for pid in younger(t, run)[:1]:
        run.kill_worker(pid)


def worker_stopped(t, run, door):
    for pid in younger(t, run)[:1]:
        test_kills.stop_for(t, [pid] + descendants(pid), 3 * TTL_MS)


def failed_over(t, run, door):
    t.redis.restore(t.redis.kill_master())


def switched(t, run, door):
    t.redis.switch()
    t.redis.wait_ready()


def begin_run(t, door, **more):
    return test_proof.begin_run(
        t, door, lock={"ttl_ms": TTL_MS}, kafka={"properties": PROPERTIES}, **more
    )


def rebalanced(t, run, door):
    other = begin_run(t, door, label="other", workers=1)
    time.sleep(3)
    other.stop()
    t.instances.remove(other)


def deployed(t, run, door):
    before = set(run.workers())
    run.signal(signal.SIGHUP)
    wait_until(lambda: not any(alive(pid) for pid in before), 120, "end of the old workers")


def replayed(t, run, door):
    key = "k-%d" % random.randrange(test_proof.KEYS)
    words = ("--topic", t.topics[0], "--key", key, "--from", "60s", "--again", "--execute")
    # The command may fail because Redis fails over.
    tool(t, "queue", "replay", *words, status=None)


def bad_messages(t, run, door):
    test_proof.produce(t, test_proof.HOSTILE)


def faults_of(way):
    """Returns {name: fault} for an application."""
    found = {
        "worker killed": worker_killed,
        "worker stopped": worker_stopped,
        "Redis wiped": test_proof.wiped,
        "Redis connections cut": test_proof.cut,
        "Redis failed over": failed_over,
        "Redis switched over": switched,
        "a rebalance": rebalanced,
        "bad messages": bad_messages,
    }
    if way == "exec":
        found["broker restarted"] = test_proof.broker_restarted
    if way in DEPLOYED:
        found["deployed"] = deployed
    if not way.startswith("insert"):  # there, an older message replayed would write an older row
        found["replayed"] = replayed
    for ways, faults in test_proof.OWN.items():
        if way in ways:
            found.update({name: f[0] for name, f in faults.items() if name in OWN})
    return found


# --- samples --------------------------------------------------------------------------------------


def resident_pages(folder):
    with open(folder + "statm") as f:
        return int(f.read().split()[1])


def rows_of_ours(door):
    """Returns the number of rows in the tables that the insert keeps for itself."""
    listed = "name FROM sqlite_master WHERE type = 'table' AND name"
    if isinstance(door, test_proof.Pg):
        listed = "tablename FROM pg_tables WHERE tablename"
    names = door.sql("SELECT %s LIKE 'latchwork_%%'" % listed)
    counts = " + ".join("(SELECT count(*) FROM %s)" % name for (name,) in names)
    return int(door.sql("SELECT " + counts)[0][0])


class Page:
    """The page of one application, open in a browser, which changes its view with each sample."""

    VIEWS = ("", "lanes", "dead", "locks", "jobs", "audit", "workers", "key/k-1")

    def __init__(self, port):
        self.browser, self.base, self.n = Browser(), "http://127.0.0.1:%d/#/" % port, 0
        self.browser.go(self.base)

    def heap_mb(self):
        b = self.browser
        self.n += 1
        b.run("location.hash = arguments[0]", "#/" + self.VIEWS[self.n % len(self.VIEWS)])
        b.devtools("HeapProfiler.collectGarbage")
        b.devtools("Performance.enable")
        metrics = b.devtools("Performance.getMetrics")["metrics"]
        return round({m["name"]: m["value"] for m in metrics}["JSHeapUsedSize"] / 1e6, 2)


class Sampler(threading.Thread):
    def __init__(self, path, applications, page):
        super().__init__(daemon=True)
        self.path, self.applications, self.page = path, applications, page
        self.over, self.begun = threading.Event(), time.monotonic()

    def run(self):
        while not self.over.wait(EVERY_S):
            with open(self.path, "a", encoding="utf-8") as f:
                f.write(json.dumps(self.sample()) + "\n")

    def sample(self):
        line = {"s": round(time.monotonic() - self.begun)}

        def take(name, read):
            try:
                line[name] = read()
            except Exception:
                pass  # What is measured is away, because of a fault.

        def take_process(what, whose, pid):
            """Takes memory and descriptors."""
            folder = "/proc/%d/" % pid
            take(what + " descriptors" + whose, lambda: len(os.listdir(folder + "fd")))
            take(what + " MB" + whose, lambda: round(resident_pages(folder) * 4096 / 1e6, 2))

        for t, door in self.applications:
            run = t.instances[0]
            take_process("supervisor", ", " + t.way, run.pid)
            if t.resident:
                take_process("worker", ", " + t.way, t.resident)
            if isinstance(door, test_proof.Store):
                take("rows, " + t.way, lambda door=door: rows_of_ours(door))
        redis = self.applications[0][0].redis
        take("Redis keys", lambda: redis.call("DBSIZE"))
        take("Redis MB", lambda: round(int(redis.info("memory")["used_memory"]) / 1e6, 2))
        exporter = self.applications[1][0].exporter
        take_process("page process", "", exporter)
        take("page in Chromium MB", self.page.heap_mb)
        return line


def read(path):
    """Returns {name: [(s, value)]}, and the last line, which has no samples."""
    series, last = {}, {}
    with open(path, encoding="utf-8") as f:
        for text in f:
            line = json.loads(text)
            if "faults" in line:
                last = line
                continue
            at = line.pop("s")
            for name, value in line.items():
                series.setdefault(name, []).append((at, value))
    return series, last


# --- a run ----------------------------------------------------------------------------------------


def begin(rig, way, redis, grave):
    t = scenario.Scenario(rig, "soak_" + "".join(c for c in way.lower() if c.isalpha()))
    t.way, t.redis, t.servers = way, redis, [redis]
    t.gone, t.killed, t.wanted, t.grave = [], set(), {}, grave
    t.messages = BACKLOG + RATE * SECONDS
    t.make_topics(1)
    door = test_proof.WAYS[way](t)
    more = {"http": {"listen": "127.0.0.1:%d" % free_port()}} if way == "exec" else {}
    run = begin_run(t, door, **more)
    t.resident = None if way in DEPLOYED else run.workers()[0]
    t.exporter = next((p for p in children(run.pid) if p not in run.workers()), 0)
    # while Redis is in quarantine after a wipe, a worker reads, and starts nothing
    test_proof.wiped(t, run, door)
    t.generate(BACKLOG, test_proof.KEYS, partitioner="key")
    t.generate(RATE * SECONDS, test_proof.KEYS, RATE, partitioner="key", wait=False, first=BACKLOG)
    return t, door


def left_of(t):
    """Returns what should not be in Redis when all is done. What replays noted expires later."""
    notes = tuple(t.prefix() + name for name in (b"audit", b"job", b"dead", b"replays"))
    names = [n for n in t.redis.keys() if n.startswith(t.prefix()) and not n.startswith(notes)]
    return oracles.not_idle([n for n in names if not t.expiring(t.redis, n)], t.prefix())


def judge(t, door):
    t.wait_finished(300)
    wait_until(lambda: not left_of(t), 30, "end of the lanes; there are %r" % left_of(t))
    run = t.instances[0]
    if t.resident:
        t.check(alive(t.resident), "the worker that no fault ended has ended")
    run.stop()
    runs = t.runs()
    t.expect(oracles.overlaps(oracles.under_lease(runs, t.stops), t.stops))
    once = [r for r in runs if "#" not in r.identity]
    t.figure(replays=len(runs) - len(once))
    test_proof.judge_outcomes(t, door, once)
    t.runs = lambda: once
    t.judge(wiped=True)


def soak(t, path):
    random.seed(int(os.environ.get("LW_SEED") or time.time()))
    redis = Guarded(t.dir, down_ms=DOWN_MS)
    t.redis, t.servers = redis, [redis]
    redis.start()
    done, applications, page, sampler = {}, [], None, None
    try:
        for way in WAYS:
            grave = "soak-dead-%d" % len(applications)
            t.kafka.create(grave, 1)
            applications.append(begin(t.rig, way, redis, grave))
        page = Page(int(applications[1][0].instances[0].settings["http"]["listen"].split(":")[1]))
        open(path, "w").close()
        sampler = Sampler(path, applications, page)
        sampler.start()
        until = time.monotonic() + SECONDS - CALM_S
        while time.monotonic() < until:
            one, door = random.choice(applications)
            name, fault = random.choice(list(faults_of(one.way).items()))
            print("%5d s  %s: %s" % (time.monotonic() - sampler.begun, one.way, name), flush=True)
            done[name] = done.get(name, 0) + 1
            try:
                fault(one, one.instances[0], door)
                for each, _ in applications:
                    each.instances[0].wait_workers(2, 120)
            except Exception:
                one.violations.append("%s: %s" % (name, traceback.format_exc()))
                print("        " + one.violations[-1].splitlines()[-1], flush=True)
            time.sleep(PAUSE_S)
        sampler.over.set()
        sampler.join(60)
        page.browser.until_text("#connection", "^Live$", 60)
        for one, door in applications:
            try:
                judge(one, door)
            except Exception:
                one.violations.append(traceback.format_exc())
            t.violations += ["%s: %s" % (one.way, v) for v in one.violations]
        t.judge_rights()
    finally:
        if sampler:
            sampler.over.set()
            sampler.join(60)
        if page:
            page.browser.close()
        for one, door in applications:
            one.servers = []
            one.close()
            door.close()
        t.servers = []
        redis.stop()  # also if SIGTERM ends the run
    figures = {one.way: one.figures for one, _ in applications}
    with open(path, "a", encoding="utf-8") as f:
        f.write(json.dumps({"faults": done, "figures": figures, "seconds": SECONDS}) + "\n")
    t.expect(oracles.grown(read(path)[0], min(WARM_S, SECONDS // 4)))
    t.figure(seconds=SECONDS, faults=sum(done.values()))


# --- the page of proof ----------------------------------------------------------------------------

PLOTS = (
    ("soak-workers.svg", "Memory of the workers that nothing ended", "MB", "worker MB, "),
    ("soak-supervisors.svg", "Memory of the supervisors", "MB", "supervisor MB, "),
    ("soak-descriptors.svg", "Descriptors of these workers", "descriptors", "worker descriptors, "),
    ("soak-rows.svg", "Rows that the insert keeps for itself", "rows", "rows, "),
    ("soak-keys.svg", "Keys in Redis", "keys", "Redis keys"),
    ("soak-redis.svg", "Memory of Redis, and of the page", "MB", ("Redis MB", "page ")),
)


def by_minute(points):
    minutes = {}
    for s, value in points:
        minutes.setdefault(s // 60, []).append(value)
    return [(m, sorted(v)[len(v) // 2]) for m, v in minutes.items()]


def page_of(path, page, images):
    series, last = read(path)
    lines = []
    for name, title, unit, prefix in PLOTS:
        chosen = {
            k.removeprefix(prefix) if isinstance(prefix, str) and k != prefix else k: by_minute(v)
            for k, v in series.items()
            if k.startswith(prefix) and (unit != "MB" or k.endswith("MB") or "MB" in k)
        }
        with open(os.path.join(images, name), "w", encoding="utf-8") as f:
            f.write(plot.curves(title + ", median of each minute", "minutes", unit, chosen))
        lines += ["![%s](../images/%s)" % (title, name), ""]
    faults = ", ".join("%s %d" % pair for pair in sorted(last["faults"].items()))
    told = "The last run took %d minutes under load, with %d faults: %s."
    told %= (last["seconds"] // 60, sum(last["faults"].values()), faults)
    head = textwrap.wrap(told, 120) + [
        "",
        "| application | messages | runs | replays |",
        "|---|---|---|---|",
    ]
    for way, figures in last["figures"].items():
        row = [str(figures.get(c, "")) for c in ("messages", "runs", "replays")]
        head.append("| %s | %s |" % (way, " | ".join(row)))
    with open(page, encoding="utf-8") as f:
        before, rest = f.read().split("<!-- soak -->")[::2]
    with open(page, "w", encoding="utf-8") as f:
        f.write("<!-- soak -->".join((before, "\n\n" + "\n".join(head + [""] + lines), rest)))


def main():
    if sys.argv[1:2] == ["--page"]:
        page_of(*sys.argv[2:5])
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    rig, passed = scenario.Rig(sys.argv[1]), False

    def all_at_once(t):
        soak(t, sys.argv[2])

    try:
        passed = scenario.run_one(rig, all_at_once)
    finally:
        rig.close(keep=not passed)
    sys.exit(0 if passed else 1)


if __name__ == "__main__":
    main()
