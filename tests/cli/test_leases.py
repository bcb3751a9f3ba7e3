#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the lease under which a command holds a lane. The lease is never longer than the TTL in the
schema, the command renews the lease as long as it needs the lane, and it notices if the lease ends.
Each command runs against a private Redis, while a thread of the test watches the lock.
Usage: test_leases.py [BUILD [TEST…]]"""

import hashlib
import json
import os
import subprocess
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from test_ops import P, main  # noqa: E402

TTL_MS = 2000
# The number of seconds for which a command holds its lane. This is more than a TTL, so a lease that
# is not renewed ends before the command.
HOLD_S = 3.0
tests = []

HANDLER = """
import json, os, sys, time
for line in sys.stdin:
    m = json.loads(line)
    if "cancel" in m:
        continue
    open("runs", "a").write("start\\n")
    time.sleep(%r)
    open("runs", "a").write("end\\n")
    print(json.dumps({"id": m["id"], "outcome": "done"}), flush=True)
"""

DEAF_PLUGIN = """
#include <latchwork/handler.h>
#include <unistd.h>
static int handle(void *self, const struct latchwork_message *m, char *reason) {
    (void)self, (void)m, (void)reason;
    for (int i = 0; i < 1000; i++) sleep(1);
    return LATCHWORK_DONE;
}
LATCHWORK_EXPORT const struct latchwork_handler latchwork_handler = {
    LATCHWORK_HANDLER_INIT, .handle = handle};
"""


def test(function):
    tests.append(function)
    return function


class Watch:
    """Reads the lock of a lane every few milliseconds, and records the longest TTL and how often
    the lock was missing."""

    def __init__(self, w, lane):
        self.w, self.name, self.longest_ms, self.seen, self.gaps, self.over = (
            w,
            P + "lock:" + lane,
            0,
            0,
            0,
            False,
        )
        self.thread = threading.Thread(target=self.run)

    def run(self):
        while not self.over:
            left = self.w.call("PTTL", self.name)
            if left == -2 and self.seen:
                self.gaps += 1
            elif left != -2:
                self.seen += 1
                self.longest_ms = max(self.longest_ms, left if left >= 0 else 1 << 40)
            time.sleep(0.005)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over = True
        self.thread.join()


def configure(w, ttl_ms=TTL_MS, seconds=HOLD_S, timeout_ms=30000, handler=None):
    with open(os.path.join(w.dir, "slow.py"), "w") as f:
        f.write(HANDLER % seconds)
    with open(w.config) as f:
        c = json.load(f)
    c["lock"] = {"ttl_ms": ttl_ms}
    c["handler"] = dict(
        handler or {"type": "exec", "command": [sys.executable, "slow.py"]}, timeout_ms=timeout_ms
    )
    with open(w.config, "w") as f:
        json.dump(c, f)
    if os.path.exists(os.path.join(w.dir, "runs")):
        os.unlink(os.path.join(w.dir, "runs"))


def started(w, process):
    end = time.monotonic() + 60
    while not os.path.exists(os.path.join(w.dir, "runs")) and time.monotonic() < end:
        assert process.poll() is None, "it never ran: %s" % process.communicate()[0].decode()
        time.sleep(0.02)


def runs(w):
    with open(os.path.join(w.dir, "runs")) as f:
        return f.read().split()


def begin(w, *args):
    return subprocess.Popen(
        [w.program] + list(args), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=w.dir
    )


def trial(w):
    return ["dead", "replay", "0:" + w.letter, "-c", w.config, "--try", "--execute"]


def lock_exec(*more):
    return lambda w: (
        ["lock", "exec", "c", "-c", w.config]
        + list(more)
        + ["--", "sh", "-c", "echo start >runs; sleep %s" % HOLD_S]
    )


COMMANDS = {
    "dead replay --try": trial,
    "lock exec": lock_exec(),
    "lock exec --ttl": lock_exec("--ttl", "1000"),
}


def setup(w, epoch_ttl_ms=TTL_MS, **more):
    configure(w, **more)
    w.letter = w.bury(1, "c")
    w.call("HSET", P + "epoch", "id", "e1", "not_before", "0", "ttl_ms", epoch_ttl_ms, "life", "")
    info = w.redis.info("everything")
    w.call("HSET", P + "epoch", "life", "%s/%s" % (info["run_id"], info["master_replid"]))


@test
def no_lease_is_longer_than_the_schemas_ttl(w):
    """While handlers and commands last longer than a TTL, the lease must be renewed, and must never
    be longer than the TTL in the schema, even if the command's own configuration has another."""
    for own_ttl_ms in (TTL_MS, 60000):
        for name, command in COMMANDS.items():
            w.begin()
            setup(w, ttl_ms=own_ttl_ms)
            with Watch(w, "c") as watch:
                done = begin(w, *command(w))
                started(w, done)
                out = done.communicate(timeout=120)[0].decode()
            assert done.returncode == 0, (name, out)
            assert watch.longest_ms <= TTL_MS, (name, own_ttl_ms, watch.longest_ms)
            assert watch.seen > 5, (name, watch.seen)
            assert w.call("EXISTS", P + "lock:c") == 0, name
            assert w.call("HGET", P + "epoch", "ttl_ms") == b"%d" % TTL_MS, (
                "a command's configuration does not raise the schema's TTL"
            )


