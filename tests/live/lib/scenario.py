# SPDX-License-Identifier: Apache-2.0
"""Scenarios: functions that get a Scenario `t`, cause faults, and check that promises are kept.

A test file ends with a call of main(). Its arguments are the build folder and the names of
scenarios (default: all). LW_SOAK=1 makes scenarios ten times as long. LW_KEEP=1 keeps the folders
of scenarios even if they passed."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback

from . import journal, latchwork, oracles
from .kafka import CommitSampler, Kafka, wait_finished
from .process import Failure, Limit, end_popen
from .redis import Redis

SOAK = 10 if os.environ.get("LW_SOAK") else 1
PARTITIONS = 4
# For scenarios in which no message may run twice: a lease that ends because the machine is slow
# runs its message again.
NO_LEASE_ENDS = {"ttl_ms": 20000}
ENDLESS = 10**6  # messages: a load that lasts until end_load(), however slow the scenario is
scenarios = []


def scenario(function):
    scenarios.append(function)
    return function


def variants(function, **arguments):
    """Adds, for each NAME=ARGUMENT, a scenario NAME that calls function(t, ARGUMENT)."""
    for name, argument in arguments.items():

        def one(t, argument=argument):
            function(t, argument)

        one.__name__ = name
        scenario(one)


def more(function):
    """Marks a scenario that resembles another one. A marked scenario runs only if it is named, or
    if LW_MORE is set."""
    function.more = True
    return scenario(function)


class Rig:
    """The common parts of the scenarios of one file: the build, and one Kafka, which starts when a
    scenario first needs it."""

    def __init__(self, build):
        self.build = os.path.abspath(build)
        self.dir = tempfile.mkdtemp(prefix="latchwork-live.")
        self.broker = None
        self.n = 0

    @property
    def kafka(self):
        if not self.broker:
            self.broker = Kafka(self.build, os.path.join(self.dir, "kafka"))
            self.broker.start()
        return self.broker

    def close(self, keep):
        if self.broker:
            self.broker.kill()
        if not keep:
            shutil.rmtree(self.dir, ignore_errors=True)


class Scenario:
    def __init__(self, rig, name):
        rig.n += 1
        self.rig, self.name = rig, name
        self.id = "%s-%d" % (name.replace("_", "-"), rig.n)
        self.dir = os.path.join(rig.dir, name)
        os.makedirs(self.dir)
        self.journal_path = os.path.join(self.dir, "journal")
        # `redis` is the first Redis server, and `servers` are all of them.
        self.redis, self.servers = None, []
        self.shards = 1
        self.topics = []
        self.instances, self.tools, self.commands, self.samplers = [], [], [], []
        self.figures, self.violations = {}, []
        # The identities of messages that are expected to end as dead letters or to be skipped.
        self.dead = set()
        # True if the scenario takes rights from the workers' Redis user.
        self.rights_taken = False
        # A list of (pid of a worker, time of its SIGSTOP in µs of the boot clock).
        self.stops = []
        self.begun = time.monotonic()

    # --- parts ------------------------------------------------------------------------------------

    @property
    def kafka(self):
        return self.rig.kafka

    def start_redis(self, *options, servers=1, shards=1):
        """Starts the Redis servers. Shard s is on the server with the number s modulo the number of
        servers."""
        self.shards = shards
        for i in range(servers):
            self.servers.append(
                Redis(os.path.join(self.dir, "redis-%d" % i if i else "redis"), *options)
            )
            self.servers[i].start()
        self.redis = self.servers[0]

    def make_topics(self, n=2, partitions=PARTITIONS):
        self.topics = ["%s-%s" % (self.id, "abcdef"[i]) for i in range(n)]
        for topic in self.topics:
            self.kafka.create(topic, partitions)

    def generate(self, messages, keys, rate=0, zipf=0.8, partitioner="random", wait=True, first=0):
        """Produces `messages` records in total, with the same keys in all partitions of all topics,
        numbered from `first`. If `wait` is false, producing continues in the background."""
        share = messages // len(self.topics)
        tools = []
        for i, topic in enumerate(self.topics):
            tools.append(
                self.kafka.begin_tool(
                    "generate",
                    topic,
                    "--messages",
                    share,
                    "--keys",
                    keys,
                    "--zipf",
                    zipf,
                    "--seed",
                    i + 1,
                    "--first",
                    first + i * share,
                    "--partitioner",
                    partitioner,
                    "--rate",
                    rate // len(self.topics),
                )
            )
        self.tools += tools
        if wait:
            self.wait_produced()

    def wait_produced(self, limit_s=300):
        for tool in self.tools:
            if tool.wait(limit_s):
                raise Failure("kafkatool generate failed")

    def end_load(self):
        """Ends what produces ENDLESS messages. The records that are in Kafka by then are those of
        the scenario."""
        self.check(self.producing(), "the load ended too early")
        for tool in self.tools:
            end_popen(tool, 10)
        self.tools = []

    def producing(self):
        return any(tool.poll() is None for tool in self.tools)

    def start(self, *options, label=None, work_ms="0-4", environment=None, build=None, **over):
        """Starts `latchwork run` from the folder `build`, which is by default the build under
        test."""
        settings = latchwork.config(
            self.id, self.kafka.brokers, self.redis.url_of(self.id), self.topics, **over
        )
        if self.shards > 1 and self.redis.url_of(self.id):
            settings["redis"].update(
                url=[server.url_of(self.id) for server in self.servers], shards=self.shards
            )
        label = label or "run-%d" % (len(self.instances) + 1)
        self.make_user(settings)
        env = {"LW_TEST_JOURNAL": self.journal_path, "LW_TEST_WORK_MS": work_ms}
        if settings["handler"]["type"] != "exec":
            env["LATCHWORK_JOURNAL"] = self.journal_path
        instance = latchwork.Instance(
            build or self.rig.build,
            self.dir,
            label,
            settings,
            dict(env, **(environment or {})),
            *options,
        )
        self.instances.append(instance)
        return instance

    def make_user(self, settings):
        """Makes workers and commands log in, from now on, as a Redis user with the rights that
        `check --acl` prints. Only the test itself keeps all rights."""
        if all(self.id in server.users for server in self.servers):
            return
        path = os.path.join(self.dir, "acl")
        with open(path, "w") as f:
            json.dump(settings, f)
        line = subprocess.run(
            [os.path.join(self.rig.build, "latchwork"), "check", "--acl", self.id, "-c", path],
            check=True,
            timeout=60,
            stdout=subprocess.PIPE,
            text=True,
        ).stdout
        for server in self.servers:
            server.grant(line)

    def sample_commits(self, every_s=0.4):
        sampler = CommitSampler(self.kafka, self.id, self.topics, every_s)
        self.samplers.append(sampler)
        sampler.start()
        return sampler

    def visit(self, port):
        """Starts to ask the page's process of an instance for all that it tells."""
        visitor = latchwork.Visitor(port)
        self.samplers.append(visitor)
        visitor.start()
        return visitor

    # --- waiting and looking ----------------------------------------------------------------------

    def runs(self):
        return journal.read(self.journal_path)

    def ends_so_far(self):
        return journal.done_count(self.journal_path)

    def wait_finished(self, limit_s=120):
        """Waits until all records are produced and committed. Fails if all instances have ended
        before."""
        self.wait_produced()

        def watch():
            if not any(i.running() for i in self.instances):
                self.instances[-1].check_running()

        return wait_finished(self.kafka, self.id, self.topics, limit_s * SOAK, watch)

    def prefix(self, shard=0):
        return b"lw:{%s}:" % self.redis.tag(self.id, shard, self.shards).encode()

    def dead_letters(self, shard=0):
        """Returns the entries of the stream of dead letters in Redis, each as {field: value}."""
        entries = self.redis.call("XRANGE", self.prefix(shard) + b"dead", "-", "+")
        return [dict(zip(f[::2], f[1::2])) for _, f in entries]

    # --- judging ----------------------------------------------------------------------------------

    def check(self, good, text):
        if not good:
            self.violations.append(text)

    def same(self, got, wanted, what):
        self.check(got == wanted, "%s: %r, not %r" % (what, got, wanted))

    def expect(self, violations):
        if violations:
            self.violations.append("%d × %s" % (len(violations), oracles.shown(violations)))

    def figure(self, **figures):
        self.figures.update(figures)

    def judge(self, wiped=False, samples=None, unordered=()):
        """Applies the oracles that hold in every scenario. If `wiped` is true, Redis lost data, so
        messages that are done may run again, in order. `unordered` contains the identities of
        messages that later messages of their key may overtake (retry.order skip)."""
        runs, ends = self.runs(), self.kafka.ends(self.topics)
        leased = oracles.under_lease(runs, self.stops)
        self.expect(oracles.overlaps(leased, self.stops))
        self.expect(oracles.fences(leased))
        ordered = [r for r in leased if r.identity not in unordered]
        self.expect(oracles.misordered([r for r in runs if r.identity not in unordered]))
        self.expect(oracles.stale_last(ordered, self.stops))
        self.expect(oracles.lost(ends, runs, self.dead))
        self.expect(oracles.unknown(ends, runs))
        if not wiped:
            self.expect(oracles.backwards(ordered))
        if samples is not None:
            self.expect(oracles.passed(samples, runs, self.dead))
            self.expect(oracles.moved_back(samples))
            self.figure(samples=len(samples))
        again = oracles.reruns(runs)
        self.figure(
            messages=sum(high - low for low, high in ends.values()),
            runs=len(runs),
            reruns=len(again),
        )
        return runs, again

    def left_on(self, i):
        """Returns a text for each key in Redis server i that should not exist when all messages are
        finished. Examines the keys of the server's shards, and the keys that belong to no shard."""
        mine = [self.prefix(shard) for shard in range(i, self.shards, len(self.servers))]
        names = [
            name for name in self.servers[i].keys() if not self.expiring(self.servers[i], name)
        ]
        left = [name for name in names if not name.startswith(tuple(mine))]
        return oracles.not_idle(left, self.prefix(i)) + [
            text
            for prefix in mine
            for text in oracles.not_idle(
                [name for name in names if name.startswith(prefix)], prefix
            )
        ]

    @staticmethod
    def expiring(server, name):
        """Returns True if the key may stay because it goes by itself: it records a business id, or
        is the list of hints that a worker had claimed before it ended. Such a list may be without
        an expiry while the worker is in `workers`, since tend removes it with the worker."""
        shard, _, worker = name.partition(b":claimed:")
        known = worker and server.call("ZSCORE", shard + b":workers", worker)
        return bool(known) or (
            any(part in name for part in (b"}:claimed:", b"}:dedup:"))
            and server.call("PTTL", name) >= 0
        )

    def judge_idle(self):
        """O4: if the workers keep running after all messages are finished, they must soon remove
        all remaining keys of lanes from Redis."""
        left = ["?"]
        limit = Limit(15)
        while left and not limit.over():
            left = [text for i in range(len(self.servers)) for text in self.left_on(i)]
            time.sleep(0.2)
        self.expect(left)

    def judge_rights(self):
        """Checks that Redis refused no command of a worker or an operator, which shows that the
        rights of `check --acl` are sufficient."""
        for server in self.servers:
            if not self.rights_taken and server.server.poll() is None:
                self.expect(
                    ["user %s was refused: %s %s" % refusal for refusal in server.refusals()]
                )

    # --- the end ----------------------------------------------------------------------------------

    def close(self):
        for sampler in self.samplers:
            sampler.over.set()
        for instance in self.instances:
            instance.destroy()
        for tool in self.tools + self.commands:
            end_popen(tool, 1)
        for server in self.servers:
            server.stop()


