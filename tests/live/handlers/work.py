#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An exec handler for the live tests. It writes its own journal, because a journal that the program
under test writes about itself would prove little:

    start <boot us> <worker pid> <identity> <key in hex, - for empty> <fence> <attempt>
    beat  ...  every 50 ms of work, which shows that the process is alive and at work
    end   ... <outcome>

The program's journal has the same form (consumer/process/journal.h). The variable LW_TEST_JOURNAL
names the file, and LW_TEST_WORK_MS=LO-HI sets the range of the duration of a run. A payload {"do":
WHAT, "times": N, ...} asks for a fault at the first N attempts (default: at every attempt). WHAT is
one of these words:

    retry, dead      answers with that outcome
    sleep            works for the time in "ms"
    exit             ends by exit() with the status in "status"
    crash            ends by SIGSEGV
    hang             never answers
    garbage          answers with text that is not JSON
    foreign          answers with the id of another message
    half             answers with half a line, and ends
    flood            answers with a line that has no end
    child            starts a process in this process group, which writes beats for ever, and then
                     answers done
    child-hang       does the same, but never answers
    loud             writes a lot to stderr, and answers done"""

import base64
import json
import os
import random
import signal
import sys
import time

BEAT_S = 0.05
journal = os.open(os.environ["LW_TEST_JOURNAL"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
low_ms, high_ms = (float(x) for x in os.environ.get("LW_TEST_WORK_MS", "0-0").split("-"))
worker = os.getppid()


def note(what, request, extra=""):
    key = (
        base64.b64decode(request["key_base64"])
        if "key_base64" in request
        else request["key"].encode()
    )
    now_us = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000
    line = "%s %d %d %s %s %s %d%s\n" % (
        what,
        now_us,
        worker,
        request["id"],
        key.hex() or "-",
        request["fence"],
        request["attempt"],
        extra,
    )
    os.write(journal, line.encode())


def work(request, seconds):
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(left, BEAT_S))
        if left > BEAT_S:
            note("beat", request)


def orders(request):
    """Returns what the payload asks for at this attempt, as (WHAT, payload)."""
    payload = request.get("payload")
    if not payload or '"do"' not in payload[:200]:
        return None, {}
    try:
        payload = json.loads(payload)
    except ValueError:
        return None, {}
    if request["attempt"] > payload.get("times", 1 << 30):
        return None, {}
    return payload["do"], payload


def beat_for_ever(request):
    if os.fork() == 0:
        os.close(0)
        os.close(1)
        while True:
            time.sleep(BEAT_S)
            note("beat", request)


def say(text):
    sys.stdout.write(text)
    sys.stdout.flush()


def misbehave(what, payload, request):
    if what == "exit":
        os._exit(payload.get("status", 3))
    if what == "crash":
        os.kill(os.getpid(), signal.SIGSEGV)
    if what in ("child", "child-hang"):
        beat_for_ever(request)
    if what in ("hang", "child-hang"):
        while True:
            work(request, 1000)
    if what == "garbage":
        say("this is no answer\n")
    elif what == "foreign":
        say('{"id":"elsewhere/0/0","outcome":"done"}\n')
    elif what == "half":
        say('{"id":"')
        os._exit(0)
    elif what == "flood":
        while True:
            say("x" * 65536)
    elif what == "loud":
        sys.stderr.write("a line on stderr, which is no failure\n" * 2000)
        sys.stderr.flush()
    elif what == "sleep":
        work(request, payload["ms"] / 1000)


def run(request):
    """Runs one message. Returns True if it is done."""
    note("start", request)
    what, payload = orders(request)
    outcome = what if what in ("retry", "dead") else "done"
    if what and outcome == "done":
        misbehave(what, payload, request)
        if what in ("garbage", "foreign"):
            return False
    work(request, random.uniform(low_ms, high_ms) / 1000)
    note("end", request, " " + outcome)
    answer = {"id": request["id"], "outcome": outcome}
    if outcome != "done":
        answer["reason"] = (
            "the payload says "
            + outcome
            + "".join("; %s is %s" % tuple(h) for h in request["headers"])
        )
    say(json.dumps(answer) + "\n")
    return outcome == "done"


for text in sys.stdin.buffer:
    message = json.loads(text)
    # A cancel needs no reply, because a handler that ignores it is killed before the lease ends.
    if "cancel" not in message:
        # The first message of a batch that is not done ends the batch.
        all(run(one) for one in message.get("batch", [message]))
