#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An exec handler for the live tests, made with the Python SDK. Its function is a coroutine that
sleeps, and writes its runs to a journal of the same form as that of work.py. If the payload is
{"do": "exit"}, the first attempt ends the process. If it is {"do": "later"}, the first run asks for
a retry in a second, without an attempt."""

import asyncio
import os
import random
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../sdk/python"))
import latchwork  # noqa: E402

journal = os.open(os.environ["LW_TEST_JOURNAL"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
low_ms, high_ms = (float(x) for x in os.environ.get("LW_TEST_WORK_MS", "0-0").split("-"))


def note(what, m, extra=""):
    now_us = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000
    os.write(
        journal,
        (
            "%s %d %d %s %s %s %d%s\n"
            % (
                what,
                now_us,
                os.getppid(),
                m.id,
                m.key.encode().hex() or "-",
                m.fence,
                m.attempt,
                extra,
            )
        ).encode(),
    )


def asks(m, what):
    value = m.json()
    return isinstance(value, dict) and value.get("do") == what


def first_run(m):
    name = os.environ["LW_TEST_JOURNAL"] + m.id.replace("/", "-")
    try:
        os.close(os.open(name, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


@latchwork.handler
async def handle(m):
    note("start", m)
    print("a print that harms nothing")
    try:
        await asyncio.sleep(random.uniform(low_ms, high_ms) / 1000)
        if m.attempt == 1 and asks(m, "exit"):
            os._exit(3)
        if asks(m, "later") and first_run(m):
            note("end", m, " retry")
            raise latchwork.Retry("not yet", after=1, counts=False)
    except asyncio.CancelledError:
        note("end", m, " back")
        raise
    note("end", m, " done")


latchwork.run()
