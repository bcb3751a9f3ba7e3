# SPDX-License-Identifier: Apache-2.0
"""Runs a Redis master and a replica behind three Sentinels, on the loopback. If the test asks for
TLS, every connection uses TLS, including the connections between the servers."""

import os
import subprocess

from .ports import free_port
from .process import wait_until
from .redis import PASSWORD, REDIS_SERVER, Redis, RedisError

NAME = "live"
# The user and password with which clients log in to the Sentinels. Sentinels have a list of users
# that is separate from that of Redis.
USER, USER_PASSWORD = ("watcher", "sentinel-secret")
# The rights of the user USER at the Sentinels, as doc/how-to/deploy.md recommends them.
USER_RIGHTS = "-@all +client|setname +sentinel|get-master-addr-by-name +sentinel|master"
CERTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../support/certs.sh")
LIMIT_S = 60


def listening(port, certs):
    """Returns the settings with which a server listens on a port. If there are certificates, the
    server uses TLS."""
    if not certs:
        return [("port", str(port))]
    return [
        ("port", "0"),
        ("tls-port", str(port)),
        ("tls-replication", "yes"),
        ("tls-auth-clients", "no"),
        ("tls-ca-cert-file", certs + "/ca.pem"),
        ("tls-cert-file", certs + "/server.pem"),
        ("tls-key-file", certs + "/server.key"),
    ]


class Sentinel(Redis):
    def __init__(self, directory, master_port, certs, down_ms):
        super().__init__(directory)
        self.port = free_port()
        self.file = os.path.join(directory, "sentinel.conf")
        lines = ["%s %s" % pair for pair in listening(self.port, certs)]
        lines += [
            "bind 127.0.0.1",
            "unixsocket " + self.path,
            "dir " + directory,
            "sentinel monitor %s 127.0.0.1 %d 2" % (NAME, master_port),
            "sentinel down-after-milliseconds %s %d" % (NAME, down_ms),
            "sentinel failover-timeout %s 5000" % NAME,
            "user %s on >%s %s" % (USER, USER_PASSWORD, USER_RIGHTS),
        ]
        with open(self.file, "w") as f:
            f.write("\n".join(lines) + "\n")

    def start(self):
        with open(os.path.join(self.dir, "redis.log"), "ab") as log:
            self.server = subprocess.Popen(
                [REDIS_SERVER, self.file, "--sentinel"],
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
            )
        wait_until(self.answers, 20, "answer of a Sentinel")

    def master_port(self):
        return int(self.call("SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME)[1])

    def ready(self):
        """Returns True if a failover is possible now: the Sentinels have a quorum, and the replica
        is healthy."""
        try:
            self.call("SENTINEL", "CKQUORUM", NAME)
            replicas = [dict(zip(r[::2], r[1::2])) for r in self.call("SENTINEL", "REPLICAS", NAME)]
        except RedisError:
            return False
        return any(r[b"flags"] == b"slave" and r[b"master-link-status"] == b"ok" for r in replicas)


class Guarded:
    """A master and a replica that a scenario uses instead of a single Redis. call() sends a command
    to the present master."""

    def __init__(self, directory, tls=False, down_ms=400):
        self.data = {}
        self.dir = directory
        self.certs = os.path.join(directory, "certs") if tls else None
        if tls:
            os.makedirs(self.certs)
            subprocess.run([CERTS, self.certs], check=True, timeout=60)
        port = self.add(None)
        self.add(port)
        self.sentinels = [
            Sentinel(os.path.join(directory, "sentinel-%d" % i), port, self.certs, down_ms)
            for i in range(3)
        ]
        self.users = {}

    def add(self, master_port):
        port = free_port()
        self.data[port] = Redis(
            os.path.join(self.dir, "data-%d" % port), *self.options(port, master_port)
        )
        return port

    def options(self, port, master_port):
        given = [
            word for name, value in listening(port, self.certs) for word in ("--" + name, value)
        ]
        follow = ["--replicaof", "127.0.0.1 %d" % master_port] if master_port else []
        return given + ["--bind", "127.0.0.1", "--repl-diskless-sync-delay", "0"] + follow

    def start(self):
        for server in list(self.data.values()) + self.sentinels:
            server.start()
        self.wait_ready()

    def wait_ready(self):
        wait_until(
            lambda: all(s.ready() for s in self.sentinels),
            LIMIT_S,
            "Sentinels that could fail over",
        )

    def url_of(self, user):
        return None

    def tag(self, name, shard, shards):
        return "%s.%d" % (name, shard)

    def grant(self, line):
        for server in self.data.values():
            server.grant(line)
            self.users = server.users

    def refusals(self):
        return self.master().refusals()

    @property
    def server(self):
        return self.master().server

    def settings(self, user):
        sentinel = {"addresses": ["127.0.0.1:%d" % s.port for s in self.sentinels], "master": NAME}
        out = {"url": None, "username": user, "password": PASSWORD, "sentinel": sentinel}
        if self.certs:
            tls = {"ca_file": self.certs + "/ca.pem"}
            sentinel.update(username=USER, password=USER_PASSWORD, tls=tls)
            out["tls"] = tls
        return out

    def master(self):
        return self.data[self.sentinels[0].master_port()]

    def kill_master(self):
        """Kills the master, and waits until the Sentinels agree on another master."""
        old = self.sentinels[0].master_port()
        self.data[old].kill()
        self.wait_other(old)
        return old

    def wait_other(self, old):
        wait_until(
            lambda: old not in {s.master_port() for s in self.sentinels}, LIMIT_S, "another master"
        )

    def restore(self, old):
        """Starts the killed server again, without data, as a replica."""
        server = self.data[old]
        server.options = self.options(old, self.sentinels[0].master_port())
        server.start()
        self.wait_ready()

    def switch(self):
        """Makes the Sentinels start a failover while both servers are up."""
        old = self.sentinels[0].master_port()
        self.sentinels[0].call("SENTINEL", "FAILOVER", NAME)
        self.wait_other(old)

    def call(self, *args):
        return self.master().call(*args)

    def info(self, section):
        return self.master().info(section)

    def keys(self):
        return self.master().keys()

    def stop(self):
        for server in self.sentinels + list(self.data.values()):
            server.stop()
