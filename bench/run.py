#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the benchmark, which measures all contenders on the same data in one run: Latchwork, what
people would use instead, and bare clients that show a limit.

The program starts a private Kafka and a private Redis, and fills the topics once. In each round, it
runs the contenders one after the other, each on an empty Redis with a consumer group of its own. It
writes each figure to a file of JSON lines as soon as the figure is measured, and at the end a table
and plots.

Without --full the program runs as many rounds as fit into --budget-s. With --full it measures
everything, except what an earlier run has measured with the same programs. It uses only the
standard library, and ends only processes that it started."""

import argparse
import dataclasses
import json
import os
import shutil
import signal
import statistics
import sys
import tempfile
import time

import plot
import table
from contenders import contenders
from measure import Measure
from servers import Failure, Kafka, Redis, make_cluster
from workloads import PARTITIONS, WARM, plan

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(ROOT, "tests/live"))
from lib.postgres import Postgres  # noqa: E402 (its folder is known only now)


def say(text):
    print(text, file=sys.stderr, flush=True)


class Rig:
    """The servers of a benchmark, and the folder for its files."""

    def __init__(self, build, folder, tls):
        self.folder = folder
        self.redis = Redis(os.path.join(folder, "redis"), tls)
        self.started_postgres = None  # set by the first workload that needs PostgreSQL
        # Masters of a Redis Cluster. The first workload that needs the cluster starts them.
        self.cluster = []
        # Redis servers for more shards. The first workload that needs these servers starts them.
        self.more = []
        try:
            self.kafka = Kafka(
                os.path.join(folder, "kafka"), os.path.join(build, "tests/tools/kafkatool")
            )
        except BaseException:
            self.redis.end()
            raise
        self.kafka.create("warm", PARTITIONS)
        self.kafka.tool("generate", "warm", "--messages", WARM, "--keys", WARM)

    def redises(self, n):
        while len(self.more) < n - 1:
            self.more.append(Redis(os.path.join(self.folder, f"redis-{len(self.more) + 2}")))
        return [self.redis] + self.more[: n - 1]

    def cluster_redises(self):
        """Returns a list of one Redis: the master of the cluster that has the slot of the only
        shard, and therefore does all the work."""
        self.cluster = self.cluster or make_cluster(os.path.join(self.folder, "cluster"))
        return self.cluster[:1]

    @property
    def postgres(self):
        """Returns a PostgreSQL that waits for the disk at each commit, as PostgreSQL does by
        default."""
        if not self.started_postgres:
            self.started_postgres = Postgres("-c", "fsync=on")
            self.started_postgres.start()
        return self.started_postgres

    def end(self):
        if self.started_postgres:
            self.started_postgres.remove()
        for r in [self.redis] + self.more + self.cluster:
            r.end()
        self.kafka.end()


class Results:
    """A file of JSON lines. Each line is the result of a run, and is written as soon as the run
    ends."""

    def __init__(self, path, keep):
        self.path, self.rows = path, []
        os.makedirs(os.path.dirname(path), exist_ok=True)
        if keep and os.path.exists(path):
            with open(path) as f:
                for line in f:
                    if not line.endswith("\n"):
                        # The line is incomplete: the benchmark ended while it wrote the line.
                        break
                    self.rows.append(json.loads(line))
        # Rewrite the file with only its complete lines, so that the next line is not appended to
        # one that was cut off.
        with open(path, "w") as f:
            for row in self.rows:
                f.write(json.dumps(row) + "\n")

    def add(self, row):
        self.rows.append(row)
        with open(self.path, "a") as f:
            f.write(json.dumps(row) + "\n")

    def finished(self, **what):
        return any(all(row.get(k) == v for k, v in what.items()) for row in self.rows)

    def median(self, workload, contender, figure, digest):
        values = [
            r[figure]
            for r in self.rows
            if r["workload"] == workload
            and r["contender"] == contender
            and r["digest"] == digest
            and figure in r
        ]
        return statistics.median(values) if values else None


class Bench:
    def __init__(self, o):
        self.o, self.begin, self.failures, self.costs = o, time.monotonic(), [], {}
        self.contenders = contenders(o.build, ROOT)
        self.digests = {c.name: c.digest() for c in self.contenders.values() if c.built()}
        self.results = Results(
            os.path.join(o.build, "bench", "results.jsonl" if o.full else "quick.jsonl"),
            o.report or (o.full and not o.fresh),
        )
        self.plan = [
            w for w in plan(o.full) if (w.name in o.only if o.only else o.full or not w.rare)
        ]
        for name in {c for w in self.plan for c in w.contenders} - set(self.digests):
            say(f"left out, not built: {self.contenders[name].label}")

    def what(self, workload, contender, number):
        return {
            "workload": workload.name,
            "contender": contender,
            "round": number,
            "spec": workload.spec,
            "digest": self.digests[contender],
        }

    def turns(self):
        """Yields the round, the workload and the contender of each run that is still to be
        measured, in order. Every other round has the contenders in reverse order."""
        for number in range(1, self.o.rounds + 1):
            for w in (w for w in self.plan if number <= w.most_rounds):
                names = [
                    c
                    for c in w.contenders
                    if c in self.digests and (not self.o.contender or c in self.o.contender)
                ]
                for name in names if number % 2 else names[::-1]:
                    if not self.results.finished(**self.what(w, name, number)):
                        yield number, w, name

    def left_s(self):
        return float("inf") if self.o.full else self.o.budget_s - (time.monotonic() - self.begin)

    def measure(self, m, number, w, name):
        begin = time.monotonic()
        if not self.o.full:
            w = dataclasses.replace(w, limit_s=min(w.limit_s, 30 + int(self.left_s())))
        try:
            w.data.fill(m.rig.kafka) if w.kind != "latency" else None
            r = m.run(
                w,
                self.contenders[name],
                self.results.median("W1", "ours", "rate", self.digests.get("ours")),
            )
        except Failure as e:
            self.failures.append(f"{w.name}, {self.contenders[name].label}, round {number}: {e}")
            say("  FAILED: " + self.failures[-1])
            return
        finally:
            self.costs[w.name, name] = time.monotonic() - begin
        self.results.add(self.what(w, name, number) | {"kind": w.kind, "at": time.time()} | r)
        say(
            f"  round {number}  {w.name:<13} {self.contenders[name].label:<28} "
            + table.short(r)
            + self.clock()
        )

    def clock(self):
        s = int(time.monotonic() - self.begin)
        return f"   [{s // 60}:{s % 60:02}" + (
            "]" if self.o.full else f" of {self.o.budget_s // 60}:{self.o.budget_s % 60:02}]"
        )

    def rounds(self, m):
        late = 0
        for number, w, name in self.turns():
            if self.costs.get((w.name, name), 0) > self.left_s() or self.left_s() < 10:
                late += 1
                continue
            self.measure(m, number, w, name)
        if late:
            say(
                f"time is up: {late} of the planned runs were left out; make bench-full runs them all"
            )

    def report(self):
        folder = os.path.join(self.o.build, "bench")
        specs = {w.name: w.spec for w in self.plan}
        rows = [
            r
            for r in self.results.rows
            if r["digest"] == self.digests.get(r["contender"])
            and r["spec"] == specs.get(r["workload"])
        ]
        text = table.whole(rows, self.plan, self.contenders, self.failures)
        with open(os.path.join(folder, "table.md"), "w") as f:
            f.write(text)
        for name, svg in plot.all_plots(rows, self.plan, self.contenders):
            with open(os.path.join(folder, name), "w") as f:
                f.write(svg)
        print(text)
        say(f"the table and the plots are in {os.path.relpath(folder)}")


def arguments():
    a = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    a.add_argument("--build", default="build")
    a.add_argument(
        "--full", action="store_true", help="everything; goes on where an earlier run stopped"
    )
    a.add_argument(
        "--fresh", action="store_true", help="with --full: forget what was measured before"
    )
    a.add_argument("--rounds", type=int, default=5)
    a.add_argument(
        "--budget-s", type=int, default=840, help="without --full: when to stop (default 840)"
    )
    a.add_argument("--only", nargs="+", metavar="WORKLOAD")
    a.add_argument("--contender", nargs="+", metavar="NAME")
    a.add_argument(
        "--report", action="store_true", help="only the table and the plots, from what is there"
    )
    a.add_argument("--list", action="store_true", help="name the workloads and contenders")
    a.add_argument(
        "--folder",
        help="for the servers' files (default: a new one in the folder for temporary files)",
    )
    return a.parse_args()


def main():
    o = arguments()
    o.build = os.path.abspath(o.build)
    if o.list:
        for w in plan(o.full):
            print(f"{w.name:<16} {w.title:<40} {' '.join(w.contenders)}")
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    b = Bench(o)
    if o.report:
        b.report()
        return 0
    folder, rig = tempfile.mkdtemp(prefix="lw-bench-", dir=o.folder), None
    try:
        say(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; starting Kafka and Redis")
        rig = Rig(o.build, folder, any(w.tls for w in b.plan))
        b.rounds(Measure(rig, o.build, b.contenders))
        b.report()
    finally:
        if rig:
            rig.end()
        shutil.rmtree(folder, ignore_errors=True)
    return 1 if b.failures else 0


if __name__ == "__main__":
    sys.exit(main())
