#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""mutants.py [--list | --table | --current] [--only NAME]... [--jobs N] [--keep] BUILDDIR

Changes the library in one place at a time, and runs the test that is to catch it: each of the changes that
mutants_list.py names is a fault that somebody could make, and a test that passes with it guards nothing.

BUILDDIR is a configured build tree: its Makefile tells the compilers, and the private folder stands in it. lib/ and
tests/ are copied there and compiled; the named tests have to pass once before anything is changed. Then, for each
mutant, what depends on the changed files is compiled anew, the test programs are linked to it, and the named tests
run, in their quick form, with one seed (KVSHM_TEST_SEED, or 1; the few that need chance, several times). A mutant is caught if each test named for it fails;
one that does not end fails by the time limit, and the answer says so. The exit status is 0 if all were caught.

--list     the names, and what each changes; --table: the table of README.md; nothing is run
--current  does each change still fit the sources, is the table of README.md this one, and does README.md name every
           test? Nothing is run
--only     the mutants of this name or pattern (lease-*) alone; may be given again
--jobs     so many at once (1)
--keep     leave the private folder
"""
import argparse
import concurrent.futures
import fnmatch
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
from mutants_list import MUTANTS, NOT_SEEN

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
README = os.path.join(TOP, 'tests', 'README.md')
BEGIN, END = '<!-- mutants: begin -->\n', '<!-- mutants: end -->\n'

CASE_LIMIT_S = 60      # of one run of one case; all take a few seconds at most
PROGRAM_LIMIT_S = 600  # of a whole program


# ---- What the build tree says ------------------------------------------------------------------------------------

def make_variables(path):
    """Variables of a make file, continued lines joined."""
    text = re.sub(r'\\\n\s*', ' ', open(path, encoding='utf-8').read())
    return dict(re.findall(r'^(\w+)[ \t]*\+?=[ \t]*(.*)$', text, re.M))


class Tree:
    """How programs are made here."""

    def __init__(self, builddir):
        made = make_variables(os.path.join(builddir, 'Makefile'))
        listed = make_variables(os.path.join(TOP, 'tests', 'local.mk'))
        self.cc = shlex.split(made['CC'])
        self.libs = shlex.split(made['CHECK_LIBS']) + shlex.split(made['URING_LIBS']) + ['-pthread', '-ldl']
        self.flags = (['-std=gnu11', '-D_GNU_SOURCE', '-DPACKAGE_VERSION="%s"' % made['PACKAGE_VERSION'], '-w', '-O1',
                       '-fvisibility=hidden', '-pthread', '-Ilib', '-Itests'] + shlex.split(made['CHECK_CFLAGS']) +
                      shlex.split(made['URING_CPPFLAGS']))
        self.stepped = sorted(self.sources_of(listed, 'tests_libstepped_la_SOURCES'))
        self.shared = self.sources_of(listed, 'tests_libsupport_la_SOURCES')
        self.listed = listed

    @staticmethod
    def tests():
        """The names of all tests, as README.md gives them."""
        listed = make_variables(os.path.join(TOP, 'tests', 'local.mk'))
        lists = ('MODULE_TESTS', 'STEPPING_TESTS', 'ALONE_TESTS', 'SCRIPT_TESTS', 'LONG_TESTS')
        words = ' '.join(listed[name] for name in lists).split()
        return [word.partition('/')[2] for word in words if word.startswith('tests/')]

    @staticmethod
    def sources_of(listed, name):
        return [word for word in listed[name].split() if word.endswith('.c')]

    def is_stepped(self, program):
        return '-DKVSHM_STEP' in self.listed.get('tests_%s_CPPFLAGS' % program, '')

    def own_sources(self, program):
        name = 'tests_%s_SOURCES' % program
        return self.sources_of(self.listed, name) if name in self.listed else ['tests/%s.c' % program]

    def link_flags(self, program):
        return shlex.split(self.listed.get('tests_%s_LDFLAGS' % program, ''))


# ---- Compiling -----------------------------------------------------------------------------------------------------

def run_tool(command, cwd):
    done = subprocess.run(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError('%s\n%s' % (' '.join(command), done.stdout))


class Objects:
    """Objects of one copy of the sources; those that the change does not reach are the ones of the base."""

    def __init__(self, tree, root, tsan=False, base=None, changed=()):
        self.tree, self.root, self.tsan, self.base, self.changed = tree, root, tsan, base, set(changed)
        self.made = {}

    def library_sources(self):
        return sorted('lib/' + name for name in os.listdir(os.path.join(self.root, 'lib')) if name.endswith('.c'))

    def path(self, source, step):
        return os.path.join(self.root, 'o', source.replace('/', '.') + ('.tsan' if self.tsan else '') +
                            ('.step' if step else '') + '.o')

    def reached(self, source, step):
        """Does the object of this source depend on a changed file?"""
        text = open(self.base.object(source, step)[:-2] + '.d', encoding='utf-8').read()
        return not self.changed.isdisjoint(os.path.normpath(word) for word in text.replace('\\\n', ' ').split()[1:])

    def object(self, source, step):
        key = (source, step)
        if key not in self.made:
            if self.base and not self.reached(source, step):
                self.made[key] = self.base.object(source, step)
            else:
                self.compile(source, step)
                self.made[key] = self.path(source, step)
        return self.made[key]

    def compile(self, source, step):
        out = self.path(source, step)
        os.makedirs(os.path.dirname(out), exist_ok=True)
        command = ['clang', '-fsanitize=thread', '-DKVSHM_TSAN=1', '-g'] if self.tsan else list(self.tree.cc)
        command += self.tree.flags
        if step:
            command.append('-DKVSHM_STEP')
        if re.match(r'tests/check_\w+\.c$', source):
            command += ['-include', 'tests/only.h']
        run_tool(command + ['-MMD', '-MF', out[:-2] + '.d', '-c', source, '-o', out], self.root)

    def link(self, program):
        tree, step = self.tree, self.tree.is_stepped(program)
        out = os.path.join(self.root, program + ('.tsan' if self.tsan else ''))
        objects = [self.object(source, step) for source in tree.own_sources(program)]
        objects += [self.object(source, False) for source in tree.shared]
        objects += [self.object(source, step and source in tree.stepped) for source in self.library_sources()]
        command = ['clang', '-fsanitize=thread'] if self.tsan else list(tree.cc)
        run_tool(command + tree.link_flags(program) + ['-o', out] + objects + tree.libs, self.root)
        return out


def copy_sources(to, top=TOP):
    for folder in ('lib', 'tests'):
        shutil.copytree(os.path.join(top, folder), os.path.join(to, folder),
                        ignore=lambda _, names: [n for n in names if not re.search(r'\.(c|h|def)$', n)])


# ---- Running -------------------------------------------------------------------------------------------------------

def kill_session(sid):
    """Whatever a test program left: it was the first of a session of its own."""
    for name in os.listdir('/proc'):
        if not name.isdigit():
            continue
        try:
            with open('/proc/%s/stat' % name, encoding='utf-8', errors='replace') as stat:
                if int(stat.read().rpartition(')')[2].split()[3]) == sid:
                    os.kill(int(name), signal.SIGKILL)
        except (OSError, IndexError, ValueError):
            pass


def run_program(path, cases, quick=True, run=0):
    """Runs the cases of a Check program. Answers the results of each: {case: [message of a failure, or None]}."""
    base = '/dev/shm' if os.access('/dev/shm', os.W_OK) else None
    private = tempfile.mkdtemp(prefix='kvshm-mutants.', dir=base)
    tap, said = os.path.join(private, 'tap'), os.path.join(private, 'said')
    environment = dict(os.environ, KVSHM_DIR=os.path.join(private, 'arenas'), TMPDIR=os.path.join(private, 'tmp'),
                       CK_TAP_LOG_FILE_NAME=tap, CK_VERBOSITY='silent', CK_DEFAULT_TIMEOUT=str(CASE_LIMIT_S),
                       KVSHM_TEST_SEED=str(int(os.environ.get('KVSHM_TEST_SEED', '1')) + run), KVSHM_TEST_ONLY=' '.join(cases),
                       TSAN_OPTIONS='halt_on_error=1 die_after_fork=0', abs_top_srcdir=TOP)
    environment.pop('KVSHM_TEST_LONG', None)
    environment.pop('KVSHM_TEST_QUICK', None)
    if quick:
        environment['KVSHM_TEST_QUICK'] = '1'
    os.mkdir(environment['KVSHM_DIR'])
    os.mkdir(environment['TMPDIR'])
    try:
        with open(said, 'wb') as out:
            child = subprocess.Popen([path], stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, cwd=private,
                                     env=environment, start_new_session=True)
        try:
            status = child.wait(PROGRAM_LIMIT_S)
        except subprocess.TimeoutExpired:
            status = None
        kill_session(child.pid)
        child.wait()
        return results_of(tap, said, cases, status)
    finally:
        shutil.rmtree(private, ignore_errors=True)


def results_of(tap, said, cases, status):
    results = {case: [] for case in cases}
    named = {case.partition('#')[0]: case for case in cases}
    if os.path.exists(tap):
        for line in open(tap, encoding='utf-8', errors='replace'):
            found = re.match(r'(not )?ok \d+ - [^:]*:[^:]*:(\w+): (.*)', line)
            if found and found[2] in named:
                results[named[found[2]]].append(found[3].strip() if found[1] else None)
    skipped = re.findall(r'^SKIP (\w+): (.*)$', open(said, encoding='utf-8', errors='replace').read(), re.M)
    for case, why in skipped:
        raise RuntimeError('%s was skipped: %s' % (case, why))
    for case in cases:
        if not results[case] and status != 0:
            results[case].append('Test timeout expired' if status is None else 'the program ended with status %d' % status)
    return results


def how_caught(messages):
    """Of the results of one case: the first failure, in a few words; None: it passed each time."""
    failures = [message for message in messages if message is not None]
    if not failures:
        return None
    return 'by the time limit' if 'timeout expired' in failures[0] else failures[0]


# ---- Mutants ---------------------------------------------------------------------------------------------------------

def by_program(mutant):
    programs = {}
    for name in mutant.tests:
        program, case = name.split(':')
        programs.setdefault(program, []).append(case)
    return programs


def changed_text(name, old, new, top=TOP):
    """The text of a file of lib/ with the change made."""
    text = open(os.path.join(top, 'lib', name), encoding='utf-8').read()
    if text.count(old) != 1:
        raise LookupError('lib/%s has %d times what is to be changed, not once: %r' % (name, text.count(old), old))
    return text.replace(old, new)


def apply(mutant, root):
    for name, old, new in mutant.edits:
        text = changed_text(name, old, new, root)
        with open(os.path.join(root, 'lib', name), 'w', encoding='utf-8') as out:
            out.write(text)


def try_mutant(tree, folder, bases, mutant):
    """(caught, words)"""
    root = os.path.join(folder, mutant.name)
    begun = time.monotonic()
    copy_sources(root, bases[mutant.tsan].root)
    apply(mutant, root)
    objects = Objects(tree, root, mutant.tsan, bases[mutant.tsan], ['lib/' + name for name, _, _ in mutant.edits])
    words, caught = [], True
    for program, cases in by_program(mutant).items():
        path = objects.link(program)
        for run in range(mutant.tries):
            results = run_program(path, cases, not mutant.whole, run)
            missed = [case for case in cases if how_caught(results[case]) is None]
            if not missed:
                break
        for case in cases:
            how = how_caught(results[case])
            words.append('%s:%s %s' % (program, case, 'passed' if how is None else 'failed: ' + how[:150]))
        caught = caught and not missed
    shutil.rmtree(root)
    return caught, '; '.join(words) + ' (%.0f s)' % (time.monotonic() - begun)


def control(tree, bases, mutants):
    """The named tests pass when nothing is changed."""
    wanted = {}
    for mutant in mutants:
        for program, cases in by_program(mutant).items():
            for case in cases:
                number = case.partition('#')[2] # of one name only one number a run
                wanted.setdefault((mutant.tsan, mutant.whole, program, number), set()).add(case)
    good = True
    for (tsan, whole, program, _), cases in sorted(wanted.items()):
        results = run_program(bases[tsan].link(program), sorted(cases), not whole)
        for case in sorted(cases):
            how = how_caught(results[case])
            if how is not None or not results[case]:
                good = False
                print('control: %s:%s %s' % (program, case, how or 'was not run'), flush=True)
    print('control: %d programs, nothing changed: %s' % (len(wanted), 'passed' if good else 'FAILED'), flush=True)
    return good


def run(tree, folder, mutants, jobs):
    bases, first = {}, os.path.join(folder, 'sources')
    copy_sources(first)
    for tsan in sorted({mutant.tsan for mutant in mutants}):
        root = os.path.join(folder, 'base.tsan' if tsan else 'base')
        copy_sources(root, first)
        bases[tsan] = Objects(tree, root, tsan)
    if not control(tree, bases, mutants):
        return None
    survived = []
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        pending = {pool.submit(try_mutant, tree, folder, bases, mutant): mutant for mutant in mutants}
        for future in concurrent.futures.as_completed(pending):
            name = pending[future].name
            try:
                caught, words = future.result()
            except (RuntimeError, LookupError) as error:
                caught, words = False, str(error)
            print('%s %s: %s' % ('caught  ' if caught else 'SURVIVED', name, words), flush=True)
            if not caught:
                survived.append(name)
    return survived


# ---- The table -------------------------------------------------------------------------------------------------------

def table():
    lines = ['| mutant | file | what is changed | caught by |\n', '| --- | --- | --- | --- |\n']
    for mutant in MUTANTS:
        tests = ', '.join('`%s`' % test.replace(':', ' ') for test in mutant.tests)
        lines.append('| %s | %s | %s | %s%s |\n' % (mutant.name, ', '.join(sorted({e[0] for e in mutant.edits})), mutant.says,
                                                  tests, ' under ThreadSanitizer' if mutant.tsan else ''))
    if NOT_SEEN:
        lines += ['\nNot observable on this machine: argued in HACKING.md and `litmus_cases.c`. They weaken what only other '
                  'processors or compilers can make use of, or what something else orders as well. Neither the litmus tests '
                  'nor the ThreadSanitizer build tells them from the library.\n\n',
                  '| mutant | file | what is changed | why nothing shows |\n', '| --- | --- | --- | --- |\n']
    for mutant in NOT_SEEN:
        lines.append('| %s | %s | %s | %s |\n' % (mutant.name, ', '.join(sorted({e[0] for e in mutant.edits})), mutant.says,
                                                mutant.why))
    return ''.join(lines)


def is_current():
    """Prints what is not. The tests named have to be there, too."""
    good = True
    for mutant in MUTANTS + NOT_SEEN:
        try:
            for name, old, new in mutant.edits:
                changed_text(name, old, new)
        except LookupError as error:
            print('%s: %s' % (mutant.name, error))
            good = False
    for mutant in MUTANTS:
        for program, cases in by_program(mutant).items():
            text = open(os.path.join(TOP, 'tests', program + '.c'), encoding='utf-8').read()
            for case in cases:
                if 'START_TEST(%s)' % case.partition('#')[0] not in text:
                    print('%s: tests/%s.c has no case %s' % (mutant.name, program, case))
                    good = False
    names = [mutant.name for mutant in MUTANTS + NOT_SEEN]
    for name in sorted({name for name in names if names.count(name) > 1}):
        print('%s: the name of two' % name)
        good = False
    text = open(README, encoding='utf-8').read()
    for test in Tree.tests():
        if '| `%s` |' % test not in text:
            print('tests/README.md does not name %s' % test)
            good = False
    if BEGIN + table() + END not in text:
        print('tests/README.md: the table of mutants is not that of tests/mutants.py --table')
        good = False
    return good


def main():
    parser = argparse.ArgumentParser(usage=__doc__, add_help=True)
    parser.add_argument('--list', action='store_true')
    parser.add_argument('--table', action='store_true')
    parser.add_argument('--current', action='store_true')
    parser.add_argument('--only', action='append')
    parser.add_argument('--jobs', type=int, default=1)
    parser.add_argument('--keep', action='store_true')
    parser.add_argument('builddir', nargs='?')
    arguments = parser.parse_args()
    if arguments.table:
        sys.stdout.write(table())
        return 0
    if arguments.current:
        return 0 if is_current() else 1
    mutants = MUTANTS if not arguments.only else [
        m for m in MUTANTS + NOT_SEEN if any(fnmatch.fnmatchcase(m.name, pattern) for pattern in arguments.only)]
    if arguments.list:
        for mutant in mutants:
            print('%s: %s: %s' % (mutant.name, ', '.join(mutant.tests), mutant.says))
        return 0
    if not mutants:
        parser.error('no such mutant')
    if not arguments.builddir:
        parser.error('BUILDDIR is missing')
    if not shutil.which('clang') and any(mutant.tsan for mutant in mutants):
        print('there is no clang: mutants that need its ThreadSanitizer are left out')
        mutants = [mutant for mutant in mutants if not mutant.tsan]
    folder = tempfile.mkdtemp(prefix='mutants.', dir=arguments.builddir)
    folder = os.path.abspath(folder)
    try:
        survived = run(Tree(arguments.builddir), folder, mutants, arguments.jobs)
    finally:
        if arguments.keep:
            print(folder)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    if survived is None:
        return 1
    print('%d mutants, %d caught, %d survived' % (len(mutants), len(mutants) - len(survived), len(survived)))
    return 1 if survived else 0


if __name__ == '__main__':
    sys.exit(main())
