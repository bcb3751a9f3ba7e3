#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts assertions per function in the worker's logic and in queue/. Prints one line per file, and
the sum. The script sets no limit.

The script prints two figures: the number of assertions in the text, and the number of assertions
with calls expanded. The invariants of a struct are written once, in a checker: `static inline void
check_NAME(…)`, a function that consists only of assertions and calls of other checkers (this script
refuses any other statement in it). A function that calls a checker makes all assertions of the
checker, so the second figure counts all of them for each call. A checker does not count as a
function.
  usage: asserts.py [FOLDER...]   (from the top of the tree)"""

import glob, re, sys

# a function is recognized by its first line, which clang-format puts at the left margin
FUNCTION = re.compile(r'^[a-z_][^;{}=()]*\([^;{}]*?\) \{', re.M)
CHECKER = re.compile(r'^static inline void (check_\w+)\([^;{}]*?\) \{(.*?)\}$', re.M | re.S)
ASSERT = re.compile(r'\bassert\(')
CALL = re.compile(r'\b(check_\w+)\(')
COMMENT = re.compile(r'/\*.*?\*/', re.S)


def read(path):
    with open(path, encoding='utf-8') as f:
        return COMMENT.sub(' ', f.read())


def pure(name, body):
    for line in filter(None, (part.strip() for part in body.split(';'))):
        if not re.match(r'(assert|check_\w+)\(', line):
            sys.exit(f'{name} does more than assert: {line}')


def weights(bodies):
    """Returns, for each checker, the number of assertions that one call of the checker makes."""
    known = {}

    def weigh(name):
        if name not in known:
            known[name] = len(ASSERT.findall(bodies[name])) + sum(
                map(weigh, CALL.findall(bodies[name]))
            )
        return known[name]

    for name in bodies:
        weigh(name)
    return known


def main():
    folders = sys.argv[1:] or ['consumer/worker', 'queue']
    paths = sorted(
        p
        for folder in folders
        for kind in 'ch'
        for p in glob.glob(f'{folder}/**/*.{kind}', recursive=True)
    )
    texts, bodies = {path: read(path) for path in paths}, {}
    for text in texts.values():
        bodies.update(CHECKER.findall(text))
    for name, body in bodies.items():
        pure(name, body)
    weight, functions, written, held = (
        weights(bodies),
        0,
        sum(len(ASSERT.findall(b)) for b in bodies.values()),
        0,
    )
    for path, text in texts.items():
        text = CHECKER.sub('', text)
        n, here = len(FUNCTION.findall(text)), len(ASSERT.findall(text))
        at_calls = sum(weight.get(name, 0) for name in CALL.findall(text))
        functions, written, held = functions + n, written + here, held + here + at_calls
        if n:
            print(f'{here + at_calls:5} in {n:4} functions  {path}')
    print(
        f'{len(bodies)} checkers; {written} assertions written: {written / max(functions, 1):.2f} per function'
    )
    print(
        f'{held:5} assertions in {functions} functions: {held / max(functions, 1):.2f} per function'
    )


main()
