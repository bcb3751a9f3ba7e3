#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures Redis's CPU per message on each server of tests/matrix/servers.txt, all in one run, and writes it as JSON.
Arguments: build folder, file, [messages, rounds]. Needs `make bench-tools`.

Each round drains the same topic once on each server, in turn, so that what else the machine does falls on all of them alike. The figure is what
the server says of itself (INFO: used_cpu_user + used_cpu_sys) over the drain, by the number of messages. The handler does nothing."""
import json
import os
import statistics
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "tests/live"))
import lib.redis  # noqa: E402
from lib.process import Failure  # noqa: E402
from lib.scenario import Rig, Scenario  # noqa: E402

WARM = 1000


def program(name):
    done = subprocess.run([os.path.join(ROOT, "tests/matrix/servers.sh"), name], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
    return done.stdout.decode().strip() if done.returncode == 0 else None


def used(redis):
    info = redis.info("cpu")
    return float(info["used_cpu_user"]) + float(info["used_cpu_sys"])


def drain(t, redis, name, topics):
    t.redis = redis
    t.topics, t.id = topics, name
    plugin = {"type": "plugin", "path": os.path.join(t.rig.build, "bench/bench.so"), "threads": 4}
    status, out = t.start("--drain", handler=plugin, workers=2, label=name, lock={"ttl_ms": 5000}).wait(300)
    if status:
        raise Failure("%s: status %d: %s" % (name, status, t.instances[-1].log()[-1000:]))


def measure(t, server, n, messages):
    """Microseconds per message. A drain of a small topic comes first: it joins the epoch and loads the scripts."""
    lib.redis.REDIS_SERVER = server
    redis = lib.redis.Redis(os.path.join(t.dir, "redis-%d" % n))
    redis.start()
    try:
        drain(t, redis, "cpu-%d" % n, ["warm"])
        before = used(redis)
        drain(t, redis, "cpu-%d" % n, ["load"])
        info = redis.info("server")
        shown = "Valkey " + info["valkey_version"] if "valkey_version" in info else "Redis " + info["redis_version"]
        return shown, (used(redis) - before) * 1e6 / messages
    finally:
        redis.stop()


def main():
    build, out = sys.argv[1], sys.argv[2]
    messages, rounds = [int(a) for a in (sys.argv[3:] + [100000, 5][len(sys.argv[3:]):])]
    with open(os.path.join(ROOT, "tests/matrix/servers.txt")) as f:
        names = [line.split()[0] for line in f if line.strip() and not line.startswith("#")]
    servers = [(name, program(name)) for name in names]
    servers = [(name, path) for name, path in servers if path]
    figures, shown, n = {name: [] for name, _ in servers}, {}, 0
    rig = Rig(build)
    t = Scenario(rig, "cpu")
    try:
        rig.kafka.create("warm", 4)
        rig.kafka.create("load", 4)
        rig.kafka.tool("generate", "warm", "--messages", WARM, "--keys", WARM, "--zipf", 0, "--seed", 1)
        rig.kafka.tool("generate", "load", "--messages", messages, "--keys", messages // 10, "--zipf", 0, "--seed", 2)
        for r in range(rounds):
            for name, path in servers[r % len(servers):] + servers[:r % len(servers)]:
                n += 1
                shown[name], us = measure(t, path, n, messages)
                figures[name].append(us)
                print("round %d of %d: %-14s %.2f us a message" % (r + 1, rounds, shown[name], us), flush=True)
    finally:
        t.close()
        rig.close(keep=False)
    how = ("%s messages without a fault, %s keys, a handler that does nothing, two workers; the server's own count of its CPU, user and system, "
           "median of %d drains. All servers took turns in one run, on a machine that did other work, too."
           % (format(messages, ",d"), format(messages // 10, ",d"), rounds))
    rows = [{"server": shown[name], "us": statistics.median(figures[name]), "least": min(figures[name]), "most": max(figures[name])} for name, _ in servers]
    os.makedirs(os.path.dirname(os.path.abspath(out)), exist_ok=True)
    with open(out, "w") as f:
        json.dump({"how": how, "rows": rows}, f, indent=1)


if __name__ == "__main__":
    main()
