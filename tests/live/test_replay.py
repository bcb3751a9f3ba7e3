#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests replays, drops and pauses while workers drain. No message may be lost, and each replay must
run once.
Usage: test_replay.py [BUILD [SCENARIO…]]"""

import json
import os
import subprocess
import time

from lib import oracles
from lib.process import Failure, wait_until
from lib.scenario import SOAK, main, scenario

KEYS = 20


def tool(t, *args, status=0):
    """Runs a command of `latchwork` with --json and returns the lines that it prints."""
    command = (
        [os.path.join(t.rig.build, "latchwork")]
        + list(args)
        + ["-c", t.instances[-1].log_path.replace(".log", ".json"), "--json"]
    )
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=t.dir, timeout=120
    )
    if done.returncode != status:
        raise Failure(
            "%s: status %d: %s%s"
            % (" ".join(args), done.returncode, done.stdout.decode()[-500:], done.stderr.decode())
        )
    return [json.loads(line) for line in done.stdout.splitlines()]


TRACE = {
    "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    "tracestate": "a=1",
}


def begin(t, n=2000, payload=lambda i: b"{}", **headers):
    t.start_redis()
    t.make_topics(1)
    t.kafka.produce(
        t.topics[0], [(i % KEYS % 4, b"k%d" % (i % KEYS), payload(i)) for i in range(n)], **headers
    )


def replays(t):
    return [r for r in t.runs() if "#" in r.identity]


def judge(t, wanted):
    """Checks that each of the replays in `wanted` was done once, in order, and that no two runs of
    a key overlapped."""
    runs = t.runs()
    t.expect(oracles.overlaps(runs))
    t.expect(oracles.fences(runs))
    t.expect(oracles.misordered(runs))
    done = sorted(r.identity for r in runs if "#" in r.identity and r.outcome == "done")
    t.same(len(done), len(set(done)), "replays that ran once")
    t.same(done, sorted(wanted), "replays that are done")


def of_key(t, key):
    """Returns the identities of a key's records in order."""
    return [
        "%s/%d/%d" % (t.topics[0], r["partition"], r["offset"])
        for r in t.kafka.dump(t.topics[0])
        if r["key"] == key
    ]


def committed(t):
    return t.kafka.committed(t.id, t.topics)


