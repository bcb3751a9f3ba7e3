#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the messages of commits: a subject of at most 72 characters, "area: imperative", and a
body. Prints each commit that breaks a rule.
  usage: commits.py [RANGE]
  RANGE   as git log takes it (default: the commits of HEAD that origin lacks; without an origin
          there is nothing to check)
  exit: 0 every message is good, 1 some messages are not, 2 git does not know the range

Whether a word is an imperative cannot be decided without a dictionary. So the script refuses words
that cannot be one: articles and the like, and forms that end in -ed, -ing or -s."""

import re, subprocess, sys

MAX = 72
# one or more areas, then the text: `settle: keep …`, `lock, cli: name …`, `words: cli: say …`
SUBJECT = re.compile(r'(?:[a-z0-9][\w ,./+-]*: )+(?P<verb>[a-z]+)\b')
NO_VERB = set(
    'a an the this that these those one two three no each every several what how why'.split()
)
FORM = re.compile(r'(?:ed|ing|[^sui]s)$')
# imperatives that end in -ed or -ing
VERBS = set('bring embed exceed feed need proceed seed shed speed string succeed'.split())


def git(*arguments):
    return subprocess.run(
        ['git', *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def default_range():
    """Returns the range of the commits since HEAD left the main branch of origin, or None if there
    is no such branch."""
    for branch in ('origin/HEAD', 'origin/main'):
        base = git('merge-base', 'HEAD', branch)
        if base.returncode == 0:
            return base.stdout.strip() + '..HEAD'
    return None


def faults(subject, body):
    if len(subject) > MAX:
        yield f'the subject has {len(subject)} characters; {MAX} are allowed'
    found = SUBJECT.match(subject)
    verb = found['verb'] if found else ''
    if not found:
        yield 'the subject is not of the form "area: imperative"'
    elif verb in NO_VERB or (FORM.search(verb) and verb not in VERBS):
        yield f'"{verb}" is not an imperative'
    if not body.strip():
        yield 'no body says why'


def main():
    wanted = sys.argv[1] if len(sys.argv) > 1 else default_range()
    if wanted is None:
        return 0
    log = git('log', '--no-merges', '--format=%h%x1f%s%x1f%b%x1e', wanted, '--')
    if log.returncode:
        print(f'commits.py: {log.stderr.strip()}', file=sys.stderr)
        return 2
    bad = 0
    for entry in log.stdout.split('\x1e'):
        if not entry.strip():
            continue
        commit, subject, body = entry.strip('\n').split('\x1f')
        for fault in faults(subject, body):
            bad += 1
            print(f'{commit} "{subject}": {fault}')
    return 1 if bad else 0


sys.exit(main())
