# SPDX-License-Identifier: Apache-2.0
"""The handler of this example is a web server. Latchwork sends each message to this server as a
CloudEvent over HTTP, in binary mode. A server with Express or FastAPI would look much the same. A
GET request for / returns the numbers of customers and orders.

Usage: server.py [PORT]"""

import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

lock = threading.Lock()
# Maps each customer to a tuple: the last fence, the sum of the orders, and the identities of the
# messages with these orders.
accounts = {}


def add(identity, fence, order):
    """Adds an order to the customer's account. Returns the HTTP status and the text of the
    response."""
    if "amount" not in order:
        # After status 422, Latchwork makes the message a dead letter.
        return (422, "the order has no amount")
    with lock:
        last, amount, seen = accounts.get(order["customer"], (0, 0, set()))
        if identity in seen:
            return 200, "known"
        if fence < last:
            # After status 409, the message is run again by the worker that now holds the lock of
            # the key.
            return (409, "a stale fence")
        accounts[order["customer"]] = (fence, amount + order["amount"], seen | {identity})
    return 200, "added"


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # keeps connections open between requests
    disable_nagle_algorithm = True

    def answer(self, status, text):
        body = text.encode()
        self.send_response(status)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        try:
            order = json.loads(body)
        except ValueError:
            self.answer(400, "no JSON")
            return
        self.answer(*add(self.headers["ce-id"], int(self.headers["latchwork-fence"]), order))

    def do_GET(self):
        with lock:
            self.answer(
                200,
                json.dumps(
                    {
                        "customers": len(accounts),
                        "orders": sum(len(seen) for _, _, seen in accounts.values()),
                    }
                ),
            )

    def log_message(self, *_):
        pass


ThreadingHTTPServer(
    ("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 8379), Handler
).serve_forever()
