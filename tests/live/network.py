#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A bad network between the workers and Redis: 200 ms more each way, connections that are cut, connections that stay silent for good.
Nothing is lost, no leases overlap, order is kept, and work goes on soon after. Arguments: build folder [scenario…]. Without names: over TLS;
LW_MORE=1: plain TCP, too."""
import os
import subprocess
import time

from lib.process import boot_us, wait_until
from lib.proxy import Proxy
from lib.redis import PASSWORD
from lib.scenario import SOAK, main, more, scenario
from lib.sentinel import free_port

HERE = os.path.dirname(os.path.abspath(__file__))
RATE = 300
DELAY_S = 0.2
HOLE_S = 6  # longer than a worker waits for an answer, and than the TTL
BACK_S = 2 + 10  # the most seconds until work goes on: lock.ttl_ms, and ten seconds
SECONDS = 30


def start(t, tls):
    """Workers behind a proxy, under load."""
    port = free_port()
    if tls:
        certs = os.path.join(t.dir, "certs")
        os.makedirs(certs)
        subprocess.run([os.path.join(HERE, "..", "support", "certs.sh"), certs], check=True)
        t.start_redis("--tls-port", str(port), "--tls-auth-clients", "no", "--tls-ca-cert-file", certs + "/ca.pem", "--tls-cert-file",
                      certs + "/server.pem", "--tls-key-file", certs + "/server.key")
    else:
        t.start_redis("--port", str(port), "--bind", "127.0.0.1")
    proxy = Proxy(port)
    t.make_topics()
    place = {"url": "%s://127.0.0.1:%d" % ("rediss" if tls else "redis", proxy.port), "username": t.id, "password": PASSWORD}
    run = t.start(redis=dict(place, tls={"ca_file": certs + "/ca.pem"}) if tls else place)
    run.wait_workers(4)
    t.generate(RATE * SECONDS * SOAK, keys=200, rate=RATE, wait=False)
    wait_until(lambda: t.ends_so_far() > RATE, 60, "load", 0.02)
    return proxy, run


def back_at_work(t, since_us):
    """Waits until a run begins after `since_us`, when the network is well again. Returns the seconds between the two."""
    start_us = wait_until(lambda: next((r.start_us for r in t.runs() if r.start_us > since_us), 0), 60, "run after the fault", 0.05)
    return (start_us - since_us) / 1e6


def slow(t, proxy):
    proxy.delay_s = DELAY_S
    time.sleep(2)  # by now, everything that was sent without the delay has ended
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
    proxy, run = start(t, tls)
    before = sorted(run.workers())
    n, pauses = 0, []
    for _ in range(SOAK):
        slow(t, proxy)
        cuts, pause = cut(t, proxy)
        n += cuts
        pauses += [pause, hole(t, proxy)]
    t.check(t.producing(), "the load ended too early")
    t.same(sorted(run.workers()), before, "workers: none ended because of this")
    t.wait_finished(240)
    t.judge_idle()
    run.stop()
    t.judge()
    proxy.close()
    t.check(max(pauses) <= BACK_S, "back at work only after %.1f s" % max(pauses))
    t.figure(cut=n, megabytes="%.1f" % (proxy.relayed / 1e6), back_after=" ".join("%.1f" % p for p in pauses) + " s")


@scenario
def bad_network_tls(t):
    faults(t, True)


@more
def bad_network(t):
    faults(t, False)


if __name__ == "__main__":
    main()