@test
def the_lease_is_there_all_the_time(w):
    for name, command in COMMANDS.items():
        w.begin()
        setup(w)
        done = begin(w, *command(w))
        started(w, done)
        end = time.monotonic() + 0.8 * HOLD_S
        while time.monotonic() < end:
            assert w.call("EXISTS", P + "lock:c") == 1, name
            time.sleep(0.01)
        assert done.wait(120) == 0, name


def lose(w, how):
    if how == "wiped":
        w.call("FLUSHALL")
    elif how == "taken":
        w.call("SET", P + "lock:c", "another.1:9", "PX", 60000)
    else:
        w.call("DEL", P + "lock:c")


@test
def a_trial_whose_lease_is_lost_says_so_and_ends_its_handler(w):
    for how in ("wiped", "taken", "broken"):
        w.begin()
        setup(w, seconds=1000, timeout_ms=1000000)
        done = begin(w, *trial(w))
        started(w, done)
        lose(w, how)
        # The time limit is less than the 1,000 s for which the handler sleeps, so only a cancelled
        # handler ends in time.
        out = done.communicate(timeout=120)[0].decode()
        assert done.returncode == 1 and "lease of its lane" in out and "tried" not in out, (
            how,
            done.returncode,
            out,
        )
        assert runs(w) == ["start"], (how, runs(w))
        if how == "taken":
            assert w.call("GET", P + "lock:c") == b"another.1:9", "another's lock stays"


@test
def a_handler_that_does_not_listen_ends_with_the_trial(w):
    """A plugin runs in the command's own process and cannot be killed alone. The whole process must
    therefore end before another holder could get the lane."""
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
    source = os.path.join(w.dir, "deaf.c")
    with open(source, "w") as f:
        f.write(DEAF_PLUGIN)
    subprocess.run(
        [
            "cc",
            "-shared",
            "-fPIC",
            "-I",
            os.path.join(root, "include"),
            "-o",
            os.path.join(w.dir, "deaf.so"),
            source,
        ],
        check=True,
    )
    for how in ("wiped", "its time"):
        w.begin()
        setup(
            w,
            timeout_ms=1000000 if how == "wiped" else 500,
            handler={"type": "plugin", "path": os.path.join(w.dir, "deaf.so"), "threads": 1},
        )
        done = begin(w, *trial(w))
        end = time.monotonic() + 60
        while w.call("EXISTS", P + "lock:c") == 0 and time.monotonic() < end:
            time.sleep(0.01)
        if how == "wiped":
            w.call("FLUSHALL")
        # The time limit is less than the 1,000 s for which the plugin sleeps, so the command must
        # end before the plugin returns.
        out = done.communicate(timeout=120)[0].decode()
        assert done.returncode == 1 and "the handler still runs" in out, (how, done.returncode, out)


@test
def a_trial_waits_out_a_quarantine_and_takes_no_paused_lane_away(w):
    setup(w, seconds=0.1)
    w.call("HSET", P + "epoch", "not_before", int(time.time() * 1000) + 60000)
    # Set the largest TTL in use, which bounds the length of a quarantine.
    w.call("HSET", P + "epoch", "ttl_ms", 120000)
    configure(w, ttl_ms=120000, seconds=0.1)
    out = w.run(*trial(w)[:2], "--key", "c", "--try", "--execute", status=1)
    assert "quarantine" in w.err and not os.path.exists(os.path.join(w.dir, "runs")), (out, w.err)
    w.call("HSET", P + "epoch", "not_before", "0")
    w.call("SADD", P + "paused", "c")
    w.run(*trial(w)[:2], "--key", "c", "--try", "--execute")
    assert runs(w) == ["start", "end"]


@test
def the_lane_of_a_long_key_is_locked(w):
    """The lane of a long key has another name than the key. A trial must lock this lane, and
    `lock` must find it by the key as by the lane's name, since lists show the name."""
    key = "k" * 600
    lane = "\x01long:" + hashlib.sha256(key.encode()).hexdigest()
    w.begin()
    setup(w, seconds=0.1)
    w.bury(2, key)
    w.call("SET", P + "lock:" + lane, "another.1:9", "PX", 60000)
    w.run("dead", "replay", "--key", key, "--try", "--execute", status=1)
    assert "its lane was not free" in w.err and not os.path.exists(w.dir + "/runs"), w.err
    for name in (key, lane):
        assert "another" in w.run("lock", "show", name), w.out
    w.call("DEL", P + "lock:" + lane)
    w.run("dead", "replay", "--key", key, "--try", "--execute")
    assert runs(w) == ["start", "end"]


@test
def an_epoch_that_a_command_begins_is_dated(w):
    """When a command starts an epoch, the epoch's id must contain the time, as it does when a
    worker starts an epoch. If two fleets share a consumer group, this time decides which fleet is
    the younger one and must stop (consumer/worker/commit.c)."""
    setup(w, seconds=0.1)
    configure(w, ttl_ms=120000, seconds=0.1)
    w.call("DEL", P + "epoch")
    w.run(*trial(w)[:2], "--key", "c", "--try", "--execute", status=1)
    epoch = w.call("HGET", P + "epoch", "id").decode()
    assert "quarantine" in w.err and len(epoch) == 32, (w.err, epoch)
    assert abs(int(epoch[:11], 16) / 1000 - time.time()) < 3600, epoch


if __name__ == "__main__":
    main(tests)
