#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What operators' commands ask of Redis, call by call: bounded commands and elements, whatever the size (tests/scale/scale.py). Argument: the build
folder."""
import os
import sys

program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "scale", "scale.py")
os.execv(program, [program] + (sys.argv[1:2] or ["build"]) + ["3000", "--watch"])
