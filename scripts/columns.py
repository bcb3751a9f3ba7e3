#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that no line of code has more than 100 columns. Prints the lines that are too long.
  usage: columns.py [FILE...]   (default: every file that git knows, from the top of the tree)
  exit: 0 no line is too long, 1 some lines are

A line may be longer if it has a string, an address or a word of at least UNBROKEN columns, which
would be harder to read, or to search for, in two pieces. `make help` prints lines that begin with
"## ", so they are not wrapped either."""

import os, re, subprocess, sys

COLUMNS, UNBROKEN = 100, 50
CODE = ('.c', '.h', '.lua', '.py', '.sh', '.mk', '.awk', '.js', '.ts', '.go', 'Makefile', '.ci/run')
# files in which long lines are allowed, each with the reason
EXCEPT = {
    'consumer/fleet/table.c': 'a row of the table is a state',
    'tests/unit/consumer/test_supervisor.c': 'a row of the table is a state',
}
PIECE = re.compile(r'''"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`(?:[^`\\]|\\.)*`|[^\s"'`]+|\S''')
FORMATTED = re.compile(r"""[fF]'.*'|[fF]".*\"""")


def unbroken(path, line):
    pieces = PIECE.findall(line)
    if path.endswith('.py'):  # an f'…' may contain other strings
        pieces += FORMATTED.findall(line)
    return max(map(len, pieces)) >= UNBROKEN


def long_lines(path):
    with open(path, encoding='utf-8') as f:
        for number, line in enumerate(f, 1):
            line = line.rstrip('\n')
            if len(line) > COLUMNS and not line.startswith('## ') and not unbroken(path, line):
                yield number, len(line)


def main():
    listed = subprocess.run(
        ['git', 'ls-files'], stdout=subprocess.PIPE, text=True, check=True
    ).stdout.split('\n')
    files = sys.argv[1:] or [path for path in listed if path.endswith(CODE)]
    bad = 0
    for path in files:
        if path in EXCEPT or os.path.islink(path):
            continue
        for number, columns in long_lines(path):
            bad += 1
            print(f'{path}:{number}: {columns} columns; at most {COLUMNS} are allowed')
    return 1 if bad else 0


sys.exit(main())
