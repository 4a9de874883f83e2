#!/usr/bin/env python3
"""Whether the tests notice faults: applies each mutation of the lists (mutations.py in folders of tests) to the
sources, builds the programs of its tests and runs them. Run by hand, as root, after a build of these programs.

    mutations.py [--jobs=N] [--build=FOLDER] [--timeout=SECONDS] [--lock=FILE] [--programs] [WORD...]

WORD selects mutations by their names, or by the folder of their list (storage/migration). --jobs: how many are tried at
the same time. --build: build/release by default. --timeout: for one test, which then counts as failed. --lock: held
while a program is built. --programs: prints the programs to build first, and ends.

Each mutation has the tree for itself, in a mount namespace: a writable layer over the tree, or a copy of it where the
kernel refuses layers. Paths and times are those of the tree, so only what the mutation changes is compiled.

A list has, for each set of tests, (programs, expression for ctest -R), the mutations that they have to notice: a name,
replacements, and the reason why no test can notice it, if so. A text that is replaced has to be in exactly one place of
the sources, in whatever file."""
import argparse
import collections
import concurrent.futures
import contextlib
import fcntl
import glob
import importlib.util
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SOURCES = ('config', 'protocol', 'server', 'storage')
BUILD_TIMEOUT = 1800  # seconds
TESTS_TIMEOUT = 900  # seconds, of one mutation

# Arguments: the tree, a folder for the layer, and the command.
IN_NAMESPACE = r'''
tree=$1 layer=$2; shift 2
mount -t tmpfs mutation "$layer" || exit  # changes cannot be on another layer
mkdir "$layer/changes" "$layer/work"
if ! mount -t overlay mutation -o "lowerdir=$tree,upperdir=$layer/changes,workdir=$layer/work" "$tree" 2>/dev/null; then
    cp -a "$tree" "$layer/copy" && mount --bind "$layer/copy" "$tree" || exit
fi
cd "$tree" && exec "$@"'''

Mutation = collections.namedtuple('Mutation', 'name programs tests replacements reason')


def load_lists():
    """The mutations of each list, by its folder."""
    lists = {}
    for path in sorted(glob.glob(f'{ROOT}/tests/*/**/mutations.py', recursive=True)):
        spec = importlib.util.spec_from_file_location('mutations_list', path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        lists[os.path.relpath(os.path.dirname(path), f'{ROOT}/tests')] = [
            Mutation(name, programs.split(), tests, replacements, reason[0] if reason else '')
            for (programs, tests), mutations in module.MUTATIONS.items() for name, replacements, *reason in mutations]
    return lists


def sources(tree):
    return [path for folder in SOURCES for ending in ('cpp', 'hpp', 'cu')
            for path in glob.glob(f'{tree}/{folder}/**/*.{ending}', recursive=True)]


def mutate(tree, replacements):
    """Returns an error, or None."""
    for old, new in replacements:
        found = []
        for path in sources(tree):
            with open(path, encoding='utf-8') as file:
                found += [path] * file.read().count(old)
        if len(found) != 1:
            return f'in {len(found)} places: {old!r}'
        with open(found[0], encoding='utf-8') as file:
            text = file.read()
        with open(found[0], 'w', encoding='utf-8') as file:
            file.write(text.replace(old, new))
    return None


@contextlib.contextmanager
def locked(path):
    with contextlib.ExitStack() as stack:
        if path:
            fcntl.flock(stack.enter_context(open(path, 'w', encoding='utf-8')), fcntl.LOCK_EX)
        yield


def run(command, timeout):
    """Returns the exit status (None: it took longer and was killed) and the output."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors='replace',
                          start_new_session=True) as process:
        try:
            output, _ = process.communicate(timeout=timeout)
            return process.returncode, output
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            return None, process.communicate()[0]


def failed_tests(output):
    return re.findall(r'^\s*\d+ - (.+) \([^()]*\)[\w ]*$', output.partition('tests FAILED:')[2], re.MULTILINE)


def run_tests(expression, options):
    return run(['ctest', '--test-dir', options.build, '-R', expression, '-j2', '--stop-on-failure', '--no-tests=error',
                '--timeout', str(options.timeout)], TESTS_TIMEOUT)


def try_in_namespace(mutation, options):
    """The result, as text."""
    error = mutate('.', mutation.replacements)
    if error:
        return f'ERROR {error}'
    with locked(options.lock):
        # Files of different layers look the same to a compiler cache, and no other build needs these objects.
        os.environ['CCACHE_DISABLE'] = '1'
        status, output = run(['cmake', '--build', options.build, '-j2', '--target', *mutation.programs], BUILD_TIMEOUT)
    if status != 0:
        errors = [line for line in output.splitlines() if 'error:' in line or 'FAILED' in line]
        return 'DOES NOT COMPILE: ' + ' | '.join(errors[:3] or output.splitlines()[-3:])
    status, output = run_tests(mutation.tests, options)
    if status is None:
        return 'noticed: the tests do not end'
    failed = failed_tests(output)
    if failed:
        return f'noticed by {failed[0]}'
    return 'not noticed' if status == 0 else f'ERROR {output[-300:]}'


def try_mutation(mutation, options):
    """Whether the result is as expected, and its line."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as layer:
        command = ['unshare', '--mount', 'sh', '-c', IN_NAMESPACE, 'sh', ROOT, layer,
                   sys.executable, '-B', 'tests/mutations.py', f'--build={options.build}', f'--lock={options.lock}',
                   f'--timeout={options.timeout}', f'--in-namespace={mutation.name}']
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = done.stdout.splitlines()
    result = lines[-1] if done.returncode == 0 and lines else f'ERROR {done.stderr[-300:]}'
    expected = result == 'not noticed' if mutation.reason else result.startswith('noticed')
    if result == 'not noticed':
        result = f'equivalent: {mutation.reason}' if mutation.reason else 'NOT NOTICED'
    return expected, f'{"" if expected else "UNEXPECTED "}{mutation.name}: {result}, {time.monotonic() - began:.0f} s'


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument('--jobs', type=int, default=1)
    parser.add_argument('--build', default='build/release')
    parser.add_argument('--timeout', type=int, default=120)
    parser.add_argument('--lock', default='')
    parser.add_argument('--programs', action='store_true')
    parser.add_argument('--in-namespace', help=argparse.SUPPRESS)
    parser.add_argument('words', nargs='*')
    options = parser.parse_args()
    os.chdir(ROOT)
    lists = load_lists()
    if options.in_namespace:
        [mutation] = [each for mutations in lists.values() for each in mutations if each.name == options.in_namespace]
        print(try_in_namespace(mutation, options))
        return
    chosen = [each for folder, mutations in lists.items() for each in mutations
              if not options.words or any(word == folder or word in each.name for word in options.words)]
    if options.programs:
        print(*sorted({program for each in chosen for program in each.programs}))
        return
    # Tests that fail anyway would notice everything.
    for tests in sorted({each.tests for each in chosen}):
        status, output = run_tests(tests, options)
        if status != 0:
            sys.exit(f'{tests}: fails without a mutation: {failed_tests(output) or output[-300:]}')
    counts = collections.Counter()
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for done in concurrent.futures.as_completed([pool.submit(try_mutation, each, options) for each in chosen]):
            expected, line = done.result()
            counts[expected] += 1
            print(line, flush=True)
    print(f'{counts[True]} of {len(chosen)} as expected')
    sys.exit(0 if counts[True] == len(chosen) else 1)


if __name__ == '__main__':
    main()
