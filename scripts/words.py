#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that no page, comment or text of the program uses a phrase that was retired because a
plainer phrase exists. Prints the phrases that were found.
  usage: words.py [FILE...]   (default: every file that git knows, from the top of the tree)
  exit: 0 no such phrase was found, 1 some phrases were found"""

import re, subprocess, sys

# maps each retired phrase to the words that replace it
RETIRED = {
    r'time-outs?': 'timeout, one word',
    r'trying on': 'retrying',
    r'on the dot': 'at the exact time',
    r'(?:is|be|are) hoped (?:for|to)': 'expected',
    r'answers? (?:in|of) another (?:form|type)': 'malformed reply from …: expected …, got …',
    r'makes no sense': 'malformed reply from …: expected …, got …',
    r'refuses us': 'has rejected our credentials or rights',
    r'for that they': 'because they',
    r'whereof': 'of which',
    r'so many\s*;\s*0: all': 'maximum number (0: unlimited)',
    r'letter in another form': 'malformed',
    r'no texts': 'expected strings',
    r'(?:is|are) wanted': 'needed; in an error: expected X, got Y',
    r'this (?:worker|configuration) differs': 'both values, and which one to set',
    r'trying again': 'retrying',
    r'execute does it': 'use --execute to apply',
    r'how often tried': 'attempts',
    r'(?:queued|enqueued) (?:messages?|records?|lanes?)': 'waiting (in a lane) or listed (in one process)',
    r'(?:messages?|records?|lanes?) (?:is|are) (?:queued|enqueued)': 'waits, wait',
    r'(?:LW_OFF_QUEUED|lw_offsets_queued)': 'LW_OFF_WAITING, lw_offsets_waiting',
    r'parked lanes?': 'a lane is busy or paused; its messages are parked',
    r'[Rr]ules? [0-9]+': 'the name of the rule, in quotes, as doc/explanation/protocol.md has it',
}
ANY = re.compile('|'.join(rf'\b(?:{words})\b' for words in RETIRED))
TEXT = ('.c', '.h', '.lua', '.md', '.txt', '.sh', '.py', '.mk', '.awk', 'Makefile')


def instead_of(found):
    return next(say for words, say in RETIRED.items() if re.fullmatch(words, found))


def main():
    listed = subprocess.run(
        ['git', 'ls-files'], stdout=subprocess.PIPE, text=True, check=True
    ).stdout.split('\n')
    files = sys.argv[1:] or [
        path for path in listed if path.endswith(TEXT) and path != 'scripts/words.py'
    ]
    bad = 0
    for path in files:
        with open(path, encoding='utf-8') as f:
            for number, line in enumerate(f, 1):
                for m in ANY.finditer(line):
                    bad += 1
                    print(f'{path}:{number}: "{m[0]}" is retired: {instead_of(m[0])}')
    return 1 if bad else 0


sys.exit(main())
