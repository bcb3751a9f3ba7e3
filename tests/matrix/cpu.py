#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures in one run how much CPU time Redis uses per message on each server of
tests/matrix/servers.txt, and writes the result as JSON.
usage: tests/matrix/cpu.py BUILD FILE [MESSAGES [ROUNDS]]      (needs `make limits`)

The script runs bench/limits/scripts, which sends to Redis the same commands as a worker: gate and
settle for batches of messages with distinct keys, without Kafka or handlers. Each round runs on
every server in turn, so that other load on the machine affects all servers alike. The result is the
CPU time that the server reports (INFO: used_cpu_user and used_cpu_sys) divided by the number of
messages."""

import json
import os
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/live"))
import lib.redis  # noqa: E402

RUN_LIMIT_S = 300


def program(name):
    done = subprocess.run(
        [os.path.join(ROOT, "tests/matrix/servers.sh"), name],
        stdout=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
    )
    return done.stdout.decode().strip() if done.returncode == 0 else None


def measure(build, directory, server, messages):
    """Returns the server's name and its CPU time per message in microseconds."""
    lib.redis.REDIS_SERVER = server
    redis = lib.redis.Redis(directory)
    redis.start()
    try:
        done = subprocess.run(
            [
                os.path.join(build, "bench/limits/scripts"),
                "--redis",
                redis.path,
                "--messages",
                str(messages),
            ],
            stdout=subprocess.PIPE,
            check=True,
            timeout=RUN_LIMIT_S,
        )
        info = redis.info("server")
    finally:
        redis.stop()
    shown = (
        "Valkey " + info["valkey_version"]
        if "valkey_version" in info
        else "Redis " + info["redis_version"]
    )
    return shown, json.loads(done.stdout)["redis_cpu_us"]


def main():
    build, out = sys.argv[1], sys.argv[2]
    messages, rounds = [int(a) for a in sys.argv[3:] + ["200000", "5"][len(sys.argv[3:]) :]]
    with open(os.path.join(ROOT, "tests/matrix/servers.txt")) as f:
        names = [line.split()[0] for line in f if line.strip() and not line.startswith("#")]
    servers = [(name, path) for name, path in ((name, program(name)) for name in names) if path]
    figures, shown = {name: [] for name, _ in servers}, {}
    with tempfile.TemporaryDirectory(prefix="latchwork-cpu.") as folder:
        for r in range(rounds):
            for name, path in servers[r % len(servers) :] + servers[: r % len(servers)]:
                shown[name], us = measure(
                    build, os.path.join(folder, "%s-%d" % (name, r)), path, messages
                )
                figures[name].append(us)
                print(
                    "round %d of %d: %-14s %.2f us a message" % (r + 1, rounds, shown[name], us),
                    flush=True,
                )
    how = (
        "Gate and settle as a worker sends them (`bench/limits/scripts`), %s messages in batches of 64 with 100,000 keys, for each server the "
        "median of %d rounds. The server's own count of its CPU, user and system. All servers took turns in one run, on a machine of two cores that "
        "did other work, too, so differences below a third mean nothing."
        % (format(messages, ",d"), rounds)
    )
    rows = [
        {
            "server": shown[name],
            "us": statistics.median(figures[name]),
            "least": min(figures[name]),
            "most": max(figures[name]),
        }
        for name, _ in servers
    ]
    os.makedirs(os.path.dirname(os.path.abspath(out)), exist_ok=True)
    with open(out, "w") as f:
        json.dump({"how": how, "rows": rows}, f, indent=1)


if __name__ == "__main__":
    main()
