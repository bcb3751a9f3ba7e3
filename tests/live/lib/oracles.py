# SPDX-License-Identifier: Apache-2.0
"""The oracles. Each oracle is a function that takes observations and returns a text for each
violation. It has no other effect. tests/live/test_oracles.py shows that each oracle can fail."""

from collections import defaultdict

SHOWN = 5


def by_lane(runs):
    lanes = defaultdict(list)
    for r in runs:
        lanes[r.key].append(r)
    return lanes


def by_order(runs):
    """Groups runs by key and partition. Order is promised only within such a group."""
    lines = defaultdict(list)
    for r in runs:
        lines[r.partition, r.key].append(r)
    return lines


def last_sign(run, stops):
    """Returns the time at which a run counts as ended, which is usually the time of its last line
    in the journal. If SIGSTOP stopped the worker, the run may outlive its lease, and counts as
    ended at the time of the SIGSTOP."""
    for pid, from_us in stops:
        if run.pid == pid and run.start_us < from_us < run.last_us:
            return from_us
    return run.last_us


LATE_US = 30 * 1000000


def under_lease(runs, stops):
    """Returns all runs except those late runs of stopped workers that have no live lease. A late
    run begins when a stopped handler continues and reads a request that was already in the pipe to
    its process. A late run has no live lease if another run of the key, with a larger fence,
    started earlier. The smaller fence then makes the late run harmless."""
    kept = []
    for lane in by_lane(runs).values():
        highest = 0
        for r in lane:
            late = any(r.pid == pid and at < r.start_us < at + LATE_US for pid, at in stops)
            if not (late and r.fence < highest):
                kept.append(r)
            highest = max(highest, r.fence)
    return sorted(kept, key=lambda r: r.start_us)


def overlaps(runs, stops=()):
    """O1: no two runs of a key may overlap. `stops` is a list of (pid of a worker, time of its
    SIGSTOP in µs of the boot clock)."""
    bad = []
    for lane in by_lane(runs).values():
        before = None
        for r in lane:
            if before and last_sign(before, stops) > r.start_us:
                bad.append("overlap: %r with %r" % (before, r))
            if not before or last_sign(r, stops) > last_sign(before, stops):
                before = r
    return bad


def fences(runs):
    """O1: in a lane, the fence of each run must be larger than the fences of all earlier runs."""
    bad = []
    for lane in by_lane(runs).values():
        highest = None
        for r in lane:
            if highest and r.fence <= highest.fence:
                bad.append("fence does not grow: %r after %r" % (r, highest))
            highest = r if not highest or r.fence > highest.fence else highest
    return bad


def misordered(runs):
    """O1: per (partition, key), messages must have their first success in the order of their
    offsets."""
    bad = []
    for line in by_order(runs).values():
        first = {}
        for r in sorted((r for r in line if r.outcome == "done"), key=lambda r: r.end_us):
            first.setdefault(r.offset, r)
        highest = None
        for r in first.values():
            if highest and r.offset < highest.offset:
                bad.append("misordered: %r after %r" % (r, highest))
            highest = r if not highest or r.offset > highest.offset else highest
    return bad


def stale_last(runs, stops=()):
    """O1: even if messages ran again, the last effect of a (partition, key) must be that of its
    newest message. Late writes of stopped workers do not count, because stores refuse their
    fences."""
    bad = []
    for line in by_order(runs).values():
        done = [r for r in line if r.outcome == "done" and last_sign(r, stops) == r.end_us]
        if not done:
            continue
        newest, last = max(done, key=lambda r: r.offset), max(done, key=lambda r: r.end_us)
        if last.offset != newest.offset:
            bad.append("an older effect is last: %r after %r" % (last, newest))
    return bad


# the maximum number of messages of a lane that are done but whose outcomes Redis has not recorded
# yet
AHEAD = 96


def backwards(runs):
    """O1: unless Redis lost data, a done message may run again only if it is among the last AHEAD
    messages of its lane that were done, because Redis may not have recorded their outcomes yet. The
    messages behind it must then run again in order."""
    bad = []
    for line in by_order(runs).values():
        # `done` contains offsets in the order in which their messages were first done.
        done, highest, back = ([], None, None)
        for r in line:
            if highest and r.offset < highest.offset:
                if r.offset not in done[-AHEAD:]:
                    bad.append("went back: %r after %r" % (r, highest))
                elif back and r.offset < back.offset and r.pid == back.pid:
                    bad.append("ran again out of order: %r after %r" % (r, back))
                back = r
            else:
                back = None
            if r.outcome == "done" and r.offset not in done[-AHEAD:]:
                done.append(r.offset)
            if r.outcome == "done" and (not highest or r.offset > highest.offset):
                highest = r
    return bad


