# SPDX-License-Identifier: Apache-2.0
"""Draws plots as SVG, without a library. all_plots() returns the name and text of each file."""

import math
from html import escape

from table import median, number, values

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 440, 80, 24, 92, 64
COLOURS = ("#0b6e8a", "#c8553d", "#6a994e", "#7b5ea7", "#b08900", "#555555", "#2a9d8f", "#a23b72")


class Axis:
    def __init__(self, low, high, start, end, log):
        self.log, self.start, self.end = log, start, end
        if log:
            self.low, self.high = math.floor(math.log10(low)), math.ceil(math.log10(high))
            if self.low == self.high:
                self.high += 1
            self.ticks = [10.0**e for e in range(self.low, self.high + 1)]
        else:
            step = 10 ** math.floor(math.log10(high)) if high > 0 else 1
            step = step / 5 if high / step < 2 else step / 2 if high / step < 5 else step
            self.low, self.high = 0, step * math.ceil(high / step) if high > 0 else 1
            self.ticks = [i * step for i in range(round(self.high / step) + 1)]

    def at(self, x):
        if self.log:
            x = math.log10(max(x, 10.0**self.low))
        return self.start + (x - self.low) / (self.high - self.low) * (self.end - self.start)


class Plot:
    def __init__(self, title, x_name, y_name):
        self.parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        ]
        self.text(WIDTH / 2, 20, title, "middle", 15)
        self.text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, x_name, "middle")
        self.parts.append(
            f'<text transform="translate(16 {HEIGHT / 2}) rotate(-90)" text-anchor="middle">{escape(y_name)}</text>'
        )
        self.legends = 0

    def text(self, x, y, text, anchor="start", size=12, colour="#222"):
        self.parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="{colour}">{escape(text)}</text>'
        )

    def line(self, x1, y1, x2, y2, colour="#ddd", width=1):
        self.parts.append(
            f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" stroke-width="{width}"/>'
        )

    def y_axis(self, high, low=0.0, log=False):
        y = Axis(low, high, HEIGHT - BOTTOM, TOP, log)
        for t in y.ticks:
            self.line(LEFT, y.at(t), WIDTH - RIGHT, y.at(t))
            self.text(LEFT - 6, y.at(t) + 4, number(t), "end")
        return y

    def x_axis(self, high, low=0.0, log=False):
        x = Axis(low, high, LEFT, WIDTH - RIGHT, log)
        for t in x.ticks:
            self.line(x.at(t), HEIGHT - BOTTOM, x.at(t), HEIGHT - BOTTOM + 4, "#222")
            self.text(x.at(t), HEIGHT - BOTTOM + 18, number(t), "middle")
        self.line(LEFT, HEIGHT - BOTTOM, WIDTH - RIGHT, HEIGHT - BOTTOM, "#222")
        return x

    def legend(self, label, colour):
        x, y = LEFT + 8 + self.legends % 3 * 210, 42 + self.legends // 3 * 14
        self.parts.append(f'<rect x="{x}" y="{y - 8}" width="10" height="10" fill="{colour}"/>')
        self.text(x + 14, y + 1, label, size=11)
        self.legends += 1

    def bar(self, x, width, y0, y1, colour):
        self.parts.append(
            f'<rect x="{x:.1f}" y="{y1:.1f}" width="{width:.1f}" height="{max(0.5, y0 - y1):.1f}" fill="{colour}"/>'
        )

    def curve(self, points, colour):
        if len(points) > 1:
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
            self.parts.append(
                f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>'
            )
        for x, y in points:
            self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}"/>')

    def end(self):
        return "\n".join(self.parts + ["</svg>"]) + "\n"


