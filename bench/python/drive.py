#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Drives the web server at LW_WEB_URL with h2load or wrk. The requests have the same body, the same
headers and therefore the same length as the requests of the http handler. The program prints the
same line as the other programs of this benchmark. wrk ends after a time, not after a number of
requests, so for wrk the line says how long the wanted number of requests would have taken.

usage: drive.py --tool h2load|wrk --messages N [--in-flight N]"""

import argparse
import json
import os
import re
import subprocess
import tempfile

BODY = b"x" * 200  # the body is as long as a message of the workloads
HEADERS = {
    "content-type": "application/json",
    "ce-specversion": "1.0",
    "ce-id": "m300000-k100000/3/12345",
    "ce-source": "/m300000-k100000/3",
    "ce-type": "latchwork.message",
    "ce-time": "2026-01-01T12:00:00.123Z",
    "ce-partitionkey": "k-12345",
    "latchwork-fence": "123456",
    "latchwork-attempt": "1",
    "latchwork-deadline-ms": "1760000000000",
    "user-agent": "latchwork/0.0.0",
    "accept": "*/*",
}
WRK_S = 5

parser = argparse.ArgumentParser()
parser.add_argument("--tool", choices=("h2load", "wrk"), required=True)
parser.add_argument("--messages", type=int, required=True)
parser.add_argument("--in-flight", type=int, default=128)
a = parser.parse_args()


def h2load(folder):
    """Returns the number of requests that were answered, and how many were answered per second."""
    path = os.path.join(folder, "body")
    with open(path, "wb") as f:
        f.write(BODY)
    headers = [word for name, value in HEADERS.items() for word in ("-H", f"{name}: {value}")]
    command = [
        "h2load",
        "--h1",
        "-n",
        str(a.messages),
        "-c",
        str(a.in_flight),
        "-t",
        "1",
        "-d",
        path,
        *headers,
        os.environ["LW_WEB_URL"],
    ]
    out = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    return int(re.search(r"(\d+) 2xx", out).group(1)), float(
        re.search(r"([0-9.]+) req/s", out).group(1)
    )


def wrk(folder):
    path = os.path.join(folder, "post.lua")
    with open(path, "w") as f:
        f.write('wrk.method = "POST"\nwrk.body = "%s"\n' % BODY.decode())
        f.writelines('wrk.headers["%s"] = "%s"\n' % header for header in HEADERS.items())
    command = [
        "wrk",
        "-t",
        "1",
        "-c",
        str(a.in_flight),
        "-d",
        f"{WRK_S}s",
        "-s",
        path,
        os.environ["LW_WEB_URL"],
    ]
    out = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    if "Non-2xx" in out or "Socket errors" in out:
        raise SystemExit("wrk: " + out)
    return a.messages, float(re.search(r"Requests/sec:\s+([0-9.]+)", out).group(1))


with tempfile.TemporaryDirectory() as here:
    answered, rate = h2load(here) if a.tool == "h2load" else wrk(here)
print(json.dumps({"messages": answered, "first_us": 0, "last_us": int(answered / rate * 1e6)}))
