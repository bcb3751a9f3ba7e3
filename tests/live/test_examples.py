#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the programs in examples/ as their READMEs describe them. Each example must pass `handler
test`, then drain a topic of a real Kafka, and the messages must have the effect that the README
describes.
Usage: test_examples.py [BUILD [SCENARIO…]]"""

import glob
import json
import os
import random
import shutil
import subprocess
import sys
import urllib.request

from lib.postgres import Postgres
from lib.ports import free_port
from lib.process import Failure, end_popen, wait_until
from lib.scenario import main, scenario

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
MESSAGES, CUSTOMERS = 1200, 60


class Example:
    """A copy of an example's folder, with the example's service running. Leaving the `with` block
    ends the service."""

    def __init__(self, t, name):
        t.start_redis()
        t.make_topics()
        self.t, self.service = t, None
        shutil.copytree(os.path.join(ROOT, "examples", name), os.path.join(t.dir, "examples", name))
        os.symlink(os.path.join(ROOT, "sdk"), os.path.join(t.dir, "sdk"))
        self.dir = os.path.join(t.dir, "examples", name)
        self.config = [
            os.path.basename(p)
            for p in glob.glob(self.dir + "/*.json")
            if os.path.basename(p) != "package.json"
        ][0]
        self.port = free_port()
        self.env = dict(
            os.environ,
            BROKER=t.kafka.brokers,
            REDIS=t.redis.url,
            PYTHONPATH=os.path.join(ROOT, "sdk/python"),
            SERVICE="127.0.0.1:%d" % self.port,
            GOPROXY="off",
            npm_config_offline="true",
            npm_config_cache=os.path.join(t.dir, "npm"),
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.service:
            end_popen(self.service, 0)

    def run(self, *command, limit_s=120):
        p = subprocess.run(
            command,
            cwd=self.dir,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            timeout=limit_s,
        )
        if p.returncode:
            raise Failure(
                "%s: status %d\n%s\n%s"
                % (" ".join(command), p.returncode, p.stdout[-2000:], p.stderr[-2000:])
            )
        return p.stdout

    def serve(self, *command):
        self.service = subprocess.Popen(
            [*command, str(self.port)], cwd=self.dir, env=self.env, stdin=subprocess.DEVNULL
        )
        wait_until(self.told, 20, "answer of the service")

    def told(self):
        """Returns the figures that the service reports about itself, or None if the service does
        not answer."""
        try:
            with urllib.request.urlopen("http://127.0.0.1:%d/" % self.port, timeout=5) as r:
                return json.loads(r.read())
        except OSError:
            return None

    def latchwork(self, *words):
        return self.run(os.path.join(self.t.rig.build, "latchwork"), *words)

    def test(self, *more):
        out = self.latchwork("handler", "test", "-c", self.config, *more)
        self.t.check("; as expected" in out, "handler test: " + out)

    def produce(self, payload, n=MESSAGES):
        """Produces the payloads payload(0) to payload(n - 1) without keys, spread over all topics
        and partitions."""
        places = [(topic, partition) for topic in self.t.topics for partition in range(4)]
        share = {}
        for i in range(n):
            topic, partition = random.Random(i).choice(places)
            share.setdefault(topic, []).append((partition, None, json.dumps(payload(i)).encode()))
        for topic, records in share.items():
            self.t.kafka.produce(topic, records)

    def drain_orders(self, *more):
        """Runs `handler test` on the example, and then drains orders through the example. Returns
        the figures of the example's service before and after the drain."""
        self.test(*more)
        before = self.told()
        self.produce(order)
        self.drains_all()
        return before, self.told()

    def drain(self, *more):
        """Runs the example until its topics are drained. Returns the summary."""
        topics = "kafka.topics=" + json.dumps(self.t.topics)
        out = self.latchwork(
            "run", "-c", self.config, "--drain", "--set", topics, "--set", "http.listen=off", *more
        )
        return [line for line in out.splitlines() if line.startswith("done ")][-1]

    def drains_all(self, n=MESSAGES, dead=0, *more):
        summary = self.drain(*more)
        self.t.check(
            summary.startswith("done %d dead %d " % (n - dead, dead)), "summary: " + summary
        )


def order(i):
    return {"id": "o-%d" % i, "customer": "c-%d" % (i % CUSTOMERS), "amount": i}


@scenario
def python_asyncio(t):
    with Example(t, "python-asyncio") as e:
        e.serve(sys.executable, "service.py")
        before, after = e.drain_orders("--chaos")
        t.same(after["billed"] - before["billed"], MESSAGES, "orders that the service billed")
        t.check(after["most_at_once"] > 20, "calls at once: %d" % after["most_at_once"])


@scenario
def node_pool(t):
    with Example(t, "node-pool") as e:
        e.run("npm", "install", "--no-audit", "--no-fund", os.path.join(ROOT, "sdk/node"))
        e.serve("node", "store.js")
        before, after = e.drain_orders()
        t.same(after["customers"], CUSTOMERS, "customers in the store")
        t.same(after["writes"] - before["writes"], MESSAGES, "writes")
        # There are two workers with one process each, and each process opens at most 10
        # connections. Each call of e.told() by the test opens one more.
        t.check(
            after["connections"] - before["connections"] <= 25,
            "connections: %d" % (after["connections"] - before["connections"]),
        )


@scenario
def go_files(t):
    with Example(t, "go-files") as e:
        e.run("go", "build", "-o", "handler", ".")
        e.test("--chaos")
        shutil.rmtree(os.path.join(e.dir, "accounts"))
        e.produce(order)
        e.drains_all()
        sums = {}
        for path in glob.glob(e.dir + "/accounts/*.json"):
            with open(path) as f:
                sums[os.path.basename(path)[:-5]] = json.load(f)["amount"]
        want = {}
        for i in range(MESSAGES):
            o = order(i)
            want[o["customer"]] = want.get(o["customer"], 0) + o["amount"]
        t.same(sums, want, "sums of the customers")


@scenario
def postgres_upsert(t):
    with Postgres() as pg, Example(t, "postgres-upsert") as e:
        with open(os.path.join(e.dir, "table.sql")) as f:
            pg.sql(f.read())
        e.env["STORE"] = pg.url
        e.test()
        t.same(pg.sql("SELECT count(*) FROM customers"), [["0"]], "rows that the test left")
        # All messages of a customer are in one partition, so their order is fixed, and the last
        # message is the newest.
        records = {}
        for i in range(MESSAGES):
            c = i % CUSTOMERS
            value = {"id": "c-%d" % c, "name": "n", "visits": i // CUSTOMERS, "profile": {"i": i}}
            records.setdefault(t.topics[c % 2], []).append(
                (c % 4, None, json.dumps(value).encode())
            )
        for topic, share in records.items():
            t.kafka.produce(topic, share)
        e.drains_all()
        last = MESSAGES // CUSTOMERS - 1
        t.same(
            pg.sql("SELECT count(*), min(visits), max(visits) FROM customers"),
            [[str(CUSTOMERS), str(last), str(last)]],
            "rows",
        )


@scenario
def same_keys(t):
    with Example(t, "same-keys") as e:
        e.test("--chaos")
        e.produce(lambda i: {"id": "row-%d" % (i % CUSTOMERS), "amount": i})
        e.drains_all()
        e.drains_all(MESSAGES, 0, "--workers", "8", "--set", "name=again")
        counted = e.run(
            "sqlite3",
            "rows.db",
            "SELECT app, name, n FROM latchwork_count WHERE name IN ('inserted', 'ignored') ORDER BY app, name DESC",
        )
        t.same(
            counted.split(),
            [
                "again|ignored|%d" % MESSAGES,
                "same-keys|inserted|%d" % CUSTOMERS,
                "same-keys|ignored|%d" % (MESSAGES - CUSTOMERS),
            ],
            "rows inserted and duplicates ignored",
        )
        t.same(
            e.run("sqlite3", "rows.db", "SELECT count(*), count(DISTINCT id) FROM rows").split(),
            ["%d|%d" % (CUSTOMERS, CUSTOMERS)],
            "rows",
        )


@scenario
def http_python(t):
    with Example(t, "http-python") as e:
        e.serve(sys.executable, "server.py")
        before, after = e.drain_orders("--chaos")
        t.same(after["orders"] - before["orders"], MESSAGES, "orders that the server has")


if __name__ == "__main__":
    main()
