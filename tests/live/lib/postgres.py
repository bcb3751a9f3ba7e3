# SPDX-License-Identifier: Apache-2.0
"""Runs a private PostgreSQL on a unix socket, and PgBouncer in front of it. SQL statements are run
by psql."""

import glob
import os
import shutil
import signal
import subprocess
import tempfile

from .process import Failure, end_popen, wait_until

# The user who runs the server if the test runs as root, because PostgreSQL refuses to run as root.
OWNER = "postgres"


def program(name):
    """Returns the path of a program of PostgreSQL, from the newest release that the distribution
    has, or else from PATH."""
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/" + name))
    return found[-1] if found else name


class Postgres:
    """A server that can be killed and started again. `with Postgres() as pg:` ends the server and
    removes its folder at the end."""

    def __init__(self, *options):
        self.options = options or ("-c", "fsync=off")
        self.as_root = os.geteuid() == 0
        self.user = OWNER if self.as_root else os.environ.get("USER", OWNER)
        self.dir = tempfile.mkdtemp(prefix="lw-pg.")
        self.server = self.bouncer = None
        self.folder, self.place = "data", self.dir  # of the data, and of the unix socket
        self.port = 5432  # the name of the unix socket contains this port
        if self.as_root:
            shutil.chown(self.dir, OWNER, OWNER)
        made = self.begin(
            ["-D", self.data, "-N", "-A", "trust", "-E", "UTF8", "--locale=C", "-U", OWNER],
            name="initdb",
        )
        if made.wait(120):
            raise Failure("initdb failed: " + self.log("initdb"))

    @property
    def data(self):
        return os.path.join(self.dir, self.folder)

    @property
    def url(self):
        return self.url_at(self.dir)

    def url_at(self, place):
        return "postgres://%s@/postgres?host=%s&port=%d" % (OWNER, place, self.port)

    @property
    def bouncer_url(self):
        return "postgres://%s@/postgres?host=%s&port=6432" % (OWNER, self.dir)

    def log(self, name):
        with open(os.path.join(self.dir, name + ".log"), errors="replace") as f:
            return f.read()

    def begin(self, arguments, name, path=None):
        """Starts a program, as the user OWNER if the test runs as root. The program's output goes
        to a file in the server's folder."""
        who = {"user": OWNER, "group": OWNER, "extra_groups": []} if self.as_root else {}
        with open(os.path.join(self.dir, name + ".log"), "ab") as log:
            return subprocess.Popen(
                [path or program(name)] + arguments,
                stdout=log,
                stderr=log,
                stdin=subprocess.DEVNULL,
                cwd=self.dir,
                **who,
            )

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.remove()

    def remove(self):
        self.stop()
        if not os.environ.get("LW_KEEP"):
            shutil.rmtree(self.dir, ignore_errors=True)

    def start(self):
        self.server = self.begin(
            [
                "-D",
                self.data,
                "-k",
                self.place,
                "-c",
                "listen_addresses=",
                "-c",
                "shared_buffers=64MB",
                "-c",
                "deadlock_timeout=200ms",
                *self.options,
            ],
            name="postgres",
        )
        wait_until(lambda: self.answers(self.url_at(self.place)), 60, "answer of PostgreSQL")

    def fail_over(self):
        """Replaces the server by a standby of it, which has all of its data and is read-only."""
        primary, place = self.server, self.dir + "/standby.socket"
        os.mkdir(place)
        if self.as_root:
            shutil.chown(place, OWNER, OWNER)
        words = ["-h", self.dir, "-U", OWNER, "-D", self.dir + "/standby", "-R", "-c", "fast"]
        if self.begin(words, name="pg_basebackup").wait(60):
            raise Failure("pg_basebackup failed: " + self.log("pg_basebackup"))
        self.folder, self.place = "standby", place
        self.start()
        streams = "SELECT 1 FROM pg_stat_replication WHERE state = 'streaming'"
        wait_until(lambda: self.sql(streams), 60, "standby that follows")
        for server in (primary, self.server):  # the first one sends the rest to its standby
            server.send_signal(signal.SIGINT)
            server.wait(30)
        self.place = self.dir
        self.start()

    def listen(self, port):
        """Makes the server also listen on a port of 127.0.0.1, with TLS and a password, from the
        next start() on."""
        certificates = os.path.join(
            os.path.dirname(os.path.abspath(__file__)), "../../support/certs.sh"
        )
        subprocess.run([certificates, self.dir], check=True, timeout=60)
        for name in ("server.key", "server.pem", "ca.pem"):
            path = os.path.join(self.dir, name)
            if self.as_root:
                shutil.chown(path, OWNER, OWNER)
            os.chmod(path, 0o600 if name.endswith("key") else 0o644)
        with open(os.path.join(self.data, "pg_hba.conf"), "w") as f:
            f.write("local all all trust\nhostssl all all 127.0.0.1/32 scram-sha-256\n")
        self.port = port
        self.options += (
            "-c",
            "listen_addresses=127.0.0.1",
            "-c",
            "port=%d" % port,
            "-c",
            "ssl=on",
            "-c",
            "ssl_cert_file=%s/server.pem" % self.dir,
            "-c",
            "ssl_key_file=%s/server.key" % self.dir,
        )

    def start_bouncer(self, pool=3):
        """Starts PgBouncer in transaction mode."""
        path = os.path.join(self.dir, "pgbouncer.ini")
        with open(path, "w") as f:
            f.write(
                "[databases]\npostgres = host=%s user=%s\n[pgbouncer]\nlisten_addr =\nunix_socket_dir = %s\nlisten_port = 6432\n"
                "auth_type = any\npool_mode = transaction\ndefault_pool_size = %d\n"
                % (self.dir, OWNER, self.dir, pool)
            )
        os.chmod(path, 0o644)
        self.bouncer = self.begin(
            [path],
            name="pgbouncer",
            path=shutil.which("pgbouncer", path="/usr/sbin:/usr/bin:/usr/local/bin"),
        )
        wait_until(lambda: self.answers(self.bouncer_url), 60, "answer of PgBouncer")

    def answers(self, url):
        return self.psql("SELECT 1", url=url).returncode == 0

    def psql(self, sql, url=None):
        return subprocess.run(
            ["psql", "-XqAt", "-F", "\t", "-v", "ON_ERROR_STOP=1", url or self.url],
            input=sql,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
        )

    def sql(self, sql):
        """Runs SQL statements, and returns the rows as lists of texts."""
        done = self.psql(sql)
        if done.returncode:
            raise Failure("%s: %s" % (sql, done.stderr))
        return [line.split("\t") for line in done.stdout.splitlines()]

    def empty(self):
        """Drops all tables, and waits until all written data is on the disk."""
        self.sql(
            "SET client_min_messages = error; DROP SCHEMA public CASCADE; CREATE SCHEMA public; CHECKPOINT"
        )

    def hold(self, sql):
        """Runs SQL statements in a transaction that stays open. Returns the process psql. If the
        caller kills psql, the transaction ends."""
        held = subprocess.Popen(
            ["psql", "-XqAt", "-v", "ON_ERROR_STOP=1", self.url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        held.stdin.write("BEGIN;\n%s;\nSELECT 'held';\n" % sql)
        held.stdin.flush()
        if held.stdout.readline() != "held\n":
            raise Failure("a transaction could not be held: " + sql)
        return held

    @staticmethod
    def release(held):
        # The end of its input makes psql end the session, which rolls the transaction back.
        held.stdin.close()
        held.stdout.close()
        held.wait(20)

    def end_backends(self):
        """Ends the connections of all clients."""
        self.sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )

    def kill(self):
        """Ends the server at once, as a crash does."""
        self.server.send_signal(signal.SIGQUIT)
        self.server.wait(20)

    def stop(self):
        if self.bouncer:
            end_popen(self.bouncer, 5)
        if self.server:
            self.server.send_signal(signal.SIGCONT)
            self.kill()
