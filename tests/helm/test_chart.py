#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the Helm chart. helm must accept the chart. The rendered objects must be valid for
Kubernetes and the CRDs, and must agree with Latchwork's configuration.
usage: tests/helm/test_chart.py BUILD_DIR [unittest arguments]

tests/helm/tools.sh puts helm, kubeconform and the schemas into BUILD_DIR/helm. BUILD_DIR/latchwork
checks the rendered configurations."""

import base64
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

import yaml

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CHART = os.path.join(ROOT, "deploy/helm/latchwork")
BUILD = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else os.path.join(ROOT, "build")
TOOLS = os.path.join(BUILD, "helm")
VERSIONS = ["1.29.0", "1.31.0"]
SMALL = {
    "config": {
        "name": "a",
        "kafka": {"topics": ["a"], "properties": {"bootstrap.servers": "k:1"}},
        "redis": {"url": "redis://r:1/0"},
        "handler": {"type": "http", "url": "http://s/"},
    }
}


def helm(*args, values=None):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
        json.dump(values or {}, f)
        f.flush()
        return subprocess.run(
            [TOOLS + "/bin/helm", *args, CHART, "-f", f.name],
            capture_output=True,
            text=True,
            timeout=60,
        )


def render(values, version=VERSIONS[0]):
    p = helm("template", "demo", "--namespace", "shop", "--kube-version", version, values=values)
    if p.returncode:
        raise AssertionError(p.stderr)
    return p.stdout, {
        (d["kind"], d["metadata"]["name"]): d for d in yaml.safe_load_all(p.stdout) if d
    }


def all_values():
    with open(CHART + "/ci/all-values.yaml") as f:
        return yaml.safe_load(f)


def workers_by_default():
    """Returns the default value of the key `workers`, as text, from the program's reference of
    keys."""
    p = subprocess.run(
        [BUILD + "/latchwork", "check", "--reference"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return re.search(r"^\| `workers` \|[^|]*\| `(\d+)` \|", p.stdout, re.M).group(1)


def make_crd_schemas():
    """Writes each CRD's schema in the form that kubeconform reads. With these schemas, kubeconform
    refuses unknown fields."""

    def close(s):
        if isinstance(s, dict):
            if (
                s.get("type") == "object"
                and "properties" in s
                and not s.get("x-kubernetes-preserve-unknown-fields")
            ):
                s.setdefault("additionalProperties", False)
            for v in s.values():
                close(v)
        elif isinstance(s, list):
            for v in s:
                close(v)

    for name in os.listdir(TOOLS + "/crds"):
        if not name.endswith(".yaml"):
            continue
        with open(f"{TOOLS}/crds/{name}") as f:
            crd = yaml.safe_load(f)
        for v in crd["spec"]["versions"]:
            schema = v["schema"]["openAPIV3Schema"]
            for part in ("spec", "status"):
                close(schema["properties"].get(part))
            with open(
                f"{TOOLS}/crds/{crd['spec']['names']['kind'].lower()}-{v['name']}.json", "w"
            ) as f:
                json.dump(schema, f)


def make_schemas(version):
    """Writes the schemas of the kinds that the chart uses. Each schema contains its definitions,
    because kubeconform does not follow references to other files."""
    source, out = (
        f"{TOOLS}/wheel/kubernetes_validate/kubernetes-json-schema/v{version}-local-strict",
        f"{TOOLS}/schemas/{version}",
    )
    os.makedirs(out, exist_ok=True)

    def read(name):
        with open(f"{source}/{name}.json") as f:
            schema = json.loads(f.read().replace('"/api/_definitions.json#', '"#'))
        return {k: v for k, v in schema.items() if k not in ("$id", "$schema")}

    for name in (
        "configmap-v1",
        "service-v1",
        "deployment-apps-v1",
        "statefulset-apps-v1",
        "poddisruptionbudget-policy-v1",
        "secret-v1",
        "networkpolicy-networking-v1",
    ):
        with open(f"{out}/{name}.json", "w") as f:
            json.dump({**read(name), "$defs": read("_definitions")["$defs"]}, f)
    return out + "/{{ .ResourceKind }}{{ .KindSuffix }}.json"


class Chart(unittest.TestCase):
    def test_lint(self):
        for values in ({}, {"consumers": {"a": SMALL}}, all_values()):
            p = helm("lint", "--strict", values=values)
            self.assertEqual(p.returncode, 0, p.stdout)

    def test_valid_for_kubernetes_and_the_crds(self):
        make_crd_schemas()
        for version in VERSIONS:
            text, objects = render(all_values(), version)
            p = subprocess.run(
                [
                    TOOLS + "/bin/kubeconform",
                    "-strict",
                    "-summary",
                    "-output",
                    "json",
                    "-kubernetes-version",
                    version,
                    "-schema-location",
                    make_schemas(version),
                    "-schema-location",
                    TOOLS + "/crds/{{ .ResourceKind }}-{{ .ResourceAPIVersion }}.json",
                    "-",
                ],
                input=text,
                capture_output=True,
                text=True,
                timeout=60,
            )
            told = json.loads(p.stdout)
            self.assertEqual(p.returncode, 0, told)
            self.assertEqual(told["summary"]["valid"], len(objects), told)

    def test_every_configuration_is_one(self):
        _, objects = render(all_values())
        for name in ("demo-orders", "demo-audit"):
            with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
                f.write(objects["ConfigMap", name]["data"]["latchwork.json"])
                f.flush()
                p = subprocess.run(
                    [BUILD + "/latchwork", "check", "-c", f.name],
                    capture_output=True,
                    text=True,
                    timeout=60,
                    env={
                        **os.environ,
                        "POD_NAME": "demo-orders-0",
                        "REDIS_PASSWORD": "secret",
                        "LATCHWORK_READ_TOKEN": 40 * "r",
                        "ANNA_TOKEN": 40 * "a",
                    },
                )
                self.assertEqual(p.returncode, 0, p.stdout + p.stderr)
                self.assertNotIn("everybody", p.stdout + p.stderr)

    def test_what_a_consumer_gets(self):
        _, objects = render(all_values())
        orders, audit = objects["StatefulSet", "demo-orders"], objects["Deployment", "demo-audit"]
        pod = orders["spec"]["template"]["spec"]
        # terminationGracePeriodSeconds is shutdown.grace_ms (45.5 s in all-values.yaml), rounded up
        # to seconds, plus 10 s.
        self.assertEqual(pod["terminationGracePeriodSeconds"], 56)
        self.assertEqual(audit["spec"]["template"]["spec"]["terminationGracePeriodSeconds"], 40)
        self.assertEqual(
            json.loads(objects["ConfigMap", "demo-orders"]["data"]["latchwork.json"])["kafka"][
                "member_id"
            ],
            "${POD_NAME}",
        )
        self.assertNotIn(
            "member_id",
            json.loads(objects["ConfigMap", "demo-audit"]["data"]["latchwork.json"])["kafka"],
        )
        # The StatefulSet has no number of replicas, because the autoscaler sets it.
        self.assertNotIn("replicas", orders["spec"])
        self.assertEqual(audit["spec"]["replicas"], 1)
        self.assertEqual(
            audit["spec"]["template"]["spec"]["containers"][0]["image"], "latchwork:0.1.0-python"
        )
        for probe in (
            "startupProbe",
            "livenessProbe",
            "readinessProbe",
            # Each probe asks for /healthz only, because a pod must not be restarted or taken out of
            # service when Redis or Kafka is down.
        ):
            self.assertEqual(
                pod["containers"][0][probe]["httpGet"], {"path": "/healthz", "port": "health"}
            )
        self.assertTrue(pod["securityContext"]["runAsNonRoot"])
        self.assertTrue(pod["containers"][0]["securityContext"]["readOnlyRootFilesystem"])
        self.assertEqual(objects["PodDisruptionBudget", "demo-orders"]["spec"]["maxUnavailable"], 1)

    def test_who_may_read(self):
        """The page and the API need a token, and the network reaches metrics and health only."""
        _, objects = render(all_values())
        secret = objects["Secret", "demo-orders-http"]
        self.assertRegex(
            base64.b64decode(secret["data"]["LATCHWORK_READ_TOKEN"]).decode(), "^[a-zA-Z0-9]{40}$"
        )
        # The configuration of audit has read tokens of its own.
        self.assertNotIn(("Secret", "demo-audit-http"), objects)
        for kind, name, env in (
            ("StatefulSet", "demo-orders", ["demo-orders-http", "orders-secrets"]),
            ("Deployment", "demo-audit", []),
        ):
            (container,) = objects[kind, name]["spec"]["template"]["spec"]["containers"]
            self.assertEqual([e["secretRef"]["name"] for e in container.get("envFrom", [])], env)
        http = json.loads(objects["ConfigMap", "demo-orders"]["data"]["latchwork.json"])["http"]
        self.assertEqual(http["read_tokens"], {"chart": "${LATCHWORK_READ_TOKEN}"})
        self.assertEqual(http["health_listen"], "0.0.0.0:9465")
        self.assertEqual(
            objects["NetworkPolicy", "demo-audit"]["spec"]["ingress"],
            [{"ports": [{"port": "health", "protocol": "TCP"}]}],
        )
        own = objects["NetworkPolicy", "demo-orders"]["spec"]["ingress"][1]
        self.assertEqual(own["ports"], [{"port": "http", "protocol": "TCP"}])
        self.assertEqual(own["from"], [{"namespaceSelector": {"matchLabels": {"team": "orders"}}}])
        self.assertEqual(
            objects["ServiceMonitor", "demo"]["spec"]["endpoints"][0]["port"], "health"
        )

    def test_scaler(self):
        _, objects = render(all_values())
        spec = objects["ScaledObject", "demo-orders"]["spec"]
        self.assertEqual([t["type"] for t in spec["triggers"]], ["prometheus", "kafka"])
        metadata = spec["triggers"][0]["metadata"]
        self.assertIn(
            'latchwork_wanted_workers{service="demo-orders",namespace="shop"}', metadata["query"]
        )
        # The threshold is the number of workers per pod.
        self.assertEqual(metadata["threshold"], "2")
        self.assertEqual(spec["triggers"][1]["metadata"]["consumerGroup"], "orders")
        values = all_values()
        config = values["consumers"]["orders"]["config"]
        del config["workers"]
        config["kafka"]["properties"]["group.id"] = "billing"
        triggers = render(values)[1]["ScaledObject", "demo-orders"]["spec"]["triggers"]
        self.assertEqual(triggers[0]["metadata"]["threshold"], workers_by_default())
        self.assertEqual(triggers[1]["metadata"]["consumerGroup"], "billing")
        values["consumers"]["orders"]["scaling"]["kafka"]["consumerGroup"] = "other"
        triggers = render(values)[1]["ScaledObject", "demo-orders"]["spec"]["triggers"]
        self.assertEqual(triggers[1]["metadata"]["consumerGroup"], "other")
        del values["consumers"]["orders"]["scaling"]["kafka"]
        self.assertIn(
            "minReplicas 0 needs `kafka`",
            helm("template", "demo", "--kube-version", VERSIONS[0], values=values).stderr,
        )
        del values["consumers"]["orders"]["scaling"]["prometheus"]
        values["consumers"]["orders"]["scaling"]["minReplicas"] = 1
        self.assertIn(
            "the address of Prometheus",
            helm("template", "demo", "--kube-version", VERSIONS[0], values=values).stderr,
        )

    def test_monitoring_holds_the_project_s_files(self):
        _, objects = render(all_values())
        with open(ROOT + "/deploy/grafana-dashboard.json") as f:
            self.assertEqual(
                json.loads(objects["ConfigMap", "demo-dashboard"]["data"]["latchwork.json"]),
                json.load(f),
            )
        with open(ROOT + "/deploy/prometheus-alerts.yml") as f:
            self.assertEqual(objects["PrometheusRule", "demo"]["spec"], yaml.safe_load(f))
        self.assertEqual(
            objects["ServiceMonitor", "demo"]["metadata"]["labels"]["release"], "prometheus"
        )
        _, plain = render({"consumers": {"a": SMALL}})
        self.assertEqual(
            {kind for kind, _ in plain},
            {
                "ConfigMap",
                "Secret",
                "NetworkPolicy",
                "Service",
                "StatefulSet",
                "PodDisruptionBudget",
            },
        )

    def test_wrong_values_are_refused(self):
        for consumer, why in (
            ({}, "config is required"),
            ({**SMALL, "kind": "DaemonSet"}, "kind"),
            ({**SMALL, "replica": 1}, "replica"),
            ({"config": {"name": "a"}}, "kafka is required"),
        ):
            p = helm(
                "template",
                "demo",
                "--kube-version",
                VERSIONS[0],
                values={"consumers": {"a": consumer}},
            )
            self.assertNotEqual(p.returncode, 0)
            self.assertIn(why, p.stderr)


if __name__ == "__main__":
    subprocess.run([os.path.join(ROOT, "tests/helm/tools.sh"), TOOLS], check=True)
    unittest.main(argv=[sys.argv[0]] + sys.argv[2:], verbosity=2)
