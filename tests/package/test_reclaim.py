"""The hooks that give memory back: each script moves the pages of real servers to spill memory and back."""
import configparser
import json
import os
import shlex
import socket
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../integration'))

import server  # noqa: E402
import wire  # noqa: E402
from server import MiB  # noqa: E402

PACKAGING = os.path.join(server.ROOT, 'config/packaging')
RECLAIM = os.path.join(PACKAGING, 'reclaim/reclaim-servers')
SLEEP = os.path.join(PACKAGING, 'systemd/system-sleep')
SLURM = os.path.join(PACKAGING, 'reclaim/slurm')
GAMEMODE = os.path.join(PACKAGING, 'reclaim/gamemode.ini')
DATA = server.random_bytes(8 * MiB, 1)

server.need('flock')


class Hooks(server.Test):
    def setUp(self):
        self.programs = self.directory()
        os.symlink(server.PROGRAM, os.path.join(self.programs, 'gpunbd'))
        self.stand_in('systemctl', 'exit 3')  # no unit is active
        self.stand_in('logger', 'cat >&2')
        self.folders = []

    def stand_in(self, name, text):
        return server.write_file(os.path.join(self.programs, name), f'#!/bin/sh\n{text}\n', 0o755)

    def folder(self):
        self.folders.append(self.directory())
        return self.folders[-1]

    def server_with_data(self, folder, spill='64M'):
        """A server with its admin socket in the folder, and a client that has written DATA."""
        file = os.path.join(self.directory(), 'spill')
        place = f', spill: [{{file: {file}, size: {spill}}}]' if spill else ''
        one = self.serve(environment={'RUNTIME_DIRECTORY': folder}, config=f'''
listeners: {{unix: [{{path: '{{socket}}'}}]}}
devices: [{{id: host{place}}}]
exports: [{{name: '', size: 64M, devices: [host]}}]
''')
        one.admin = os.path.join(folder, f'admin-{one.process.pid}.sock')
        client = wire.connect(one.address)
        self.addCleanup(client.close)
        client.write(0, DATA)
        one.client = client
        return one

    def check(self, one, spilled):
        """How much of the data is in spill memory; and the data are correct wherever they are."""
        status = json.loads(self.command(server.PROGRAM, 'status', '--json', '--socket', one.admin))
        self.assertEqual(next(each for each in status['devices'] if each['id'] == 'host')['spilled'], spilled)
        self.assertEqual(one.client.read(0, len(DATA)), DATA)

    def hook(self, *command, status=0, **environment):
        """The output of a hook, without the names of the programs."""
        environment = {'PATH': f'{self.programs}:{os.environ["PATH"]}', 'GPUNBD_FOLDERS': ':'.join(self.folders),
                       'GPUNBD_RECLAIM_SERVERS': RECLAIM, 'GPUNBD_SLEEP_STATE': os.path.join(self.programs, 'state'),
                       'GPUNBD_NVIDIA_PARAMETERS': '/none', **environment}
        return self.command(*command, status=status, environment=environment) + self.errors

    def leave_socket(self, folder, number, listening=False):
        """The socket of a server that was killed, or of one that does not answer."""
        one = socket.socket(socket.AF_UNIX)
        self.addCleanup(one.close)
        one.bind(os.path.join(folder, f'admin-{number}.sock'))
        if listening:
            one.listen()
        else:
            one.close()


