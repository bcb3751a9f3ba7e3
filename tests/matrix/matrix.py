#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs a part of the tests on each distribution, server and library, and writes
doc/reference/support.md.

usage: tests/matrix/matrix.py [--list] [--page] [--cpu] [--again] [WORD…]

  --list    prints the cells and their last results; runs nothing
  --page    writes the page from the last results; runs no cell
  --cpu     also measures Redis's CPU time per message on each server (tests/matrix/cpu.py)
  --again   also runs cells whose inputs have not changed
  WORD…     only the cell of this name, or else cells whose names contain all of these words

A cell is one combination to test. Its name is DISTRIBUTION/SERVER for the tests that need no Kafka,
and DISTRIBUTION/SERVER/LIBRDKAFKA/KAFKA for live scenarios. tests/matrix/cell.sh runs a cell. The
result is kept in build/matrix ($LW_MATRIX: another folder), together with a digest of the program
and the tests that the cell ran. A cell whose digest has not changed is not run again, so a run that
was interrupted continues with the next cell. A run of all cells takes more than an hour.
Exit: 0 no cell has failed, 1 a cell has failed or could not be set up, 2 wrong usage."""

import datetime
import hashlib
import json
import os
import re
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
os.chdir(ROOT)
STORE = os.environ.get("LW_MATRIX") or "build/matrix"
PAGE = "doc/reference/support.md"
DISTRIBUTIONS = {"bookworm": "Debian 12", "trixie": "Debian 13", "noble": "Ubuntu 24.04"}
SERVERS = [
    line.split()[0]
    for line in open("tests/matrix/servers.txt")
    if line.strip() and not line.startswith("#")
]
SHIPPED = {"bookworm": "redis-7.0", "trixie": "redis-8.0", "noble": "redis-7.0"}
LIBRARIES = ["own", "2.15.1"]
KAFKAS = ["3.9.1", "4.0.1", "4.1.1", "4.4.0"]
INPUTS = [
    "base",
    "config",
    "lock",
    "queue",
    "handlers",
    "kafka",
    "consumer",
    "monitor",
    "ops",
    "api",
    "cli",
    "include",
    "Makefile",
    "tests/live",
    "tests/lua",
    "tests/server",
    "tests/lock",
    "tests/support",
    "tests/tools",
    "tests/matrix/live.py",
    "tests/matrix/servers.txt",
]
CELL_LIMIT_S = 1800


def cells():
    """Returns the names of the cells in the order in which they run, with the most common
    combinations first. Each server runs with each library on the first Kafka version. Each Kafka
    version runs with each library on the distribution's own server."""
    out = [(distribution, server) for distribution in DISTRIBUTIONS for server in SERVERS]
    for distribution in DISTRIBUTIONS:
        out += [(distribution, server, "own", KAFKAS[0]) for server in SERVERS]
        out += [
            (distribution, SHIPPED[distribution], library, kafka)
            for library in LIBRARIES
            for kafka in KAFKAS
        ]
    out += [
        (distribution, server, "2.15.1", KAFKAS[0])
        for distribution in DISTRIBUTIONS
        for server in SERVERS
    ]
    return list(dict.fromkeys("/".join(axes) for axes in out))


def digest():
    h = hashlib.sha256()
    for path in sorted(
        subprocess.check_output(["git", "ls-files", "-z"] + INPUTS).decode().split("\0")
    ):
        if path and not path.endswith(".md") and os.path.exists(path):
            with open(path, "rb") as f:
                h.update(path.encode() + b"\0" + hashlib.sha256(f.read()).digest())
    return h.hexdigest()[:16]


def kept(name):
    try:
        with open(os.path.join(STORE, name.replace("/", "_") + ".json")) as f:
            return json.load(f)
    except (OSError, ValueError):
        return None


def keep(name, result):
    os.makedirs(STORE, exist_ok=True)
    path = os.path.join(STORE, name.replace("/", "_") + ".json")
    with open(path + ".tmp", "w") as f:
        json.dump(result, f, indent=1)
    os.replace(path + ".tmp", path)


def arguments(name):
    axes = name.split("/")
    return axes + ["live"] if len(axes) == 4 else axes + ["own", "none", "server", "lua", "lock"]


def run(name, inputs):
    log = os.path.join(STORE, name.replace("/", "_") + ".log")
    os.makedirs(STORE, exist_ok=True)
    begun = datetime.datetime.now()
    with open(log, "wb") as f:
        try:
            status = subprocess.run(
                ["tests/matrix/cell.sh"] + arguments(name),
                stdin=subprocess.DEVNULL,
                stdout=f,
                stderr=f,
                timeout=CELL_LIMIT_S,
            ).returncode
        except subprocess.TimeoutExpired:
            status = 3
    with open(log, errors="replace") as f:
        text = f.read()
    # Strip colour codes, because Maven leaves some before the line "versions: …".
    found = re.search(r"^versions: (.*)$", re.sub(r"\x1b\[[0-9;]*m", "", text), re.M)
    result = {
        "inputs": inputs,
        "status": status,
        "seconds": round((datetime.datetime.now() - begun).total_seconds()),
        "date": begun.strftime("%Y-%m-%d"),
        "commit": subprocess.check_output(["git", "rev-parse", "--short", "HEAD"]).decode().strip(),
        "versions": dict(pair.split("=", 1) for pair in found.group(1).split()) if found else {},
        "passed": sum(int(n) for n in re.findall(r"^(\d+) passed, \d+ failed$", text, re.M)),
        "failures": sorted(set(re.findall(r"^FAILED +(\S+)", text, re.M))),
    }
    if status == 2 or not found:
        lines = [line for line in text.splitlines() if line.strip()]
        result["absent"] = lines[-1].replace("|", "/") if lines else "no output"
    keep(name, result)
    return result


