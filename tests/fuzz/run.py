#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs each fuzz target, two side by side: for some seconds, or for a number of inputs that are the
same in each run, as CI does. A target begins with its corpus in the tree
(tests/fuzz/corpus/TARGET). In a run of seconds it keeps what it learns in BUILD_DIR/corpus. An
input that breaks a target is left in BUILD_DIR/found; once it is mended, add it to the corpus, so
that it stays.
  usage: run.py BUILD_DIR SECONDS|INPUTSx [TARGET...]   10, 20000x; TARGET: json, exec, reply, ...
  exit: 0 nothing was found, 1 a target failed, 2 usage error"""

import concurrent.futures, glob, os, re, subprocess, sys, tempfile


def run(build, amount, path):
    """Returns (name, True if nothing was found, number of inputs, the last lines of the output)."""
    name = os.path.basename(path)[len('fuzz_') : -len('.c')]
    found = os.path.join(build, 'found', '')
    os.makedirs(found, exist_ok=True)
    words = [os.path.join(build, path[: -len('.c')]), f'-artifact_prefix={found}{name}-']
    words += ['-max_len=4096', '-timeout=300', '-rss_limit_mb=2048', '-print_final_stats=1']
    words += ['-close_fd_mask=1']
    if amount.endswith('x'):
        with tempfile.TemporaryDirectory() as learned:
            return fuzz(name, [*words, f'-runs={amount[:-1]}', '-seed=1', '-reload=0', learned])
    learned = os.path.join(build, 'corpus', name)
    os.makedirs(learned, exist_ok=True)
    return fuzz(name, [*words, f'-max_total_time={amount}', learned])


def fuzz(name, words):
    words.append(f'tests/fuzz/corpus/{name}')
    r = subprocess.run(words, stderr=subprocess.PIPE, text=True, errors='replace', check=False)
    runs = re.search(r'number_of_executed_units:\s*(\d+)', r.stderr)
    tail = r.stderr.splitlines()[-40:]
    return name, r.returncode == 0, int(runs.group(1)) if runs else 0, tail


def main():
    if len(sys.argv) < 3 or not re.fullmatch('[0-9]+x?', sys.argv[2]):
        print(__doc__, file=sys.stderr)
        return 2
    build, amount, only = sys.argv[1], sys.argv[2], sys.argv[3:]
    paths = [p for p in sorted(glob.glob('tests/fuzz/fuzz_*.c'))]
    if only:
        paths = [p for p in paths if os.path.basename(p)[len('fuzz_') : -len('.c')] in only]
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for name, good, runs, tail in pool.map(lambda p: run(build, amount, p), paths):
            print(f'{"ok    " if good else "FAILED"}  {name:<10} {runs:>9} inputs', flush=True)
            failed += not good
            for line in [] if good else tail:
                print(f'    | {line}')
    print(f'{len(paths) - failed} passed, {failed} failed')
    return 1 if failed or not paths else 0


if __name__ == '__main__':
    sys.exit(main())
