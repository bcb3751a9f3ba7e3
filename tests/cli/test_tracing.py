#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the process that sends spans, with a receiver of OTLP that misbehaves: the contents of a
request, which requests are sent again, and which spans are given up and counted as lost.
Usage: test_tracing.py [BUILD]
No test asserts a time, except that the process must wait for the time in Retry-After."""

import json
import os
import ssl
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
sys.path.insert(0, os.path.join(ROOT, "tests/live"))
sys.dont_write_bytecode = True
from lib.otlp import Receiver  # noqa: E402
from lib.ports import free_port  # noqa: E402

BUILD = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "build")
TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
NONE_LOST = {"full": 0, "unreachable": 0, "refused": 0, "rejected": 0, "left": 0}


class Tracing(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.TemporaryDirectory()
        self.addCleanup(self.dir.cleanup)
        self.receiver = Receiver()
        self.addCleanup(self.receiver.server.server_close)

    def send(self, spans=8, seconds=1000, give_up_ms=1000000, status=0, **tracing):
        """Ends `spans` jobs on each of two workers, and sends their spans, which ends long before
        `seconds`. Returns the counts of spans that were sent and lost, and the log."""
        path = os.path.join(self.dir.name, "c.json")
        with open(path, "w") as f:
            json.dump(
                {
                    "name": "orders",
                    "kafka": {"topics": ["orders"]},
                    "handler": {"type": "exec", "command": ["cat"]},
                    "tracing": dict(
                        {"endpoint": self.receiver.url, "timeout_ms": 60000}, **tracing
                    ),
                },
                f,
            )
        p = subprocess.run(
            [BUILD + "/tests/tools/spantool", path, str(spans), str(seconds), str(give_up_ms)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=600,
            text=True,
        )
        self.assertEqual(p.returncode, status, p.stderr)
        self.assertEqual(self.receiver.errors, [])
        return json.loads(p.stdout), p.stderr

    def by_offset(self):
        return {s["attributes"]["messaging.kafka.offset"]: s for s in self.receiver.spans()}

    def test_every_shape(self):
        self.assertEqual(self.send()[0], dict(NONE_LOST, made=16, sent=16))
        spans = self.by_offset()
        self.assertEqual(sorted(spans), list(range(16)))
        self.assertEqual(len({s["spanId"] for s in spans.values()}), 16)
        a = spans[0]["attributes"]
        self.assertLess(a.pop("latchwork.lane.wait_ms"), 60000)
        self.assertEqual(
            a,
            {
                "messaging.system": "kafka",
                "messaging.operation.type": "process",
                "messaging.operation.name": "process",
                "messaging.destination.name": "orders",
                "messaging.destination.partition.id": "7",
                "messaging.consumer.group.name": "orders",
                "messaging.kafka.offset": 0,
                "messaging.message.body.size": 9,
                "latchwork.outcome": "done",
                "latchwork.attempt": 2,
                "latchwork.lane.parked": False,
                "latchwork.fence": 2**53,
                "latchwork.worker": 0,
            },
        )
        self.assertEqual(
            (spans[0]["name"], spans[8]["attributes"]["latchwork.worker"]), ("process orders", 1)
        )
        for i, s in spans.items():
            if i % 8 < 4:
                self.assertEqual(
                    (s["traceId"], s["parentSpanId"], s["traceState"]),
                    (TRACE, PARENT, "vendor=1,other=t61rcWkgMzE"),
                )
            else:
                self.assertNotIn("parentSpanId", s)
                self.assertNotIn("traceState", s)
        self.assertEqual(len({s["traceId"] for i, s in spans.items() if i % 8 >= 4}), 8)
        self.assertEqual(
            [spans[i]["attributes"]["latchwork.outcome"] for i in range(4)],
            ["done", "retry", "dead", "back"],
        )
        self.assertEqual(
            [spans[i].get("status") for i in (0, 2, 3)],
            [None, {"code": 2, "message": "no such customer: ä"}, None],
        )
        self.assertEqual(spans[1]["status"]["message"], '"busy"\n???')
        self.assertEqual(
            [spans[i]["attributes"].get("error.type") for i in range(4)],
            [None, "retry", "dead", None],
        )
        self.assertIs(spans[6]["attributes"]["messaging.kafka.message.tombstone"], True)
        self.assertNotIn("messaging.message.body.size", spans[6]["attributes"])
        self.assertTrue(spans[3]["attributes"]["latchwork.lane.parked"])
        self.assertEqual(spans[7]["attributes"]["latchwork.replay"], 1)
        resource = spans[0]["resource"]
        self.assertEqual(
            (resource["service.name"], resource["telemetry.sdk.name"]), ("orders", "latchwork")
        )
        self.assertEqual(resource["host.name"], os.uname().nodename)
        self.assertTrue(resource["service.instance.id"].startswith(resource["host.name"] + ":"))

    def test_keys_are_sent_only_if_asked_for(self):
        names = ("messaging.kafka.message.key", "latchwork.key_hash")
        self.send(keys="plain", service="shop")
        spans = self.by_offset()
        self.assertEqual([spans[i]["attributes"].get(names[0]) for i in (0, 5)], ["c-17", "0xff00"])
        self.assertEqual(spans[0]["resource"]["service.name"], "shop")
        self.receiver.taken.clear()
        self.send(keys="hash")
        hashes = [s["attributes"].get(names[1]) for s in self.by_offset().values()]
        self.assertEqual(len(set(hashes)), 2)
        self.assertNotIn("c-17", json.dumps(self.receiver.spans()))

    def test_headers_carry_secrets(self):
        path = os.path.join(self.dir.name, "token")
        with open(path, "w") as f:
            f.write("s3cret\n")
        _, log = self.send(headers={"authorization": "Bearer ${file:%s}" % path})
        self.assertEqual(self.receiver.requests[0]["headers"]["authorization"], "Bearer s3cret")
        self.assertNotIn("s3cret", log)

    def test_requests_are_bounded(self):
        self.assertEqual(self.send(spans=1000)[0], dict(NONE_LOST, made=2000, sent=2000))
        sizes = [len(r["spans"]) for r in self.receiver.requests]
        self.assertLessEqual(max(sizes), 512)
        self.assertLess(len(sizes), 20)
        self.assertEqual(len(self.by_offset()), 2000)
        both = {s["attributes"]["latchwork.worker"] for s in self.receiver.requests[0]["spans"]}
        self.assertEqual(both, {0, 1})

    def test_a_full_ring_drops_the_newest(self):
        got, _ = self.send(spans=1100)
        self.assertEqual(got, dict(NONE_LOST, made=2200, sent=2048, full=152))
        self.assertEqual(sorted(self.by_offset()), list(range(1024)) + list(range(1100, 2124)))

    def test_what_can_succeed_later_is_sent_again(self):
        for status in (429, 502, 503, 504):
            self.receiver.answers.append((status, {}, "later"))
        got, log = self.send()
        self.assertEqual(got, dict(NONE_LOST, made=16, sent=16))
        self.assertEqual([len(r["spans"]) for r in self.receiver.requests], [16] * 5)
        self.assertEqual(len(self.receiver.spans()), 16)
        self.assertEqual(
            log.count(
                "spans can't be sent to %s/v1/traces: status 429: later; retrying in "
                % self.receiver.url
            ),
            1,
            log,
        )
        self.assertIn("takes spans again; 0 spans were given up", log)

    def test_retry_after(self):
        self.receiver.answers.append((503, {"Retry-After": "2"}, ""))
        self.assertEqual(self.send()[0]["sent"], 16)
        first, second = [r["at"] for r in self.receiver.requests]
        self.assertGreater(second - first, 1.9)

    def test_what_is_refused_is_not_sent_again(self):
        self.receiver.answers += [(400, {}, "bad\nrequest")]
        got, log = self.send()
        self.assertEqual(got, dict(NONE_LOST, made=16, sent=0, refused=16))
        self.assertEqual(len(self.receiver.requests), 1)
        self.assertIn(
            "spans were refused by %s/v1/traces: status 400: bad request; 16 spans given up so far"
            % self.receiver.url,
            log,
        )

    def test_redirects_are_refused(self):
        self.receiver.answers += [(307, {"Location": self.receiver.url + "/elsewhere"}, "")]
        self.assertEqual(self.send()[0]["refused"], 16)

    def test_partial_success(self):
        self.receiver.answers += [
            (200, {}, '{"partialSuccess": {"rejectedSpans": "3", "errorMessage": "too old"}}')
        ]
        got, log = self.send()
        self.assertEqual(got, dict(NONE_LOST, made=16, sent=13, rejected=3))
        self.assertIn("3 spans rejected: too old", log)

    def test_answers_that_are_no_json(self):
        self.receiver.answers += [(200, {}, "<html>"), (202, {}, "")]
        self.assertEqual(self.send()[0]["sent"], 16)

    def test_nobody_there(self):
        got, log = self.send(endpoint="http://127.0.0.1:%d" % free_port(), give_up_ms=1000)
        self.assertEqual(got, dict(NONE_LOST, made=16, sent=0, unreachable=16))
        self.assertIn("spans can't be sent to", log)

    def test_nobody_answers(self):
        self.receiver.delay_s = 3
        got, log = self.send(timeout_ms=100, give_up_ms=1000)
        self.assertEqual(got, dict(NONE_LOST, made=16, sent=0, unreachable=16))
        self.assertIn("spans can't be sent to", log)

    def https(self, client_ca=None):
        """Replaces the receiver by one that speaks HTTPS, and that demands a client's certificate
        if `client_ca` names the CA for it. Returns the folder of the certificates."""
        certs = os.path.join(self.dir.name, "certs")
        os.makedirs(certs)
        subprocess.run(
            [os.path.join(ROOT, "tests/support/certs.sh"), certs], check=True, timeout=60
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certs + "/server.pem", certs + "/server.key")
        if client_ca:
            context.load_verify_locations(certs + "/" + client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
        self.receiver = Receiver(tls=context)
        self.addCleanup(self.receiver.server.server_close)
        return certs

    def test_https(self):
        certs = self.https()
        got, _ = self.send(tls={"ca_file": certs + "/ca.pem"})
        self.assertEqual(got, dict(NONE_LOST, made=16, sent=16))

    def test_https_with_the_certificate_of_another_ca(self):
        certs = self.https()
        for tls in ({"ca_file": certs + "/other-ca.pem"}, {}):
            got, log = self.send(give_up_ms=1000, tls=tls)
            self.assertEqual(got, dict(NONE_LOST, made=16, sent=0, unreachable=16), tls)
            self.assertRegex(log, "spans can't be sent to .*certificate", tls)
        self.assertEqual(self.receiver.requests, [])

    def test_https_with_a_client_certificate(self):
        certs = self.https(client_ca="ca.pem")
        tls = {"ca_file": certs + "/ca.pem"}
        got, _ = self.send(give_up_ms=1000, tls=tls)
        self.assertEqual(got, dict(NONE_LOST, made=16, sent=0, unreachable=16))
        tls |= {"cert_file": certs + "/client.pem", "key_file": certs + "/client.key"}
        self.assertEqual(self.send(tls=tls)[0], dict(NONE_LOST, made=16, sent=16))

    def test_sigterm_sends_what_is_left(self):
        self.assertEqual(self.send(spans=1000, seconds=0)[0], dict(NONE_LOST, made=2000, sent=2000))

    def test_sigterm_sends_what_is_left_only_once(self):
        self.receiver.answers += [(503, {}, "later")] * 2
        self.assertEqual(self.send(seconds=0)[0], dict(NONE_LOST, made=16, sent=0, unreachable=16))
        self.assertEqual(len(self.receiver.requests), 1)

    def test_sigterm_does_not_wait_for_an_endpoint_that_is_away(self):
        got, _ = self.send(endpoint="http://127.0.0.1:%d" % free_port(), spans=1000, seconds=1)
        self.assertEqual((got["sent"], got["unreachable"] + got["left"]), (0, 2000))
        self.assertGreater(got["unreachable"], 0)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
