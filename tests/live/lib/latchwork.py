# SPDX-License-Identifier: Apache-2.0
"""Runs the program under test: makes its configuration, and starts and stops its processes."""

import http.client
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request

from .process import Failure, Limit, alive, boot_us, children, descendants, send, wait_until

HANDLERS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "handlers")


def exec_handler(name="work.py", processes=4, **more):
    # The tests start hundreds of handler processes, and Python starts faster with the options -S
    # and -E.
    return dict(
        {
            "type": "exec",
            "command": [sys.executable, "-S", "-E", os.path.abspath(os.path.join(HANDLERS, name))],
            "processes": processes,
            "timeout_ms": 20000,
        },
        **more,
    )


def crash_plugin(t):
    """Builds the plugin `crash`, which crashes, aborts, exits or hangs as the payload of a message
    says. Returns the section `handler` of a configuration that uses the plugin."""
    out = os.path.join(t.dir, "plugin")
    root = os.path.abspath(os.path.join(HANDLERS, "..", "..", ".."))
    built = subprocess.run(
        [
            "make",
            "-s",
            "-C",
            os.path.join(root, "tests/plugins/crash"),
            "OUT=" + out,
            "CPPFLAGS=-I" + os.path.join(root, "include"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL")},
    )
    if built.returncode:
        raise Failure("the plugin does not build: " + built.stdout.decode())
    return {"type": "plugin", "path": os.path.join(out, "crash.so"), "threads": 4}


def merged(base, over):
    """Returns the configuration `base`, changed by `over`: sections are merged, other values are
    replaced, and None removes a key."""
    out = dict(base)
    for key, value in over.items():
        if value is None:
            out.pop(key, None)
            continue
        both = isinstance(value, dict) and isinstance(out.get(key), dict) and key != "handler"
        out[key] = merged(out[key], value) if both else value
    return out


def config(name, brokers, redis_url, topics, **over):
    # The session timeout is short, so that the partitions of a killed member get a new owner within
    # two seconds. The configuration has no HTTP server, because many instances run at once and
    # would need as many ports.
    base = {
        "name": name,
        "workers": 4,
        "kafka": {
            "topics": topics,
            "properties": {
                "bootstrap.servers": brokers,
                "group.id": name,
                "session.timeout.ms": "2000",
                "heartbeat.interval.ms": "300",
                "reconnect.backoff.max.ms": "500",
            },
        },
        "redis": {"url": redis_url},
        "lock": {"ttl_ms": 2000},
        "handler": exec_handler(),
        "shutdown": {"grace_ms": 10000},
        "http": {"listen": "off"},
    }
    return merged(base, over)


def readyz(port):
    """Returns the status and the text of /readyz, or 0 and the reason if there is no answer."""
    try:
        with urllib.request.urlopen("http://127.0.0.1:%d/readyz" % port, timeout=10) as r:
            return r.status, r.read().decode()
    except urllib.error.HTTPError as e:
        return e.code, e.read().decode()
    except OSError as e:
        return 0, str(e)


class Visitor(threading.Thread):
    """Asks the page's process for the page, the metrics and what the API tells without parameters,
    again and again, until end()."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.port, self.rounds, self.failed = port, 0, None
        self.over = threading.Event()

    def get(self, path):
        try:
            with urllib.request.urlopen(
                "http://127.0.0.1:%d%s" % (self.port, path), timeout=600
            ) as r:
                return r.read()
        except urllib.error.HTTPError as e:
            # On a slow machine requests may wait so long behind others that they are refused.
            if e.code != 503:
                raise
            return e.read()

    def run(self):
        path = "/api/v1"
        try:
            # the stream of events does not end
            told = json.loads(self.get(path))["get"]
            told = ["/", "/metrics"] + [p for p in told if not re.search(r"\*|/events$", p)]
            while not self.over.wait(0.2):
                random.shuffle(told)  # so that other requests meet when several clients ask
                for path in told:
                    self.get(path)
                self.rounds += 1
        except (OSError, ValueError, http.client.HTTPException) as e:
            self.failed = "%s: %s" % (path, e)

    def end(self):
        """Returns how often everything was asked. Fails if a request was not answered, or with an
        error."""
        self.over.set()
        self.join()
        if self.failed:
            raise Failure(self.failed)
        return self.rounds


class Instance:
    """One `latchwork run`: a supervisor and its workers."""

    def __init__(self, build, directory, label, settings, environment, *options):
        self.label = label
        self.settings = settings
        self.log_path = os.path.join(directory, label + ".log")
        # Maps the pid of each killed worker to a time, in µs of the boot clock, at which the worker
        # was certainly dead.
        self.deaths = {}
        path = os.path.join(directory, label + ".json")
        with open(path, "w") as f:
            json.dump(settings, f, indent=1)
        self.started_us = boot_us()
        with open(self.log_path, "ab") as log:
            self.popen = subprocess.Popen(
                [os.path.join(build, "latchwork"), "run", "-c", path] + list(options),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                env=dict(os.environ, **environment),
            )

    @property
    def pid(self):
        return self.popen.pid

    def log(self):
        with open(self.log_path, errors="replace") as f:
            return f.read()

    def running(self):
        return self.popen.poll() is None

    def check_running(self):
        if not self.running():
            raise Failure(
                "%s ended with status %d: %s"
                % (self.label, self.popen.returncode, self.log()[-1500:])
            )

    def workers(self):
        """Returns the pids of live workers that have reported their start."""
        started = self.log()
        return [pid for pid in children(self.pid) if "-%d-" % pid in started]

    def wait_workers(self, n, limit_s=30):
        def enough():
            self.check_running()
            return len(self.workers()) >= n

        wait_until(enough, limit_s, "%d workers of %s" % (n, self.label))

    def kill_worker(self, pid):
        send(pid, signal.SIGKILL)
        wait_until(lambda: not alive(pid), 10, "end of worker %d" % pid, 0.001)
        self.deaths[pid] = boot_us()

    def signal(self, sig):
        send(self.pid, sig)

    def wait(self, limit_s):
        """Waits until the supervisor has ended. Returns its exit status and its output."""
        limit = Limit(limit_s)
        while True:
            try:
                out, _ = self.popen.communicate(timeout=1)
                return self.popen.returncode, out.decode()
            except subprocess.TimeoutExpired as e:
                if limit.over():
                    raise Failure(
                        "%s does not end within %g s: %s"
                        % (self.label, limit_s, self.log()[-1500:])
                    ) from e

    def stop(self, limit_s=30):
        """Sends SIGTERM. The supervisor must end with status 0 and leave no process."""
        family = descendants(self.pid)
        self.signal(signal.SIGTERM)
        status, out = self.wait(limit_s)
        if status:
            raise Failure(
                "%s ended with status %d after SIGTERM: %s"
                % (self.label, status, self.log()[-1500:])
            )
        wait_until(
            lambda: not any(alive(p) for p in family), 10, "end of the processes of %s" % self.label
        )
        return out

    def destroy(self):
        """Ends all processes of the instance at the end of a scenario, even if the scenario
        failed."""
        family = [self.pid] + descendants(self.pid) if self.running() else []
        for pid in family:
            send(pid, signal.SIGCONT)
        for pid in family:
            send(pid, signal.SIGKILL)
        if family:
            self.popen.wait(10)
        if self.popen.stdout:
            self.popen.stdout.close()
