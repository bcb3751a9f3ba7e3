#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests what operators' commands ask of Redis, call by call: a bounded number of commands and elements, however many lanes there are
(tests/scale/scale.py). Argument: the build folder."""
import os
import sys

program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "scale", "scale.py")
os.execv(program, [program] + (sys.argv[1:2] or ["build"]) + ["3000", "--watch"])
