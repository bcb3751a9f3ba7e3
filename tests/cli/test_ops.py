#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests `latchwork queue` and `latchwork dead` on a private Redis, with lanes that the test made
itself.
Usage: test_ops.py [BUILD [TEST…]]

No workers run in these tests, which are about the data that the commands read, write and refuse.
tests/live/test_replay.py tests the commands while workers run."""

import json
import os
import re
import subprocess
import sys
import tempfile
import time
import traceback

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "live"))
from lib.redis import Redis  # noqa: E402

P = "lw:{t.0}:"
tests = []


def test(function):
    tests.append(function)
    return function


def envelope(
    offset,
    key,
    payload=b'{"total":1}',
    topic="orders",
    partition=0,
    replay=0,
    first_ms=None,
    headers=b"",
    n_headers=0,
):
    first_ms = int(time.time() * 1000) if first_ms is None else first_ms
    key = key if isinstance(key, bytes) else key.encode()
    line = "1 %s %d %d %d %d 5 %d 0 %d %d\n" % (
        topic,
        partition,
        offset,
        replay,
        first_ms,
        len(key),
        n_headers,
        len(payload),
    )
    return line.encode() + key + headers + payload


class World:
    def __init__(self, build, directory):
        self.program = os.path.join(os.path.abspath(build), "latchwork")
        self.dir = directory
        self.redis = Redis(os.path.join(directory, "redis"))
        self.redis.start()
        self.env = {}
        self.config = os.path.join(directory, "t.json")
        with open(self.config, "w") as f:
            json.dump(
                {
                    "name": "t",
                    "kafka": {
                        "topics": ["orders"],
                        "properties": {"bootstrap.servers": "127.0.0.1:1"},
                    },
                    "redis": {"url": self.redis.url},
                    "handler": {"type": "exec", "command": ["cat"]},
                },
                f,
            )

    def call(self, *args):
        return self.redis.call(*args)

    def begin(self):
        self.call("FLUSHALL")
        self.call("HSET", P + "epoch", "id", "e1", "not_before", "0", "ttl_ms", "10000")

    def park(self, lane, offset, state=True, **more):
        self.call("LPUSH", P + "wait:" + lane, envelope(offset, lane, **more))
        self.call("ZADD", P + "lanes", "NX", int(time.time() * 1000), lane)
        if state:
            self.set_state(offset, 1)

    def set_state(self, offset, state, tp="orders:0"):
        self.call(
            "BITFIELD",
            P + "state:%s:%d" % (tp, offset // 16384),
            "SET",
            "u2",
            "#%d" % (offset % 16384),
            state,
        )

    def state(self, offset, tp="orders:0"):
        return self.call(
            "BITFIELD",
            P + "state:%s:%d" % (tp, offset // 16384),
            "GET",
            "u2",
            "#%d" % (offset % 16384),
        )[0]

    def bury(self, offset, key, reason="no luck", **more):
        self.set_state(offset, 3)
        return self.call(
            "XADD",
            P + "dead",
            "*",
            "envelope",
            envelope(offset, key, **more),
            "reason",
            reason,
            "attempts",
            5,
            "first_ms",
            1,
            "last_ms",
            int(time.time() * 1000),
        ).decode()

    def waiting(self, lane):
        """Returns the identities of a lane's waiting messages, oldest first."""
        out = []
        for e in reversed(self.call("LRANGE", P + "wait:" + lane, 0, -1)):
            topic, partition, offset, replay = e.split(b"\n")[0].decode().split(" ")[1:5]
            out.append(
                "%s/%s/%s%s" % (topic, partition, offset, "#" + replay if replay != "0" else "")
            )
        return out

    def run(self, *args, given=b"", status=0):
        done = subprocess.run(
            [self.program] + list(args) + ["-c", self.config],
            input=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.dir,
            timeout=60,
            env=dict(os.environ, **self.env),
        )
        self.out, self.err = (
            done.stdout.decode("utf-8", "backslashreplace"),
            done.stderr.decode("utf-8", "backslashreplace"),
        )
        assert done.returncode == status, "status %d, not %d: %s\n%s%s" % (
            done.returncode,
            status,
            args,
            self.out,
            self.err,
        )
        return self.out

    def rows(self, *args, **more):
        return [json.loads(line) for line in self.run(*args, "--json", **more).splitlines()]

    def dump(self):
        """Returns all data in Redis, so that a test can check that nothing was changed."""
        return sorted((k, self.call("DUMP", k)) for k in self.redis.keys())


# --- ls -------------------------------------------------------------------------------------------


@test
def ls_tells_of_lanes(w):
    now = int(time.time() * 1000)
    w.park("a", 1, first_ms=now - 60000)
    w.park("a", 2)
    w.park("b", 3, first_ms=now - 120000)
    w.call("SET", P + "lock:a", "host-7-ab.9:1700000000000123", "PX", 60000)
    w.call("SET", P + "lock:b", "backoff", "PX", 60000)
    w.call("HSET", P + "tries:orders:0:0", "3", "2 1 0")
    w.call("SADD", P + "paused", "idle")
    rows = w.rows("queue", "ls")
    assert [r["key"] for r in rows] == ["b", "a", "idle"], rows
    a = rows[1]
    assert (a["waiting"], a["holder"], a["fence"], a["since_ms"], a["oldest"]) == (
        2,
        "host-7-ab",
        1700000000000123,
        1700000000000,
        "orders/0/1",
    ), a
    assert 59000 < a["age_ms"] < 90000 and now < a["until_ms"] <= now + 70000, a
    assert rows[0]["backoff"] and rows[0]["attempts"] == 2 and rows[0]["holder"] is None, rows[0]
    assert rows[2]["paused"] and rows[2]["waiting"] == 0, rows[2]
    assert [r["key"] for r in w.rows("queue", "ls", "--sort", "size")] == ["a", "b", "idle"]
    assert [r["key"] for r in w.rows("queue", "ls", "--sort", "size", "--limit", "1")] == ["a"]
    assert [r["key"] for r in w.rows("queue", "ls", "--older-than", "90s")] == ["b"]
    assert [r["key"] for r in w.rows("queue", "ls", "--attempts", "1")] == ["b"]
    assert [r["key"] for r in w.rows("queue", "ls", "--match", "[a-c]")] == ["b", "a"]
    assert [r["key"] for r in w.rows("queue", "ls", "--key", "a")] == ["a"]
    assert w.rows("queue", "ls", "--topic", "other") == []
    text = w.run("queue", "ls")
    assert "host-7-ab" in text and "backoff" in text and "orders/0/3" in text, text


@test
def ls_of_many_lanes(w):
    """`queue ls` must obey --limit, and must list all lanes even if one step of its scan does not
    return all of them."""
    for i in range(1000):
        w.park("k%04d" % i, i, first_ms=1700000000000 + i)
    rows = w.rows("queue", "ls", "--limit", "0")
    assert [r["key"] for r in rows] == ["k%04d" % i for i in range(1000)]
    assert [r["key"] for r in w.rows("queue", "ls", "--limit", "7", "--reverse")] == [
        "k%04d" % i for i in range(999, 992, -1)
    ]
    assert "100 of 1000 lanes" in w.run("queue", "ls")


@test
def ls_takes_finished_heads_for_what_they_are(w):
    w.park("a", 1)
    w.park("a", 2)
    w.set_state(1, 2)
    assert w.rows("queue", "ls")[0]["oldest"] == "orders/0/2"
    w.set_state(2, 2)
    assert w.rows("queue", "ls") == []


