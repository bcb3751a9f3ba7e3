#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the handler `insert` with SQLite while its database cannot be used. `max_attempts` is 1, so
a fault that counted an attempt would make a dead letter.
Usage: test_sqlite.py [BUILD [SCENARIO…]]"""

import os
import sqlite3

from lib.process import wait_until
from lib.scenario import main, scenario

ONCE = {"max_attempts": 1, "backoff_ms": 20}


def ask(path, sql):
    db = sqlite3.connect(path, timeout=30, isolation_level=None)
    try:
        return db.execute(sql).fetchall()
    finally:
        db.close()


def start(t, path):
    section = {
        "type": "insert",
        "store": "sqlite:" + path,
        "table": "orders",
        "create": True,
        "columns": {"seq": "/seq"},
        "primary_key": ["seq"],
        "on_conflict": "dead",
    }
    run = t.start(handler=section, retry=ONCE, workers=2)
    run.wait_workers(2)
    return run


def send_rows(t, first, n):
    rows = [(i % 4, b"k%d" % (i % 100), b'{"seq":%d}' % i) for i in range(first, first + n)]
    t.kafka.produce(t.topics[0], rows)


@scenario
def outages(t):
    """The table is dropped and made again, another process holds the lock for longer than a
    transaction waits, and the file is moved away and back. Each time messages arrive meanwhile.
    Nothing is lost, done for a file that nobody sees, or a dead letter."""
    path = os.path.join(t.dir, "orders.db")
    t.start_redis()
    t.make_topics(1)
    run = start(t, path)
    send_rows(t, 0, 500)
    t.wait_finished()

    ask(path, "ALTER TABLE orders RENAME TO away")
    send_rows(t, 500, 500)
    wait_until(lambda: "no such table" in run.log(), 30, "the missing table is noticed")
    wait_until(lambda: "pausing for 500 ms" in run.log(), 30, "a second trial")
    ask(path, "ALTER TABLE away RENAME TO orders")
    t.wait_finished()

    lock = sqlite3.connect(path, timeout=30, isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    send_rows(t, 1000, 500)
    wait_until(lambda: "database is locked" in run.log(), 60, "the lock is noticed")
    lock.execute("ROLLBACK")
    lock.close()
    t.wait_finished()

    os.rename(path, path + ".away")
    send_rows(t, 1500, 500)
    wait_until(lambda: "was removed or replaced" in run.log(), 30, "the removal is noticed")
    os.rename(path + ".away", path)
    t.wait_finished()

    run.stop()
    t.same(t.dead_letters(), [], "dead letters")
    t.same(ask(path, "SELECT count(*), max(seq) FROM orders"), [(2000, 1999)], "rows")
    t.same(ask(path, "SELECT sum(n) FROM latchwork_count"), [(2000,)], "latchwork_count")


@scenario
def replaced(t):
    """Another database is renamed over the file. Workers write nothing that counts as done, until
    they are restarted."""
    path = os.path.join(t.dir, "orders.db")
    t.start_redis()
    t.make_topics(1)
    run = start(t, path)
    send_rows(t, 0, 500)
    t.wait_finished()
    ask(path, "VACUUM INTO '%s.copy'" % path)
    os.rename(path + ".copy", path)
    send_rows(t, 500, 500)
    wait_until(lambda: "was removed or replaced" in run.log(), 30, "the new file is noticed")
    run.stop()
    for suffix in ("-wal", "-shm"):
        if os.path.exists(path + suffix):
            os.unlink(path + suffix)
    run = start(t, path)
    t.wait_finished()
    run.stop()
    t.same(ask(path, "SELECT count(*) FROM orders"), [(1000,)], "rows")


if __name__ == "__main__":
    main()