@scenario
def replay_a_key_from_kafka_while_others_run(t):
    """A range of one key is read from Kafka again. Its messages must run again, once and in order,
    while new messages of all keys arrive. The group's offsets may only advance."""
    begin(t)
    t.start(work_ms="0-1")
    t.wait_finished()
    before = committed(t)
    topic = t.topics[0]
    # `queue replay` without --again must replay no message, because all messages are done.
    rows = tool(t, "queue", "replay", "--topic", topic, "--key", "k3", "--execute")
    t.same(list(rows[-1]["results"].values()), [2000 // KEYS], "left out")
    t.check("done" in list(rows[-1]["results"])[0], "why: %r" % rows[-1])
    t.same(len(replays(t)), 0, "replays")
    t.same(committed(t), before, "offsets of the group")
    t.generate(4000 * SOAK, keys=KEYS, rate=2000, wait=False)
    wanted = []
    # The second replay includes the records that arrived during the first replay.
    for _ in range(2):
        rows = tool(
            t,
            "queue",
            "replay",
            "--topic",
            topic,
            "--key",
            "k3",
            "--from",
            "1h",
            "--again",
            "--execute",
        )
        wanted += [r["identity"] for r in rows if r.get("result") == "put"]
    t.check(len(wanted) >= 2 * 2000 // KEYS, "only %d were replayed" % len(wanted))
    # All records of the key are less than an hour old, so `--to 1h` must find none.
    t.same(
        tool(t, "queue", "replay", "--key", "k3", "--to", "1h", "--again")[-1]["messages"],
        0,
        "records from before",
    )
    t.check(
        tool(t, "queue", "replay", "--key", "k3", "--from", "1h", "--again")[-1]["messages"]
        >= 2000 // KEYS,
        "records of all topics",
    )
    one = tool(t, "queue", "replay", topic + "/0/0", topic + "/1/5", "--again", "--execute")
    wanted += [r["identity"] for r in one[:-1]]
    t.wait_finished()
    wait_until(lambda: len([r for r in replays(t) if r.outcome]) >= len(wanted), 60, "replays")
    judge(t, wanted)
    marks = [name for name in t.redis.keys() if b"#" in name]
    t.check(bool(marks), "no marks of replays")
    t.same(
        [
            name
            for name in marks
            if not name.startswith(t.prefix() + b"state:") or t.redis.call("PTTL", name) <= 0
        ],
        [],
        "marks that stay for ever",
    )
    t.instances[-1].stop()
    t.figure(replays=len(wanted))


@scenario
def replay_of_dead_letters(t):
    """Ten messages become dead letters. One is edited, and all are put back at a limited rate. The
    edited message must be done, and the others must become dead letters again."""
    begin(t, payload=lambda i: json.dumps({"do": "dead"}).encode() if i % 200 == 7 else b"{}")
    t.start(work_ms="0-1", retry={"max_attempts": 1})
    t.wait_finished()
    dead = tool(t, "dead", "ls")
    t.same(len(dead), 10, "dead letters")
    os.environ["EDITOR"] = "sed -i s/dead/nothing/"
    edited = dead[4]["identity"]
    tool(t, "dead", "edit", edited)
    n = tool(t, "dead", "replay", "--match", "*", "--rate", "20", "--execute")[-1]["job"]
    wait_until(lambda: len([r for r in replays(t) if r.outcome]) >= 10, 30, "replays")
    judge(t, ["%s#%d" % (edited, n)])
    wait_until(lambda: len(tool(t, "dead", "ls")) == 9, 20, "dead letters again")
    t.same(
        sorted(d["identity"] for d in tool(t, "dead", "ls")),
        sorted("%s#%d" % (d["identity"], n) for d in dead if d["identity"] != edited),
        "dead again",
    )
    t.instances[-1].stop()


@scenario
def tool_killed_in_the_middle(t):
    """`queue replay` is killed (kill -9) while workers run, and its job is resumed. Each message
    must be replayed once."""
    begin(t)
    t.start(work_ms="0-1")
    t.wait_finished()
    command = [
        os.path.join(t.rig.build, "latchwork"),
        "queue",
        "replay",
        "--topic",
        t.topics[0],
        "--again",
        "--execute",
        "-c",
        t.instances[-1].log_path.replace(".log", ".json"),
    ]
    tried = 0
    # The second command resumes the job of the first command, which was killed.
    while tried < 2:
        p = subprocess.Popen(
            command + ["--rate", "1000"] + (["--resume", "1"] if tried else []),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        have = len(replays(t))
        wait_until(lambda: len(replays(t)) > have + 50 or p.poll() is not None, 60, "some replays")
        t.same(p.poll(), None, "end of the tool before it was killed")
        p.kill()
        p.wait()
        # Delete the job's key, which would otherwise expire only 30 s later.
        t.redis.call("DEL", t.prefix() + b"job")
        tried += 1
    rows = tool(
        t, "queue", "replay", "--topic", t.topics[0], "--again", "--execute", "--resume", "1"
    )
    t.same(rows[-1]["messages"], 2000, "messages of the last")
    wait_until(lambda: len([r for r in replays(t) if r.outcome]) >= 2000, 60, "replays")
    time.sleep(0.5)
    judge(t, [r.identity + "#1" for r in t.runs() if "#" not in r.identity])
    t.figure(put_by_the_last=rows[-1]["results"].get("put", 0))
    t.instances[-1].stop()


@scenario
def replay_to_a_topic_and_to_the_handler(t):
    """--to-topic must copy records and dead letters with their headers, and must add a header that
    names the origin. --try must run the handler under the lane's lock and free the lane afterwards.
    `queue replay` with each of these options is first run as a dry run."""
    begin(t, 200, payload=lambda i: b'{"do":"dead"}' if i == 50 else b'{"n":%d}' % i, **TRACE)
    other = t.topics[0] + "-other"
    t.kafka.create(other, 1)
    t.start(retry={"max_attempts": 1})
    t.wait_finished()
    topic = t.topics[0]
    args = ("queue", "replay", "--topic", topic, "--key", "k3", "--again", "--to-topic", other)
    tool(t, *args)
    t.same(t.kafka.dump(other), [], "after a dry run")
    rows = tool(t, *args, "--execute")
    t.same(rows[-1]["results"], {"sent": 10}, "sent")
    # A job that sent messages to a topic cannot be resumed, because such messages leave no marks.
    tool(t, "queue", "replay", "--resume", str(rows[-1]["job"]), "--execute", status=1)
    copied = t.kafka.dump(other)
    t.same([r["key"] for r in copied], ["k3"] * 10, "keys")
    t.same(
        [dict(r["headers"]) for r in copied],
        [dict(TRACE, **{"latchwork-origin": i}) for i in of_key(t, "k3")],
        "headers",
    )
    tool(t, "dead", "replay", "--match", "*", "--to-topic", other, "--execute")
    letter = t.kafka.dump(other)[-1]
    t.same(letter["key"], "k%d" % (50 % KEYS), "the key of the dead letter's copy")
    t.same(
        {k: dict(letter["headers"]).get(k) for k in TRACE},
        TRACE,
        "the trace context of the dead letter's copy",
    )
    # The command's handler writes to the same journal as the workers' handlers.
    os.environ["LW_TEST_JOURNAL"] = t.journal_path
    first = of_key(t, "k3")[0]
    tool(t, "queue", "replay", first, "--try")
    t.same(len(replays(t)), 0, "runs of a dry run")
    rows = tool(t, "queue", "replay", first, "--try", "--execute")
    number = rows[-1]["job"]
    t.same(
        [(r.identity, r.outcome) for r in replays(t)], [("%s#%d" % (first, number), "done")], "runs"
    )
    rows = tool(t, "dead", "replay", "--match", "*", "--try", "--execute", status=1)
    t.check("dead" in rows[0]["result"], "the outcome of the dead one: %r" % rows)
    t.same(len(tool(t, "dead", "ls")), 1, "dead letters: it stays")
    t.redis.call("SET", t.prefix() + b"lock:k3", "somebody.1:5", "PX", 60000)
    rows = tool(t, "queue", "replay", first, "--try", "--execute", status=1)
    t.check("held" in rows[0]["result"], "a lane that is held: %r" % rows)
    t.redis.call("DEL", t.prefix() + b"lock:k3")
    t.expect(oracles.fences(t.runs()))
    t.same([k for k in t.redis.keys() if b"lock:" in k and b"k3" not in k], [], "locks left")
    t.instances[-1].stop()


@scenario
def dead_letters_back_from_their_topic(t):
    """If the setting dead.to is a topic, a dead letter in that topic must be replayed as the
    original message, which its header names. A dead letter that is in the topic twice must be put
    into the lane once."""
    begin(t, 100, payload=lambda i: b'{"do":"dead"}' if i == 50 else b"{}")
    letters = t.topics[0] + "-dead"
    t.kafka.create(letters, 1)
    t.start(retry={"max_attempts": 1}, dead={"to": "topic:" + letters})
    t.wait_finished()
    first = t.kafka.dump(letters)
    t.same(len(first), 1, "letters")
    origin = dict(first[0]["headers"])["latchwork-origin"]
    # Write a second copy of each dead letter to the topic, because a crash can also leave a dead
    # letter there twice.
    tool(t, "queue", "replay", "--topic", letters, "--to-topic", letters, "--execute")
    rows = tool(t, "queue", "replay", "--topic", letters, "--execute")
    number = rows[-1]["job"]
    t.same(rows[-1]["results"], {"put": 1, "put already": 1}, "results")
    wait_until(lambda: len(t.kafka.dump(letters)) == 3, 30, "a letter of the replay")
    t.same(
        [(r.identity, r.outcome) for r in replays(t)],
        [("%s#%d" % (origin, number), "dead")],
        "runs",
    )
    names = [name for name, _ in t.kafka.dump(letters)[2]["headers"]]
    t.same((len(names), len(set(names))), (8, 8), "headers, each of them once: %r" % names)
    t.instances[-1].stop()


@scenario
def drop_and_pause_beside_workers(t):
    """While workers drain, some lanes are paused, and waiting messages of a paused lane and of
    another lane are dropped. Every message must be done or dropped, but not both."""
    begin(t, 4000)
    t.start(work_ms="1-3")
    wait_until(lambda: t.ends_so_far() > 200, 30, "a start")
    tool(t, "queue", "pause", "k1", "k2", "k3")
    backup = os.path.join(t.dir, "backup.jsonl")
    dropped = set()
    until = time.monotonic() + 3
    while time.monotonic() < until:
        tool(t, "queue", "ls"), tool(t, "queue", "stats")
        for key in ("k1", "k4"):
            shown = tool(t, "queue", "export", "--key", key)
            if not shown:
                continue
            p = subprocess.run(
                [
                    os.path.join(t.rig.build, "latchwork"),
                    "queue",
                    "drop",
                    "--key",
                    key,
                    "--execute",
                    "--limit",
                    "5",
                    "--backup",
                    backup,
                    "--json",
                    "-c",
                    t.instances[-1].log_path.replace(".log", ".json"),
                ],
                stdout=subprocess.PIPE,
                timeout=60,
            )
            dropped |= {
                r["identity"]
                for r in map(json.loads, p.stdout.splitlines())
                if r.get("result") == "dropped"
            }
    t.check(bool(dropped), "nothing was dropped: the test does not test much")
    tool(t, "queue", "resume", "--match", "k*", "--execute")
    t.dead = dropped
    t.wait_finished()
    runs, _ = t.judge()
    t.same([r.identity for r in runs if r.identity in dropped], [], "dropped, and run")
    # Delete the keys that jobs leave on purpose: job:…, audit and replays.
    for name in t.redis.keys():
        if name[len(t.prefix()) :].startswith((b"job:", b"audit", b"replays")):
            t.redis.call("DEL", name)
    t.judge_idle()
    t.figure(dropped=len(dropped))
    t.instances[-1].stop()


if __name__ == "__main__":
    main()
