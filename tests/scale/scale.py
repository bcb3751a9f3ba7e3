#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures operators' reading commands on many lanes in a private Redis: how much work they cause
in Redis, and how much memory they need.

usage: tests/scale/scale.py BUILD [LANES] [--watch]      (also `make scale`)
LANES is 1,000,000 by default, which takes 1 GB of memory and some minutes.

Each lane has one waiting message, except one lane, which has LANES / 10 waiting messages. There are
LANES / 10 dead letters. For each command the script prints its duration, its peak memory, the
number of its calls to Redis, the CPU time of Redis, and the duration of the longest call in Redis.
This duration includes waiting for a processor core, so measure on an idle machine.

With --watch, the script instead checks each command that Redis runs (by MONITOR) against bounds:
the number of commands per call and of elements per command. No command may grow with the data.
3,000 lanes are enough for this check. tests/cli/test_scale.py runs it."""

import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "live"))
from lib.redis import Client, Redis  # noqa: E402

P = "lw:{t.0}:"
CHUNK = 5000
# A script that makes messages with the numbers from ARGV[1] to ARGV[2], in the form of
# queue/envelope.h. ARGV[3] says where the messages go: 'lane' puts one into each of the lanes l0,
# l1 and so on, 'long' puts all into one lane, and 'dead' makes dead letters. ARGV[4] is the topic.
# If ARGV[5] is '1', the lanes are paused. ARGV[6] is added to the times at which workers look at
# the lanes.
FILL = """
local P, first, last, kind, topic = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3], ARGV[4]
local payload = '{"total":1,"note":"' .. string.rep('x', 180) .. '"}'
local function envelope(offset, lane)
    return string.format('1 %s %d %.0f 0 %.0f 5 %d 0 0 %d\\n', topic, offset % 4,
        math.floor(offset / 4), 1700000000000 + offset, #lane, #payload) .. lane .. payload
end
for i = first, last do
    if kind == 'dead' then
        redis.call('XADD', P .. 'dead', '*', 'envelope', envelope(i, 'l' .. i % 1000),
            'reason', 'error ' .. i % 7, 'attempts', 5, 'first_ms', 1, 'last_ms', 1700000000000)
    elseif kind == 'long' then
        redis.call('LPUSH', P .. 'wait:long', envelope(i, 'long'))
    else
        local lane = 'l' .. i
        if ARGV[5] == '1' then redis.call('SADD', P .. 'paused', lane) end
        redis.call('LPUSH', P .. 'wait:' .. lane, envelope(i, lane))
        redis.call('ZADD', P .. 'lanes', 1700000000000 + i + tonumber(ARGV[6]), lane)
    end
end
"""


def fill(redis, lanes, topic="orders", pause=False, later=0):
    call = Client(redis.path, 60)
    if not pause:
        call("HSET", P + "epoch", "id", "e1", "not_before", "0", "ttl_ms", "10000")
    spans = (
        ("lane", 0, lanes),
        ("long", lanes, lanes + lanes // 10),
        ("dead", lanes + lanes // 10, lanes + lanes // 5),
    )
    for kind, begin, end in spans:
        for first in range(begin, end, CHUNK):
            call(
                "EVAL",
                FILL,
                1,
                P,
                first,
                min(first + CHUNK, end) - 1,
                kind,
                topic,
                int(pause),
                later,
            )
    call("ZADD", P + "lanes", 1 + later, "long")
    if pause:
        call("SADD", P + "paused", "long")
    # Set the marks of the messages: binary 01 for waiting, 11 for dead.
    for partition in range(4):
        for kind, begin, end in spans:
            segment = begin // 4 // 16384
            while segment * 16384 * 4 < end:
                lo, hi = max(begin // 4, segment * 16384), min(end // 4, (segment + 1) * 16384)
                if hi > lo:
                    call(
                        "SETRANGE",
                        P + "state:%s:%d:%d" % (topic, partition, segment),
                        lo % 16384 // 4,
                        (b"\xff" if kind == "dead" else b"\x55") * ((hi - lo) // 4),
                    )
                segment += 1
    for i in range(0, lanes, max(lanes // 200, 1)):
        call("SADD", P + "paused", "l%d" % i)
    call.close()


COMMANDS = (
    ("queue", "ls"),
    ("queue", "ls", "--json", "--sort", "size"),
    ("queue", "ls", "--match", "l99*"),
    ("queue", "stats", "--json"),
    ("queue", "show", "l17"),
    ("queue", "show", "long", "--limit", "1000"),
    ("queue", "export", "--key", "long"),
    ("queue", "export", "--match", "l9*", "--limit", "20000"),
    ("queue", "drop", "--key", "long", "--limit", "2000"),
    ("queue", "drop", "--match", "*", "--where", "/total>5", "--limit", "10"),
    ("queue", "pause", "--match", "l1*"),
    ("dead", "ls"),
    ("dead", "ls", "--json", "--limit", "0"),
    ("dead", "show", "LAST"),
    ("dead", "replay", "--reason", "error 3"),
    ("dead", "drop", "--match", "*"),
    ("lock", "ls"),
)


def run(build, config, directory, command, lanes):
    """Runs a command. Returns its duration in seconds, its peak memory in KiB, and its exit
    status."""
    last = lanes + lanes // 5 - 1
    command = [
        "orders/%d/%d" % (last % 4, last // 4) if word == "LAST" else word for word in command
    ]
    begun = time.monotonic()
    with open(os.path.join(directory, "out"), "wb") as out:
        p = subprocess.Popen(
            [os.path.join(build, "latchwork")] + list(command) + ["-c", config],
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=directory,
        )
        _, status, usage = os.wait4(p.pid, 0)
    p.returncode = status
    return time.monotonic() - begun, usage.ru_maxrss, os.waitstatus_to_exitcode(status)


def cpu(redis):
    """Returns the seconds of CPU time that Redis has used. The tests use CPU time, because the
    duration of a call would also include the time that Redis waits while other programs run."""
    info = redis.info("cpu")
    return float(info["used_cpu_user"]) + float(info["used_cpu_sys"])


def measure(build, redis, config, directory, lanes):
    bad = 0
    print(
        "%-62s %8s %9s %9s %12s %10s %10s"
        % ("command", "s", "MiB", "calls", "Redis CPU s", "us a call", "slowest us")
    )
    for command in COMMANDS:
        redis.call("SLOWLOG", "RESET"), redis.call("CONFIG", "RESETSTAT")
        before = cpu(redis)
        seconds, kib, status = run(build, config, directory, command, lanes)
        used = cpu(redis) - before
        slow = redis.call("SLOWLOG", "GET", 100)
        stats = {
            k[8:]: dict(x.split("=") for x in v.split(","))
            for k, v in redis.info("commandstats").items()
        }
        calls = sum(
            int(s["calls"])
            for c, s in stats.items()
            if c
            in (
                "eval",
                "evalsha",
                "eval_ro",
                "evalsha_ro",
                "zscan",
                "sscan",
                "scan",
                "xrange",
                "xrevrange",
            )
        )
        print(
            "%-62s %8.1f %9.1f %9d %12.2f %10.0f %10d%s"
            % (
                " ".join(command),
                seconds,
                kib / 1024,
                calls,
                used,
                1e6 * used / max(calls, 1),
                max([e[2] for e in slow] or [0]),
                "" if status == 0 else "  status %d" % status,
            )
        )
        # The command may use 32 MiB of memory plus 100 bytes per lane, which is enough for the
        # lane's name.
        bad += status != 0 or kib > 32 * 1024 + lanes * 100 // 1024
        sys.stdout.flush()
    return bad


# --- the option --watch ---------------------------------------------------------------------------

ELEMENTS = {"LRANGE": 64, "XRANGE": 64, "XREVRANGE": 64, "ZSCAN": 1000, "SSCAN": 1000, "SCAN": 1000}
# The maximum number of commands that one call may run: ten for each of 64 lanes or messages, and 20
# more.
INNER_MOST = 64 * 10 + 20
FOUND = re.compile(rb'"((?:[^"\\]|\\.)*)"')


def elements(words):
    """Returns the maximum number of elements that a command may touch, computed from its arguments.
    Returns 1 << 30 if the arguments set no maximum."""
    name = words[0].upper()
    if name == "LRANGE":
        first, last = int(words[2]), int(words[3])
        return last - first + 1 if (first < 0) == (last < 0) else 1 << 30
    if name in ("XRANGE", "XREVRANGE") and words[2] == words[3]:
        return 1
    at = (
        [w.upper() for w in words].index("COUNT") if "COUNT" in [w.upper() for w in words] else None
    )
    return int(words[at + 1]) if at else 1 << 30


class Watch:
    """Watches every command that Redis runs, by MONITOR. The commands that a script runs follow the
    call of the script."""

    def __init__(self, redis):
        self.client = Client(redis.path, 600)
        self.client("MONITOR")
        self.bad, self.calls, self.most = [], 0, 0
        self.inner = 0
        self.thread = threading.Thread(target=self.follow, daemon=True)
        self.thread.start()

    def follow(self):
        for line in self.client.file:
            head, _, rest = line.partition(b"] ")
            words = [w.decode("utf-8", "replace") for w in FOUND.findall(rest)]
            if words[:2] == ["ECHO", "the end"]:
                return
            if head.endswith(b" lua"):
                self.inner += 1
                self.most = max(self.most, self.inner)
                if self.inner == INNER_MOST + 1:
                    self.bad.append("more than %d commands in one call" % INNER_MOST)
            else:
                self.inner, self.calls = 0, self.calls + 1
            name = words[0].upper()
            if (
                name in ("KEYS", "SMEMBERS", "HVALS", "HKEYS", "LREM", "LINSERT", "LPOS", "SORT")
                or name == "HGETALL"
                and not words[1].endswith("floor")
            ):
                self.bad.append("%s: grows with the data" % " ".join(words[:3]))
            if name in ELEMENTS and elements(words) > ELEMENTS[name]:
                self.bad.append("%s: more than %d elements" % (" ".join(words[:6]), ELEMENTS[name]))

    def end(self, redis):
        redis.call("ECHO", "the end")
        self.thread.join(60)
        return self.bad


def watch(build, redis, config, directory, lanes):
    bad = 0
    for command in COMMANDS:
        w = Watch(redis)
        _, _, status = run(build, config, directory, command, lanes)
        wrong = w.end(redis)
        if status:
            wrong.append("status %d" % status)
        print(
            "%-6s %s: %d calls, %d commands in one at most"
            % ("FAILED" if wrong else "ok", " ".join(command), w.calls, w.most)
        )
        for text in wrong[:5]:
            print("    " + text)
        bad += bool(wrong)
    return bad


def main():
    words = [w for w in sys.argv[1:] if not w.startswith("--")]
    build, lanes = (
        os.path.abspath(words[0] if words else "build"),
        int(words[1]) if len(words) > 1 else 1000000,
    )
    lanes -= lanes % 80
    with tempfile.TemporaryDirectory() as directory:
        redis = Redis(os.path.join(directory, "redis"))
        redis.start()
        try:
            config = os.path.join(directory, "t.json")
            with open(config, "w") as f:
                json.dump(
                    {
                        "name": "t",
                        "kafka": {
                            "topics": ["orders"],
                            "properties": {"bootstrap.servers": "127.0.0.1:1"},
                        },
                        "redis": {"url": redis.url},
                        "handler": {"type": "exec", "command": ["cat"]},
                    },
                    f,
                )
            redis.call("CONFIG", "SET", "slowlog-log-slower-than", 1000)
            begun = time.monotonic()
            fill(redis, lanes)
            print(
                "%d lanes, %d messages, %d dead letters, %.0f MB of Redis, in %.0f s"
                % (
                    lanes + 1,
                    lanes + lanes // 10,
                    lanes // 10,
                    int(redis.info("memory")["used_memory"]) / 1e6,
                    time.monotonic() - begun,
                )
            )
            bad = (
                watch(build, redis, config, directory, lanes)
                if "--watch" in sys.argv
                else measure(build, redis, config, directory, lanes)
            )
        finally:
            redis.stop()
    print("%d failed" % bad)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
