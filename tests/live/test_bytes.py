#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Measures how much memory a worker needs for large waiting messages.
Usage: test_bytes.py [BUILD [SCENARIO…]]"""

import time

from lib.latchwork import exec_handler
from lib.process import wait_until
from lib.scenario import main, scenario

LANES, EACH, SIZE = 10, 64, 1000000
FILL = """
local lane, body = ARGV[1], '{"pad":"' .. string.rep('x', tonumber(ARGV[3])) .. '"}'
for k = 0, tonumber(ARGV[2]) - 1 do
    local line = string.format('1 %s 1 %d 0 1 1 5 0 0 %d\\nbig-%d',
        KEYS[2], lane * ARGV[2] + k, #body, lane)
    redis.call('LPUSH', KEYS[1] .. 'wait:big-' .. lane, line .. body)
end
redis.call('ZADD', KEYS[1] .. 'lanes', 1, 'big-' .. lane)
"""


def high_water_mb(pid):
    with open("/proc/%d/status" % pid) as f:
        return next(int(line.split()[1]) // 1024 for line in f if line.startswith("VmHWM"))


@scenario
def large_messages_wait(t):
    """Messages of 640 MB in total wait in ten waiting lists. A new worker must take only a few
    messages at a time. It must run each message once, and must run the messages of each key in
    order."""
    t.start_redis()
    t.make_topics(1)
    settings = {"workers": 1, "handler": exec_handler(processes=16), "lock": {"ttl_ms": 4000}}
    first = t.start(**settings)
    first.wait_workers(1)
    wait_until(lambda: t.redis.call("EXISTS", t.prefix() + b"epoch"), 30, "an epoch")
    time.sleep(6)  # Sleep longer than the quarantine of the new epoch.
    first.stop()
    for lane in range(LANES):
        t.redis.call("EVAL", FILL, "2", t.prefix(), t.topics[0], str(lane), str(EACH), str(SIZE))
    state = t.prefix() + b"state:" + t.topics[0].encode() + b":1:0"
    t.redis.call("SET", state, b"\x55" * (LANES * EACH // 4))
    second = t.start(**settings)
    second.wait_workers(1)
    peak = [0]

    def drained():
        peak[0] = max(peak[0], *(high_water_mb(pid) for pid in second.workers()))
        return not t.redis.call("EXISTS", *[t.prefix() + b"wait:big-%d" % k for k in range(LANES)])

    wait_until(drained, 180, "empty waiting lists")
    second.stop()
    runs = t.runs()
    t.same(len(runs), LANES * EACH, "runs")
    offsets = {}
    for run in runs:
        offsets.setdefault(run.key, []).append(int(run.identity.split("/")[2]))
    t.check(all(o == sorted(o) for o in offsets.values()), "a key's messages ran out of order")
    t.same(second.log().count("no answer in"), 0, "answers that came too late")
    t.check(peak[0] < 200, "a worker used %d MB" % peak[0])
    t.figure(peak_mb=peak[0])


if __name__ == "__main__":
    main()
