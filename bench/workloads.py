# SPDX-License-Identifier: Apache-2.0
"""The workloads: the contents of the topics, what a handler does with each message, and which
contenders take part. Each workload has a size for the quick run and a size for the full run."""

from dataclasses import dataclass, field, replace

PARTITIONS = 8
SIZE = 200  # bytes per message; each message is JSON
QUICK_LIMIT_S = 120  # maximum time of one run in the quick benchmark
# Number of messages that warm up a contender before the measurement. Latchwork must have joined its
# epoch when the measurement begins.
WARM = 200


@dataclass(frozen=True)
class Data:
    """Describes the contents of a topic. Equal descriptions always produce equal messages."""

    messages: int
    keys: int
    zipf: float = 0
    hot: float = 0
    repeat: float = 0
    partitioner: str = "key"
    prefix: str = "k-"
    seed: int = 1

    @property
    def topic(self):
        parts = [f"m{self.messages}", f"k{self.keys}"]
        for name in ("zipf", "hot", "repeat"):
            if getattr(self, name):
                parts.append(f"{name}{getattr(self, name)}")
        if self.partitioner != "key":
            parts.append(self.partitioner)
        return "-".join(parts) + ("" if self.prefix == "k-" else "-" + self.prefix.strip("-"))

    def fill(self, kafka):
        if kafka.create(self.topic, PARTITIONS):
            kafka.tool(
                "generate",
                self.topic,
                "--messages",
                self.messages,
                "--keys",
                self.keys,
                "--zipf",
                self.zipf,
                "--hot",
                self.hot,
                "--repeat",
                self.repeat,
                "--partitioner",
                self.partitioner,
                "--prefix",
                self.prefix,
                "--seed",
                self.seed,
                "--size",
                SIZE,
            )


@dataclass(frozen=True)
class Workload:
    name: str
    title: str
    # how bench/measure.py measures the workload: plain, insert, parked, waiting or latency
    kind: str
    data: Data
    contenders: tuple  # names of the contenders, as in bench/contenders.py
    work_us: int = 0
    # true if the handler writes one line per message, which bench/judge reads
    journal: bool = False
    waiting: int = 0  # for kind waiting: number of messages that wait behind held locks beforehand
    shards: int = 1  # number of shards; each has a Redis process of its own
    # For kind latency, the number of messages offered per second. A negative number is a share of
    # our own median rate in W1; for example, -0.5 means half of the rate.
    rate: float = 0
    limit_s: int = 300
    most_rounds: int = 1000
    postgres: bool = False  # for kind insert: true for PostgreSQL, false for SQLite
    tls: bool = False  # true if Redis also listens for TLS
    rare: bool = False  # true if a quick run skips the workload unless the workload is named
    shape: dict = field(
        default_factory=dict, compare=False
    )  # number of threads of each contender: {"ours": (workers, threads), "naive": threads …}

    @property
    def spec(self):
        """All settings that a result depends on, except for the programs."""
        return repr(
            (
                self.kind,
                self.data,
                self.work_us,
                self.journal,
                self.waiting,
                self.shards,
                self.rate,
                sorted(self.shape.items()),
            )
        )


def load(rate, most_rounds):
    return Workload(
        f"load-{rate}",
        f"{rate:,} msg/s, no-op",
        "latency",
        Data(rate * 10, 100_000),
        ("ours", "naive"),
        journal=True,
        rate=rate,
        shape={"naive": 16},
        most_rounds=most_rounds,
    )


