#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the tests of the Python SDK, and builds its package.
Usage: test_sdk_python.py [BUILD]"""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile

SDK = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../sdk/python")


def builder():
    """Returns the path of a Python that can build packages: the Python that runs this test, or else
    the distribution's."""
    for python in (sys.executable, "/usr/bin/python3"):
        if (
            subprocess.run(
                [python, "-c", "import setuptools, wheel, pip"], stderr=subprocess.DEVNULL
            ).returncode
            == 0
        ):
            return python
    raise AssertionError(
        "no Python here has pip, setuptools and wheel (packages python3-pip, python3-setuptools, python3-wheel)"
    )


class Package(unittest.TestCase):
    def test_each_sdk_has_the_license(self):
        with open(os.path.join(SDK, "../../LICENSE")) as f:
            text = f.read()
        for name in ("python", "node", "go"):
            with open(os.path.join(SDK, "..", name, "LICENSE")) as f:
                self.assertEqual(f.read(), text, name)

    def test_a_wheel_is_built_without_any_network_and_can_be_imported(self):
        with tempfile.TemporaryDirectory(prefix="latchwork-wheel-") as folder:
            # Build a copy of the package, because the build writes files beside the source.
            source = os.path.join(folder, "source")
            shutil.copytree(
                SDK, source, ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info")
            )
            made = subprocess.run(
                [
                    builder(),
                    "-m",
                    "pip",
                    "wheel",
                    "--no-index",
                    "--no-deps",
                    "--no-build-isolation",
                    "--wheel-dir",
                    folder,
                    source,
                ],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                timeout=300,
            )
            self.assertEqual(made.returncode, 0, made.stdout)
            wheel = os.path.join(folder, "latchwork-0.1.0-py3-none-any.whl")
            with zipfile.ZipFile(wheel) as z:
                self.assertTrue(any(name.endswith("/LICENSE") for name in z.namelist()))
                names = [
                    name
                    for name in z.namelist()
                    if not name.startswith("latchwork-0.1.0.dist-info/")
                ]
            self.assertEqual(
                sorted(names),
                ["latchwork/__init__.py", "latchwork/py.typed", "latchwork/testing.py"],
            )
            used = subprocess.run(
                [sys.executable, "-S", "-c", "import latchwork; print(latchwork.__version__)"],
                env={"PYTHONPATH": wheel},
                stdout=subprocess.PIPE,
                text=True,
                timeout=60,
            )
            self.assertEqual((used.returncode, used.stdout), (0, "0.1.0\n"))


found = unittest.TestSuite(
    [
        unittest.defaultTestLoader.discover(os.path.join(SDK, "tests")),
        unittest.defaultTestLoader.loadTestsFromTestCase(Package),
    ]
)
result = unittest.TextTestRunner(verbosity=2).run(found)
sys.exit(0 if result.wasSuccessful() and result.testsRun > 10 and not result.skipped else 1)
