#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks C files with clang-tidy. A file without findings is checked again only after a change.
  usage: tidy.py BUILD_DIR [--analyze] [--include HEADER] [--flags "FLAGS"] [FILE...]
         (from the top of the tree; default: every .c file that git knows)
  --analyze   run the static analyzer, too, which takes fifteen times as long
  --include   a header that is included before each file
A file without findings leaves a stamp below BUILD_DIR/lint/tidy: the hash of its text, of the
project's headers that it includes, of .clang-tidy, of the flags and of clang-tidy's version. The
hash does not cover headers of the system, so run `rm -r BUILD_DIR/lint/tidy` after an upgrade of
libraries.
  exit: 0 no findings, 1 there are findings or no clang-tidy, 2 usage error"""

import argparse, concurrent.futures, hashlib, os, re, shlex, subprocess, sys

INCLUDE = re.compile(rb'^\s*#\s*include\s*["<]([^">]+)[">]', re.M)
# folders in which a header is searched for, after the folder of the file that includes it
PLACES = ('', 'include')


def text_of(path):
    with open(path, 'rb') as f:
        return f.read()


def configs(path):
    """Returns every file that configures clang-tidy for a source file: the configuration of a
    folder adds to the configuration of the folder above."""
    folder, found = os.path.dirname(path), []
    while True:
        at = os.path.join(folder, '.clang-tidy')
        if os.path.isfile(at):
            found.append(at)
        if not folder:
            return found
        folder = os.path.dirname(folder)


class Texts:
    """Finds the headers of the tree that a file includes, directly or not. Each file is read
    once."""

    def __init__(self):
        self.direct = {}

    def headers(self, path):
        if path not in self.direct:
            found = [
                self.find(name.decode(), os.path.dirname(path))
                for name in INCLUDE.findall(text_of(path))
            ]
            self.direct[path] = [h for h in found if h]
        return self.direct[path]

    def find(self, name, folder):
        paths = [os.path.normpath(os.path.join(place, name)) for place in (folder,) + PLACES]
        return next((p for p in paths if os.path.isfile(p)), None)

    def closure(self, path):
        seen, todo = set(), [path]
        while todo:
            at = todo.pop()
            if at not in seen:
                seen.add(at)
                todo += self.headers(at)
        return sorted(seen)


class Tidy:
    def __init__(self, build, analyze, include, flags):
        self.stamps, self.analyze = os.path.join(build, 'lint', 'tidy'), analyze
        self.flags = shlex.split(flags) + (['-include', include] if include else [])
        version = subprocess.run(
            ['clang-tidy', '--version'], stdout=subprocess.PIPE, check=True
        ).stdout
        included = text_of(include) if include else b''
        self.common = hashlib.sha256(version + flags.encode() + included).digest()
        self.texts = Texts()

    def key(self, path):
        sums = [
            hashlib.sha256(text_of(p)).digest() for p in configs(path) + self.texts.closure(path)
        ]
        return hashlib.sha256(self.common + b''.join(sums)).hexdigest()

    def stamp(self, path, analyzed):
        return os.path.join(self.stamps, path + ('.analyzed' if analyzed else '.checked'))

    def is_clean(self, path, key):
        for analyzed in {True, self.analyze}:
            try:
                if text_of(self.stamp(path, analyzed)).decode() == key:
                    return True
            except FileNotFoundError:
                pass
        return False

    def run(self, path, key):
        """Returns the findings of clang-tidy in the file. If there are none, returns '' and
        leaves a stamp."""
        without = [] if self.analyze else ['--checks=-clang-analyzer-*']
        r = subprocess.run(
            ['clang-tidy', '--quiet'] + without + [path, '--'] + self.flags,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
        if r.returncode:
            return r.stdout or r.stderr
        stamp = self.stamp(path, self.analyze)
        os.makedirs(os.path.dirname(stamp), exist_ok=True)
        with open(stamp, 'w', encoding='ascii') as f:
            f.write(key)
        return ''


def main():
    p = argparse.ArgumentParser(
        description='Check C files with clang-tidy, only those that changed since they were found clean.'
    )
    p.add_argument('build')
    p.add_argument('--analyze', action='store_true', help='run the static analyzer too')
    p.add_argument('--include', default='', help='a header that is included before each file')
    p.add_argument('--flags', default='', help='flags of the compiler, as one word')
    p.add_argument('files', nargs='*')
    a = p.parse_intermixed_args()
    files = (
        a.files
        or subprocess.run(
            ['git', 'ls-files', '*.c'], stdout=subprocess.PIPE, text=True, check=True
        ).stdout.split()
    )
    try:
        tidy = Tidy(a.build, a.analyze, a.include, a.flags)
    except FileNotFoundError as e:
        sys.exit(f'tidy.py: {e.filename} is missing; `scripts/deps.sh lint` installs clang-tidy')
    todo = [
        (path, key)
        for path, key in ((path, tidy.key(path)) for path in files)
        if not tidy.is_clean(path, key)
    ]
    findings = set()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for said in pool.map(lambda job: tidy.run(*job), todo):
            if said and said not in findings:
                print(said.rstrip())
            findings.add(said)
    return 1 if findings - {''} else 0


sys.exit(main())
