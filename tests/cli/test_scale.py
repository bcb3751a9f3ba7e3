#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests that operators' commands do not load Redis more when there are more lanes: each call may
use only a bounded number of commands and elements (tests/scale/scale.py).
Usage: test_scale.py [BUILD]"""

import os
import sys

program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "scale", "scale.py")
os.execv(program, [program] + (sys.argv[1:2] or ["build"]) + ["3000", "--watch"])
