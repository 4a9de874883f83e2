"""Memory control groups: writes beyond the limit fail with ENOSPC, and no process is killed."""
import contextlib
import errno
import os

import server
import wire
from server import MiB

LIMIT, RESERVE, SIZE, EXPORTS, STEP = 512 * MiB, 128 * MiB, 200 * MiB, 6, 4 * MiB
CONFIG = 'listeners: {unix: [{path: "{socket}"}]}\nexports:\n' + ''.join(
    f'  - {{name: e{n}, size: {SIZE}, devices: [host]}}\n' for n in range(EXPORTS))
RESERVED = f'devices: [{{id: host, reserve: {RESERVE}}}]\n'


def group_folders():
    """(folder, name of the limit file) of each hierarchy in which a group may be created below the current one."""
    with open('/proc/self/cgroup', encoding='ascii') as file:
        for line in file:
            _, controllers, path = line.rstrip('\n').split(':', 2)
            if controllers == '':
                yield '/sys/fs/cgroup' + path, 'memory.max'
            elif 'memory' in controllers.split(','):
                yield '/sys/fs/cgroup/memory' + path, 'memory.limit_in_bytes'


def make_group():
    reason = 'no memory control group'
    for parent, limit in group_folders():
        group = os.path.join(parent, f'gpunbd-test-{os.getpid()}')
        try:
            os.mkdir(group)
            server.write_file(os.path.join(group, limit), str(LIMIT))
            return parent, group
        except OSError as error:
            reason = f'{parent}: {error.strerror}'
            with contextlib.suppress(OSError):
                os.rmdir(group)
    server.skip(f'no control group can be created ({reason})')


def enter(group):
    server.write_file(os.path.join(group, 'cgroup.procs'), str(os.getpid()))


class ControlGroup(server.Test):
    @contextlib.contextmanager
    def in_group(self):
        """Processes started inside belong to a group with a limit."""
        parent, group = make_group()
        self.addCleanup(lambda: server.wait_until(lambda: self.remove(group), 60, 'the group to be empty'))
        enter(group)
        try:
            yield
        finally:
            enter(parent)

    @staticmethod
    def remove(group):
        try:
            os.rmdir(group)
        except OSError as error:
            if error.errno == errno.EBUSY:
                return False
            raise
        return True

    def fill(self, clients):
        """Writes to all exports in turn until each write is refused. Returns the number of successful steps."""
        written = 0
        for at in range(0, SIZE, STEP):
            for n, client in list(clients.items()):
                try:
                    client.write(at, bytes([n + 1]) * STEP)
                    written += 1
                except wire.Failed as failed:
                    self.assertEqual(failed.args[0], wire.ENOSPC)
                    del clients[n]
        self.assertEqual(clients, {}, 'all exports together fit into memory')
        return written

    def connect(self, one):
        return {n: wire.connect(one.address, f'e{n}') for n in range(EXPORTS)}

    def test_more_than_fits(self):
        with self.in_group():
            one = self.serve(config=CONFIG + RESERVED)
        for turn in range(3):
            written = self.fill(self.connect(one))
            print(f'turn {turn}: {written * STEP // MiB} MiB of {(LIMIT - RESERVE) // MiB}')
            self.assertLessEqual(written * STEP, LIMIT - RESERVE)
            self.assertGreater(written * STEP, (LIMIT - RESERVE) // 2)
            clients = self.connect(one)
            for n, client in clients.items():
                self.assertLessEqual(set(client.read(0, STEP)), {0, n + 1})
                client.trim(0, SIZE)
            self.assertEqual(one.process.poll(), None)

    def test_the_reserve_is_kept_free(self):
        """The default reserve is as large as the group, so no memory is available, and the server reports this."""
        with self.in_group():
            self.command(server.PROGRAM, 'serve', '--device', 'host', '--size', '100M',
                         '-U', os.path.join(self.directory(), 'socket'), status=1, seconds=60)
        self.assertIn('no memory is available on host beside a reserve of 512 MiB, limited to ', self.errors)


if __name__ == '__main__':
    server.main()
