"""The units of config/systemd, by systemd's own checks; the hook for sleep, with a systemctl that plays; and the
service's configuration, by gpunbd."""
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../integration'))

import server  # noqa: E402

FOLDER = os.path.join(server.ROOT, 'config/systemd')
CONFIGURATION = os.path.join(server.ROOT, 'config/debian/gpunbd.yaml')
UNITS = ['gpunbd.service', 'gpunbd.socket', 'gpunbd-swap@.service']
# What a systemd knows since; an earlier one says that it does not, and goes on.
NEWER = {'FileDescriptorStorePreserve': 254}


def contents(name):
    with open(os.path.join(FOLDER, name), encoding='utf-8') as file:
        return file.read()


class Units(server.Test):
    def setUp(self):
        server.need('systemd-analyze')
        version = subprocess.run(['systemd-analyze', '--version'], capture_output=True, text=True, check=True).stdout
        self.version = int(version.split()[1])

    def copies(self):
        """The units in a folder of their own, where /usr/bin/gpunbd is the program under test."""
        folder = self.directory()
        for name in UNITS:
            with open(os.path.join(folder, name), 'w', encoding='utf-8') as file:
                file.write(contents(name).replace('/usr/bin/gpunbd', server.PROGRAM))
        return folder

    def verify(self, path):
        """What systemd finds in a unit, with what is newer than this systemd left out."""
        done = subprocess.run(['systemd-analyze', 'verify', '--man=no', path], capture_output=True, text=True, check=False)
        newer = '|'.join(name for name, since in NEWER.items() if since > self.version)
        lines = [line for line in done.stderr.splitlines()
                 if line.startswith(os.path.dirname(path)) or os.path.basename(path) in line]
        if newer:
            lines = [line for line in lines if not re.search(f"Unknown key (name )?'({newer})'", line)]
        return lines, done.returncode

    def test_systemd_takes_each(self):
        folder = self.copies()
        for name in ('gpunbd.service', 'gpunbd.socket', 'gpunbd-swap@nbd0.service'):
            with self.subTest(name=name):
                self.assertEqual(self.verify(os.path.join(folder, name)), ([], 0))

    def test_what_is_wrong_is_found(self):
        folder = self.copies()
        path = os.path.join(folder, 'gpunbd.service')
        with open(path, 'a', encoding='utf-8') as file:
            file.write('[Service]\nWatchdogSek=1\n')
        self.assertIn('WatchdogSek', str(self.verify(path)))

    def test_they_may_little(self):
        """`systemd-analyze security`: under 4 for the service, which the GPU's driver keeps from less."""
        folder = self.copies()
        for name, threshold in (('gpunbd.service', 40), ('gpunbd-swap@.service', 50)):
            with self.subTest(name=name):
                self.command('systemd-analyze', 'security', '--offline=true', f'--threshold={threshold}', '--no-pager',
                             os.path.join(folder, name))

    def test_the_unit_for_swap_is_what_attach_prints(self):
        packaged = re.sub(r'(?m)^EnvironmentFile=.*\n', '', contents('gpunbd-swap@.service'))
        uri = re.search('^Environment="URI=(.*)"$', packaged, re.MULTILINE)[1]
        printed = self.command(server.PROGRAM, 'attach', '--systemd', '--swap', uri, '/dev/nbd7')
        self.assertEqual(printed.replace(server.PROGRAM, '/usr/bin/gpunbd').partition('[Unit]')[2],
                         packaged.replace('%i', 'nbd7').partition('[Unit]')[2])

    def test_none_of_their_programs_is_missing(self):
        """Each command of the services' is one of gpunbd's."""
        for unit, expected in (('gpunbd.service', ['devices', 'serve']), ('gpunbd-swap@.service', ['attach'])):
            commands = re.findall(r'^Exec\w+=[-+@:!]*/usr/bin/gpunbd ([\w-]+)', contents(unit), re.MULTILINE)
            self.assertEqual(sorted(commands), expected)
            for command in commands:
                self.assertTrue(self.command(server.PROGRAM, command, '--help').startswith(f'gpunbd {command} - '))


