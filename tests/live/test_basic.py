#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the whole program with a real Kafka and a private Redis: two topics of four partitions,
with the same keys in all of them.

Each case checks five promises. No two runs of a key overlap, and fences only grow. The first runs
of the messages of a (partition, key) come in the order of offsets. No message is lost. No message
runs twice unless a process died. All offsets are committed.
Usage: test_basic.py [BUILD [CASE]]
The last line of the output is "N passed, N failed"."""

import collections
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
BUILD = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "build")
REDIS_SERVER = os.environ.get("LW_REDIS_SERVER") or "redis-server"
TTL_MS = 2000
LIMIT_S = 120


class Failed(Exception):
    pass


def expect(ok, text):
    if not ok:
        raise Failed(text)


def until(what, condition, limit_s=LIMIT_S):
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.05)
    raise Failed(f"never: {what}")


class Redis:
    def __init__(self, folder):
        self.folder = folder
        self.path = os.path.join(folder, "redis.sock")
        self.start()

    def start(self):
        self.process = subprocess.Popen(
            [
                REDIS_SERVER,
                "--port",
                "0",
                "--unixsocket",
                self.path,
                "--dir",
                self.folder,
                "--save",
                "",
            ],
            stdout=subprocess.DEVNULL,
        )
        until("redis answers", lambda: self.ask("ping") == "PONG", 20)

    def ask(self, *words):
        done = subprocess.run(
            ["redis-cli", "-s", self.path, *words],
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
        )
        return done.stdout.strip()

    def stop(self):
        self.process.kill()
        self.process.wait()


class Trial:
    """A test case with its own topics, configuration and journal."""

    def __init__(self, name, brokers, redis, folder):
        self.name, self.brokers, self.redis = name, brokers, redis
        self.topics = [f"{name}-a", f"{name}-b"]
        self.journal = os.path.join(folder, f"{name}.journal")
        self.log = os.path.join(folder, f"{name}.log")
        self.config = os.path.join(folder, f"{name}.json")
        self.messages = 0
        open(self.journal, "w").close()
        config = {
            "name": name,
            "workers": 4,
            "kafka": {
                "topics": self.topics,
                "properties": {"bootstrap.servers": brokers, "session.timeout.ms": "6000"},
            },
            "redis": {"url": f"unix://{name}:secret@{redis.path}"},
            "lock": {"ttl_ms": TTL_MS},
            "handler": {
                "type": "exec",
                "command": ["python3", os.path.join(HERE, "journal_handler.py")],
                "processes": 2,
            },
        }
        with open(self.config, "w") as f:
            json.dump(config, f)
        self.make_user()
        for topic in self.topics:
            self.tool("create", topic, "4")

    def make_user(self):
        line = subprocess.run(
            [f"{BUILD}/latchwork", "check", "--acl", self.name, "-c", self.config],
            check=True,
            timeout=60,
            text=True,
            stdout=subprocess.PIPE,
        ).stdout
        said = self.redis.ask(*line.split(), ">secret")
        expect(said == "OK", f"{line}: {said}")

    def tool(self, *words):
        done = subprocess.run(
            [f"{BUILD}/tests/tools/kafkatool", self.brokers, *words],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        expect(done.returncode == 0, f"kafkatool {words}: {done.stderr}")
        return done.stdout

    def produce(self, messages, keys):
        for n, topic in enumerate(self.topics):
            self.tool(
                "generate",
                topic,
                "--messages",
                str(messages),
                "--keys",
                str(keys),
                "--partitioner",
                "random",
                "--seed",
                str(n + 1),
            )
            self.messages += messages

    def start(self, *args, delay=0.0):
        env = dict(os.environ, JOURNAL=self.journal, DELAY=str(delay))
        log = open(self.log, "a")
        self.process = subprocess.Popen(
            [f"{BUILD}/latchwork", "run", "-c", self.config, *args], env=env, stdout=log, stderr=log
        )
        return self.process

    def finish(self):
        try:
            return self.process.wait(LIMIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise Failed("latchwork does not end") from None

    def worker_pids(self):
        with open(self.log) as f:
            return {int(pid) for pid in re.findall(r"started as \S+?-(\d+)-[0-9a-f]{8}:", f.read())}

    def live_workers(self):
        return [pid for pid in self.worker_pids() if os.path.exists(f"/proc/{pid}")]

    def runs(self):
        with open(self.journal) as f:
            return [line.split() for line in f.read().splitlines()]

    def check_log(self, deaths_allowed):
        with open(self.log) as f:
            log = f.read()
        expect(
            "Sanitizer" not in log and "runtime error" not in log,
            "a sanitizer has something to say",
        )
        expect(deaths_allowed or "started again" not in log, "a worker died")

    def check(self, reruns_allowed):
        self.check_log(deaths_allowed=reruns_allowed)
        ids = collections.Counter()
        lanes = collections.defaultdict(list)
        for start, end, identity, key, fence, _ in self.runs():
            ids[identity] += 1
            lanes[key].append((int(start), int(end), identity, int(fence)))
        overlaps, fences, misordered = 0, 0, 0
        for lane in lanes.values():
            lane.sort()
            seen, last = set(), collections.defaultdict(lambda: -1)
            for before, after in zip(lane, lane[1:]):
                overlaps += after[0] < before[1]
                fences += after[3] <= before[3]
            for _, _, identity, _ in lane:
                partition, offset = identity.rsplit("/", 1)
                if identity not in seen:
                    misordered += int(offset) < last[partition]
                    last[partition] = int(offset)
                seen.add(identity)
        reruns = sum(ids.values()) - len(ids)
        print(
            f"  {self.name}: {len(ids)} of {self.messages}, {reruns} again, {overlaps} overlaps, {fences} fences back, {misordered} misordered"
        )
        expect(len(ids) == self.messages, f"{self.messages - len(ids)} messages are lost")
        expect(overlaps == 0 and fences == 0 and misordered == 0, "exclusion or order is broken")
        expect(reruns_allowed or reruns == 0, f"{reruns} messages ran again")
        ends = {
            tuple(line.split()[:2]): line.split()[3]
            for line in self.tool("ends", *self.topics).splitlines()
        }
        commits = {
            tuple(line.split()[:2]): line.split()[2]
            for line in self.tool("committed", self.name, *self.topics).splitlines()
        }
        expect(ends == commits, f"ends {ends}, committed {commits}")


def drains(trial):
    trial.produce(4000, 150)
    trial.start("--drain", "--json", delay=0.0005)
    expect(trial.finish() == 0, "exit status")
    trial.check(reruns_allowed=False)
    # All messages are already done, so this drain has nothing to do.
    trial.start("--drain")
    expect(trial.finish() == 0, "exit status of an idle drain")
    trial.check(reruns_allowed=False)


def ends_in_order(trial):
    trial.produce(4000, 150)
    trial.start(delay=0.01)
    until("messages are handled", lambda: len(trial.runs()) > 300)
    trial.process.send_signal(signal.SIGTERM)
    expect(trial.finish() == 0, "exit status after SIGTERM")
    expect(len(trial.runs()) < trial.messages, "it was to end in the middle")
    expect(
        trial.redis.ask("--scan", "--pattern", f"lw:{{{trial.name}.0}}:lock:*") == "",
        "locks are left",
    )
    trial.start("--drain", delay=0.0005)
    expect(trial.finish() == 0, "exit status")
    trial.check(reruns_allowed=False)


def survives(trial):
    trial.produce(12000, 150)
    trial.start("--drain", delay=0.003)

    def after(n):
        until(f"{n} runs", lambda: len(trial.runs()) > n)

    after(1000)
    trial.redis.ask("script", "flush")
    after(2500)
    victim = random.choice(trial.live_workers())
    print(f"  kill -9 {victim}")
    os.kill(victim, signal.SIGKILL)
    after(5000)
    trial.redis.ask("flushall")
    after(8000)
    trial.redis.stop()
    trial.redis.start()
    trial.make_user()
    after(11000)
    sleeper = random.choice(trial.live_workers())
    print(f"  SIGSTOP {sleeper}")
    os.kill(sleeper, signal.SIGSTOP)
    time.sleep(3 * TTL_MS / 1000)
    os.kill(sleeper, signal.SIGCONT)
    expect(trial.finish() == 0, "exit status")
    trial.check(reruns_allowed=True)


def run_case(case, brokers, redis, folder):
    trial = Trial(case.__name__.replace("_", "-"), brokers, redis, folder)
    try:
        case(trial)
        print(f"ok      {case.__name__}", flush=True)
        return True
    except (Failed, subprocess.TimeoutExpired, OSError) as e:
        print(f"FAILED  {case.__name__}: {e}", flush=True)
        with open(trial.log) as f:
            print("".join("    | " + line for line in f.read().splitlines(keepends=True)[-40:]))
        return False
    finally:
        if hasattr(trial, "process") and trial.process.poll() is None:
            trial.process.kill()
            trial.process.wait()


def main():
    cases = [drains, ends_in_order, survives]
    if len(sys.argv) > 2:
        cases = [c for c in cases if c.__name__ == sys.argv[2]]
    folder = tempfile.mkdtemp(prefix="latchwork-basic.")
    kafka = os.path.join(HERE, "kafka", "kafka.sh")
    redis = None
    passed = 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        brokers = subprocess.run(
            [kafka, "start", os.path.join(folder, "kafka"), "0"],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        ).stdout.strip()
        redis = Redis(folder)
        for case in cases:
            passed += run_case(case, brokers, redis, folder)
    finally:
        if redis:
            redis.stop()
        subprocess.run([kafka, "kill", os.path.join(folder, "kafka")], check=False)
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{passed} passed, {len(cases) - passed} failed")
    return 0 if passed == len(cases) else 1


sys.exit(main())
