# SPDX-License-Identifier: Apache-2.0
"""Judges the limits of a fleet and of its groups (`limits`) by the journal of the handlers."""


def most_at_once(runs):
    """Returns the largest number of runs that were in handlers at the same time."""
    now = most = 0
    ends = [(r.end_us or r.last_us, -1) for r in runs]
    for _, by in sorted(ends + [(r.start_us, 1) for r in runs]):
        now += by
        most = max(most, now)
    return most


def most_above(runs, per_second):
    """Returns by how much the starts were ahead of `per_second` at most: in no time of W seconds
    there are more than per_second * W starts, and this number."""
    ahead = most = last = 0
    for us in sorted(r.start_us for r in runs):
        ahead = max(0, ahead - per_second * (us - last) / 1e6) + 1
        most, last = max(most, ahead), us
    return most


def check_limits(t, runs, limits, whose):
    """Checks that no more runs than `limits` say were in handlers at once, or began too early. A
    start may come late, one of each handler: four of each worker, and of the new one."""
    handlers = 20
    ahead, most = most_above(runs, limits["per_second"]), most_at_once(runs)
    bound = limits["burst"] + limits["per_second"] * 0.1 + handlers
    t.check(ahead <= bound, "%d starts of %s above the limit" % (ahead, whose))
    t.check(most <= limits["running"], "%d of %s ran at once" % (most, whose))
