#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that nothing is tested by a test that no target runs: each program belongs to `make test`,
`make check` or `make check-live`, or a makefile names it; each scenario is registered; and a
makefile names each file with scenarios that run only with LW_MORE.
Usage: test_targets.py [BUILD_DIR]"""

import functools, glob, os, re, subprocess, sys, unittest

os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..'))
BUILD = sys.argv.pop(1) if len(sys.argv) > 1 else 'build'


def text_of(path):
    with open(path, encoding='utf-8') as f:
        return f.read()


@functools.cache
def commands(what):
    """Returns the programs that `tests/run.sh what` runs, by their sources."""
    env = {**os.environ, 'LW_LIST': '1'}
    done = subprocess.run(
        ['tests/run.sh', what, BUILD], env=env, capture_output=True, text=True, check=True
    )
    programs = {line.split()[0] for line in done.stdout.splitlines()}
    return {re.sub(f'^{BUILD}/(.*)', r'\1.c', p) for p in programs}


class Targets(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.run_by_make = ''.join(
            map(text_of, ['Makefile', *glob.glob('scripts/*.mk'), *glob.glob('tests/*.mk')])
        )

    def test_programs(self):
        run = commands('quick') | commands('check') | commands('check-live')
        programs = [
            p
            for p in glob.glob('tests/*/*') + glob.glob('tests/*/*/*')
            if re.fullmatch(r'(test|sim)_\w+\.(c|py|sh)', os.path.basename(p))
        ]
        self.assertGreater(len(programs), 160)
        for p in programs:
            self.assertTrue(
                p in run or f'{p} ' in self.run_by_make,
                f'{p} is run by no target: add it to quick, check or check-live in tests/run.sh',
            )

    def test_all_is_all(self):
        parts = commands('quick') | commands('check') | commands('check-live')
        self.assertEqual(parts - commands('all'), set())

    def test_scenarios(self):
        scenarios = 0
        for path in glob.glob('tests/live/test_*.py'):
            text = text_of(path)
            scenarios += len(re.findall('^@(?:scenario|more)$', text, re.M))
            for mark, name in re.findall(r'^(@\w+\n|)def (\w+)\(t\):', text, re.M):
                self.assertTrue(
                    mark or len(re.findall(rf'\b{name}\b', text)) > 1,
                    f'{path}: nothing runs {name}: is @scenario missing?',
                )
            if '\n@more\n' in text:
                self.assertTrue(
                    f'LW_MORE=1 {path} ' in self.run_by_make, f'{path}: no target runs its @more'
                )
        self.assertGreater(scenarios, 100)

    def test_each_mode_of_the_simulation(self):
        """A seed's number decides its mode, and `make test` runs the first seeds."""
        source = text_of('tests/sim/sim_lanes.c')
        modes = re.search(r' modes\[\] = \{(.*?)^\};', source, re.M | re.S)[1].count('{.name = ')
        (quick,) = re.findall(r'^quick=(\d+)', text_of('tests/run.sh'), re.M)
        self.assertEqual(int(quick), modes, 'number of seeds of quick in tests/run.sh')


if __name__ == '__main__':
    unittest.main()
