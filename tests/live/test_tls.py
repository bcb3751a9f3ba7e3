#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests Redis over TLS, with a user, a password and client certificates: connections are cut,
certificates replaced, passwords rotated.
Usage: test_tls.py [BUILD [SCENARIO…]]"""

import os
import re
import shutil
import signal
import subprocess
import time

from lib.ports import free_port
from lib.process import wait_until
from lib.scenario import NO_LEASE_ENDS, SOAK, main, scenario

HERE = os.path.dirname(os.path.abspath(__file__))


def start(t, messages, rate, **more):
    """Starts a Redis that demands TLS and a client certificate, makes its user, and starts workers
    under load. Returns the workers."""
    folder = os.path.join(t.dir, "certs")
    os.makedirs(folder)
    subprocess.run([os.path.join(HERE, "..", "support", "certs.sh"), folder], check=True)
    for name in ("pem", "key"):
        shutil.copy(os.path.join(folder, "client." + name), os.path.join(folder, "mine." + name))
    shutil.copy(os.path.join(folder, "ca.pem"), os.path.join(folder, "trusted.pem"))
    port = free_port()
    t.certs = folder
    t.start_redis(
        "--tls-port",
        str(port),
        "--tls-ca-cert-file",
        folder + "/ca.pem",
        "--tls-cert-file",
        folder + "/server.pem",
        "--tls-key-file",
        folder + "/server.key",
        "--tls-auth-clients",
        "yes",
    )
    t.redis.call("ACL", "SETUSER", "tester", "on", ">first", "allkeys", "allchannels", "+@all")
    t.password = os.path.join(t.dir, "password")
    write(t.password, "first")
    t.make_topics()
    t.place = {
        "url": "rediss://localhost:%d" % port,
        "username": "tester",
        "password": "${file:%s}" % t.password,
        "tls": {
            "ca_file": folder + "/trusted.pem",
            "cert_file": folder + "/mine.pem",
            "key_file": folder + "/mine.key",
        },
    }
    run = t.start(redis=t.place, **more)
    run.wait_workers(4)
    t.generate(messages, keys=200, rate=rate, wait=False)
    wait_until(lambda: t.ends_so_far() > messages // 20, 60, "load", 0.02)
    return run


def write(path, text):
    with open(path + ".new", "w") as f:
        f.write(text + "\n")
    os.rename(path + ".new", path)


def cut(t):
    """Closes the workers' connections, even in the middle of a pipeline, but not the test's own
    connection over the unix socket. Returns the number of closed connections."""
    return t.redis.call("CLIENT", "KILL", "USER", "tester")


def finish(t, run):
    t.wait_finished()
    t.judge_idle()
    run.stop()
    t.check("first" not in run.log() and "second" not in run.log(), "a password is in the log")
    return t.judge()


@scenario
def cut_in_pipelines(t):
    """Connections over TLS are repeatedly reset under load. Calls that were not answered must be
    sent again, and a call that Redis had already executed must change nothing the second time. No
    lease may end meanwhile, also on a slow machine, because that too runs a message again."""
    run = start(t, 6000 * SOAK, 700, lock=NO_LEASE_ENDS)
    before = sorted(run.workers())
    n = 0
    while t.producing():
        n += cut(t)
        time.sleep(0.3)
    t.same(sorted(run.workers()), before, "workers: none ended because of this")
    _, again = finish(t, run)
    t.same(again, [], "re-runs")
    t.figure(connections_cut=n)


@scenario
def certificates_replaced(t):
    """The client's certificate is replaced by one of another CA. Later the server's certificate is
    replaced by one that has expired. Connections that are up must stay up. New connections must
    fail, and the log must say why. With the right certificates the workers must continue."""
    run = start(t, 6000 * SOAK, 500)
    before = sorted(run.workers())
    for name in ("pem", "key"):
        shutil.copy(
            os.path.join(t.certs, "stranger." + name), os.path.join(t.certs, "mine." + name)
        )
    time.sleep(1)
    t.check(not re.search("TLS: ", run.log()), "connections that are up went down")
    cut(t)
    wait_until(
        lambda: "does not trust the CA of redis.tls.cert_file" in run.log(),
        30,
        "word of a client certificate that is refused",
    )
    for name in ("pem", "key"):
        shutil.copy(os.path.join(t.certs, "client." + name), os.path.join(t.certs, "mine." + name))
    done = t.ends_so_far()
    wait_until(
        lambda: t.ends_so_far() > done + 50, 30, "work after the client's certificate was put right"
    )
    t.redis.call(
        "CONFIG",
        "SET",
        "tls-cert-file",
        t.certs + "/expired.pem",
        "tls-key-file",
        t.certs + "/expired.key",
    )
    cut(t)
    wait_until(
        lambda: "has expired" in run.log(), 30, "word of a server's certificate that has expired"
    )
    t.redis.call(
        "CONFIG",
        "SET",
        "tls-cert-file",
        t.certs + "/server.pem",
        "tls-key-file",
        t.certs + "/server.key",
    )
    done = t.ends_so_far()
    wait_until(
        lambda: t.ends_so_far() > done + 50, 30, "work after the server's certificate was renewed"
    )
    t.same(sorted(run.workers()), before, "workers: none ended because of this")
    finish(t, run)


@scenario
def password_rotated(t):
    """The password is first changed in the order that doc/how-to/redis-tls.md describes. This must
    cause no outage. The password is then changed in the wrong order, which causes an outage until
    the reload."""
    run = start(t, 8000 * SOAK, 400)
    t.redis.call("ACL", "SETUSER", "tester", ">second")
    write(t.password, "second")
    before = set(run.workers())
    os.kill(run.pid, signal.SIGHUP)
    wait_until(
        lambda: len(run.workers()) == 4 and not before & set(run.workers()), 60, "new workers"
    )
    t.redis.call("ACL", "SETUSER", "tester", "<first")
    cut(t)
    done = t.ends_so_far()
    wait_until(lambda: t.ends_so_far() > done + 50, 30, "work with the new password")
    t.check(
        "refuses the user or password" not in run.log(), "the order of the how-to was an outage"
    )
    t.rights_taken = True  # From now on, Redis refuses the workers.
    t.redis.call("ACL", "SETUSER", "tester", "resetpass", ">third")
    cut(t)
    wait_until(
        lambda: re.search("refuses the user or password.*WRONGPASS", run.log()),
        30,
        "word of the password",
    )
    write(t.password, "third")
    before, done = set(run.workers()), t.ends_so_far()
    os.kill(run.pid, signal.SIGHUP)
    wait_until(
        lambda: len(run.workers()) == 4 and not before & set(run.workers()),
        120,
        "new workers once more",
    )
    wait_until(
        lambda: t.ends_so_far() > done + 50 or not t.producing(), 60, "work after the reload"
    )
    finish(t, run)


if __name__ == "__main__":
    main()
