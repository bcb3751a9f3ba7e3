#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An exec handler that works for DELAY seconds per message, and appends a line to the file JOURNAL:
start_ns end_ns identity key fence attempt."""

import json
import os
import sys
import time

delay = float(os.environ.get("DELAY", "0"))
journal = os.open(os.environ["JOURNAL"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    start = time.monotonic_ns()
    if delay:
        time.sleep(delay)
    text = f"{start} {time.monotonic_ns()} {request['id']} {request['key']} {request['fence']} {request['attempt']}\n"
    os.write(journal, text.encode())
    print(json.dumps({"id": request["id"], "outcome": "done"}), flush=True)
