#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that the simulation of the autoscaler behaves as doc/how-to/kubernetes.md says, under
invented loads and with the recordings of bench/scaler/recorded.
Usage: test_scaler.py [BUILD]"""

import os
import re
import sys
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
sys.path.insert(0, os.path.join(ROOT, "bench/scaler"))
import simulate  # noqa: E402


class Scaler(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.seen = {
            load.name: {
                by: simulate.summary(simulate.simulate(load, by)) for by in ("wanted", "lag")
            }
            for load in simulate.LOADS
        }

    def test_many_keys_get_the_pods_that_they_need(self):
        s = self.seen["many keys"]["wanted"]
        # 600 messages per second that take 100 ms each keep 60 handlers busy. A pod has 16
        # handlers, so four pods are needed.
        self.assertGreaterEqual(s["most_pods"], 4)
        self.assertLess(s["cleared_s"], 1860)

    def test_one_hot_key_starts_no_pods(self):
        self.assertEqual(self.seen["one hot key"]["wanted"]["most_pods"], 1)
        self.assertGreater(self.seen["one hot key"]["lag"]["most_pods"], 4)

    def test_pods_by_lag_do_not_end_a_hot_key_sooner(self):
        for name in ("one hot key", "a hot key among many"):
            s = self.seen[name]
            self.assertEqual(s["wanted"]["cleared_s"], s["lag"]["cleared_s"])
            self.assertLess(s["wanted"]["pod_hours"], s["lag"]["pod_hours"] / 2)

    def test_all_come_back_to_zero(self):
        for name, by in self.seen.items():
            self.assertEqual(by["wanted"]["pods_at_end"], 0, name)

    def test_the_page_s_table(self):
        with open(os.path.join(ROOT, "doc/how-to/kubernetes.md")) as f:
            page = f.read()
        for name, by in self.seen.items():
            for scaler in ("wanted", "lag"):
                s = by[scaler]
                row = rf"\| {name} \| [^|]*{scaler}[^|]* \| {s['most_pods']} \| {s['pod_hours']:.2f} \| {s['cleared_s'] - 1800} s \|"
                self.assertIsNotNone(re.search(row, page), row)

    def test_the_plot_is_the_simulation_s(self):
        results = [
            (load, {by: simulate.simulate(load, by) for by in ("wanted", "lag")})
            for load in simulate.LOADS
        ]
        with open(os.path.join(ROOT, "doc/how-to/scaling.svg")) as f:
            self.assertEqual(
                f.read(),
                simulate.draw(results),
                "run bench/scaler/simulate.py --svg doc/how-to/scaling.svg",
            )


class Recorded(unittest.TestCase):
    """Feeds the autoscaler with figures that a real fleet has reported."""

    @classmethod
    def setUpClass(cls):
        cls.seen = {
            name: {by: simulate.replay(simulate.recorded(name), by) for by in ("wanted", "lag")}
            for name in simulate.RECORDINGS
        }

    def most_pods(self, name, by):
        return max(row[1] for row in self.seen[name][by])

    def test_the_recordings_are_whole(self):
        for name in simulate.RECORDINGS:
            rows = simulate.recorded(name)
            self.assertGreaterEqual(rows[-1]["done"], sum(r["arrived"] for r in rows), name)
            self.assertGreater(max(r["lag"] for r in rows), simulate.LAG_PER_POD, name)
            self.assertEqual((rows[-1]["lag"], rows[-1]["wanted_workers"]), (0, 0), name)

    def test_many_keys_scale_out(self):
        # The recorded metrics come from one pod, whose workers hold up to twice as many locks as
        # they have handlers. So the autoscaler must ask for two pods.
        self.assertGreaterEqual(self.most_pods("many-keys", "wanted"), 2)

    def test_a_hot_key_does_not_while_lag_asks_for_more(self):
        for name in ("one-hot-key", "a-hot-key-among-many"):
            self.assertEqual(self.most_pods(name, "wanted"), 1, name)
            self.assertGreaterEqual(self.most_pods(name, "lag"), 2, name)

    def test_all_come_back_to_zero(self):
        for name, by in self.seen.items():
            self.assertEqual(by["wanted"][-1][1], 0, name)

    def test_the_page_s_table(self):
        with open(os.path.join(ROOT, "doc/how-to/kubernetes.md")) as f:
            page = f.read()
        for name, by in self.seen.items():
            lag = max(row[2] for row in by["wanted"])
            row = f"| {name} | {lag:,} | {self.most_pods(name, 'wanted')} | {self.most_pods(name, 'lag')} | {by['wanted'][-1][1]} |"
            self.assertTrue(row in page, row)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
