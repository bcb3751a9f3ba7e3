# SPDX-License-Identifier: Apache-2.0
"""Measures one run of one contender: the counters of Redis, CPU time and memory of the process, and
the contents of the journal. bench/README.md explains each figure."""

import collections
import contextlib
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import tempfile
import threading
import time

from servers import Client, Failure
from contenders import Run
from workloads import PARTITIONS, SIZE, WARM, Data

SAMPLE_S = 0.05
# Time in ms that a producer waits to fill a batch. This is the default of librdkafka, and of
# Kafka's own producer since 4.0.
LINGER_MS = 5
# The commands that count as sent by Latchwork and not as called by scripts. TIME, ZADD and
# ZREMRANGEBYSCORE are not in this list, because scripts make most calls of them. Latchwork sends
# these three commands once with each INFO, so three commands are added for each INFO. Scripts call
# LRANGE, too, to read the heads of waiting lists, but these calls are counted as sent.
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


class Sampler(threading.Thread):
    """Samples the number of SETs that Redis has executed, over a Redis connection of its own, and
    the peak memory of the process and of each child."""

    def __init__(self, redis, pid):
        super().__init__(daemon=True)
        self.redis, self.pid, self.marks, self.hwm_kb, self.infos = redis, pid, [], {}, 0
        self.over = threading.Event()

    def memory(self):
        try:
            with open(f"/proc/{self.pid}/task/{self.pid}/children") as f:
                family = [str(self.pid)] + f.read().split()
        except OSError:
            return
        for pid in family:
            try:
                with open(f"/proc/{pid}/status") as f:
                    m = re.search(r"VmHWM:\s+(\d+)", f.read())
                if m:
                    self.hwm_kb[pid] = int(m.group(1))
            except OSError:
                pass

    def run(self):
        with Client(self.redis.path) as c:
            while not self.over.is_set():
                calls = c.calls()
                self.infos += 1
                self.marks.append((time.monotonic(), calls.get("set", 0)))
                if len(self.marks) % 4 == 1:
                    self.memory()
                self.over.wait(SAMPLE_S)

    def active_s(self):
        """Returns the seconds from the last sample before the first SET to the first sample that
        counts all SETs. Returns None if there were no SETs."""
        if not self.marks or self.marks[0][1] == self.marks[-1][1]:
            return None
        begin = max(t for t, n in self.marks if n == self.marks[0][1])
        end = min(t for t, n in self.marks if n == self.marks[-1][1])
        return max(end - begin, SAMPLE_S)


def end_group(p, sig=signal.SIGKILL):
    """Sends the signal to all processes of a run, by their process group."""
    if p.returncode is None:
        try:
            os.killpg(p.pid, sig)
        except ProcessLookupError:
            pass


