#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that each field of the structs lw_worker, shard, part, lane, hold and run in
consumer/worker is assigned by only one file. These structs contain structs of steps (`sh->gate`,
`w->runs`, `p->watch`, …). Each field of a step's struct must also be assigned by only one file.
Any file may read any field. A header and the C file of the same name count as one file.
Usage: test_owners.py [BUILD_DIR]"""

import glob, os, re, sys

os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..'))
FOLDER = 'consumer/worker'
INDEX = r'\[(?:[^][]|\[[^][]*\])*\]'
# For each struct: the names of variables that point to it, a pattern that matches other expressions
# for it (or None), the fields that are not checked, and the minimum number of fields.
NOUNS = {
    'shard': (['sh', 'shards'], r'\bshards' + INDEX + r'\.', [], 15),
    # The fields `scratch` and `scratch2` are not checked, because any function may use them while
    # it runs.
    'lw_worker': (['w'], None, ['scratch', 'scratch2', 'shards'], 15),
    'part': (
        ['p', 'part', 'parts', 'only', 'next', 'tmp', 'assigned', 'idle_parts', 'next_idle'],
        r'\b(?:parts|assigned)' + INDEX + '->',
        # `in` has an element per shard, whose fields are checked below.
        ['in'],
        20,
    ),
    'part_in': (['in'], r'\bin' + INDEX + r'\.', [], 3),
    'lane': (
        ['l', 'lane', 'lanes', 'free_lanes', 'gate_next', 'head', 'tail', 'again', 'again_tail'],
        None,
        [],
        8,
    ),
    'hold': (
        ['h', 'hold', 'at', 'next', 'lost', 'listed', 'tail', 'free_holds', 'last_finished'],
        None,
        # The field `next` is not checked, because two files set it. settle.c uses it to link the
        # holds that it will settle, and lane.c uses it to link the lost holds of a lane. A hold is
        # in at most one of these lists.
        ['next'],
        12,
    ),
    'run': (
        ['r', 'late', 'first', 'last', 'before', 'at', 'next', 'tail', 'free', 'waiting']
        + ['waiting_tail', 'next_alone'],
        None,
        [],
        12,
    ),
}
# Each of these functions makes, frees or resets a struct, so it may set any field of it.
MAKERS = ['lane_get', 'lane_maybe_free', 'hold_new', 'hold_free', 'run_new', 'run_free']
MAKERS += ['reset_in']
# For each struct that a function of MAKERS makes or frees: the files that are not checked, because
# there the variables named in NOUNS point to structs of another type.
OTHERS = {'lane': ['lease'], 'run': [], 'hold': [], 'part': []}
COMMENT = re.compile(r'/\*.*?\*/', re.S)


def assigned(names, more):
    """Yields patterns that find assignments to a field. Each pattern has two groups: the field, and
    the text that follows the field in the expression."""
    reached = '(?:' + '|'.join([rf'\b{name}->' for name in names] + ([more] if more else [])) + ')'
    field = reached + r'(\w+)((?:\.\w+|->\w+|' + INDEX + ')*)'
    yield field + r'\s*(?:=(?!=)|\+\+|--|(?:[-+*/%&|^]|<<|>>)=)'
    yield r'(?:\+\+|--)' + field
    yield r'\b(?:snprintf|memcpy|memmove|memset|lw_life_read)\(&?' + field
    # The last pattern finds a pointer that is set to the field's address and is not const, because
    # the field can be assigned through such a pointer.
    yield r'(?<!const )\b(?:bool|int|u?int(?:32|64)_t|size_t) \*\w+ = &' + field


def stem(path):
    return os.path.splitext(path)[0]


def read(path):
    with open(path) as f:
        return COMMENT.sub(' ', f.read())


def without_makers(text):
    """Returns the text without the functions of MAKERS."""
    name = r'\b(?:' + '|'.join(MAKERS) + ')'
    return re.sub(r'^\S[^;{}]*' + name + r'\([^;{}]*\{.*?^\}', '', text, flags=re.M | re.S)


def own(path):
    """Returns True if an assignment to this path changes the struct itself, and not an object to
    which the struct points: `sh->gate.item[p->n] = …` changes the shard, but
    `sh->settle.item[i].hold->n = 1` changes a hold."""
    return '->' not in re.sub(INDEX, '', path)


def foreign_names(struct, names, path, text):
    """Returns an error for each variable that points to the struct and is not listed in `names`,
    because the patterns would not find assignments through that variable."""
    found = re.findall(rf'(?<!const )\bstruct {struct} \*\*?(\w+)(?=[ ,;)=])', text)
    return [
        f'{path}: a {struct} is called {name}; call it {names[0]}'
        for name in sorted(set(found) - set(names))
    ]


def check(struct, names, more, common, least, texts):
    writers, bad = {}, []
    for path, text in texts.items():
        if struct in OTHERS:
            text = '' if os.path.basename(stem(path)) in OTHERS[struct] else without_makers(text)
        bad += foreign_names(struct, names, path, text)
        for pattern in assigned(names, more):
            for field, rest in re.findall(pattern, text):
                if own(rest) and field not in common:
                    writers.setdefault(field, set()).add(stem(path))
    bad += [
        f'{struct}: {field} is assigned by ' + ', '.join(sorted(files))
        for field, files in sorted(writers.items())
        if len(files) > 1
    ]
    if len(writers) < least:
        bad.append(
            f'{struct}: only {len(writers)} fields are assigned; the patterns of this test see too little'
        )
    print(f'{struct}: {len(writers)} fields and parts of it are assigned')
    return bad


def main():
    texts = {path: read(path) for path in sorted(glob.glob(FOLDER + '/*.[ch]'))}
    bad = [line for struct, how in NOUNS.items() for line in check(struct, *how, texts)]
    for line in bad:
        print(line)
    return 1 if bad else 0


sys.exit(main())
