#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the description of the HTTP API (/api/v1/openapi.json) with a running server on a
private Redis and the dev broker. Every path in the description must answer as described, and every
route of the server must be described.
Usage: test_api_openapi.py [BUILD [TEST…]]
No test asserts how long something takes. Time limits only turn a hang into a failure."""

import http.client
import json
import os
import re
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from api_case import ApiCase, P, TOKEN, envelope, quote  # noqa: E402
from test_metrics import ROOT  # noqa: E402
from lib.process import wait_until  # noqa: E402

KINDS = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
    "null": type(None),
}
# A test value for each query parameter, by the parameter's name.
VALUES = {
    "key": "t-a",
    "match": "t-*",
    "topic": "orders",
    "partition": "9",
    "older_than": "0s",
    "attempts": "0",
    "reason": "*",
    "error": "r",
    "where": "/total",
    "from": "1h",
    "to": "2100-01-01T00:00:00Z",
    "order": "newest",
    "limit": "5",
    "outcome": "done",
}


def is_of(v, kind):
    return isinstance(v, KINDS[kind]) and not (
        isinstance(v, bool) and kind in ("integer", "number")
    )


class Openapi(ApiCase):
    more = {"group": {"from": "header:tenant"}}

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.doc = json.loads(cls.w.get("/api/v1/openapi.json")[1])

    def setUp(self):
        super().setUp()
        wait_until(lambda: self.call("HGET", P + "limits", "version"), 60, "a worker's file")
        self.plant("t-a", 1, 2)
        self.plant("t-a/b %", 3)
        self.plant("t-idle")
        self.call("SET", P + "lock:t-a", "host-7-0a1b2c3d.9:1700000000000123", "PX", 600000)
        self.letter = (
            "0:"
            + self.call(
                "XADD",
                P + "dead",
                "*",
                "envelope",
                envelope(7, "t-a"),
                "original",
                envelope(8, "t-a"),
                "reason",
                "r\xff",
                "attempts",
                5,
                "first_ms",
                1,
                "last_ms",
                2,
                "edited_by",
                "me",
                "edited_ms",
                3,
            ).decode()
        )
        self.addCleanup(self.call, "XDEL", P + "dead", self.letter.split(":")[1])
        self.job = self.post("/api/v1/ledger", status=202)["job"]
        self.wait_for_jobs()

    def wait_for_jobs(self):
        wait_until(
            lambda: all(j["state"] != "running" for j in self.ask("/api/v1/jobs")["jobs"]),
            60,
            "end of the jobs",
        )

    # --- does a value fit a schema? ---------------------------------------------------------------

    def wrong(self, schema, v, where):
        """Checks a value against a schema, and returns the violations as a list of texts."""
        if "$ref" in schema:
            return self.wrong(
                self.doc["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]], v, where
            )
        if "anyOf" in schema:
            found = [self.wrong(s, v, where) for s in schema["anyOf"]]
            return [] if [] in found else sum(found, [])
        kinds = schema.get("type", [])
        kinds = [kinds] if isinstance(kinds, str) else kinds
        if kinds and not any(is_of(v, kind) for kind in kinds):
            return ["%s: %r is not %s" % (where, v, kinds)]
        bad = []
        if isinstance(v, dict) and "properties" in schema:
            bad += [
                "%s: %s is missing" % (where, name)
                for name in schema.get("required", [])
                if name not in v
            ]
            bad += [
                "%s: %s is not described" % (where, name)
                for name in v
                if name not in schema["properties"]
            ]
            for name in set(v) & set(schema["properties"]):
                bad += self.wrong(schema["properties"][name], v[name], where + "." + name)
        if isinstance(v, list) and "items" in schema:
            for i, one in enumerate(v):
                bad += self.wrong(schema["items"], one, "%s[%d]" % (where, i))
        return bad

    # --- requests ---------------------------------------------------------------------------------

    def operations(self):
        for path, item in sorted(self.doc["paths"].items()):
            for method, op in sorted(item.items()):
                yield path, method, op

    def fill(self, path):
        """Puts values into the parameters of a path, and returns the path."""
        for name, value in (
            ("dead/{id}", self.letter),
            ("jobs/{id}", self.job),
            ("groups/{id}", "acme"),
            ("messages/{id}", self.dead()[0]["identity"]),
            ("{key}", "t-a"),
        ):
            path = path.replace(name, name.split("{")[0] + quote(value))
        self.assertNotIn("{", path)
        return path

    def body(self, op):
        """Returns a body that the action accepts, but with which the action changes nothing."""
        members = op["requestBody"]["content"]["application/json"]["schema"].get("properties", {})
        if "ids" in members:
            return {
                "ids": [self.letter] if "reason" in members["filter"]["properties"] else ["t-a"]
            }
        if "per_second" in members:
            return {"per_second": 1000}
        return {"payload": "{}"} if "payload" in members else {}

    def send(self, path, method, body=None, token=TOKEN):
        connection = http.client.HTTPConnection("127.0.0.1", self.w.port, timeout=30)
        try:
            connection.request(
                method.upper(), path, body, {"Authorization": "Bearer " + token} if token else {}
            )
            r = connection.getresponse()
            stream = r.headers["Content-Type"].startswith("text/event-stream")
            return (
                r.status,
                r.headers["Content-Type"].split(";")[0],
                r.readline() if stream else r.read().decode(),
            )
        finally:
            connection.close()

    def check(self, path, method, op, status, kind, text):
        where = "%s %s" % (method, path)
        described = op["responses"].get(str(status))
        self.assertTrue(
            described and status < 300, "%s: %d is not described: %s" % (where, status, text)
        )
        self.assertEqual(list(described["content"]), [kind], where)
        if kind == "application/json":
            values = [json.loads(text)]
        else:
            values = (
                [json.loads(line) for line in text.splitlines()]
                if kind == "application/x-ndjson"
                else []
            )
        for v in values:
            self.assertEqual(self.wrong(described["content"][kind]["schema"], v, where), [])

    # --- tests ------------------------------------------------------------------------------------

    def test_form(self):
        """The document must be consistent: its references must have a target, names must be unique,
        and every parameter of a path must be described."""
        self.assertEqual(self.doc["openapi"], "3.1.0")
        schemas = self.doc["components"]["schemas"]
        text = json.dumps(self.doc)
        self.assertEqual(
            set(re.findall(r'"#/components/schemas/(\w+)"', text)) - set(schemas), set()
        )
        ids = [op["operationId"] for _, _, op in self.operations() if "operationId" in op]
        self.assertEqual(len(ids), len(set(ids)))
        self.assertIn("get_lanes_key", ids)
        for path, _, op in self.operations():
            self.assertEqual(
                re.findall("{(.*?)}", path),
                [p["name"] for p in op.get("parameters", []) if p["in"] == "path"],
                path,
            )

    def test_every_path_answers_as_described(self):
        for path, method, op in self.operations():
            if not path.startswith("/api/"):
                continue
            if method == "get":
                self.check(path, method, op, *self.send(self.fill(path), method))
                continue
            body = json.dumps(self.body(op))
            self.assertEqual(self.send(self.fill(path), method, body, token=None)[0], 401, path)
            self.assertEqual(
                self.send(self.fill(path), method, '{"no_such_member":1}')[0], 400, path
            )
            self.check(path, method, op, *self.send(self.fill(path), method, body))
            self.wait_for_jobs()

    def test_others_answer(self):
        for path in ("/metrics", "/healthz", "/readyz", "/version"):
            self.assertEqual(self.send(path, "get", token=None)[0], 200)
            self.assertEqual(
                [self.send(path, "get")[1]],
                list(self.doc["paths"][path]["get"]["responses"]["default"]["content"]),
            )

    def test_parameters(self):
        """The server must accept every described parameter, and no other."""
        for path, method, op in self.operations():
            if method != "get" or not path.startswith("/api/") or not op["responses"].get("200"):
                continue
            for p in op["parameters"]:
                if p["in"] == "query" and p["name"] != "cursor":
                    self.check(
                        path,
                        method,
                        op,
                        *self.send(
                            "%s?%s=%s" % (self.fill(path), p["name"], quote(VALUES[p["name"]])),
                            method,
                        ),
                    )
                if p["name"] == "cursor":
                    self.assertEqual(
                        self.send(self.fill(path) + "?cursor=%3F", method)[0], 400, path
                    )
            if op["parameters"]:
                status, _, text = self.send(self.fill(path) + "?no_such_parameter=1", method)
                self.assertEqual(status, 400, path)
                self.assertEqual(self.wrong({"$ref": "/Error"}, json.loads(text), path), [])

    def test_filters_of_actions(self):
        """The server must accept every member of a filter that the document describes."""
        for path, method, op in self.operations():
            schema = (
                op.get("requestBody", {})
                .get("content", {})
                .get("application/json", {})
                .get("schema", {})
                .get("properties", {})
                .get("filter")
            )
            for name, member in (schema or {}).get("properties", {}).items():
                value = int(VALUES[name]) if member.get("type") == "integer" else VALUES[name]
                self.check(
                    path,
                    method,
                    op,
                    *self.send(path, method, json.dumps({"filter": {name: value}})),
                )
                self.wait_for_jobs()

    def test_other_methods(self):
        for path, item in self.doc["paths"].items():
            if "post" not in item:
                self.assertEqual(self.send(self.fill(path), "post", "{}")[0], 405, path)
            if "get" not in item and not self.has_get(path):
                self.assertEqual(self.send(self.fill(path), "get")[0], 405, path)

    def has_get(self, path):
        """Returns True if the path also matches a route that has the method GET. For example,
        lanes/pause also matches the route of a lane, here of the key `pause`."""
        return any(
            "get" in item and re.fullmatch(re.sub("{.*?}", "[^/]*", p), path)
            for p, item in self.doc["paths"].items()
        )

    def test_nothing_is_missing(self):
        """Every route of the server must be described: the routes that the server lists, and the
        routes in the exporter's code."""
        listed = self.ask("/api/v1")
        for method in ("get", "post"):
            described = {
                re.sub("{.*?}", "*", p)
                for p, m, _ in self.operations()
                if m == method and p.startswith("/api/v1/")
            }
            self.assertEqual(set(listed[method]), described)
        code = ""
        for name in ("exporter.c", "http.c"):
            with open(os.path.join(ROOT, "monitor", name)) as f:
                code += f.read()
        paths = set(re.findall(r'"(/(?:api/v1/)?[a-z]+)"', code)) - {"/api", "/api/"}
        self.assertIn("/api/v1/stats", paths)
        self.assertEqual(paths - set(self.doc["paths"]), set())

    def test_names(self):
        """A path that contains a key must lead to the key's lane, even if the key contains a slash,
        a space or a percent sign."""
        self.assertEqual(self.ask("/api/v1/lanes/" + quote("t-a/b %"))["waiting"], 1)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1] + sys.argv[2:], verbosity=2)
