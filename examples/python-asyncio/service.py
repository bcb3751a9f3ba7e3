# SPDX-License-Identifier: Apache-2.0
"""The billing service that this example calls. Each bill takes 20 ms. The service remembers
idempotency keys, and responds with status 422 to an order without an amount. GET / returns three
numbers: bills, repeated requests, and the most requests that were in progress at once.

Usage: service.py [PORT]"""

import asyncio
import json
import sys

billed, again, now, most = set(), 0, 0, 0


async def bill(headers, body):
    global again, now, most
    if "amount" not in json.loads(body):
        return 422, "the order has no amount"
    now += 1
    most = max(most, now)
    await asyncio.sleep(0.02)
    now -= 1
    again += headers["idempotency-key"] in billed
    billed.add(headers["idempotency-key"])
    return 200, ""


async def serve(reader, writer):
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    if head[0].startswith("GET"):
        status, text = (
            200,
            json.dumps({"billed": len(billed), "again": again, "most_at_once": most}),
        )
    else:
        status, text = await bill(headers, body)
    writer.write(
        ("HTTP/1.0 %d -\r\ncontent-length: %d\r\n\r\n%s" % (status, len(text), text)).encode()
    )
    await writer.drain()
    writer.close()


async def main():
    server = await asyncio.start_server(
        serve, "127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 8377
    )
    await server.serve_forever()


asyncio.run(main())
