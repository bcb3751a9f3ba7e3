#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the public headers as users meet them. Each header alone, and all headers together, must
compile as C11, C17 and C++17 without a warning. The comment of each function must list its return
codes. Names must have their prefixes. No function of the lock library may be able to end the
program, and the Debian package must list each of them.
Usage: test_headers.py [BUILD_DIR]"""

import os, re, shutil, subprocess, sys, tempfile

BUILD = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else 'build')
os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..'))
HEADERS = ['lock', 'handler']
passed, failed = 0, 0


def check(what, good, why=''):
    global passed, failed
    passed, failed = passed + bool(good), failed + (not good)
    if not good:
        print(f'FAILED: {what}: {why}')


def compiles(compiler, standard, names, folder):
    path = os.path.join(folder, 'a.cc' if '++' in standard else 'a.c')
    with open(path, 'w') as f:
        f.write(
            ''.join(f'#include <latchwork/{n}.h>\n' for n in names)
            + 'int main(void) { return 0; }\n'
        )
    flags = [
        '-Wall',
        '-Wextra',
        '-Wpedantic',
        '-Wundef',
        '-Werror',
        '-fsyntax-only',
        f'-std={standard}',
        '-Iinclude',
    ]
    if '++' not in standard:
        flags.append('-Wstrict-prototypes')
    r = subprocess.run(
        [compiler, *flags, path], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    check(f'{compiler} {standard} {"+".join(names)}', r.returncode == 0, r.stdout[:1000])


def declarations(text):
    """For each function of lock.h, yields (name, the comment before the declaration or '', the
    declaration)."""
    for m in re.finditer(
        r'(/\*(?:(?!\*/).)*\*/\n)?((?:^LATCHWORK_API[^;]*;[^\n]*\n)+)', text, re.S | re.M
    ):
        for d in re.findall(r'LATCHWORK_API[^;]*;', m.group(2)):
            yield re.search(r'(latchwork_\w+)\(', d).group(1), m.group(1) or '', d


def codes(text):
    known = set(re.findall(r'LATCHWORK_E_(\w+) = \d+', text))
    for name, comment, declaration in declarations(text):
        if 'struct latchwork_error *error' not in declaration:
            continue
        said = re.search(r'Codes: (.*?)\.(?:\s|\*/)', comment.replace('\n *', ''), re.S)
        check(f'{name} lists its codes', said, comment[:200])
        words = (
            set(re.findall(r'\b[A-Z][A-Z_]+\b', said.group(1))) - {'BUSY', 'LOST', 'ERROR'}
            if said
            else set()
        )
        check(f'{name}: codes that exist', words <= known, words - known)


PREFIXES = 'LOCK BATCH E KIND FLAG LOSS DEFAULT MIN MAX VERSION LOG ABI EXPORT HANDLER CLIENT SENTINELS NAMES REDLOCK API H'.split()
OUTCOMES = {'DONE', 'RETRY', 'DEAD', 'BACK'}


def names(text, header):
    code = re.sub(r'/\*.*?\*/', '', text, flags=re.S)
    for name in set(re.findall(r'\bLATCHWORK_(\w+)', code)):
        good = name.split('_')[0] in PREFIXES or (header == 'handler' and name in OUTCOMES)
        check(f'{header}.h: LATCHWORK_{name} has a known prefix', good)
    enums = re.findall(r'enum (?:latchwork_\w+ )?\{(.*?)\};', code, re.S)
    return [{n.split('_')[0] for n in re.findall(r'\bLATCHWORK_(\w+) =', e)} for e in enums]


def main():
    texts = {}
    for h in HEADERS:
        with open(f'include/latchwork/{h}.h') as f:
            texts[h] = f.read()
    with tempfile.TemporaryDirectory() as folder:
        for compilers, standards in (
            (('gcc', 'clang'), ('c11', 'c17')),
            (('g++', 'clang++'), ('c++17',)),
        ):
            for compiler in filter(shutil.which, compilers):
                for standard in standards:
                    for together in (['lock'], ['handler'], HEADERS, HEADERS[::-1]):
                        compiles(compiler, standard, together, folder)
    codes(texts['lock'])
    prefixes = [
        p
        for h in HEADERS
        for group in names(texts[h], h)
        for p in group - {'DEFAULT', 'MIN', 'MAX'}
    ]
    check('no two enums share a prefix', len(prefixes) == len(set(prefixes)), sorted(prefixes))
    undefined = subprocess.run(
        ['nm', '-D', '--undefined-only', f'{BUILD}/liblatchwork.so'],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    ends = re.findall(r'\b(abort|exit|_exit|quick_exit|err|errx)\b', undefined)
    check('the lock library ends no program', not ends, ends)
    with open('packaging/debian/liblatchwork0.symbols') as f:
        listed = set(re.findall(r'^ (\w+)@', f.read(), re.M))
    declared = {name for name, _, _ in declarations(texts['lock'])}
    check('the package lists each function of lock.h', listed == declared, listed ^ declared)
    print(f'{passed} passed, {failed} failed')
    sys.exit(1 if failed else 0)


main()