def run_one(rig, function):
    t = Scenario(rig, function.__name__)
    begun = time.monotonic()
    try:
        function(t)
        t.judge_rights()
    except Failure as e:
        t.violations.append(str(e))
    except Exception:
        t.violations.append(traceback.format_exc())
    except SystemExit:  # SIGTERM
        t.close()
        raise
    try:
        t.close()
    except Exception:
        t.violations.append(traceback.format_exc())
    figures = ", ".join(
        "%s %s" % (name.replace("_", " "), value) for name, value in t.figures.items()
    )
    print(
        "%-8s%s (%s; %.0f s)"
        % ("FAILED" if t.violations else "ok", t.name, figures, time.monotonic() - begun)
    )
    for violation in t.violations:
        print("    " + violation.replace("\n", "\n    "))
    if t.violations:
        print("    files: " + t.dir)
    sys.stdout.flush()
    if not t.violations and not os.environ.get("LW_KEEP"):
        shutil.rmtree(t.dir, ignore_errors=True)
    return not t.violations


def main():
    build = sys.argv[1] if len(sys.argv) > 1 else "build"
    names, every = sys.argv[2:], bool(os.environ.get("LW_MORE"))
    chosen = [
        s for s in scenarios if (s.__name__ in names if names else every or not hasattr(s, "more"))
    ]
    # If SIGTERM ends the test, the servers of the test must also end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    rig = Rig(build)
    passed = failed = 0
    try:
        for function in chosen:
            if run_one(rig, function):
                passed += 1
            else:
                failed += 1
    finally:
        rig.close(keep=failed > 0 or "LW_KEEP" in os.environ)
    print("%d passed, %d failed" % (passed, failed))
    sys.exit(1 if failed or not passed else 0)
