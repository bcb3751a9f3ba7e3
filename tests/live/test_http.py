#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the http handler with services in Python (HTTP/1.1) and Node (HTTP/2): the outcome that
each response leads to, slow and broken services, TLS.
Usage: test_http.py [BUILD [SCENARIO…]]"""

import email.utils
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request

from lib.latchwork import readyz
from lib.ports import free_port
from lib.process import Failure, send, wait_until
from lib.scenario import SOAK, main, scenario

HERE = os.path.dirname(os.path.abspath(__file__))
TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


class Service:
    """Runs a service as a separate process, which can be killed and started again on the same
    port."""

    def __init__(self, t, *tls, program=("python3", "service.py"), environment=()):
        self.port, self.log = free_port(), os.path.join(t.dir, "service.log")
        interpreter = sys.executable if program[0] == "python3" else program[0]
        self.command = [
            interpreter,
            os.path.join(HERE, "handlers", program[1]),
            str(self.port),
            self.log,
            *tls,
        ]
        self.environment = dict(os.environ, **dict(environment))
        self.scheme = "https" if tls else "http"
        self.t = t
        self.start()

    def start(self):
        self.popen = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, env=self.environment)
        self.t.commands.append(self.popen)

        def listens():
            if self.popen.poll() is not None:
                raise Failure("the service ended with status %d" % self.popen.returncode)
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return True
            except OSError:
                return False

        wait_until(listens, 20, "service at its port", 0.05)

    def kill(self):
        self.popen.kill()
        self.popen.wait(10)
        self.t.commands.remove(self.popen)

    def handler(self, **more):
        return dict(
            {
                "type": "http",
                "url": "%s://127.0.0.1:%d/messages" % (self.scheme, self.port),
                "in_flight": 16,
                "timeout_ms": 10000,
            },
            **more,
        )

    def requests(self):
        if not os.path.exists(self.log):
            return []
        with open(self.log) as f:
            return [json.loads(line) for line in f if line.endswith("\n")]

    def by_id(self):
        found = {}
        for r in self.requests():
            found.setdefault(r["id"], []).append(r)
        return found


def begin(t, *tls, **more):
    t.start_redis()
    t.make_topics(1)
    return Service(t, *tls, **more)


def certificates(t):
    folder = os.path.join(t.dir, "certs")
    os.makedirs(folder)
    subprocess.run([os.path.join(HERE, "..", "support", "certs.sh"), folder], check=True)
    return folder


def do(what, **more):
    return json.dumps(dict({"do": what}, **more)).encode()


def answer(status, **more):
    return do("answer", status=status, **more)


def metrics(port):
    """Returns the metrics of the supervisor that listens on a port, as {name with labels:
    value}."""
    with urllib.request.urlopen("http://127.0.0.1:%d/metrics" % port, timeout=10) as r:
        lines = [
            line.rsplit(" ", 1)
            for line in r.read().decode().splitlines()
            if not line.startswith("#")
        ]
    return {name: float(value) for name, value in lines}


def drain(t, service, limit_s=90, **over):
    """Runs the workers until all messages are done. Returns the summary."""
    status, out = t.start(
        "--drain", handler=service.handler(**over.pop("handler", {})), **over
    ).wait(limit_s)
    t.same(status, 0, "status of --drain")
    return out


@scenario
def every_answer(t):
    """Each status and body must lead to the outcome that the documentation names. A message may run
    again only after Retry-After has passed. A run that the service refuses because of a stale fence
    must not count as an attempt."""
    service = begin(t)
    topic = t.topics[0]
    soon = email.utils.formatdate(time.time() + 14, usegmt=True)
    # The date has no fractions of a second, and the boot clock is what the service notes.
    soon_us = (time.clock_gettime(time.CLOCK_BOOTTIME) + 14 - 2) * 1e6
    # Each element is (payload, expected outcome, expected attempts, expected reason).
    table = [
        (answer(200), "done", [1], ""),
        (answer(204), "done", [1], ""),
        (answer(202, body="thanks"), "done", [1], ""),
        (answer(400), "dead", [1], "the service answered 400"),
        (answer(404, body="no such order"), "dead", [1], "answered 404: no such order"),
        (answer(422), "dead", [1], "the service answered 422"),
        (answer(301, headers={"Location": "/x"}), "dead", [1, 2, 3], "redirects are not followed"),
        (answer(500, times=1), "done", [1, 2], ""),
        (answer(503), "dead", [1, 2, 3], "the service answered 503"),
        (answer(408, times=2), "done", [1, 2, 3], ""),
        (answer(425, times=1), "done", [1, 2], ""),
        (answer(429, times=1, headers={"Retry-After": "2"}), "done", [1, 2], ""),
        (answer(503, times=1, headers={"Retry-After": soon}), "done", [1, 2], ""),
        (do("stale"), "done", [1, 1], ""),
        (answer(412, times=0), "done", [1], ""),
        (
            answer(200, body='{"outcome":"dead","reason":"no such customer"}'),
            "dead",
            [1],
            "no such customer",
        ),
        (answer(200, times=1, body='{"outcome":"retry","reason":"later"}'), "done", [1, 2], ""),
        (answer(500, body='{"outcome":"done"}'), "done", [1], ""),
        (answer(200, body='{"outcome":"paid"}'), "dead", [1, 2, 3], 'unknown outcome "paid"'),
        (do("hang-up", times=1), "done", [1, 2], ""),
        (do("hang-up"), "dead", [1, 2, 3], "no answer from http://127.0.0.1"),
    ]
    t.kafka.produce(
        topic,
        [(i % 4, b"odd-%d" % i, payload) for i, (payload, *_) in enumerate(table)],
        traceparent=TRACE,
    )
    t.kafka.produce(topic, [(i % 4, b"k-%d" % (i % 50), b"{}") for i in range(1000)])
    key_of = {"odd-%d" % i: row for i, row in enumerate(table)}
    t.dead = {
        "%s/%d/%d" % (topic, i % 4, i // 4) for i, row in enumerate(table) if row[1] == "dead"
    }
    out = drain(t, service, retry={"max_attempts": 3, "backoff_ms": 20}, workers=2)
    dead = sum(row[1] == "dead" for row in table)
    t.check(
        out.startswith("done %d dead %d " % (1000 + len(table) - dead, dead)), "summary: %r" % out
    )
    reasons = dict(re.findall(r"(\S+) is a dead letter: (.*?) id=", t.instances[0].log()))
    for requests in service.by_id().values():
        row = key_of.get(requests[0]["key"])
        if not row:
            continue
        payload, outcome, attempts, reason = row
        what = "%s of %s" % (payload.decode(), requests[0]["id"])
        seen = [r["attempt"] for r in requests]
        # If the service closes a connection that was used before, the handler sends the request
        # again without a new attempt.
        t.same(sorted(set(seen)) if b"hang-up" in payload else seen, attempts, "attempts: " + what)
        t.same(requests[0]["trace"], TRACE, "traceparent: " + what)
        t.check(
            0 < requests[0]["left_ms"] <= 10000,
            "latchwork-deadline-ms: %s" % requests[0]["left_ms"],
        )
        if outcome == "dead":
            t.check(
                reason in reasons.get(requests[0]["id"], ""),
                "reason: %r, %s" % (reasons.get(requests[0]["id"]), what),
            )
        if b"Retry-After" in payload:
            after_us = requests[0]["end_us"] + 1.9e6 if b'"2"' in payload else soon_us
            t.check(requests[1]["at_us"] >= after_us, "Retry-After was not waited for: " + what)
    t.judge()


@scenario
def kept_alive(t):
    """A worker may open at most in_flight connections in a minute, and must use each of them for
    many messages. Each signature must be right."""
    key = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    service = begin(t, environment={"LW_TEST_HMAC_KEY": key, "LW_TEST_DELAY_MS": "2"}.items())
    path = os.path.join(t.dir, "hmac")
    with open(path, "w") as f:
        f.write(key + "\n")
    t.generate(10000 * SOAK, keys=1000)
    drain(t, service, handler={"hmac_key": "${file:%s}" % path, "in_flight": 16}, workers=2)
    requests = service.requests()
    used = {r["connection"] for r in requests}
    minutes = (requests[-1]["end_us"] - requests[0]["at_us"]) // 60000000 + 1
    t.check(16 < len(used) <= 32 * minutes, "connections: %d" % len(used))
    t.same({r["signed"] for r in requests}, {True}, "signatures")
    t.judge()
    t.figure(connections=len(used), requests=len(requests))


@scenario
def slow_calls(t):
    """Calls that last longer than the lease must be executed only once, because the lease is
    renewed. Calls that last longer than the timeout must be aborted and tried again."""
    service = begin(t)
    topic = t.topics[0]
    t.kafka.produce(
        topic,
        [
            (0, b"longer-than-lease", do("sleep", ms=5000)),
            (1, b"too-long", do("sleep", ms=30000, times=1)),
        ],
    )
    t.kafka.produce(topic, [(i % 4, b"k-%d" % i, b"{}") for i in range(200)])
    drain(
        t,
        service,
        handler={"timeout_ms": 7000},
        retry={"max_attempts": 3, "backoff_ms": 20},
        workers=2,
    )
    by_key = {requests[0]["key"]: requests for requests in service.by_id().values()}
    t.same(
        [r["status"] for r in by_key["longer-than-lease"]],
        [200],
        "statuses of the message that takes longer than a lease",
    )
    slow = by_key["too-long"]
    t.same(
        [(r["attempt"], r["status"]) for r in slow],
        [(1, 0), (2, 200)],
        "attempts and statuses of the message that takes too long",
    )
    t.check(
        6.9e6 <= slow[0]["end_us"] - slow[0]["at_us"] < 30e6,
        "time until the transfer was aborted: %d us" % (slow[0]["end_us"] - slow[0]["at_us"]),
    )
    t.judge()


@scenario
def service_down(t):
    """The service is killed under load and stays down for some seconds. The handler's circuit
    breaker must open and let messages wait. No message may become a dead letter or be lost."""
    service = begin(t, environment={"LW_TEST_DELAY_MS": "5"}.items())
    port = free_port()
    run = t.start(
        handler=service.handler(),
        # Each time the service dies, a message may lose two attempts: its request that got no
        # response, and a refused connection.
        retry={"max_attempts": 5, "backoff_ms": 20},
        workers=2,
        http={"listen": "127.0.0.1:%d" % port},
    )
    run.wait_workers(2)
    messages = 6000 * SOAK
    t.generate(messages, keys=500, rate=600, wait=False)
    wait_until(lambda: len(service.requests()) > messages // 10, 60, "load")
    for _ in range(2):
        service.kill()
        wait_until(
            lambda: metrics(port)['latchwork_handler_http_breaker_workers{state="closed"}'] == 0,
            20,
            "open breakers",
        )
        time.sleep(4)
        status, text = readyz(port)
        t.check(
            status == 503 and "Connection refused" in text,
            "/readyz while the service is down: %d %r" % (status, text),
        )
        service.start()
        wait_until(
            lambda: metrics(port)['latchwork_handler_http_breaker_workers{state="closed"}'] == 2,
            60,
            "closed breakers",
        )
    t.wait_finished(90)
    seen = metrics(port)
    run.stop()
    runs, _ = t.judge()
    t.same(t.dead_letters(), [], "dead letters")
    charged = {r.identity for r in runs if r.attempt > 1}
    # Each time the service dies, a worker may count an attempt only for the requests that got no
    # response (at most 16, which is in_flight). There are two workers, and the service dies twice.
    t.check(len(charged) <= 2 * 2 * 16, "attempts were counted for %d messages" % len(charged))
    t.check(
        seen['latchwork_handler_http_breaker_openings_total'] == 4,
        "openings: %s" % seen['latchwork_handler_http_breaker_openings_total'],
    )
    answered = sum(
        n
        for name, n in seen.items()
        if re.match(r'latchwork_handler_http_requests_total\{code="[2-5]', name)
    )
    t.check(answered >= messages, "requests with a status: %d" % answered)
    t.figure(
        charged=len(charged),
        refused=int(seen['latchwork_handler_http_requests_total{code="unreached"}']),
    )


@scenario
def down_when_idle(t):
    """The service is down at the start, and once more later, while a message may fail only once.
    Nothing was sent, so no message may become a dead letter."""
    service = begin(t)
    service.kill()
    port = free_port()
    run = t.start(
        handler=service.handler(),
        retry={"max_attempts": 1, "backoff_ms": 20, "backoff_max_ms": 1000},
        workers=2,
        http={"listen": "127.0.0.1:%d" % port},
    )
    run.wait_workers(2)
    for n in range(2):
        t.kafka.produce(t.topics[0], [(i % 4, b"k-%d" % i, b"{}") for i in range(40)])
        wait_until(
            lambda: metrics(port)['latchwork_handler_http_breaker_workers{state="closed"}'] == 0,
            20,
            "open breakers",
        )
        service.start()
        wait_until(lambda: len(service.by_id()) == 40 * (n + 1), 60, "all messages at the service")
        t.wait_finished(60)
        service.kill()
    run.stop()
    runs, _ = t.judge()
    t.same(t.dead_letters(), [], "dead letters")
    t.same({r.attempt for r in runs}, {1}, "attempts")


@scenario
def all_answers_are_503(t):
    """The service answers 503 to every request for some seconds. The failure rate must open the
    handler's circuit breaker, and no message may become a dead letter."""
    service = begin(t)
    port = free_port()
    run = t.start(
        handler=service.handler(),
        retry={"max_attempts": 5, "backoff_ms": 20},
        workers=2,
        http={"listen": "127.0.0.1:%d" % port},
    )
    run.wait_workers(2)
    t.generate(4000 * SOAK, keys=500, rate=500, wait=False)
    wait_until(lambda: len(service.requests()) > 400, 60, "load")
    send(service.popen.pid, signal.SIGUSR1)
    time.sleep(6)
    t.same(
        metrics(port)['latchwork_handler_http_breaker_workers{state="closed"}'],
        0,
        "closed breakers",
    )
    send(service.popen.pid, signal.SIGUSR2)
    t.wait_finished(120)
    run.stop()
    t.check(
        "requests in a row failed" in run.log() or "requests failed within 10 s" in run.log(),
        "the log does not say why the breaker opened",
    )
    runs, _ = t.judge()
    t.same(t.dead_letters(), [], "dead letters")
    t.check(
        max(r.attempt for r in runs) <= 4,
        "most attempts of a message: %d" % max(r.attempt for r in runs),
    )
    t.figure(sick=sum(r["status"] == 503 for r in service.requests()))


