# SPDX-License-Identifier: Apache-2.0
"""Bills orders by calling a service over HTTP. One process makes up to handler.in_flight calls in
parallel, but only one at a time for each customer."""

import asyncio
import json
import logging
import os

import latchwork

HOST, PORT = os.environ.get("SERVICE", "127.0.0.1:8377").split(":")
log = logging.getLogger("billing")


async def post(path, body, idempotency_key):
    """Sends a POST request, and returns the status and the body of the response. A program that is
    allowed to have dependencies would use aiohttp or httpx instead of this function."""
    reader, writer = await asyncio.open_connection(HOST, int(PORT))
    try:
        head = "POST %s HTTP/1.0\r\ncontent-length: %d\r\nidempotency-key: %s\r\n\r\n" % (
            path,
            len(body),
            idempotency_key,
        )
        writer.write(head.encode() + body)
        answer = await reader.read()
    finally:
        writer.close()
    first, _, text = answer.partition(b"\r\n\r\n")
    return int(first.split()[1]), text.decode()


@latchwork.handler
async def handle(m):
    order = m.json()
    # A message that is delivered again has the same m.id, so the service bills each message once.
    # If the service cannot be reached, post() raises OSError, and Latchwork runs the message again.
    status, text = await post("/bills", json.dumps(order).encode(), m.id)
    if status == 422:
        raise latchwork.Dead(text)
    if status != 200:
        raise latchwork.Retry("the service answered %d" % status)
    log.info("billed %s", order["id"])


latchwork.run()
