#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures the lock library on a private Redis. Compares acquire and release with a bare loop, and
hand-over with redis-py's Lock.

The library and its counterpart take turns, round by round, in one run. The results are written to
BUILD/bench/locks.json.

usage: locks.py [--build DIR] [--rounds N]"""

import argparse, importlib.util, json, multiprocessing, os, random, shutil, statistics, subprocess
import sys, tempfile, time

REDIS_SERVER = os.environ.get("LW_REDIS_SERVER") or "redis-server"
PAIRS, OURS, THEIRS, PAUSE_US = 20000, 40, 6, 100000


def program(args, *words):
    out = subprocess.run(
        [args.build + "/bench/locks/locks", *map(str, words)],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    ).stdout
    return [line.split() for line in out.splitlines()]


def theirs_waits(path, name, sleep, turns, pipe):
    import redis

    lock = redis.Redis(unix_socket_path=path).lock(name, timeout=10, sleep=sleep)
    for _ in range(turns):
        pipe.recv()
        lock.acquire()
        pipe.send(time.monotonic_ns())
        lock.release()
        pipe.send(None)


def theirs(path, sleep, turns):
    """Measures hand-over with redis-py's Lock, as bench/locks/locks.c does with our library.
    Returns for each round the time in ns from before release() in one process until after acquire()
    in the other process."""
    import redis

    r = redis.Redis(unix_socket_path=path)
    lock = r.lock("theirs", timeout=10, sleep=sleep)
    here, there = multiprocessing.Pipe()
    other = multiprocessing.Process(
        target=theirs_waits, args=(path, "theirs", sleep, turns, there), daemon=True
    )
    other.start()
    ns = []
    for _ in range(turns):
        lock.acquire()
        here.send(None)
        time.sleep(0.02 + random.uniform(0, PAUSE_US / 1e6))
        released = time.monotonic_ns()
        lock.release()
        ns.append(here.recv() - released)
        here.recv()
    other.join(10)
    return ns


def spread(values):
    values = sorted(values)
    return {
        "n": len(values),
        "median": statistics.median(values),
        "p99": values[min(len(values) - 1, int(len(values) * 0.99))],
    }


def report(figures):
    ping = figures["ping_ns"]["median"]
    print(
        "hand-over of a mutex between two processes; a PING in between took %.0f us" % (ping / 1000)
    )
    print("  %-22s %6s %12s %12s %14s" % ("", "times", "median, us", "p99, us", "median, PINGs"))
    for name, f in figures["handover_ns"].items():
        print(
            "  %-22s %6d %12.0f %12.0f %14.1f"
            % (name, f["n"], f["median"] / 1000, f["p99"] / 1000, f["median"] / ping)
        )
    print("uncontended pairs, one connection, with fences; median of blocks")
    print("  %-22s %10s %14s %14s" % ("", "pairs/s", "us here (CPU)", "us Redis (CPU)"))
    for name, f in figures["pair_ns"].items():
        print(
            "  %-22s %10.0f %14.1f %14.1f"
            % (name, 1e9 / f["wall"], f["here"] / 1000, f["redis"] / 1000)
        )
    ratios = figures["ratio"]
    print(
        "  latchwork / bare, neighbouring blocks: %.2f of its pairs a second (median; %.2f to %.2f), %.2f by Redis' CPU"
        % (ratios["median"], ratios["least"], ratios["most"], ratios["redis_cpu"])
    )


def measure(args, path):
    ours, pings, slow, quick, blocks = [], [], [], [], {"latchwork": [], "bare": []}
    for _ in range(args.rounds):
        for word, ns in program(args, "handover", path, OURS, PAUSE_US // 10):
            (ours if word == "handover" else pings).append(int(ns))
        slow += theirs(path, 0.1, THEIRS)
        quick += theirs(path, 0.01, THEIRS)
        for _, name, wall, here, redis_cpu in program(args, "pairs", path, PAIRS):
            blocks[name].append((int(wall), int(here), int(redis_cpu)))
    both = list(zip(blocks["latchwork"], blocks["bare"]))
    ratios = sorted(b[0] / a[0] for a, b in both)
    middle = lambda name, i: statistics.median(b[i] for b in blocks[name])
    return {
        "ping_ns": spread(pings),
        "handover_ns": {
            "latchwork": spread(ours),
            "redis-py (sleep 0.1)": spread(slow),
            "redis-py, sleep=0.01": spread(quick),
        },
        "pair_ns": {
            name: {"wall": middle(name, 0), "here": middle(name, 1), "redis": middle(name, 2)}
            for name in blocks
        },
        "ratio": {
            "median": statistics.median(ratios),
            "least": ratios[0],
            "most": ratios[-1],
            "redis_cpu": statistics.median(b[2] / a[2] for a, b in both),
        },
    }


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--build", default="build")
    p.add_argument("--rounds", type=int, default=6)
    args = p.parse_args()
    folder = tempfile.mkdtemp(prefix="lw-locks-")
    path = folder + "/redis.sock"
    server = subprocess.Popen(
        [
            REDIS_SERVER,
            "--port",
            "0",
            "--unixsocket",
            path,
            "--save",
            "",
            "--dir",
            folder,
            "--logfile",
            folder + "/log",
        ]
    )
    try:
        for _ in range(500):
            if os.path.exists(path):
                break
            time.sleep(0.01)
        figures = measure(args, path)
    finally:
        server.terminate()
        server.wait()
        shutil.rmtree(folder)
    report(figures)
    with open(args.build + "/bench/locks.json", "w") as out:
        json.dump(figures, out, indent=1)
    return 0


if __name__ == "__main__":
    if not importlib.util.find_spec(
        "redis"
        # Only Debian's own python3 finds Debian's python3-redis. But the first python3 in PATH may
        # be another one.
    ):
        if sys.executable != "/usr/bin/python3" and os.path.exists("/usr/bin/python3"):
            os.execv("/usr/bin/python3", ["/usr/bin/python3", *sys.argv])
        sys.exit("locks.py: the Python package redis is missing: make deps-test")
    sys.exit(main())
