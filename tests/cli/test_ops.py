#!/usr/bin/env python3
"""`latchwork queue` and `latchwork dead` on a private Redis, with lanes that the test made itself. Argument: the build folder.

No workers run here: what the commands read, write and refuse; tests/live/test_replay.py has them beside workers that drain."""
import json
import os
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


def envelope(offset, key, payload=b'{"total":1}', topic="orders", partition=0, replay=0, first_ms=None, headers=b"", n_headers=0):
    first_ms = int(time.time() * 1000) if first_ms is None else first_ms
    key = key if isinstance(key, bytes) else key.encode()
    line = "1 %s %d %d %d %d 5 %d 0 %d %d\n" % (topic, partition, offset, replay, first_ms, len(key), n_headers, len(payload))
    return line.encode() + key + headers + payload


class World:
    def __init__(self, build, directory):
        self.program = os.path.join(os.path.abspath(build), "latchwork")
        self.dir = directory
        self.redis = Redis(os.path.join(directory, "redis"))
        self.redis.start()
        self.config = os.path.join(directory, "t.json")
        with open(self.config, "w") as f:
            json.dump({"name": "t", "kafka": {"topics": ["orders"], "properties": {"bootstrap.servers": "127.0.0.1:1"}},
                       "redis": {"url": self.redis.url}, "handler": {"type": "exec", "command": ["cat"]}}, f)

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
        self.call("BITFIELD", P + "state:%s:%d" % (tp, offset // 16384), "SET", "u2", "#%d" % (offset % 16384), state)

    def state(self, offset, tp="orders:0"):
        return self.call("BITFIELD", P + "state:%s:%d" % (tp, offset // 16384), "GET", "u2", "#%d" % (offset % 16384))[0]

    def bury(self, offset, key, reason="no luck", **more):
        self.set_state(offset, 3)
        return self.call("XADD", P + "dead", "*", "envelope", envelope(offset, key, **more), "reason", reason, "attempts", 5, "first_ms", 1,
                         "last_ms", int(time.time() * 1000)).decode()

    def waiting(self, lane):
        """Identities, oldest first."""
        out = []
        for e in reversed(self.call("LRANGE", P + "wait:" + lane, 0, -1)):
            topic, partition, offset, replay = e.split(b"\n")[0].decode().split(" ")[1:5]
            out.append("%s/%s/%s%s" % (topic, partition, offset, "#" + replay if replay != "0" else ""))
        return out

    def run(self, *args, given=b"", status=0):
        done = subprocess.run([self.program] + list(args) + ["-c", self.config], input=given, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              cwd=self.dir, timeout=60)
        self.out, self.err = done.stdout.decode("utf-8", "backslashreplace"), done.stderr.decode("utf-8", "backslashreplace")
        assert done.returncode == status, "status %d, not %d: %s\n%s%s" % (done.returncode, status, args, self.out, self.err)
        return self.out

    def rows(self, *args, **more):
        return [json.loads(line) for line in self.run(*args, "--json", **more).splitlines()]

    def dump(self):
        """All that is in Redis, to see that nothing was changed."""
        return sorted((k, self.call("DUMP", k)) for k in self.redis.keys())


# --- ls ------------------------------------------------------------------------------------------------------------------------------


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
    assert (a["waiting"], a["holder"], a["fence"], a["since_ms"], a["oldest"]) == (2, "host-7-ab", 1700000000000123, 1700000000000, "orders/0/1"), a
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
    """More than a cursor's page, and than the limit."""
    for i in range(1000):
        w.park("k%04d" % i, i, first_ms=1700000000000 + i)
    rows = w.rows("queue", "ls", "--limit", "0")
    assert [r["key"] for r in rows] == ["k%04d" % i for i in range(1000)]
    assert [r["key"] for r in w.rows("queue", "ls", "--limit", "7", "--reverse")] == ["k%04d" % i for i in range(999, 992, -1)]
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
    assert [r.get("key_base64") for r in w.rows("queue", "ls", "--topic", "orders")].count("/w==") == 1


@test
def ls_tells_of_a_broken_name(w):
    w.call("SET", P + "wait:a", "x")
    w.call("ZADD", P + "lanes", 1, "a")
    assert w.rows("queue", "ls")[0]["waiting"] == -1


# --- show, export --------------------------------------------------------------------------------------------------------------------


@test
def show_tells_of_all_that_waits(w):
    for i in range(200):
        w.park("a", i, payload=b'{"n":%d}' % i)
    w.set_state(100, 2)
    w.call("SET", P + "lock:a", "host-7-ab.9:1700000000000123", "PX", 60000)
    rows = w.rows("queue", "show", "a")
    assert rows[0]["type"] == "lane" and rows[0]["holder"] == "host-7-ab"
    assert [r["offset"] for r in rows[1:]] == [i for i in range(200) if i != 100]
    assert rows[1]["payload"] == '{"n":0}' and rows[1]["identity"] == "orders/0/0" and rows[1]["key"] == "a"
    text = w.run("queue", "show", "a", "--limit", "3")
    assert "holder   host-7-ab" in text and "orders/0/2" in text and "orders/0/3" not in text, text
    w.park("long", 500, payload=b"x" * 5000)
    assert w.rows("queue", "show", "long")[1]["payload_size"] == 5000
    assert len(w.rows("queue", "show", "long", "--raw")[1]["payload"]) == 5000


@test
def show_finds_the_lane_of_a_long_key(w):
    key = "k" * 600
    import_line = json.dumps({"topic": "orders", "partition": 0, "offset": 1, "key": key, "payload": "x"})
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
    assert rows[0]["headers"] == ["h", "v1", "n", None] and rows[0]["payload_base64"] == "/wA=", rows[0]
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
    assert offsets("--where", "/city~lm") == [0, 2, 4, 1, 3, 5] and offsets("--where", "/street") == []
    assert offsets("orders/0/3", "orders/0/4") == [4, 3]
    w.run("queue", "export", "--where", "total>1", status=2)


# --- pause, resume -------------------------------------------------------------------------------------------------------------------


@test
def pause_and_resume(w):
    w.park("a", 1)
    w.park("b", 2)
    assert w.rows("queue", "pause", "a", "c") == [{"key": "a", "result": "paused"}, {"key": "c", "result": "paused"}]
    assert w.rows("queue", "pause", "a") == [{"key": "a", "result": "was paused"}]
    assert sorted(w.call("SMEMBERS", P + "paused")) == [b"a", b"c"]
    w.run("queue", "pause", "--match", "b")
    assert w.call("SISMEMBER", P + "paused", "b") == 0 and "--execute" in w.err
    w.run("queue", "pause", "--match", "b", "--execute")
    assert w.call("SISMEMBER", P + "paused", "b") == 1
    w.run("queue", "pause", status=2)
    w.run("queue", "resume", "a", "c")
    assert w.call("SMEMBERS", P + "paused") == [b"b"]
    assert w.call("LRANGE", P + "ready", 0, -1) == [b"a"], "only the lane that has waiters is hinted"
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
    assert s["top_keys"][0] == {"key": "a", "waiting": 5} and s["top_reasons"][0] == {"reason": "no money", "dead": 2}, s
    assert "no money" in w.run("queue", "stats")


def main():
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
    main()
