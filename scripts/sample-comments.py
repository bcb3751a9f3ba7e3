#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws comments of the tracked C, Lua, Python and shell files at random, to be judged by a reader
who does not know the code.
  usage: sample-comments.py [--seed N] [--number N] [--all] [FILE...]
         (from the top of the tree; default: every such file that git knows)
Each comment is shown as FILE:LINE, its text, and the line of code if the comment stands beside
code. The same seed and tree give the same sample. A comment is a block of whole lines, a text
after code on its line, or a docstring. Licence lines, directives to tools and headings made of
dashes are left out."""

import argparse, io, random, re, subprocess, sys, tokenize

C = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|/\*.*?\*/|//[^\n]*', re.S)
LUA = re.compile(r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|--\[\[.*?\]\]|--[^\n]*', re.S)
SHELL = re.compile(r'"(?:\\.|[^"\\])*"|\'[^\']*\'|\\.|\$#|\$\{[^}\n]*\}|(?<![^\s;(])#[^\n]*', re.S)
LEFT_OUT = re.compile(
    r'SPDX-License|^!|^@\w+(?: @\w+)*$|NOLINT|cppcheck-suppress|shellcheck |clang-format o|noqa|type: ignore|fallthrough|-{4,}$|^={4,}'
)
PATTERNS = {'.c': C, '.h': C, '.lua': LUA, '.sh': SHELL}


class Comment:
    def __init__(self, path, line, text, beside):
        self.path, self.line, self.text, self.beside = path, line, text, beside

    def __str__(self):
        lines = [f'{self.path}:{self.line}'] + ['    ' + s for s in self.text.split('\n')]
        return '\n'.join(lines + ([f'    | {self.beside}'] if self.beside else []))


def plain(raw):
    """Returns the comment's text without the comment marks."""
    raw = raw.strip()
    for begin, end, mark in (
        ('/*', '*/', r'\s*\*? ?'),
        ('"""', '"""', ''),
        ('--[[', ']]', ''),
        ('//', '', ''),
        ('--', '', ''),
        ('#', '', ''),
    ):
        if raw.startswith(begin):
            lines = raw[len(begin) : len(raw) - len(end)].split('\n')
            return '\n'.join(
                lines[:1] + [re.sub('^' + mark, '', line).rstrip() for line in lines[1:]]
            ).strip()
    return raw


def found_by(pattern, text):
    """Yields (first line, last line, column, raw text) of each comment."""
    for m in pattern.finditer(text):
        raw = m[0]
        if raw.startswith(('/*', '//', '--', '#')):
            first = text.count('\n', 0, m.start()) + 1
            yield (
                first,
                first + raw.count('\n'),
                m.start() - text.rfind('\n', 0, m.start()) - 1,
                raw,
            )


def found_in_python(text):
    last = None
    for t in tokenize.generate_tokens(io.StringIO(text).readline):
        doc = (
            t.type == tokenize.STRING
            and t.string.startswith('"""')
            and last in (None, tokenize.NEWLINE, tokenize.INDENT, ':')
        )
        if t.type == tokenize.COMMENT or doc:
            yield t.start[0], t.end[0], t.start[1], t.string
        if t.type not in (tokenize.NL, tokenize.COMMENT, tokenize.ENCODING):
            last = ':' if t.string == ':' else t.type


def comments_of(path):
    with open(path, encoding='utf-8') as f:
        text = f.read()
    suffix = path[path.rfind('.') :]
    found = found_in_python(text) if suffix == '.py' else found_by(PATTERNS[suffix], text)
    lines, blocks = text.split('\n'), []
    for first, last, column, raw in found:
        if LEFT_OUT.search(plain(raw)) or not re.search(r'[a-zA-Z]', plain(raw)):
            continue
        whole = not lines[first - 1][:column].strip() and (
            suffix == '.py' or not lines[last - 1].split('*/')[-1].strip() or '*/' not in raw
        )
        follows = (
            blocks
            and whole
            and not blocks[-1].beside
            and not raw.startswith(('/*', '"""'))
            and blocks[-1].last == first - 1
        )
        if follows:
            blocks[-1].text += '\n' + plain(raw)
        else:
            blocks.append(
                Comment(path, first, plain(raw), '' if whole else lines[first - 1].strip())
            )
        blocks[-1].last = last
    return blocks


def main():
    p = argparse.ArgumentParser(description='Draw comments at random, to be judged.')
    p.add_argument('--seed', type=int, default=13)
    p.add_argument('--number', type=int, default=100)
    p.add_argument('--all', action='store_true', help='print every comment')
    p.add_argument('files', nargs='*')
    a = p.parse_args()
    listed = subprocess.run(
        ['git', 'ls-files'], stdout=subprocess.PIPE, text=True, check=True
    ).stdout.split('\n')
    files = a.files or sorted(path for path in listed if path.endswith(('.py',) + tuple(PATTERNS)))
    every = [c for path in files for c in comments_of(path)]
    drawn = every if a.all else random.Random(a.seed).sample(every, min(a.number, len(every)))
    for c in drawn:
        print(c, end='\n\n')
    print(
        f'{len(drawn)} of {len(every)} comments in {len(files)} files, seed {a.seed}',
        file=sys.stderr,
    )


main()
