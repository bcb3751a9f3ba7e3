# SPDX-License-Identifier: Apache-2.0
"""The contenders of the benchmark, and how each is started. Every contender except Latchwork is a
program that ends without a signal when all messages are handled, and prints a line of JSON with
messages, first_us and last_us. The class Program has the usual options of such a program:
--brokers --topic --group --redis (Java: --redis-port) --messages --work-us --threads
[--journal DIR]. Some classes below use fewer or other options."""

import hashlib
import json
import os
import shutil
import subprocess

TTL_MS = 5000
AT_A_TIME = 100  # number of coroutines per process
HTTP_AT_A_TIME = 128  # number of HTTP requests in flight: 64 in each of two workers
HERE = os.path.dirname(os.path.abspath(__file__))
PYTHON = os.path.join(HERE, "python")
SDKS = os.path.join(HERE, "../sdk")


def has_kafka(interpreter):
    return (
        subprocess.run(
            [interpreter, "-c", "import confluent_kafka"], capture_output=True
        ).returncode
        == 0
    )


# The python3 with which all contenders in Python run. This is the first python3 in PATH if it has
# the package confluent_kafka, otherwise /usr/bin/python3 if that has it, otherwise None.
INTERPRETER = next(
    (p for p in ("python3", "/usr/bin/python3") if shutil.which(p) and has_kafka(p)), None
)


def digest(*paths):
    """Returns one hash of the given files and of all files in the given folders. Two results with
    the same hash were measured with the same programs."""
    h = hashlib.sha256()
    for path in paths:
        for file in (
            sorted(os.path.join(d, f) for d, _, files in os.walk(path) for f in files)
            if os.path.isdir(path)
            else [path]
        ):
            with open(file, "rb") as f:
                h.update(f.read())
    return h.hexdigest()[:16]


def can_start(command):
    """Returns true if the last word of a command is an existing file and the first word is a
    program in PATH."""
    return os.path.exists(command[-1]) and shutil.which(command[0]) is not None


class Run:
    """The names and folders that one run of one contender uses."""

    def __init__(self, rig, workload, contender, number):
        self.rig, self.workload = rig, workload
        self.name = f"b{number}"
        self.folder = os.path.join(rig.folder, self.name)
        self.journal = os.path.join(self.folder, "journal")
        os.makedirs(self.journal)
        self.topic, self.messages = workload.data.topic, workload.data.messages
        self.redises = (
            rig.cluster_redises() if contender.link == "cluster" else rig.redises(workload.shards)
        )

    def store(self, scheme=""):
        """Returns the address of the database for a workload of kind insert: an empty PostgreSQL
        database, or a file for SQLite."""
        return (
            self.rig.postgres.url
            if self.workload.postgres
            else scheme + os.path.join(self.folder, "store.db")
        )

    def prefix(self, name):
        """Returns the full name of a Redis key in the only shard of this run."""
        return "lw:{%s.0}:%s" % (self.name, name)


class Program:
    """A contender that is a program other than Latchwork."""

    ours, link = False, None

    def __init__(self, name, label, path, threads, *extra, redis="--redis"):
        self.name, self.label, self.path, self.threads, self.extra, self.redis = (
            name,
            label,
            path,
            threads,
            extra,
            redis,
        )

    def built(self):
        return os.path.exists(self.path)

    def digest(self):
        return digest(self.path)

    def start(self):
        return [self.path]

    def command(self, run):
        r, w = run.rig, run.workload
        where = {
            "--redis": ["--redis", r.redis.path],
            "--redis-port": ["--redis-port", str(r.redis.port)],
            None: [],
        }[self.redis]
        words = self.start() + [
            "--brokers",
            r.kafka.brokers,
            "--topic",
            run.topic,
            "--group",
            run.name,
            *where,
            "--messages",
            str(run.messages),
            *self.extra,
        ]
        if self.threads:
            words += [
                "--threads",
                str(w.shape.get(self.name, self.threads)),
                "--work-us",
                str(w.work_us),
            ]
            if w.journal:
                words += ["--journal", run.journal]
        return words


class Loop(Program):
    """A plain consumer loop in Python, which needs the package confluent_kafka."""

    def built(self):
        return INTERPRETER is not None

    def command(self, run):
        return [
            INTERPRETER,
            self.path,
            "--brokers",
            run.rig.kafka.brokers,
            "--topic",
            run.topic,
            "--group",
            run.name,
            "--messages",
            str(run.messages),
        ]


class Bare(Program):
    """Coroutines in Python that only sleep, without Kafka and Redis."""

    def command(self, run):
        return [
            INTERPRETER or "python3",
            self.path,
            "--messages",
            str(run.messages),
            "--work-us",
            str(run.workload.work_us),
            "--at-a-time",
            str(AT_A_TIME),
        ]


