#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the live scenarios of one cell, which is a combination of distribution, server, librdkafka
and Kafka (matrix.py), on one broker. The scenarios are some of those in tests/live: a run without
faults, which ends with a drain, and runs in which workers are killed, Redis is wiped, Redis is
killed, partitions are rebalanced, or operators use their commands.
usage: tests/matrix/live.py [BUILD [SCENARIO…]]"""

import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../live"))
import lib.scenario  # noqa: E402
import test_kafka  # noqa: E402,F401
import test_kills  # noqa: E402,F401
import test_lanes  # noqa: E402,F401
import test_operator  # noqa: E402,F401
import test_redis  # noqa: E402,F401

CHOSEN = [
    "no_faults_drain",
    "kill_workers",
    "flushall_twice",
    "redis_killed_everysec",
    "rebalances",
    "pauses_and_breaks_under_load",
]

if __name__ == "__main__":
    sys.argv = (sys.argv + ["build"])[:2] + (sys.argv[2:] or CHOSEN)
    known = {s.__name__ for s in lib.scenario.scenarios}
    unknown = [name for name in sys.argv[2:] if name not in known]
    if unknown:
        sys.exit("live.py: no scenario " + ", ".join(unknown))
    lib.scenario.main()