@test
def ls_shows_keys_that_are_no_text(w):
    w.park("a\x1b[31m", 1)
    assert "\x1b" not in w.run("queue", "ls")
    assert w.rows("queue", "ls")[0]["key"] == "a\x1b[31m"
    w.call("LPUSH", (P + "wait:").encode() + b"\xff", envelope(2, b"\xff"))
    w.call("ZADD", P + "lanes", 1, b"\xff")
    assert [r.get("key_base64") for r in w.rows("queue", "ls", "--topic", "orders")].count(
        "/w=="
    ) == 1


@test
def ls_tells_of_a_broken_name(w):
    w.call("SET", P + "wait:a", "x")
    w.call("ZADD", P + "lanes", 1, "a")
    assert w.rows("queue", "ls")[0]["waiting"] == -1


# --- show, export ---------------------------------------------------------------------------------


@test
def show_tells_of_all_that_waits(w):
    for i in range(200):
        w.park("a", i, payload=b'{"n":%d}' % i)
    w.set_state(100, 2)
    w.call("SET", P + "lock:a", "host-7-ab.9:1700000000000123", "PX", 60000)
    rows = w.rows("queue", "show", "a")
    assert rows[0]["type"] == "lane" and rows[0]["holder"] == "host-7-ab"
    assert [r["offset"] for r in rows[1:]] == [i for i in range(200) if i != 100]
    assert (
        rows[1]["payload"] == '{"n":0}'
        and rows[1]["identity"] == "orders/0/0"
        and rows[1]["key"] == "a"
    )
    text = w.run("queue", "show", "a", "--limit", "3")
    assert "holder   host-7-ab" in text and "orders/0/2" in text and "orders/0/3" not in text, text
    w.park("long", 500, payload=b"x" * 5000)
    assert w.rows("queue", "show", "long")[1]["payload_size"] == 5000
    assert len(w.rows("queue", "show", "long", "--raw")[1]["payload"]) == 5000


@test
def show_finds_the_lane_of_a_long_key(w):
    key = "k" * 600
    import_line = json.dumps(
        {"topic": "orders", "partition": 0, "offset": 1, "key": key, "payload": "x"}
    )
    w.run("queue", "import", "-", "--execute", given=import_line.encode())
    rows = w.rows("queue", "show", key)
    assert len(rows) == 2 and rows[1]["key"] == key, rows
    assert rows[0]["key"].startswith("\x01long:")


@test
def export_writes_what_import_reads(w):
    headers = b"\x01\0\0\0h\x02\0\0\0v1" + b"\x01\0\0\0n\xff\xff\xff\xff"
    w.park("a", 1, payload=b"\xff\0", headers=headers, n_headers=2)
    w.park("a", 2, payload=b"")
    w.park("b", 3, payload="ü".encode())
    lists = {k: w.call("LRANGE", P + "wait:" + k, 0, -1) for k in "ab"}
    text = w.run("queue", "export")
    rows = [json.loads(line) for line in text.splitlines()]
    assert rows[0]["headers"] == ["h", "v1", "n", None] and rows[0]["payload_base64"] == "/wA=", (
        rows[0]
    )
    assert rows[1]["payload"] == "" and rows[2]["payload"] == "ü"
    w.begin()
    w.run("queue", "import", "-", given=text.encode())
    assert w.redis.keys() == [(P + "epoch").encode()], "a dry run changes nothing"
    w.run("queue", "import", "-", "--execute", given=text.encode())
    assert {k: w.call("LRANGE", P + "wait:" + k, 0, -1) for k in "ab"} == lists
    before = [w.call("LRANGE", P + "wait:" + k, 0, -1) for k in "ab"]
    w.run("queue", "import", "-", "--execute", given=text.encode())
    assert [w.call("LRANGE", P + "wait:" + k, 0, -1) for k in "ab"] == before, "twice is once"


@test
def export_filters(w):
    for i in range(6):
        w.park("ab"[i % 2], i, payload=b'{"total":%d,"city":"Ulm"}' % (50 * i))
    offsets = lambda *a: [r["offset"] for r in w.rows("queue", "export", *a)]  # noqa: E731
    assert offsets() == [0, 2, 4, 1, 3, 5]
    assert offsets("--key", "b") == [1, 3, 5]
    assert offsets("--where", "/total>100") == [4, 3, 5]
    assert offsets("--where", "/total>100", "--where", "/total<=200") == [4, 3]
    assert offsets("--where", "/city=Ulm", "--limit", "2") == [0, 2]
    assert (
        offsets("--where", "/city~lm") == [0, 2, 4, 1, 3, 5] and offsets("--where", "/street") == []
    )
    assert offsets("orders/0/3", "orders/0/4") == [4, 3]
    w.run("queue", "export", "--where", "total>1", status=2)


# --- pause, resume --------------------------------------------------------------------------------


@test
def pause_and_resume(w):
    w.park("a", 1)
    w.park("b", 2)
    assert w.rows("queue", "pause", "a", "c") == [
        {"key": "a", "result": "paused"},
        {"key": "c", "result": "paused"},
    ]
    assert w.rows("queue", "pause", "a") == [{"key": "a", "result": "was paused"}]
    assert sorted(w.call("SMEMBERS", P + "paused")) == [b"a", b"c"]
    w.run("queue", "pause", "--match", "b")
    assert w.call("SISMEMBER", P + "paused", "b") == 0 and "--execute" in w.err
    w.run("queue", "pause", "--match", "b", "--execute")
    assert w.call("SISMEMBER", P + "paused", "b") == 1
    w.run("queue", "pause", status=2)
    w.run("queue", "resume", "a", "c")
    assert w.call("SMEMBERS", P + "paused") == [b"b"]
    assert w.call("LRANGE", P + "ready", 0, -1) == [b"a"], (
        "only the lane that has waiters is hinted"
    )
    assert w.rows("queue", "resume", "a") == [{"key": "a", "result": "was not paused"}]
    w.run("queue", "resume", "--match", "*", "--execute")
    assert w.call("EXISTS", P + "paused") == 0


@test
def stats_count(w):
    for i in range(5):
        w.park("a", i)
    w.park("b", 9)
    w.bury(20, "x", reason="no money")
    w.bury(21, "y", reason="no money")
    w.bury(22, "y", reason="no wine")
    w.call("SADD", P + "paused", "b")
    s = w.rows("queue", "stats")[0]
    assert (s["lanes"], s["waiting"], s["dead"], s["paused"]) == (2, 6, 3, 1), s
    assert s["top_keys"][0] == {"key": "a", "waiting": 5} and s["top_reasons"][0] == {
        "reason": "no money",
        "dead": 2,
    }, s
    assert (
        s["in_per_second"] is None
        and s["out_per_second"] == 0
        and "Kafka does not answer" in w.run("queue", "stats", "--over", "100ms")
    )
    assert "no money" in w.out


