#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A service for the live tests of the http handler: HTTP/1.1 with keep-alive, on asyncio, without a
framework.

Usage: service.py PORT LOG [CERTIFICATE KEY CA]
CA is the authority that must have signed the certificates of clients, or "-" if clients need none.
LW_TEST_HMAC_KEY is the key that must have signed each request. LW_TEST_DELAY_MS is the time until
each response. After SIGUSR1 and until SIGUSR2, the status of every response is 503.

For each request the service writes a line to the log:
{"id","fence","attempt","key","connection","at_us","left_ms","trace","signed","end_us","status"}
If the client aborted the transfer, status is 0. A payload {"do": …, "times": N} asks for a special
response at the first N attempts:

    {"do": "answer", "status": 503, "headers": {…}, "body": "…"}
    {"do": "sleep", "ms": 2000}     answers after that time
    {"do": "hang-up"}               closes the connection without a response
    {"do": "stale"}                 answers 409, once per message
    {"do": "short"}                 closes the connection within the body of a response
    {"do": "twice"}                 sends the response twice
    {"do": "drip"}                  sends the response byte by byte
    {"do": "babble"}                answers with text that is not HTTP, and closes"""

import asyncio
import base64
import hashlib
import hmac
import json
import os
import signal
import ssl
import sys
import time

PORT, LOG = int(sys.argv[1]), os.open(sys.argv[2], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
KEY = os.environ.get("LW_TEST_HMAC_KEY")
DELAY_S = float(os.environ.get("LW_TEST_DELAY_MS", "0")) / 1000
stale, connections, sick = set(), 0, False


def boot_us():
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


def signed(headers, body):
    """Verifies the signature as the specification "Standard Webhooks" prescribes. Returns None if
    the request has no signature."""
    if "webhook-signature" not in headers:
        return None
    text = b"%s.%s.%s" % (
        headers["webhook-id"].encode(),
        headers["webhook-timestamp"].encode(),
        body,
    )
    digest = hmac.new(base64.b64decode(KEY.removeprefix("whsec_")), text, hashlib.sha256).digest()
    wanted = "v1," + base64.b64encode(digest).decode()
    fresh = abs(time.time() - int(headers["webhook-timestamp"])) < 60
    return fresh and any(
        hmac.compare_digest(wanted, one) for one in headers["webhook-signature"].split(" ")
    )


def orders(headers, body):
    """Returns, as a dict, the special response that the payload asks for at this attempt. An empty
    dict asks for an ordinary response."""
    if sick:
        return {"do": "answer", "status": 503}
    if b'"do"' not in body[:100]:
        return {}
    wish = json.loads(body)
    if wish["do"] == "stale":
        first = headers["ce-id"] not in stale
        stale.add(headers["ce-id"])
        return {"do": "answer", "status": 409} if first else {}
    return wish if int(headers["latchwork-attempt"]) <= wish.get("times", 1 << 30) else {}


async def read_request(reader):
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = {}
    for line in head[1:-2]:
        name, value = line.split(":", 1)
        headers[name.lower()] = value.strip()
    return headers, await reader.readexactly(int(headers.get("content-length", "0")))


async def answer(writer, status=200, body="", headers=()):
    text = "HTTP/1.1 %d X\r\nContent-Length: %d\r\n" % (status, len(body.encode()))
    text += "".join("%s: %s\r\n" % h for h in dict(headers).items())
    writer.write((text + "\r\n" + body).encode())
    await writer.drain()


def note(line):
    """Writes the line of a request, once. A service that is killed must have written what it has
    answered, so this comes before the answer."""
    if "end_us" not in line:
        line["end_us"] = boot_us()
        os.write(LOG, (json.dumps(line) + "\n").encode())


async def serve_one(reader, writer, headers, body, line):
    wish = orders(headers, body)
    wait_s = wish["ms"] / 1000 if wish.get("do") == "sleep" else DELAY_S
    if wait_s:
        # The client sends nothing more before it has the response, so this read ends early only if
        # the client closes the connection.
        gone = asyncio.ensure_future(reader.read(1))
        done, _ = await asyncio.wait([gone], timeout=wait_s)
        if done:
            return False
        gone.cancel()
        await asyncio.gather(gone, return_exceptions=True)
    if wish.get("do") == "hang-up":
        return False
    if wish.get("do") in ("short", "babble"):
        short = b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\nshort"
        writer.write(short if wish["do"] == "short" else b"this is not HTTP\r\n\r\n")
        await writer.drain()
        return False
    line["status"] = wish.get("status", 200)
    note(line)
    if wish.get("do") == "drip":
        for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n":
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0.005)
        return True
    if wish.get("do") == "twice":
        await answer(writer)
    await answer(writer, line["status"], wish.get("body", ""), wish.get("headers", {}))
    return True


async def serve(reader, writer):
    global connections
    connections += 1
    number, goes_on = connections, True
    try:
        while goes_on:
            headers, body = await read_request(reader)
            line = {
                "id": headers["ce-id"],
                "fence": int(headers["latchwork-fence"]),
                "attempt": int(headers["latchwork-attempt"]),
                "key": headers.get("ce-partitionkey"),
                "connection": "%d-%d" % (os.getpid(), number),
                "at_us": boot_us(),
                "left_ms": int(headers["latchwork-deadline-ms"]) - time.time() * 1000,
                "trace": headers.get("traceparent"),
                "signed": signed(headers, body),
                "status": 0,
            }
            try:
                goes_on = await serve_one(reader, writer, headers, body, line)
            finally:
                note(line)
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
        pass
    finally:
        writer.close()


def context():
    if len(sys.argv) < 4:
        return None
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(sys.argv[3], sys.argv[4])
    if sys.argv[5] != "-":
        tls.load_verify_locations(sys.argv[5])
        tls.verify_mode = ssl.CERT_REQUIRED
    return tls


def set_sick(is_sick):
    global sick
    sick = is_sick


async def main():
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, set_sick, True)
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR2, set_sick, False)
    server = await asyncio.start_server(serve, "127.0.0.1", PORT, ssl=context(), backlog=1024)
    async with server:
        await server.serve_forever()


asyncio.run(main())
