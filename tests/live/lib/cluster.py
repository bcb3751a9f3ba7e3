# SPDX-License-Identifier: Apache-2.0
"""A Redis Cluster on the loopback: three masters with one replica each, on ports that are free when
the cluster starts.

    c = Cluster(directory); c.start()          # waits until each node says that the cluster is ok
    c.settings(user)                           # the section `redis` of a configuration
    c.owner(slot), c.replica_of(node)          # nodes: Redis objects with .port, .id, .call()
    node = c.kill_owner(slot)                  # another master gets the slot
    c.restart(node)                            # the old master becomes a replica
    c.migrate(slot, node)                      # moves the slot with its data, as resharding does
    c.call(command, name, …)                   # asks the owner of the name

The default user of the nodes may run every command and has no password, so MIGRATE works without a
password."""

import os
import subprocess

from .ports import free_port
from .process import Failure, boot_us, wait_until
from .redis import PASSWORD, Redis, RedisError

CERTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../support/certs.sh")
SLOTS = 16384
MASTERS = 3
NODE_TIMEOUT_MS = 2000
LIMIT_S = 60


def crc16(data):
    """Computes CRC-16/XMODEM, as the Redis cluster specification prescribes."""
    crc = 0
    for byte in data:
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1 ^ 0x1021 if crc & 0x8000 else crc << 1) & 0xFFFF
    return crc


def slot_of(name):
    """Returns the slot of a key's name. If the name has braces, only the text between the first
    pair counts."""
    name = name if isinstance(name, bytes) else str(name).encode()
    begin = name.find(b"{")
    end = name.find(b"}", begin + 1) if begin >= 0 else -1
    return crc16(name[begin + 1 : end] if end > begin + 1 else name) % SLOTS


def shard_tag(name, shard, shards):
    """Returns NAME.SHARD.K with the smallest K for which the slot of this name is at most 64 away
    from a fixed slot of the shard. The fixed slot of shard 0 is 96, and the fixed slots of all
    shards are equally far apart. Workers that disagree on the number of shards therefore still
    share shard 0."""
    place, k = 96 + shard * SLOTS // shards, 0
    while abs(slot_of("%s.%d.%d" % (name, shard, k)) - place) > 64:
        k += 1
    return "%s.%d.%d" % (name, shard, k)


def parsed(line):
    """Parses a line of CLUSTER NODES. Returns (id, port, flags, id of the master, [(first slot,
    last slot)])."""
    words = line.split()
    spans = [w.split("-") for w in words[8:] if not w.startswith("[")]
    return (
        words[0],
        int(words[1].split("@")[0].rsplit(":", 1)[1]),
        words[2].split(","),
        words[3],
        [(int(s[0]), int(s[-1])) for s in spans],
    )


def listening(port, certs):
    """Returns the options with which a node listens on a port. If there are certificates, the node
    accepts only TLS."""
    if not certs:
        return ["--port", str(port)]
    return [
        "--port",
        "0",
        "--tls-port",
        str(port),
        "--tls-cluster",
        "yes",
        "--tls-replication",
        "yes",
        "--tls-auth-clients",
        "no",
        "--tls-ca-cert-file",
        certs + "/ca.pem",
        "--tls-cert-file",
        certs + "/server.pem",
        "--tls-key-file",
        certs + "/server.key",
    ]


class Node(Redis):
    def __init__(self, directory, certs, *options):
        self.port, self.bus_port = free_port(), free_port()
        super().__init__(
            directory,
            *listening(self.port, certs),
            "--bind",
            "127.0.0.1",
            "--cluster-enabled",
            "yes",
            "--cluster-port",
            str(self.bus_port),
            "--cluster-node-timeout",
            str(NODE_TIMEOUT_MS),
            "--cluster-replica-validity-factor",
            "0",
            "--repl-diskless-sync-delay",
            "0",
            *options,
        )
        self.id = None

    def start(self):
        super().start()
        self.id = self.call("CLUSTER", "MYID").decode()

    def alive(self):
        return self.server is not None and self.server.poll() is None

    def view(self):
        """Returns this node's view of the cluster, as a list of the parsed lines of CLUSTER
        NODES."""
        return [parsed(line) for line in self.call("CLUSTER", "NODES").decode().splitlines()]

    def ok(self):
        return self.call("CLUSTER", "INFO").decode().startswith("cluster_state:ok")

    def follows(self):
        """Returns True if the node is a healthy replica."""
        info = self.info("replication")
        return info["role"] == "slave" and info["master_link_status"] == "up"


