#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that includes point one way: a file may include only files of its own folder and of lower
layers, in the order that CONTRIBUTING.md shows under "The house". Also checks that no top-level
folder holds more than a quarter of the program's code.
Usage: test_layers.py [BUILD_DIR]"""

import os, re, sys

os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..'))

# The layers, from the top down. Each text names the folders of one layer. Folders of one layer do
# not include each other.
LAYERS = [
    'cli',
    'api',
    'monitor',
    'ops',
    'consumer',
    'kafka',
    'handlers',
    'lock',
    'queue',
    'config',
    'base include',
]
# For each folder with inner folders, the order of its inner folders, from the top down. "" stands
# for the files that are in no inner folder. The folder cli is absent: its inner folders may include
# each other in any order, but not in a circle.
INSIDE = {
    'consumer': ['fleet', 'process', 'worker', ''],
    'ops': ['queue dead ledger', ''],
    'handlers': ['exec http insert', ''],
    'lock': ['redlock lane', ''],
    'base': ['redis', ''],
}


def rank(layers, name):
    return next(
        (len(layers) - i for i, names in enumerate(layers) if name in (names.split() or [''])), None
    )


def places(path):
    """Returns the first two folders of a path: ('consumer', 'worker') for
    consumer/worker/worker.c."""
    parts = path.split('/')[:-1]
    return (parts + ['', ''])[:2]


def wrong(path, to):
    (top, room), (to_top, to_room) = places(path), places(to)
    if top != to_top:
        if rank(LAYERS, to_top) is None:
            return f'{to_top}/ has no place among the layers'
        return (
            None
            if rank(LAYERS, to_top) < rank(LAYERS, top)
            else f'{to_top}/ does not stand below {top}/'
        )
    if top in INSIDE and room != to_room:
        a, b = rank(INSIDE[top], room), rank(INSIDE[top], to_room)
        if a is None or b is None:
            return f'{top}/{room if a is None else to_room}/ has no place inside {top}/'
        return None if b < a else f'{top}/{to_room} does not stand below {top}/{room}'
    return None


def circle(edges):
    """Returns a circle of includes as a list of names that ends with its first name, or None if
    there is no circle."""
    done = set()

    def walk(at, path):
        if at in path:
            return path[path.index(at) :] + [at]
        if at in done:
            return None
        for to in sorted(edges.get(at, ())):
            found = walk(to, path + [at])
            if found:
                return found
        done.add(at)

    return next((c for c in (walk(at, []) for at in sorted(edges)) if c), None)


def too_large(files):
    """Returns an error for each top-level folder with more than a quarter of the lines of C."""
    lines = {}
    for path in files:
        top = path.split('/')[0]
        with open(path) as f:
            lines[top] = lines.get(top, 0) + sum(1 for _ in f)
    whole = sum(lines.values())
    return [
        f'{top}/ holds {n} of {whole} lines, more than a quarter; divide it'
        for top, n in sorted(lines.items())
        if 4 * n > whole
    ]


def main():
    files = [
        os.path.join(folder, name)
        for top in ' '.join(LAYERS).split()
        for folder, _, names in os.walk(top)
        for name in names
        if name.endswith(('.c', '.h')) and '/examples' not in folder
    ]
    known, bad, of_files, of_commands = set(files), too_large(files), {}, {}
    for path in files:
        with open(path) as f:
            text = f.read()
        for to in re.findall(r'^#include "([^"]+)"', text, re.M):
            if 'include/' + to in known:
                to = 'include/' + to
            if to not in known:
                bad.append(f'{path} includes {to}, which is no file of a layer')
                continue
            why = wrong(path, to)
            if why:
                bad.append(f'{path} includes {to}: {why}')
            of_files.setdefault(path, set()).add(to)
            (top, room), (to_top, to_room) = places(path), places(to)
            if top == to_top == 'cli' and room and to_room and room != to_room:
                of_commands.setdefault(room, set()).add(to_room)
    for edges in (of_files, of_commands):
        found = circle(edges)
        if found:
            bad.append('a circle of includes: ' + ' → '.join(found))
    for line in bad:
        print(line)
    print(f'{len(files)} files, {sum(map(len, of_files.values()))} includes, {len(bad)} wrong')
    return 1 if bad or len(files) < 100 else 0


sys.exit(main())
