#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests `latchwork lock exec -c` while workers run: a command and the handlers of the same lane
must exclude each other.
Usage: test_lock.py [BUILD [SCENARIO…]]"""

import os
import subprocess
import sys

from lib.process import wait_until
from lib.scenario import NO_LEASE_ENDS, SOAK, main, scenario

COMMANDS, KEYS = 40, 4
# The command that runs under the lock. It records when it begins and ends, and its fence.
NOTE = """
import os, sys, time
begin = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000
time.sleep(0.02)
end = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000
fd = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
os.write(fd, ("%s %d %d %s\\n" % (sys.argv[2], begin, end, os.environ["LATCHWORK_FENCE"])).encode())
"""


def exec_under(t, config, key, notes):
    command = [
        os.path.join(t.rig.build, "latchwork"),
        "lock",
        "exec",
        key,
        "-c",
        config,
        "--wait",
        "60000",
        "--",
        sys.executable,
        "-c",
        NOTE,
        notes,
        key,
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=120)


def held_by_commands(notes):
    with open(notes) as f:
        return [
            (key, int(begin), int(end), int(fence))
            for key, begin, end, fence in (line.split() for line in f)
        ]


def meetings(commands, runs):
    """Compares each command with each run of the same key. Returns a text for each pair that
    overlapped, and for each pair in which the one that began first has the larger fence."""
    out = []
    for key, begin, end, fence in commands:
        for r in runs:
            if bytes.fromhex(r.key).decode() != key:
                continue
            if r.start_us < end and begin < (r.end_us or r.last_us):
                out.append("command [%d, %d] and %r" % (begin, end, r))
            elif (r.start_us > begin) != (r.fence > fence):
                out.append("command at %d with fence %d and %r" % (begin, fence, r))
    return out


@scenario
def commands_and_handlers(t):
    """Commands take the locks of four lanes while workers run the messages of these lanes. In each
    lane no command may overlap a run, fences must grow across commands and runs, and no message may
    be lost."""
    t.start_redis()
    t.make_topics()
    run = t.start(work_ms="2-12", lock=NO_LEASE_ENDS)
    # The load is low, because under more load no lane would ever be free, and a command could get a
    # lock only if it paused the lane.
    t.generate(1200 * SOAK, keys=KEYS, rate=80, zipf=0, wait=False)
    wait_until(lambda: len({r.key for r in t.runs()}) == KEYS, 60, "a run of each key")
    keys = sorted({bytes.fromhex(r.key).decode() for r in t.runs()})
    config = next(os.path.join(t.dir, f) for f in os.listdir(t.dir) if f.endswith(".json"))
    notes = os.path.join(t.dir, "commands")
    for i in range(COMMANDS * SOAK):
        done = exec_under(t, config, keys[i % len(keys)], notes)
        t.check(
            done.returncode == 0,
            "lock exec: status %d, %s" % (done.returncode, done.stderr.strip()),
        )
    busy = t.producing()
    t.wait_finished()
    t.judge_idle()
    run.stop()
    runs, again = t.judge()
    t.same(again, [], "re-runs")
    commands = held_by_commands(notes)
    t.same(len(commands), COMMANDS * SOAK, "commands that ran")
    t.expect(meetings(commands, runs))
    beside = [c for c in commands if any(r.start_us > c[2] for r in runs)]
    t.check(
        len(beside) > COMMANDS // 4,
        "the workers were idle while the commands ran: %d of %d beside them"
        % (len(beside), len(commands)),
    )
    t.figure(commands=len(commands), beside=len(beside), still_producing=busy)


if __name__ == "__main__":
    main()