class Configuration(server.Test):
    def test_it_is_one_and_reached_by_nobody_else(self):
        out = self.command(server.PROGRAM, 'check', CONFIGURATION, status=None)
        self.assertIn(self.status, (0, 1), self.errors)  # 1: there may be no /run/gpunbd here
        self.assertIn('path: "/run/gpunbd/gpunbd.sock"', out)
        self.assertNotIn('address:', out)
        self.assertNotIn('insecure: true', out)
        self.assertIn(f'--config /etc/gpunbd/{os.path.basename(CONFIGURATION)}\n', contents('gpunbd.service'))

    def test_the_socket_unit_listens_where_it_says(self):
        self.assertIn('ListenStream=/run/gpunbd/gpunbd.sock\n', contents('gpunbd.socket'))


class Sleep(server.Test):
    """systemctl is a script that notes how it was called; which units are active, and which cannot be stopped, are
    files."""

    def setUp(self):
        self.folder = self.directory()
        self.calls = os.path.join(self.folder, 'calls')
        self.parameters = os.path.join(self.folder, 'params')
        self.write('active', '')
        self.write('calls', '')
        self.write('stuck', '')
        self.write('systemctl', f'''#!/bin/sh
echo "$*" >>{self.folder}/calls
case $1 in
list-units) while read -r unit; do echo "$unit loaded active running Swap"; done <{self.folder}/active ;;
stop) ! grep -qx "$2" {self.folder}/stuck ;;
is-active) exit 0 ;;
esac
''')
        os.chmod(os.path.join(self.folder, 'systemctl'), 0o755)

    def write(self, name, text):
        with open(os.path.join(self.folder, name), 'w', encoding='utf-8') as file:
            file.write(text)

    def hook(self, *arguments):
        self.write('calls', '')
        environment = {'PATH': f'{self.folder}:{os.environ["PATH"]}', 'GPUNBD_NVIDIA_PARAMETERS': self.parameters,
                       'GPUNBD_SLEEP_STATE': os.path.join(self.folder, 'state')}
        said = self.command(os.path.join(FOLDER, 'system-sleep'), *arguments, environment=environment) + self.errors
        with open(self.calls, encoding='utf-8') as file:
            return file.read().splitlines(), said

    def test_swapping_ends_before_and_begins_after(self):
        self.write('active', 'gpunbd-swap@nbd0.service\ngpunbd-swap@nbd3.service\n')
        calls, _ = self.hook('pre', 'suspend')
        self.assertEqual([call for call in calls if call.startswith('stop')],
                         ['stop gpunbd-swap@nbd0.service', 'stop gpunbd-swap@nbd3.service'])
        calls, said = self.hook('post', 'suspend')
        self.assertEqual(calls, ['start --no-block gpunbd-swap@nbd0.service', 'start --no-block gpunbd-swap@nbd3.service'])
        self.assertEqual(said, '')
        self.assertEqual(self.hook('post', 'suspend'), ([], ''))

    def test_what_cannot_be_stopped_is_said_and_left_alone(self):
        self.write('active', 'gpunbd-swap@nbd0.service\ngpunbd-swap@nbd1.service\n')
        self.write('stuck', 'gpunbd-swap@nbd0.service\n')
        _, said = self.hook('pre', 'hibernate')
        self.assertIn('gpunbd-swap@nbd0.service cannot be stopped before hibernate', said)
        self.assertEqual(self.hook('post', 'hibernate')[0], ['start --no-block gpunbd-swap@nbd1.service'])

    def test_what_becomes_of_the_memory_of_gpus(self):
        for text, told in (('PreserveVideoMemoryAllocations: 1\n', 'the driver saves the memory of GPUs over suspend'),
                           ('PreserveVideoMemoryAllocations: 0\n', 'exports on cuda:N lose their contents')):
            self.write('params', text)
            self.assertIn(told, self.hook('pre', 'suspend')[1])
        os.remove(self.parameters)
        self.assertEqual(self.hook('pre', 'suspend')[1], '')

    def test_other_calls_do_nothing(self):
        for arguments in ((), ('frob', 'suspend')):
            self.assertEqual(self.hook(*arguments), ([], ''))


if __name__ == '__main__':
    server.main()
