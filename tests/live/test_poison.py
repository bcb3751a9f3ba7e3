#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests messages and handlers that misbehave: crashes, hangs, malformed answers, retries, dead
letters, unusual keys and payloads.
Usage: test_poison.py [BUILD [SCENARIO…]]"""

import json
import re
import time

from lib.latchwork import crash_plugin, exec_handler
from lib.process import alive, descendants, wait_until
from lib.scenario import NO_LEASE_ENDS, main, scenario

MEGABYTE = 1 << 20


def do(what, **more):
    return json.dumps(dict({"do": what}, **more)).encode()


def identity(topic, partition, offset):
    return "%s/%d/%d" % (topic, partition, offset)


def fill(t, n=400, keys=40):
    for i, topic in enumerate(t.topics):
        t.kafka.produce(topic, [(j % 4, b"k-%d" % (j % keys), b"{}") for j in range(n)])


def poison_and_others(t, poison, n=400):
    """Produces poison messages among many good messages. Each poison message is in a separate lane,
    with a good message behind it. Returns the identities of the poison messages by key."""
    topic, where = t.topics[0], {}
    records, at = [], {}
    for i, (key, payload) in enumerate(poison):
        p = i % 4
        for body in (payload, b"{}"):
            if body == payload:
                where[key] = identity(topic, p, at.get(p, 0))
            at[p] = at.get(p, 0) + 1
            records.append((p, key, body))
    t.kafka.produce(topic, records, traceparent=TRACE, tracestate="a=1")
    fill(t, n)
    return where


TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def big_endian(text):
    return int.from_bytes(
        bytes.fromhex(text["hex"]) if isinstance(text, dict) else text.encode(), "big"
    )


def judge_original(t, record, headers):
    """Checks the headers by which other programs find the original of a dead letter, and the
    headers that the message itself had."""
    topic, partition, offset = headers["latchwork-origin"].split("/")
    t.same(
        (headers["kafka_dlt-original-topic"], headers["x-original-topic"]),
        (topic, topic),
        "original topic",
    )
    t.same(
        [big_endian(headers["kafka_dlt-original-" + name]) for name in ("partition", "offset")],
        [int(partition), int(offset)],
        "original place",
    )
    t.check(
        0 < big_endian(headers["kafka_dlt-original-timestamp"]) <= record["timestamp_ms"],
        "original timestamp: %r" % headers,
    )
    t.same(
        [h for h in record["headers"][:2]],
        [["traceparent", TRACE], ["tracestate", "a=1"]],
        "headers of the message, which come first",
    )


DEATHS = (b"exit", b"crash", b"exit-once")


@scenario
def handlers_that_misbehave(t):
    """Faults 26, 28 and 29: exec handlers fail, exit, crash, hang or give malformed answers. Their
    messages must be tried max_attempts times and then become dead letters with a reason. All other
    messages must be done."""
    t.start_redis()
    t.make_topics()
    poison = [
        (b"retry", do("retry")),
        (b"dead", do("dead")),
        (b"exit", do("exit")),
        (b"crash", do("crash")),
        (b"hang", do("hang")),
        (b"garbage", do("garbage")),
        (b"foreign", do("foreign")),
        (b"half", do("half")),
        (b"flood", do("flood")),
        (b"child-hang", do("child-hang")),
    ]
    mended = [
        (b"exit-once", do("exit", times=1)),
        (b"retry-twice", do("retry", times=2)),
        (b"loud", do("loud")),
        (b"hang-once", do("hang", times=1)),
    ]
    where = poison_and_others(t, poison + mended)
    t.dead = {where[key] for key, _ in poison}
    run = t.start(handler=exec_handler(timeout_ms=700), retry={"max_attempts": 3, "backoff_ms": 20})
    run.wait_workers(4)
    before = sorted(run.workers())
    t.wait_finished(60)
    t.same(sorted(run.workers()), before, "workers: exec handlers harm none")
    run.stop()
    runs, again = t.judge()
    # `again` lists the unnecessary repetitions of messages. Any message may be repeated, so if the
    # list is not empty, allow every message to have run twice with the same attempt number.
    counted_twice = DEATHS if not again else where
    for key, _ in poison:
        wanted = [1] if key == b"dead" else [1, 2, 3]
        attempts = [r.attempt for r in runs if r.identity == where[key]]
        # As long as no process of the command has answered, the death of a process counts no
        # attempt, because the command itself may be at fault. A message may therefore run twice
        # with the same attempt number.
        t.same(attempts, sorted(attempts), "order of attempts of " + key.decode())
        t.same(
            sorted(set(attempts)) if key in counted_twice else attempts,
            wanted,
            "attempts of " + key.decode(),
        )
    for key, last in ((b"exit-once", 2), (b"retry-twice", 3), (b"loud", 1), (b"hang-once", 2)):
        attempts = [r.attempt for r in runs if r.identity == where[key]]
        t.same(
            sorted(set(attempts)) if key in counted_twice else attempts,
            list(range(1, last + 1)),
            "attempts of " + key.decode(),
        )
    letters = t.dead_letters()
    t.same(len(letters), len(poison), "dead letters in Redis")
    reasons = sorted(l[b"reason"].decode() for l in letters)
    t.same(all(reasons), True, "each dead letter has a reason")
    for part in (
        "the payload says retry",
        "the payload says dead",
        "exited with status 3",
        "signal 11",
        "timed out after 700 ms",
    ):
        t.check(any(part in r for r in reasons), "no dead letter says %r: %r" % (part, reasons))
    t.same(
        sorted(int(l[b"attempts"]) for l in letters),
        [1] + [3] * (len(poison) - 1),
        "attempts of the dead letters",
    )
    t.figure(dead=len(letters))


# What the reason of a dead letter may say, by the fault that the handler has done.
REASONS = {
    "half": "before it answered|is not JSON|another message",
    "late": "given up",
    "twice": "$.",  # the message is done
    "wrong_attempt": "tried",
    "mute": "closed its stdout",
    "garbage": "is not JSON",
    "foreign": "another message",
    "double": "is not JSON: duplicate",
    "long": "longer than 1 MiB",
    "nul": "is not JSON",
    "pair": "pair \ufffd",
    "latin": "latin \\?",
    "batch": "unknown outcome",
    "hang": "timed out",
    "exit": "before it answered",
}


@scenario
def hostile_handler(t):
    """Handlers break the protocol in many ways at random, with several messages at a time. What is
    done must have had its effect, what is dead must have a true reason, and no message that the
    handler treats well may be dead or stay behind."""
    t.start_redis()
    t.make_topics()
    topic = t.topics[0]
    good = [(i % 4, b"good-%d" % (i % 40), b"{}") for i in range(600)]
    bad = [(i % 4, b"bad-%d" % (i % 12), b"hostile-%d." % i) for i in range(36)]
    records = good[:200] + bad[:12] + good[200:400] + bad[12:24] + good[400:] + bad[24:]
    at, hostile = {}, {}
    for p, _, payload in records:
        if payload != b"{}":
            hostile[payload] = identity(topic, p, at.get(p, 0))
        at[p] = at.get(p, 0) + 1
    t.kafka.produce(topic, records)
    run = t.start(
        workers=2,
        handler=exec_handler("hostile.py", processes=2, in_flight=4, timeout_ms=1500),
        retry={"max_attempts": 3, "backoff_ms": 20, "backoff_max_ms": 2000},
    )
    t.wait_finished(55)
    run.stop()
    letters = {}
    for letter in t.dead_letters():
        found = re.search(rb"hostile-\d+\.", letter[b"envelope"])
        if found:
            letters[hostile[found[0]]] = letter[b"reason"].decode()
        else:
            t.check(False, "a message that was treated well is dead: %r" % letter)
    t.dead = set(letters)
    t.judge()
    did = {}
    with open(t.journal_path + ".faults", encoding="utf-8") as f:
        for line in f:
            name, fault = line.split()
            did.setdefault(name, set()).add(fault)
    for name, reason in letters.items():
        t.check(
            # a message may time out while its process is busy with another one
            "timed out" in reason or any(re.search(REASONS[fault], reason) for fault in did[name]),
            "%s is dead because of %r, but did %s" % (name, reason, sorted(did[name])),
        )
    t.figure(dead=len(letters), faults=sum(map(len, did.values())))


def poison_first(t, payload, handler, tried):
    """Lets a worker meet 20 messages that always fail, each of a key of its own, before any other
    message. They must not stop the others, and must become dead letters."""
    topic = t.topics[0]
    records = [(i % 4, b"bad-%d" % i, payload) for i in range(20)]
    t.dead = {identity(topic, i % 4, i // 4) for i in range(20)}
    t.kafka.produce(topic, records)
    run = t.start(
        handler=handler,
        workers=1,
        retry={"max_attempts": 3, "backoff_ms": 20, "backoff_max_ms": 4000},
    )
    wait_until(tried, 60, "a poison message was tried")
    fill(t, 200)

    def all_dead():
        # Only what succeeds can show that the others are at fault.
        t.kafka.produce(topic, [(p, b"good-%d" % p, b"{}") for p in range(4)])
        return len(t.dead_letters()) == 20

    wait_until(all_dead, 120, "20 dead letters", every_s=0.5)
    t.wait_finished(60)
    run.stop()
    t.judge()
    letters = t.dead_letters()
    t.same(len(letters), 20, "dead letters")
    return run


@scenario
def poison_comes_first(t):
    """Every process of the command ends without an answer, because all messages so far are poison.
    That looks like a command that cannot work, until another message is answered."""
    t.start_redis()
    t.make_topics()
    run = poison_first(t, do("exit"), exec_handler(), lambda: len(t.runs()) >= 4)
    t.check("before it ever answered" in run.log(), "the command was never doubted")


@scenario
def grandchildren(t):
    """Fault 29: when a handler ends, the processes that it left in its process group must also be
    ended. None of these processes may write after the lease of the handler's message has ended."""
    t.start_redis()
    t.make_topics()
    poison_and_others(t, [(b"child-%d" % i, do("child-hang", times=1)) for i in range(6)], n=100)
    run = t.start(handler=exec_handler(timeout_ms=500), retry={"backoff_ms": 20})
    run.wait_workers(4)
    t.wait_finished(60)
    family = descendants(run.pid)
    beats = sum(1 for line in open(t.journal_path) if line.startswith("beat"))
    t.check(beats > 6, "no grandchild ever beat")
    time.sleep(0.5)
    t.same(
        sum(1 for line in open(t.journal_path) if line.startswith("beat")),
        beats,
        "beats of grandchildren after the end of their handlers",
    )
    run.stop()
    t.check(not any(alive(p) for p in family), "something is left")
    t.judge()


