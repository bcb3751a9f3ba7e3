# SPDX-License-Identifier: Apache-2.0
"""Reads the journal that handlers write (handlers/work.py, consumer/process/journal.h), and returns
it as runs."""

import os
import re

# where the next line begins behind a line of which a killed process wrote only a part
CUT = re.compile(r"(?<=.)(?=(?:start|beat|end) \d+ \d+ \S+/\d+ )")


class Run:
    """One run of a handler. `last_us` is the time of its last line in the journal."""

    __slots__ = (
        "identity",
        "partition",
        "offset",
        "key",
        "fence",
        "attempt",
        "pid",
        "start_us",
        "end_us",
        "last_us",
        "outcome",
    )

    def __init__(self, at_us, pid, identity, key, fence, attempt):
        self.identity, self.key, self.pid = identity, key, int(pid)
        self.partition, offset = identity.rsplit("/", 1)
        # Add the number of a replay to the partition's name, because the order of replays is
        # independent of the order of the partition's messages.
        if "#" in offset:
            offset, number = offset.split("#")
            self.partition += "#" + number
        self.offset, self.fence, self.attempt = int(offset), int(fence), int(attempt)
        self.start_us = self.last_us = at_us
        self.end_us = self.outcome = None

    def __repr__(self):
        return "%s key %s fence %d attempt %d pid %d [%d, %s] %s" % (
            self.identity,
            self.key[:40],
            self.fence,
            self.attempt,
            self.pid,
            self.start_us,
            self.end_us or "… %d" % self.last_us,
            self.outcome,
        )


def read(path):
    """Returns all runs in the order of their starts. An incomplete last line is left out, because a
    handler may be writing it."""
    runs, by_name = [], {}
    if not os.path.exists(path):
        return runs
    with open(path) as f:
        for line in f:
            if not line.endswith("\n"):
                break
            # A kill can cut only a line that is longer than a page, that of a very long key.
            *cut, line = CUT.split(line) if len(line) > 4096 else [line]
            what, at, pid, identity, key, fence, attempt, *outcome = line.split()
            name = (identity, fence)
            if what == "start":
                by_name[name] = Run(int(at), pid, identity, key, fence, attempt)
                runs.append(by_name[name])
                continue
            run = by_name[name]
            run.last_us = int(at)
            if what == "end":
                run.end_us, run.outcome = int(at), outcome[0]
    runs.sort(key=lambda r: r.start_us)
    return runs


def done_count(path):
    """Returns the number of runs that have ended so far. Parses nothing, so it is fast enough for
    tests that call it repeatedly while they wait."""
    if not os.path.exists(path):
        return 0
    with open(path, "rb") as f:
        return sum(line.startswith(b"end ") for line in f)