class Sleep(Hooks):
    def test_the_pages_of_all_servers_leave_and_return(self):
        first, second = self.folder(), self.folder()
        servers = [self.server_with_data(folder) for folder in (first, first, second)]
        self.server_with_data(second, spill='')
        self.leave_socket(first, 1)
        out = self.hook(SLEEP, 'pre', 'suspend')
        self.assertEqual(out.count('given back'), 3, out)
        self.assertEqual(out.count('exports use at most'), 3, out)
        for one in servers:
            self.check(one, len(DATA))
        out = self.hook(SLEEP, 'post', 'suspend')
        self.assertEqual(len(out.splitlines()), 3, out)
        for one in servers:
            self.check(one, 0)

    def test_it_is_silent_without_servers(self):
        self.folders.append('/none')
        for folder in (self.folder(), self.folder()):
            self.leave_socket(folder, 1)
        for when in ('pre', 'post'):
            self.assertEqual(self.hook(SLEEP, when, 'suspend'), '')

    def test_what_stays_is_logged(self):
        one = self.server_with_data(self.folder(), spill='2M')
        out = self.hook(SLEEP, 'pre', 'suspend')
        self.assertRegex(out, r'host: .* could not be given back: there is no memory left for its pages')
        self.assertIn('gpunbd: not all pages could be moved to spill memory before suspend', out)
        self.check(one, 0)

    def test_a_server_that_hangs_does_not_prevent_it(self):
        slow = self.folder()
        self.leave_socket(slow, 1, listening=True)
        self.leave_socket(slow, 2, listening=True)
        one = self.server_with_data(self.folder())
        out = self.hook(SLEEP, 'pre', 'suspend', GPUNBD_RECLAIM_SECONDS='10')
        # The limit is for the folder, so it is less for a server if the script has been slow before.
        self.assertRegex(out, fr'gpunbd: {slow}/admin-1\.sock: the server had not moved its pages after ([1-9]|10) s')
        self.assertIn(f'gpunbd: {slow}/admin-2.sock: not asked', out)
        self.check(one, len(DATA))


class Slurm(Hooks):
    def job(self, number, context, **environment):
        return self.hook(SLURM, SLURM_JOB_ID=str(number), SLURM_SCRIPT_CONTEXT=context,
                         GPUNBD_SLURM_STATE=os.path.join(self.programs, 'slurm'), **environment)

    def test_pages_return_after_the_last_job(self):
        one = self.server_with_data(self.folder())
        for number in (1, 2):
            self.job(number, 'prolog_slurmd', GPUNBD_JOB_DEVICES='host')
            self.check(one, len(DATA))
        for number in (1, 1, 7):  # an epilog may be repeated, and belong to a job without a prolog
            self.job(number, 'epilog_slurmd', GPUNBD_JOB_DEVICES='host')
            self.check(one, len(DATA))
        self.job(2, 'epilog_slurmd', GPUNBD_JOB_DEVICES='host')
        self.check(one, 0)

    def test_the_devices_are_the_gpus_of_the_job(self):
        environment = {'GPUNBD_RECLAIM_SERVERS': self.stand_in('reclaim', 'echo "$@"'), 'SLURM_JOB_GPUS': '0,3'}
        for context, size, expected in (('prolog_slurmd', '', 'cuda:0 --all\ncuda:3 --all\n'),
                                        ('prolog_slurmd', '20G', 'cuda:0 20G\ncuda:3 20G\n'),
                                        ('epilog_slurmd', '', 'cuda:0 --end\ncuda:3 --end\n'),
                                        ('epilog_slurmctld', '', '')):
            self.assertEqual(self.job(1, context, GPUNBD_JOB_MEMORY=size, **environment), expected)
        environment['SLURM_JOB_GPUS'] = ''
        self.assertEqual(self.job(1, 'prolog_slurmd', **environment), '')

    def test_a_job_starts_if_the_memory_cannot_be_given_back(self):
        one = self.server_with_data(self.folder(), spill='2M')
        out = self.job(1, 'prolog_slurmd', GPUNBD_JOB_DEVICES='host')
        self.assertIn('there is no memory left for its pages', out)
        self.check(one, 0)


class GameMode(Hooks):
    def test_memory_is_given_back_during_a_game(self):
        one = self.server_with_data(self.folder())
        file = configparser.ConfigParser()
        file.read(GAMEMODE)
        for key, spilled in (('start', len(DATA)), ('end', 0)):
            command = shlex.split(file['custom'][key])
            self.assertEqual(command[0], '/usr/lib/gpunbd/reclaim-servers')
            self.hook(RECLAIM, *command[1:])
            self.check(one, spilled)
        self.assertGreater(int(file['custom']['script_timeout']), 60)  # the limit of reclaim-servers


if __name__ == '__main__':
    server.main()