def throughput(rows, plan, contenders):
    """Draws bars: messages/s of each contender by workload, with a whisker from the minimum to the
    maximum."""
    shown = [
        w
        for w in plan
        if w.name in ("W1", "W2x", "W3x", "W4", "W5") and any(r["workload"] == w.name for r in rows)
    ]
    if not shown:
        return None
    p = Plot("Throughput by workload", "workload", "messages/s (log)")
    rates = [r["rate"] for r in rows if r["workload"] in {w.name for w in shown}]
    y = p.y_axis(max(rates), min(rates) / 2, log=True)
    names = [
        c
        for c in contenders
        if any(r["contender"] == c and r["workload"] in {w.name for w in shown} for r in rows)
    ]
    colours = {c: COLOURS[i % len(COLOURS)] for i, c in enumerate(names)}
    width = (WIDTH - LEFT - RIGHT) / len(shown)
    for i, w in enumerate(shown):
        here = [c for c in w.contenders if values(rows, w.name, c, "rate")]
        each = min(36.0, width * 0.85 / max(1, len(here)))
        begin = LEFT + i * width + (width - each * len(here)) / 2
        for k, c in enumerate(here):
            v, x = values(rows, w.name, c, "rate"), begin + k * each
            p.bar(x, each * 0.9, HEIGHT - BOTTOM, y.at(median(rows, w.name, c, "rate")), colours[c])
            p.line(x + each * 0.45, y.at(min(v)), x + each * 0.45, y.at(max(v)), "#222")
        p.text(LEFT + (i + 0.5) * width, HEIGHT - BOTTOM + 18, w.name, "middle")
    p.line(LEFT, HEIGHT - BOTTOM, WIDTH - RIGHT, HEIGHT - BOTTOM, "#222")
    for c in names:
        p.legend(contenders[c].label, colours[c])
    return p.end()


def curves(title, x_name, y_name, series, log_x=False, log_y=False):
    """Draws one curve for each label. `series` maps a label to its points [(x, y)]."""
    series = {k: sorted(v) for k, v in series.items() if v}
    if not series:
        return None
    p = Plot(title, x_name, y_name)
    xs, ys = [x for v in series.values() for x, _ in v], [y for v in series.values() for _, y in v]
    x = p.x_axis(max(xs), min(xs), log_x)
    y = p.y_axis(max(ys), min(ys), log_y)
    for i, (label, points) in enumerate(series.items()):
        p.curve([(x.at(a), y.at(b)) for a, b in points], COLOURS[i % len(COLOURS)])
        p.legend(label, COLOURS[i % len(COLOURS)])
    return p.end()


def by_load(rows, contenders, figure):
    """Returns for each contender one point per workload that offers no-op messages at a fixed rate:
    (offered load, median of the result that is named `figure`)."""
    out = {}
    for c in contenders:
        names = dict.fromkeys(
            r["workload"]
            for r in rows
            if r["contender"] == c and r.get("offered") and r["workload"] != "latency-1000"
        )
        out[contenders[c].label] = [
            (median(rows, w, c, "offered"), median(rows, w, c, figure)) for w in names
        ]
    return out


def growth(rows, kind):
    names = dict.fromkeys(r["workload"] for r in rows if r["workload"].startswith(kind + "-"))
    points = {w: int(w.split("-")[1]) for w in names}
    return {
        "Redis CPU": [(max(1, n), median(rows, w, "ours", "redis_us")) for w, n in points.items()],
        "own CPU": [(max(1, n), median(rows, w, "ours", "own_us")) for w, n in points.items()],
    }


def all_plots(rows, plan, contenders):
    """Returns (file name, SVG) of each plot that has figures."""
    plots = (
        ("throughput.svg", throughput(rows, plan, contenders)),
        (
            "load-throughput.svg",
            curves(
                "Handled against offered",
                "offered messages/s",
                "handled messages/s",
                by_load(rows, contenders, "rate"),
            ),
        ),
        (
            "load-p99.svg",
            curves(
                "p99 against offered load, no-op",
                "offered messages/s",
                "p99 until the handler starts, ms (log)",
                by_load(rows, contenders, "p99_ms"),
                log_y=True,
            ),
        ),
        (
            "cost-keys.svg",
            curves(
                "Cost of a message against the number of keys",
                "keys (log)",
                "CPU µs a message",
                growth(rows, "keys"),
                log_x=True,
            ),
        ),
        (
            "cost-waiting.svg",
            curves(
                "Cost of a message against the number that wait",
                "messages waiting beforehand (log; none at 1)",
                "CPU µs a message",
                growth(rows, "waiting"),
                log_x=True,
            ),
        ),
    )
    return [(name, svg) for name, svg in plots if svg]
