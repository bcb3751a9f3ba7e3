#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An exec handler that breaks the protocol at random. It journals its runs as work.py does, and in
a second file, whose name ends in ".faults", which fault it did to which message. A message whose
payload begins with "hostile" meets a fault at each attempt; all others are answered well, if the
process lives. The effect of a message, the line "end … done", is always written before the
answer."""

import json
import os
import random
import select
import time

path = os.environ["LW_TEST_JOURNAL"]
flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
journal, faults = os.open(path, flags, 0o644), os.open(path + ".faults", flags, 0o644)
worker = os.getppid()
chance = random.Random(os.getpid())
held, later = [], []  # requests; answers that come late, with their times


def note(what, m, extra=""):
    now_us = time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000
    place = (what, now_us, worker, m["id"], m["key"].encode().hex(), m["fence"], m["attempt"])
    os.write(journal, ("%s %d %d %s %s %s %d" % place + extra + "\n").encode())


def say(text):
    data = text if isinstance(text, bytes) else text.encode()
    while data:
        data = data[os.write(1, data) :]


def answer(m, outcome, reason="", **more):
    line = dict({"id": m["id"], "attempt": m["attempt"], "outcome": outcome}, **more)
    if reason:
        line["reason"] = reason
    return json.dumps(line) + "\n"


def done(m):
    note("end", m, " done")
    say(answer(m, "done"))


def half(m):
    say('{"id":"%s","outc' % m["id"])
    if chance.random() < 0.5:
        os._exit(4)


def late(m):
    if m["attempt"] == 1:
        say(answer(m, "retry", "given up"))
        later.append((time.monotonic() + 0.1, answer(m, "done")))
    else:
        time.sleep(0.2)
        done(m)


def twice(m):
    done(m)
    say(answer(m, "done"))


def wrong_attempt(m):
    say(answer(m, "done", attempt=m["attempt"] + 1) + answer(m, "retry", "tried"))


def mute(m):
    os.close(1)
    time.sleep(5)


FAULTS = {
    "half": half,
    "late": late,
    "twice": twice,
    "wrong_attempt": wrong_attempt,
    "mute": mute,
    "garbage": lambda m: say("this is no answer\n"),
    "foreign": lambda m: say(answer(m, "done", id="elsewhere/0/0")),
    "double": lambda m: say(answer(m, "retry")[:-2] + ',"outcome":"done"}\n'),
    "long": lambda m: say(answer(m, "dead", "x" * (1 << 20))),
    "nul": lambda m: say('{"id":"%s","outcome":"done","x":"\0"}\n' % m["id"]),
    "pair": lambda m: say(answer(m, "dead", "pair \ud83d")),
    "latin": lambda m: say(
        b'{"id":"%s","outcome":"dead","reason":"latin \xe9"}\n' % m["id"].encode()
    ),
    "batch": lambda m: say('{"batch":[%s]}\n' % answer(m, "perhaps")[:-1]),
    "hang": lambda m: None,
    "exit": lambda m: os._exit(3),
}


def end(m):
    if not (m.get("payload") or "").startswith("hostile"):
        done(m)
        return
    fault = chance.choice(sorted(FAULTS))
    os.write(faults, ("%s %s\n" % (m["id"], fault)).encode())
    FAULTS[fault](m)


text, open_ = b"", True
while open_ or held:
    while later and later[0][0] <= time.monotonic():
        say(later.pop(0)[1])
    if open_ and select.select([0], [], [], 0 if held else 0.02)[0]:
        chunk = os.read(0, 1 << 20)
        open_ = bool(chunk)
        *lines, text = (text + chunk).split(b"\n")
        for request in map(json.loads, lines):
            if "cancel" not in request:
                note("start", request)
                held.append(request)
    elif held:
        end(held.pop(chance.randrange(len(held))))
