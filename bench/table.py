# SPDX-License-Identifier: Apache-2.0
"""Makes the table of results in Markdown, with medians, minimums, maximums, and ratios that are
computed round by round."""

import os
import platform
import statistics


def values(rows, workload, contender, figure):
    return [
        r[figure]
        for r in rows
        if r["workload"] == workload and r["contender"] == contender and r.get(figure) is not None
    ]


def median(rows, workload, contender, figure):
    v = values(rows, workload, contender, figure)
    return statistics.median(v) if v else None


def number(x):
    """Formats a number without decimals if it is at least 100, otherwise with one to three: the
    smaller the number, the more decimals."""
    if x is None:
        return "–"
    if abs(x) >= 100 or isinstance(x, int):
        return f"{x:,.0f}"
    return f"{x:.1f}" if abs(x) >= 10 else f"{x:.2f}" if abs(x) >= 0.1 or x == 0 else f"{x:.3f}"


def cell(v):
    """Formats values as: median (minimum – maximum)."""
    if not v:
        return "–"
    middle = number(statistics.median(v))
    return middle if len(v) == 1 else f"{middle} ({number(min(v))} – {number(max(v))})"


def ratios(rows, a, b, figure="rate"):
    """Returns the figure of `a` divided by the figure of `b`, for each round that has results of
    both. `a` and `b` are pairs (workload, contender)."""
    of = {
        r["round"]: r[figure]
        for r in rows
        if (r["workload"], r["contender"]) == b and r.get(figure)
    }
    return [
        r[figure] / of[r["round"]]
        for r in rows
        if (r["workload"], r["contender"]) == a and r.get(figure) and r["round"] in of
    ]


def short(r):
    """Returns one line with the result of a run."""
    parts = [f"{r['rate']:>9,.0f} msg/s", f"Redis {r['redis_us']:.2f} µs"]
    if "p50_ms" in r:
        parts.append(f"p50 {r['p50_ms']:.2f} ms, p99 {r['p99_ms']:.2f} ms")
    if "of_bound" in r:
        parts.append(
            f"{r['of_bound']:.2f} of the serial bound, {r['overlaps']} overlaps, {r['misordered']} misordered"
        )
    if "beyond" in r:
        parts.append(f"{r['beyond']:.0f} bytes a waiting message beyond its payload")
    return ", ".join(parts)


COLUMNS = (
    ("messages/s", "rate"),
    ("whole run", "whole_rate"),
    ("commands sent", "sent"),
    ("inside scripts", "inside"),
    ("round trips", "trips"),
    ("Redis CPU µs", "redis_us"),
    ("Redis busy", "redis_busy"),
    ("own CPU µs", "own_us"),
    ("client's CPU µs", "client_us"),
    ("of the busiest Redis µs", "shard_us"),
    ("VmHWM MB", "hwm_mb"),
)
EXTRA = (
    ("of the serial bound", "of_bound"),
    ("overlaps", "overlaps"),
    ("misordered", "misordered"),
    ("offered", "offered"),
    ("p50 ms", "p50_ms"),
    ("p99 ms", "p99_ms"),
    ("parked/s", "park_rate"),
    ("bytes a waiting message", "memory"),
    ("beyond the payload", "beyond"),
    ("envelope beyond", "envelope_beyond"),
)


def section(rows, w, contenders):
    here = [r for r in rows if r["workload"] == w.name]
    if not here:
        return ""
    names = [c for c in w.contenders if any(r["contender"] == c for r in here)]
    columns = [
        c
        for c in COLUMNS + EXTRA
        if any(r.get(c[1]) is not None for r in here) and (c[1] != "shard_us" or w.shards > 1)
    ]
    ours = names[0]
    lines = [
        f"## {w.name}: {w.title}",
        "",
        f"{w.data.messages:,} messages, {w.data.keys:,} keys; {max(r['round'] for r in here)} rounds.",
        "",
        "| | " + " | ".join(c[0] for c in columns) + " | ours / this |",
        "|---|" + "---|" * (len(columns) + 1),
    ]
    for name in names:
        times = cell(ratios(rows, (w.name, ours), (w.name, name))) if name != ours else ""
        lines.append(
            f"| {contenders[name].label} | "
            + " | ".join(cell(values(rows, w.name, name, c[1])) for c in columns)
            + f" | {times} |"
        )
    return "\n".join(lines) + "\n"


