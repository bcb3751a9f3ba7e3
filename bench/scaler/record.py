#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records what the autoscaler would see of a real fleet under three loads, for
bench/scaler/simulate.py --recorded.

usage: bench/scaler/record.py [BUILD] [--load NAME…] [--out FOLDER]

For each load, the program starts `latchwork run` with its own Kafka and Redis. The load begins with
few messages, rises, stays at its peak for a time, and ends. Once per second the program records a
row of values from /metrics, until all messages are done and ten more seconds have passed. The
number of workers is fixed, so no autoscaler is involved. The handler sleeps, so that the speed of
the machine hardly matters."""

import argparse
import os
import random
import subprocess
import sys
import threading
import time
import urllib.request

sys.dont_write_bytecode = True
HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "tests", "live"))
from lib import latchwork, scenario  # noqa: E402
from lib.ports import free_port  # noqa: E402
from lib.process import Failure, end_popen, wait_until  # noqa: E402

# WORKERS is 2 because a pod in bench/scaler/simulate.py also has two workers.
WORKERS, HANDLERS, SERVICE_MS, PARTITIONS = 2, 4, 20, 8
SLOW_S, RISE_S, PEAK_S, QUIET_S = 30, 20, 50, 10
TICKS = 20  # number of times per second that messages are sent
DRAIN_LIMIT_S = 240
COLUMNS = ("second", "arrived", "lag", "wanted_workers", "runnable_lanes", "in_handlers", "done")


class Load:
    """A load: the number of messages per second at first and at the peak, and the share of messages
    that have the key "hot"."""

    def __init__(self, hot_share, slow, peak):
        self.hot_share, self.slow, self.peak = hot_share, slow, peak

    def per_s(self, t):
        if t < SLOW_S:
            return self.slow
        if t < SLOW_S + RISE_S:
            return self.slow + (self.peak - self.slow) * (t - SLOW_S) / RISE_S
        return self.peak if t < SLOW_S + RISE_S + PEAK_S else 0

    def key(self, rng):
        return b"hot" if rng.random() < self.hot_share else b"k-%d" % rng.randrange(20000)


# All handlers together can handle at most 400 messages per second, and at most 50 of one key.
LOADS = {
    "many-keys": Load(0, 40, 600),
    "one-hot-key": Load(1, 8, 90),
    "a-hot-key-among-many": Load(0.4, 20, 200),
}


class Arrivals(threading.Thread):
    """Sends each message of a load at its scheduled time."""

    def __init__(self, kafka, topic, load):
        super().__init__(daemon=True)
        self.load, self.sent = load, 0
        self.tool = subprocess.Popen(
            kafka.command("produce", topic, "--hex"), stdin=subprocess.PIPE
        )
        self.start()

    def run(self):
        rng, due, begun = random.Random(1), 0.0, time.monotonic()
        for tick in range((SLOW_S + RISE_S + PEAK_S) * TICKS):
            time.sleep(max(0, begun + tick / TICKS - time.monotonic()))
            due += self.load.per_s(tick / TICKS) / TICKS
            n = int(due) - self.sent
            self.tool.stdin.write(
                b"".join(
                    b"|%s|%s\n" % (self.load.key(rng).hex().encode(), b"{}".hex().encode())
                    for _ in range(n)
                )
            )
            self.tool.stdin.flush()
            self.sent += n
        self.tool.stdin.close()

    def ended(self):
        """Returns true if all messages are in Kafka."""
        if self.tool.poll():
            raise Failure("kafkatool produce ended with status %d" % self.tool.returncode)
        return not self.is_alive() and self.tool.poll() == 0

    def close(self):
        end_popen(self.tool, 1)


def metrics(port):
    """Returns the metrics of the supervisor as {name: value}, without the prefix latchwork_. A name
    with labels gives the value of one series, a name without labels the sum over all series."""
    with urllib.request.urlopen("http://127.0.0.1:%d/metrics" % port, timeout=10) as r:
        lines = [line for line in r.read().decode().splitlines() if line.startswith("latchwork_")]
    seen = {}
    for line in lines:
        name, value = line.rsplit(" ", 1)
        for n in {name, name.split("{")[0]}:
            seen[n] = seen.get(n, 0) + float(value)
    return {name[len("latchwork_") :]: value for name, value in seen.items()}


def row(second, arrived, seen):
    return (
        second,
        arrived,
        *(
            int(seen[name])
            for name in (
                "kafka_lag",
                "wanted_workers",
                "runnable_lanes",
                "in_handler_messages",
                'messages_total{outcome="done"}',
            )
        ),
    )


def record(t, load):
    """Runs a load, and returns the recorded rows."""
    t.start_redis()
    t.make_topics(1, PARTITIONS)
    port = free_port()
    plugin = os.path.join(t.rig.build, "bench/bench.so")
    fleet = t.start(
        workers=WORKERS,
        handler={
            "type": "plugin",
            "path": plugin,
            "threads": HANDLERS,
            "config": {"work_us": SERVICE_MS * 1000},
        },
        http={"listen": "127.0.0.1:%d" % port},
        environment={"LATCHWORK_JOURNAL": ""},
    )
    wait_until(
        lambda: (
            fleet.check_running()
            or latchwork.readyz(port)[0] == 200
            and "kafka_lag" in metrics(port)
        ),
        60,
        "ready fleet",
    )
    arrivals, rows, quiet, sent, begun = (
        Arrivals(t.kafka, t.topics[0], load),
        [],
        0,
        0,
        time.monotonic(),
    )
    try:
        while quiet < QUIET_S:
            time.sleep(max(0, begun + len(rows) + 1 - time.monotonic()))
            now_sent = arrivals.sent
            rows.append(row(len(rows) + 1, now_sent - sent, metrics(port)))
            sent = now_sent
            quiet = (
                quiet + 1 if arrivals.ended() and rows[-1][2] == 0 and rows[-1][-1] >= sent else 0
            )
            if len(rows) > SLOW_S + RISE_S + PEAK_S + DRAIN_LIMIT_S:
                raise Failure("not drained: %s" % dict(zip(COLUMNS, rows[-1])))
    finally:
        arrivals.close()
    fleet.stop()
    return rows


def save(path, name, load, rows):
    with open(path, "w") as f:
        f.write("# bench/scaler/record.py build --load %s\n" % name)
        f.write(
            "# %d workers of %d handlers, %d ms per message, %d partitions; %d, then up to %d messages per second, %d %% of them with one key\n"
            % (
                WORKERS,
                HANDLERS,
                SERVICE_MS,
                PARTITIONS,
                load.slow,
                load.peak,
                100 * load.hot_share,
            )
        )
        f.write(",".join(COLUMNS) + "\n")
        f.writelines(",".join(map(str, r)) + "\n" for r in rows)
    print(
        "%s: %d rows, %d messages, largest lag %d, most wanted workers %d"
        % (path, len(rows), rows[-1][-1], max(r[2] for r in rows), max(r[3] for r in rows)),
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("build", nargs="?", default="build")
    parser.add_argument(
        "--load",
        nargs="+",
        choices=list(LOADS),
        default=list(LOADS),
        help="loads to record (default: all)",
    )
    parser.add_argument(
        "--out",
        default=os.path.join(HERE, "recorded"),
        help="folder of the files (default: bench/scaler/recorded)",
    )
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    rig = scenario.Rig(args.build)
    try:
        for name in args.load:
            t = scenario.Scenario(rig, name)
            try:
                save(
                    os.path.join(args.out, name + ".csv"), name, LOADS[name], record(t, LOADS[name])
                )
            finally:
                t.close()
    finally:
        rig.close(keep=False)


if __name__ == "__main__":
    main()
