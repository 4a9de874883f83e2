"""Machines that power off while devices of gpunbd attach are in use: mounted manually and by fstab, below LVM, md (RAID1
over two servers) and dm-crypt, and as swap; and a ublk device that was mounted manually, if there is a kernel that has
it. Each must power off within a time limit and leave clean file systems, which the last boot checks. After that, its
own server stops answering.

debian_guest.py describes the guests."""
import os
import re
import signal
import time

import ublk_kernel  # noqa: F401
import debian_guest
import recipe
import server

CUT_AFTER = 120  # seconds without progress, after which a device is disconnected by force: the documented limit
# A machine powers off well within 30 s, which the printed figures show. The emulated one gets much more time, because other tests
# may slow it down. A device or a service that hangs is noticed by a message.
WITHIN = 300
LEFT = ('hand', 'fstab', 'lvm', 'md', 'crypt')  # on a server that continues, so the last boot can check them
# The cases of each boot. Debian's blk-availability.service deactivates LVM, md and dm-crypt devices one after the other, which
# takes too long for all in one boot. In `own` and `swap` the server is in the machine that powers off; that of `swap` waits for
# swapoff, which would protect `own` as well.
TOGETHER = (('hand', 'fstab', 'lvm', 'own'), ('md', 'crypt', 'swap'))

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
    return f'case ,$2, in *,fstab,*) ;; *) exit 0 ;; esac\nset -e\n{lines}'


def about_disks(console):
    return '\n'.join(line for line in console.splitlines() if re.search('nbd|EXT4|I/O|swap|umount|panic', line))[-8000:]


class Shutdown(server.Test):
    def power_off(self, disk, ports, cases, within=WITHIN, when_used=lambda: None, left=()):
        """The output on the console. The machine must power off within that time, in seconds. Before, it checks what earlier
        machines have `left`."""
        scenario = ','.join(cases)
        machine = disk.boot(self, f'left={",".join(left)} cases={scenario} {ports}')
        for case in left:
            machine.wait_for(f'RESULT {case} clean ok')
        machine.wait_for(f'RESULT {cases[-1]} used ok')
        when_used()
        machine.say('')
        start = time.monotonic()
        while not machine.ended() and time.monotonic() - start < within:
            time.sleep(0.1)
        taken = time.monotonic() - start
        self.assertTrue(machine.ended(), f'{scenario}: still up after {taken:.0f} s:\n{machine.console[-6000:]}')
        print(f'FIGURE {scenario}: off after {taken:.1f} s')
        return machine.console

    @staticmethod
    def suspend(one):
        one.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, one.process.pid, os.WSTOPPED | os.WNOWAIT)

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
        for cases in TOGETHER:
            with self.subTest(cases=cases):
                console = self.power_off(disk, ports, cases)
                # Not reads: udev may probe a device that has just been detached.
                for bad in ('I/O error.*WRITE', 'rror on swap', 'EXT4-fs error', 'lost .*write', 'Kernel panic', 'blocked for more',
                            'was disconnected by force', r'timed out\. (Killing|Terminating)'):
                    self.assertIsNone(re.search(bad, console), about_disks(console))
        console = self.power_off(disk, ports, ['stuck'], CUT_AFTER + WITHIN, lambda: self.suspend(one), LEFT)
        one.process.send_signal(signal.SIGCONT)
        self.assertTrue('/dev/nbd0 was disconnected by force' in console, about_disks(console))


if __name__ == '__main__':
    server.main()
