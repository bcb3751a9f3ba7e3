#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Follows the documents as a new user does: installs the package in a clean chroot, connects it to
a Kafka 4 with TLS, SASL and ACLs and to a Valkey with TLS and users, and handles messages.
packaging/deb.sh runs it, as root.
usage: secured.py DISTRIBUTION PACKAGES

  DISTRIBUTION  bookworm or trixie
  PACKAGES      a folder with the packages of that distribution

This script plays the administrators: it runs the servers on the loopback interface. The user's part
is packaging/test-secured.sh, which runs in the chroot. The oracles of the live tests judge the
journal that the handler writes: each message must be handled once, and the messages of a key must
be handled in order and one at a time. $LW_BUILD is the folder of the build (default: build).
$LW_KAFKA_VERSION chooses another Kafka than 4.1.1, and $LW_REDIS_SERVER another server than Valkey
8.1.
exit: 0 if all checks pass, otherwise 1"""

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

TOP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
os.environ.setdefault("LW_KAFKA_VERSION", "4.1.1")
if not os.environ.get("LW_REDIS_SERVER"):
    os.environ["LW_REDIS_SERVER"] = subprocess.check_output(
        [os.path.join(TOP, "tests/matrix/servers.sh"), "valkey-8.1"], text=True
    ).strip()
sys.path.insert(0, os.path.join(TOP, "tests/live"))
from lib import journal, oracles  # noqa: E402
from lib.kafka import SCRIPT, wait_finished  # noqa: E402
from lib.ports import free_port  # noqa: E402
from lib.process import Failure, end_popen, wait_until  # noqa: E402
from lib.redis import Redis  # noqa: E402
from lib.secure import PASSWORD, SecureKafka  # noqa: E402

ADMIN, REDIS_ADMIN = (
    "admin",
    "valkey-admin-5",
)  # name of the administrator on Kafka and on Valkey; the password on Valkey
MESSAGES, KEYS, PARTITIONS = 2000, 40, 4
# Time limit of each wait for packaging/test-secured.sh, whose installation takes longest.
LIMIT_S = 1200


class Servers:
    """A Kafka and a Valkey that require TLS and a password. This class creates the topics, the
    users of Kafka, and the administrator of Valkey. The commands in the pages of doc/how-to, which
    test-secured.sh runs, create Latchwork's user in Valkey and all rights."""

    def __init__(self, directory):
        self.kafka = SecureKafka(
            os.environ.get("LW_BUILD") or os.path.join(TOP, "build"),
            os.path.join(directory, "kafka"),
            ("orders", ADMIN),
            "super.users=User:ANONYMOUS;User:" + ADMIN,
        )
        self.certificates = self.kafka.certificates
        self.certificates.sign("redis", "DNS:redis.example.com")
        self.port = free_port()
        path = self.certificates.path
        self.redis = Redis(
            os.path.join(directory, "redis"),
            "--tls-port",
            str(self.port),
            "--tls-ca-cert-file",
            path("ca.pem"),
            "--tls-cert-file",
            path("redis.pem"),
            "--tls-key-file",
            path("redis.key"),
            "--tls-auth-clients",
            "no",
            "--maxmemory-policy",
            "noeviction",
        )

    def start(self):
        self.kafka.start()
        self.redis.start()
        self.redis.call(
            "ACL", "SETUSER", ADMIN, "on", ">" + REDIS_ADMIN, "allkeys", "allchannels", "+@all"
        )
        self.redis.call("ACL", "SETUSER", "default", "off")
        self.kafka.create("orders", PARTITIONS)
        self.kafka.create("orders.dead", 1)

    def stop(self):
        self.redis.stop()
        self.kafka.kill()

    def give_rights(self, page, directory):
        """Runs the kafka-acls commands of the document `page` as the administrator."""
        properties = os.path.join(directory, "admin.properties")
        with open(properties, "w") as f:
            f.write(
                "security.protocol=SASL_SSL\nsasl.mechanism=SCRAM-SHA-512\nssl.truststore.type=PEM\nssl.truststore.location=%s\n"
                "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required username=\"%s\" password=\"%s\";\n"
                % (self.certificates.path("ca.pem"), ADMIN, PASSWORD)
            )
        with open(page) as f:
            commands = [shlex.split(line) for line in f if line.strip().startswith("kafka-acls ")]
        if not commands:
            raise Failure("no command for kafka-acls in " + page)
        # Use kafka-acls of Kafka 3.9, because the tool is in another Maven package in Kafka 4. The
        # older tool works with Kafka 3.9 and Kafka 4.
        environment = dict(os.environ, LW_KAFKA_VERSION="3.9.1")
        libs = subprocess.check_output([SCRIPT, "fetch"], env=environment, text=True).strip()
        places = {"localhost:9094": self.kafka.at["SASLTLS"], "admin.properties": properties}
        for words in commands:
            run(
                ["java", "-cp", libs + "/*", "kafka.admin.AclCommand"]
                + [places.get(w, w) for w in words[1:]]
            )


