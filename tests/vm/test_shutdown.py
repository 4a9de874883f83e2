"""Machines that power off while a device of gpunbd attach is in use: mounted manually and by fstab, below LVM, md (RAID1
over two servers) and dm-crypt, and as swap. Each must power off within a time limit and leave a clean file system, which the
last boot checks.

debian_guest.py describes the guests."""
import os
import re
import signal
import time

import debian_guest
import recipe
import server

# The documented limits, not an estimate: nothing else in the guest takes time.
WITHIN = 30
CUT_AFTER = 120  # if the device makes no progress
LEFT = ('hand', 'fstab', 'lvm', 'md', 'crypt')  # on a server that continues, so the last boot can check them
GONE = ('own', 'swap')  # on a server in the machine that powers off

EXPORTS = ('hand', 'fstab', 'lvm', 'md0', 'crypt', 'stuck')
EXPORTS_OF_SECOND = ('md1',)  # the other half of the RAID1


def configuration(port, exports):
    listeners = 'listeners: {unix: [{path: "{socket}"}], tcp: [{address: 127.0.0.1, port: %d}]}\nexports:\n' % port
    return listeners + ''.join(f'  - {{name: {name}, size: 64M, devices: [host]}}\n' for name in exports)


def early():
    """The commands before systemd starts: those that the manual gives for each boot."""
    lines = recipe.texts('server/manual/attach-and-mount.md', 'Attached devices')[1]
    for original, replacement in (('nbd://storage.example.org/', 'nbd://10.0.2.2:$1/fstab'), ('systemctl enable --now', 'systemctl -q enable')):
        assert original in lines, original
        lines = lines.replace(original, replacement)
    return f'[ "$2" = fstab ] || exit 0\nset -e\n{lines}'


def about_disks(console):
    return '\n'.join(line for line in console.splitlines() if re.search('nbd|EXT4|I/O|swap|umount|panic', line))[-8000:]


class Shutdown(server.Test):
    def power_off(self, disk, ports, scenario, within=WITHIN, when_used=lambda: None):
        """The output on the console. The machine must power off within that time, in seconds."""
        machine = disk.boot(self, f'scenario={scenario} {ports}')
        machine.wait_for(f'RESULT {scenario} used ok')
        when_used()
        start = time.monotonic()
        while not machine.ended() and time.monotonic() - start < within:
            time.sleep(0.1)
        taken = time.monotonic() - start
        self.assertTrue(machine.ended(), f'{scenario}: still up after {taken:.0f} s:\n{machine.console[-6000:]}')
        print(f'FIGURE {scenario}: off after {taken:.1f} s')
        if os.environ.get('GPUNBD_SHUTDOWN_CONSOLE'):
            print(machine.console)
        return machine.console

    def fill_fstab(self, one):
        image = os.path.join(self.directory(), 'image')
        self.command('mkfs.ext4', '-q', image, '64M')
        self.command('nbdcopy', image, f'nbd+unix:///fstab?socket={one.path}')

    def disk(self):
        with open(os.path.join(debian_guest.HERE, 'scenario_shutdown'), encoding='ascii') as file:
            # The scenario assembles the array: udev would do so in parallel, before both members are attached.
            return debian_guest.Disk(self, {'scenario': file.read(), 'early': early(), 'etc/mdadm/mdadm.conf': 'AUTO -all\n'})

    def test_power_off(self):
        port, second_port = server.free_port(), server.free_port()
        one = self.serve(config=configuration(port, EXPORTS))
        self.serve(config=configuration(second_port, EXPORTS_OF_SECOND))
        ports = f'port={port} second_port={second_port}'
        self.fill_fstab(one)
        disk = self.disk()
        wanted = os.environ.get('GPUNBD_SHUTDOWN', ','.join(LEFT + GONE + ('stuck',))).split(',')
        for scenario in wanted:
            if scenario == 'stuck':
                continue
            with self.subTest(scenario=scenario):
                console = self.power_off(disk, ports, scenario)
                # Not reads: udev may probe a device that has just been detached.
                for bad in ('I/O error.*WRITE', 'rror on swap', 'EXT4-fs error', 'lost .*write', 'Kernel panic', 'blocked for more',
                            'was disconnected by force'):
                    self.assertIsNone(re.search(bad, console), about_disks(console))
        left = [scenario for scenario in wanted if scenario in LEFT]
        if left:
            machine = disk.boot(self, f'scenario=check scenarios={",".join(left)} {ports}')
            self.assertEqual(machine.results(500), [f'{scenario} clean ok' for scenario in left], machine.console[-6000:])
        if 'stuck' in wanted:
            console = self.power_off(disk, ports, 'stuck', CUT_AFTER + WITHIN, lambda: one.process.send_signal(signal.SIGSTOP))
            one.process.send_signal(signal.SIGCONT)
            self.assertTrue('/dev/nbd0 was disconnected by force' in console, about_disks(console))


if __name__ == '__main__':
    server.main()
