#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the tests of the Python SDK. Usage: test_sdk_python.py [BUILD]"""
import os
import sys
import unittest

TESTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../sdk/python/tests")

found = unittest.defaultTestLoader.discover(TESTS)
result = unittest.TextTestRunner(verbosity=2).run(found)
sys.exit(0 if result.wasSuccessful() and result.testsRun > 10 and not result.skipped else 1)