@scenario
def some_answers_are_500(t):
    """The first 40 messages, each of a key of its own, are always answered 500. That looks like a
    service that is down, until another message is answered. They must not stop the others."""
    service = begin(t)
    topic = t.topics[0]
    t.kafka.produce(topic, [(i % 4, b"bad-%d" % i, answer(500)) for i in range(40)])
    t.dead = {"%s/%d/%d" % (topic, i % 4, i // 4) for i in range(40)}
    run = t.start(
        handler=service.handler(),
        workers=1,
        retry={"max_attempts": 3, "backoff_ms": 20, "backoff_max_ms": 4000},
    )
    wait_until(lambda: len(service.requests()) >= 10, 60, "requests of poison messages")

    def all_dead():
        # Only what succeeds can show that the others are at fault.
        t.kafka.produce(topic, [(i % 4, b"good-%d" % i, b"{}") for i in range(40)])
        return len(t.dead_letters()) == 40

    wait_until(all_dead, 120, "40 dead letters", every_s=0.5)
    t.wait_finished(60)
    run.stop()
    t.judge()
    t.same(len(t.dead_letters()), 40, "dead letters")
    t.check("then a few messages test it" in run.log(), "the service was never doubted")


@scenario
def workers_killed(t):
    """Workers are killed while they wait for responses. Other workers must take over the messages
    of the killed workers, with larger fences, and no message may be lost."""
    service = begin(t, environment={"LW_TEST_DELAY_MS": "20"}.items())
    run = t.start(handler=service.handler(in_flight=8))
    run.wait_workers(4)
    t.generate(4000 * SOAK, keys=300, rate=400, wait=False)
    for i in range(4):
        wait_until(lambda: len(service.requests()) > 300 * (i + 1), 60, "load")
        run.kill_worker(run.workers()[0])
        run.wait_workers(4)
    t.wait_finished(90)
    run.stop()
    t.judge()
    highest = {}
    for r in sorted(service.requests(), key=lambda r: r["at_us"]):
        t.check(
            r["fence"] >= highest.get(r["key"], 0),
            "fence of %s went back: %d" % (r["id"], r["fence"]),
        )
        highest[r["key"]] = r["fence"]
    t.figure(aborted=sum(r["status"] == 0 for r in service.requests()))


@scenario
def tls(t):
    """A client certificate and a CA that the system does not know must work. With a wrong CA or a
    wrong server name, the log must say why no message runs, and no attempt may be counted."""
    folder = certificates(t)
    service = begin(t, folder + "/server.pem", folder + "/server.key", folder + "/ca.pem")
    t.kafka.produce(t.topics[0], [(i % 4, b"k-%d" % i, b"{}") for i in range(400)])
    mine = {"cert_file": folder + "/client.pem", "key_file": folder + "/client.key"}
    for wrong, said in (
        ({"ca_file": folder + "/other-ca.pem"}, "TLS failed with https://127.0.0.1:.*certificate"),
        (
            {"ca_file": folder + "/ca.pem", "server_name": "elsewhere"},
            "TLS failed with https://127.0.0.1:.*elsewhere",
        ),
    ):
        run = t.start(handler=service.handler(tls=dict(mine, **wrong)), workers=1)
        wait_until(lambda: re.search(said, run.log()), 30, "word in the log of " + said)
        run.stop()
    drain(t, service, handler={"tls": dict(mine, ca_file=folder + "/ca.pem")}, workers=2)
    t.same({r["status"] for r in service.requests()}, {200}, "statuses")
    t.judge()
    t.same(t.dead_letters(), [], "dead letters")


@scenario
def http2(t):
    """If the service offers HTTP/2, a few connections must carry all requests."""
    folder = certificates(t)
    service = begin(
        t, folder + "/named.pem", folder + "/named.key", program=("node", "service_h2.js")
    )
    t.generate(4000 * SOAK, keys=1000)
    drain(
        t,
        service,
        handler={
            "in_flight": 50,
            "tls": {"ca_file": folder + "/ca.pem", "server_name": "redis.internal"},
        },
        workers=2,
    )
    requests = [r for r in service.requests() if "aborted" not in r]
    t.same({r["version"] for r in requests}, {"2.0"}, "versions of HTTP")
    used = len({r["connection"] for r in requests})
    # Allow one connection per 16 requests, because libcurl may open several new connections at once
    # when it replaces a connection after 256 requests.
    t.check(used <= len(requests) / 16, "connections: %d" % used)
    t.same(t.dead_letters(), [], "dead letters")
    t.figure(connections=used, requests=len(requests))
    t.judge()


@scenario
def batches(t):
    """One request must carry many messages of one key, in order, as CloudEvents in JSON."""
    folder = certificates(t)
    service = begin(
        t, folder + "/server.pem", folder + "/server.key", program=("node", "service_h2.js")
    )
    t.kafka.produce(
        t.topics[0],
        [(i % 4, b"hot-%d" % (i % 4), b'{"n":%d}' % i) for i in range(2000)],
        traceparent=TRACE,
    )
    drain(t, service, handler={"mode": "batch", "tls": {"ca_file": folder + "/ca.pem"}}, workers=2)
    bodies = [json.loads(r["body"]) for r in service.requests()]
    t.check(
        max(len(b) for b in bodies) > 20,
        "messages in the largest batch: %d" % max(len(b) for b in bodies),
    )
    for body in bodies:
        t.same(len({e["partitionkey"] for e in body}), 1, "keys in a batch")
        numbers = [e["data"]["n"] for e in body]
        t.same(numbers, sorted(numbers), "order in a batch")
        t.same({e["traceparent"] for e in body}, {TRACE}, "traceparent")
    t.figure(requests=len(bodies))
    t.judge()


if __name__ == "__main__":
    main()