class Driver(Program):
    """A client of a web server, bench/web.c or bench/node/web.js, without Kafka and Redis. The
    client is either a load driver, or Latchwork's http handler alone. `web` is the command of the
    server, `words` is that of the client, and `needs` names a program that must be installed."""

    def __init__(self, name, label, web, words, needs=None):
        super().__init__(name, label, web[-1], 0)
        self.web, self.words, self.needs = web, words, needs

    def built(self):
        return (
            can_start(self.web)
            and os.path.exists(self.words[0])
            and (not self.needs or shutil.which(self.needs) is not None)
        )

    def digest(self):
        return digest(self.path, self.words[0])

    def command(self, run):
        return [
            *self.web,
            *self.words,
            "--messages",
            str(run.messages),
            "--in-flight",
            str(HTTP_AT_A_TIME),
        ]


class Java(Program):
    """A Java contender of bench/parallel. The script run.sh builds the contender, and then becomes
    the java process."""

    def built(self):
        return os.path.exists(self.path) and os.path.exists(os.path.join(self.out, ".complete"))

    def digest(self):
        return digest(os.path.dirname(self.path))

    def start(self):
        return ["env", "LW_PARALLEL_OUT=" + self.out, self.path]


class Limit(Program):
    """A bare client of Redis, Kafka or SQLite, without handler or threads, which shows how fast
    these can be at most. Some of these clients use no topic."""

    def __init__(self, name, label, path, words):
        super().__init__(name, label, path, 0)
        self.words = words

    def command(self, run):
        return self.start() + self.words(run)


class Writer(Program):
    def command(self, run):
        r = run.rig
        return [
            self.path,
            "--brokers",
            r.kafka.brokers,
            "--topic",
            run.topic,
            "--group",
            run.name,
            "--messages",
            str(run.messages),
            "--store",
            run.store(),
        ]


class Latchwork:
    """Latchwork as a black box: its program, its configuration and its handlers."""

    ours = True

    def __init__(
        self, name, label, build, handler="plugin", in_flight=1, link="unix", lock=None, web=None
    ):
        self.name, self.label, self.handler, self.in_flight, self.link = (
            name,
            label,
            handler,
            in_flight,
            link,
        )
        self.path, self.plugin = (
            os.path.join(build, "latchwork"),
            os.path.join(build, "bench/batch.so" if handler == "batch" else "bench/bench.so"),
        )
        self.lock = lock or {}
        self.command_of = {
            "python": [INTERPRETER or "python3", PYTHON + "/handler.py"],
            "node": ["node", os.path.join(HERE, "node/handler.js")],
            "go": [os.path.abspath(os.path.join(build, "bench/go"))],
        }.get(handler)
        self.answer = os.path.join(
            build, "bench/answer"
        )  # an exec handler that answers "done" to each request
        # a web server that answers 204 to each request and runs beside Latchwork
        self.web = web or [os.path.join(build, "bench/web")]

    def built(self):
        return (
            os.path.exists(self.path)
            and (self.handler != "http" or can_start(self.web))
            and (not self.command_of or can_start(self.command_of))
        )

    def digest(self):
        return digest(
            self.path,
            self.plugin,
            self.answer,
            self.web[-1],
            *([self.command_of[-1], os.path.join(SDKS, self.handler)] if self.command_of else []),
        )

    def handler_config(self, run, threads, journal):
        w = run.workload
        if self.handler == "exec":
            return {
                "type": "exec",
                "command": [os.path.abspath(self.answer)],
                "processes": threads,
                "in_flight": self.in_flight,
            }
        if self.handler == "http":
            return {"type": "http", "url": "${LW_WEB_URL}", "in_flight": self.in_flight}
        if self.command_of:
            return {
                "type": "exec",
                "command": [*self.command_of, str(w.work_us)],
                "processes": threads,
                "in_flight": self.in_flight,
            }
        if self.handler == "insert":
            return {
                "type": "insert",
                "store": run.store("sqlite:"),
                "table": "events",
                "create": True,
                "columns": {"seq": "/seq", "id": "/id", "amount": "/amount"},
                "primary_key": ["seq"],
                "on_conflict": "ignore",
                "threads": threads,
            }
        config = {"work_us": w.work_us}
        if journal:
            config |= {"journal": run.journal, "lines": 1 if w.journal else 0}
        return {"type": "plugin", "path": self.plugin, "config": config, "threads": threads}

    def url(self, redis):
        return {
            "unix": "unix://" + redis.path,
            "tcp": f"redis://127.0.0.1:{redis.port}",
            "tls": f"rediss://127.0.0.1:{redis.tls_port}",
        }[self.link]

    def redis_config(self, run):
        if self.link == "cluster":
            return {"cluster": [f"127.0.0.1:{r.port}" for r in run.redises], "shards": 1}
        tls = {"tls": {"ca_file": run.redises[0].ca_file}} if self.link == "tls" else {}
        return {"url": [self.url(r) for r in run.redises]} | tls

    def config(self, run, topic, ttl_ms=TTL_MS, journal=True):
        workers, threads = run.workload.shape.get(self.name, (2, 2))
        path = os.path.join(run.folder, topic + ".json")
        with open(path, "w") as f:
            json.dump(
                {
                    "name": run.name,
                    "workers": workers,
                    "kafka": {
                        "topics": [topic],
                        "properties": {"bootstrap.servers": run.rig.kafka.brokers},
                    },
                    "redis": self.redis_config(run),
                    "key": {"from": "message-key"},
                    "lock": {"ttl_ms": ttl_ms} | self.lock,
                    "queue": {"max_waiting": 10_000_000},
                    "handler": self.handler_config(run, threads, journal),
                    "log": {"level": "error"},
                },
                f,
            )
        return path

    def command(self, run, drain=True):
        return (
            self.beside(run.workload.work_us)
            + [self.path, "run", "--json", "-c", self.config(run, run.topic)]
            + (["--drain"] if drain else [])
        )

    def beside(self, work_us=0):
        delay = ["--delay-us", str(work_us)] if work_us else []
        return [*self.web, *delay] if self.handler == "http" else []

    def warm_command(self, run):
        """Returns the command with which Latchwork joins the epoch before the measurement. The
        command has a short TTL, because a quarantine, if the fresh Redis needs one, lasts about as
        long as the TTL. A longer TTL in the measured run does not change the epoch."""
        return self.beside() + [
            self.path,
            "run",
            "-c",
            self.config(run, "warm", ttl_ms=500, journal=False),
            "--drain",
        ]