def wait_usage(p, limit_s, tick=None):
    """Waits for the process with a time limit, and calls tick() meanwhile. Returns the CPU time and
    memory that the process and its children have used."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        pid, status, usage = os.wait4(p.pid, os.WNOHANG)
        if pid:
            p.returncode = os.waitstatus_to_exitcode(status)
            return usage
        if tick:
            tick()
        time.sleep(0.02)
    raise Failure(f"not done after {limit_s} s")


def progress(folder):
    """Reads the *.progress files of the journal. Returns the number of messages handled, and the
    first start and the last end over all processes. All three are 0 if there are no such files."""
    handled, firsts, lasts = 0, [], []
    for name in os.listdir(folder):
        if name.endswith(".progress"):
            with open(os.path.join(folder, name), "rb") as f:
                n, first, last = struct.unpack("=3q", f.read(24))
            handled += n
            if n:
                firsts.append(first)
                lasts.append(last)
    return handled, min(firsts, default=0), max(lasts, default=0)


class Measure:
    def __init__(self, rig, build, contenders):
        self.rig, self.judge, self.contenders, self.runs = (
            rig,
            os.path.join(build, "bench/judge"),
            contenders,
            0,
        )

    def run(self, workload, contender, w1_rate=None):
        """Measures one run. Returns a dict of figures. Raises Failure if there are no figures."""
        self.runs += 1
        run = Run(self.rig, workload, contender, self.runs)
        try:
            for redis in run.redises:
                redis("FLUSHALL")
            if contender.ours:
                self.finish(contender.warm_command(run), 60)
            r = getattr(self, "run_" + workload.kind)(run, contender, w1_rate)
            r["load"] = os.getloadavg()[0]
            return r
        finally:
            shutil.rmtree(run.folder)

    def finish(self, command, limit_s):
        p = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL, start_new_session=True
        )
        try:
            wait_usage(p, limit_s)
        finally:
            end_group(p)
            if p.returncode is None:
                p.wait()
        if p.returncode:
            raise Failure(f"{command[0]}: exit status {p.returncode}")

    # --- one process, from its start to its end ---------------------------------------------------

    def observe(self, run, contender, command, during=None):
        """Runs the command, and waits for its end. If `during` is given, calls
        during(process) while the command runs; during() must make the process end. Returns the
        figures that do not depend on the number of messages."""
        with contextlib.ExitStack() as stack:
            out = stack.enter_context(tempfile.TemporaryFile("w+"))
            clients = [stack.enter_context(Client(r.path)) for r in run.redises]
            for c in clients:
                c("CONFIG", "RESETSTAT")
            cpus, begin, reads = (
                [c.cpu_s() for c in clients],
                time.monotonic(),
                sum(c.reads() for c in clients),
            )
            p = subprocess.Popen(
                command, stdout=out, stdin=subprocess.DEVNULL, start_new_session=True
            )
            sampler = Sampler(run.redises[0], p.pid)
            sampler.start()
            try:
                if during:
                    during(p)
                usage = wait_usage(p, run.workload.limit_s)
            finally:
                end_group(p)
                if p.returncode is None:
                    p.wait()
                sampler.over.set()
                sampler.join()
            whole_s = time.monotonic() - begin
            each_s, calls = (
                [c.cpu_s() - cpu for c, cpu in zip(clients, cpus)],
                collections.Counter(),
            )
            for c in clients:
                calls.update(c.calls())
            reads = sum(c.reads() for c in clients) - reads - sampler.infos
            out.seek(0)
            text = out.read().strip()
        if p.returncode:
            raise Failure(f"{contender.label}: exit status {p.returncode}: {text[-300:]}")
        lines = [line for line in text.splitlines() if line.startswith("{")]
        line = json.loads(lines[-1]) if lines else {}
        # If the last line has the member "answers", bench/web.c has printed it. That program starts
        # the measured program and ends after it, so the measured program's line is the one before.
        if "answers" in line and len(lines) > 1:
            line |= json.loads(lines[-2])
        calls["info"] = max(0, calls.get("info", 0) - sampler.infos - 2 * len(clients))
        return {
            "whole_s": whole_s,
            "redis_s": sum(each_s),
            "shard_s": max(each_s),
            "own_s": usage.ru_utime + usage.ru_stime,
            "reads": reads,
            "calls": calls,
            "line": line,
            "active_s": sampler.active_s(),
            "hwm_mb": max(sampler.hwm_kb.values(), default=0) / 1024,
        }

    def figures(self, contender, o, n, elapsed_s):
        calls = {k: v for k, v in o["calls"].items() if not k.startswith(("config|", "command"))}
        total = sum(calls.values())
        if contender.ours:
            sent = o["line"].get("redis_commands") or sum(
                calls.get(k, 0) for k in SENT
            ) + 3 * calls.get("info", 0)
        elif "commands" in o["line"]:
            sent = o["line"]["commands"]
        elif calls.get("evalsha", 0) + calls.get(
            "eval", 0
        ):  # scripts were called, so count only commands that scripts do not call
            sent = sum(
                calls.get(k, 0)
                for k in ("evalsha", "eval", "publish", "ping", "hello", "script|load")
            )
        else:
            sent = total
        trips = o["line"].get("redis_round_trips", o["reads"])
        web = {}
        if "answers" in o["line"]:
            answers = max(1, o["line"]["answers"])
            web = {
                "web_us": o["line"]["web_us"],
                "client_us": o["own_s"] / answers * 1e6 - o["line"]["web_us"],
            }
        return web | {
            "n": n,
            "elapsed_s": elapsed_s,
            "rate": n / elapsed_s,
            "whole_rate": n / o["whole_s"],
            "redis_us": o["redis_s"] / n * 1e6,
            "shard_us": o["shard_s"] / n * 1e6,
            "redis_busy": o["shard_s"] / max(elapsed_s, 1e-6),
            "own_us": o["own_s"] / n * 1e6,
            "sent": sent / n,
            "inside": max(0, total - sent) / n,
            "trips": trips / n,
            "hwm_mb": o["hwm_mb"],
            "calls": calls,
            "line": o["line"],
        }

    def judged(self, run, *args):
        p = subprocess.run(
            [self.judge, run.journal, *args], stdout=subprocess.PIPE, text=True, timeout=600
        )
        if p.returncode:
            raise Failure("the journal could not be judged")
        return json.loads(p.stdout)

    def span(self, run, contender, o):
        """Returns the number of messages handled, and the seconds from the first start to the last
        end."""
        if contender.ours and contender.handler in ("plugin", "batch"):
            handled, first, last = progress(run.journal)
        elif (
            contender.ours
        ):  # without a journal, take the time from the first to the last lock that Redis saw
            return o["line"].get("done", 0) + o["line"].get("dropped", 0), o["active_s"] or o[
                "whole_s"
            ]
        else:
            handled, first, last = (
                o["line"].get("messages", 0),
                o["line"].get("first_us", 0),
                o["line"].get("last_us", 0),
            )
        return handled, max((last - first) / 1e6, 1e-6)

    # --- procedures, by the kind of a workload ----------------------------------------------------

    def run_plain(self, run, contender, _):
        o = self.observe(run, contender, contender.command(run))
        handled, elapsed_s = self.span(run, contender, o)
        if handled < run.messages or (contender.ours and handled != run.messages):
            raise Failure(
                f"{contender.label}: {handled:,} of {run.messages:,} messages were handled"
            )
        r = self.figures(contender, o, run.messages, elapsed_s)
        if run.workload.journal:
            j = self.judged(run)
            if j["distinct"] != run.messages:
                raise Failure(
                    f"{contender.label}: {j['distinct']:,} of {run.messages:,} messages are in the journal"
                )
            # The journal divides the time of a batch among its messages, so the share of a message
            # may be less than work_us. But bound_s, the shortest possible time of the workload,
            # assumes that messages are handled one by one. So each message has at least work_us.
            bound_s = (
                j["busiest"]["count"] * max(j["busiest"]["mean_us"], run.workload.work_us) / 1e6
            )
            r |= {
                "judge": j,
                "overlaps": j["overlaps"],
                "misordered": j["misordered"],
                "duplicates": j["duplicates"],
                "bound_s": bound_s,
                "of_bound": bound_s / elapsed_s,
            }
        return r

    def run_insert(self, run, contender, _):
        if run.workload.postgres:
            run.rig.postgres.empty()
        o = self.observe(run, contender, contender.command(run))
        handled, elapsed_s = self.span(run, contender, o)
        if handled != run.messages:
            raise Failure(
                f"{contender.label}: {handled:,} of {run.messages:,} messages were handled"
            )
        return self.figures(contender, o, run.messages, elapsed_s)

    def start(self, command):
        return subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL, start_new_session=True
        )

    def stop(self, p):
        """Sends SIGTERM to the supervisor only, so that the supervisor stops its workers."""
        if p.poll() is None:
            p.send_signal(signal.SIGTERM)
        try:
            wait_usage(p, 60)
        finally:
            end_group(p)
            if p.returncode is None:
                p.wait()

    def park(self, run, contender, data, paused):
        """Makes a worker park all messages of a topic, either in paused lanes or behind locks that
        another client holds. Measures the memory of Redis per waiting message when all messages
        wait and the worker is idle. Returns the worker's process, which still runs, and the
        figures."""
        prefix = run.prefix("")
        with Client(self.rig.redis.path) as c:
            if paused:
                self.in_chunks(c, "SADD", prefix + "paused", data)
            else:
                for i in range(0, data.keys, 1000):
                    c(
                        "MSET",
                        *(
                            w
                            for k in range(i, min(i + 1000, data.keys))
                            for w in (prefix + f"lock:{data.prefix}{k}", "another:0")
                        ),
                    )
            before = int(c.info("memory")["used_memory"])
            c("CONFIG", "RESETSTAT")
            begin = time.monotonic()
            p = self.start([contender.path, "run", "-c", contender.config(run, data.topic)])
            try:
                while self.waiting(c, prefix, data) < data.messages:
                    if time.monotonic() - begin > run.workload.limit_s or p.poll() is not None:
                        raise Failure("parking: not all messages wait")
                    time.sleep(0.5)
            except BaseException:
                end_group(p)
                p.wait()
                raise
            park_s = time.monotonic() - begin
            time.sleep(1)
            figures = self.waiting_figures(
                c, prefix, data, int(c.info("memory")["used_memory"]) - before
            )
        return p, figures | {"park_rate": data.messages / park_s}

    def waiting(self, c, prefix, data):
        """Returns the number of messages in all waiting lists."""
        text = "local n = 0; for i = 1, #ARGV do n = n + redis.call('LLEN', KEYS[1] .. ARGV[i]) end; return n"
        return sum(
            int(
                c(
                    "EVAL",
                    text,
                    "1",
                    prefix + "wait:",
                    *(f"{data.prefix}{k}" for k in range(i, min(i + 1000, data.keys))),
                )
            )
            for i in range(0, data.keys, 1000)
        )

    def in_chunks(self, c, command, name, data):
        for i in range(0, data.keys, 1000):
            c(command, name, *(f"{data.prefix}{k}" for k in range(i, min(i + 1000, data.keys))))

    def waiting_figures(self, c, prefix, data, used):
        """Returns figures for one waiting message, in bytes: "memory" is the memory that Redis
        uses, and "envelope" is the length of the envelope. `used` is the number of bytes by which
        Redis' memory has grown. The figures whose names end with "beyond" exclude the payload.
        "of_envelope" and "of_whole" are the ratios of memory to envelope, without and with the
        payload."""
        sizes = []
        for k in range(0, data.keys, max(1, data.keys // 200)):
            element = c("LINDEX", prefix + f"wait:{data.prefix}{k}", 0)
            if element:
                sizes.append(len(element))
        envelope = sum(sizes) / max(1, len(sizes))
        return {
            "memory": used / data.messages,
            "beyond": used / data.messages - SIZE,
            "envelope": envelope,
            "envelope_beyond": envelope - SIZE,
            "of_envelope": (used / data.messages - SIZE) / max(1, envelope - SIZE),
            "of_whole": used / data.messages / max(1, envelope),
        }

    def run_parked(self, run, contender, _):
        """Parks all messages in paused lanes, then resumes all lanes at once, by the same hints as
        `queue resume`."""
        data, prefix = run.workload.data, run.prefix("")
        parker, memory = self.park(run, contender, data, paused=True)
        try:
            with Client(self.rig.redis.path) as c:
                cpu, begin = c.cpu_s(), time.monotonic()
                c("CONFIG", "RESETSTAT")
                c("DEL", prefix + "paused")
                self.in_chunks(c, "LPUSH", prefix + "ready", data)
                while progress(run.journal)[0] < data.messages:
                    if time.monotonic() - begin > run.workload.limit_s or parker.poll() is not None:
                        raise Failure(
                            f"draining: {progress(run.journal)[0]:,} of {data.messages:,} messages were handled"
                        )
                    time.sleep(0.05)
                redis_s, calls = c.cpu_s() - cpu, c.calls()
        finally:
            self.stop(parker)
        handled, _, last = progress(run.journal)
        n, elapsed_s = data.messages, last / 1e6 - begin
        return memory | {
            "n": n,
            "elapsed_s": elapsed_s,
            "rate": n / elapsed_s,
            "redis_us": redis_s / n * 1e6,
            "inside": sum(calls.values()) / n,
            "redis_busy": redis_s / elapsed_s,
            "duplicates": handled - n,
            "calls": calls,
        }

    def run_waiting(self, run, contender, _):
        """Runs workload W1 while messages of other keys wait behind locks that are never
        released."""
        extra = {}
        if run.workload.waiting:
            data = Data(run.workload.waiting, max(1, run.workload.waiting // 10), prefix="p-")
            data.fill(self.rig.kafka)
            parker, extra = self.park(run, contender, data, paused=False)
            self.stop(parker)
        return extra | self.run_plain(run, contender, None)

    def run_latency(self, run, contender, w1_rate):
        """Offers messages at a fixed rate to a contender that is already running. Measures two
        latencies of each message: the time from its due time until its handler starts, and until
        its handler ends."""
        w, kafka = run.workload, self.rig.kafka
        rate = int(w.rate if w.rate > 0 else -w.rate * (w1_rate or 0))
        if rate <= 0:
            raise Failure("our rate on W1 is not known yet")
        n = min(run.messages, rate * 10)
        # At a high rate, the messages of the first 3 s only warm up the broker, whose JIT compiler
        # needs a core at first. Their latencies are not measured.
        heavy = rate > 2000
        ahead, linger_ms = (3 * rate, LINGER_MS) if heavy else (0, 0)
        run.topic, run.messages = f"{w.name}-{run.name}", n + ahead + WARM
        kafka.create(run.topic, PARTITIONS)
        words = ["--keys", w.data.keys, "--partitioner", w.data.partitioner, "--size", SIZE]
        produced = os.path.join(run.folder, "produced")
        steady = {"calls": collections.Counter(), "redis_s": 0}

        def add(c, sign):
            for name, count in c.calls().items():
                steady["calls"][name] += sign * count
            steady["redis_s"] += sign * c.cpu_s()

        def handled(p, count):
            end = time.monotonic() + w.limit_s
            while kafka.committed(run.name, run.topic) < count:
                if time.monotonic() > end or p.poll() is not None:
                    return
                time.sleep(0.2)

        def offer(p):
            kafka.tool("generate", run.topic, "--messages", WARM, *words)
            time.sleep(1)
            begin = time.monotonic()
            while kafka.committed(run.name, run.topic) < WARM:
                if time.monotonic() - begin > 60:
                    raise Failure(
                        f"{contender.label}: the first messages are not committed after 60 s"
                    )
                time.sleep(0.2)
            at_rate = ["--rate", rate, "--linger-ms", linger_ms, *words]
            if ahead:
                kafka.tool("generate", run.topic, "--messages", ahead, "--seed", 3, *at_rate)
            measured = ["--messages", n, "--seed", 2, "--produced", produced, *at_rate]
            with Client(self.rig.redis.path) as c:
                add(c, -1)
                kafka.tool("generate", run.topic, *measured)
                add(c, 1)
            if contender.ours:
                handled(p, run.messages)
                p.send_signal(signal.SIGTERM)

        command = contender.command(run, drain=False) if contender.ours else contender.command(run)
        o = self.observe(run, contender, command, offer)
        j = self.judged(run, "--produced", produced)
        kafka.tool("delete", run.topic)
        if j["missing"]:
            raise Failure(
                f"{contender.label}: {j['missing']:,} of {n:,} messages were never handled"
            )
        spread = j["latency_us"]["start"]
        r = self.figures(contender, o, run.messages, (j["last_us"] - j["first_us"]) / 1e6)
        # Redis, only while the load is on: starting and joining would hide what a message costs
        calls = steady["calls"]
        scripts = calls["evalsha"] + calls["eval"]
        called = sum(calls.values()) - scripts - sum(calls[k] for k in SENT if k[:4] != "eval")
        if contender.ours:
            called -= 3 * calls["info"]
        else:
            called = calls["get"] + calls["del"]
        r |= {"redis_us": steady["redis_s"] / n * 1e6, "inside": called / n, "calls": calls}
        r["scripts"] = scripts / n
        times = [int(line.split()[2]) for line in open(produced)]
        took_s = max((j["last_us"] - min(times)) / 1e6, 1e-6)
        return r | {
            "offered": rate,
            "rate": n / took_s,
            "judge": j,
            "p50_ms": spread["p50"] / 1000,
            "p99_ms": spread["p99"] / 1000,
            "max_ms": spread["max"] / 1000,
            "overlaps": j["overlaps"],
            "misordered": j["misordered"],
        }
