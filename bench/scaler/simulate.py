#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Simulates how KEDA scales a fleet by latchwork_wanted_workers and, for comparison, by Kafka's
lag. Draws the results.

usage: bench/scaler/simulate.py [--svg FILE] [--recorded]

The load is a function of time: the number of messages per second, and their distribution over keys.
Messages of one key run one after the other. Messages of different keys run in parallel, at most as
many as the fleet has handlers. latchwork_wanted_workers is computed as in monitor/metrics.c. The
simulated autoscaler works like that of Kubernetes with the values of the chart: every 15 s it takes
the average of latchwork_wanted_workers over the last minute or, if it scales by lag, the present
lag. It removes at most one pod per minute, and only a pod that was not needed in the last five
minutes. tests/cli/test_scaler.py compares the results with doc/how-to/kubernetes.md.

With --recorded, the autoscaler gets the metrics that bench/scaler/record.py recorded of a real
fleet, second by second, instead of metrics of the simulated fleet. Such a run shows what the
autoscaler does with real values. It cannot show how more pods would change these values, because
the number of workers was fixed in the recording. With more pods, the lag would have ended
sooner."""

import argparse
import collections
import csv
import math
import os
import random

AT_ONCE = 8  # number of handlers per worker
WORKERS = 2  # number of workers per pod
# Maximum number of messages that a worker with slow handlers is granted in addition to the running
# messages.
GRANTED = AT_ONCE
SERVICE_S = 0.1  # time that a handler needs for a message
MAX_PODS = 8
LOOK_S, AVERAGE_S, QUIET_S = 15, 60, 300
DOWN_S = 60  # minimum time between the removal of two pods
LAG_PER_POD = 500  # target of the lag-based autoscaler: lag per pod, in messages
END_S = 3600
RECORDED = os.path.join(os.path.dirname(os.path.abspath(__file__)), "recorded")
RECORDINGS = ["many-keys", "one-hot-key", "a-hot-key-among-many"]
AFTER_S = 1200  # time for which the last row of a recording is repeated after its end


class Load:
    """A load: the arrivals per second over an hour. There are few at first, then many for twenty
    minutes, then none."""

    def __init__(self, name, hot_share, per_s):
        self.name, self.hot_share, self.per_s = name, hot_share, per_s

    def at(self, t):
        return self.per_s[0] if t < 600 else self.per_s[1] if t < 1800 else 0

    def key(self, rng):
        return 0 if rng.random() < self.hot_share else rng.randrange(1, 20000)


LOADS = [
    Load("many keys", 0.0, (20, 600)),
    Load("one hot key", 1.0, (2, 12)),
    Load("a hot key among many", 0.08, (10, 150)),
]


class Fleet:
    def __init__(self, seed=1):
        self.waiting = collections.defaultdict(int)  # number of waiting messages of each key
        self.running = {}  # time at which the running message of each key ends
        self.rng = random.Random(seed)

    def arrive(self, load, t):
        for _ in range(load.at(t)):
            self.waiting[load.key(self.rng)] += 1

    def step(self, t, pods, dt):
        self.running = {k: end for k, end in self.running.items() if end > t}
        free = pods * WORKERS * AT_ONCE - len(self.running)
        for key in list(self.waiting)[: max(0, free) * 4]:
            if free <= 0:
                break
            if key in self.running:
                continue
            self.running[key] = t + SERVICE_S
            self.waiting[key] -= 1
            free -= 1
            if not self.waiting[key]:
                del self.waiting[key]

    def lag(self):
        return sum(self.waiting.values()) + len(self.running)

    def wanted(self, pods):
        """Returns the sum of latchwork_wanted_workers over the pods."""
        runnable = len(self.running) + sum(1 for k in self.waiting if k not in self.running)
        in_handler = min(runnable, pods * WORKERS * (AT_ONCE + GRANTED))
        if pods == 0:
            return 0
        return math.ceil(in_handler / AT_ONCE) if in_handler else (1 if self.lag() else 0)


class Autoscaler:
    """KEDA and the autoscaler of Kubernetes, with the values of the chart. `by` names the metric by
    which they decide: "wanted" (the number of wanted workers) or "lag"."""

    def __init__(self, by, min_pods=0):
        self.by, self.min_pods, self.pods = by, min_pods, min_pods
        self.wanted, self.proposals, self.quiet_since, self.down_at = (
            collections.deque(maxlen=AVERAGE_S),
            [],
            0,
            -DOWN_S,
        )

    def see(self, t, wanted, lag):
        """Takes the metrics of one second. Decides on the number of pods every 15 seconds."""
        self.wanted.append(wanted)
        if t % LOOK_S:
            return
        want = (
            math.ceil(sum(self.wanted) / len(self.wanted) / WORKERS)
            if self.by == "wanted"
            else math.ceil(lag / LAG_PER_POD)
        )
        active = lag > 0  # KEDA starts the first pod, and stops the last one, by its Kafka trigger
        want = min(MAX_PODS, max(want, 1 if active else self.min_pods))
        self.proposals = [(at, n) for at, n in self.proposals + [(t, want)] if at > t - QUIET_S]
        self.quiet_since = t if active else self.quiet_since
        if want > self.pods:
            self.pods = min(want, max(4, self.pods * 2))
        elif self.pods > 1:
            if t - self.down_at >= DOWN_S and max(n for _, n in self.proposals) < self.pods:
                self.pods, self.down_at = self.pods - 1, t
        elif not active and t - self.quiet_since >= QUIET_S:
            self.pods = self.min_pods


def simulate(load, by, min_pods=0):
    """Returns a row per second: (time, pods, lag, wanted workers). `by` names the metric by which
    the autoscaler decides: "wanted" or "lag"."""
    fleet, scaler, rows = Fleet(), Autoscaler(by, min_pods), []
    for t in range(END_S):
        fleet.arrive(load, t)
        for i in range(10):
            fleet.step(t + i / 10, scaler.pods, 0.1)
        rows.append((t, scaler.pods, fleet.lag(), fleet.wanted(scaler.pods)))
        scaler.see(t, rows[-1][3], rows[-1][2])
    return rows


def recorded(name):
    """Returns the rows of a recording, each as {column: value}."""
    with open(os.path.join(RECORDED, name + ".csv"), newline="") as f:
        return [
            {k: int(v) for k, v in row.items()}
            for row in csv.DictReader(line for line in f if not line.startswith("#"))
        ]


def replay(recording, by):
    """Gives the rows of a recording to the autoscaler, and then repeats the last row of the
    recording for AFTER_S seconds. Returns rows as simulate() does."""
    scaler, rows = Autoscaler(by), []
    for t, seen in enumerate(recording + recording[-1:] * AFTER_S):
        rows.append((t, scaler.pods, seen["lag"], seen["wanted_workers"]))
        scaler.see(t, seen["wanted_workers"], seen["lag"])
    return rows


def summary(rows):
    busy = [r for r in rows if 600 <= r[0] < 1800]
    return {
        "most_pods": max(r[1] for r in busy),
        "pod_hours": sum(r[1] for r in rows) / 3600,
        "most_lag": max(r[2] for r in rows),
        "cleared_s": next((r[0] for r in rows if r[0] > 1800 and r[2] == 0), None),
        "pods_at_end": rows[-1][1],
    }


def draw(results):
    """Draws a panel for each load, with the lag and the number of pods under each autoscaler."""
    width, height, left, gap = 760, 150, 60, 60
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {len(results) * (height + gap) + 40}" font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="#fff"/>',
    ]
    for i, (load, rows) in enumerate(results):
        top = 40 + i * (height + gap)
        x = lambda t: left + t * (width - left - 60) / END_S  # noqa: E731
        most_lag = max(max(r[2] for r in rows["wanted"]), max(r[2] for r in rows["lag"]), 1)
        out.append(
            f'<text x="{left}" y="{top - 12}" font-weight="bold">{load.name}: {load.per_s[0]}, then {load.per_s[1]} messages per second, then none</text>'
        )
        for n in range(0, MAX_PODS + 1, 2):
            y = top + height - n * height / MAX_PODS
            out.append(
                f'<path d="M{left} {y}H{width - 60}" stroke="#ddd"/><text x="{left - 8}" y="{y + 4}" text-anchor="end">{n}</text>'
            )
        lag = " ".join(
            f"{x(r[0]):.0f},{top + height - r[2] * height / most_lag:.1f}"
            for r in rows["wanted"][::10]
        )
        out.append(f'<polyline points="{lag}" fill="none" stroke="#bbb" stroke-width="3"/>')
        out.append(f'<text x="{width - 55}" y="{top + 10}" fill="#888">{most_lag}</text>')
        for by, colour, dash in (("lag", "#c60", "5 4"), ("wanted", "#06c", "none")):
            points, before = [], None
            for t, pods, _, _ in rows[by]:
                if pods != before:
                    if before is not None:
                        points.append(f"{x(t):.0f},{top + height - before * height / MAX_PODS:.1f}")
                    points.append(f"{x(t):.0f},{top + height - pods * height / MAX_PODS:.1f}")
                    before = pods
            points.append(f"{x(END_S):.0f},{top + height - before * height / MAX_PODS:.1f}")
            out.append(
                f'<polyline points="{" ".join(points)}" fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"/>'
            )
        for minute in range(0, 61, 10):
            out.append(
                f'<text x="{x(minute * 60):.0f}" y="{top + height + 16}" text-anchor="middle">{minute} min</text>'
            )
    y = 40 + len(results) * (height + gap) - 14
    out.append(
        f'<text x="{left}" y="{y}" fill="#06c">— pods by latchwork_wanted_workers</text><text x="{left + 240}" y="{y}" fill="#c60">- - pods by lag</text>'
        f'<text x="{left + 370}" y="{y}" fill="#888">— lag with the former (right scale)</text></svg>'
    )
    return "\n".join(out) + "\n"


def print_recorded():
    print(
        f"{'recording':24} {'by':7} {'most pods':>9} {'most wanted':>11} {'most lag':>9} {'at end':>6}"
    )
    for name in RECORDINGS:
        for by in ("wanted", "lag"):
            rows = replay(recorded(name), by)
            print(
                f"{name:24} {by:7} {max(r[1] for r in rows):9} {max(r[3] for r in rows):11} {max(r[2] for r in rows):9} {rows[-1][1]:6}"
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--svg", help="write the plot to this file")
    parser.add_argument(
        "--recorded",
        action="store_true",
        help="feed the autoscaler with bench/scaler/recorded/*.csv",
    )
    args = parser.parse_args()
    if args.recorded:
        return print_recorded()
    results = []
    print(
        f"{'load':24} {'by':7} {'most pods':>9} {'pod hours':>9} {'most lag':>9} {'done at':>8} {'at end':>6}"
    )
    for load in LOADS:
        rows = {by: simulate(load, by) for by in ("wanted", "lag")}
        results.append((load, rows))
        for by in ("wanted", "lag"):
            s = summary(rows[by])
            done = f"{s['cleared_s']} s" if s["cleared_s"] else "never"
            print(
                f"{load.name:24} {by:7} {s['most_pods']:9} {s['pod_hours']:9.2f} {s['most_lag']:9} {done:>8} {s['pods_at_end']:6}"
            )
    if args.svg:
        with open(args.svg, "w") as f:
            f.write(draw(results))


if __name__ == "__main__":
    main()
