#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests a Kafka with SASL PLAIN and ACLs. If a right is missing, `check --connect` and a running
worker must name the right, its resource and its user. With all rights, `check` must find no error.
`check` must write nothing to Kafka.
Usage: test_kafka_rights.py [BUILD]"""

import json
import os
import re
import subprocess
import sys
import tempfile

from lib.kafka import Kafka
from lib.ports import free_ports
from lib.process import end_popen, wait_until
from lib.redis import Redis

BUILD = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "build")
GROUP, TOPIC, DEAD = "orders-group", "orders", "orders.dead"
RIGHTS = {
    "group": (("read", "group", GROUP), 'user "%s" may not READ the consumer group ' + GROUP),
    "topic": (
        ("read", "topic", TOPIC),
        'kafka.topics: .*' + TOPIC + '.*user "%s" (may not (READ|DESCRIBE)|to DESCRIBE)',
    ),
    "dead": (
        ("write", "topic", DEAD),
        'dead.to: .*' + DEAD + '.*user "%s" (may not (WRITE|DESCRIBE)|to DESCRIBE)',
    ),
}
# Some errors are worded differently in the log of a running worker and in the output of `check`.
# For these errors, LOGGED contains the texts in the log: {missing right: text}.
LOGGED = {
    "topic": 'user "%s" may not READ topic ' + TOPIC,
    "dead": 'user "%s" may not WRITE topic ' + DEAD,
}


def start(directory):
    port = free_ports(3)
    os.makedirs(directory)
    with open(os.path.join(directory, "port"), "w") as f:
        f.write(str(port))
    users = " ".join(
        'user_%s="pw"' % u
        for u in ["all", "none"] + ["no_" + r for r in RIGHTS] + ["sees_" + r for r in RIGHTS]
    )
    kafka = Kafka(
        BUILD,
        directory,
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users=User:ANONYMOUS",
        "listeners=PLAINTEXT://127.0.0.1:%d,CONTROLLER://127.0.0.1:%d,SASL://127.0.0.1:%d"
        % (port, port + 1, port + 2),
        "advertised.listeners=PLAINTEXT://127.0.0.1:%d,SASL://127.0.0.1:%d" % (port, port + 2),
        "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms=PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required %s;"
        % users,
    )
    kafka.start()
    return kafka, "127.0.0.1:%d" % (port + 2)


def allow(kafka, users, what):
    for user in users:
        kafka.tool("allow", "User:" + user, *what)


def configure(directory, brokers, redis, user):
    path = os.path.join(directory, user + ".json")
    with open(path, "w") as f:
        json.dump(
            {
                "name": "orders",
                "workers": 1,
                "dead": {"to": "topic:" + DEAD},
                "redis": {"url": redis.url},
                "http": {"listen": "off"},
                "handler": {"type": "exec", "command": ["cat"]},
                "kafka": {
                    "topics": [TOPIC],
                    "properties": {
                        "bootstrap.servers": brokers,
                        "group.id": GROUP,
                        "security.protocol": "sasl_plaintext",
                        "sasl.mechanism": "PLAIN",
                        "sasl.username": user,
                        "sasl.password": "pw",
                        "session.timeout.ms": 6000,
                    },
                },
            },
            f,
        )
    return path


def logged(directory, brokers, redis, user, said):
    """Checks that the pattern `said` matches the log of a worker that logs in as `user`."""
    path = configure(directory, brokers, redis, user)
    with open(path + ".log", "wb") as log:
        run = subprocess.Popen(
            [BUILD + "/latchwork", "run", "-c", path],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    try:

        def found():
            assert run.poll() is None, "the fleet of %s ended" % user
            with open(path + ".log", errors="replace") as f:
                return re.search(said, f.read())

        wait_until(found, 60, "%s in the log of %s" % (said, user))
    finally:
        assert end_popen(run, 40) == 0, "status of the fleet of " + user


def check(directory, brokers, redis, user, what="errors"):
    path = configure(directory, brokers, redis, user)
    done = subprocess.run(
        [BUILD + "/latchwork", "check", "--connect", "-c", path, "--json"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    return [e for e in json.loads(done.stdout)[what] if "redis" not in e and "handler" not in e]


def main():
    with tempfile.TemporaryDirectory() as directory:
        redis = Redis(os.path.join(directory, "redis"))
        redis.start()
        kafka, brokers = start(os.path.join(directory, "kafka"))
        try:
            kafka.create(TOPIC, 2)
            kafka.create(DEAD, 1)
            for right, (what, _) in RIGHTS.items():
                others = [kind + r for r in RIGHTS if r != right for kind in ("no_", "sees_")]
                allow(kafka, ["all"] + others, what)
                allow(kafka, ["sees_" + right], ("describe",) + what[1:])
            wait_until(
                lambda: check(directory, brokers, redis, "all") == [],
                60,
                "a check of a user that has all rights",
            )
            # Only operators read the dead-letter topic, so without this right there is a warning.
            unread = 'dead.to: %s: user "all" may not READ it .*page cannot show' % DEAD
            warnings = lambda: check(directory, brokers, redis, "all", "warnings")  # noqa: E731
            assert any(re.search(unread, w) for w in warnings()), warnings()
            allow(kafka, ["all"], ("read", "topic", DEAD))
            wait_until(
                lambda: not any(re.search(unread, w) for w in warnings()),
                60,
                "a check that warns of no right",
            )
            for missing, (_, said) in RIGHTS.items():
                for user in ("no_" + missing, "sees_" + missing):
                    errors = check(directory, brokers, redis, user)
                    assert errors and all(re.search(said % user, e) for e in errors), (user, errors)
            errors = check(directory, brokers, redis, "none")
            assert all(
                any(re.search(said % "none", e) for e in errors) for _, said in RIGHTS.values()
            ), errors
            assert kafka.ends([DEAD]) == {(DEAD, 0): (0, 0)}, "nothing was written"
            assert all(at < 0 for at, _ in kafka.committed(GROUP, [TOPIC]).values()), (
                "nothing was committed"
            )
            kafka.produce(TOPIC, [(0, None, b"without a key: a dead letter")])
            for missing, (_, said) in RIGHTS.items():
                user = "sees_" + missing
                logged(directory, brokers, redis, user, LOGGED.get(missing, said) % user)
        finally:
            kafka.stop()
            redis.stop()
    print("1 passed, 0 failed")


main()
