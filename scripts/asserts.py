#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts assertions per function in the worker's logic and in queue/: one line for each file, and the sum. It sets no bound.
usage: asserts.py [FOLDER...]   (from the top of the tree)"""
import glob, re, sys

FUNCTION = re.compile(r'^[a-z_].*\) \{(?:.*\})?$', re.M)  # clang-format puts what begins a function at the left margin
ASSERT = re.compile(r'\bassert\(')


def main():
    folders = sys.argv[1:] or ['consumer/worker', 'queue']
    functions = asserts = 0
    for path in sorted(p for folder in folders for p in glob.glob(folder + '/**/*.c', recursive=True)):
        with open(path, encoding='utf-8') as f: text = f.read()
        n_functions, n_asserts = len(FUNCTION.findall(text)), len(ASSERT.findall(text))
        functions, asserts = functions + n_functions, asserts + n_asserts
        print(f'{n_asserts:5} of {n_functions:4}  {path}')
    print(f'{asserts:5} assertions in {functions} functions: {asserts / max(functions, 1):.2f} per function')


main()
