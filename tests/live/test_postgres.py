#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the handler `insert` with a real PostgreSQL, while workers, connections and the server
itself die. Scenarios with `max_attempts` 1 show that a fault counts no attempt, because otherwise
there would be a dead letter.
Usage: test_postgres.py [BUILD [SCENARIO…]]"""

import json
import os
import random
import signal
import subprocess
import time

from lib import orders
from lib.latchwork import config
from lib.postgres import Postgres
from lib.ports import free_port
from lib.process import send, stop, wait_until
from lib.scenario import SOAK, main, scenario

ONCE = {"max_attempts": 1, "backoff_ms": 20}


def write_private(path, text):
    with open(path, "w") as f:
        f.write(text)
    os.chmod(path, 0o600)


def handler(url, on_conflict="update", key="id", **more):
    columns = {"id": "/id", "seq": "/seq", "amount": "/amount"}
    return dict(
        {
            "type": "insert",
            "store": url,
            "table": "orders",
            "columns": columns,
            "primary_key": [key],
            "on_conflict": on_conflict,
        },
        **more,
    )


def check_connect(t, section):
    """Returns all that `check --connect` prints with `section` as the handler's settings."""
    path = os.path.join(t.dir, "check.json")
    with open(path, "w") as f:
        json.dump(config(t.id, t.kafka.brokers, t.redis.url, t.topics, handler=section), f)
    told = subprocess.run(
        [os.path.join(t.rig.build, "latchwork"), "check", "-c", path, "--connect"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
    )
    return told.stdout


def make_table(pg, key="id"):
    """Makes the table, and a second table that records every write to the first one, so that rows
    which were overwritten later can be checked too."""
    pg.sql(
        """
        CREATE TABLE orders (id text, seq bigint, amount integer, PRIMARY KEY (%s));
        CREATE TABLE history (n bigserial PRIMARY KEY, id text, seq bigint);
        CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS
            $$ BEGIN INSERT INTO history (id, seq) VALUES (NEW.id, NEW.seq); RETURN NULL; END $$;
        CREATE TRIGGER note AFTER INSERT OR UPDATE ON orders FOR EACH ROW EXECUTE FUNCTION note();
    """
        % key
    )


def judge_table(t, pg, messages):
    """Checks the table and its history. Also checks that no message is a dead letter, and that each
    message is counted once."""
    history = [(key, int(seq)) for key, seq in pg.sql("SELECT id, seq FROM history ORDER BY n")]
    table = [
        (key, int(seq), int(amount))
        for key, seq, amount in pg.sql("SELECT id, seq, amount FROM orders")
    ]
    orders.judge(t, history, table, messages)
    t.same(t.dead_letters(), [], "dead letters")
    counted = pg.sql("SELECT coalesce(sum(n), 0) FROM latchwork_count")
    t.same(counted, [[str(messages)]], "latchwork_count")


def under_load(t, url, messages, rate, keys=300, **start):
    """Starts Redis and workers whose handler writes to the database, and produces messages in the
    background. Returns the workers."""
    t.start_redis()
    t.make_topics(1)
    run = t.start(handler=handler(url), **start)
    run.wait_workers(4)
    t.generate(messages, keys=keys, rate=rate, partitioner="key", wait=False)
    return run


def finish(t, run, pg, messages):
    t.wait_finished()
    run.stop()
    judge_table(t, pg, messages)


def disturb(t, every_s, fault):
    """Calls fault() every `every_s` seconds while there is load, and at least three times. Returns
    the number of calls."""
    n = 0
    while t.producing() or n < 3:
        time.sleep(every_s)
        fault()
        n += 1
    return n


@scenario
def workers_killed(t):
    """A random worker is killed by kill -9 every 1.5 s. The messages that it had in flight must be
    redelivered, and each message must take effect once."""
    with Postgres() as pg:
        make_table(pg)
        run = under_load(t, pg.url, 12000 * SOAK, 1500, keys=400)
        t.figure(kills=disturb(t, 1.5, lambda: run.kill_worker(random.choice(run.workers()))))
        finish(t, run, pg, 12000 * SOAK)


@scenario
def same_rows_from_two_groups(t):
    """Two applications read the same two topics and write the same rows. Each row must be in the
    table once, and neither application may fail."""
    with Postgres() as pg:
        t.start_redis()
        t.make_topics(2)
        section = handler(pg.url, "ignore", "seq", create=True)
        run = t.start(handler=section, retry=ONCE)
        other = t.start(
            "--set",
            "name=" + t.id + "-other",
            handler=section,
            retry=ONCE,
            redis={"url": t.redis.url},
            kafka={"properties": {"group.id": t.id + "-other"}},
        )
        t.generate(8000 * SOAK, keys=300, rate=2000, wait=False)
        t.wait_finished()
        wait_until(
            lambda: (
                pg.sql("SELECT coalesce(sum(n), 0) FROM latchwork_count") == [[str(16000 * SOAK)]]
            ),
            60,
            "end of the other group",
        )
        for instance in (run, other):
            instance.stop()
        t.same(
            pg.sql("SELECT count(*), count(DISTINCT seq), max(seq::bigint) FROM orders"),
            [[str(8000 * SOAK), str(8000 * SOAK), str(8000 * SOAK - 1)]],
            "rows",
        )
        t.same(t.dead_letters(), [], "dead letters")


@scenario
def server_restarted(t):
    """The server crashes twice. It comes back at once the first time, and after 4 s the second
    time. Messages must wait, and no attempt may be counted."""
    with Postgres() as pg:
        make_table(pg)
        run = under_load(t, pg.url, 9000 * SOAK, 900, retry=ONCE)
        for away_s in (0.2, 4):
            time.sleep(2)
            before = pg.sql("SELECT count(*) FROM history")
            pg.kill()
            time.sleep(away_s)
            pg.start()
            wait_until(
                lambda before=before: pg.sql("SELECT count(*) FROM history") > before,
                60,
                "messages after the restart",
            )
        finish(t, run, pg, 9000 * SOAK)
        t.check("pausing for" in run.log(), "no outage was logged")
        t.figure(pauses=run.log().count("pausing for"))


@scenario
def connections_ended(t):
    """An administrator ends all connections every 0.7 s. The handlers must reconnect, and no
    attempt may be counted."""
    with Postgres() as pg:
        make_table(pg)
        run = under_load(t, pg.url, 9000 * SOAK, 1500, retry=ONCE)
        t.figure(times=disturb(t, 0.7, pg.end_backends))
        finish(t, run, pg, 9000 * SOAK)


@scenario
def behind_pgbouncer(t):
    """PgBouncer is in transaction mode and has fewer connections than there are threads. The
    server's connections are ended now and then. Each message must still take effect once."""
    with Postgres() as pg:
        make_table(pg)
        pg.start_bouncer()
        run = under_load(t, pg.bouncer_url, 9000 * SOAK, 1500, retry=ONCE)
        t.figure(times=disturb(t, 1.5, pg.end_backends))
        finish(t, run, pg, 9000 * SOAK)


def tangle(pg):
    """Locks rows of the table `orders`, which has a column `touched`, in random order, and waits
    for a deadlock until PostgreSQL ends the other session."""
    ids = pg.sql("SELECT id FROM orders ORDER BY random() LIMIT 12")
    pg.psql(
        "BEGIN; SET LOCAL deadlock_timeout = '20s'; %s; COMMIT"
        % "; ".join(
            "UPDATE orders SET touched = 1 WHERE id = '%s'; SELECT pg_sleep(0.02)" % i
            for (i,) in ids
        )
    )


@scenario
def deadlocks(t):
    """Other sessions update the same rows in random order. PostgreSQL ends some of the handler's
    transactions, which must be repeated."""
    with Postgres() as pg:
        make_table(pg)
        pg.sql(
            "ALTER TABLE orders ADD COLUMN touched integer; DROP TRIGGER note ON orders;"
            "CREATE TRIGGER note AFTER INSERT OR UPDATE OF seq ON orders FOR EACH ROW EXECUTE FUNCTION note()"
        )
        run = under_load(t, pg.url, 9000 * SOAK, 1500, keys=40, retry=ONCE)

        disturb(t, 0.05, lambda: tangle(pg))
        finish(t, run, pg, 9000 * SOAK)
        found = int(
            pg.sql("SELECT deadlocks FROM pg_stat_database WHERE datname = 'postgres'")[0][0]
        )
        t.figure(deadlocks=found)
        t.check(found, "there was no deadlock")


@scenario
def stopped_workers_are_stale(t):
    """A worker is stopped while it waits for the store, and continues only when other workers have
    taken over its partitions and keys. Its late writes must be refused."""
    with Postgres() as pg:
        make_table(pg)
        run = under_load(
            t,
            pg.url,
            9000 * SOAK,
            1000,
            keys=40,
            lock={"ttl_ms": 500},
            kafka={"properties": {"session.timeout.ms": "1000", "heartbeat.interval.ms": "200"}},
        )
        n = 0
        while t.producing() or n < 3:
            wait_until(lambda: len(run.workers()) == 4, 30, "workers")
            # Lock a table, so that every statement of a handler waits while the handler's lease is
            # live.
            gate = pg.hold("LOCK TABLE latchwork_fences")
            time.sleep(0.2)
            pid = random.choice(run.workers())
            t.stops.append((pid, stop(pid)))
            pg.release(gate)
            time.sleep(2.2)
            send(pid, signal.SIGCONT)
            n += 1
        finish(t, run, pg, 9000 * SOAK)
        t.figure(stops=n)


@scenario
def tls_and_passwords(t):
    """TLS with a verified certificate must work. The password may come from a file, which the URL
    or PGPASSFILE names. `check --connect` must refuse a wrong authority and a wrong password, and
    must not print a password."""
    with Postgres() as pg:
        port = free_port()
        pg.stop()
        pg.listen(port)
        pg.start()
        make_table(pg)
        pg.sql(
            "CREATE ROLE loader LOGIN PASSWORD 'geheim'; GRANT CREATE ON SCHEMA public TO loader; GRANT ALL ON orders, history TO loader;"
            "GRANT USAGE ON SEQUENCE history_n_seq TO loader"
        )
        write_private(pg.dir + "/password", "geheim\n")
        write_private(pg.dir + "/pgpass", "127.0.0.1:%d:postgres:loader:geheim\n" % port)
        t.start_redis()
        t.make_topics(1)
        form = "postgres://loader%s@127.0.0.1:%d/postgres?sslmode=verify-full&sslrootcert=%s/%s.pem"
        good = form % (":${file:%s/password}" % pg.dir, port, pg.dir, "ca")
        for url, why in (
            (good, None),
            (form % (":geheim", port, pg.dir, "other-ca"), "certificate verify failed"),
            (form % (":falsch", port, pg.dir, "ca"), "password authentication failed"),
        ):
            told = check_connect(t, handler(url))
            t.check((why or "handler: insert opens") in told, "check says: " + told)
            t.check(
                "geheim" not in told and "falsch" not in told, "check shows a password: " + told
            )
        half = 2000 * SOAK
        for environment, url in (
            ({}, good),
            ({"PGPASSFILE": pg.dir + "/pgpass"}, form % ("", port, pg.dir, "ca")),
        ):
            t.tools = []
            run = t.start(handler=handler(url), retry=ONCE, environment=environment)
            t.generate(half, keys=300, partitioner="key")
            t.wait_finished()
            run.stop()
            t.check("geheim" not in run.log(), "the log shows a password")
        t.same(pg.sql("SELECT sum(n) FROM latchwork_count"), [[str(2 * half)]], "messages")


@scenario
def bad_rows(t):
    """Every 25th message does not fit the table. Exactly these messages must become dead letters,
    each with PostgreSQL's reason."""
    with Postgres() as pg:
        pg.sql(
            "CREATE TABLE orders (id text, seq bigint PRIMARY KEY, amount integer NOT NULL CHECK (amount >= 0))"
        )
        t.start_redis()
        t.make_topics(1)
        wrong = ['"x"', "-1", "null", "99999999999"]
        bodies = [
            '{"id":"k%d","seq":%d,"amount":%s}'
            % (i % 300, i, wrong[i // 25 % 4] if i % 25 == 7 else i)
            for i in range(4000)
        ]
        t.kafka.produce(
            t.topics[0],
            [(i % 4, b"k%d" % (i % 300), body.encode()) for i, body in enumerate(bodies)],
        )
        run = t.start(handler=handler(pg.url, "dead", "seq"), retry=ONCE)
        t.wait_finished()
        run.stop()
        reasons = sorted(d[b"reason"].decode() for d in t.dead_letters())
        t.same(pg.sql("SELECT count(*) FROM orders"), [["3840"]], "rows")
        t.same(len(reasons), 160, "dead letters")
        for part in (
            'invalid input syntax for type integer: "x"',
            "violates check constraint",
            "violates not-null constraint",
            "is out of range for type integer",
        ):
            t.same(sum(part in r for r in reasons), 40, part)
        t.same(
            pg.sql("SELECT count(*) FROM latchwork_seen"),
            [["0"]],
            "identities after the last commit",
        )


@scenario
def refused_by_a_policy(t):
    """Row-level security refuses every 100th row, with the SQLSTATE of a right that is missing for
    all. Then all rights are revoked for a while. Exactly the refused messages are dead letters."""
    with Postgres() as pg:
        make_table(pg, "seq")
        pg.sql(
            """
            CREATE ROLE loader LOGIN; GRANT ALL ON orders, history, history_n_seq TO loader;
            GRANT CREATE, USAGE ON SCHEMA public TO loader;
            ALTER TABLE orders ENABLE ROW LEVEL SECURITY;
            CREATE POLICY w ON orders FOR INSERT TO loader WITH CHECK (seq % 100 <> 7);
            CREATE POLICY r ON orders FOR SELECT TO loader USING (true)
        """
        )
        t.start_redis()
        t.make_topics(1)
        url = "postgres://loader@" + pg.url.split("@", 1)[1]
        run = t.start(handler=handler(url, "ignore", "seq"), retry=ONCE)
        run.wait_workers(4)

        def send_rows(first):
            rows = [
                (i % 4, b"k%d" % i, b'{"id":"k%d","seq":%d,"amount":1}' % (i, i))
                for i in range(first, first + 1000)
            ]
            t.kafka.produce(t.topics[0], rows)

        send_rows(0)
        t.wait_finished()
        t.same(len(t.dead_letters()), 10, "dead letters")
        pg.sql("REVOKE INSERT ON orders FROM loader")
        send_rows(1000)
        wait_until(lambda: "pausing for 500 ms" in run.log(), 30, "an outage")
        t.same(len(t.dead_letters()), 10, "dead letters while nobody may write")
        pg.sql("GRANT INSERT ON orders TO loader")
        t.wait_finished()
        run.stop()
        t.same(pg.sql("SELECT count(*) FROM orders"), [["1980"]], "rows")
        t.same(len(t.dead_letters()), 20, "dead letters")
        for d in t.dead_letters():
            t.check(b"row-level security" in d[b"reason"], d[b"reason"])


if __name__ == "__main__":
    main()
