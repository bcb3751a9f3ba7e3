#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests that /readyz, the metrics and the log report the state of the workers' connections to
Kafka.
Usage: test_ready.py [BUILD [SCENARIO…]]"""

import os
import re
import signal
import urllib.error
import urllib.request

from lib.kafka import Kafka
from lib.latchwork import exec_handler
from lib.ports import free_port
from lib.process import send, wait_until
from lib.scenario import main, scenario

SHORT = {"session.timeout.ms": "6000", "heartbeat.interval.ms": "1000"}
# With the settings LONG, librdkafka notices the loss of its broker long after /readyz must have
# reported it.
LONG = {"session.timeout.ms": "45000", "heartbeat.interval.ms": "1000"}


class Health:
    def __init__(self, run, port):
        self.run, self.port = run, port

    def get(self, path):
        self.run.check_running()
        try:
            with urllib.request.urlopen(
                "http://127.0.0.1:%d%s" % (self.port, path), timeout=10
            ) as r:
                return r.status, r.read().decode()
        except urllib.error.HTTPError as e:
            return e.code, e.read().decode()
        except OSError as e:
            return 0, str(e)

    def workers(self, state):
        m = re.search(
            r'^latchwork_kafka_workers\{state="%s"\} (\d+)$' % state, self.get("/metrics")[1], re.M
        )
        return int(m.group(1)) if m else None

    def wait_ready(self, workers=2):
        wait_until(lambda: self.get("/readyz") == (200, "ok\n"), 60, "/readyz 200")
        assert self.workers("joined") == workers

    def wait_unready(self, state, pattern, workers=2):
        def unready():
            status, why = self.get("/readyz")
            return status == 503 and len(re.findall(pattern, why)) == workers

        wait_until(unready, 60, "/readyz 503 with " + pattern)
        wait_until(lambda: self.workers(state) == workers, 10, "workers that are " + state)
        assert self.get("/healthz") == (200, "ok\n"), "alive all the same"


def start(t, properties=SHORT, **over):
    port = free_port()
    run = t.start(
        workers=2, http={"listen": "127.0.0.1:%d" % port}, kafka={"properties": properties}, **over
    )
    return run, Health(run, port)


@scenario
def broker_dead_then_back(t):
    """The only broker is killed (kill -9). /readyz must answer 503 with the reason. When the broker
    is back, /readyz must answer 200, and messages must be handled again."""
    t.start_redis()
    t.make_topics(1)
    run, health = start(t)
    health.wait_ready()
    t.kafka.kill()
    health.wait_unready("unreachable", "is not ready: kafka: (no broker reachable|the coordinator)")
    wait_until(
        lambda: "not ready: kafka: no broker reachable" in run.log(),
        60,
        "a line of the log that says so",
    )
    t.kafka.start()
    health.wait_ready()
    wait_until(lambda: "serving again" in run.log(), 30, "a line of the log that says so")
    t.generate(50, keys=5)
    t.wait_finished()
    run.stop()
    t.judge()


@scenario
def broker_frozen(t):
    """The broker is stopped (SIGSTOP), so its connections stay up but it answers nothing. /readyz
    must answer 503 until the broker continues, and name the broker: also for workers whose session
    ends meanwhile, which join the group again. /healthz must answer 200."""
    t.start_redis()
    t.make_topics(1)
    both = [start(t, LONG), start(t, SHORT)]
    for _, health in both:
        health.wait_ready()
    send(t.kafka.pid(), signal.SIGSTOP)
    try:
        for _, health in both:
            # /readyz may also answer that a main loop does not turn, because a worker in a
            # rebalance waits for Kafka.
            told = (
                r"is not ready: kafka: .* has not answered for \d+ s|no main-loop turn for \d+ ms"
            )
            wait_until(
                lambda: (
                    health.get("/readyz")[0] == 503
                    and len(re.findall(told, health.get("/readyz")[1])) == 2
                ),
                50,
                "/readyz 503",
            )
            wait_until(lambda: health.workers("silent"), 30, "workers that say so")
            assert health.get("/healthz") == (200, "ok\n"), "alive all the same"
    finally:
        send(t.kafka.pid(), signal.SIGCONT)
    for _, health in both:
        health.wait_ready()
    for run, _ in both:
        run.stop()


@scenario
def broker_frozen_before_the_start(t):
    """The workers have never had a connection to Kafka. They must not be ready, although Redis
    answers and their main loops turn."""
    t.start_redis()
    t.make_topics(1)
    send(t.kafka.pid(), signal.SIGSTOP)
    try:
        run, health = start(t)
        health.wait_unready("unreachable", "is not ready: kafka: no broker reachable")
    finally:
        send(t.kafka.pid(), signal.SIGCONT)
    health.wait_ready()
    run.stop()


@scenario
def spare_member(t):
    """There are more workers than partitions. A worker without a partition must be ready as long as
    it is a member of the group."""
    t.start_redis()
    t.make_topics(1, partitions=1)
    run, health = start(t)
    health.wait_ready()
    wait_until(
        lambda: "in the group, without a partition" in health.get("/api/v1/workers")[1],
        30,
        "the remark about it",
    )
    t.kafka.kill()
    health.wait_unready("unreachable", "is not ready: kafka: ")
    t.kafka.start()
    health.wait_ready()
    run.stop()


@scenario
def wrong_topic(t):
    """A topic does not exist. In one case it is the only topic, and in the other case another topic
    exists. /readyz must answer 503 with the name of the missing topic. When the topic has been
    created, /readyz must answer 200."""
    t.start_redis()
    t.make_topics(1)
    existing = list(t.topics)
    for n, beside in enumerate(([], existing)):
        missing = "%s-missing-%d" % (t.id, n)
        t.topics = beside + [missing]
        # While librdkafka reads other topics, it looks for a missing topic only once per interval.
        # Set the interval to 3 s, because the default is five minutes.
        run, health = start(t, dict(SHORT, **{"topic.metadata.refresh.interval.ms": "3000"}))
        health.wait_unready("no_topic", "is not ready: kafka: topic %s does not exist" % missing)
        # The topic has one partition, so one of the two workers gets none.
        t.kafka.create(missing, 1)
        health.wait_ready()
        run.stop()


@scenario
def no_rights_to_the_group(t):
    """READ on the group is denied. /readyz must answer 503 with the broker's reason. When the right
    is granted, /readyz must answer 200."""
    t.start_redis()
    shared = t.rig.broker
    t.rig.broker = Kafka(
        t.rig.build,
        os.path.join(t.dir, "kafka"),
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found=true",
    )
    try:
        t.kafka.start()
        t.make_topics(1)
        right = ["--deny-principal", "User:ANONYMOUS", "--operation", "Read", "--group", t.id]
        t.kafka.acl("--add", *right)
        run, health = start(t)
        health.wait_unready(
            "refused",
            r"is not ready: kafka: the brokers have refused this client for \d+ s: .*[Aa]uthorization failed",
        )
        t.kafka.acl("--remove", *right)
        health.wait_ready()
        run.stop()
    finally:
        t.rig.broker.kill()
        t.rig.broker = shared


@scenario
def redis_away(t):
    """Redis is killed. While it is down, the workers must not be ready."""
    t.start_redis()
    t.make_topics(1)
    run, health = start(t)
    health.wait_ready()
    t.redis.kill()
    wait_until(
        lambda: (
            len(re.findall("is not ready: redis shard 0: not connected", health.get("/readyz")[1]))
            == 2
        ),
        60,
        "/readyz 503",
    )
    t.check(health.workers("joined") == 2, "Kafka is as it was")
    t.redis.start()
    health.wait_ready()
    run.stop()


@scenario
def handler_cannot_start(t):
    """The handler's process dies when it starts. No attempt may be counted, no message may be dead,
    and /readyz must give the reason with the last line of stderr. When the handler can start, every
    message must be done at its first attempt."""
    t.start_redis()
    t.make_topics(1)
    module = os.path.join(t.dir, "nosuchmodule.py")
    handler = exec_handler()
    work = handler["command"][-1]
    broken = os.path.join(t.dir, "broken.py")
    with open(broken, "w") as f:
        f.write(
            "import runpy, sys\nsys.path[:0] = [%r, %r]\nimport nosuchmodule\nrunpy.run_path(%r, run_name='__main__')\n"
            % (t.dir, os.path.dirname(work), work)
        )
    run, health = start(t, handler=dict(handler, command=handler["command"][:-1] + [broken]))
    t.generate(200, keys=20)
    wait_until(
        lambda: (
            len(
                re.findall(
                    "is not ready: handler: .*ModuleNotFoundError: No module named 'nosuchmodule'",
                    health.get("/readyz")[1],
                )
            )
            == 2
        ),
        60,
        "/readyz 503 with the reason",
    )
    wait_until(lambda: run.log().count("pausing for 2000 ms") >= 1, 60, "a backoff that grows")
    t.check(health.get("/healthz")[0] == 200, "alive all the same")
    with open(module, "w"):
        pass
    t.wait_finished()
    health.wait_ready()
    run.stop()
    runs, again = t.judge()
    t.same([r for r in runs if r.attempt != 1], [], "burnt attempts")


if __name__ == "__main__":
    os.environ.setdefault("PYTHONDONTWRITEBYTECODE", "1")
    main()