def plan(full):
    """Returns the workloads in the order in which a round runs them. If a quick run ends early,
    only the last workloads lack results."""
    n = 500_000 if full else 300_000
    w1 = Data(n, 100_000)
    java = ("parallel", "parallel-lock") if full else ()
    limits = ("limit-scripts", "limit-setdel", "limit-read")
    list_ = [
        Workload(
            "W1", "no-op, 100,000 keys", "plain", w1, ("ours", "naive") + limits + java, limit_s=900
        ),
        Workload(
            "W2x",
            "Zipf 1.1, 1 ms, spread",
            "plain",
            Data(100_000 if full else 30_000, 10_000, zipf=1.1, partitioner="random"),
            ("ours", "naive") + java,
            work_us=1000,
            journal=True,
            shape={"ours": (4, 8), "naive": 16},
            limit_s=900,
        ),
        Workload(
            "W3x",
            "half on one key, 1 ms, spread",
            "plain",
            Data(40_000 if full else 10_000, 10_000, hot=0.5, partitioner="random"),
            ("ours", "naive") + java,
            work_us=1000,
            journal=True,
            shape={"ours": (4, 8), "naive": 16},
            limit_s=900,
        ),
        Workload(
            "W3x-batch",
            "half on one key, 1 ms a call of up to 64",
            "plain",
            Data(40_000, 10_000, hot=0.5, partitioner="random"),
            ("ours-batch",),
            work_us=1000,
            journal=True,
            shape={"ours-batch": (8, 4)},
            limit_s=900,
        ),
        Workload(
            "W3x-batch-long",
            "the same, 200,000 messages",
            "plain",
            Data(200_000, 10_000, hot=0.5, partitioner="random"),
            ("ours-batch",),
            work_us=1000,
            journal=True,
            shape={"ours-batch": (8, 4)},
            limit_s=900,
            rare=True,
        ),
        Workload(
            "latency-1000",
            "1,000 msg/s of 1 ms",
            "latency",
            Data(30_000 if full else 8_000, 10_000),
            ("ours", "naive"),
            work_us=1000,
            journal=True,
            rate=1000,
            shape={"ours": (2, 8), "naive": 16},
        ),
        Workload(
            "latency-half",
            "half of our own W1 rate, no-op",
            "latency",
            Data(n, 100_000),
            ("ours",),
            journal=True,
            rate=-0.5,
        ),
        Workload(
            "W4",
            "deduplicated insert, SQLite",
            "insert",
            Data(400_000 if full else 200_000, 10_000, repeat=0.1),
            ("ours-insert", "writer", "limit-sqlite"),
            shape={"ours-insert": (1, 1)},
        ),
        Workload(
            "W4-pg",
            "deduplicated insert, PostgreSQL",
            "insert",
            Data(400_000 if full else 200_000, 10_000, repeat=0.1),
            ("ours-insert", "writer"),
            shape={"ours-insert": (1, 2)},
            postgres=True,
        ),
        Workload(
            "W5",
            "parked before",
            "parked",
            Data(1_000_000, 100_000) if full else Data(100_000, 10_000),
            ("ours",),
            limit_s=900,
        ),
        Workload(
            "W1-tls",
            "no-op, Redis over TCP and over TLS",
            "plain",
            w1,
            ("ours-tcp", "ours-tls"),
            limit_s=900,
            tls=True,
            rare=True,
        ),
        Workload(
            "W1-cluster",
            "no-op, Redis by itself and one busy node of a Redis Cluster",
            "plain",
            w1,
            ("ours-tcp", "ours-cluster"),
            limit_s=900,
            rare=True,
        ),
        Workload(
            "W1-exec",
            "no-op by two processes a worker",
            "plain",
            Data(50_000, 100_000),
            ("ours-exec",),
        ),
        Workload(
            "W1-exec-64",
            "no-op by two processes a worker, 64 in flight",
            "plain",
            w1,
            ("ours-exec-64",),
        ),
        Workload(
            "W1-http",
            "a web server that only answers, 64 in flight a worker",
            "plain",
            w1,
            ("ours-http", "http-alone", "h2load", "wrk"),
        ),
        Workload(
            "W1-http-node",
            "a web server in Node that only answers, 64 in flight a worker",
            "plain",
            Data(100_000, 100_000),
            ("ours-http-node", "h2load-node"),
        ),
        Workload(
            "W1-python",
            "no-op by an SDK, two processes a worker",
            "plain",
            w1,
            ("ours-python", "ours-node", "ours-go", "python-loop"),
        ),
        Workload(
            "python-10",
            "10 ms in Python, 4 processes x 100",
            "plain",
            Data(200_000, 100_000),
            ("ours-python", "bare-coroutines"),
            work_us=10_000,
        ),
    ]
    for ms, n in ((1, 100_000), (10, 50_000), (100, 10_000)):
        list_.append(
            Workload(
                f"work-{ms}",
                f"{ms} ms, 400 at a time",
                "plain",
                Data(n, 100_000),
                ("ours", "ours-python", "ours-node", "ours-go", "ours-http-200", "parallel"),
                work_us=ms * 1000,
                shape={"ours": (2, 200), "parallel": 400},
            )
        )
    for keys in (1_000, 100_000) + ((10_000_000,) if full else ()):
        list_.append(
            Workload(
                f"keys-{keys}",
                f"no-op, {keys:,} keys",
                "plain",
                Data(1_000_000 if full else 200_000, keys),
                ("ours",),
            )
        )
    for waiting in (0, 100_000) + ((1_000_000,) if full else ()):
        list_.append(
            Workload(
                f"waiting-{waiting}",
                f"no-op, {waiting:,} wait beforehand",
                "waiting",
                Data(1_000_000 if full else 200_000, 100_000),
                ("ours",),
                waiting=waiting,
            )
        )
    if not full:
        list_ += [load(rate, 1) for rate in (5_000, 20_000)]
        return [replace(w, limit_s=min(w.limit_s, QUICK_LIMIT_S)) for w in list_]
    for shards in (1, 2, 4):
        list_.append(
            Workload(
                f"shards-{shards}",
                f"no-op, {shards} Redis processes",
                "plain",
                w1,
                ("ours",),
                shards=shards,
            )
        )
    return list_ + [
        load(rate, 1000) for rate in (1_000, 5_000, 10_000, 15_000, 20_000, 40_000, 60_000, 80_000)
    ]