@scenario
def plugin_crashes(t):
    """Fault 27: a plugin crashes, aborts or exits. Its worker must be replaced. The message must be
    blamed, run alone and then become a dead letter. All other messages must be done."""
    t.start_redis()
    t.make_topics()
    poison = [(b"segv", b"segv"), (b"abort", b"abort"), (b"exit", b"exit"), (b"exit0", b"exit0")]
    mended = [(b"segv-once", b"once:segv"), (b"retry-once", b"once:retry")]
    where = poison_and_others(t, poison + mended)
    t.dead = {where[key] for key, _ in poison}
    run = t.start(
        handler=crash_plugin(t), retry={"max_attempts": 2, "backoff_ms": 20}, lock={"ttl_ms": 1500}
    )
    t.wait_finished(120)
    log = run.log()
    run.stop()
    runs, again = t.judge()
    letters = t.dead_letters()
    t.same(len(letters), len(poison), "dead letters")
    t.check(log.count("started again in") >= len(poison), "hardly a worker was replaced")
    for letter in letters:
        t.check(letter[b"reason"], "a dead letter without a reason: %r" % letter)
    t.figure(
        dead=len(letters),
        workers_replaced=log.count("started again in"),
        reasons=sorted({l[b"reason"].decode()[:60] for l in letters}),
    )


