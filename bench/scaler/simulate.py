#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Simulates how KEDA scales a fleet by latchwork_wanted_workers, and by Kafka's lag for comparison, and draws it.

usage: bench/scaler/simulate.py [--svg FILE]

The load is a function of time: messages per second, and how they spread over keys. Messages of one key run one after the other, those of different keys
at once, as many as the fleet has handlers. What a supervisor writes as latchwork_wanted_workers is computed as in monitor/metrics.c; the autoscaler is
that of Kubernetes with the values of the chart: it looks every 15 s, takes the average of a minute, and goes down only after five quiet minutes.
tests/cli/test_scaler.py holds the results to what doc/how-to/kubernetes.md says."""
import argparse
import collections
import math
import random

AT_ONCE = 8          # number of handlers per worker
WORKERS = 2          # number of workers per pod
GRANTED = 64         # maximum number of messages that a worker is granted beyond those that its handlers run
SERVICE_S = 0.1      # time that a handler needs for a message
MAX_PODS = 8
LOOK_S, AVERAGE_S, QUIET_S = 15, 60, 300
LAG_PER_POD = 500    # lag per pod that the autoscaler by lag aims at
END_S = 3600


class Load:
    """A load: the arrivals per second over an hour. They are few at first, then many for twenty minutes, then none."""

    def __init__(self, name, hot_share, per_s):
        self.name, self.hot_share, self.per_s = name, hot_share, per_s

    def at(self, t):
        return self.per_s[0] if t < 600 else self.per_s[1] if t < 1800 else 0

    def key(self, rng):
        return 0 if rng.random() < self.hot_share else rng.randrange(1, 20000)


LOADS = [Load("many keys", 0.0, (20, 600)), Load("one hot key", 1.0, (2, 12)), Load("a hot key among many", 0.08, (10, 150))]


class Fleet:
    def __init__(self, seed=1):
        self.waiting = collections.defaultdict(int)  # number of messages per key that wait
        self.running = {}                            # time at which the running message of each key ends
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


def simulate(load, by, min_pods=0):
    """Returns a row for each second: (time, pods, lag, wanted workers). `by` is "wanted" or "lag"."""
    fleet, pods, rows, wanted, proposals = Fleet(), min_pods, [], collections.deque(maxlen=AVERAGE_S), []
    quiet_since = 0
    for t in range(END_S):
        fleet.arrive(load, t)
        for i in range(10):
            fleet.step(t + i / 10, pods, 0.1)
        wanted.append(fleet.wanted(pods))
        rows.append((t, pods, fleet.lag(), wanted[-1]))
        if t % LOOK_S:
            continue
        average = sum(wanted) / len(wanted)
        want = math.ceil(average / WORKERS) if by == "wanted" else math.ceil(fleet.lag() / LAG_PER_POD)
        active = fleet.lag() > 0  # KEDA starts the first pod, and stops the last one, by its trigger on Kafka
        want = min(MAX_PODS, max(want, 1 if active else min_pods))
        proposals = [(at, n) for at, n in proposals + [(t, want)] if at > t - QUIET_S]
        quiet_since = t if active else quiet_since
        if want > pods:
            pods = min(want, max(4, pods * 2))
        elif pods > 1:
            pods = max(max(n for _, n in proposals), pods - 1)
        elif not active and t - quiet_since >= QUIET_S:
            pods = min_pods
    return rows


def summary(rows):
    busy = [r for r in rows if 600 <= r[0] < 1800]
    return {"most_pods": max(r[1] for r in busy), "pod_hours": sum(r[1] for r in rows) / 3600, "most_lag": max(r[2] for r in rows),
            "cleared_s": next((r[0] for r in rows if r[0] > 1800 and r[2] == 0), None), "pods_at_end": rows[-1][1]}


def draw(results):
    """Draws a panel for each load: pods by each scaler, and the lag."""
    width, height, left, gap = 760, 150, 60, 60
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {len(results) * (height + gap) + 40}" font-family="sans-serif" font-size="12">',
           '<rect width="100%" height="100%" fill="#fff"/>']
    for i, (load, rows) in enumerate(results):
        top = 40 + i * (height + gap)
        x = lambda t: left + t * (width - left - 60) / END_S  # noqa: E731
        most_lag = max(max(r[2] for r in rows["wanted"]), max(r[2] for r in rows["lag"]), 1)
        out.append(f'<text x="{left}" y="{top - 12}" font-weight="bold">{load.name}: {load.per_s[0]}, then {load.per_s[1]} messages per second, then none</text>')
        for n in range(0, MAX_PODS + 1, 2):
            y = top + height - n * height / MAX_PODS
            out.append(f'<path d="M{left} {y}H{width - 60}" stroke="#ddd"/><text x="{left - 8}" y="{y + 4}" text-anchor="end">{n}</text>')
        lag = " ".join(f"{x(r[0]):.0f},{top + height - r[2] * height / most_lag:.1f}" for r in rows["wanted"][::10])
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
            out.append(f'<polyline points="{" ".join(points)}" fill="none" stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"/>')
        for minute in range(0, 61, 10):
            out.append(f'<text x="{x(minute * 60):.0f}" y="{top + height + 16}" text-anchor="middle">{minute} min</text>')
    y = 40 + len(results) * (height + gap) - 14
    out.append(f'<text x="{left}" y="{y}" fill="#06c">— pods by latchwork_wanted_workers</text><text x="{left + 240}" y="{y}" fill="#c60">- - pods by lag</text>'
               f'<text x="{left + 370}" y="{y}" fill="#888">— lag with the former (right scale)</text></svg>')
    return "\n".join(out) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--svg", help="write the plot to this file")
    args = parser.parse_args()
    results = []
    print(f"{'load':24} {'by':7} {'most pods':>9} {'pod hours':>9} {'most lag':>9} {'done at':>8} {'at end':>6}")
    for load in LOADS:
        rows = {by: simulate(load, by) for by in ("wanted", "lag")}
        results.append((load, rows))
        for by in ("wanted", "lag"):
            s = summary(rows[by])
            done = f"{s['cleared_s']} s" if s["cleared_s"] else "never"
            print(f"{load.name:24} {by:7} {s['most_pods']:9} {s['pod_hours']:9.2f} {s['most_lag']:9} {done:>8} {s['pods_at_end']:6}")
    if args.svg:
        with open(args.svg, "w") as f:
            f.write(draw(results))


if __name__ == "__main__":
    main()