class Goals:
    def __init__(self, rows):
        self.rows, self.lines = rows, []

    def add(self, what, goal, got, met):
        self.lines.append(
            f"| {what} | {goal} | {got} | {'–' if met is None else 'yes' if met else '**no**'} |"
        )

    def limit(self, what, goal, v, most=None, least=None):
        """Adds a row with the values v. The row also says whether the median of v is within the
        bounds of the goal."""
        if not v:
            return self.add(what, goal, "not measured", None)
        m = statistics.median(v)
        self.add(what, goal, cell(v), (most is None or m <= most) and (least is None or m >= least))

    def ratio(self, what, goal, a, b, figure="rate", **bound):
        self.limit(what, goal, ratios(self.rows, a, b, figure), **bound)


def goals(rows):
    g = Goals(rows)
    ours = ("W1", "ours")
    g.ratio("W1 / naive, 4 threads", "≥ 4", ours, ("W1", "naive"), least=4)
    g.ratio("W1 / Parallel Consumer + Redisson", "≥ 40", ours, ("W1", "parallel-lock"), least=40)
    g.ratio("W1 / bare batched scripts", "≥ 0.6", ours, ("W1", "limit-scripts"), least=0.6)
    g.limit("W1, Redis CPU µs a message", "≤ 4", values(rows, "W1", "ours", "redis_us"), most=4)
    for w, least in (("W2x", 0.9), ("W3x", 0.95)):
        v = lambda figure, w=w: values(rows, w, "ours", figure)
        g.limit(f"{w}, of the serial bound", f"≥ {least}", v("of_bound"), least=least)
        g.limit(f"{w}, overlaps", "0", v("overlaps")[:1] and [max(v("overlaps"))], most=0)
        g.limit(f"{w}, misordered", "0", v("misordered")[:1] and [max(v("misordered"))], most=0)
        g.limit(f"{w}, commands sent a message", "≤ 0.2", v("sent"), most=0.2)
        g.limit(f"{w}, commands inside scripts a message", "≤ 8", v("inside"), most=8)
    g.limit(
        "W3x in batches of one key, of the serial bound of single messages",
        "≥ 20",
        values(rows, "W3x-batch", "ours-batch", "of_bound"),
        least=20,
    )
    g.ratio(
        "W4 / bare writer of the same topic",
        "≥ 0.8",
        ("W4", "ours-insert"),
        ("W4", "writer"),
        least=0.8,
    )
    g.ratio(
        "W4 / bare transactions, no Kafka",
        "≥ 0.8",
        ("W4", "ours-insert"),
        ("W4", "limit-sqlite"),
        least=0.8,
    )
    g.ratio(
        "W4-pg / bare writer with the same statement",
        "≥ 0.8",
        ("W4-pg", "ours-insert"),
        ("W4-pg", "writer"),
        least=0.8,
    )
    many = ("W1-exec-64", "ours-exec-64")
    g.ratio("exec, 64 in flight / W1", "≥ 0.6", many, ours, least=0.6)
    g.ratio("exec, 64 in flight / 1 in flight", "≥ 8", many, ("W1-exec", "ours-exec"), least=8)
    for driver in ("h2load", "wrk"):
        g.ratio(
            f"http / {driver} on the same web server",
            "≥ 0.7",
            ("W1-http", "ours-http"),
            ("W1-http", driver),
            least=0.7,
        )
        g.ratio(
            f"CPU of a request, the http handler by itself / {driver}",
            "(1)",
            ("W1-http", "http-alone"),
            ("W1-http", driver),
            "client_us",
            most=1,
        )
    g.ratio(
        "http / h2load on a web server in Node",
        "≥ 0.7",
        ("W1-http-node", "ours-http-node"),
        ("W1-http-node", "h2load-node"),
        least=0.7,
    )
    g.ratio(
        "no-op in Python / a plain loop in Python",
        "≥ 0.5",
        ("W1-python", "ours-python"),
        ("W1-python", "python-loop"),
        least=0.5,
    )
    ten = [min(v, 40_000) for v in values(rows, "python-10", "bare-coroutines", "rate")]
    g.limit(
        "10 ms in Python, of 400 / 10 ms or bare coroutines",
        "≥ 0.8",
        [v / b for v, b in zip(values(rows, "python-10", "ours-python", "rate"), ten)],
        least=0.8,
    )
    for ms in (1, 10, 100):
        for name in ("ours", "ours-python", "ours-node", "ours-go", "ours-http-200"):
            g.ratio(
                f"{ms} ms, 400 at a time, {name} / Parallel Consumer, no lock",
                "≥ 1",
                (f"work-{ms}", name),
                (f"work-{ms}", "parallel"),
                least=1,
            )
    g.ratio(
        "one busy node of a Redis Cluster / Redis by itself",
        "≥ 0.95",
        ("W1-cluster", "ours-cluster"),
        ("W1-cluster", "ours-tcp"),
        least=0.95,
    )
    g.ratio("W5, drain / W1", "≥ 0.5", ("W5", "ours"), ours, least=0.5)
    g.limit(
        "W5, memory beyond the payload / envelope beyond the payload",
        "≤ 1.3",
        values(rows, "W5", "ours", "of_envelope"),
        most=1.3,
    )
    g.limit(
        "W5, memory of a waiting message / its whole envelope",
        "(1.3)",
        values(rows, "W5", "ours", "of_whole"),
        most=1.3,
    )
    for figure, most in (("p50_ms", 1.1), ("p99_ms", 1)):
        g.ratio(
            f"1,000 msg/s of 1 ms, {figure[:3]} / naive, 16 consumers",
            f"≤ {most}",
            ("latency-1000", "ours"),
            ("latency-1000", "naive"),
            figure,
            most=most,
        )
    p50 = {
        (r["contender"], r["round"]): r["p50_ms"] for r in rows if r["workload"] == "latency-1000"
    }
    more = [v - p50["naive", n] for (c, n), v in p50.items() if c == "ours" and ("naive", n) in p50]
    g.limit(
        "1,000 msg/s of 1 ms, p50 ms beyond the naive loop's",
        "≤ 1 round trip (0.1)",
        more,
        most=0.1,
    )
    g.limit(
        "p99 ms at half of our W1 rate",
        "≤ 10",
        values(rows, "latency-half", "ours", "p99_ms"),
        most=10,
    )
    for n in (2, 4):
        g.ratio(
            f"Redis CPU of the busiest of {n} shards / of one",
            f"≤ {1.2 / n:.1f}",
            (f"shards-{n}", "ours"),
            ("shards-1", "ours"),
            "shard_us",
            most=1.2 / n,
        )
    for kind, base in (("keys", "keys-1000"), ("waiting", "waiting-0")):
        for name in dict.fromkeys(
            r["workload"]
            for r in rows
            if r["workload"].startswith(kind + "-") and r["workload"] != base
        ):
            g.ratio(
                f"Redis CPU, {name} / {base}",
                "≤ 1.2",
                (name, "ours"),
                (base, "ours"),
                "redis_us",
                most=1.2,
            )
    return (
        "\n".join(
            ["## Goals", "", "| | goal | median (least – most) | met |", "|---|---|---|---|"]
            + g.lines
        )
        + "\n"
    )


def machine():
    model = platform.machine()
    try:
        with open("/proc/cpuinfo") as f:
            model = next(
                (line.split(":", 1)[1].strip() for line in f if line.startswith("model name")),
                model,
            )
    except OSError:
        pass
    return f"{os.cpu_count()} cores ({model}), Linux {platform.release()}"


def whole(rows, plan, contenders, failures):
    loads = [r["load"] for r in rows]
    head = [
        "# Latchwork, side by side",
        "",
        f"{machine()}; Kafka, Redis and the contenders share it. Load average during the runs: {cell(loads)}.",
        "JSON messages of 200 bytes, 8 partitions. Median (least – most) over the rounds; ratios are taken round by round. A message's",
        "commands, round trips and CPU are those of the whole run, joining and leaving included.",
        "",
    ]
    if failures:
        head += ["**Not measured:**", ""] + ["- " + f for f in failures] + [""]
    return "\n".join(
        head + [goals(rows)] + [s for s in (section(rows, w, contenders) for w in plan) if s]
    )
