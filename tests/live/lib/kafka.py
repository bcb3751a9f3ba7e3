# SPDX-License-Identifier: Apache-2.0
"""Runs a real Apache Kafka, and the tool with which the tests produce records and inspect topics
and groups."""

import json
import os
import subprocess
import threading
import time

from .process import Failure, Limit, boot_us, wait_until

HERE = os.path.dirname(os.path.abspath(__file__))
SCRIPT = os.path.join(HERE, "..", "kafka", "kafka.sh")
TOOL_LIMIT_S = 120


class Kafka:
    def __init__(self, build, directory, *settings):
        self.dir = directory
        self.settings = ("message.max.bytes=10000000",) + settings
        self.tool_path = os.path.join(build, "tests", "tools", "kafkatool")
        self.brokers = None

    def script(self, *args):
        environment = dict(os.environ, KAFKA_OPTS_EXTRA="\n".join(self.settings))
        done = subprocess.run(
            [SCRIPT] + list(args),
            stdout=subprocess.PIPE,
            stdin=subprocess.DEVNULL,
            timeout=600,
            env=environment,
        )
        if done.returncode:
            raise Failure("kafka.sh %s failed" % args[0])
        return done.stdout.decode().strip()

    def start(self):
        self.brokers = self.script("start", self.dir, "0")

    def kill(self):
        self.script("kill", self.dir)

    def stop(self):
        self.script("stop", self.dir)

    def pid(self):
        with open(os.path.join(self.dir, "pid")) as f:
            return int(f.read())

    def acl(self, *args):
        libs = os.environ.get("LW_KAFKA_LIBS") or os.path.join(
            HERE, "..", "..", "..", "build", "kafka", "libs"
        )
        command = [
            "java",
            "-cp",
            os.path.join(libs, "*"),
            "kafka.admin.AclCommand",
            "--bootstrap-server",
            self.brokers,
            "--force",
        ] + list(args)
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=TOOL_LIMIT_S,
        )
        if done.returncode:
            raise Failure("AclCommand: " + done.stdout.decode())

    def command(self, *args):
        return [self.tool_path, self.brokers] + [str(a) for a in args]

    def tool(self, *args, given=None):
        done = subprocess.run(
            self.command(*args),
            input=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=TOOL_LIMIT_S,
        )
        if done.returncode:
            raise Failure("kafkatool %s: %s" % (args[0], done.stderr.decode().strip()))
        return done.stdout.decode()

    def begin_tool(self, *args):
        with open(os.path.join(self.dir, "tool.log"), "ab") as log:
            return subprocess.Popen(self.command(*args), stdin=subprocess.DEVNULL, stderr=log)

    def create(self, topic, partitions, *settings):
        """Creates a topic. Waits until the broker knows the topic and leads its partitions, because
        the broker confirms the creation earlier."""
        self.tool("create", topic, partitions, *settings)

        def known():
            try:
                return len(self.ends([topic])) == partitions
            except Failure:
                return False

        wait_until(known, 20, "topic " + topic)

    def ends(self, topics):
        """Returns the first offset of each partition, and the offset that its next record will get:
        {(topic, partition): (begin, end)}."""
        lines = (line.split() for line in self.tool("ends", *topics).splitlines())
        return {(t, int(p)): (int(low), int(high)) for t, p, low, high in lines}

    def committed(self, group, topics):
        """Returns the committed offsets of the group, with their metadata: {(topic, partition):
        (offset, metadata)}."""
        lines = (line.split(" ", 3) for line in self.tool("committed", group, *topics).splitlines())
        return {(t, int(p)): (int(at), meta) for t, p, at, meta in lines}

    def produce(self, topic, records, **headers):
        """Produces records, each given as (partition or None, key, payload). Key and payload are
        bytes, or None for null. All records get the same headers."""

        def field(b):
            return "\\N" if b is None else b.hex()

        lines = ["%s|%s|%s\n" % ("" if p is None else p, field(k), field(v)) for p, k, v in records]
        self.tool(
            "produce",
            topic,
            "--hex",
            *("--header=%s=%s" % h for h in headers.items()),
            given="".join(lines).encode(),
        )

    def dump(self, topic):
        return [json.loads(line) for line in self.tool("dump", topic).splitlines()]


class CommitSampler(threading.Thread):
    """Reads the committed offsets every `every_s` seconds, and records each answer with the time at
    which it arrived."""

    def __init__(self, kafka, group, topics, every_s=0.4):
        super().__init__(daemon=True)
        self.kafka, self.group, self.topics, self.every_s = kafka, group, topics, every_s
        # The commits read so far: (time of the boot clock in µs, (topic, partition), offset).
        self.samples = []
        self.over = threading.Event()

    def run(self):
        while not self.over.wait(self.every_s):
            self.take()

    def take(self):
        try:
            committed = self.kafka.committed(self.group, self.topics)
        except (Failure, subprocess.TimeoutExpired):
            # There is no sample now, because the broker is down, or the group's coordinator moves
            # to another broker.
            return
        now = boot_us()
        self.samples += [(now, tp, at) for tp, (at, _) in committed.items() if at >= 0]

    def end(self):
        self.over.set()
        self.join(TOOL_LIMIT_S)
        self.take()
        return self.samples


def wait_finished(kafka, group, topics, limit_s, watch=None):
    """Waits until every record that the topics contain at the call is committed. Returns the ends
    of the topics' partitions, as ends() does."""
    ends = kafka.ends(topics)
    limit = Limit(limit_s)
    while True:
        committed = None
        try:
            committed = kafka.committed(group, topics)
        except Failure as e:
            why = str(e)
        if committed:
            left = {
                tp: (committed[tp][0], end)
                for tp, (begin, end) in ends.items()
                if end > begin and committed[tp][0] < end
            }
            if not left:
                return ends
            why = "committed, end: " + ", ".join(
                "%s/%d %d, %d" % (tp + at) for tp, at in sorted(left.items())
            )
        if watch:
            watch()
        if limit.over():
            raise Failure("not finished within %g s; %s" % (limit_s, why))
        time.sleep(0.2)
