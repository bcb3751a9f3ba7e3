#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the parts of the benchmark that need no servers: figures, goals, results that survive an
interruption, and plots.
Usage: test_bench.py [BUILD]"""

import os
import struct
import sys
import tempfile
import unittest
import xml.etree.ElementTree as xml

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../bench"))
sys.dont_write_bytecode = True
import contenders  # noqa: E402
import measure  # noqa: E402
import plot  # noqa: E402
import run  # noqa: E402
import table  # noqa: E402
import workloads  # noqa: E402


def row(workload, contender, number, **figures):
    return {"workload": workload, "contender": contender, "round": number, "load": 1.0} | figures


class Figures(unittest.TestCase):
    rows = [
        row("W1", "ours", 1, rate=40),
        row("W1", "ours", 2, rate=90),
        row("W1", "ours", 3, rate=10),
        row("W1", "naive", 2, rate=30),
        row("W1", "naive", 1, rate=10),
    ]

    def test_ratios_are_taken_round_by_round(self):
        self.assertEqual(sorted(table.ratios(self.rows, ("W1", "ours"), ("W1", "naive"))), [3, 4])

    def test_cells(self):
        self.assertEqual(table.cell([3.0, 1.0, 2.0]), "2.00 (1.00 – 3.00)")
        self.assertEqual(table.cell([]), "–")
        self.assertEqual(table.number(12345.6), "12,346")
        self.assertEqual(table.number(0), "0")

    def test_goals(self):
        text = table.goals(self.rows)
        self.assertIn("| W1 / naive, 4 threads | ≥ 4 | 3.50 (3.00 – 4.00) | **no** |", text)
        self.assertIn("| W2x, overlaps | 0 | not measured | – |", text)
        text = table.goals(
            self.rows
            + [
                row("W2x", "ours", 1, overlaps=0),
                row("W2x", "ours", 2, overlaps=1),
                row("W2x", "ours", 3, overlaps=0),
            ]
        )
        # The table of goals must show the worst of the repeated measurements, not their median.
        self.assertIn("| W2x, overlaps | 0 | 1 | **no** |", text)
        text = table.goals([row("W1", "ours", 1, redis_us=3.9)])
        self.assertIn("| W1, Redis CPU µs a message | ≤ 4 | 3.90 | yes |", text)

    def test_sampler_finds_the_active_time(self):
        s = measure.Sampler(None, 0)
        s.marks = [(0, 5), (1, 5), (2, 6), (3, 9), (4, 9), (5, 9)]
        self.assertEqual(s.active_s(), 2)
        s.marks = [(0, 5), (1, 5)]
        self.assertIsNone(s.active_s())

    def test_progress_of_several_processes(self):
        with tempfile.TemporaryDirectory() as d:
            for name, three in (
                ("1.progress", (3, 100, 300)),
                ("2.progress", (4, 50, 200)),
                ("3.progress", (0, 0, 0)),
            ):
                with open(os.path.join(d, name), "wb") as f:
                    f.write(struct.pack("=3q", *three))
            self.assertEqual(measure.progress(d), (7, 50, 300))


class Plans(unittest.TestCase):
    def test_names_are_unique_and_known(self):
        known = contenders.contenders("build", ".")
        for full in (False, True):
            plan = workloads.plan(full)
            self.assertEqual(len({w.name for w in plan}), len(plan))
            for w in plan:
                self.assertLessEqual(set(w.contenders), set(known), w.name)

    def test_one_topic_holds_one_kind_of_data(self):
        for full in (False, True):
            topics = {}
            for w in workloads.plan(full):
                self.assertEqual(topics.setdefault(w.data.topic, w.data), w.data)

    def test_results_survive_an_interruption(self):
        with tempfile.TemporaryDirectory() as d:
            path = os.path.join(d, "bench/results.jsonl")
            run.Results(path, keep=True).add(row("W1", "ours", 1, rate=1, digest="a"))
            with open(path, "a") as f:
                # Write half a line, as if the benchmark had been killed while it wrote.
                f.write('{"workload": "W1", "conten')
            again = run.Results(path, keep=True)
            self.assertTrue(again.finished(workload="W1", contender="ours", round=1, digest="a"))
            self.assertFalse(again.finished(workload="W1", contender="ours", round=1, digest="b"))
            again.add(row("W1", "naive", 1, rate=2, digest="n"))
            self.assertEqual(len(run.Results(path, keep=True).rows), 2)
            self.assertEqual(run.Results(path, keep=False).rows, [])


class Plots(unittest.TestCase):
    def test_all_are_well_formed_and_stay_inside(self):
        plan, known = workloads.plan(True), contenders.contenders("build", ".")
        rows = []
        for w in plan:
            for i, c in enumerate(w.contenders):
                rows += [
                    row(
                        w.name,
                        c,
                        n,
                        rate=1000 * (i + n),
                        redis_us=4 + n,
                        own_us=3,
                        p99_ms=5.0 * (i + 1),
                        offered=max(1, w.rate),
                    )
                    for n in (1, 2)
                ]
        plots = dict(plot.all_plots(rows, plan, known))
        self.assertEqual(
            set(plots),
            {
                "throughput.svg",
                "load-throughput.svg",
                "load-p99.svg",
                "cost-keys.svg",
                "cost-waiting.svg",
            },
        )
        for name, text in plots.items():
            for e in xml.fromstring(text).iter():
                for attribute, most in (
                    ("cx", plot.WIDTH),
                    ("x", plot.WIDTH),
                    ("cy", plot.HEIGHT),
                    ("y", plot.HEIGHT),
                ):
                    self.assertTrue(0 <= float(e.get(attribute, 0)) <= most, (name, e.attrib))

    def test_none_without_figures(self):
        self.assertEqual(
            plot.all_plots([], workloads.plan(True), contenders.contenders("build", ".")), []
        )


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
