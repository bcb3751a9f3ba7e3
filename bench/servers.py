# SPDX-License-Identifier: Apache-2.0
"""Private servers of a benchmark: one real Kafka (tests/live/kafka/kafka.sh) and one Redis on a
unix socket. This module ends only processes that it started, by their process ids."""

import os
import re
import socket
import subprocess
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
KAFKA = os.path.join(ROOT, "tests/live/kafka/kafka.sh")
REDIS_SERVER = os.environ.get("LW_REDIS_SERVER") or "redis-server"


class Failure(Exception):
    """Raised if a measurement gives no figure. The exception's text is the reason."""


class Client:
    """A connection to Redis, with only the parts of the protocol that the benchmark needs."""

    def __init__(self, path):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(path)
        self.file = self.sock.makefile("rb")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.file.close()
        self.sock.close()

    def __call__(self, *args):
        self.send(*args)
        return self.reply()

    def send(self, *args):
        words = [a if isinstance(a, bytes) else str(a).encode() for a in args]
        self.sock.sendall(
            b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words)
        )

    def reply(self):
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise Failure("Redis closed the connection")
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return rest
        if kind == b"-":
            raise Failure("Redis: " + rest.decode(errors="replace"))
        if kind == b":":
            return int(rest)
        n = int(rest)
        if n < 0:
            return None
        if kind == b"$":
            return self.file.read(n + 2)[:-2]
        return [self.reply() for _ in range(n)]

    def info(self, section):
        return dict(
            line.split(":", 1)
            for line in self("INFO", section).decode().split("\r\n")
            if ":" in line
        )

    def calls(self):
        return {
            name[len("cmdstat_") :]: int(re.match(r"calls=(\d+)", text).group(1))
            for name, text in self.info("commandstats").items()
        }

    def reads(self):
        return int(self.info("stats").get("total_reads_processed", 0))

    def cpu_s(self):
        i = self.info("cpu")
        return float(i["used_cpu_user"]) + float(i["used_cpu_sys"])


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Redis:
    """A private redis-server on a unix socket. It also listens on a free loopback port for Java
    clients, which cannot use a unix socket. If `tls` is true, it listens for TLS on one more port.
    If `cluster` is true, the server is a cluster node that does not know any other node yet."""

    def __init__(self, folder, tls=False, cluster=False):
        os.makedirs(folder)
        self.path = os.path.join(folder, "redis.sock")
        self.port, self.tls_port, self.ca_file = free_port(), None, os.path.join(folder, "ca.pem")
        more = self.with_tls(folder) if tls else []
        if cluster:
            self.bus_port = free_port()
            more += ["--cluster-enabled", "yes", "--cluster-port", str(self.bus_port)]
        with open(os.path.join(folder, "redis.log"), "wb") as log:
            self.process = subprocess.Popen(
                [
                    REDIS_SERVER,
                    "--port",
                    str(self.port),
                    "--bind",
                    "127.0.0.1",
                    "--unixsocket",
                    self.path,
                    "--save",
                    "",
                    "--appendonly",
                    "no",
                    "--dir",
                    folder,
                ]
                + more,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        for _ in range(200):
            try:
                if self("PING") == b"PONG":
                    return
            except OSError:
                pass
            if self.process.poll() is not None:
                break
            time.sleep(0.05)
        self.end()
        raise Failure("redis-server does not answer; see " + os.path.join(folder, "redis.log"))

    def with_tls(self, folder):
        subprocess.run(
            [os.path.join(ROOT, "tests/support/certs.sh"), folder], check=True, timeout=60
        )
        self.tls_port = free_port()
        return [
            "--tls-port",
            str(self.tls_port),
            "--tls-auth-clients",
            "no",
            "--tls-ca-cert-file",
            self.ca_file,
            "--tls-cert-file",
            os.path.join(folder, "server.pem"),
            "--tls-key-file",
            os.path.join(folder, "server.key"),
        ]

    def __call__(self, *args):
        with Client(self.path) as c:
            return c(*args)

    def end(self):
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def make_cluster(folder):
    """Starts a cluster of three masters, and returns them. The first master has slot 96, the slot
    of shard 0. If there is only one shard, this master does all the work."""
    nodes = [Redis(os.path.join(folder, f"node-{i}"), cluster=True) for i in range(3)]
    for i, n in enumerate(nodes):
        n("CLUSTER", "ADDSLOTSRANGE", i * 16384 // 3, (i + 1) * 16384 // 3 - 1)
        n("CLUSTER", "MEET", "127.0.0.1", nodes[0].port, nodes[0].bus_port)
    for _ in range(600):
        if all(
            b"cluster_state:ok" in n("CLUSTER", "INFO")
            and b"cluster_known_nodes:3" in n("CLUSTER", "INFO")
            for n in nodes
        ):
            return nodes
        time.sleep(0.05)
    for n in nodes:
        n.end()
    raise Failure("the nodes of the cluster do not find each other; see the logs in " + folder)


class Kafka:
    def __init__(self, folder, tool):
        self.folder, self.tool_path, self.topics = folder, tool, set()
        p = subprocess.run(
            [KAFKA, "start", folder, "0"],
            check=True,
            stdout=subprocess.PIPE,
            text=True,
            timeout=300,
        )
        self.brokers = p.stdout.strip()

    def command(self, *args):
        return [self.tool_path, self.brokers, *map(str, args)]

    def tool(self, *args):
        p = subprocess.run(self.command(*args), capture_output=True, text=True, timeout=1800)
        if p.returncode:
            raise Failure(
                "kafkatool "
                + " ".join(map(str, args))
                + f": exit status {p.returncode}: {p.stderr[-500:]}"
            )
        return p.stdout

    def create(self, topic, partitions):
        if topic in self.topics:
            return False
        self.tool("create", topic, partitions)
        self.topics.add(topic)
        return True

    def committed(self, group, topic):
        """Returns the number of records that the group has committed, over all partitions."""
        lines = self.tool("committed", group, topic).splitlines()
        return sum(max(0, int(line.split()[2])) for line in lines)

    def end(self):
        subprocess.run([KAFKA, "stop", self.folder], timeout=90)