@scenario
def plugin_poison_comes_first(t):
    """A plugin dies of 20 messages, each of a key of its own, while messages of other keys come one
    after the other. These must go on, and each of the 20 may end the worker only once."""
    t.start_redis()
    t.make_topics()
    topic, made = t.topics[0], 0
    t.dead = {identity(topic, i % 4, i // 4) for i in range(20)}
    t.kafka.produce(topic, [(i % 4, b"bad-%d" % i, b"abort") for i in range(20)])
    run = t.start(
        handler=crash_plugin(t),
        workers=1,
        retry={"max_attempts": 1, "backoff_ms": 20, "backoff_max_ms": 1000},
        lock={"ttl_ms": 1500},
    )
    wait_until(lambda: "started again in" in run.log(), 60, "a first death")

    def are_dead(n):
        nonlocal made
        t.kafka.produce(topic, [(p, b"good-%d" % (made + p), b"{}") for p in range(4)])
        made += 4
        return len(t.dead_letters()) >= n

    wait_until(lambda: are_dead(10), 240, "10 dead letters", every_s=0.5)
    done = len({r.identity for r in t.runs() if r.outcome == "done"})
    t.check(2 * done > made, "only %d of %d others were done" % (done, made))
    t.figure(others=made, others_done=done)
    wait_until(lambda: are_dead(20), 240, "20 dead letters", every_s=0.5)
    t.wait_finished(60)
    run.stop()
    t.judge()
    # A message ends its worker once, also after a death whose cause was another one.
    deaths = run.log().count("started again in")
    t.figure(worker_deaths=deaths)
    t.check(deaths <= 20, "%d deaths by 20 messages" % deaths)
    for letter in t.dead_letters():
        t.check(b"signal 6" in letter[b"reason"], "reason: %r" % letter[b"reason"])
        t.same(letter[b"attempts"], b"1", "attempts")


@scenario
def plugin_hangs(t):
    """Fault 28: a handler of a plugin hangs. The handler must be cancelled, and if it never
    returns, its worker must be replaced. The message must become a dead letter after its attempts.
    All other messages must be done."""
    t.start_redis()
    t.make_topics()
    where = poison_and_others(t, [(b"stuck", b"stuck"), (b"hang", b"once:hang")])
    t.dead = {where[b"stuck"]}
    handler = dict(crash_plugin(t), timeout_ms=500)
    run = t.start(
        handler=handler, retry={"max_attempts": 2, "backoff_ms": 20}, lock={"ttl_ms": 1500}
    )
    t.wait_finished(120)
    log = run.log()
    run.stop()
    t.judge()
    letters = t.dead_letters()
    t.same(len(letters), 1, "dead letters")
    t.same(
        [r.attempt for r in t.runs() if r.identity == where[b"hang"]],
        [1, 2],
        "attempts of the one that hung once",
    )
    named = [line for line in log.splitlines() if "in its handler: " + where[b"stuck"] in line]
    t.check(
        named and all("key" in line and "handler_ms" in line for line in named),
        "what hung is named: %r" % named[:2],
    )
    t.figure(
        workers_replaced=log.count("started again in"),
        reasons=sorted({l[b"reason"].decode()[:60] for l in letters}),
    )


@scenario
def dead_letter_topic(t):
    """Fault 26: dead letters go to a topic. A message may count as dead only after the topic has
    accepted its dead letter. The headers of the dead letter must name its origin, reason and
    attempts."""
    t.start_redis()
    t.make_topics()
    grave = t.id + "-dead"
    t.kafka.create(grave, 2)
    where = poison_and_others(t, [(b"retry-%d" % i, do("retry", n=i)) for i in range(20)])
    t.dead = set(where.values())
    status, out = t.start(
        "--drain", dead={"to": "topic:" + grave}, retry={"max_attempts": 2, "backoff_ms": 10}
    ).wait(60)
    t.same(status, 0, "status of --drain")
    t.check(" dead 20 " in out, "summary: %r" % out)
    runs, _ = t.judge()
    records = t.kafka.dump(grave)
    t.same(len(records), 20, "records in the dead-letter topic")
    t.same({dict(r["headers"]).get("latchwork-origin") for r in records}, t.dead, "their origins")
    for r in records:
        headers = dict(r["headers"])
        judge_original(t, r, headers)
        t.same(headers.get("latchwork-attempts"), "2", "latchwork-attempts")
        t.same(
            headers.get("latchwork-reason"),
            "the payload says retry; traceparent is %s; tracestate is a=1" % TRACE,
            "latchwork-reason",
        )
        t.same(where[r["key"].encode()], headers.get("latchwork-origin"), "key and origin")
    t.same(t.dead_letters(), [], "dead letters in Redis")


@scenario
def letters_never_taken(t):
    """If the dead-letter topic can never accept a dead letter, the dead letter must stay in Redis,
    its lane must continue, and its offset must be committed. The test makes two such dead letters:
    one is too large, and the other has no key although the topic is compacted. The topic must still
    get the other dead letters of the batch."""
    t.start_redis()
    t.make_topics()
    grave = t.id + "-dead"
    t.kafka.create(grave, 1, "max.message.bytes=2000", "cleanup.policy=compact")
    t.kafka.produce(t.topics[1], [(0, None, b"no key")])
    small = [(b"dead-%d" % i, do("dead", n=i)) for i in range(40)]
    where = poison_and_others(t, small + [(b"large", do("dead", fill="x" * 3000))])
    t.dead = set(where.values()) | {identity(t.topics[1], 0, 0)}
    run = t.start("--drain", dead={"to": "topic:" + grave}, handler=exec_handler(processes=8))
    status, out = run.wait(120)
    t.same(status, 0, "status of --drain")
    t.check(" dead 42 " in out, "summary: %r" % out)
    t.judge()
    kept = {l[b"reason"]: l for l in t.dead_letters()}
    t.same(len(kept), 2, "dead letters in Redis: %r" % list(kept))
    sent = {dict(r["headers"]).get("latchwork-origin") for r in t.kafka.dump(grave)}
    t.same(sent, {where[key] for key, _ in small}, "origins of those in the topic")
    t.same(run.log().count("rejected it for good"), 2, "warnings")


@scenario
def no_key(t):
    """Fault 32: the key rule needs JSON. A message that is malformed or has no key must become a
    dead letter with its position and a reason. All other messages must be done."""
    t.start_redis()
    t.make_topics()
    topic = t.topics[0]
    bad = [
        b"{",
        b'{"id":}',
        b"",
        None,
        b"[]",
        b'{"other":1}',
        b'{"id":null}',
        b'{"id":{"a":1}}',
        b"\xff\xfe",
        b'{"id":"a"} trailing',
    ]
    good = [b'{"id":"a"}', b'{"id":17}', b'{"id":"\\u0000\\u00e9"}', b' {"id" : "a" } ']
    t.kafka.produce(topic, [(0, b"k", b) for b in bad] + [(0, None, g) for g in good])
    t.kafka.produce(t.topics[1], [(i % 4, None, b'{"id":%d}' % (i % 20)) for i in range(200)])
    t.dead = {identity(topic, 0, i) for i in range(len(bad))}
    status, out = t.start("--drain", key={"from": "json:/id"}).wait(60)
    t.same(status, 0, "status of --drain")
    t.check(" dead %d " % len(bad) in out, "summary: %r" % out)
    runs, _ = t.judge()
    t.same([r for r in runs if r.identity in t.dead], [], "runs of messages without a key")
    reasons = [l[b"reason"].decode() for l in t.dead_letters()]
    t.same(len(reasons), len(bad), "dead letters")
    t.check(
        any("position" in r or "column" in r or "byte" in r or "offset" in r for r in reasons),
        "no reason tells a position: %r" % reasons,
    )
    t.same(
        {r.key for r in runs if r.partition == topic + "/0"},
        {b"a".hex(), b"17".hex(), "\0\u00e9".encode().hex()},
        "keys",
    )
    t.figure(reasons=sorted(set(reasons))[:4])


@scenario
def skipped(t):
    """With key.missing skip, a message without a key must be counted as skipped, and its offset
    must be committed."""
    t.start_redis()
    t.make_topics()
    t.kafka.produce(t.topics[0], [(0, None, b"{}") for _ in range(5)] + [(0, b"k", b"{}")])
    t.dead = {identity(t.topics[0], 0, i) for i in range(5)}
    status, out = t.start("--drain", key={"missing": "skip"}).wait(60)
    t.same(status, 0, "status of --drain")
    t.check(out.startswith("done 1 dead 0 dropped 0 skipped 5 "), "summary: %r" % out)
    t.judge()
    t.same(t.dead_letters(), [], "dead letters")


@scenario
def own_lanes(t):
    """With key.missing own, all records without a key must run. Each of these records is in a
    separate lane, which is named by the record's identity, so several of the records must run at
    the same time."""
    t.start_redis()
    t.make_topics()
    topic = t.topics[0]
    t.kafka.produce(topic, [(0, None, b"{}") for _ in range(40)] + [(0, b"k", b"{}")])
    status, out = t.start(
        "--drain", key={"missing": "own"}, work_ms="20-20", lock=NO_LEASE_ENDS
    ).wait(60)
    t.same(status, 0, "status of --drain")
    t.check(out.startswith("done 41 dead 0 dropped 0 skipped 0 "), "summary: %r" % out)
    runs, again = t.judge()
    t.same(again, [], "re-runs")
    t.same(
        {r.key for r in runs},
        {identity(topic, 0, i).encode().hex() for i in range(40)} | {b"k".hex()},
        "keys",
    )
    t.check(
        any(
            a.start_us < b.end_us and b.start_us < a.end_us
            for a in runs
            for b in runs
            if a is not b
        ),
        "no two ran at once",
    )


@scenario
def odd_keys_and_payloads(t):
    """Fault 31: keys are 1 MB long, contain NUL, UTF-8 or braces, or are empty or null. Payloads
    are 1 MB long, binary or null. A message with a key must be done, and any other must be dead."""
    t.start_redis()
    t.make_topics()
    keys = [
        b"big" * (MEGABYTE // 3),
        b"a\0b",
        b"\0",
        "schl\u00fcssel \u2713 \U0001f511".encode(),
        b"{tag}",
        b"}{",
        b"{",
        b"lw:{x.0}:epoch",
        b"\xff\xfe\xfd",
        b"a b\r\nc",
        b"'\"\\",
        b"k" * 511,
        b"k" * 512,
        b"k" * 513,
        b"k" * 514,
        b"",
    ]
    bodies = [b"{}", b"x" * MEGABYTE, bytes(range(256)) * 16, b"\0", b"", None]
    records = [
        (i % 4, key, body) for i, key in enumerate(keys) for body in bodies for _ in range(2)
    ]
    records += [(2, None, b"no key")]
    for topic in t.topics:
        t.kafka.produce(topic, records)
    ends = t.kafka.ends(t.topics)
    null = {identity(topic, 2, ends[topic, 2][1] - 1) for topic in t.topics}
    t.dead = null
    status, out = t.start(
        "--drain",
        kafka={
            "properties": {"message.max.bytes": "10000000", "fetch.message.max.bytes": "10000000"}
        },
        lock=NO_LEASE_ENDS,
        work_ms="0-10",
    ).wait(120)
    t.same(status, 0, "status of --drain")
    runs, again = t.judge()
    t.same(again, [], "re-runs")
    wanted = {k.hex() or "-" for k in keys}
    t.same(
        {r.key for r in runs} == wanted,
        True,
        "the keys that ran (%d of %d)" % (len({r.key for r in runs} & wanted), len(wanted)),
    )
    t.same(len(t.dead_letters()), len(null), "dead letters")
    t.figure(summary=out.strip().split("  ")[0])


if __name__ == "__main__":
    main()
