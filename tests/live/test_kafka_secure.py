#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests Kafka with TLS, SASL and ACLs. Messages must be handled over each kind of connection.
`check --connect` and a running worker's log must name each mistake with its cause. No log, output
of `check` or command line may contain a secret.
Usage: test_kafka_secure.py [BUILD [SCENARIO…]]
Without arguments, only the scenarios scram_tls and tls_mistakes run. With LW_MORE=1, all run."""

import json
import os
import re
import subprocess

from lib.process import descendants, wait_until
from lib.scenario import main, more, scenario
from lib.secure import PASSWORD, SecureKafka

USERS = ("orders", "nobody")


def begin(t):
    """Starts a Redis, and creates a topic and a dead-letter topic. The first call also starts the
    secured Kafka that all scenarios of this file share."""
    if not isinstance(t.rig.broker, SecureKafka):
        t.rig.broker = SecureKafka(t.rig.build, os.path.join(t.rig.dir, "kafka"), USERS)
        t.rig.broker.start()
    t.start_redis()
    t.make_topics(1)
    t.kafka.create(t.id + ".dead", 1)


def settings(t, properties):
    return dict(kafka={"properties": properties}, dead={"to": "topic:%s.dead" % t.id}, workers=1)


def check(t, properties):
    """Returns the errors of `check --connect` that concern Kafka or the dead-letter topic."""
    path = os.path.join(t.dir, "check.json")
    kafka = {"topics": t.topics, "properties": dict(properties, **{"group.id": t.id})}
    with open(path, "w") as f:
        json.dump(
            {
                "name": t.id,
                "kafka": kafka,
                "redis": {"url": t.redis.url},
                "dead": {"to": "topic:%s.dead" % t.id},
                "handler": {"type": "exec", "command": ["cat"]},
            },
            f,
        )
    done = subprocess.run(
        [os.path.join(t.rig.build, "latchwork"), "check", "--connect", "-c", path, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    t.check(PASSWORD not in done.stdout, "check shows the password")
    return [e for e in json.loads(done.stdout)["errors"] if "kafka" in e or "dead.to" in e]


def no_secrets(t, run):
    t.check(PASSWORD not in run.log(), "the log shows the password")
    for pid in [run.pid] + descendants(run.pid):
        try:
            with open("/proc/%d/cmdline" % pid, "rb") as f:
                t.check(PASSWORD.encode() not in f.read(), "a command line shows the password")
        except OSError:
            pass


def works(t, user, properties, messages=300, seconds=1):
    """`check` must find no error. A fleet must handle every message that has a key, and must send
    the message without a key to the dead-letter topic."""
    t.kafka.allow_all(user, t.id, t.topics, t.id + ".dead")
    wait_until(
        lambda: check(t, properties) == [], 60, "a check without errors: %s" % check(t, properties)
    )
    run = t.start(
        log={"level": "debug"}, **settings(t, dict(properties, debug="conf,security,broker"))
    )
    t.generate(messages, keys=20, rate=messages // seconds)
    t.kafka.produce(t.topics[0], [(0, None, b"no key")])
    t.wait_finished()
    wait_until(lambda: len(t.kafka.dump(t.id + ".dead")) == 1, 30, "dead letter")
    t.dead.update(
        dict(letter["headers"])["latchwork-origin"] for letter in t.kafka.dump(t.id + ".dead")
    )
    no_secrets(t, run)
    run.stop()
    t.judge()


def named(t, properties, said, label, errors=None):
    """Checks that the pattern `said`, which names the cause of an error, matches the output of
    `check` and the log of a running worker."""
    found = check(t, properties) if errors is None else errors
    t.check(
        any(re.search(said, e) for e in found), "check does not name it (%s): %s" % (said, found)
    )
    run = t.start(label=label, **settings(t, properties))
    try:
        wait_until(lambda: re.search(said, run.log()), 60, "%s in the log of %s" % (said, label))
    finally:
        no_secrets(t, run)
        run.destroy()


@scenario
def scram_tls(t):
    """Messages must be handled over SASL SCRAM with TLS."""
    begin(t)
    works(t, "orders", t.kafka.client("SASLTLS", "SCRAM-SHA-512", "orders"))


@scenario
def tls_mistakes(t):
    """`check` and the log must name each of these mistakes: a wrong password, a wrong CA, an
    expired certificate, a certificate for another host name, a listener without TLS, an address
    without a broker."""
    begin(t)
    k = t.kafka
    named(
        t,
        k.client("SASLTLS", "SCRAM-SHA-256", "orders", password="wrong"),
        "[Aa]uthentication (error|failed)",
        "wrong-password",
    )
    # A second address without a broker must not hide the error that the first broker reports.
    two = dict(
        k.client("SASLTLS", "SCRAM-SHA-256", "orders", password="wrong"),
        **{"bootstrap.servers": k.at["SASLTLS"] + ",127.0.0.1:1"},
    )
    named(t, two, "[Aa]uthentication (error|failed)", "wrong-password-two-addresses")
    named(
        t,
        k.client("SASLTLS", "SCRAM-SHA-256", "orders", ca="strange-ca"),
        "certificate is not accepted: its CA is not in ssl.ca.location",
        "wrong-ca",
    )
    named(t, k.client("EXPIRED"), "certificate is not accepted: it has expired", "expired")
    named(
        t,
        k.client("OTHERNAME"),
        "certificate is not accepted: it is for another host name",
        "other-name",
    )
    named(
        t,
        dict(k.client("MTLS"), **{"bootstrap.servers": k.brokers}),
        "Perhaps this listener has no TLS|connecting to a PLAINTEXT broker listener",
        "no-tls",
    )
    named(
        t,
        dict(k.client("MTLS"), **{"bootstrap.servers": "127.0.0.1:1"}),
        "Connection refused",
        "nobody",
    )


@more
def plain_tls(t):
    begin(t)
    works(t, "orders", t.kafka.client("SASLTLS", "PLAIN", "orders"))


@more
def scram_256(t):
    begin(t)
    works(t, "orders", t.kafka.client("SASL", "SCRAM-SHA-256", "orders"))


@more
def oauthbearer(t):
    """The unsigned tokens of SASL OAUTHBEARER expire, and must be renewed while the fleet works.
    With librdkafka before 2.8, `check` must refuse the configuration."""
    begin(t)
    properties = t.kafka.client("SASLTLS", "OAUTHBEARER")
    properties.update(
        {
            "enable.sasl.oauthbearer.unsecure.jwt": "true",
            "sasl.oauthbearer.config": "principal=orders lifeSeconds=10",
        }
    )
    errors = check(t, properties)
    if any("crashes when an unsigned token" in e for e in errors):
        t.same(len(errors), 1, "errors")
        return
    works(t, "orders", properties, seconds=12)


def have_certificate(k, name, **by):
    """Signs a certificate unless an earlier scenario has signed it. The scenarios share a broker,
    and any scenario may be the first."""
    if not os.path.exists(k.certificates.path(name + ".pem")):
        k.certificates.sign(name, "DNS:client", **by)


@more
def mtls(t):
    """The broker identifies the client by its certificate. A client without a certificate, or with
    a certificate of another CA, must be refused."""
    begin(t)
    k = t.kafka
    have_certificate(k, "client")
    have_certificate(k, "stranger", ca="strange-ca")
    works(t, "CN=client", k.client("MTLS", certificate="client"))
    refused = "does not accept this client's certificate"
    named(t, k.client("MTLS", certificate="stranger"), refused, "stranger")
    named(t, k.client("MTLS"), refused, "no-certificate")


@more
def mtls_rights(t):
    """A client logs in by its certificate and lacks a right. The error must name the file of the
    certificate."""
    begin(t)
    k = t.kafka
    have_certificate(k, "client")
    k.allow("CN=client", "read", "topic", t.topics[0])
    named(
        t,
        k.client("MTLS", certificate="client"),
        "the user of the certificate in .*client.pem may not READ the consumer group " + t.id,
        "group",
    )


if __name__ == "__main__":
    main()
