#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests tracing on a real Kafka and Redis, with a receiver of OTLP that works, is slow, fails or is
not reachable.
Usage: test_tracing.py [BUILD [SCENARIO…]]"""

import json
import os
import urllib.request

from lib.latchwork import exec_handler
from lib.otlp import Receiver
from lib.ports import free_port
from lib.process import children, send, wait_until
from lib.scenario import NO_LEASE_ENDS, SOAK, main, scenario

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
SAMPLED, UNSAMPLED, MALFORMED = (
    "00-%s-%s-01" % (TRACE, PARENT),
    "00-%s-%s-00" % (TRACE, PARENT),
    "00-%s-%s-1" % (TRACE, PARENT),
)


def spans_counted(port):
    """Returns the metrics that count spans, as {"sent": n, reason: n, …}. Each `reason` is a reason
    for which spans were dropped, and its n is the number of these spans."""
    with urllib.request.urlopen("http://127.0.0.1:%d/metrics" % port, timeout=10) as r:
        lines = [
            line.rsplit(" ", 1)
            for line in r.read().decode().splitlines()
            if line.startswith("latchwork_spans_")
        ]
    return {name.split('"')[1] if '"' in name else "sent": int(value) for name, value in lines}


def seen(t):
    with open(os.path.join(t.dir, "seen")) as f:
        return {(m["id"], m["attempt"]): m["headers"] for m in map(json.loads, f)}


def identity(span):
    a = span["attributes"]
    return "%s/%s/%d" % (
        a["messaging.destination.name"],
        a["messaging.destination.partition.id"],
        a["messaging.kafka.offset"],
    ), a["latchwork.attempt"]


@scenario
def parents(t):
    """The span of each sampled message must be a child of its producer's span, or have no parent if
    the message names no valid one. The handler must get the message's span as the parent. Messages
    that are not sampled must keep their headers."""
    t.start_redis()
    t.make_topics(4)
    receiver, n = Receiver(), 100
    for topic, headers in zip(
        t.topics,
        [
            {"traceparent": SAMPLED, "tracestate": "a=1"},
            {"traceparent": UNSAMPLED, "x": "y"},
            {"traceparent": MALFORMED},
            {},
        ],
    ):
        t.kafka.produce(
            topic,
            [(i % 4, b"k-%d" % (i % 30), b'{"fail": %d}' % (i % 10 == 0)) for i in range(n)],
            **headers,
        )
    env = {"LW_TEST_SEEN": os.path.join(t.dir, "seen")}
    status, _ = t.start(
        "--drain",
        handler=exec_handler("traced.py"),
        tracing={"endpoint": receiver.url},
        retry={"backoff_ms": 20},
        environment=env,
    ).wait(90)
    t.same(status, 0, "status of --drain")
    t.same(receiver.errors, [], "malformed requests")
    headers, spans = seen(t), {identity(s): s for s in receiver.spans()}
    by_topic = {topic: [k for k in headers if k[0].startswith(topic + "/")] for topic in t.topics}
    t.same([len(v) for v in by_topic.values()], [n + n // 10] * 4, "attempts")
    t.same(len(receiver.spans()), 3 * (n + n // 10), "spans")
    t.same(
        set(spans),
        {k for topic in (t.topics[0], t.topics[2], t.topics[3]) for k in by_topic[topic]},
        "which attempts have a span",
    )
    for k, s in spans.items():
        parent = "00-%s-%s-01" % (s["traceId"], s["spanId"])
        own = k[0].startswith(t.topics[0] + "/")
        wanted = (
            [["traceparent", parent], ["tracestate", "a=1"]] if own else [["traceparent", parent]]
        )
        t.same(headers[k], wanted, "headers that the handler of %s saw" % (k,))
        t.same(
            (s.get("parentSpanId"), s["traceId"] == TRACE, s.get("traceState")),
            (PARENT, True, "a=1") if own else (None, False, None),
            "parent of %s" % (k,),
        )
        failed = k[1] == 1 and (k[0], 2) in headers
        t.same(
            s["attributes"]["latchwork.outcome"],
            "retry" if failed else "done",
            "outcome of %s" % (k,),
        )
        t.same(
            s.get("status"),
            {"code": 2, "message": "not yet"} if failed else None,
            "status of %s" % (k,),
        )
        t.check(
            k[1] == 1 or spans[(k[0], 1)]["traceId"] == s["traceId"],
            "the attempts of %s are in different traces" % k[0],
        )
    for k in by_topic[t.topics[1]]:
        t.same(
            headers[k],
            [["traceparent", UNSAMPLED], ["x", "y"]],
            "headers of %s, which is not sampled" % (k,),
        )
    t.check(
        {s["attributes"]["latchwork.lane.parked"] for s in spans.values()} == {True, False},
        "no message waited in Redis, or all did",
    )
    t.same({s["resource"]["service.name"] for s in spans.values()}, {t.id}, "service.name")
    t.figure(spans=len(spans))


@scenario
def ratio(t):
    """If messages have no parent span, about the configured share of them must be traced, each in a
    separate trace."""
    t.start_redis()
    t.make_topics(1)
    receiver, n = Receiver(), 4000
    t.generate(n, keys=500)
    t.start("--drain", work_ms="0-0", tracing={"endpoint": receiver.url, "ratio": 0.1}).wait(120)
    spans = receiver.spans()
    t.check(300 <= len(spans) <= 500, "spans of %d messages: %d" % (n, len(spans)))
    t.same(len({s["traceId"] for s in spans}), len(spans), "traces")
    t.same(receiver.errors, [], "malformed requests")
    t.judge()
    t.figure(spans=len(spans))


def under_load(t, receiver, **tracing):
    """Starts a load, and workers that trace every message. Returns the workers, and the port of
    their metrics."""
    t.start_redis()
    t.make_topics(2)
    t.generate(20000 * SOAK, keys=400, wait=False)
    port = free_port()
    instance = t.start(
        work_ms="0-1",
        lock=NO_LEASE_ENDS,
        http={"listen": "127.0.0.1:%d" % port},
        tracing=dict({"endpoint": receiver.url}, **tracing),
    )
    return instance, port


def settle(t, port, sent=None):
    """Waits until every span is sent or dropped. Returns the metrics that count spans, and the
    number of messages produced."""
    done = sum(high - low for low, high in t.kafka.ends(t.topics).values())
    wait_until(
        lambda: sum(spans_counted(port).values()) >= done, 60, "%d spans in the metrics" % done
    )
    return spans_counted(port), done


@scenario
def receiver_away(t):
    """While the receiver is down, messages must still be consumed, and spans must be dropped and
    counted. When the receiver is back, spans must arrive again."""
    receiver = Receiver()
    receiver.stop()
    instance, port = under_load(t, receiver)
    t.wait_finished()
    counted = spans_counted(port)
    t.same(counted["sent"], 0, "spans sent to nobody")
    t.check(counted["full"] > 0, "spans dropped: %r" % counted)
    # the process that sends spans yields to all others
    trouble = "spans can't be sent to %s/v1/traces: " % receiver.url
    wait_until(lambda: trouble in instance.log(), 60, "word of the receiver")
    receiver.start()
    counted, done = settle(t, port)
    instance.stop()
    runs, again = t.judge()
    t.same(again, [], "re-runs")
    t.check(
        counted["sent"] > 1000 and sum(counted.values()) == len(runs) == done,
        "spans: %r of %d" % (counted, len(runs)),
    )
    t.same(len(receiver.spans()), counted["sent"], "spans that came")
    t.check("takes spans again" in instance.log(), "the log does not tell of the end")
    t.figure(sent=counted["sent"], dropped=counted["full"])


@scenario
def receiver_in_trouble(t):
    """The receiver is slow, then asks for a pause by Retry-After, then fails, then works. Messages
    must still be consumed, requests that can succeed later must be sent again, and every span must
    be counted once."""
    receiver = Receiver()
    receiver.delay_s = 0.5
    receiver.answers += [(503, {"Retry-After": "1"}, ""), (429, {}, ""), (500, {}, "broken")]
    instance, port = under_load(t, receiver)
    t.wait_finished()
    receiver.delay_s = 0
    counted, done = settle(t, port)
    instance.stop()
    runs, again = t.judge()
    t.same(again, [], "re-runs")
    t.same(sum(counted.values()), len(runs), "spans sent or dropped")
    first, second, third = [{s["spanId"] for s in r["spans"]} for r in receiver.requests[:3]]
    t.check(first == second == third, "the request was not sent again as it was")
    t.same(counted["refused"], len(third), "spans that were refused")
    t.check(
        receiver.requests[1]["at"] - receiver.requests[0]["at"] > 0.9,
        "Retry-After was not waited for",
    )
    ids = [s["spanId"] for s in receiver.spans()]
    t.same(
        (len(ids), len(set(ids))),
        (counted["sent"], counted["sent"]),
        "spans that came, and different ones",
    )
    t.figure(sent=counted["sent"], dropped=counted["full"], messages=done)


@scenario
def processes_killed(t):
    """The processes that send spans and serve metrics are killed, and then a worker. The supervisor
    must start them again, messages must still be consumed, and spans must still arrive."""
    receiver = Receiver()
    instance, port = under_load(t, receiver)
    instance.wait_workers(4)
    wait_until(lambda: len(receiver.spans()) > 500, 60, "spans")
    workers = instance.workers()
    beside = [pid for pid in children(instance.pid) if pid not in workers]
    # Kill the processes that serve metrics and send spans.
    for pid in beside:
        send(pid, 9)
    instance.kill_worker(workers[0])
    before = len(receiver.spans())
    t.wait_finished()
    wait_until(lambda: len(receiver.spans()) > before, 30, "spans after the kill")
    instance.stop()
    t.check(
        "tracing: the process that sends spans ended; restarting it" in instance.log(),
        "the log does not tell of the restart",
    )
    t.judge()
    t.same(receiver.errors, [], "malformed requests")
    t.figure(spans=len(receiver.spans()), killed_beside_workers=len(beside))


@scenario
def reloaded(t):
    """One reload turns tracing on and a later one turns it off. Only the messages between the two
    reloads must be traced."""
    receiver = Receiver()
    t.start_redis()
    t.make_topics(1)
    instance = t.start(work_ms="0-1")
    instance.wait_workers(4)
    path = os.path.join(t.dir, instance.label + ".json")

    def reload(**settings):
        done = instance.log().count("reload: done")
        with open(path, "w") as f:
            json.dump(dict(instance.settings, **settings), f)
        instance.signal(1)
        wait_until(lambda: instance.log().count("reload: done") > done, 90, "reload")

    def produce(n):
        t.kafka.produce(t.topics[0], [(i % 4, b"k-%d" % (i % 30), b"{}") for i in range(n)])
        t.wait_finished()

    produce(100)
    reload(tracing={"endpoint": receiver.url})
    produce(200)
    wait_until(lambda: len(receiver.spans()) >= 200, 30, "200 spans")
    reload()
    produce(300)
    instance.stop()
    t.same(len(receiver.spans()), 200, "spans")
    t.judge()


main()