def contenders(build, root):
    limits = os.path.join(build, "bench/limits")
    parallel = os.path.join(root, "bench/parallel/run.sh")
    web, drive = [os.path.join(build, "bench/web")], os.path.join(PYTHON, "drive.py")
    node_web = ["node", os.path.join(HERE, "node/web.js")]
    Java.out = os.path.join(build, "bench/parallel")

    def script_words(run):
        return [
            "--redis",
            run.rig.redis.path,
            "--messages",
            str(run.messages),
            "--keys",
            str(run.workload.data.keys),
        ]

    def read_words(run):
        return [
            "--brokers",
            run.rig.kafka.brokers,
            "--topic",
            run.topic,
            "--group",
            run.name,
            "--messages",
            str(run.messages),
        ]

    def store_words(run):
        return ["--store", os.path.join(run.folder, "store.db"), "--messages", str(run.messages)]

    all_ = [
        Latchwork("ours", "Latchwork", build),
        Latchwork("ours-tcp", "Latchwork, Redis over TCP", build, link="tcp"),
        Latchwork("ours-tls", "Latchwork, Redis over TLS", build, link="tls"),
        Latchwork("ours-cluster", "Latchwork, Redis Cluster", build, link="cluster"),
        Latchwork("ours-batch", "Latchwork, batches of one key", build, "batch", lock={}),
        Latchwork("ours-exec", "Latchwork, exec", build, "exec"),
        Latchwork("ours-exec-64", "Latchwork, exec, 64 in flight", build, "exec", 64),
        Latchwork("ours-http", "Latchwork, http", build, "http", 64),
        Driver("http-alone", "the http handler by itself", web, [os.path.join(limits, "post")]),
        Driver("h2load", "h2load on the web server", web, [drive, "--tool", "h2load"], "h2load"),
        Driver("wrk", "wrk on the web server", web, [drive, "--tool", "wrk"], "wrk"),
        Latchwork("ours-http-200", "Latchwork, http, 200 in flight", build, "http", 200),
        Latchwork("ours-http-node", "Latchwork, http", build, "http", 64, web=node_web),
        Driver(
            "h2load-node",
            "h2load on the web server",
            node_web,
            [drive, "--tool", "h2load"],
            "h2load",
        ),
        Latchwork("ours-python", "Latchwork, exec in Python", build, "python", AT_A_TIME),
        Latchwork("ours-node", "Latchwork, exec in Node", build, "node", AT_A_TIME),
        Latchwork("ours-go", "Latchwork, exec in Go", build, "go", AT_A_TIME),
        Loop("python-loop", "plain loop in Python", PYTHON + "/loop.py", 0),
        Bare("bare-coroutines", "bare coroutines in Python", PYTHON + "/bare.py", 0),
        Latchwork("ours-insert", "Latchwork, insert", build, "insert"),
        Program(
            "naive", "naive C loop", os.path.join(build, "bench/naive"), 4, "--ttl-ms", str(TTL_MS)
        ),
        Writer("writer", "bare writer", os.path.join(build, "bench/writer"), 0),
        Java(
            "parallel",
            "Parallel Consumer, no lock",
            parallel,
            16,
            "--lock",
            "none",
            redis="--redis-port",
        ),
        Java(
            "parallel-lock",
            "Parallel Consumer + Redisson",
            parallel,
            16,
            "--lock",
            "redisson",
            redis="--redis-port",
        ),
        Limit(
            "limit-scripts", "bare batched scripts", os.path.join(limits, "scripts"), script_words
        ),
        Limit(
            "limit-setdel", "bare SET+DEL, pipelined", os.path.join(limits, "setdel"), script_words
        ),
        Limit("limit-read", "bare reading", os.path.join(limits, "read"), read_words),
        Limit("limit-sqlite", "bare transactions", os.path.join(limits, "sqlite"), store_words),
    ]
    return {c.name: c for c in all_}
