#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A matrix: each way of handling messages meets each fault, under load and among hostile messages,
and the same oracles judge each cell.

Usage: test_proof.py BUILD                     a few cells, others for each commit
       test_proof.py BUILD RESULTS [PART/PARTS] all cells that RESULTS does not yet have as passed
       test_proof.py BUILD --cell WAY FAULT     one cell
       test_proof.py --page RESULTS PAGE        writes the page from the results

A line of RESULTS is the JSON object of one cell. A cell that ran again has several lines, and the
last one counts."""

import json
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import time

import test_http
import test_kills
import test_poison
import test_postgres
import test_sdk
from lib import oracles, scenario
from lib.latchwork import crash_plugin, exec_handler
from lib.postgres import Postgres
from lib.process import Failure, alive, boot_us, children, descendants, send, wait_until
from lib.sentinel import Guarded

TTL_MS, RATE, MESSAGES, KEYS = 1000, 200, 1800, 60
AT_ONCE = 4  # cells that `make check-live` runs
# With LW_LIMITS=1: limits that let all pass, so that each message needs permits of its group and of
# the fleet.
LIMITS = {"running": 500, "per_second": 20000, "group": {"running": 20, "per_second": 5000}}
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
# About one message in 100 is one of these: (key, payload). Their ids and numbers are not those of
# innocent messages.
HOSTILE = [
    (b"odd-json", b"not json {"),
    (b"odd-nul", b'{"id":"a\\u0000b","seq":-1,"amount":1}'),
    (b"odd-half", b'{"id":"\xe2\x82","seq":-2,"amount":1}'),
    (b"odd-pair", b'{"id":"\\ud800","seq":-3,"amount":1}'),
    (b"odd-large", b'{"id":"large","seq":-4,"amount":1,"fill":"' + b"x" * (1 << 20) + b'"}'),
    (b"odd-key" * (1 << 17), b'{"id":"long","seq":-5,"amount":1}'),
    (b"odd-null", None),
    (b"k-1", b"\0"),
    (b"k-2", b"[]"),
]


# --- the ways of handling -------------------------------------------------------------------------


class Door:
    """How messages are handled. `dies` is what the reason of a hostile message's dead letter may
    say (None: such a message must be done)."""

    environment, dies = {}, None

    def __init__(self, t, section=None, dies=None):
        self.t = t
        self.handler = section
        self.dies = dies or self.dies

    def effects(self):
        """Returns the identities or numbers of what took effect, or None if the journal is what
        took effect."""
        return None

    def close(self):
        pass


class Web(Door):
    dies = "no answer|431|closed|HTTP/2|the service answered 4|header|too large|longer than"

    def __init__(self, t, h2=False, **more):
        super().__init__(t)
        if h2:
            certs = test_http.certificates(t)
            self.service = test_http.Service(
                t, certs + "/server.pem", certs + "/server.key", program=("node", "service_h2.js")
            )
            more["tls"] = {"ca_file": certs + "/ca.pem"}
        else:
            self.service = test_http.Service(t, environment={"LW_TEST_DELAY_MS": "10"}.items())
        self.handler = self.service.handler(**dict({"timeout_ms": 3000}, **more))

    def effects(self):
        found = set()
        for r in self.service.requests():
            if r.get("id") and r.get("status", 200) == 200:
                found.add(r["id"])
            elif r.get("body", "").startswith("["):
                try:
                    found |= {e["id"] for e in json.loads(r["body"])}
                except ValueError:
                    pass  # The worker was killed while it sent the request.
        return found


class Store(Door):
    dies = (
        "payload|JSON|json|UTF|NUL|0x00|null byte|surrogate|no /|unsupported Unicode|primary key"
        "|null|column"
    )

    def rows(self):
        raise NotImplementedError

    def effects(self):
        history = self.rows()
        innocent = [(key, seq) for key, seq in history if 0 <= seq]
        self.t.expect(oracles.effects(innocent, self.t.messages))
        return {seq for _, seq in history}


class Sqlite(Store):
    def __init__(self, t):
        self.path = os.path.join(t.dir, "orders.db")
        test_kills.make_store(self.path)
        library = os.path.join(t.rig.build, "tests/preload/full_disk.so")
        self.environment = {"LD_PRELOAD": library, "LW_TEST_FULL": self.path}
        super().__init__(t, dict(test_kills.CONFLICT_UPDATE, store="sqlite:" + self.path))

    def sql(self, text):
        db = sqlite3.connect(self.path, timeout=30, isolation_level=None)
        try:
            return db.execute(text).fetchall()
        finally:
            db.close()

    def rows(self):
        return self.sql("SELECT id, seq FROM history ORDER BY n")


class Pg(Store):
    def __init__(self, t):
        self.pg = Postgres()
        self.pg.start()
        test_postgres.make_table(self.pg)
        self.pg.sql(
            "CREATE ROLE loader LOGIN; GRANT ALL ON orders, history, history_n_seq TO loader;"
            "GRANT CREATE, USAGE ON SCHEMA public TO loader"
        )
        self.sql = self.pg.sql
        url = "postgres://loader@" + self.pg.url.split("@", 1)[1]
        super().__init__(t, test_postgres.handler(url))

    def rows(self):
        return [(k, int(seq)) for k, seq in self.sql("SELECT id, seq FROM history ORDER BY n")]

    def close(self):
        self.pg.remove()


WAYS = {
    "plugin": lambda t: Door(t, dict(crash_plugin(t), timeout_ms=1000)),
    "exec": lambda t: Door(t, exec_handler(timeout_ms=3000)),
    "exec, 64 in flight": lambda t: Door(
        t, exec_handler("hostile.py", processes=2, in_flight=64, timeout_ms=3000)
    ),
    "exec, batches": lambda t: Door(t, exec_handler(batch=16, timeout_ms=3000)),
    "Python SDK": lambda t: Door(t, test_sdk.python_handler(t), "not JSON"),
    "Node SDK": lambda t: Door(t, test_sdk.node_handler(t), "not JSON"),
    "http": Web,
    "http, HTTP/2": lambda t: Web(t, h2=True),
    "http, HTTP/2, batches": lambda t: Web(t, h2=True, mode="batch"),
    "insert, SQLite": Sqlite,
    "insert, PostgreSQL": Pg,
}


# --- the faults of the engine ---------------------------------------------------------------------
# Each is called under load, as fault(t, run, door). It returns how often it did what it does.


def worker_killed(t, run, door):
    for _ in range(3):
        run.wait_workers(2)
        run.kill_worker(random.choice(run.workers()))
        time.sleep(1)
    return 3


def worker_stopped(t, run, door):
    pid = random.choice(run.workers())
    test_kills.stop_for(t, [pid] + descendants(pid), 3 * TTL_MS)
    return 1


def supervisor_killed(t, run, door):
    family = descendants(run.pid)
    workers = children(run.pid)
    run.signal(signal.SIGKILL)
    wait_until(lambda: not any(alive(p) for p in family), 20, "end of the workers and handlers")
    t.killed |= set(workers)
    begin_run(t, door)
    return 1


def ended(t, run, door):
    run.stop()
    begin_run(t, door)
    return 1


def wiped(t, run, door):
    t.redis.call("FLUSHALL")
    time.sleep(2)
    t.redis.call("FLUSHALL")
    return 2


def frozen(t, run, door):
    t.redis.signal(signal.SIGSTOP)
    time.sleep(3 * TTL_MS / 1000)
    t.redis.signal(signal.SIGCONT)
    return 1


def failed_over(t, run, door):
    t.redis.restore(t.redis.kill_master())
    return 1


def cut(t, run, door):
    n = 0
    for _ in range(8):
        n += t.redis.call("CLIENT", "KILL", "TYPE", "normal")
        time.sleep(0.3)
    return n


def broker_restarted(t, run, door):
    t.kafka.kill()
    time.sleep(1)
    t.kafka.start()
    return 1


def cut_tls(t, run, door):
    return cut(t, run, door)


def rebalances(t, run, door):
    for n in range(2):
        other = begin_run(t, door, label="other-%d" % n, workers=1)
        other.wait_workers(1)
        time.sleep(2)
        other.stop()
        t.instances.remove(other)
        t.gone.append(other)
        time.sleep(2)
    return 4


# name: (fault, what the log must say, whether Redis loses data)
ENGINE = {
    "worker killed": (worker_killed, "signal 9", False),
    "worker stopped for 3 × TTL": (worker_stopped, "", False),
    "supervisor killed": (supervisor_killed, "", False),
    "SIGTERM": (ended, "SIGTERM", False),
    "Redis wiped": (wiped, " is lost: ", True),
    "Redis frozen": (frozen, "connection to Redis lost: no answer", False),
    "Redis failed over": (failed_over, " is lost: ", True),
    "Redis connections cut": (cut, "connection to Redis lost", False),
    "Redis TLS cut": (cut_tls, "connection to Redis lost", False),
    "broker restarted": (broker_restarted, "kafka", False),
    "a rebalance every 2 s": (rebalances, "", False),
}


# --- the doors' own faults ------------------------------------------------------------------------
# Some are messages: a function that returns (payload, outcome, what the dead letter's reason must
# say).


def asks(what, outcome, reason="", **more):
    return json.dumps(dict({"do": what}, **more)).encode(), outcome, reason


def poison(*wanted, turns=3):
    """Makes a fault of messages, each given as asks() returns it, in lanes of their own."""

    def fault(t, run, door):
        for turn in range(turns):
            for i, (payload, outcome, reason) in enumerate(wanted):
                t.wanted[payload] = (outcome, reason)
            produce(t, [(b"bad-%d-%d" % (turn, i), w[0]) for i, w in enumerate(wanted)])
            time.sleep(1)
        return turns * len(wanted)

    return fault


def process_killed(t, run, door):
    n = 0
    for _ in range(6):
        for worker in run.workers():
            for pid in children(worker)[:1]:
                n += send(pid, signal.SIGKILL)
        time.sleep(0.5)
    return n


def at_random(t, run, door):
    """Each fault that hostile.py knows: half lines, late, double and foreign answers, and more."""
    bad = [b"hostile-%d." % i for i in range(36)]
    reasons = set(test_poison.REASONS.values())
    for payload in bad:
        t.wanted[payload] = ("either", "|".join(reasons))
    produce(t, [(b"bad-%d" % i, payload) for i, payload in enumerate(bad)])
    time.sleep(3)
    return len(bad)


def service_killed(t, run, door):
    door.service.kill()
    time.sleep(2)
    door.service.start()
    return 1


def service_stopped(t, run, door):
    send(door.service.popen.pid, signal.SIGSTOP)
    time.sleep(5)
    send(door.service.popen.pid, signal.SIGCONT)
    return 1


def service_sick(t, run, door):
    send(door.service.popen.pid, signal.SIGUSR1)
    time.sleep(3)
    send(door.service.popen.pid, signal.SIGUSR2)
    return 1


def away(begin, end, s=2.5):
    """Makes a fault of two SQL statements, the second of which mends what the first does."""

    def fault(t, run, door):
        door.sql(begin)
        time.sleep(s)
        door.sql(end)
        return 1

    return fault


def refused(rule, reason):
    """Makes a fault of rows that the rule refuses: those with seq < -99."""

    def fault(t, run, door):
        door.sql(rule)
        for turn in range(3):
            rows = []
            for i in range(6):
                seq = -100 - 10 * turn - i
                payload = b'{"id":"bad%d","seq":%d,"amount":1}' % (seq, seq)
                t.wanted[payload] = ("dead", reason)
                rows.append((b"bad-%d" % -seq, payload))
            produce(t, rows)
            time.sleep(1)
        return 18

    return fault


def locked(t, run, door):
    lock = sqlite3.connect(door.path, timeout=30, isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    time.sleep(6)
    lock.execute("ROLLBACK")
    lock.close()
    return 1


def moved(t, run, door):
    os.rename(door.path, door.path + ".away")
    time.sleep(2)
    os.rename(door.path + ".away", door.path)
    return 1


def disk_full(t, run, door):
    with open(door.path + ".full", "w"):
        time.sleep(3)
    os.remove(door.path + ".full")
    return 1


def pg_killed(t, run, door):
    door.pg.kill()
    time.sleep(1.5)
    door.pg.start()
    return 1


def pg_ended(t, run, door):
    for _ in range(4):
        door.pg.end_backends()
        time.sleep(0.6)
    return 4


def read_only(t, run, door):
    """What a client sees after a failover to a standby: each write is refused with 25006."""
    for value in ("on", "off"):
        door.sql("ALTER SYSTEM SET default_transaction_read_only = %s" % value)
        door.sql("SELECT pg_reload_conf()")
        door.pg.end_backends()
        time.sleep(2.5)
    return 1


def standby(t, run, door):
    """The server ends, and a standby takes its place, which refuses writes until it is promoted."""
    door.pg.fail_over()
    time.sleep(2.5)
    door.sql("SELECT pg_promote()")
    return 1


def deadlocks(t, run, door):
    """Other sessions lock the same rows in other orders until there were some deadlocks."""
    door.sql(
        "BEGIN; ALTER TABLE orders ADD COLUMN touched integer; DROP TRIGGER note ON orders;"
        "CREATE TRIGGER note AFTER INSERT OR UPDATE OF seq ON orders FOR EACH ROW"
        " EXECUTE FUNCTION note(); COMMIT"
    )
    count = "SELECT deadlocks FROM pg_stat_database WHERE datname = 'postgres'"
    n, until = 0, time.monotonic() + 20
    while n < 3 and time.monotonic() < until:
        # Behind a lock, messages gather, so that the next transactions write several rows. They
        # come to wait for the first row, and this session for those that they have locked. Each
        # looks for a deadlock only once, after 200 ms, so this session must not wait first.
        held = door.pg.hold("LOCK TABLE latchwork_fences")
        time.sleep(1)
        ids = [i for (i,) in door.sql("SELECT id FROM orders ORDER BY random() LIMIT 40")]
        touch = "UPDATE orders SET touched = 1 WHERE id = '%s';"
        other = door.pg.hold("SET LOCAL deadlock_timeout = '20s'; " + touch % ids[0])
        door.pg.release(held)
        nap = " DO $$ BEGIN PERFORM pg_sleep(0.01); END $$;\n"
        other.stdin.write("".join(nap + touch % i for i in ids[1:]))
        door.pg.release(other)
        n = int(door.sql(count)[0][0])
    t.check(n, "there was no deadlock")
    return n


TRIGGER = (
    "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.seq < -99 THEN"
    " RAISE EXCEPTION 'refused by trigger' USING ERRCODE = '%s'; END IF; RETURN NEW; END $$;"
    "CREATE TRIGGER no BEFORE INSERT ON orders FOR EACH ROW EXECUTE FUNCTION no()"
)
POLICY = (
    "ALTER TABLE orders ENABLE ROW LEVEL SECURITY;"
    "CREATE POLICY w ON orders FOR INSERT TO loader WITH CHECK (seq > -99);"
    "CREATE POLICY u ON orders FOR UPDATE TO loader USING (true);"
    "CREATE POLICY r ON orders FOR SELECT TO loader USING (true)"
)
DIES = "before it answered|exited|signal"
OWN = {
    ("exec", "exec, batches"): {
        "process killed": (process_killed, "signal 9"),
        "process exits": (poison(asks("exit", "dead", DIES)), "status 3"),
        "process crashes": (poison(asks("crash", "dead", DIES)), "signal 11"),
        "process hangs": (poison(asks("hang", "dead", "timed out")), "timed out"),
        "half a line": (poison(asks("half", "dead", DIES + "|is not JSON")), "answered"),
        "garbage": (poison(asks("garbage", "dead", "is not JSON")), "is not JSON"),
        "a foreign answer": (poison(asks("foreign", "dead", "another message")), "another message"),
    },
    ("exec, 64 in flight",): {
        "process killed": (process_killed, "signal 9"),
        "late, twice, any order, …": (at_random, "answer"),
    },
    ("Python SDK", "Node SDK"): {
        "process killed": (process_killed, "signal 9"),
        "process exits": (poison(asks("exit", "done")), "status 3"),
    },
    ("plugin",): {
        "crashes": (poison((b"segv", "dead", "signal 11")), "signal 11"),
        "aborts": (poison((b"abort", "dead", "signal 6")), "signal 6"),
        "exits": (poison((b"exit", "dead", "exit|status 3")), "status 3"),
        "hangs": (poison((b"stuck", "dead", "hung|hang|timed out"), turns=1), "in its handler"),
    },
    ("http",): {
        "500 for some keys": (poison(asks("answer", "dead", "answered 500", status=500)), "500"),
        "closes early": (poison(asks("hang-up", "dead", "no answer")), "no answer"),
        "closes in the body": (poison(asks("short", "dead", "no answer")), "no answer"),
        "not HTTP": (poison(asks("babble", "dead", "no answer")), "no answer"),
        "answers twice": (poison(asks("twice", "done")), ""),
        "byte by byte": (poison(asks("drip", "done")), ""),
        "slow": (poison(asks("sleep", "done", ms=20000, times=1)), ""),
        "500 for all": (service_sick, "503"),
    },
    ("http", "http, HTTP/2", "http, HTTP/2, batches"): {
        "service restarted": (service_killed, "refused|no answer"),
        "service stopped": (service_stopped, "timed out|timeout|Timeout"),
    },
    ("insert, SQLite",): {
        "locked": (locked, "database is locked"),
        "file moved": (moved, "was removed or replaced"),
        "disk full": (disk_full, "disk is full"),
        "row refused by a trigger": (
            refused(
                "CREATE TRIGGER no BEFORE INSERT ON orders WHEN NEW.seq < -99"
                " BEGIN SELECT RAISE(ABORT, 'refused by trigger'); END",
                "refused by trigger",
            ),
            "refused by trigger",
        ),
    },
    ("insert, PostgreSQL",): {
        "killed": (pg_killed, "pausing for"),
        "connections ended": (pg_ended, ""),
        "read-only": (read_only, "read-only"),
        "failed over to a standby": (standby, "read-only"),
        "deadlocks": (deadlocks, ""),
        "rights revoked": (
            away("REVOKE INSERT ON orders FROM loader", "GRANT INSERT ON orders TO loader"),
            "permission denied",
        ),
        "row refused by a constraint": (
            refused("ALTER TABLE orders ADD CHECK (seq > -99)", "check constraint"),
            "check constraint",
        ),
        "row refused by a policy": (refused(POLICY, "row-level security"), "row-level security"),
        "row refused by a trigger": (
            refused(TRIGGER % "P0001", "refused by trigger"),
            "refused by trigger",
        ),
        "row refused, own SQLSTATE": (
            refused(TRIGGER % "LW001", "refused by trigger"),
            "refused by trigger",
        ),
    },
    ("insert, SQLite", "insert, PostgreSQL"): {
        "table gone": (
            away("ALTER TABLE orders RENAME TO aside", "ALTER TABLE aside RENAME TO orders"),
            "no such table|does not exist",
        )
    },
}


def cells():
    """Returns all cells, as (way, name of the fault, fault, pattern of the log, data is lost)."""
    found = [(way, name) + fault for name, fault in ENGINE.items() for way in WAYS]
    for ways, faults in OWN.items():
        found += [(w, name) + fault + (False,) for name, fault in faults.items() for w in ways]
    return found


# --- a cell ---------------------------------------------------------------------------------------


def produce(t, records):
    t.kafka.produce(
        t.topics[0], [(i % 4, key, payload) for i, (key, payload) in enumerate(records)]
    )


def begin_run(t, door, label=None, workers=2, **over):
    usual = {
        "lock": {"ttl_ms": TTL_MS},
        "retry": {"backoff_max_ms": 1000},
        "kafka": {"properties": {"message.max.bytes": "10000000"}},
    }
    if os.environ.get("LW_LIMITS"):
        usual.update(group={"from": "json:/id"}, limits=LIMITS)
    if isinstance(t.redis, Guarded):
        usual["redis"] = t.redis.settings(t.id)
    if t.grave:
        usual["dead"] = {"to": "topic:" + t.grave}
    run = t.start(
        label=label,
        handler=door.handler,
        environment=door.environment,
        workers=workers,
        work_ms="2-20",
        **dict(usual, **over),
    )
    run.wait_workers(workers)
    return run


def judge_idle(t):
    """O4: nothing of lanes stays in Redis. Dead letters do."""

    def idle():
        return not [text for text in t.left_on(0) if "}:dead" not in text]

    try:
        wait_until(idle, 15, "end of lanes")
    except Failure:
        t.expect([text for text in t.left_on(0) if "}:dead" not in text])


def innocent(run):
    return bytes.fromhex(run.key.replace("-", "")).startswith(b"k-")


def resources(run):
    """Returns the memory in MB and the number of descriptors of all processes of an instance."""
    rss = fds = 0
    for pid in [run.pid] + descendants(run.pid):
        try:
            with open("/proc/%d/statm" % pid) as f:
                rss += int(f.read().split()[1]) * 4096
            fds += len(os.listdir("/proc/%d/fd" % pid))
        except OSError:
            pass  # The process has ended.
    return rss >> 20, fds


def text_of(value):
    if isinstance(value, dict):
        return bytes.fromhex(value["hex"])
    return None if value is None else value.encode()


def judge_outcomes(t, door, runs):
    """O2: each message is done, with its effect, or dead, with a reason that is true of it."""
    records = {
        "%s/%d/%d" % (t.topics[0], r["partition"], r["offset"]): text_of(r["payload"])
        for r in t.kafka.dump(t.topics[0])
    }
    dead = {}
    for letter in t.dead_letters():
        place = letter[b"envelope"].split(b" ", 4)[1:4]
        dead["/".join(w.decode() for w in place)] = letter[b"reason"].decode(errors="replace")
    for record in t.kafka.dump(t.grave) if t.grave else ():
        headers = dict(record["headers"])
        dead[headers["latchwork-origin"]] = headers["latchwork-reason"]
    hostile = {payload for _, payload in HOSTILE}
    for identity, reason in dead.items():
        payload = records.get(identity)
        outcome, why = t.wanted.get(payload, ("done", ""))
        if outcome == "done" and payload in hostile and door.dies:
            outcome, why = "dead", door.dies
        shown = "%s (%.60r) is dead: %s" % (identity, payload, reason)
        t.check(outcome != "done", "an innocent message: " + shown)
        t.check(reason and re.search(why, reason), "not the reason %r: %s" % (why, shown))
    done = {r.identity for r in runs if r.outcome == "done"}
    for identity, payload in records.items():
        if t.wanted.get(payload, ("done", ""))[0] == "dead":
            t.check(identity in dead, "should be dead: %s %.60r" % (identity, payload))
        t.check(identity in done or identity in dead, "neither done nor dead: " + identity)
    found = door.effects()
    if isinstance(door, Web):
        t.expect(["done without its effect: " + i for i in sorted(done - found)])
    elif found is not None:
        numbers = {
            i: json.loads(p)["seq"]
            for i, p in records.items()
            if b'"seq":' in (p or b"") and i in done and p not in hostile
        }
        t.expect(
            ["done without its row: " + i for i, n in sorted(numbers.items()) if n not in found]
        )
    t.dead = set(dead)
    return len(dead)


def run_cell(t, way, fault, said, loses):
    t.gone, t.killed, t.wanted, t.messages = [], set(), {}, MESSAGES
    if fault in (failed_over, cut_tls):
        # When TLS is cut, nothing is to fail over, and the service has certificates of its own.
        if fault is cut_tls:
            t.redis = Guarded(os.path.join(t.dir, "tls"), True, down_ms=60000)
        else:
            t.redis = Guarded(t.dir)
        t.servers = [t.redis]
        t.redis.start()
    else:
        t.start_redis()
    t.make_topics(1)
    # Dead letters in Redis end with it, so a cell that wipes Redis has a topic for them.
    t.grave = t.id + "-dead" if loses else None
    if t.grave:
        t.kafka.create(t.grave, 1)
    door = WAYS[way](t)
    try:
        judge_cell(t, way, door, fault, said, loses)
    finally:
        door.close()


def judge_cell(t, way, door, fault, said, loses):
    run = begin_run(t, door)
    t.generate(MESSAGES, keys=KEYS, rate=RATE, partitioner="key", wait=False)
    wait_until(lambda: t.ends_so_far() > MESSAGES // 10, 60, "load")
    rss, fds = resources(run)
    produce(t, HOSTILE)
    from_us = boot_us()
    times = fault(t, run, door)
    to_us = boot_us()
    under_load = t.producing()
    produce(t, HOSTILE)
    run = t.instances[-1]
    t.wait_finished(120)
    judge_idle(t)
    rss_after, fds_after = resources(run)
    run.stop()
    runs = t.runs()
    dead = judge_outcomes(t, door, runs)
    runs, again = t.judge(wiped=loses)
    leased = oracles.under_lease(runs, t.stops)
    ends = sorted(r.end_us for r in runs if r.outcome == "done" and innocent(r))
    during = [e for e in ends if from_us <= e <= to_us]
    after = [e for e in ends if e > to_us]
    until_us = max([e for e in ends if e >= from_us], default=from_us)
    steps = [from_us] + [e for e in ends if from_us < e <= until_us]
    silence = max((b - a for a, b in zip(steps, steps[1:])), default=0) / 1e6
    blamed = t.killed.union(*(i.deaths for i in t.instances + t.gone))
    blamed |= {pid for pid, _ in t.stops}
    t.figure(
        faults=times,
        dead=dead,
        lost=len(oracles.lost(t.kafka.ends(t.topics), runs, t.dead)),
        overlaps=len(oracles.overlaps(leased, t.stops)),
        misordered=len(oracles.misordered(runs)),
        reruns_of_killed=sum(a.pid in blamed for a, _ in again),
        reruns=sum(a.pid not in blamed for a, _ in again),
        during=len(during),
        silence_s=round(silence, 1),
        recovery_s=round((after[0] - to_us) / 1e6, 1) if after else 0,
        rss_mb="%d to %d" % (rss, rss_after),
        descriptors="%d to %d" % (fds, fds_after),
    )
    log = "".join(i.log() for i in t.instances + t.gone)
    t.check(under_load or during or after, "the fault was not under load")
    t.check(re.search(said, log, re.I), "the log does not say %r" % said)
    # What takes all keys' broker or service away may last as long as it does on this machine.
    limit = 30 + (to_us - from_us) / 1e6
    t.check(silence < limit, "innocent keys stood still for %.1f s" % silence)
    t.check(fds_after <= fds + 24, "descriptors: %d before, %d after" % (fds, fds_after))
    t.check(rss_after <= 2 * rss + 64, "memory: %d MB before, %d MB after" % (rss, rss_after))


def one(rig, cell, say=print):
    """Runs a cell. Returns its line of the results."""
    way, name, fault, said, loses = cell
    begun, result = time.monotonic(), {}

    def function(t):
        result["t"] = t
        run_cell(t, way, fault, said, loses)

    function.__name__ = re.sub(r"\W+", "_", "%s__%s" % (way, name))
    passed = scenario.run_one(rig, function)
    t = result.get("t")
    return {
        "way": way,
        "fault": name,
        "passed": passed,
        "seconds": round(time.monotonic() - begun),
        "commit": commit(),
        "figures": t.figures if t else {},
        "violations": [v[:500] for v in t.violations] if t else [],
    }


def git(*words):
    said = subprocess.run(["git", "-C", ROOT] + list(words), stdout=subprocess.PIPE, text=True)
    return said.stdout.strip()


def commit():
    return git("log", "-1", "--format=%h") or "unknown"


def commits():
    return int(git("rev-list", "--count", "HEAD") or 0)


def read(path):
    """Returns the last line of each cell in a file of results."""
    found = {}
    if os.path.exists(path):
        with open(path, encoding="utf-8") as f:
            for line in f:
                r = json.loads(line)
                found[r["way"], r["fault"]] = r
    return found


# --- the page -------------------------------------------------------------------------------------


def page(results, path):
    with open(path, encoding="utf-8") as f:
        head = f.read().split("<!-- results -->")[0]
    lines = [head + "<!-- results -->", ""]
    every, passed = cells(), [r for r in results.values() if r["passed"]]
    lines += [
        "%d of %d cells ran, and %d of them passed." % (len(results), len(every), len(passed)),
        "",
    ]
    lines += ["| fault | " + " | ".join(WAYS) + " |", "|---" * (len(WAYS) + 1) + "|"]
    for name in ENGINE:
        marks = [results.get((way, name)) for way in WAYS]
        words = ["not run" if not r else "passed" if r["passed"] else "FAILED" for r in marks]
        lines.append("| %s | %s |" % (name, " | ".join(words)))
    lines += ["", "| way | its own faults: passed | FAILED | not run |", "|---|---|---|---|"]
    for way in WAYS:
        names = [name for w, name, *_ in every[len(ENGINE) * len(WAYS) :] if w == way]
        of = {name: results.get((way, name), {}).get("passed") for name in names}
        row = [", ".join(n for n in names if of[n] is x) for x in (True, False, None)]
        lines.append("| %s | %s |" % (way, " | ".join(row)))
    columns = (
        "messages faults dead lost overlaps misordered reruns_of_killed reruns during"
        " silence_s recovery_s rss_mb descriptors"
    ).split()
    lines += [
        "",
        "| way | fault | " + " | ".join(c.replace("_", " ") for c in columns) + " |",
        "|---" * (len(columns) + 2) + "|",
    ]
    for way, name, *_ in every:
        r = results.get((way, name))
        if r and r["figures"].get("messages"):
            cells_ = [str(r["figures"].get(c, "")) for c in columns]
            lines.append("| %s | %s | %s |" % (way, name, " | ".join(cells_)))
    red = [r for r in results.values() if not r["passed"]]
    if red:
        lines += ["", "What the cells that failed said:", ""]
    for r in red:
        what = "; ".join(r["violations"])[:300].replace("\n", " ").replace("|", "\\|")
        lines.append("- %s, %s: `%s`" % (r["way"], r["fault"], what.replace("`", "'")))
    with open(path, "w", encoding="utf-8") as f:
        f.write("\n".join(lines) + "\n")


def main():
    if sys.argv[1:2] == ["--page"]:
        page(read(sys.argv[2]), sys.argv[3])
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    build, path = sys.argv[1], None
    chosen = cells()
    if sys.argv[2:3] == ["--cell"]:
        chosen = [c for c in chosen if (c[0], c[1]) == tuple(sys.argv[3:5])]
    elif len(sys.argv) > 2:
        path = sys.argv[2]
        have = {name for name, r in read(path).items() if r["passed"]}
        part, parts = map(int, (sys.argv[3:4] or ["1/1"])[0].split("/"))
        chosen = [c for c in chosen[part - 1 :: parts] if (c[0], c[1]) not in have]
    else:
        random.Random(0).shuffle(chosen)
        turn = AT_ONCE * commits()
        chosen = [chosen[(turn + i) % len(chosen)] for i in range(AT_ONCE)]
    rig, failed = scenario.Rig(build), 0
    try:
        for cell in chosen:
            line = one(rig, cell)
            failed += not line["passed"]
            if path:
                with open(path, "a", encoding="utf-8") as f:
                    f.write(json.dumps(line) + "\n")
    finally:
        rig.close(keep=failed > 0)
    print("%d cells passed, %d failed" % (len(chosen) - failed, failed))
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
