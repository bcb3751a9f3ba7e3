#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A handler for the benchmark, made with the Python SDK. The argument is the work per message in
µs. If the argument is 0, the handler is a function that does nothing; otherwise the handler is a
coroutine that sleeps for that time."""

import asyncio
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../sdk/python"))
import latchwork  # noqa: E402 (the path above must be there first)

WORK_S = int(sys.argv[1]) / 1e6


def nothing(_):
    pass


async def wait(_):
    await asyncio.sleep(WORK_S)


latchwork.handler(wait if WORK_S else nothing)
latchwork.run()
