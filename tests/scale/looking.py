#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures how much an operator's reading commands slow down a running application. One run
consists of time windows. In every second window, a reading command runs again and again. The script
compares the application's throughput in the two kinds of windows.
usage: tests/scale/looking.py BUILD [MESSAGES]      (default: 2,500,000)
The script needs the benchmark's plugin: make build/bench/bench.so

The plugin does nothing with a message. There are two workers and 10,000 keys. The commands have
much to read: 20,000 paused lanes with one message each, a paused lane with 2,000 messages, and
2,000 dead letters."""

import os
import statistics
import sys
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
sys.path.insert(0, os.path.join(HERE, "..", "live"))
import scale  # noqa: E402
from lib import scenario  # noqa: E402
from lib.process import wait_until  # noqa: E402
from lib.tool import command  # noqa: E402
import subprocess  # noqa: E402

WINDOW_S, PAIRS, LANES = float(os.environ.get("LW_WINDOW_S", "2")), 3, 20000
LOOKS = (
    ("queue", "ls", "--json"),
    ("queue", "stats", "--json"),
    ("dead", "ls", "--json", "--limit", "0"),
    ("ledger", "--json"),
)


def done(t):
    """Returns the number of records committed so far, according to the floors in Redis."""
    flat = t.redis.call("HGETALL", t.prefix() + b"floor")
    return sum(int(v) for v in flat[1::2])


def rate(t, seconds):
    before, begun = done(t), time.monotonic()
    time.sleep(seconds)
    return (done(t) - before) / (time.monotonic() - begun)


def looking(t, words, over, times):
    while not over.is_set():
        begun = time.monotonic()
        subprocess.run(
            command(t, *words),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=t.dir,
            timeout=60,
        )
        times.append(time.monotonic() - begun)


def window(t, words):
    """Returns the throughput while no command runs, the throughput while the command `words` runs
    again and again, and how long each of its runs took."""
    quiet, over, times = rate(t, WINDOW_S), threading.Event(), []
    loop = threading.Thread(target=looking, args=(t, words, over, times))
    loop.start()
    busy = rate(t, WINDOW_S)
    over.set()
    loop.join()
    return quiet, busy, times


def measure(t, messages):
    t.start_redis()
    t.make_topics(1)
    t.generate(messages, keys=10000, zipf=0)
    plugin = os.path.join(t.rig.build, "bench/bench.so")
    t.start(
        workers=2,
        lock={"ttl_ms": 10000},
        handler={"type": "plugin", "path": plugin, "config": {}, "threads": 2},
    )
    wait_until(lambda: done(t) > 0, 60, "a start")
    scale.P = t.prefix().decode()
    scale.fill(t.redis, LANES, topic=t.topics[0] + "-other", pause=True)
    time.sleep(1)
    for words in LOOKS:
        got = [window(t, words) for _ in range(PAIRS)]
        ratios = [busy / quiet for quiet, busy, _ in got if quiet > 0]
        if not ratios:
            break
        times = [s for _, _, times in got for s in times]
        print(
            "%-36s ratio %.2f (%.2f to %.2f); %6.0f msg/s without; one takes %.2f s"
            % (
                " ".join(words),
                statistics.median(ratios),
                min(ratios),
                max(ratios),
                statistics.median(q for q, _, _ in got),
                statistics.median(times),
            )
        )
        sys.stdout.flush()
    left = messages - done(t)
    print(
        "%d messages were left" % left
        if left > 0
        else "TOO FEW MESSAGES: the last windows had nothing to do"
    )


def main():
    rig = scenario.Rig(sys.argv[1] if len(sys.argv) > 1 else "build")
    t = scenario.Scenario(rig, "looking")
    try:
        measure(t, int(sys.argv[2]) if len(sys.argv) > 2 else 2500000)
    finally:
        t.close()
        rig.close(keep=False)


if __name__ == "__main__":
    main()