def lost(ends, runs, others=()):
    """O2: each produced record must be done, unless its identity is in `others`. The messages in
    `others` end in another way (dead, skipped). `ends` is {(topic, partition): (begin, end)}."""
    finished = {r.identity for r in runs if r.outcome == "done"} | set(others)
    missing = []
    for (topic, partition), (begin, end) in sorted(ends.items()):
        for offset in range(begin, end):
            identity = "%s/%d/%d" % (topic, partition, offset)
            if identity not in finished:
                missing.append("lost: " + identity)
    return missing


def unknown(ends, runs):
    """O2: each message that ran must have been produced."""
    bad = []
    for r in runs:
        topic, partition = r.partition.rsplit("/", 1)
        begin, end = ends.get((topic, int(partition)), (0, 0))
        if not begin <= r.offset < end:
            bad.append("never produced: %r" % r)
    return bad


def reruns(runs):
    """Returns the unnecessary repetitions of messages as [(earlier run, later run)]. A repetition
    is necessary if the earlier run ended with the outcome retry or back, or if the earlier run has
    no outcome but was counted as an attempt."""
    latest, again = {}, []
    for r in runs:
        before = latest.get(r.identity)
        if (
            before
            and before.outcome not in ("retry", "back")
            and not (before.outcome is None and r.attempt > before.attempt)
        ):
            again.append((before, r))
        latest[r.identity] = r
    return again


def effects(history, messages):
    """O3: each of the messages 0 … messages - 1 must take effect exactly once, and the messages of
    a key must take effect in order. `history` lists (key, message) in the order of the effects."""
    bad, seen, latest = [], set(), {}
    for key, message in history:
        if message in seen:
            bad.append("took effect twice: message %d of %s" % (message, key))
        elif message < latest.get(key, -1):
            bad.append("a stale effect: %s: message %d after %d" % (key, message, latest[key]))
        seen.add(message)
        latest[key] = max(message, latest.get(key, -1))
    return bad + ["no effect: message %d" % m for m in range(messages) if m not in seen]


def passed(samples, runs, others=()):
    """O5: when an offset was committed, all messages below this offset must have been finished.
    `samples` lists (time of the boot clock in µs, (topic, partition), offset). `others` contains
    the identities of messages that end in another way than done (dead, skipped)."""
    done_us = {}
    for r in runs:
        if r.outcome == "done":
            done_us[r.identity] = min(r.end_us, done_us.get(r.identity, r.end_us))
    bad, others = [], set(others)
    # For each partition, the largest committed offset up to which messages have been checked.
    checked = defaultdict(int)
    for at_us, (topic, partition), offset in sorted(samples):
        for o in range(checked[topic, partition], offset):
            identity = "%s/%d/%d" % (topic, partition, o)
            if identity not in others and done_us.get(identity, at_us + 1) > at_us:
                bad.append(
                    "committed %d at %d, but %s was not finished" % (offset, at_us, identity)
                )
        checked[topic, partition] = max(checked[topic, partition], offset)
    return bad


def moved_back(samples):
    """O5: a committed offset must never decrease."""
    bad, highest = [], {}
    for at_us, tp, offset in sorted(samples):
        if offset < highest.get(tp, 0):
            bad.append("%s/%d: committed %d after %d" % (tp + (offset, highest[tp])))
        highest[tp] = max(offset, highest.get(tp, 0))
    return bad


def not_idle(names, prefix):
    """O4: returns a text for each key in `names` that Redis should not have when all messages are
    finished. Only a few keys of each shard are meant to stay. `prefix` is the beginning of the
    names of the shard's keys."""
    kept = (b"epoch", b"floor", b"fence", b"workers", b"fleet", b"limit", b"limits", b"audit")
    bad = []
    for name in names:
        rest = name[len(prefix) :] if name.startswith(prefix) else None
        if rest is None or not (rest in kept or rest.startswith((b"state:", b"fleet:"))):
            bad.append("left in Redis: %r" % name[:100])
    return bad


def grown(series, from_s):
    """What a program holds must not grow with the time that it runs. Compares, from `from_s` on,
    the medians of the thirds of each series: the last must not be above the first, but for a tenth,
    2 MB of memory, 4 descriptors, 50 keys or rows. A single step, as after the largest backlog so
    far, is no leak: what leaks grows from each third to the next. `series` maps a name to its
    samples [(seconds, value)]."""
    bad = []
    for name, samples in series.items():
        values = [v for s, v in samples if s >= from_s]
        n = len(values) // 3
        if not n:
            bad.append("%s: only %d samples" % (name, len(values)))
            continue
        first, middle, last = (sorted(values[i * n : i * n + n])[n // 2] for i in range(3))
        slack = max(first / 10, 2 if "MB" in name else 4 if "descriptors" in name else 50)
        if last > first + slack and min(middle - first, last - middle) > slack / 4:
            bad.append("%s grew from %g to %g to %g" % (name, first, middle, last))
    return bad


def shown(violations):
    return "; ".join(violations[:SHOWN]) + (
        "; and %d more" % (len(violations) - SHOWN) if len(violations) > SHOWN else ""
    )
