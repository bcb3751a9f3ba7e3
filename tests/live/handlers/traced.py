# SPDX-License-Identifier: Apache-2.0
"""An exec handler for test_tracing.py. It appends a line to $LW_TEST_SEEN for each request: {"id",
"attempt", "headers"}. A payload {"fail": N} fails at the first N attempts."""

import json
import os
import sys

seen = os.open(os.environ["LW_TEST_SEEN"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    os.write(
        seen,
        (
            json.dumps(
                {"id": request["id"], "attempt": request["attempt"], "headers": request["headers"]}
            )
            + "\n"
        ).encode(),
    )
    fails = request["attempt"] <= json.loads(request["payload"]).get("fail", 0)
    print(
        json.dumps(
            {
                "id": request["id"],
                "outcome": "retry" if fails else "done",
                "reason": "not yet" if fails else "",
            }
        ),
        flush=True,
    )