@test
def stats_are_watched(w):
    """Reads lines while messages arrive, while Redis is gone, and after it is back."""
    w.park("a", 1)
    command = [w.program, "queue", "stats", "-c", w.config, "--watch", "1"]
    watching = subprocess.Popen(
        command + ["--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert json.loads(watching.stdout.readline())["waiting"] == 1
        w.park("a", 2)
        while json.loads(watching.stdout.readline())["waiting"] != 2:
            pass
        w.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        assert "latchwork queue stats: " in watching.stderr.readline()
        assert json.loads(watching.stdout.readline())["waiting"] == 2
    finally:
        watching.kill()
        watching.communicate()
    watching = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    heading, line = watching.stdout.readline(), watching.stdout.readline()
    watching.kill()
    watching.communicate()
    assert heading.split()[:2] == ["lanes", "held"] and line.split()[-1] == "a", (heading, line)
    w.run("queue", "stats", "--watch", "1", "--over", "1s", status=2)


# --- drop -----------------------------------------------------------------------------------------


@test
def drop_is_a_dry_run_first(w):
    for i in range(10):
        w.park("a", i)
    before = w.dump()
    rows = w.rows("queue", "drop", "--key", "a")
    assert rows[-1]["dry_run"] and rows[-1]["results"] == {"would be dropped": 10}, rows[-1]
    assert w.dump() == before
    w.run("queue", "drop", status=2)


@test
def drop_writes_a_backup_first(w):
    for i in range(100):
        w.park("a", i)
    backup = os.path.join(w.dir, "backup.jsonl")
    rows = w.rows("queue", "drop", "orders/0/3", "orders/0/99", "--execute", "--backup", backup)
    assert rows[-1]["results"] == {"dropped": 2}, rows[-1]
    assert [json.loads(x)["offset"] for x in open(backup)] == [3, 99]
    assert w.state(3) == 2 and w.state(99) == 2 and w.state(4) == 1
    assert [r["offset"] for r in w.rows("queue", "export")] == [i for i in range(99) if i != 3]
    assert os.stat(backup).st_mode & 0o777 == 0o600, "payloads are for the operator only"
    target, link = backup + ".other", backup + ".link"
    os.symlink(target, link)
    for name in backup, link:
        w.run("queue", "drop", "--key", "a", "--execute", "--backup", name, status=1)
        assert "must be a new file" in w.err, w.err
    assert len(w.rows("queue", "export")) == 98 and not os.path.exists(target)
    assert len(open(backup).readlines()) == 2
    w.rows("queue", "drop", "--key", "a", "--execute", "--backup", backup + ".all")
    assert w.call("EXISTS", P + "wait:a", P + "lanes") == 0, (
        "a lane of which nothing is left goes at once"
    )
    assert len(open(backup + ".all").readlines()) == 98
    for name in backup, backup + ".all", link:
        os.unlink(name)


@test
def drop_leaves_what_a_holder_may_have(w):
    for i in range(100):
        w.park("a", i)
    w.call("SET", P + "lock:a", "host-7-ab.9:1700000000000123", "PX", 60000)
    rows = w.rows("queue", "drop", "--key", "a", "--execute", status=1)
    assert sorted(rows[-1]["results"].values()) == [36, 64] and rows[-1]["problems"] == 64, rows[-1]
    assert [w.state(i) for i in (0, 63, 64, 99)] == [1, 1, 2, 2]
    w.call("SET", P + "lock:a", "backoff", "PX", 60000)
    assert w.rows("queue", "drop", "--key", "a", "--execute")[-1]["results"] == {"dropped": 64}


@test
def nothing_is_done_where_states_are_not_known(w):
    w.park("a", 1)
    w.call("DEL", P + "epoch")
    w.run("queue", "drop", "--key", "a", "--execute", status=1)
    assert "no worker has joined" in w.err and w.state(1) == 1
    w.call("HSET", P + "epoch", "id", "e2", "not_before", int(time.time() * 1000) + 60000)
    w.run("queue", "drop", "--key", "a", "--execute", status=1)
    assert "new epoch" in w.err and w.state(1) == 1


# --- import ---------------------------------------------------------------------------------------


def lines(*objects):
    return "\n".join(json.dumps(o) for o in objects).encode()


@test
def import_refuses_what_is_no_message(w):
    good = {"topic": "orders", "partition": 0, "offset": 1, "key": "a", "payload": "x"}
    bad = [
        dict(good, topic="a b"),
        dict(good, offset=-1),
        dict(good, partition="0"),
        dict(good, key=None),
        dict(good, payload=5),
        dict(good, payload_base64="x"),
        dict(good, headers=["a"]),
        dict(good, payload_size=9),
        [],
    ]
    rows = w.rows("queue", "import", "-", "--execute", given=lines(*bad, good) + b"\n{", status=1)
    assert rows[-1]["problems"] == len(bad) + 1 and rows[-1]["messages"] == 1, rows
    assert w.waiting("a") == ["orders/0/1"] and w.state(1) == 1
    rows = w.rows(
        "queue", "import", "-", "--execute", "--stop-on-error", given=lines({}, good), status=1
    )
    assert rows[-1]["messages"] == 0


@test
def import_leaves_out_what_is_finished(w):
    message = {"topic": "orders", "partition": 0, "offset": 1, "key": "a", "payload": "x"}
    w.set_state(1, 2)
    assert w.rows("queue", "import", "-", "--execute", given=lines(message))[-1]["results"] == {
        "there or finished already": 1
    }
    w.call("HSET", P + "floor", "orders:0", 100)
    w.set_state(1, 0)
    assert w.rows("queue", "import", "-", "--execute", given=lines(message))[-1]["results"] == {
        "there or finished already": 1
    }
    assert w.waiting("a") == []
    rows = w.rows("queue", "import", "-", "--execute", "--again", given=lines(message))
    assert rows[-1]["results"] == {"put": 1} and w.waiting("a") == [
        "orders/0/1#%d" % rows[-1]["job"]
    ], rows
    assert w.call("LRANGE", P + "ready", 0, -1) == [b"a"]


# --- dead -----------------------------------------------------------------------------------------


@test
def dead_ls_show_export(w):
    now = int(time.time() * 1000)
    first = w.bury(1, "a", reason="no money", payload=b'{"total":200}')
    w.bury(2, "b", reason="no wine", payload=b'{"total":5}', first_ms=now - 7200000)
    w.call(
        "XADD",
        P + "dead",
        "*",
        "envelope",
        "rubbish",
        "reason",
        "not an envelope of this version",
        "attempts",
        "0",
    )
    rows = w.rows("dead", "ls")
    assert [(r.get("identity"), r["reason"]) for r in rows] == [
        ("orders/0/1", "no money"),
        ("orders/0/2", "no wine"),
        (None, "not an envelope of this version"),
    ], rows
    assert rows[0]["id"] == "0:" + first and rows[0]["attempts"] == 5
    identities = lambda *a: [r.get("identity") for r in w.rows("dead", "ls", *a)]  # noqa: E731
    assert identities("--reason", "no *") == ["orders/0/1", "orders/0/2"]
    assert identities("--error", "wine") == ["orders/0/2"]
    assert identities("--where", "/total>100") == ["orders/0/1"]
    assert identities("--older-than", "1h", "--key", "b") == ["orders/0/2"]
    assert (
        identities("--from", "1h", "--topic", "orders") == ["orders/0/1", "orders/0/2"]
        and identities("--to", "1h", "--topic", "orders") == []
    )
    assert identities("--limit", "1") == ["orders/0/1"]
    assert w.rows("dead", "show", "orders/0/1")[0]["payload"] == '{"total":200}'
    assert "no wine" in w.run("dead", "show", "orders/0/2") and "rubbish" in w.run(
        "dead", "show", rows[2]["id"]
    )
    w.run("dead", "show", "orders/0/9", status=1)
    assert [r.get("identity") for r in w.rows("dead", "export", "orders/0/2")] == ["orders/0/2"]
    assert "no money" in w.run("dead", "ls")


@test
def dead_replay_goes_behind_what_waits(w):
    w.park("a", 5)
    for i in range(70):
        w.bury(i + 100, "a" if i % 2 == 0 else "b")
    before = w.dump()
    assert w.rows("dead", "replay", "--key", "a")[-1]["results"] == {"would be put": 35}
    assert w.dump() == before
    rows = w.rows("dead", "replay", "--key", "a", "--execute")
    n = rows[-1]["job"]
    assert rows[-1]["results"] == {"put": 35} and rows[-1]["state"] == "finished"
    assert w.waiting("a") == ["orders/0/5"] + [
        "orders/0/%d#%d" % (i, n) for i in range(100, 170, 2)
    ]
    assert (
        w.call("XLEN", P + "dead") == 35
        and w.state(100, "orders:0#%d" % n) == 1
        and w.state(100) == 3
    )
    assert w.rows("dead", "replay", "--match", "*", "--execute", "--limit", "5")[-1]["job"] == n + 1
    audit = [dict(zip(f[::2], f[1::2])) for _, f in w.call("XRANGE", P + "audit", "-", "+")]
    assert (
        [a[b"event"] for a in audit] == [b"begin", b"end"] * 2
        and audit[1][b"done"] == b"35"
        and b"@" in audit[0][b"who"]
    ), audit
    assert b'"keys":["a"]' in audit[0][b"words"]
    w.run("dead", "replay", status=2)


@test
def dead_replay_keeps_what_has_no_lane(w):
    w.call("XADD", P + "dead", "*", "envelope", "rubbish", "reason", "?", "attempts", "0")
    w.bury(1, "a")
    rows = w.rows("dead", "replay", "--match", "*", "--execute", status=1)
    assert rows[-1]["problems"] == 1 and rows[-1]["results"] == {"put": 1}, rows
    assert w.call("XLEN", P + "dead") == 1


@test
def dead_replay_does_not_lose_what_a_broken_name_refuses(w):
    w.call("SET", P + "wait:a", "x")
    w.bury(1, "a")
    rows = w.rows("dead", "replay", "--match", "*", "--execute", status=1)
    assert rows[-1]["problems"] == 1 and w.call("XLEN", P + "dead") == 1, rows


@test
def dead_drop_writes_a_backup(w):
    for i in range(5):
        w.bury(i, "a", payload=b"p%d" % i)
    backup = os.path.join(w.dir, "dead.jsonl")
    assert w.rows("dead", "drop", "orders/0/1", "--execute", "--backup", backup)[-1]["results"] == {
        "dropped": 1
    }
    assert w.call("XLEN", P + "dead") == 4 and [json.loads(x)["payload"] for x in open(backup)] == [
        "p1"
    ]
    w.run(
        "dead",
        "drop",
        "--match",
        "*",
        "--execute",
        "--backup",
        os.path.join(w.dir, "nowhere", "file"),
        status=1,
    )
    assert w.call("XLEN", P + "dead") == 4 and w.call("EXISTS", P + "job") == 0
    rows = [json.loads(x) for x in open(backup)]
    w.rows("queue", "import", backup, "--execute", "--again")
    assert w.waiting("a")[0].startswith("orders/0/1#"), rows
    os.unlink(backup)


@test
def dead_edit_keeps_the_original(w):
    w.bury(1, "a", payload=b'{"total":1}')
    w.env = {"EDITOR": "sed -i s/1/2/"}
    row = w.rows("dead", "edit", "orders/0/1")[0]
    assert w.call("XLEN", P + "dead") == 1 and row["result"] == "edited"
    shown = w.rows("dead", "show", row["id"])[0]
    assert (
        shown["payload"] == '{"total":2}'
        and shown["original_payload"] == '{"total":1}'
        and "@" in shown["edited_by"]
    ), shown
    assert '+{"total":2}' in w.run("dead", "show", row["id"])
    w.env = {"EDITOR": "sed -i s/2/3/"}
    row = w.rows("dead", "edit", row["id"])[0]
    assert w.rows("dead", "show", row["id"])[0]["original_payload"] == '{"total":1}', (
        "the first one is kept"
    )
    before = w.dump()
    w.env = {"EDITOR": "sed -i s/}/,/"}
    w.run("dead", "edit", "orders/0/1", status=1)
    assert "JSON" in w.err and w.dump() == before
    written = re.search(r"your edit is in (\S+)", w.err).group(1)
    assert open(written).read() == '{"total":3,'
    os.unlink(written)
    w.env = {"EDITOR": "false", "TMPDIR": w.dir}
    w.run("dead", "edit", "orders/0/1", status=1)
    assert not [name for name in os.listdir(w.dir) if "edit" in name], (
        "nothing was written that is worth keeping"
    )
    w.env = {"EDITOR": "true"}
    assert (
        w.rows("dead", "edit", "orders/0/1") == [{"result": "not changed"}] and w.dump() == before
    )
    w.env = {}
    n = w.rows("dead", "replay", "orders/0/1", "--execute")[-1]["job"]
    assert w.rows("queue", "export")[0]["payload"] == '{"total":3}' and w.waiting("a") == [
        "orders/0/1#%d" % n
    ]


# --- jobs -----------------------------------------------------------------------------------------


@test
def one_job_at_a_time(w):
    w.bury(1, "a")
    w.call("SET", P + "job", "7 another", "PX", 30000)
    w.run("dead", "replay", "orders/0/1", "--execute", status=1)
    assert "job 7 is under way" in w.err and w.call("XLEN", P + "dead") == 1
    w.run("dead", "replay", "orders/0/1")


def replay_slowly(w):
    """Adds 40 dead letters, and starts a command that replays them at 5 per second. Waits for the
    first replays, and returns the process of the command."""
    for i in range(40):
        w.bury(i, "a")
    p = subprocess.Popen(
        [w.program, "dead", "replay", "--key", "a", "--rate", "5", "--execute", "-c", w.config],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    while w.call("XLEN", P + "dead") > 38:
        time.sleep(0.01)
    return p


@test
def a_job_that_was_interrupted_goes_on(w):
    p = replay_slowly(w)
    p.kill()
    p.communicate()
    left = w.call("XLEN", P + "dead")
    assert 0 < left < 40 and len(w.waiting("a")) == 40 - left
    w.run("dead", "replay", "--key", "a", "--resume", "1", "--execute", status=1)
    assert "under way" in w.err
    # Delete the key `job`, which would expire only after 30 s.
    w.call("DEL", P + "job")
    w.run("dead", "replay", "--key", "b", "--resume", "1", "--execute", status=1)
    assert "another command" in w.err
    w.run("dead", "replay", "--key", "a", "--resume", "9", "--execute", status=1)
    assert "no job" in w.err
    rows = w.rows("dead", "replay", "--key", "a", "--resume", "1", "--execute")
    assert rows[-1]["job"] == 1 and rows[-1]["results"] == {"put": left}
    assert sorted(w.waiting("a")) == sorted("orders/0/%d#1" % i for i in range(40)), "each once"


@test
def an_interrupt_ends_the_job(w):
    p = replay_slowly(w)
    p.terminate()
    _, err = p.communicate(timeout=20)
    assert p.returncode == 1 and b"--resume 1" in err, err
    assert (
        w.call("EXISTS", P + "job") == 0 and w.call("HGET", P + "job:1", "state") == b"interrupted"
    )
    assert w.call("XLEN", P + "dead") + len(w.waiting("a")) == 40


@test
def a_job_goes_on_by_its_number_alone(w):
    """A job that is resumed must still have its options. A relative time such as 1h must still
    count from the first start of the job."""
    now = int(time.time() * 1000)
    for i in range(30):
        w.bury(i, "a", reason="no money" if i < 20 else "no wine")
    rows = w.rows(
        "dead", "replay", "--reason", "no m*", "--from", "1h", "--limit", "5", "--execute"
    )
    job = rows[-1]["job"]
    words = json.loads(w.call("HGET", P + "job:%d" % job, "words"))
    assert words["reason"] == "no m*" and words["from"] == "1h", words
    asked = int(w.call("HGET", P + "job:%d" % job, "asked_ms"))
    assert now <= asked <= int(time.time() * 1000)
    # Change the job so that it seems to have been started two hours later. Then no dead letter is
    # from the hour before the job's start.
    w.call("HSET", P + "job:%d" % job, "asked_ms", asked + 7200000)
    assert w.rows("dead", "replay", "--resume", str(job))[-1]["messages"] == 0
    w.call("HSET", P + "job:%d" % job, "asked_ms", asked)
    w.run("queue", "drop", "--resume", str(job), "--execute", status=1)
    assert "another command" in w.err
    assert w.rows("dead", "replay", "--resume", str(job))[-1]["messages"] == 15
    rows = w.rows("dead", "replay", "--resume", str(job), "--execute")
    assert rows[-1]["results"] == {"put": 15} and rows[-1]["job"] == job, rows[-1]
    assert w.call("XLEN", P + "dead") == 10 and sorted(w.waiting("a")) == sorted(
        "orders/0/%d#%d" % (i, job) for i in range(20)
    )


@test
def a_job_of_a_binary_key_does_not_go_on_without_it(w):
    """The options of such a job cannot be recorded, since they are no UTF-8. A job that is resumed
    without its key would take the dead letters of all keys."""
    for i in range(8):
        w.bury(i, "a" if i % 2 else b"\xff")
    rows = w.rows("dead", "replay", "--key", b"\xff", "--limit", "2", "--execute")
    assert rows[-1]["results"] == {"put": 2}, rows[-1]
    job = str(rows[-1]["job"])
    for more in ((), ("--key", b"\xff")):
        w.run("dead", "replay", "--resume", job, "--execute", *more, status=1)
        assert "had other options" in w.err
    assert w.call("XLEN", P + "dead") == 6 and not w.waiting("a")


@test
def a_job_that_was_silent_goes_on_alone(w):
    """If a job's key in Redis has expired, the job must continue if no other job has begun, and
    must stop if another job has begun."""
    for i in range(40):
        w.bury(i, "a")
    for other in (False, True):
        p = subprocess.Popen(
            [
                w.program,
                "dead",
                "replay",
                "--key",
                "a",
                "--rate",
                "8",
                "--limit",
                "12",
                "--execute",
                "-c",
                w.config,
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        left = w.call("XLEN", P + "dead")
        while w.call("XLEN", P + "dead") > left - 2:
            time.sleep(0.01)
        if other:
            w.call("SET", P + "job", "99 another", "PX", 60000)
        else:
            w.call("DEL", P + "job")
        _, err = p.communicate(timeout=60)
        assert p.returncode == (1 if other else 0) and (b"another one began" in err) == other, err
    assert w.call("GET", P + "job") == b"99 another"


@test
def the_audit_tells_who_did_what(w):
    w.park("a", 1)
    w.bury(2, "a")
    w.run("queue", "pause", "a")
    # Pausing a lane that is already paused makes no entry in the audit.
    w.run("queue", "pause", "a")
    w.env = {"EDITOR": "sed -i s/1/2/"}
    w.run("dead", "edit", "orders/0/2")
    w.env = {}
    w.run("dead", "replay", "--where", "/total>1", "--execute")
    # A dry run makes no entry in the audit.
    w.run("dead", "replay", "--match", "*")
    rows = w.rows("queue", "audit")
    assert [(r["event"], r.get("done")) for r in rows] == [
        ("pause", 1),
        ("edit", 1),
        ("begin", None),
        ("end", 1),
    ], rows
    assert (
        all("@" in r["who"] and r["at_ms"] > 0 for r in rows)
        and rows[0]["words"]["words"] == ["a"]
        and rows[3]["words"]["where"] == ["/total>1"]
    ), rows
    assert rows[2]["job"] == rows[3]["job"] == 1 and rows[3]["state"] == "finished"
    text = w.run("queue", "audit", "--limit", "1")
    assert "dead replay --where /total>1" in text and "edit" not in text, text


@test
def a_letter_is_found_by_its_place(w):
    ids = ["0:" + w.bury(i, "a") for i in range(5)]
    assert [r["id"] for r in w.rows("dead", "ls")] == ids
    assert [r["offset"] for r in w.rows("dead", "show", ids[3], ids[1])] == [3, 1]
    w.run("dead", "show", "0:1-1", status=1)
    w.run("dead", "show", "7:1-1", status=1)
    assert w.rows("dead", "replay", ids[2], "--execute")[-1]["results"] == {"put": 1}
    assert w.waiting("a") == ["orders/0/2#1"]


@test
def large_messages_come_in_small_pages(w):
    """Even if messages are large, no call may read more bytes than Redis can send quickly, and
    every message must be listed once and in order."""
    for i in range(40):
        w.park("a", i, payload=b"x" * 200000)
        w.bury(100 + i, "b", payload=b"y" * 200000)
    for i in range(20):
        w.park("c%02d" % i, 200 + i, payload=b"z" * 200000)
    assert [r["offset"] for r in w.rows("queue", "show", "a")[1:]] == list(range(40))
    assert [r["key"] for r in w.rows("queue", "ls", "--limit", "0", "--sort", "age")] == ["a"] + [
        "c%02d" % i for i in range(20)
    ]
    assert [r["offset"] for r in w.rows("dead", "ls", "--limit", "0")] == list(range(100, 140))
    w.run("dead", "replay", "--match", "*", "--execute")
    assert w.waiting("b") == ["orders/0/%d#1" % i for i in range(100, 140)]


@test
def drop_beside_many_held_lanes(w):
    """There are more held lanes than one call of the script examines, so the command must call the
    script again."""
    for k in range(20):
        for i in range(70):
            w.park("k%02d" % k, k * 100 + i)
        w.call("SET", P + "lock:k%02d" % k, "host-7-ab.9:1700000000000123", "PX", 60000)
    backup = os.path.join(w.dir, "backup.jsonl")
    rows = w.rows("queue", "drop", "--match", "k*", "--execute", "--backup", backup, status=1)
    assert sorted(rows[-1]["results"].values()) == [20 * 6, 20 * 64], rows[-1]
    assert [w.state(k * 100 + i) for k in (0, 19) for i in (0, 63, 64, 69)] == [1, 1, 2, 2] * 2
    assert len({r["identity"] for r in rows[:-1]}) == 20 * 70 == len(rows) - 1, (
        "each is told of once"
    )
    os.unlink(backup)
    # Each lane has so few messages that one call carries several lanes.
    for k in range(20):
        for i in range(3):
            w.park("few%02d" % k, 5000 + k * 3 + i)
        w.call("SET", P + "lock:few%02d" % k, "host-7-ab.9:1700000000000123", "PX", 60000)
    rows = w.rows("queue", "drop", "--match", "few*", "--execute", "--backup", backup, status=1)
    assert rows[-1]["problems"] == 60 == len(rows) - 1 and w.state(5000) == w.state(5059) == 1, (
        rows[-1]
    )
    os.unlink(backup)


@test
def stop_on_error_stops_at_once(w):
    w.call("SET", P + "wait:broken", "x")
    for i, key in enumerate(["a", "broken", "b", "b"]):
        w.bury(i, key)
    rows = w.rows("dead", "replay", "--match", "*", "--execute", "--stop-on-error", status=1)
    assert rows[-1]["messages"] == 2 and rows[-1]["state"] == "stopped at an error", rows[-1]
    assert w.call("XLEN", P + "dead") == 3 and w.waiting("b") == []


@test
def progress_on_a_terminal(w):
    for i in range(20):
        w.bury(i, "a")
    master, slave = os.openpty()
    p = subprocess.Popen(
        [w.program, "dead", "replay", "--match", "*", "--rate", "40", "--execute", "-c", w.config],
        stdout=subprocess.DEVNULL,
        stderr=slave,
        env=dict(os.environ, TERM="xterm"),
    )
    os.close(slave)
    text = b""
    while True:
        try:
            some = os.read(master, 4096)
        except OSError:
            break
        if not some:
            break
        text += some
    os.close(master)
    assert p.wait() == 0
    lines = text.decode().split("\r")
    assert (
        len(lines) > 3 and "[####################] 100 %  20 put, 0 not" in lines[-2] + lines[-1]
    ), text
    assert any(
        "%" in line and "[....................]" not in line and "100 %" not in line
        for line in lines
    ), "something between: %r" % text
    w.bury(30, "a")
    w.run("dead", "replay", "--match", "*", "--execute")
    assert w.err == "", "none in a pipe"


# --- usage ----------------------------------------------------------------------------------------


@test
def usage(w):
    for args in (
        ["queue"],
        ["queue", "list"],
        ["queue", "ls", "x"],
        ["queue", "ls", "--rate", "5"],
        ["queue", "show"],
        ["dead", "edit"],
        ["queue", "ls", "--older-than", "soon"],
        ["queue", "ls", "--sort", "name"],
        ["queue", "ls", "--key", "a", "--match", "b"],
        ["dead", "ls", "--from", "whenever"],
        ["queue", "ls", "--wrong"],
    ):
        w.run(*args, status=2)
        assert w.err and not w.out, args
    for args in (["queue", "--help"], ["dead", "--help"], ["queue", "ls", "--help"]):
        assert "usage:" in w.run(*args)
    assert "--execute" not in w.run("queue", "ls", "--help") and "latchwork queue ls -c" in w.out
    w.run("queue", "--", "--help", status=2)
    assert "put options before --" in w.err
    w.run("queue", "list", status=2)
    assert "ls, show, pause" in w.err
    w.run("queue", status=2)
    assert "usage: latchwork queue VERB" in w.err
    w.run("queue", "stats", "--over", "never", status=2)
    w.run("queue", "replay", status=2)
    assert "--key" in w.err


@test
def help_completion_and_reference_agree(w):
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
    reference = open(os.path.join(root, "doc/reference/commands.md")).read()
    seen = 0
    help_of = lambda *words: (
        subprocess.run(
            [w.program, *words, "--help"], stdout=subprocess.PIPE, check=True, text=True
        ).stdout
    )  # noqa: E731
    for command in ("run", "dev", "check", "queue", "dead", "lock", "ledger"):
        has_verbs = command in ("queue", "dead", "lock")
        for verb in (
            re.findall(r"^  ([a-z]+) ", help_of(command).split("Examples")[0], re.M)
            if has_verbs
            else [""]
        ):
            options = set(
                re.findall(r"^ +(?:-., )?(--[a-z-]+)", help_of(command, *verb.split()), re.M)
            )
            script = '. "$1"; _latchwork_options "$2" "$3"'
            done = subprocess.run(
                [
                    "bash",
                    "-c",
                    script,
                    "x",
                    os.path.join(os.path.dirname(w.program), "completion.bash"),
                    command,
                    verb,
                ],
                stdout=subprocess.PIPE,
                check=True,
            )
            assert options == {o for o in done.stdout.decode().split() if re.match("--[a-z]", o)}, (
                command,
                verb,
                sorted(options),
                done.stdout,
            )
            left_out = [o for o in options if "`%s" % o not in reference]
            assert set(left_out) <= {"--help"} and verb in reference, (command, verb, left_out)
            seen += 1
    assert seen == 24, seen


def complete(w, *words):
    """Returns the words that bash proposes to complete the last word."""
    script = (
        '. "$0"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _latchwork 2>/dev/null; '
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    build = os.path.dirname(os.path.abspath(w.program))
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
    done = subprocess.run(
        ["bash", "-c", script, os.path.join(build, "completion.bash"), "latchwork", *words],
        stdout=subprocess.PIPE,
        check=True,
        text=True,
        cwd=root,
    )
    return done.stdout.split()


@test
def completion_knows_where_the_line_stands(w):
    assert complete(w, "le") == ["ledger"]
    assert complete(w, "queue", "re") == ["resume", "replay"]
    assert complete(w, "queue", "-c", "orders.json", "re") == ["resume", "replay"], (
        "the value of an option is no verb"
    )
    assert (
        complete(w, "queue", "ls", "--so") == ["--sort"]
        and complete(w, "queue", "show", "k", "--so") == []
    )
    assert complete(w, "queue", "ls", "--sort", "") == ["age", "size"]
    assert complete(w, "run", "--set", "lock.t") == ["lock.ttl_ms="]
    assert (
        complete(w, "queue", "ls", "-c", "scripts/deps") == ["scripts/deps.sh"]
        and complete(w, "run", "--workers", "") == []
    )
    assert complete(w, "lock", "exec", "k", "--", "") == [], "a command of its own"


@test
def ids_that_are_not_there_are_named_and_fail(w):
    """Runs every subcommand that takes message ids as arguments, with one id that exists and two
    that do not. Each subcommand runs with text and with JSON as its output. Subcommands that change
    something also run with --execute."""

    def dead(*verb):
        return lambda: w.bury(1, "a") and ["dead"] + list(verb) + ["orders/0/1"]

    def queue(*verb):
        return lambda: w.park("a", 1) or ["queue"] + list(verb) + ["orders/0/1"]

    missing = ["orders/0/77", "orders/9/1"]
    commands = [
        dead("show"),
        dead("export"),
        dead("replay"),
        dead("replay", "--execute"),
        dead("drop"),
        dead("drop", "--execute"),
        dead("replay", "--try"),
        queue("export"),
        queue("drop"),
        queue("drop", "--execute"),
    ]
    for command in commands:
        for json_too in ([], ["--json"]):
            w.begin()
            args = command() + json_too
            w.run(*(args + missing), status=1)
            for word in missing:
                assert w.err.count(word) == 1 and "orders/0/1:" not in w.err, (args, w.err)
            for word in missing:
                w.begin()
                command()
                w.run(*(args[: -1 - len(json_too)] + [word] + json_too), status=1)
                assert word in w.err, (args, w.err)
            w.begin()
            w.run(*command())
            assert w.err == "", (args, w.err)
    w.begin()
    place = "0:" + w.bury(1, "a")
    w.run("dead", "drop", place, "0:1-1", "9:1-1", status=1)
    assert w.err.count("0:1-1") == 1 and w.err.count("9:1-1") == 1 and place not in w.err, w.err
    # The message exists, so it must not be reported as missing.
    w.run("dead", "drop", place, "--reason", "other*")
    assert w.err == "", w.err
    w.run("dead", "edit", "orders/0/77", status=1)
    assert "orders/0/77" in w.err
    rows = w.rows("dead", "replay", place, "orders/0/77", "--execute", status=1)
    assert (
        rows[-1]["problems"] == 1
        and {"identity": "orders/0/77", "result": "not found", "job": rows[-1]["job"]} in rows
    ), rows
    # A resumed job must not report a missing message that it reported before it was resumed.
    w.run("dead", "replay", "--resume", str(rows[-1]["job"]), "--execute")
    w.begin()
    w.bury(1, "a"), w.bury(2, "a")
    # The limit ends the job before the missing message, so the message is not reported as missing.
    w.run("dead", "drop", "orders/0/1", "orders/0/77", "--limit", "1")
    assert w.err == "", w.err


@test
def a_dry_run_says_execute_only_where_something_would_be_done(w):
    for args in (["dead", "replay"], ["dead", "drop"], ["queue", "drop"]):
        w.begin()
        out = w.run(*args, "--match", "*")
        assert "--execute" not in out and "nothing to do" in out, out
        w.bury(1, "a"), w.park("a", 2)
        assert "use --execute to apply" in w.run(*args, "--match", "*")
    w.begin()
    w.park("a", 1)
    w.run("queue", "export", "--match", "*")
    lines = w.out
    # The second import of the same lines finds that the lane already has the message.
    out = w.run("queue", "import", "-", given=lines.encode())
    assert "--execute" not in out and "nothing to do" in out, out


@test
def a_redis_that_is_not_there(w):
    w.run("queue", "ls", "--set", "redis.url=unix:///nonexistent/redis.sock", status=1)
    assert "shard 0" in w.err


# --- groups ---------------------------------------------------------------------------------------

GROUPS = ("--set", "group.from=json:/tenant", "--set", "limits.running=9")


def see_groups(w, *args):
    """Returns the rows of `group` by name; that of the fleet has the name None."""
    rows = [json.loads(line) for line in w.run("group", *args, "--json", *GROUPS).splitlines()]
    return {None if r["fleet"] else r.get("group", r.get("group_base64")): r for r in rows}


def group(w, *args, status=0):
    """Returns what the command prints, on stdout and stderr."""
    return w.run("group", *args, *GROUPS, status=status) + w.err


def state(w, limit, worker, places, waits_ms):
    """Makes the statement of a worker, as of in an hour, so that it does not grow old."""
    at_ms = int(time.time() * 1000) + 3600000
    text = "1 %d %d %d %d e1" % (places, waits_ms, at_ms, at_ms)
    w.call("HSET", P + "limit" + limit, "w:" + worker, text)
    if limit:
        w.call("ZADD", P + "limited", at_ms, limit[1:])


@test
def groups_are_shown_and_limited(w):
    # before a worker has told what its file limits, there is nothing to change
    said = group(w, "set", "acme", "--running", "2", status=1)
    assert "start a worker first" in said, said
    w.call("HSET", P + "limits", "version", 1, "fleet", "9 0 0 9 0 0", "each", "3 20 2 3 20 2")
    said = group(w, "set", "acme", "--per-second", "50")
    assert "running 3, per_second 50, burst 5" in said and "not known before" in said, said
    said = group(w, "set", "acme", "--burst", "7")
    assert said.rstrip() == 'group "acme": running 3, per_second 50, burst 7', said
    state(w, "", "a", 4, 0)
    state(w, ":acme", "a", 2, 0)
    state(w, ":acme", "b", 1, int(time.time() * 1000) - 5000)
    state(w, ":other", "b", 1, 0)
    w.call("ZADD", P + "ready:acme", 1, "k", 1, "j")
    w.call("ZADD", P + "groups", 1, "acme")
    w.call("ZADD", P + "groups", 1, b"\xff\n")
    w.call("ZADD", P.encode() + b"ready:\xff\n", 1, "m")
    rows = see_groups(w, "ls")
    assert rows[None]["limits"] == {"running": 9, "per_second": None, "burst": None}, rows
    assert rows[None]["running"] == 4 and rows["acme"]["running"] == 3, rows
    assert rows["acme"]["waiting"] == 2 and rows["acme"]["own_limits"], rows
    assert rows["acme"]["limited_ms"] and not rows["other"]["limited_ms"], rows
    assert rows["other"]["limits"]["per_second"] == 20 and not rows["other"]["own_limits"], rows
    said = group(w, "ls")
    assert "(fleet)" in said and "limited for" in said and "??" in said, said
    said = group(w, "ls", "--limit", "1")
    assert "acme" in said and "other" not in said and "1 of 3 groups" in said, said


@test
def groups_are_paused_and_resumed(w):
    w.call("HSET", P + "limits", "version", 1, "fleet", "9 0 0 9 0 0", "each", "0 0 0 0 0 0")
    state(w, ":acme", "a", 2, 0)
    assert group(w, "pause", "acme") == 'group "acme": paused\n'
    assert group(w, "pause", "acme") == 'group "acme": was paused\n'
    assert see_groups(w, "show", "acme")["acme"]["paused_ms"] > 0
    assert group(w, "pause", "--fleet") == "the fleet: paused\n"
    assert "paused for" in group(w, "show", "--fleet")
    assert group(w, "resume", "acme") == 'group "acme": resumed\n'
    assert group(w, "resume", "acme") == 'group "acme": was not paused\n'
    assert group(w, "resume", "--fleet") == "the fleet: resumed\n"
    assert int(w.call("HGET", P + "limits", "version")) > 1000
    assert "group pause" in w.run("queue", "audit")


@test
def limits_are_lifted_and_set_for_each_group(w):
    w.call("HSET", P + "limits", "version", 1, "fleet", "9 0 0 9 0 0", "each", "3 20 2 3 20 2")
    w.call("HSET", P + "limits", "group:b", "2 0 0 2 0 0")
    rows = see_groups(w, "ls")
    assert [rows[n]["from"] for n in (None, "b")] == ["file", "file"], rows
    said = group(w, "set", "b", "--running", "none", "--per-second", "9")
    assert said == 'group "b": running -, per_second 9, burst 1\n', said
    said = group(w, "set", "b", "--per-second", "none")
    assert said == 'group "b": running -, per_second -, burst -\n', said
    assert "as before" in group(w, "set", "b", "--per-second", "none")
    none = {"running": None, "per_second": None, "burst": None}
    b = see_groups(w, "show", "b")["b"]
    assert (b["limits"], b["from"], b["own_limits"]) == (none, "set", True), b
    said = group(w, "set", "--each", "--running", "none", "--per-second", "50")
    assert said.startswith("each group without limits of its own: running -, per_second 50"), said
    state(w, ":c", "a", 1, 0)
    c = see_groups(w, "show", "c")["c"]
    assert (c["limits"]["per_second"], c["from"], c["own_limits"]) == (50, "set", False), c
    assert "limits.group, set" in group(w, "show", "c")
    each = json.loads(w.run("group", "show", "--each", "--json", *GROUPS))
    assert each == {"limits": dict(none, per_second=50, burst=5), "from": "set"}, each
    assert "(set)" in group(w, "show", "--each")
    assert group(w, "reset", "b") == 'group "b": running 2, per_second -, burst -\n'
    b = see_groups(w, "show", "b")["b"]
    assert (b["limits"]["running"], b["from"], b["own_limits"]) == (2, "file", True), b
    assert "as before" in group(w, "reset", "b")
    group(w, "set", "c", "--running", "7")
    assert see_groups(w, "show", "c")["c"]["own_limits"]
    assert group(w, "reset", "c") == 'group "c": running -, per_second 50, burst 5\n'
    c = see_groups(w, "show", "c")["c"]
    assert (c["limits"]["per_second"], c["from"], c["own_limits"]) == (50, "set", False), c
    assert "running 3, per_second 20" in group(w, "reset", "--each")
    assert (
        group(w, "reset", "--fleet") == "the fleet: running 9, per_second -, burst -, as before\n"
    )
    # back to what the file says
    group(w, "set", "--fleet", "--per-second", "50")
    assert see_groups(w, "show", "--fleet")[None]["from"] == "set"
    group(w, "set", "--fleet", "--per-second", "none")
    assert see_groups(w, "show", "--fleet")[None]["from"] == "file"
    group(w, "set", "--each", "--running", "3", "--per-second", "20")
    assert see_groups(w, "show", "c")["c"]["from"] == "file"
    words = [json.loads(line)["words"] for line in w.run("queue", "audit", "--json").splitlines()]
    assert {"each": True, "running": None, "per_second": 50}.items() <= words[2].items(), words
    assert "--burst has no effect" in group(
        w, "set", "b", "--per-second", "none", "--burst", "2", status=1
    )
    for bad in (("pause", "--each"), ("set", "a", "--each", "--running", "1"), ("show",)):
        assert "expected either NAME" in group(w, *bad, status=2) or "unknown option" in w.err
    assert "or none" in group(w, "set", "a", "--running", "nothing", status=2)


def told(w, supervisor, text, ago_ms=0):
    """Writes what a supervisor says of its handlers, and its heartbeat."""
    now_ms = int(w.call("TIME")[0]) * 1000
    w.call("ZADD", P + "fleet", now_ms - ago_ms, supervisor)
    w.call("SET", P + "fleet:%s:groups" % supervisor, json.dumps(text))


def takes(running, busy_ms, per_second, **more):
    return dict(running=running, busy_ms=busy_ms, per_second=per_second, **more)


@test
def what_groups_take_of_the_handlers(w):
    w.call("HSET", P + "limits", "version", 1, "fleet", "9 0 0 9 0 0", "each", "0 0 0 0 0 0")
    w.call("HSET", P + "limits", "group:idle", "2 0 0 2 0 0")
    seen = lambda: {
        n: (r["running"], r["starts_per_second"], r["share"])
        for n, r in see_groups(w, "ls").items()
    }
    assert seen() == {None: (0, None, None), "idle": (0, None, None)}, seen()  # nobody says
    assert "?" in group(w, "ls")
    groups = [takes(2, 30000, 12.5, group="acme"), takes(1, 5000, 1.25, group_base64="/w==")]
    one = {"all": takes(3, 35000, 13.75), "groups": groups, "complete": True}
    told(w, "h1-1", one)
    told(w, "h2-1", dict(one, all=takes(1, 5000, 0.5), groups=[takes(1, 5000, 0.5, group="acme")]))
    told(w, "h3-1", one, ago_ms=60000)  # it was killed
    assert seen() == {
        None: (0, 14.25, 1.0),
        "acme": (3, 13.0, 0.875),
        "/w==": (1, 1.25, 0.125),
        "idle": (0, 0.0, 0.0),
    }, seen()
    assert re.search(r"acme +3 +0 +13.0 +87.5 %", group(w, "ls")), w.out
    # of a group with limits, what workers have stated counts
    w.call("HSET", P + "limits", "group:acme", "5 0 0 5 0 0")
    state(w, ":acme", "a", 4, 0)
    assert seen()["acme"] == (4, 13.0, 0.875), seen()
    # what is not told is unknown, and what cannot be read is not added
    for bad in (
        dict(one, complete=False),
        dict(one, groups=[takes(1, 1, 1, group="x" * 100)]),
        dict(one, groups=[takes(1, 1, 1, group="x"), takes(1, 1, -1, group="y")]),
        dict(one, groups=[takes(1, 1, 1)]),
        dict(one, all={}),
        "x" * 9000,
        [],
    ):
        told(w, "h2-1", bad)
        assert seen()["idle"] == (0, None, None), (bad, seen())
        assert "x" not in seen() and seen()["acme"][1] >= 12.5, (bad, seen())
    w.call("DEL", P + "fleet"), w.call("SET", P + "fleet", "x")
    assert seen()["acme"] == (4, None, None), seen()


@test
def why_nothing_runs(w):
    """Each reason, as `queue show` and `lock show` give it; the API asks the same function."""

    def why(*more):
        shown = w.rows("queue", "show", "k", *GROUPS, *more)[0]["why"]
        rows = w.rows("lock", "show", "k", *GROUPS, *more)
        # the second command is a moment later
        ages = [re.sub(r"for \d+.*", "", str(y)) for y in (rows[0].get("why"), shown)]
        assert ages[0] == ages[1], (rows, shown)
        return shown

    now = int(time.time() * 1000)
    w.call("HSET", P + "limits", "version", 1, "fleet", "2 0 0 2 0 0", "each", "1 5 1 1 5 1")
    assert why() is None  # nothing waits
    w.park("k", 1)
    w.call("HSET", P + "group", "k", "acme")
    assert why()["reason"] == "handler", why()
    state(w, ":acme", "a", 1, now)
    assert why() == {"reason": "place", "text": 'group "acme" has no free place: 1 of 1 are taken'}
    state(w, ":acme", "a", 0, now)
    assert why()["reason"] == "token" and "5 messages a second" in why()["text"], why()
    state(w, "", "a", 2, now)
    assert why()["reason"] == "fleet" and "2 of 2" in why()["text"], why()
    w.call("HSET", P + "limits", "paused:acme", now)
    w.call("DEL", P + "limit")
    assert why()["reason"] == "group" and "is paused" in why()["text"], why()
    w.call("HSET", P + "limits", "paused", now)
    assert why()["reason"] == "fleet" and "is paused" in why()["text"], why()
    w.call("HSET", P + "limits", "group:bad", "many")
    assert why()["reason"] == "unknown" and "malformed" in why()["text"], why()
    w.call("SET", P + "lock:k", "backoff", "PX", 60000)
    assert why()["reason"] == "backoff", why()
    w.call("HSET", P + "epoch", "first", 1)
    assert why()["reason"] == "quarantine" and "a commit of every" in why()["text"], why()
    w.call("HSET", P + "epoch", "not_before", now + 60000)
    assert why()["reason"] == "quarantine" and "leases from before" in why()["text"], why()
    w.call("SADD", P + "paused", "k")
    assert why()["reason"] == "paused", why()
    assert "why      its key is paused" in w.run("queue", "show", "k", *GROUPS)
    assert "why      its key is paused" in w.run("lock", "show", "k", *GROUPS)
    w.call("SET", P + "lock:k", "host-7-ab.1 %d" % (now * 1000), "PX", 60000)
    w.call("SREM", P + "paused", "k")
    assert why() is None  # it is held


@test
def groups_refuse_bad_input(w):
    w.call("HSET", P + "limits", "version", 1, "fleet", "9 0 0 9 0 0", "each", "0 0 0 0 0 0")
    said = group(w, "show", "nobody", status=1)
    assert 'group "nobody" is not known' in said, said
    for limit in ("0", "-1", "1000001", "x"):
        said = group(w, "set", "a", "--running", limit, status=2)
        assert "1000000" in said, said
    assert "--running N" in group(w, "set", "a", status=2)
    assert "NAME, --fleet or --each" in group(w, "show", status=2)
    assert "NAME or --fleet" in group(w, "pause", status=2)
    assert "NAME or --fleet" in group(w, "pause", "a", "--fleet", status=2)
    assert "--burst has no effect" in group(w, "set", "a", "--burst", "2", status=1)
    w.run("group", "pause", "a", status=2)
    assert "neither group.from nor" in w.err, w.err
    w.run("group", "pause", "a", "--set", "limits.running=2", status=2)
    assert "lacks group.from" in w.err, w.err
    # a long name is known by its hash, as a long key is; any bytes are a name
    long = "x" * 100000
    group(w, "pause", long)
    assert max(len(f) for f in w.call("HKEYS", P + "limits")) < 100
    assert see_groups(w, "show", long)
    group(w, "pause", b"\xff\n\x01 ")
    assert w.call("HGET", P + "limits", b"paused:\xff\n\x01 ")
    w.call("HSET", P + "limits", "group:bad", "many")
    assert "malformed reply" in group(w, "ls", status=1)


def main(tests):
    """Runs the tests that the arguments name, or all tests, each in an empty Redis."""
    build = sys.argv[1] if len(sys.argv) > 1 else "build"
    chosen = [t for t in tests if not sys.argv[2:] or t.__name__ in sys.argv[2:]]
    failed = 0
    with tempfile.TemporaryDirectory() as directory:
        w = World(build, directory)
        try:
            for t in chosen:
                w.begin()
                try:
                    t(w)
                except Exception:
                    failed += 1
                    print("FAILED: %s\n%s" % (t.__name__, traceback.format_exc()))
        finally:
            w.redis.stop()
    print("%d passed, %d failed" % (len(chosen) - failed, failed))
    sys.exit(1 if failed or not chosen else 0)


if __name__ == "__main__":
    main(tests)
