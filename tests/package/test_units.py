"""The units of config/packaging/systemd, by systemd's own checks; the sleep hook, with a stand-in for systemctl; and the
configuration of the service."""
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../integration'))

import server  # noqa: E402

FOLDER = os.path.join(server.ROOT, 'config/packaging/systemd')
CONFIGURATION = os.path.join(server.ROOT, 'config/packaging/debian/gpunbd.yaml')
UNITS = ['gpunbd.service', 'gpunbd.socket', 'gpunbd-swap@.service']


def contents(name):
    return server.read_file(os.path.join(FOLDER, name))


class Units(server.Test):
    def setUp(self):
        server.need('systemd-analyze')

    def copies(self):
        """Copies of the units that use the program under test instead of /usr/bin/gpunbd."""
        folder = self.directory()
        for name in UNITS:
            server.write_file(os.path.join(folder, name), contents(name).replace('/usr/bin/gpunbd', server.PROGRAM))
        return folder

    def verify(self, path):
        """The problems that systemd reports."""
        done = subprocess.run(['systemd-analyze', 'verify', '--man=no', path], capture_output=True, text=True, check=False)
        lines = [line for line in done.stderr.splitlines()
                 if line.startswith(os.path.dirname(path)) or os.path.basename(path) in line]
        return lines, done.returncode

    def test_units_are_valid(self):
        folder = self.copies()
        for name in ('gpunbd.service', 'gpunbd.socket', 'gpunbd-swap@nbd0.service'):
            with self.subTest(name=name):
                self.assertEqual(self.verify(os.path.join(folder, name)), ([], 0))

    def test_problems_are_detected(self):
        folder = self.copies()
        path = os.path.join(folder, 'gpunbd.service')
        with open(path, 'a', encoding='utf-8') as file:
            file.write('[Service]\nWatchdogSek=1\n')
        self.assertIn('WatchdogSek', str(self.verify(path)))

    def test_exposure_is_limited(self):
        """`systemd-analyze security`: below 4 for the service; the GPU driver prevents a lower value."""
        folder = self.copies()
        for name, threshold in (('gpunbd.service', 40), ('gpunbd-swap@.service', 50)):
            with self.subTest(name=name):
                self.command('systemd-analyze', 'security', '--offline=true', f'--threshold={threshold}', '--no-pager',
                             os.path.join(folder, name))

    def test_the_swap_unit_matches_the_output_of_attach(self):
        packaged = re.sub(r'(?m)^EnvironmentFile=.*\n', '', contents('gpunbd-swap@.service'))
        uri = re.search('^Environment="URI=(.*)"$', packaged, re.MULTILINE)[1]
        printed = self.command(server.PROGRAM, 'attach', '--systemd', '--swap', uri, '/dev/nbd7')
        self.assertEqual(printed.replace(server.PROGRAM, '/usr/bin/gpunbd').partition('[Unit]')[2],
                         packaged.replace('%i', 'nbd7').partition('[Unit]')[2])

    def test_their_commands_exist(self):
        """The program has each command of the units."""
        for unit, expected in (('gpunbd.service', ['devices', 'serve']), ('gpunbd-swap@.service', ['attach'])):
            commands = re.findall(r'^Exec\w+=[-+@:!]*/usr/bin/gpunbd ([\w-]+)', contents(unit), re.MULTILINE)
            self.assertEqual(sorted(commands), expected)
            for command in commands:
                self.assertTrue(self.command(server.PROGRAM, command, '--help').startswith(f'gpunbd {command} - '))


class Configuration(server.Test):
    def test_it_is_valid_and_private(self):
        out = self.command(server.PROGRAM, 'check', CONFIGURATION, status=None)
        self.assertIn(self.status, (0, 1), self.errors)  # 1: this machine may have no /run/gpunbd
        self.assertIn('path: "/run/gpunbd/gpunbd.sock"', out)
        self.assertNotIn('address:', out)
        self.assertNotIn('insecure: true', out)
        self.assertIn(f'--config /etc/gpunbd/{os.path.basename(CONFIGURATION)}\n', contents('gpunbd.service'))

    def test_the_socket_unit_has_the_same_path(self):
        self.assertIn('ListenStream=/run/gpunbd/gpunbd.sock\n', contents('gpunbd.socket'))


class Sleep(server.Test):
    """The stand-ins for systemctl and gpunbd log their arguments. Files list the active units, and the devices that
    cannot be detached."""

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
is-active) exit 0 ;;
esac
''')
        self.write('gpunbd', f'''#!/bin/sh
echo "$*" >>{self.folder}/calls
if grep -qx "$2" {self.folder}/stuck; then
    echo "gpunbd detach: the swapped-out memory on $2 does not fit into RAM" >&2
    exit 1
fi
''')

    def write(self, name, text):
        server.write_file(os.path.join(self.folder, name), text, 0o755)

    def hook(self, *arguments):
        self.write('calls', '')
        environment = {'PATH': f'{self.folder}:{os.environ["PATH"]}', 'GPUNBD_NVIDIA_PARAMETERS': self.parameters,
                       'GPUNBD_SLEEP_STATE': os.path.join(self.folder, 'state'), 'GPUNBD_RECLAIM_SERVERS': 'true'}
        output = self.command(os.path.join(FOLDER, 'system-sleep'), *arguments, environment=environment) + self.errors
        return server.read_file(self.calls).splitlines(), output

    def test_swap_is_detached_before_and_attached_after(self):
        self.write('active', 'gpunbd-swap@nbd0.service\ngpunbd-swap@nbd3.service\n')
        calls, _ = self.hook('pre', 'suspend')
        self.assertEqual([call for call in calls if call.startswith(('stop', 'detach'))],
                         ['detach /dev/nbd0', 'stop gpunbd-swap@nbd0.service', 'detach /dev/nbd3', 'stop gpunbd-swap@nbd3.service'])
        calls, output = self.hook('post', 'suspend')
        self.assertEqual(calls, ['start --no-block gpunbd-swap@nbd0.service', 'start --no-block gpunbd-swap@nbd3.service'])
        self.assertEqual(output, '')
        self.assertEqual(self.hook('post', 'suspend'), ([], ''))

    def test_a_device_that_cannot_be_detached_is_reported_and_unchanged(self):
        self.write('active', 'gpunbd-swap@nbd0.service\ngpunbd-swap@nbd1.service\n')
        self.write('stuck', '/dev/nbd0\n')
        calls, output = self.hook('pre', 'hibernate')
        self.assertNotIn('stop gpunbd-swap@nbd0.service', calls)
        self.assertIn('does not fit into RAM', output)
        self.assertIn('gpunbd-swap@nbd0.service stays active during hibernate', output)
        self.assertEqual(self.hook('post', 'hibernate')[0], ['start --no-block gpunbd-swap@nbd1.service'])

    def test_the_fate_of_gpu_memory_is_reported(self):
        for text, message in (('PreserveVideoMemoryAllocations: 1\n', 'the driver saves GPU memory during suspend'),
                              ('PreserveVideoMemoryAllocations: 0\n', 'exports on cuda:N lose their contents')):
            self.write('params', text)
            self.assertIn(message, self.hook('pre', 'suspend')[1])
        os.remove(self.parameters)
        self.assertEqual(self.hook('pre', 'suspend')[1], '')

    def test_other_calls_do_nothing(self):
        for arguments in ((), ('frob', 'suspend')):
            self.assertEqual(self.hook(*arguments), ([], ''))


if __name__ == '__main__':
    server.main()