def shown(result):
    if not result:
        return "not run"
    if "absent" in result:
        return "not to be had"
    if result["status"] == 3:
        return "not ended in time"
    if result["failures"] or result["status"]:
        return (
            "failed: " + ", ".join("`%s`" % f for f in result["failures"])
            if result["failures"]
            else "failed"
        )
    return "%d passed" % result["passed"]


def table(head, rows):
    return (
        "\n".join(
            ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
            + ["| " + " | ".join(row) + " |" for row in rows]
        )
        + "\n"
    )


def version(results, field, wanted):
    """Returns the version of `field` (such as the server) that the cells with `wanted` in their
    names have reported. Returns `wanted` if no such cell has run."""
    seen = sorted(
        {
            r["versions"][field].replace("_", " ")
            for name, r in results.items()
            if r and field in r["versions"] and wanted in name.split("/")
        }
    )
    return seen[0] if seen else wanted


def period(done):
    commits, dates = sorted({r["commit"] for r in done}), sorted({r["date"] for r in done})
    return "%s, commit %s" % (
        dates[0] if len(dates) == 1 else "%s to %s" % (dates[0], dates[-1]),
        ", ".join(commits),
    )


def page(known):
    results = {name: kept(name) for name in known}
    own = {
        d: version(
            {n: r for n, r in results.items() if n.startswith(d) and "/own/" in n}, "librdkafka", d
        )
        for d in DISTRIBUTIONS
    }
    columns = [(d, library) for d in DISTRIBUTIONS for library in LIBRARIES]
    head = [
        "%s, librdkafka %s" % (DISTRIBUTIONS[d], own[d] if library == "own" else library)
        for d, library in columns
    ]
    parts = [
        [version(results, "server", s)]
        + [shown(results.get("%s/%s" % (d, s))) for d in DISTRIBUTIONS]
        for s in SERVERS
    ]
    servers = [
        [version(results, "server", s)]
        + [shown(results.get("/".join((d, s, library, KAFKAS[0])))) for d, library in columns]
        for s in SERVERS
    ]
    kafkas = [
        [k] + [shown(results.get("/".join((d, SHIPPED[d], library, k)))) for d, library in columns]
        for k in KAFKAS
    ]
    done = [r for r in results.values() if r and "absent" not in r]
    absent = sorted({r["absent"] for r in results.values() if r and "absent" in r})
    hiredis = [
        "%s %s"
        % (
            DISTRIBUTIONS[d],
            version({n: r for n, r in results.items() if n.startswith(d)}, "hiredis", d),
        )
        for d in DISTRIBUTIONS
    ]
    with open("tests/matrix/support.md") as f:
        text = f.read()
    values = {
        "parts": table(["server"] + list(DISTRIBUTIONS.values()), parts),
        "servers": table(["server"] + head, servers),
        "kafkas": table(["Apache Kafka"] + head, kafkas),
        "cpu": cpu(),
        "ran": "%d of %d cells have run" % (len(done), len(known))
        + (" (%s)" % period(done) if done else ""),
        "hiredis": ", ".join(hiredis),
        "kafka": KAFKAS[0],
        "absent": "".join("- %s\n" % line for line in absent),
    }
    text = re.sub(r"@(\w+)@", lambda m: values[m.group(1)].rstrip("\n"), text)
    with open(PAGE, "w") as f:
        f.write(re.sub(r"\n{3,}", "\n\n", text))
    print("wrote " + PAGE)


def cpu():
    """Returns a Markdown table of the CPU times per message that tests/matrix/cpu.py measured, or a
    note if it has measured none."""
    try:
        with open(os.path.join(STORE, "cpu.json")) as f:
            measured = json.load(f)
    except OSError:
        return "Not measured yet: `tests/matrix/cpu.py`.\n"
    rows = [
        [
            r["server"],
            "%.1f" % r["us"],
            "%.1f – %.1f" % (r["least"], r["most"]),
            "%.2f" % (r["us"] / measured["rows"][0]["us"]),
        ]
        for r in measured["rows"]
    ]
    return "%s\n\n%s" % (
        measured["how"],
        table(["server", "µs per message", "least – most", "relative"], rows),
    )


def main():
    options = {a for a in sys.argv[1:] if a.startswith("-")}
    words = [a for a in sys.argv[1:] if not a.startswith("-")]
    if options - {"--list", "--page", "--cpu", "--again"}:
        print(__doc__.split("\n\n")[1], file=sys.stderr)
        sys.exit(2)
    known, inputs = cells(), digest()
    chosen = (
        words
        if len(words) == 1 and words[0] in known
        else [name for name in known if all(word in name for word in words)]
    )
    if "--list" in options:
        for name in chosen:
            result = kept(name)
            print(
                "%-34s %s%s"
                % (
                    name,
                    shown(result),
                    "" if not result or result["inputs"] == inputs else " (inputs have changed)",
                )
            )
        return 0
    if "--page" not in options:
        for i, name in enumerate(chosen):
            result = kept(name)
            if not result or result["inputs"] != inputs or result["status"] or "--again" in options:
                print("%d/%d %s …" % (i + 1, len(chosen), name), flush=True)
                result = run(name, inputs)
            print(
                "%d/%d %-34s %s (%d s)"
                % (i + 1, len(chosen), name, shown(result), result["seconds"]),
                flush=True,
            )
        if "--cpu" in options:
            subprocess.run(
                ["tests/matrix/cpu.py", "build", os.path.join(STORE, "cpu.json")], check=True
            )
    page(known)
    return 1 if any((kept(name) or {}).get("status") for name in chosen) else 0


if __name__ == "__main__":
    sys.exit(main())
