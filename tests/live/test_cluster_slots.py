#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Moves the slot of a busy shard, with all its data, from master to master of a Redis Cluster. The
epoch must not end.
Usage: test_cluster_slots.py [BUILD [SCENARIO…]]
LW_SOAK=1 makes 20 moves."""

import time

from lib.scenario import SOAK, main, scenario
from test_cluster import back_at_work, finish, slot, start

MOVES = 20 if SOAK > 1 else 3
MOVE_S = 12  # seconds of load for each move
# The number of seconds after which each worker has certainly seen that the whole slot has moved.
# This must be more than a quarter of the TTL.
SEEN_S = 2


def epoch(t):
    return t.redis.owner(slot(t, 0)).call("HGET", name_of_epoch(t), "id")


def name_of_epoch(t):
    keys = t.redis.owner(slot(t, 0)).call("CLUSTER", "GETKEYSINSLOT", slot(t, 0), 10000)
    return next(key for key in keys if key.endswith(b":epoch"))


@scenario
def moved_whole(t):
    """A slot moves back and forth between two masters under load. No epoch may end, no worker may
    wait for a quarantine, and no message may run again."""
    run, before = start(t, MOVES * MOVE_S)
    pauses, moved, first = [], 0, epoch(t)
    time.sleep(SEEN_S)
    for i in range(MOVES):
        t.check(t.producing(), "the load ended too early")
        now = t.redis.owner(slot(t, 0))
        target = next(m for m in t.redis.masters() if m is not now)
        moved += t.redis.migrate(slot(t, 0), target)
        pauses.append(back_at_work(t, 0))
        t.same(epoch(t), first, "epoch of shard 0 after move %d" % (i + 1))
        time.sleep(SEEN_S)
    t.check(moved > 0, "no key was moved")
    t.check(
        " is lost: " not in run.log(),
        "an epoch was lost: %s"
        % [line for line in run.log().splitlines() if " is lost: " in line][:3],
    )
    t.figure(moves=MOVES, keys=moved, pauses=" ".join("%.1f" % p for p in pauses))
    finish(t, run, before, pauses, wiped=False)


if __name__ == "__main__":
    main()
