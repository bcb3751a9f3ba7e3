#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the oracles of the live tests. Each oracle must accept a good journal, and must report the
fault that it is meant to find."""

import os
import sys
import tempfile

from lib import journal, oracles

# A journal of two lanes (keys 6b31 and 6b32) of one partition of topic t, and one lane of another
# partition. The handler answered retry for t/0/2. The handler of t/0/3 was killed, and t/0/3 ran
# again.
GOOD = """
start 100 11 t/0/0 6b31 1 1
end 200 11 t/0/0 6b31 1 1 done
start 210 12 t/0/1 6b31 2 1
beat 250 12 t/0/1 6b31 2 1
end 300 12 t/0/1 6b31 2 1 done
start 150 12 t/0/2 6b32 1 1
end 260 12 t/0/2 6b32 1 1 retry
start 400 11 t/0/2 6b32 3 2
end 500 11 t/0/2 6b32 3 2 done
start 600 11 t/0/3 6b32 4 1
beat 650 11 t/0/3 6b32 4 1
start 700 12 t/0/3 6b32 5 1
end 800 12 t/0/3 6b32 5 1 done
start 310 11 t/1/0 6b31 6 1
end 390 11 t/1/0 6b31 6 1 done
"""
ENDS = {("t", 0): (0, 4), ("t", 1): (0, 1)}
SAMPLES = [(205, ("t", 0), 1), (505, ("t", 0), 3), (805, ("t", 0), 4), (900, ("t", 1), 1)]
IDLE = [
    b"lw:{n.0}:epoch",
    b"lw:{n.0}:floor",
    b"lw:{n.0}:fence",
    b"lw:{n.0}:workers",
    b"lw:{n.0}:fleet",
    b"lw:{n.0}:fleet:host-7-1",
    b"lw:{n.0}:state:t:0:0",
]


def again(*offsets):
    """Returns a journal in which the messages of one key with these offsets are done one after the
    other, in the order of the arguments."""
    return "".join(
        "start %d 12 t/0/%d 6b39 %d 1\nend %d 12 t/0/%d 6b39 %d 1 done\n"
        % (10 * i, o, i + 1, 10 * i + 5, o, i + 1)
        for i, o in enumerate(offsets)
    )


def parse(text):
    with tempfile.NamedTemporaryFile("w", delete=False) as f:
        f.write(text.lstrip())
    try:
        return journal.read(f.name)
    finally:
        os.unlink(f.name)


def changed(*pairs):
    text = GOOD
    for old, new in pairs:
        assert text.count(old) == 1, (old, text.count(old))
        text = text.replace(old, new)
    return parse(text)


def without(line):
    return changed((line + "\n", ""))


good = parse(GOOD)
# Each case is (name, violations in a good journal, [violations in each journal with a fault]).
CASES = [
    (
        "overlaps",
        oracles.overlaps(good),
        [
            oracles.overlaps(changed(("start 210 12 t/0/1", "start 190 12 t/0/1"))),
            # Two overlapping runs of the same key are a violation even if their messages are from
            # two partitions.
            oracles.overlaps(changed(("start 310 11 t/1/0", "start 295 11 t/1/0"))),
            # A killed handler still writes to the journal after another run of its key began.
            oracles.overlaps(changed(("beat 650", "beat 710"))),
            # One run begins before and ends after two other runs of its key.
            oracles.overlaps(changed(("end 200 11", "end 320 11"))),
        ],
    ),
    (
        "overlaps, a stopped worker",
        oracles.overlaps(changed(("beat 650", "beat 750")), [(11, 640)]),
        [
            oracles.overlaps(changed(("beat 650", "beat 750")), [(12, 640)]),
            oracles.overlaps(changed(("beat 650", "beat 750")), [(11, 705)]),
        ],
    ),
    (
        "fences",
        oracles.fences(good),
        [
            oracles.fences(
                changed(
                    ("start 210 12 t/0/1 6b31 2", "start 210 12 t/0/1 6b31 1"),
                    ("end 300 12 t/0/1 6b31 2", "end 300 12 t/0/1 6b31 1"),
                    ("beat 250 12 t/0/1 6b31 2", "beat 250 12 t/0/1 6b31 1"),
                )
            )
        ],
    ),
    (
        "misordered",
        oracles.misordered(good),
        [oracles.misordered(changed(("start 100", "start 390"), ("end 200", "end 395")))],
    ),
    (
        "stale_last",
        oracles.stale_last(good),
        [
            oracles.stale_last(
                parse(GOOD + "start 900 12 t/0/2 6b32 9 1\nend 950 12 t/0/2 6b32 9 1 done\n")
            )
        ],
    ),
    (
        "stale_last, a stopped worker",
        oracles.stale_last(
            parse(GOOD + "start 590 12 t/0/2 6b32 9 1\nend 950 12 t/0/2 6b32 9 1 done\n"),
            [(12, 595)],
        ),
        [
            oracles.stale_last(
                parse(GOOD + "start 590 12 t/0/2 6b32 9 1\nend 950 12 t/0/2 6b32 9 1 done\n"),
                [(11, 595)],
            )
        ],
    ),
    (
        "fences, a handler of a stopped worker that begins when it wakes",
        oracles.fences(
            oracles.under_lease(parse(GOOD + "start 900 12 t/0/2 6b32 1 1\n"), [(12, 595)])
        ),
        [
            oracles.fences(
                oracles.under_lease(parse(GOOD + "start 900 12 t/0/2 6b32 1 1\n"), [(11, 595)])
            ),
            oracles.fences(
                oracles.under_lease(parse(GOOD + "start 900 12 t/0/2 6b32 1 1\n"), [(12, 905)])
            ),
        ],
    ),
    (
        "backwards",
        oracles.backwards(good) + oracles.backwards(parse(again(1, 2, 3, 2, 3))),
        [
            oracles.backwards(parse(again(1, 2, 3, 2, 1))),
            oracles.backwards(parse(again(1, *range(2, 102), 1))),
        ],
    ),
    (
        "lost",
        oracles.lost(ENDS, good),
        [
            oracles.lost(ENDS, without("end 390 11 t/1/0 6b31 6 1 done")),
            oracles.lost({**ENDS, ("t", 2): (5, 6)}, good),
            oracles.lost(ENDS, changed(("6b31 6 1 done", "6b31 6 1 retry"))),
        ],
    ),
    (
        "lost, but dead",
        oracles.lost(ENDS, without("end 390 11 t/1/0 6b31 6 1 done"), ["t/1/0"]),
        [oracles.lost(ENDS, without("end 390 11 t/1/0 6b31 6 1 done"), ["t/1/1"])],
    ),
    (
        "unknown",
        oracles.unknown(ENDS, good),
        [
            oracles.unknown({("t", 0): (0, 4)}, good),
            oracles.unknown({("t", 0): (0, 3), ("t", 1): (0, 1)}, good),
        ],
    ),
    (
        "reruns",
        oracles.reruns(good)[1:],
        [
            oracles.reruns(parse(GOOD + "start 900 12 t/0/3 6b32 9 1\n"))[1:],
            oracles.reruns(changed(("6b32 1 1 retry", "6b32 1 1 done")))[1:],
        ],
    ),
    (
        "effects",
        oracles.effects([("a", 0), ("b", 2), ("a", 1)], 3),
        [
            oracles.effects([("a", 1), ("b", 2), ("a", 0)], 3),
            oracles.effects([("a", 0), ("a", 1), ("b", 2), ("a", 0)], 3),
            oracles.effects([("a", 0), ("b", 2)], 3),
        ],
    ),
    (
        "passed",
        oracles.passed(SAMPLES, good),
        [
            oracles.passed([(195, ("t", 0), 1)] + SAMPLES, good),
            oracles.passed([(505, ("t", 0), 4)] + SAMPLES, good),
            oracles.passed(SAMPLES, without("end 390 11 t/1/0 6b31 6 1 done")),
        ],
    ),
    (
        "moved_back",
        oracles.moved_back(SAMPLES),
        [oracles.moved_back(SAMPLES + [(950, ("t", 0), 3)])],
    ),
    (
        "not_idle",
        oracles.not_idle(IDLE, b"lw:{n.0}:"),
        [
            oracles.not_idle(IDLE + [b"lw:{n.0}:" + name], b"lw:{n.0}:")
            for name in (
                b"lock:k",
                b"wait:k",
                b"lanes",
                b"ready",
                b"claimed:w",
                b"tries:t:0:0",
                b"dead",
            )
        ]
        + [oracles.not_idle(IDLE + [b"something"], b"lw:{n.0}:")],
    ),
    (
        "grown",
        # It grows at first, and later has peaks and a step: none of these is a leak.
        oracles.grown(
            {
                "worker MB": [(s, min(s, 20) + (50 if s % 10 == 0 else 0)) for s in range(90)],
                "supervisor MB": [(s, 20 if s < 70 else 40) for s in range(90)],
            },
            30,
        ),
        [
            oracles.grown({"worker MB": [(s, 20 + s / 15) for s in range(90)]}, 30),
            oracles.grown({"descriptors": [(s, 20 + s // 6) for s in range(90)]}, 30),
            oracles.grown({"Redis keys": [(s, 200 + s * 2) for s in range(90)]}, 30),
            oracles.grown({"worker MB": [(1, 20)]}, 30),
        ],
    ),
]

passed = failed = 0
for name, clean, falsified in CASES:
    wrong = ["finds fault with what is good: " + repr(clean)] if clean else []
    wrong += [
        "does not see falsification %d" % (i + 1) for i, found in enumerate(falsified) if not found
    ]
    print("%-8s%s (%d falsifications)" % ("FAILED" if wrong else "ok", name, len(falsified)))
    for w in wrong:
        print("    " + w)
    passed, failed = (passed, failed + 1) if wrong else (passed + 1, failed)
print("%d passed, %d failed" % (passed, failed))
sys.exit(1 if failed else 0)
