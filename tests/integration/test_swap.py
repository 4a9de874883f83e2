"""A server that its own machine swaps to: the protections are in effect, and a missing privilege is an error.

tests/vm/test_swap.py shows that the machine does not hang. It also runs these cases in a guest where root has all
capabilities; here, cases that need them may be skipped."""
import os
import re

import server
import wire
from server import KiB, MiB

CAPABILITIES = {'ipc_lock': 14, 'sys_nice': 23, 'sys_resource': 24}
I_O_FLUSHER = 0x00080000 | 0x00100000  # PF_MEMALLOC_NOIO | PF_LOCAL_THROTTLE
STACK = 1 * MiB

PROBLEMS = {
    'flusher': 'swap: the kernel does not take it for an I/O flusher (PR_SET_IO_FLUSHER: Operation not permitted); '
               'give it CAP_SYS_RESOURCE',
    'oom': 'swap: the OOM killer may kill it (oom_score_adj: Permission denied); set OOMScoreAdjust=-1000',
    'memory': 'swap: its memory cannot be locked permanently (the limit is 8192 KiB); set LimitMEMLOCK=infinity',
    'time': 'swap: its threads cannot have real-time priority (SCHED_FIFO 5: Operation not permitted); give it CAP_SYS_NICE',
}

CONFIG = '''
listeners: {unix: [{path: '{socket}'}]}
exports: [{size: 16M, devices: [host], swap: true}]
'''


def privileged():
    effective = int(re.search(r'CapEff:\s*(\w+)', server.read_file('/proc/self/status'))[1], 16)
    return all(effective >> bit & 1 for bit in CAPABILITIES.values())


def need_capabilities():
    if not privileged():
        server.skip('needs CAP_IPC_LOCK, CAP_SYS_NICE and CAP_SYS_RESOURCE, which root has outside of containers')


server.need('setpriv', 'prlimit')
if os.geteuid() != 0:
    server.skip('only root can drop capabilities of a program')


def without(*capabilities, limits=()):
    """A command prefix that drops these capabilities, and sets limits."""
    command = ['prlimit', *limits, '--'] if limits else []
    if capabilities:
        command += ['setpriv', '--bounding-set=' + ','.join('-' + each for each in capabilities), '--']
    return command


def threads(pid):
    """{thread: fields of its stat file from the state on, so that field 3 has index 0}"""
    return {int(task): server.read_file(f'/proc/{pid}/task/{task}/stat').rpartition(')')[2].split()
            for task in os.listdir(f'/proc/{pid}/task')}


def mappings(pid):
    """(size, permissions, name, flags) of each mapping, in order."""
    out = []
    for line in server.read_file(f'/proc/{pid}/smaps').splitlines():
        head = re.match(r'([0-9a-f]+)-([0-9a-f]+) (\S+) \S+ \S+ \S+\s*(.*)', line)
        if head:
            out.append([int(head[2], 16) - int(head[1], 16), head[3], head[4], []])
        elif line.startswith('VmFlags:'):
            out[-1][3] = line.split()[1:]
    return out


