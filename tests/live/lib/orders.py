# SPDX-License-Identifier: Apache-2.0
"""The table `orders` that handlers of type insert fill in the tests, and the history of all writes
to it. A payload has the fields id, seq and amount."""

import json

from . import oracles


def newest_by_key(t):
    """Returns the reference model, which is the expected contents of the table: the last record of
    each id. In these tests, all records of an id are in one partition."""
    model = {}
    for topic in t.topics:
        for record in t.kafka.dump(topic):
            payload = json.loads(record["payload"])
            at = (record["partition"], record["offset"])
            if payload["id"] not in model or model[payload["id"]][0] < at:
                model[payload["id"]] = (at, payload["seq"], payload["amount"])
    return sorted((k, seq, amount) for k, (_, seq, amount) in model.items())


def judge(t, history, table, messages):
    """O3: checks that each message took effect exactly once, per key in order, and that the table
    has the contents of the reference model. `history` lists (id, seq) in the order of the writes.
    `table` lists (id, seq, amount)."""
    t.expect(oracles.effects(history, messages))
    t.same(sorted(table) == newest_by_key(t), True, "the table equals the reference")
