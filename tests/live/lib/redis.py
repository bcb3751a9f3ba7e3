# SPDX-License-Identifier: Apache-2.0
"""Runs a private redis-server on a unix socket, and contains a small Redis client for the tests."""

import os
import signal
import socket
import subprocess

from .process import Failure, end_popen, send, wait_until

REDIS_SERVER = os.environ.get("LW_REDIS_SERVER") or "redis-server"
PASSWORD = "secret"


class RedisError(Exception):
    pass


class Client:
    def __init__(self, path, timeout_s=10):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(timeout_s)
        self.sock.connect(path)
        self.file = self.sock.makefile("rb")

    def close(self):
        self.file.close()
        self.sock.close()

    def __call__(self, *args):
        words = [a if isinstance(a, bytes) else str(a).encode() for a in args]
        self.sock.sendall(
            b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words)
        )
        return self.reply()

    def reply(self):
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise OSError("redis closed the connection")
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return rest
        if kind == b"-":
            raise RedisError(rest.decode(errors="replace"))
        if kind == b":":
            return int(rest)
        n = int(rest)
        if n < 0:
            return None
        if kind == b"$":
            return self.file.read(n + 2)[:-2]
        return [self.reply() for _ in range(n)]


class Redis:
    """A redis-server that can be killed and started again. The socket keeps its path. Data survives
    only if `options` make the server save it."""

    def __init__(self, directory, *options):
        self.dir = directory
        self.path = os.path.join(directory, "redis.sock")
        self.options = options
        self.server = None
        self.users = {}  # maps the name of each user to the rules of its ACL
        os.makedirs(directory, exist_ok=True)

    @property
    def url(self):
        return "unix://" + self.path

    def url_of(self, user):
        return "unix://%s:%s@%s" % (user, PASSWORD, self.path)

    def tag(self, name, shard, shards):
        """Returns the text in braces that the names of all keys of a shard contain (the hash tag of
        Redis Cluster)."""
        return "%s.%d" % (name, shard)

    def grant(self, line):
        """Makes a Redis user from a line that `check --acl` printed. Each later start() makes the
        same user again."""
        user, rules = line.split()[2], line.split()[3:]
        self.users[user] = rules
        self.call("ACL", "SETUSER", user, "reset", ">" + PASSWORD, *rules)

    def refusals(self):
        """Returns the commands and keys that the server has refused to users since its start:
        [(user, reason, command or key)]."""
        entries = [dict(zip(e[::2], e[1::2])) for e in self.call("ACL", "LOG", "128")]
        return [
            tuple(e[name].decode(errors="replace") for name in (b"username", b"reason", b"object"))
            for e in entries
        ]

    def start(self):
        log = open(os.path.join(self.dir, "redis.log"), "ab")
        command = [
            REDIS_SERVER,
            "--port",
            "0",
            "--unixsocket",
            self.path,
            "--save",
            "",
            "--dir",
            self.dir,
            "--daemonize",
            "no",
        ]
        for user, rules in self.users.items():
            command += ["--user", user, ">" + PASSWORD] + rules
        self.server = subprocess.Popen(
            command + list(self.options), stdout=log, stderr=log, stdin=subprocess.DEVNULL
        )
        log.close()
        wait_until(self.answers, 20, "answer of redis-server")

    def answers(self):
        if self.server.poll() is not None:
            with open(os.path.join(self.dir, "redis.log"), encoding="utf-8", errors="replace") as f:
                said = "".join(f.readlines()[-3:])
            raise Failure("redis-server ended with status %d: %s" % (self.server.returncode, said))
        try:
            return self.call("PING") == b"PONG"
        except (OSError, RedisError):
            return False

    def call(self, *args):
        client = Client(self.path)
        try:
            return client(*args)
        finally:
            client.close()

    def signal(self, sig):
        send(self.server.pid, sig)

    def kill(self):
        self.signal(signal.SIGKILL)
        self.server.wait(10)

    def stop(self):
        if self.server:
            send(self.server.pid, signal.SIGCONT)
            end_popen(self.server, 10)

    def info(self, section):
        text = self.call("INFO", section).decode()
        return dict(line.split(":", 1) for line in text.split("\r\n") if ":" in line)

    def keys(self):
        """Returns the names of all keys. One KEYS command is enough, because the data of a test is
        small."""
        return sorted(self.call("KEYS", "*"))
