#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests a bad network between the workers and Redis: 200 ms more in each direction, connections
that are cut, and connections on which no more bytes arrive. No message may be lost, no two leases
of a key may overlap, messages must stay in order, and runs must begin again soon after the fault.
Usage: test_network.py [BUILD [SCENARIO…]]
The default scenarios use TLS. With LW_MORE=1, the scenarios over plain TCP also run."""

import os
import re
import subprocess
import time

from lib.ports import free_port
from lib.process import boot_us, wait_until
from lib.proxy import Proxy
from lib.redis import PASSWORD
from lib.scenario import ENDLESS, SOAK, main, more, scenario

HERE = os.path.dirname(os.path.abspath(__file__))
RATE = 300
DELAY_S = 0.2  # seconds that the network adds in each direction
# The TTL of leases, in ms. An answer takes twice DELAY_S. This time must be less than an eighth of
# the TTL.
TTL_MS = 5000
# The number of seconds for which connections stay up but carry no bytes. This must be longer than
# the TTL, and longer than a worker waits for an answer.
HOLE_S = 8
# The maximum number of seconds after a fault until runs begin again.
BACK_S = TTL_MS / 1000 + 10


def start(t, tls, delay_s=0, **settings):
    """Starts workers whose connections to Redis go through a proxy. Returns the proxy
    and the workers."""
    port = free_port()
    if tls:
        certs = os.path.join(t.dir, "certs")
        os.makedirs(certs)
        subprocess.run([os.path.join(HERE, "..", "support", "certs.sh"), certs], check=True)
        t.start_redis(
            "--tls-port",
            str(port),
            "--tls-auth-clients",
            "no",
            "--tls-ca-cert-file",
            certs + "/ca.pem",
            "--tls-cert-file",
            certs + "/server.pem",
            "--tls-key-file",
            certs + "/server.key",
        )
    else:
        t.start_redis("--port", str(port), "--bind", "127.0.0.1")
    proxy = Proxy(port)
    proxy.delay_s = delay_s
    t.make_topics()
    place = {
        "url": "%s://127.0.0.1:%d" % ("rediss" if tls else "redis", proxy.port),
        "username": t.id,
        "password": PASSWORD,
    }
    run = t.start(
        redis=dict(place, tls={"ca_file": certs + "/ca.pem"}) if tls else place, **settings
    )
    run.wait_workers(4)
    return proxy, run


def back_at_work(t, since_us):
    """Waits for a run that begins after `since_us`, the time at which the network works again.
    Returns the number of seconds from `since_us` to the start of the run."""
    start_us = wait_until(
        lambda: next((r.start_us for r in t.runs() if r.start_us > since_us), 0),
        BACK_S,
        "run after the fault",
        0.05,
    )
    return (start_us - since_us) / 1e6


def slow(t, proxy):
    proxy.delay_s = DELAY_S
    # Some handlers still run messages that were granted before the network became slow. Sleep until
    # these handlers have ended.
    time.sleep(2)
    before = t.ends_so_far()
    wait_until(lambda: t.ends_so_far() > before + 50, 60, "work with a network that is slow")
    time.sleep(2)
    proxy.delay_s = 0


def cut(t, proxy):
    n = 0
    for _ in range(8):
        n += proxy.cut()
        time.sleep(0.3)
    t.check(n >= 8, "no connections to cut: %d" % n)
    return n, back_at_work(t, boot_us())


def hole(t, proxy):
    proxy.swallows = True
    time.sleep(HOLE_S)
    proxy.swallows = False
    return back_at_work(t, boot_us())


def faults(t, tls):
    proxy, run = start(t, tls, lock={"ttl_ms": TTL_MS})
    t.generate(ENDLESS, keys=200, rate=RATE, wait=False)
    wait_until(lambda: t.ends_so_far() > RATE, 60, "load", 0.02)
    before = sorted(run.workers())
    n, pauses = 0, []
    for _ in range(SOAK):
        slow(t, proxy)
        cuts, pause = cut(t, proxy)
        n += cuts
        pauses += [pause, hole(t, proxy)]
    t.same(sorted(run.workers()), before, "workers: none ended because of this")
    t.end_load()
    t.wait_finished(240)
    t.judge_idle()
    run.stop()
    t.judge()
    proxy.close()
    t.figure(
        cut=n,
        megabytes="%.1f" % (proxy.relayed / 1e6),
        back_after=" ".join("%.1f" % p for p in pauses) + " s",
    )


@scenario
def bad_network_tls(t):
    faults(t, True)


@more
def bad_network(t):
    faults(t, False)


@scenario
def too_slow_for_the_ttl(t):
    """If an answer takes longer than an eighth of the TTL, the workers must log the TTL that this
    network needs. When the network is faster again, they must handle messages."""
    proxy, run = start(t, False, delay_s=DELAY_S, lock={"ttl_ms": 2000})
    t.generate(5 * RATE, keys=200, rate=RATE, wait=False)
    wait_until(
        lambda: re.search(
            r"shard 0: the server takes 4\d\d ms to answer, .* set lock.ttl_ms to [56]000 or more",
            run.log(),
        ),
        60,
        "the warning",
    )
    t.same(t.ends_so_far(), 0, "messages handled")
    proxy.delay_s = 0
    t.wait_finished(240)
    run.stop()
    t.judge()
    proxy.close()


if __name__ == "__main__":
    main()
