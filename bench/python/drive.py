#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Drives the web server at LW_WEB_URL with h2load: as many requests as there are messages, each with a body of the size of a message.
The program prints the same line as the other programs of this benchmark. usage: drive.py --messages N [--in-flight N]"""
import argparse
import json
import os
import re
import subprocess
import tempfile

parser = argparse.ArgumentParser()
parser.add_argument("--messages", type=int, required=True)
parser.add_argument("--in-flight", type=int, default=128)
a = parser.parse_args()
with tempfile.NamedTemporaryFile() as body:
    body.write(b"x" * 100)
    body.flush()
    command = ["h2load", "--h1", "-n", str(a.messages), "-c", str(a.in_flight), "-t", "1", "-d", body.name, os.environ["LW_WEB_URL"]]
    out = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
rate = float(re.search(r"([0-9.]+) req/s", out).group(1))
answered = int(re.search(r"(\d+) 2xx", out).group(1))
print(json.dumps({"messages": answered, "first_us": 0, "last_us": int(answered / rate * 1e6)}))
