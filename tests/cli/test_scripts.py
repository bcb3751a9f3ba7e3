#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that no embedded Lua script uses a name that does not exist: luac5.1 lists the globals
that each composed script reads and sets. Without this test, a call of a function that was renamed,
or that is defined below the call, would fail only when the call is executed.
Usage: test_scripts.py [BUILD_DIR]"""

import glob, os, re, subprocess, sys, tempfile

# Of the global names that Redis 7 offers to scripts, Latchwork's scripts may use only these.
GLOBALS = set(
    'KEYS ARGV redis string table math struct cjson cmsgpack bit assert error ipairs next pairs pcall rawequal select tonumber tostring type '
    'unpack'.split()
)
MEMBERS = {
    'redis': 'call pcall error_reply status_reply sha1hex log LOG_DEBUG LOG_VERBOSE LOG_NOTICE LOG_WARNING acl_check_cmd',
    'string': 'byte char find format gmatch gsub len lower match rep reverse sub upper',
    'table': 'concat insert maxn remove sort',
    'math': 'abs ceil floor fmod huge max min modf pow sqrt',
}


STRINGS = r'((?:\s*"(?:\\.|[^"\\])*")+)'


def scripts(path, head):
    with open(path) as f:
        return scripts_of(f.read(), head)


def scripts_of(source, head):
    """Yields (name, text) for each string literal in a C file that follows a match of the pattern
    `head`. The name is the first group of `head`."""
    for m in re.finditer(head + STRINGS, source, re.M):
        text = ''.join(re.findall(r'"((?:\\.|[^"\\])*)"', m[2]))
        yield m[1], re.sub(r'\\(.)', lambda e: '\n' if e[1] == 'n' else e[1], text)


def wrong(text):
    """Returns (line, error) for each global that a script sets, and for each name that a script
    reads and that does not exist."""
    if text.startswith('#!'):
        text = '--' + text
    p = subprocess.run(
        ['luac5.1', '-l', '-p', '-'],
        input=text,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    if p.returncode:
        return [(0, p.stdout.strip())]
    # `library` maps registers of the Lua machine to the names of the Lua libraries in them.
    found, library = ([], {})
    for m in re.finditer(
        r'^\t\d+\t\[(\d+)\]\t(\w+) *\t(\d+) (?:(\d+) )?\S+(?:\t; (.*))?$', p.stdout, re.M
    ):
        line, op, to, of, name = int(m[1]), m[2], m[3], m[4], m[5]
        if op == 'SETGLOBAL':
            found.append((line, f'sets the global {name}'))
        if op == 'GETGLOBAL' and name not in GLOBALS:
            found.append((line, f'{name} is not defined here'))
        if (
            op == 'GETTABLE'
            and of in library
            and name
            and name.strip('"') not in MEMBERS[library[of]].split()
        ):
            found.append((line, f'there is no {library[of]}.{name.strip(chr(34))}'))
        library.pop(to, None)
        if op == 'GETGLOBAL' and name in MEMBERS:
            library[to] = name
    return found


def embedded(line):
    """Returns the text that embed-lua.sh makes of a script of one line, or None if embed-lua.sh
    refuses the script."""
    with tempfile.TemporaryDirectory() as folder:
        script, codes = os.path.join(folder, 'x.lua'), os.path.join(folder, 'codes.h')
        with open(script, 'w') as f:
            f.write(line + '\n')
        with open(codes, 'w') as f:
            f.write("    LW_SIZE = 12,\n    LW_GO = 'g', /* and LW_SIZE */\n")
        p = subprocess.run(
            ['scripts/embed-lua.sh', 'x.h', 'x_', folder, codes, script],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    if p.returncode:
        return None
    return next(scripts_of(p.stdout, r'\{"(\w+)",'))[1].rstrip('\n')


def main():
    build = sys.argv[1] if len(sys.argv) > 1 else 'build'
    passed = failed = 0

    def check(name, got, want):
        nonlocal passed, failed
        if got == want:
            passed += 1
        else:
            failed += 1
            print(f'FAILED: {name}: {got}')

    # wrong() must find the fault in each of the following scripts.
    for bad in (
        'local function f() return g() end\nlocal function g() end\nreturn f',
        'if KEYS[1] then x = 1 end',
        'return string.strip(KEYS[1])',
        'return redis.cal("GET")',
        'return (',
        'local a = 1\nreturn function() return a + b end',
    ):
        check(f'not seen in {bad!r}', len(wrong(bad)), 1)
    check(
        'a good one',
        wrong(
            '#!lua flags=no-writes\nlocal m = math\nreturn string.sub(redis.call("GET", KEYS[1]), 1, m.max(2, #ARGV))'
        ),
        [],
    )
    for part, least in (('scripts', 12), ('ops-scripts', 10), ('lock-scripts', 18)):
        some = list(scripts(f'{build}/{part}.gen.c', r'^const struct lw_script \w+ = \{"(\w+)",'))
        check(f'{part}.gen.c: scripts found', len(some) >= least, True)
        for name, text in some:
            check(f'{part}: {name} (line of the composed text, what)', wrong(text), [])
        check(
            f'{part}: scripts that carry the line with the licence to Redis',
            [name for name, text in some if 'SPDX' in text],
            [],
        )
    # embed-lua.sh must replace constants (names that begin with LW_) by numbers and letters.
    for line, want in (
        ("return LW_SIZE + 1, LW_GO, 'LW_GO' .. 'LW'", "return 12 + 1, 103, 'g' .. 'LW'"),
        ('  -- LW_GO stays', '  -- LW_GO stays'),
        ('return LW_GONE', None),
        ("return 'LW_SIZE'", None),
        ("return 'LW_GO.'", None),
    ):
        check(f'embedded: {line}', embedded(line), want)
    # C sources must not contain scripts, because this test checks only scripts in .lua files. The
    # search leaves out tests/, which may contain scripts. It also leaves out build/, which may
    # contain a whole Debian system whose symbolic links form loops.
    folders = [f for f in glob.glob('*/') if f not in ('tests/', 'build/')]
    strings = [
        path
        for folder in folders
        for path in glob.glob(folder + '**/*.c', recursive=True)
        if 'redis.call' in open(path).read()
    ]
    check('scripts that stand in C sources', strings, [])
    print(f'{passed} passed, {failed} failed')
    return 1 if failed else 0


sys.exit(main())
