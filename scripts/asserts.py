#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Counts assertions per function in the worker's logic and in queue/. Each folder must have at
least LEAST assertions per function on average.

The script prints two figures: the number of assertions with calls expanded, which is judged, and
the number of assertions in the text. The invariants of a struct are written once, in a checker:
`static inline void check_NAME(…)`, a function that consists only of assertions and calls of other
checkers (this script refuses any other statement in it). A function that calls a checker makes all
assertions of the checker, so the first figure counts all of them for each call. A checker does not
count as a function.
  usage: asserts.py [--files] [FOLDER...]   (from the top of the tree)
  --files   print the figures of each file, too
  exit: 0 each folder has enough assertions, 1 at least one folder has too few"""

import glob, re, sys

LEAST = 2

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
    folders = [a for a in sys.argv[1:] if a != '--files'] or ['consumer/worker', 'queue']
    texts = {
        folder: {
            path: read(path) for path in sorted(glob.glob(f'{folder}/**/*.[ch]', recursive=True))
        }
        for folder in folders
    }
    bodies = {}
    for files in texts.values():
        for text in files.values():
            bodies.update(CHECKER.findall(text))
    for name, body in bodies.items():
        pure(name, body)
    weight = weights(bodies)
    return 1 if sum([poor(folder, files, weight) for folder, files in texts.items()]) else 0


def poor(folder, files, weight):
    """Prints the figures of a folder. Returns true if the folder has too few assertions."""
    functions = written = held = 0
    for path, text in files.items():
        written += len(ASSERT.findall(text))
        text = CHECKER.sub('', text)
        n, here = len(FUNCTION.findall(text)), len(ASSERT.findall(text))
        at_calls = sum(weight.get(name, 0) for name in CALL.findall(text))
        functions, held = functions + n, held + here + at_calls
        if n and '--files' in sys.argv:
            print(f'{here + at_calls:5} in {n:4} functions  {path}')
    average = held / max(functions, 1)
    print(
        f'{folder}: {average:.2f} assertions per function ({held} in {functions} functions, '
        f'{written} written)' + ('' if average >= LEAST else f'; at least {LEAST} are needed')
    )
    return average < LEAST


sys.exit(main())