class Cluster:
    """A cluster that a scenario uses instead of a single Redis. Each redis-server gets `options` as
    arguments. If `tls` is true, the nodes refuse connections without TLS."""

    def __init__(self, directory, *options, tls=False):
        self.dir = directory
        self.certs = os.path.join(directory, "certs") if tls else None
        if tls:
            os.makedirs(self.certs)
            subprocess.run([CERTS, self.certs], check=True, timeout=60)
        self.nodes = [
            Node(os.path.join(directory, "node-%d" % i), self.certs, *options)
            for i in range(2 * MASTERS)
        ]
        self.users = {}
        self.killed_us = None  # time at which kill_owner() has killed a node

    # --- starting and ending ----------------------------------------------------------------------

    def start(self):
        for i, node in enumerate(self.nodes):
            node.start()
            node.call("CLUSTER", "SET-CONFIG-EPOCH", i + 1)
        for i in range(MASTERS):
            self.nodes[i].call(
                "CLUSTER", "ADDSLOTSRANGE", i * SLOTS // MASTERS, (i + 1) * SLOTS // MASTERS - 1
            )
        for node in self.nodes[1:]:
            self.nodes[0].call("CLUSTER", "MEET", "127.0.0.1", node.port, node.bus_port)
        wait_until(
            lambda: all(self.knows_all(node) for node in self.nodes),
            LIMIT_S,
            "nodes that know each other",
        )
        for i in range(MASTERS):
            self.nodes[MASTERS + i].call("CLUSTER", "REPLICATE", self.nodes[i].id)
        self.wait_ok()

    def knows_all(self, node):
        view = node.view()
        return len(view) == len(self.nodes) and not any(
            "handshake" in flags for _, _, flags, _, _ in view
        )

    def alive(self):
        return [node for node in self.nodes if node.alive()]

    def stop(self):
        for node in self.nodes:
            node.stop()

    def ready(self):
        """Returns True if all live nodes agree on the owners of all slots, and each live replica
        follows its master."""
        live = self.alive()
        try:
            maps = [self.map_of(node) for node in live]
            owners = set(maps[0].values())
            return all(m == maps[0] for m in maps) and all(
                node.ok() and (node.id in owners or node.follows()) for node in live
            )
        except (OSError, RedisError):
            return False

    def wait_ok(self):
        wait_until(self.ready, LIMIT_S, "cluster in good order")

    # --- which node has which slots ---------------------------------------------------------------

    @staticmethod
    def map_of(node):
        """Returns {(first slot, last slot): id of the owner}, according to `node`."""
        return {
            span: name
            for name, _, flags, _, spans in node.view()
            if "master" in flags
            for span in spans
        }

    def by_id(self, name):
        return next(node for node in self.nodes if node.id == name)

    def masters(self):
        """Returns the live nodes that have slots."""
        return [
            node
            for node in self.alive()
            if any("myself" in flags and spans for _, _, flags, _, spans in node.view())
        ]

    def owner(self, slot, asked=None):
        """Returns the node that owns the slot, according to the node `asked`, or else according to
        the first live node."""
        for (first, last), name in self.map_of(asked or self.alive()[0]).items():
            if first <= slot <= last:
                return self.by_id(name)
        raise Failure("slot %d has no owner" % slot)

    def owner_of(self, name):
        return self.owner(slot_of(name))

    def replica_of(self, node):
        """Returns a live replica of the master, or None."""
        mine = [
            name
            for name, _, flags, master, _ in self.alive()[0].view()
            if "slave" in flags and master == node.id
        ]
        return next((n for n in self.alive() if n.id in mine), None)

    # --- faults -----------------------------------------------------------------------------------

    def kill_owner(self, slot):
        """Kills the slot's master (kill -9). Notes the time in self.killed_us, and waits
        until the other nodes agree on a new owner and report that the cluster is ok. Returns the
        killed node."""
        old = self.owner(slot)
        old.kill()
        self.killed_us = boot_us()

        def replaced():
            return all(self.owner(slot, node) is not old and node.ok() for node in self.alive())

        wait_until(replaced, LIMIT_S, "another owner of slot %d" % slot)
        return old

    def restart(self, node):
        """Starts a killed node again, without data. If a replica has become the master, waits until
        the node follows that master as a replica."""
        node.start()
        self.wait_ok()

    def switch(self, slot):
        """Makes a replica the master by CLUSTER FAILOVER. The replica has all data at that time,
        and both nodes stay up."""
        old = self.owner(slot)
        new = self.replica_of(old)

        def switched():
            if new.follows():
                # If no majority of the nodes agrees in time, nothing changes. The next call of
                # switched() then tries again.
                new.call("CLUSTER", "FAILOVER")
            return all(self.owner(slot, node) is new for node in self.alive())

        wait_until(switched, LIMIT_S, "another owner of slot %d" % slot, 1)
        self.wait_ok()

    def open_slot(self, slot, target):
        """Begins a migration of the slot. The source then redirects clients to the target (ASK) if
        they ask for a key that has moved."""
        source = self.owner(slot)
        target.call("CLUSTER", "SETSLOT", slot, "IMPORTING", source.id)
        source.call("CLUSTER", "SETSLOT", slot, "MIGRATING", target.id)
        return source

    def move_keys(self, slot, source, target, at_once=100):
        """Moves up to `at_once` keys of the slot from the source to the target. Returns the number
        of moved keys."""
        keys = source.call("CLUSTER", "GETKEYSINSLOT", slot, at_once)
        if keys:
            source.call("MIGRATE", "127.0.0.1", target.port, "", 0, 10000, "KEYS", *keys)
        return len(keys)

    def close_slot(self, slot, target):
        """Ends a migration: makes the target the owner of the slot, first at the target itself,
        then at the other masters."""
        for node in [target] + [m for m in self.masters() if m is not target]:
            node.call("CLUSTER", "SETSLOT", slot, "NODE", target.id)
        wait_until(
            lambda: all(self.owner(slot, node) is target for node in self.alive()),
            LIMIT_S,
            "map with the new owner of slot %d" % slot,
        )

    def migrate(self, slot, target):
        """Moves a slot with all its data to another master while clients work. Returns the number
        of moved keys."""
        source, moved = self.open_slot(slot, target), 0
        for n in iter(lambda: self.move_keys(slot, source, target), 0):
            moved += n
        self.close_slot(slot, target)
        return moved

    # --- methods that class Redis of lib/redis.py has, too ----------------------------------------

    def url_of(self, user):
        return None

    def tag(self, name, shard, shards):
        return shard_tag(name, shard, shards)

    def settings(self, user):
        out = {
            "url": None,
            "username": user,
            "password": PASSWORD,
            "cluster": ["127.0.0.1:%d" % node.port for node in self.nodes[:2]],
        }
        if self.certs:
            out["tls"] = {"ca_file": self.certs + "/ca.pem"}
        return out

    def grant(self, line):
        for node in self.nodes:
            node.grant(line)
        self.users = self.nodes[0].users

    def refusals(self):
        return [refusal for node in self.alive() for refusal in node.refusals()]

    @property
    def server(self):
        return self.alive()[0].server

    def call(self, *args):
        """Sends the command to the node that owns the slot of the first argument with a hash tag.
        If no argument has a hash tag, sends the command to any master."""
        tagged = [
            a
            for a in args
            if (b"{" if isinstance(a, bytes) else "{") in (a if isinstance(a, bytes) else str(a))
        ]
        node = self.owner_of(tagged[0]) if tagged else self.masters()[0]
        return node.call(*args)

    def keys(self):
        return sorted(name for node in self.masters() for name in node.keys())
