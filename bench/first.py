#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures how fast Latchwork, and a loop that locks one message at a time, process messages whose
handler does nothing, with a real Kafka and one Redis. This was the project's first measurement.

Rounds alternate (ours, naive, ours, naive, ...), each on an empty Redis (FLUSHALL, CONFIG
RESETSTAT) with a consumer group of its own. Latchwork joins its epoch before a measurement begins:
it first drains a topic of 1,000 messages under the same application name. Therefore no figure
includes the quarantine that the fresh Redis may need.

How each figure is measured:
  rate        messages / the time in which Redis saw the lock's SETs (INFO commandstats, sampled
              every 50 ms). The time excludes starting, joining and leaving.
  whole       messages / the time from the start of the process to its exit
  sent        commands that a client sent. There are more commands than round trips if several
              commands share a pipeline, as Latchwork's settle, gate and claim do.
  inside      commands that scripts called
  redis CPU   used_cpu_user + used_cpu_sys
  worker CPU  wait4() of the process and all its children, start and end included
  VmHWM       the largest peak memory of a process: the measured process or one of its children

Servers are private, on a unix socket and free loopback ports. The program ends only processes that
it started. It uses only the standard library."""

import argparse
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
KAFKA = os.path.join(ROOT, "tests/live/kafka/kafka.sh")
REDIS_SERVER = os.environ.get("LW_REDIS_SERVER") or "redis-server"
SAMPLE_S = 0.05
WARM = 1000
EXEC = [
    "sed",
    "-u",
    r's/^{"id":"\([^"]*\)".*/{"id":"\1","outcome":"done"}/',
]  # a handler that answers "done" to each request
# The commands of which all calls count as sent by Latchwork, and none as made by scripts. LRANGE is
# in this list, although scripts also call LRANGE to read the heads of waiting lists. TIME, ZADD and
# ZREMRANGEBYSCORE are not in this list, because scripts make most calls of these three commands.
# Latchwork itself sends the three once with each INFO, so figures() adds three for each INFO.
SENT = (
    "evalsha",
    "eval",
    "script|load",
    "info",
    "config|get",
    "brpoplpush",
    "blmove",
    "lrange",
    "hello",
    "auth",
    "select",
    "client|setname",
)


def say(text):
    print(text, file=sys.stderr, flush=True)


class Redis:
    """A private redis-server, and a raw socket over which commands are sent to it."""

    def __init__(self, folder):
        self.path = os.path.join(folder, "redis.sock")
        self.process = subprocess.Popen(
            [
                REDIS_SERVER,
                "--port",
                "0",
                "--unixsocket",
                self.path,
                "--save",
                "",
                "--appendonly",
                "no",
                "--dir",
                folder,
            ],
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        for _ in range(200):
            if self.ask("PING", quiet=True) == "PONG":
                return
            time.sleep(0.05)
        raise SystemExit("redis-server does not answer")

    def ask(self, *command, quiet=False):
        p = subprocess.run(
            ["redis-cli", "-s", self.path, *command], capture_output=True, text=True, timeout=30
        )
        if p.returncode and not quiet:
            raise SystemExit("Redis: " + p.stderr)
        return p.stdout.strip()

    def info(self, section):
        return dict(
            line.strip().split(":", 1)
            for line in self.ask("INFO", section).splitlines()
            if ":" in line
        )

    def cpu_s(self):
        i = self.info("cpu")
        return float(i["used_cpu_user"]) + float(i["used_cpu_sys"])

    def calls(self):
        out = {}
        for name, text in self.info("commandstats").items():
            out[name[len("cmdstat_") :]] = int(re.match(r"calls=(\d+)", text).group(1))
        return out

    def end(self):
        self.process.terminate()
        self.process.wait(30)


class Sampler(threading.Thread):
    """Samples two things: over a Redis connection of its own, the number of SETs that Redis
    has executed; and the peak memory of the measured process and of each of its children."""

    def __init__(self, redis, pid):
        super().__init__(daemon=True)
        self.redis, self.pid, self.marks, self.hwm_kb, self.infos = redis, pid, [], {}, 0
        self.over = threading.Event()

    def sets(self, stream):
        stream.write(b"INFO commandstats\r\n")
        stream.flush()
        size = int(stream.readline()[1:])
        text = stream.read(size + 2).decode()
        m = re.search(r"cmdstat_set:calls=(\d+)", text)
        self.infos += 1
        return int(m.group(1)) if m else 0

    def family(self):
        try:
            with open(f"/proc/{self.pid}/task/{self.pid}/children") as f:
                return [self.pid] + [int(p) for p in f.read().split()]
        except OSError:
            return []

    def memory(self):
        for pid in self.family():
            try:
                with open(f"/proc/{pid}/status") as f:
                    m = re.search(r"VmHWM:\s+(\d+)", f.read())
                if m:
                    self.hwm_kb[pid] = int(m.group(1))
            except OSError:
                pass

    def run(self):
        import socket

        with socket.socket(socket.AF_UNIX) as s:
            s.connect(self.redis.path)
            with s.makefile("rwb") as stream:
                while not self.over.is_set():
                    self.marks.append((time.monotonic(), self.sets(stream)))
                    if len(self.marks) % 4 == 0:
                        self.memory()
                    time.sleep(SAMPLE_S)

    def active_s(self):
        """Returns the seconds from the last sample before the first SET to the first sample
        that counts all SETs."""
        first, last = self.marks[0][1], self.marks[-1][1]
        begin = max(t for t, n in self.marks if n == first)
        end = min(t for t, n in self.marks if n == last)
        return max(end - begin, SAMPLE_S)


class Rig:
    def __init__(self, options, folder):
        self.o, self.folder, self.rounds = options, folder, 0
        self.kafkatool = os.path.join(options.build, "tests/tools/kafkatool")
        self.brokers = subprocess.run(
            [KAFKA, "start", os.path.join(folder, "kafka"), "0"],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
            timeout=300,
        ).stdout.strip()
        self.redis = Redis(folder)

    def tool(self, *args):
        subprocess.run(
            [self.kafkatool, self.brokers, *map(str, args)],
            check=True,
            timeout=600,
            stdout=subprocess.DEVNULL,
        )

    def fill(self):
        for topic, n in (("work", self.o.messages), ("warm", WARM)):
            self.tool("create", topic, self.o.partitions)
            self.tool(
                "generate",
                topic,
                "--messages",
                n,
                "--keys",
                self.o.keys,
                "--size",
                self.o.size,
                "--partitioner",
                self.o.partitioner,
            )

    def config(self, name, topic, how):
        path = os.path.join(self.folder, name + "-" + topic + ".json")
        handler = {
            "type": "plugin",
            "path": os.path.join(self.o.build, "handlers/examples/count/count.so"),
            "threads": how["threads"],
        }
        if how.get("exec"):
            handler = {"type": "exec", "command": how["exec"], "processes": how["threads"]}
        with open(path, "w") as f:
            json.dump(
                {
                    "name": name,
                    "workers": how["workers"],
                    "kafka": {"topics": [topic], "properties": {"bootstrap.servers": self.brokers}},
                    "redis": {"url": "unix://" + self.redis.path},
                    "key": {"from": "message-key"},
                    "lock": {"ttl_ms": self.o.ttl_ms},
                    "handler": handler,
                    "log": {"level": "error"},
                },
                f,
            )
        return path

    def command(self, how, name):
        if how["who"] == "naive":
            return [
                os.path.join(self.o.build, "bench/naive"),
                "--brokers",
                self.brokers,
                "--topic",
                "work",
                "--group",
                name,
                "--redis",
                self.redis.path,
                "--messages",
                str(self.o.messages),
                "--threads",
                str(how["threads"]),
                "--ttl-ms",
                str(self.o.ttl_ms),
                "--drain-every",
                str(how.get("drain_every", 1)),
            ]
        return self.drain(how, name, "work")

    def drain(self, how, name, topic):
        return [
            os.path.join(how.get("build", self.o.build), "latchwork"),
            "run",
            "-c",
            self.config(name, topic, how),
            "--drain",
        ]

    def warm(self, how, name):
        self.redis.ask("FLUSHALL")
        if how["who"] != "naive":
            p = subprocess.Popen(
                self.drain(how, name, "warm"), stdout=subprocess.DEVNULL, start_new_session=True
            )
            try:
                if p.wait(120):
                    raise SystemExit(f"warming up: exit status {p.returncode}")
            finally:
                if p.returncode is None:
                    os.killpg(p.pid, signal.SIGKILL)
                    p.wait()
        self.redis.ask("CONFIG", "RESETSTAT")

    def round(self, how):
        self.rounds += 1
        name = f"first{self.rounds}"
        self.warm(how, name)
        cpu, begin = self.redis.cpu_s(), time.monotonic()
        out = tempfile.TemporaryFile("w+")
        p = subprocess.Popen(self.command(how, name), stdout=out, start_new_session=True)
        sampler = Sampler(self.redis, p.pid)
        sampler.start()
        try:
            usage = self.wait(p)
        finally:
            # If the run has failed, the process may still be running, so it is killed.
            if p.returncode is None:
                os.killpg(p.pid, signal.SIGKILL)
                p.wait()
            sampler.over.set()
            sampler.join()
        whole_s, calls, redis_s = (
            time.monotonic() - begin,
            self.redis.calls(),
            self.redis.cpu_s() - cpu,
        )
        out.seek(0)
        text = out.read().strip()
        if p.returncode:
            raise SystemExit(f"{how}: exit status {p.returncode}: {text}")
        self.check(how, text)
        return self.figures(how, text, whole_s, sampler, calls, redis_s, usage)

    def wait(self, p):
        """Waits for the process with a time limit. Returns the CPU time and memory that the process
        and its children have used."""
        for _ in range(self.o.limit_s * 50):
            pid, status, usage = os.wait4(p.pid, os.WNOHANG)
            if pid:
                p.returncode = os.waitstatus_to_exitcode(status)
                return usage
            time.sleep(0.02)
        raise SystemExit(f"a round took over {self.o.limit_s} s")

    def check(self, how, text):
        word = r'"messages":(\d+)' if how["who"] == "naive" else r"done (\d+)"
        m = re.search(word, text)
        if not m or int(m.group(1)) != self.o.messages:
            raise SystemExit(f"{how}: not all messages were handled once: {text}")

    def figures(self, how, text, whole_s, sampler, calls, redis_s, usage):
        n = self.o.messages
        calls["info"] = calls.get("info", 0) - sampler.infos - 1
        total = sum(v for k, v in calls.items() if not k.startswith("config"))
        if how["who"] == "naive":
            sent = json.loads(text)["commands"]
        else:
            sent = sum(calls.get(k, 0) for k in SENT) + 3 * calls["info"]
        return {
            "how": how,
            "rate": n / sampler.active_s(),
            "whole": n / whole_s,
            "sent": sent / n,
            "inside": (total - sent) / n,
            "redis_us": redis_s / n * 1e6,
            "worker_us": (usage.ru_utime + usage.ru_stime) / n * 1e6,
            "redis_busy": redis_s / sampler.active_s(),
            "hwm_mb": max(sampler.hwm_kb.values(), default=0) / 1024,
            "load": os.getloadavg()[0],
            "summary": text,
            "calls": calls,
        }

    def end(self):
        self.redis.end()
        subprocess.run([KAFKA, "stop", os.path.join(self.folder, "kafka")], timeout=60)


def label(how):
    if how["who"] == "naive":
        every = how.get("drain_every", 1)
        return f"naive, {how['threads']} threads" + (
            f", list looked at every {every}" if every > 1 else ""
        )
    return (
        f"Latchwork, {how['workers']} × {how['threads']}"
        + (", exec" if how.get("exec") else "")
        + (f" ({os.path.basename(how['build'])})" if "build" in how else "")
    )


FORMS = (
    "ours:WORKERSxTHREADS[@BUILD], exec:WORKERSxPROCESSES[@BUILD], naive:THREADS or "
    "naive:THREADS/DRAIN_EVERY"
)


def parse(text):
    """Returns what a configuration, one of FORMS, means."""
    m = re.fullmatch(r"(ours|exec):(\d+)x(\d+)(?:@(.+))?", text)
    if m:
        how = {"who": "ours", "workers": int(m.group(2)), "threads": int(m.group(3))}
        if m.group(4):
            how["build"] = os.path.abspath(m.group(4))
        return how | ({"exec": EXEC} if m.group(1) == "exec" else {})
    m = re.fullmatch(r"naive:(\d+)(?:/(\d+))?", text)
    if not m:
        raise argparse.ArgumentTypeError(f'"{text}" is not a configuration; expected {FORMS}')
    return {"who": "naive", "threads": int(m.group(1)), "drain_every": int(m.group(2) or 1)}


def table(results):
    def cell(rows, key, form):
        values = [r[key] for r in rows]
        if len(values) == 1:
            return form.format(values[0])
        return (
            form.format(statistics.median(values))
            + " ("
            + form.format(min(values))
            + " – "
            + form.format(max(values))
            + ")"
        )

    columns = (
        ("rate", "messages/s", "{:,.0f}"),
        ("whole", "whole run, messages/s", "{:,.0f}"),
        ("sent", "commands sent a message", "{:.3f}"),
        ("inside", "inside scripts", "{:.2f}"),
        ("redis_us", "Redis CPU µs", "{:.2f}"),
        ("redis_busy", "Redis busy", "{:.2f}"),
        ("worker_us", "worker CPU µs", "{:.2f}"),
        ("hwm_mb", "VmHWM MB", "{:.0f}"),
        ("load", "load", "{:.1f}"),
    )
    lines = ["| | " + " | ".join(c[1] for c in columns) + " |", "|---|" + "---|" * len(columns)]
    for name in dict.fromkeys(label(r["how"]) for r in results):
        rows = [r for r in results if label(r["how"]) == name]
        lines.append(
            f"| {name} | " + " | ".join(cell(rows, key, form) for key, _, form in columns) + " |"
        )
    return "\n".join(lines)


def ratios(results, turns):
    """Prints the rate of the first configuration divided by the rate of each other one, for each
    round, and the median of the rounds."""
    first = [r["rate"] for r in results if r["how"] == turns[0]]
    for how in turns[1:]:
        other = [r["rate"] for r in results if r["how"] == how]
        pairs = [a / b for a, b in zip(first, other)]
        if pairs:
            print(
                f"{label(turns[0])} / {label(how)}: median {statistics.median(pairs):.2f}, each round "
                + ", ".join(f"{p:.2f}" for p in pairs)
            )


def main():
    a = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    a.add_argument(
        "turns",
        nargs="*",
        type=parse,
        default=[parse("ours:2x2"), parse("naive:4")],
        help=f"{FORMS}. BUILD is another build folder, to compare two versions in one run",
    )
    a.add_argument("--build", default="build")
    a.add_argument("--messages", type=int, default=1000000)
    a.add_argument("--keys", type=int, default=100000)
    a.add_argument("--partitions", type=int, default=8)
    a.add_argument("--partitioner", default="key", choices=("key", "random", "roundrobin"))
    a.add_argument("--size", type=int, default=100, help="of a payload, bytes")
    a.add_argument("--ttl-ms", type=int, default=5000)
    a.add_argument("--rounds", type=int, default=3)
    a.add_argument("--limit-s", type=int, default=600, help="of a round")
    a.add_argument("--json", help="a file for all figures")
    o = a.parse_args()
    o.build = os.path.abspath(o.build)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    folder, rig, results = tempfile.mkdtemp(prefix="lw-first-"), None, []
    try:
        say(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; starting Kafka and Redis")
        rig = Rig(o, folder)
        say(f"producing {o.messages:,} messages of {o.keys:,} keys")
        rig.fill()
        for i in range(o.rounds):
            for how in o.turns:
                r = rig.round(how)
                results.append(r)
                say(
                    f"round {i + 1}/{o.rounds} {label(how)}: {r['rate']:,.0f} messages/s, {r['sent']:.3f} commands sent a message, "
                    f"Redis {r['redis_us']:.2f} µs, load {r['load']:.1f}"
                )
        print(table(results))
        ratios(results, o.turns)
        if o.json:
            with open(o.json, "w") as f:
                json.dump(results, f, indent=1)
    finally:
        if rig:
            rig.end()
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
