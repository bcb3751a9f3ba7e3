#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests that other software understands Latchwork's spans. A collector of OpenTelemetry must accept
the spans and print them unchanged, and the published protocol definitions must contain every field.
usage: tests/otlp/test_otlp.py BUILD_DIR

tests/otlp/tools.sh puts the collector and the definitions into BUILD_DIR/otlp."""

import base64
import json
import os
import socket
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else os.path.join(ROOT, "build")
TOOLS = os.path.join(BUILD, "otlp")
subprocess.run([os.path.join(ROOT, "tests/otlp/tools.sh"), TOOLS], check=True)
sys.path[:0] = [os.path.join(ROOT, "tests/live"), os.path.join(TOOLS, "python")]
sys.dont_write_bytecode = True
from google.protobuf import json_format  # noqa: E402
from lib.otlp import Receiver, plain  # noqa: E402
from lib.ports import free_port  # noqa: E402
from lib.process import wait_until  # noqa: E402
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest  # noqa: E402


def spans(request):
    return [s for rs in request["resourceSpans"] for ss in rs["scopeSpans"] for s in ss["spans"]]


def listens(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False


class Otlp(unittest.TestCase):
    def send(self, url, keys):
        """Ends eight jobs on each of two workers. The jobs differ in their outcomes, and some have
        no parent span or no payload. Returns the counts of spans that were made, sent and lost."""
        with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
            json.dump(
                {
                    "name": "orders",
                    "kafka": {"topics": ["orders"]},
                    "handler": {"type": "exec", "command": ["cat"]},
                    "tracing": {"endpoint": url, "keys": keys},
                },
                f,
            )
            f.flush()
            p = subprocess.run(
                [BUILD + "/tests/tools/spantool", f.name, "8", "20", "3000"],
                stdout=subprocess.PIPE,
                timeout=60,
                check=True,
                text=True,
            )
        return json.loads(p.stdout)

    def test_a_collector_takes_them(self):
        port = free_port()
        with tempfile.TemporaryFile("w+") as out:
            collector = subprocess.Popen([TOOLS + "/collector", "127.0.0.1:%d" % port], stdout=out)
            try:
                wait_until(lambda: listens(port), 20, "collector")
                self.assertEqual(self.send("http://127.0.0.1:%d" % port, "plain")["sent"], 16)
            finally:
                collector.terminate()
                self.assertEqual(collector.wait(20), 0)
            out.seek(0)
            taken = {
                plain(s["attributes"])["messaging.kafka.offset"]: s
                for line in out
                for s in spans(json.loads(line))
            }
        self.assertEqual(sorted(taken), list(range(16)))
        s = taken[1]
        self.assertEqual(
            (s["traceId"], s["parentSpanId"], s["traceState"], s["kind"], s["name"]),
            (
                "4bf92f3577b34da6a3ce929d0e0e4736",
                "00f067aa0ba902b7",
                "vendor=1,other=t61rcWkgMzE",
                5,
                "process orders",
            ),
        )
        self.assertEqual((s["status"], s["flags"]), ({"message": '"busy"\n???', "code": 2}, 0x301))
        self.assertEqual(int(s["endTimeUnixNano"]) - int(s["startTimeUnixNano"]), 1500000)
        self.assertNotIn("parentSpanId", {k: v for k, v in taken[4].items() if v})
        self.assertEqual(plain(taken[5]["attributes"])["messaging.kafka.message.key"], "0xff00")

    def test_the_published_definitions_know_every_field(self):
        receiver = Receiver()
        self.send(receiver.url, "hash")
        body = json.loads(receiver.requests[0]["body"])
        for s in spans(
            body
            # Convert the ids from hex to base64, because the JSON form of protocol buffers has
            # bytes in base64, but OTLP has ids in hex.
        ):
            for name in {"traceId", "spanId", "parentSpanId"} & set(s):
                s[name] = base64.b64encode(bytes.fromhex(s[name])).decode()
        parsed = json_format.ParseDict(body, ExportTraceServiceRequest())
        self.assertEqual(len(parsed.resource_spans[0].scope_spans[0].spans), 16)
        body["resourceSpans"][0]["scopeSpans"][0]["spans"][0]["spanID"] = "x"
        # The published definitions must refuse an unknown field.
        with self.assertRaises(json_format.ParseError):
            json_format.ParseDict(body, ExportTraceServiceRequest())


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
