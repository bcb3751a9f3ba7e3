#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests replays, drops and pauses while workers drain. No message may be lost, and each replay must
run once.
Usage: test_replay.py [BUILD [SCENARIO…]]"""

import json
import os
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request

from lib import oracles
from lib.latchwork import readyz
from lib.ports import free_port
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


class Api:
    """The HTTP API of a running instance."""

    def __init__(self, port, token):
        self.url, self.token = "http://127.0.0.1:%d/api/v1/" % port, token

    def ask(self, path, body=None, status=200):
        request = urllib.request.Request(
            self.url + path,
            None if body is None else json.dumps(body).encode(),
            {"Authorization": "Bearer " + self.token},
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as r:
                got, text = r.status, r.read().decode()
        except urllib.error.HTTPError as e:
            got, text = e.code, e.read().decode()
        if got != status:
            raise Failure("%s: %d, not %d: %s" % (path, got, status, text))
        return json.loads(text)

    def letter(self, name, act="", body=None, status=200):
        return self.ask("dead/" + urllib.parse.quote(name, safe="") + act, body, status)

    def pages(self, query):
        """Returns the rows of all pages of a list of dead letters, and the number of pages."""
        rows, n, cursor = [], 0, ""
        while cursor is not None and n < 100:
            page = self.ask("dead?" + query + (cursor and "&cursor=" + cursor))
            rows, n, cursor = rows + page["dead"], n + 1, page["next"]
        return rows, n


def produce_hostile(t, letters):
    """Writes records to the topic of dead letters that no Latchwork has written. Returns the places
    of those that must not be taken for dead letters, and an identity that one of them claims."""
    topic = t.topics[0]
    t.kafka.produce(
        letters,
        [
            (0, b"x", b"\xff\xfe\x00\x01"),
            (1, None, None),
            (0, b"", b""),
            (1, b"k1", b"x" * 1000000),
        ],
    )
    for origin in ("a b/0/5", "another/0/5", topic + "/0/99999999999999999999", "", "\x1b[31m//"):
        t.kafka.produce(letters, [(1, b"k1", b"{}")], **{"latchwork-origin": origin})
    claimed = topic + "/1/4611686018427387904"
    t.kafka.produce(letters, [(0, b"k1", b"{}")], **{"latchwork-origin": claimed})
    return claimed


@scenario
def dead_letters_in_their_topic(t):
    """Dead letters in a topic must be listed, shown, searched, edited and replayed as those in
    Redis are, by the command and by the API. None may be replayed twice, unless asked for. Records
    of other writers must be shown, and never be replayed."""
    bad = {50: b'{"do":"dead","n":50}', 51: b'{"do":"dead","n":51}', 52: b'{"do":"dead","n":52}'}
    begin(t, 60, payload=lambda i: bad.get(i, b"{}"))
    letters = t.topics[0] + "-dead"
    t.kafka.create(letters, 2)
    port = free_port()
    t.start(
        retry={"max_attempts": 1},
        dead={"to": "topic:" + letters},
        http={"listen": "127.0.0.1:%d" % port, "token": "token-of-the-test"},
    )
    nobody = subprocess.Popen(
        [os.path.join(t.rig.build, "latchwork"), "dead", "ls", "-c"]
        + [t.instances[-1].log_path.replace(".log", ".json")]
        + ["--set", "kafka.properties.bootstrap.servers=127.0.0.1:1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    t.commands.append(nobody)
    t.wait_finished()
    wait_until(lambda: readyz(port)[0] == 200, 30, "ready")
    api = Api(port, "token-of-the-test")
    rows = tool(t, "dead", "ls")
    by_n = {json.loads(r["payload"])["n"]: r for r in rows}
    t.same(sorted(by_n), [50, 51, 52], "dead letters of the command")
    places = sorted(
        "%s/%d/%d" % (letters, r["partition"], r["offset"]) for r in t.kafka.dump(letters)
    )
    t.same(sorted(r["id"] for r in rows), places, "ids: the places in the topic")
    for n, r in by_n.items():
        t.same(
            (r["key"], r["attempts"], r["topic"], r["partition"]),
            ("k%d" % (n % KEYS), 1, t.topics[0], n % KEYS % 4),
            "letter %d" % n,
        )
        t.check("latchwork" not in str(r.get("headers")) and r["reason"] is not None, "%r" % r)
    first, second, third = (by_n[n] for n in (50, 51, 52))
    for filters in (("--where", "/n=51"), ("--key", "k11"), (second["id"],), (second["identity"],)):
        verb = "ls" if filters[0].startswith("--") else "show"
        t.same([r["id"] for r in tool(t, "dead", verb, *filters)], [second["id"]], str(filters))
    t.same(tool(t, "dead", "ls", "--error", "no such reason"), [], "another reason")
    t.same(tool(t, "dead", "ls", "--to", "1h"), [], "died an hour ago")
    t.same(len(tool(t, "dead", "ls", "--from", "1h")), 3, "died within an hour")
    # The records of other writers are among the letters from here on.
    claimed = produce_hostile(t, letters)
    for order in ("newest", "oldest"):
        rows, n = api.pages("limit=1&order=" + order)
        t.same(len({r["id"] for r in rows}), 13, "letters in pages, %s first" % order)
        t.same(len(rows), 13, "letters in pages, %s first, each once" % order)
    ours, _ = api.pages("topic=" + t.topics[0])
    t.same(sorted(r["id"] for r in ours), places, "letters of the consumed topic")
    t.same(api.ask("dead/count"), {"count": 13, "scanned": 13, "complete": True}, "count")
    t.same(api.ask("dead/count?where=/n=52")["count"], 1, "count of a payload")
    t.same(api.letter(third["identity"])["id"], third["id"], "a letter by its identity")
    large = [r for r in rows if r.get("payload_size") == 1000000]
    t.same(len(api.letter(large[0]["id"])["payload"]), 1000000, "a large payload")
    strange = [r for r in rows if r["id"] not in places]
    t.check(not any(claimed in (r["identity"], r["id"]) for r in strange), "a forged offset")
    for r in strange:
        api.letter(r["id"])
        t.same(
            api.letter(r["id"], "/edit", {"payload": "{\"x\":1}", "execute": True}, 409)["error"][
                -19:
            ],
            "nothing was written",
            "an edit of %s" % r["id"],
        )
    answer = tool(t, "dead", "replay", *(r["id"] for r in strange), "--execute", status=1)
    t.same((answer[-1]["problems"], answer[-1]["results"]), (len(strange), {}), "strange records")
    # A replay runs once, whoever asks.
    dry = api.ask("dead/replay", {"ids": [first["id"]]})
    t.same((dry["count"], dry["left_out"]), (1, 0), "a dry run")
    done = api.letter(first["id"], "/replay", {"execute": True})
    number = done["results"][0]["job"]
    again = "%s#%d" % (first["identity"], number)
    t.same(done["results"][0]["result"], "put", "a replay")
    wait_until(
        lambda: again in [r["identity"] for r in tool(t, "dead", "ls")], 30, "letter of the replay"
    )
    t.check(api.letter(first["id"])["taken_ms"] > 0, "the time of the replay")
    left_out = "left out: replayed or edited before (--again takes it)"
    rows = tool(t, "dead", "replay", first["id"], "--execute")
    t.same(rows[-1]["results"], {left_out: 1}, "a second replay")
    dry = api.ask("dead/replay", {"ids": [first["id"]]})
    t.same((dry["count"], dry["left_out"]), (0, 1), "a dry run of a second replay")
    rows = tool(t, "dead", "replay", first["id"], "--again", "--execute")
    t.same(rows[-1]["results"], {"put": 1}, "a replay that was asked for")
    wait_until(
        lambda: (
            len([r for r in tool(t, "dead", "ls") if first["identity"] + "#" in r["identity"]]) == 2
        ),
        30,
        "letters of both replays",
    )
    # An edit puts a copy into Redis, and the letter counts as taken.
    edit = {"payload": '{"n":51}', "execute": True, "replay": True}
    t.same(api.letter(second["id"], "/edit", dict(edit, execute=False))["valid"], True, "dry edit")
    t.same(
        api.letter(second["id"], "/edit", edit)["replayed"]["results"][0]["result"], "put", "edit"
    )
    wait_until(lambda: "done" in [r.outcome for r in replays(t)], 30, "the edited letter")
    api.letter(second["id"], "/edit", edit, 409)
    kept = api.letter(third["id"], "/edit", {"payload": '{"n":52}', "execute": True})["id"]
    shown = api.letter(kept)
    t.same(
        (json.loads(shown["payload"]), json.loads(shown["original_payload"])["do"]),
        ({"n": 52}, "dead"),
        "an edited letter in Redis",
    )
    t.same((shown["reason"], shown["attempts"]), (third["reason"], 1), "its reason")
    rows = tool(t, "dead", "replay", "--topic", t.topics[0], "--execute")
    # Both replays of the first letter have died. They are the same message, which a job puts once;
    # and it puts the edited letter from Redis, so not the third one from the topic.
    t.same(
        rows[-1]["results"], {"put": 2, "put already": 2, left_out: 2}, "all letters of the topic"
    )
    rows = tool(t, "dead", "drop", third["id"], "--execute", status=1)
    t.check("retention" in rows[0]["result"], "a drop: %r" % rows)
    t.same(t.redis.call("ZCARD", t.prefix() + b"taken"), 4, "records of what was taken")
    t.expect(oracles.overlaps(t.runs()))
    # A topic may get more partitions between two pages, and one partition may have most letters.
    t.kafka.produce(letters, [(0, b"k1", b"{}")] * 100)
    page = api.ask("dead?limit=5")
    while "-" not in page["next"].split(":")[1]:
        page = api.ask("dead?limit=5&cursor=" + page["next"])
    place = page["next"].split(":")[0]
    for cursor in ("1-2-3", "1-", "-1", "1--2"):
        for path in ("dead?cursor=", "dead/export?cursor="):
            api.ask("%s%s:%s" % (path, place, cursor), status=400)
    rest, _ = api.pages("limit=5&cursor=" + page["next"])
    t.kafka.tool("partitions", letters, 3)
    wait_until(lambda: len(t.kafka.ends([letters])) == 3, 30, "a third partition")
    t.kafka.produce(letters, [(2, b"k1", b"{}")])
    later, _ = api.pages("limit=5&cursor=" + page["next"])
    t.same(
        sorted(r["id"] for r in later if r["id"] != letters + "/2/0"),
        sorted(r["id"] for r in rest),
        "letters of the other pages",
    )
    t.same(len(later), len(rest) + 1, "letters after the topic grew")
    t.kafka.produce(letters, [(0, b"k1", b"{}")] * 6000)
    rows = tool(t, "dead", "ls", "--limit", "0")
    t.same(
        len([r for r in rows if r["id"].startswith(letters)]),
        sum(high - low for low, high in t.kafka.ends([letters]).values()),
        "letters, most of them in one partition",
    )
    # What cannot be read is an error, not an empty list.
    missing = [t.instances[-1].log_path.replace(".log", ".json"), "--set", "dead.to=topic:no-such"]
    done = subprocess.run(
        [os.path.join(t.rig.build, "latchwork"), "dead", "ls", "-c"] + missing,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        timeout=60,
    )
    t.check(b"topic no-such does not exist" in done.stderr and done.returncode == 1, str(done))
    error = nobody.communicate(timeout=60)[1]
    t.check(b"broker does not answer" in error and nobody.returncode == 1, str(error))
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
