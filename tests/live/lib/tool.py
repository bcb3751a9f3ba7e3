# SPDX-License-Identifier: Apache-2.0
"""Runs `latchwork` commands of operators while a scenario's application runs."""

import json
import os
import subprocess

from .process import Failure

LIMIT_S = 120


def command(t, *args, build=None):
    return (
        [os.path.join(build or t.rig.build, "latchwork")]
        + list(args)
        + ["-c", t.instances[-1].log_path.replace(".log", ".json")]
    )


def tool(t, *args, status=0, given=b"", build=None):
    """Runs a command with --json and returns the lines that it prints. The exit status must be
    `status`, or may be any if `status` is None. `build` is the folder with the program, by default
    the build under test."""
    done = subprocess.run(
        command(t, *args, build=build) + ["--json"],
        input=given,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=t.dir,
        timeout=LIMIT_S,
    )
    if status is not None and done.returncode != status:
        raise Failure(
            "%s: status %d: %s%s"
            % (
                " ".join(args),
                done.returncode,
                done.stdout.decode()[-500:],
                done.stderr.decode()[-500:],
            )
        )
    return [json.loads(line) for line in done.stdout.splitlines()]


def begin(t, *args):
    """Starts a command with --json in the background. Its output goes to a file, so that lines()
    can read the output even after the command was killed."""
    path = os.path.join(t.dir, "tool-%d.jsonl" % len(os.listdir(t.dir)))
    with open(path, "wb") as out:
        p = subprocess.Popen(
            command(t, *args) + ["--json"],
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            cwd=t.dir,
        )
    t.commands.append(p)
    p.out_path = path
    return p


def lines(p):
    """Returns the complete JSON lines that a command started by begin() has printed so far."""
    with open(p.out_path) as f:
        return [json.loads(line) for line in f if line.startswith("{") and line.endswith("\n")]