def run(command):
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    if done.returncode:
        raise Failure("%s: status %d: %s" % (" ".join(command), done.returncode, done.stdout))


def write(path, text):
    with open(path, "w") as f:
        f.write(text)


def hand_over(servers, shared):
    """Fills the shared folder with the handler and the files that administrators give to users."""
    for name in ("kafka-ca.pem", "redis-ca.pem"):
        shutil.copy(servers.certificates.path("ca.pem"), os.path.join(shared, name))
    shutil.copy(servers.certificates.path("strange-ca.pem"), shared)
    shutil.copy(os.path.join(TOP, "tests/live/handlers/work.py"), shared)
    write(os.path.join(shared, "kafka-password"), PASSWORD + "\n")
    write(os.path.join(shared, "redis-admin-password"), REDIS_ADMIN + "\n")
    write(
        os.path.join(shared, "places"),
        "KAFKA=%s\nREDIS_PORT=%d\n" % (servers.kafka.at["SASLTLS"], servers.port),
    )
    # The handler, which runs as another user, writes its journal to this folder.
    os.chmod(shared, 0o777)


def begin_user(distribution, packages, shared):
    environment = dict(
        os.environ,
        LW_CHROOT_CLEAN="1",
        LW_CHROOT_TREE="deb",
        LW_CHROOT_SHARED="%s %s" % (packages, shared),
        LW_CHROOTS=os.environ.get("LW_CLEAN_CHROOTS") or os.path.join(TOP, "build/clean"),
    )
    return subprocess.Popen(
        [
            os.path.join(TOP, "tests/matrix/debian.sh"),
            distribution,
            "packaging/test-secured.sh",
            packages,
            shared,
        ],
        cwd=TOP,
        env=environment,
        stdin=subprocess.DEVNULL,
    )


def signs(user, shared, name):
    """Waits until packaging/test-secured.sh, the user's part, has created the file `name`."""

    def there():
        if user.poll() is not None:
            raise Failure("the user's part ended with status %d" % user.returncode)
        return os.path.exists(os.path.join(shared, name))

    wait_until(there, LIMIT_S, name)


def judge(servers, shared):
    ends, runs = servers.kafka.ends(["orders"]), journal.read(os.path.join(shared, "journal"))
    produced = sum(high - low for low, high in ends.values())
    wrong = (
        oracles.overlaps(runs)
        + oracles.fences(runs)
        + oracles.misordered(runs)
        + oracles.lost(ends, runs)
        + oracles.unknown(ends, runs)
    )
    wrong += ["ran twice: %r, then %r" % pair for pair in oracles.reruns(runs)]
    if produced != MESSAGES:
        wrong.append("%d messages were produced, not %d" % (produced, MESSAGES))
    if wrong:
        raise Failure("%d × %s" % (len(wrong), oracles.shown(wrong)))
    print(
        "ok: %d messages of %d keys were handled once each, in order within their keys"
        % (produced, len({r.key for r in runs}))
    )


def follow(servers, distribution, packages, shared):
    servers.start()
    hand_over(servers, shared)
    user = begin_user(distribution, packages, shared)
    try:
        signs(user, shared, "wants-rights")
        servers.give_rights(os.path.join(TOP, "doc/how-to/secure-kafka.md"), servers.kafka.dir)
        write(os.path.join(shared, "has-rights"), "")
        signs(user, shared, "runs")
        begun = time.monotonic()
        tool = servers.kafka.begin_tool(
            "generate",
            "orders",
            "--messages",
            MESSAGES,
            "--keys",
            KEYS,
            "--zipf",
            0.8,
            "--seed",
            1,
            "--rate",
            400,
        )
        if tool.wait(120):
            raise Failure("kafkatool generate failed; see " + servers.kafka.dir)
        wait_finished(servers.kafka, "orders", ["orders"], 120, lambda: signs(user, shared, "runs"))
        print("ok: messages flow: all were committed after %.0f s" % (time.monotonic() - begun))
        write(os.path.join(shared, "all-done"), "")
        if user.wait(120):
            raise Failure("the user's part ended with status %d" % user.returncode)
    finally:
        end_popen(user, 10)
    judge(servers, shared)


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: secured.py DISTRIBUTION PACKAGES")
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(1)
    )  # sys.exit() raises an exception, so SIGTERM also ends the servers
    distribution, packages = sys.argv[1], os.path.abspath(sys.argv[2])
    shared = os.path.join(os.path.abspath(TOP), "build/deb/secured-" + distribution)
    shutil.rmtree(shared, ignore_errors=True)
    os.makedirs(shared)
    directory = tempfile.mkdtemp(prefix="latchwork-secured.")
    servers = Servers(directory)
    try:
        follow(servers, distribution, packages, shared)
    except Failure as e:
        sys.exit("secured.py: %s\nfiles: %s %s" % (e, shared, directory))
    finally:
        servers.stop()
    shutil.rmtree(directory)
    print(
        "%s: the installed package works with a secured Kafka %s and a Valkey with TLS"
        % (distribution, os.environ["LW_KAFKA_VERSION"])
    )


if __name__ == "__main__":
    main()
