# SPDX-License-Identifier: Apache-2.0
"""Functions for processes, clocks and waiting."""

import glob
import os
import signal
import time


class Failure(Exception):
    """The exception that is raised if a promise was broken, or if the test itself could not
    continue."""


def boot_us():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


class Limit:
    """A time limit that only turns a hang into a failure, and so must not depend on what else the
    machine does: while n processes share a processor, a second counts as 1/n of a second."""

    def __init__(self, limit_s):
        self.left_s, self.seen = limit_s, time.monotonic()

    def over(self):
        now = time.monotonic()
        with open("/proc/loadavg") as f:
            running = int(f.read().split()[3].split("/")[0])
        self.left_s -= (now - self.seen) * min(1, os.cpu_count() / max(1, running))
        self.seen = now
        return self.left_s < 0


def wait_until(ready, limit_s, what, every_s=0.1):
    """Calls ready() until it returns a true value, and returns that value. If the limit is over
    first, raises a Failure that names the awaited condition."""
    limit = Limit(limit_s)
    while True:
        value = ready()
        if value:
            return value
        if limit.over():
            raise Failure("no %s within %g s" % (what, limit_s))
        time.sleep(every_s)


def stat(pid):
    """Returns (state, pid of the parent) of a process, or None if the process does not exist."""
    try:
        with open("/proc/%d/stat" % pid) as f:
            fields = f.read().rsplit(")", 1)[1].split()
        return fields[0], int(fields[1])
    except (OSError, IndexError):
        return None


def alive(pid):
    s = stat(pid)
    return bool(s) and s[0] not in "ZX"


def children(pid):
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            s = stat(int(name))
            if s and s[1] == pid and s[0] not in "ZX":
                found.append(int(name))
    return found


def descendants(pid):
    found = []
    for child in children(pid):
        found += [child] + descendants(child)
    return found


def listens(pid, port):
    """Returns True if the process has the socket that listens on this TCP port of IPv4."""
    with open("/proc/net/tcp") as f:
        rows = [line.split() for line in f.readlines()[1:]]
    sockets = {"socket:[%s]" % r[9] for r in rows if r[1].endswith(":%04X" % port) and r[3] == "0A"}
    folder = "/proc/%d/fd" % pid
    for fd in os.listdir(folder):
        try:
            if os.readlink(os.path.join(folder, fd)) in sockets:
                return True
        except OSError:
            pass  # The process has closed the descriptor since os.listdir() listed it.
    return False


def send(pid, sig):
    """Sends a signal. Returns True if the process existed."""
    try:
        os.kill(pid, sig)
        return True
    except ProcessLookupError:
        return False


def stop(*pids):
    """Sends SIGSTOP, and returns the time (boot_us) at which all threads have stopped: on a busy
    machine they go on until one of them gets the processor and takes the signal."""
    for pid in pids:
        send(pid, signal.SIGSTOP)

    def all_stopped():
        states = []
        for path in (p for pid in pids for p in glob.glob("/proc/%d/task/*/stat" % pid)):
            try:
                with open(path) as f:
                    states.append(f.read().rpartition(")")[2].split()[0])
            except OSError:
                continue  # the thread has ended
        return all(s in "TtZX" for s in states)

    wait_until(all_stopped, 60, "that the processes %s have stopped" % (pids,), 0.002)
    return boot_us()


def end_popen(popen, grace_s):
    """Sends SIGTERM, and also SIGKILL if the process still runs after grace_s seconds. Returns the
    exit status."""
    if popen.poll() is None:
        send(popen.pid, signal.SIGTERM)
        try:
            popen.wait(grace_s)
        except Exception:
            send(popen.pid, signal.SIGCONT)
            popen.kill()
            popen.wait(10)
    return popen.returncode
