#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each field of the worker's `struct shard`, and each step's part of it (`sh->gate`, `sh->settle`, …), is assigned by one file only.
usage: test_owners.py [BUILD_DIR]"""
import glob, os, re, sys

os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..'))
FOLDER = 'consumer/worker'
SHARD = r'(?:\bsh->|\bshards\[(?:[^][]|\[[^][]*\])*\]\.)'  # how a shard is reached; variables of another name are refused
FIELD = SHARD + r'(\w+)((?:\.\w+|->\w+|\[(?:[^][]|\[[^][]*\])*\])*)'
ASSIGNED = [
    FIELD + r'\s*(?:=(?!=)|\+\+|--|(?:[-+*/%&|^]|<<|>>)=)',
    r'(?:\+\+|--)' + FIELD,
    r'\b(?:snprintf|memcpy|memmove|memset|lw_life_read)\(&?' + FIELD,
]
COMMENT = re.compile(r'/\*.*?\*/', re.S)


def read(path):
    with open(path) as f: return COMMENT.sub(' ', f.read())


def own(path):
    """Whether what is assigned is the shard's: `sh->settle.item[i].hold->n = 1` changes a hold."""
    return '->' not in path


def main():
    writers, names = {}, {}
    for path in sorted(glob.glob(FOLDER + '/*.[ch]')):
        text = read(path)
        names.update({name: path for name in re.findall(r'\bstruct shard \*(\w+)', text) if name not in ('sh', 'shards')})
        for pattern in ASSIGNED:
            for field, rest in re.findall(pattern, text):
                if own(rest): writers.setdefault(field, set()).add(path)
    bad = [f'{path}: a shard is called {name}; call it sh' for name, path in sorted(names.items())]
    bad += [f'sh->{field} is assigned by ' + ', '.join(sorted(files)) for field, files in sorted(writers.items()) if len(files) > 1]
    for line in bad: print(line)
    print(f'{len(writers)} fields and parts of the shard are assigned, {len(bad)} wrong')
    return 1 if bad or len(writers) < 15 else 0


sys.exit(main())
