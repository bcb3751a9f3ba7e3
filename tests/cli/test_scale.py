#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests what operators' commands ask of Redis, call by call: however many lanes there are, a call
may use only a bounded number of commands and elements (tests/scale/scale.py). Argument: build
folder."""

import os
import sys

program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "scale", "scale.py")
os.execv(program, [program] + (sys.argv[1:2] or ["build"]) + ["3000", "--watch"])
