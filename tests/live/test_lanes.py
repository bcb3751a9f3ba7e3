#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The promises without faults of servers: no faults, deploys, rebalances, a slow handler, foreign metadata. Arguments: build folder [scenario…]."""
import re

from lib.scenario import SOAK, main, scenario

SUMMARY = re.compile(r"^done (\d+) dead (\d+) dropped (\d+) skipped (\d+) parked (\d+) drained (\d+) re-runs (\d+)  in [0-9.]+ s  \((\d+) msg/s\)$")


@scenario
def no_faults_drain(t):
    """O1, O2, O5: all runs once, in order, alone; --drain ends with 0 and counts right."""
    t.start_redis()
    t.make_topics()
    t.generate(12000 * SOAK, keys=300)
    sampler = t.sample_commits()
    status, out = t.start("--drain").wait(120 * SOAK)
    t.same(status, 0, "status of --drain")
    runs, again = t.judge(samples=sampler.end())
    t.same(again, [], "re-runs")
    t.same(len(runs), 12000 * SOAK, "runs")
    found = SUMMARY.match(out.strip())
    if not found:
        t.check(False, "the summary line is %r" % out)
        return
    done, dead, dropped, skipped, parked, drained, reruns, rate = map(int, found.groups())
    t.same((done, dead, dropped, skipped, reruns), (len(runs), 0, 0, 0, 0), "summary")
    # a message that was delivered again while it waited is counted as parked again: workers that start one by one rebalance
    t.check(parked >= drained, "drained %d, but parked %d" % (drained, parked))
    t.same(len([r for r in runs if r.attempt != 1]), 0, "attempts beyond the first")
    t.check(drained > 0, "nothing was ever parked: the test does not test much")
    t.figure(parked=parked, drained=drained, per_second=rate)


@scenario
def no_faults_idle(t):
    """O4: when all is done, no lock, no waiting list, no lane, no hint and no try is left in Redis."""
    t.start_redis()
    t.make_topics()
    run = t.start()
    t.generate(4000 * SOAK, keys=50, rate=1500)
    t.wait_finished()
    t.judge_idle()
    run.stop()
    _, again = t.judge()
    t.same(again, [], "re-runs")
    t.figure(keys_left=len(t.redis.keys()))


if __name__ == "__main__":
    main()