class Swap(server.Test):
    def test_protections(self):
        need_capabilities()
        one = self.serve(extra=('--swap', '--threads', '3'))
        pid = one.process.pid
        with wire.connect(one.address) as client:
            client.write(0, b'all threads are there')
            tasks = threads(pid)
            self.assertGreaterEqual(len(tasks), 5)
            for task, stat in tasks.items():
                self.assertEqual(os.sched_getscheduler(task), os.SCHED_FIFO)
                self.assertEqual(os.sched_getparam(task).sched_priority, 5)
                self.assertEqual(int(stat[6]) & I_O_FLUSHER, I_O_FLUSHER)
            self.assertEqual(server.read_file(f'/proc/{pid}/oom_score_adj').strip(), '-1000')
            if not server.SANITIZED:
                self.assert_locked(pid, len(tasks))
        self.logged('memory is locked', one)
        self.logged("export ''", one)
        lines = [line for line in one.log().splitlines() if 'swap: ' in line]
        self.assertEqual(len(lines), 1, lines)
        self.assertIn('memory is locked', lines[0])
        self.assertIn('full', next(line for line in one.log().splitlines() if "export ''" in line))

    def assert_locked(self, pid, count):
        locked = int(re.search(r'VmLck:\s*(\d+) kB', server.read_file(f'/proc/{pid}/status'))[1]) * KiB
        self.assertGreater(locked, 64 * MiB)
        maps = mappings(pid)
        # Mappings of the kernel cannot be locked.
        self.assertEqual([each for each in maps if 'lo' not in each[3] and not each[2].startswith('[v')], [])
        # The kernel merges a stack with an adjacent mapping behind it.
        stacks = [size for (guard, rights, _, _), (size, _, _, _) in zip(maps, maps[1:])
                  if rights == '---p' and guard == 4 * KiB and STACK - guard <= size <= STACK + 64 * KiB]
        self.assertGreaterEqual(len(stacks), count - 1)
        large = [each for each in maps if each[2].startswith('[stack:') or each[0] in (8 * MiB, 8 * MiB - 4 * KiB)]
        self.assertEqual(large, [])

    def refused(self, problems, *prefix):
        """The server does not start, and reports these problems, one in each line."""
        path = os.path.join(self.directory(), 'socket')
        self.command(*prefix, server.PROGRAM, 'serve', '--device', 'host', '--size', '1M', '--swap', '-U', path, status=1)
        lines = [line.partition('error: ')[2] for line in self.errors.splitlines()]
        self.assertEqual(len(lines), len(problems), self.errors)
        for line, problem in zip(lines, problems):
            self.assertTrue(line.startswith(PROBLEMS[problem]), line)
        self.assertFalse(os.path.exists(path))

    SMALL = ('--memlock=8388608:8388608', '--rtprio=0:0')

    def test_each_missing_capability(self):
        self.refused(['flusher', 'oom'], *without('sys_resource'))
        self.refused(['flusher', 'oom', 'memory'], *without('sys_resource', 'ipc_lock', limits=self.SMALL))
        self.refused(['flusher', 'oom', 'time'], *without('sys_resource', 'sys_nice', limits=self.SMALL))
        self.refused(['flusher', 'oom', 'memory', 'time'],
                     *without('sys_resource', 'sys_nice', 'ipc_lock', limits=self.SMALL))

    def test_keep_has_the_same_requirements(self):
        path = os.path.join(self.directory(), 'socket')
        self.command(*without('sys_resource', 'sys_nice', 'ipc_lock', limits=self.SMALL), server.PROGRAM, 'keep', '--swap', '--',
                     'serve', '--device', 'host', '--size', '1M', '-U', path, status=1)
        lines = self.errors.splitlines()
        self.assertEqual(len(lines), len(PROBLEMS), self.errors)
        for line, problem in zip(lines, PROBLEMS.values()):
            self.assertTrue(line.startswith(f'gpunbd keep: {problem}'), line)
        self.assertFalse(os.path.exists(path))

    def test_limits_replace_capabilities(self):
        """CAP_SYS_RESOURCE is sufficient; sufficient limits replace the other two capabilities."""
        need_capabilities()
        for prefix in (without('sys_nice', 'ipc_lock', limits=self.SMALL),
                       without('sys_nice', 'ipc_lock', limits=('--memlock=unlimited', '--rtprio=5:5'))):
            out = self.check(prefix)
            self.assertNotIn('swap', out)
        self.assertEqual(self.status, 0)

    def check(self, prefix):
        """The output of gpunbd check for a file whose second export has swap."""
        path = server.write_file(os.path.join(self.directory(), 'gpunbd.yaml'),
                                 'listeners: {}\nexports:\n  - {name: a, size: 1M, devices: [host]}\n'
                                 '  - {name: b, size: 1M, devices: [host], swap: true}\n')
        self.command(*prefix, server.PROGRAM, 'check', path, status=None)
        return self.errors.replace(path + ': ', '')

    def test_check_reports_problems(self):
        lines = self.check(without('sys_resource', 'sys_nice', 'ipc_lock', limits=self.SMALL)).splitlines()
        self.assertEqual(self.status, 1)
        self.assertEqual(len(lines), 4)
        for line, problem in zip(lines, PROBLEMS.values()):
            self.assertTrue(line.startswith(problem.replace('swap: ', 'exports[1].swap: ')), line)

    def test_check_without_problems(self):
        need_capabilities()
        self.assertEqual(self.check(without()), '')
        self.assertEqual(self.status, 0)

    def test_conflicting_options(self):
        folder = self.directory()
        path = os.path.join(folder, 'gpunbd.yaml')
        serve = (server.PROGRAM, 'serve')
        server.write_file(os.path.join(folder, 'keys'), 'alice:0123456789abcdef0123456789abcdef\n', 0o600)
        tls = ('--tls-psk', os.path.join(folder, 'keys'))
        self.command(*serve, '--size', '1M', '--device', 'host', '--swap', *tls, status=2)
        self.assertIn('TLS and an export with swap exclude each other: the kernel\'s client passes TLS through a process',
                      self.errors)
        self.command(*serve, '--size', '1M', '--device', 'host', '--swap', '--run', 'true', status=2)
        self.assertIn('--run and an export with swap exclude each other', self.errors)
        server.write_file(path, CONFIG.replace('{socket}', os.path.join(folder, 'socket')))
        for flags in (tls, ('--run', 'true')):
            self.command(*serve, '--config', path, *flags, status=2)
            self.assertIn('exclude each other', self.errors)

    def test_warning_about_thin_provisioning(self):
        need_capabilities()
        one = self.serve(extra=('--swap', '--provision', 'thin'))
        server.wait_for_text("warning: export '': it is thin: ", one.log)

    def test_a_reload_cannot_enable_swap(self):
        plain = self.serve(config=CONFIG.replace(', swap: true', ''))
        plain.reload(CONFIG)
        server.wait_for_text('swap: cannot be enabled by a reload', plain.log)
        server.wait_for_text('the configuration is unchanged', plain.log)

    def test_reload(self):
        need_capabilities()
        one = self.serve(config=CONFIG)
        one.reload(CONFIG.replace('exports: [', 'exports: [{name: b, size: 32M, devices: [host], swap: true}, '))
        server.wait_for_text('2 exports are offered now', one.log)
        with wire.connect(one.address, 'b') as client:
            client.write(0, b'new')
            self.assertEqual(client.read(0, 3), b'new')


if __name__ == '__main__':
    server.main()
