"""QEMU's NBD client: the disk of a running guest is an export. Discards of the guest free memory, the server is killed
under load and restarted, and the running disk is mirrored into another export.

test_kernel_client.py describes the guest."""
import json
import os
import shlex
import sys

import recipe
import running_guest
import test_kernel_client as guest
import server
from server import MiB

sys.path.insert(0, os.path.join(guest.HERE, '../integration'))

import kept  # noqa: E402
import wire  # noqa: E402

SIZE = 256 * MiB
CONFIG = '''
listeners: {unix: [{path: "{socket}"}]}
exports:
- {name: disk, size: 256M, devices: [host], keep: true}
- {name: copy, size: 256M, devices: [host], keep: true}
'''
KILLS = 3

server.need('qemu-img')


def manual(one):
    """(QEMU's arguments, the three QMP commands), from the manual."""
    (drive,), commands = recipe.blocks('server/manual/attach-and-mount.md', 'Disks of virtual machines')
    uri = f'nbd+unix:///disk?socket={one.path}'
    return (shlex.split(drive.replace('$uri', uri))[2:],
            [json.loads(command.replace('/run/gpunbd.sock', one.path)) for command in commands])


class QemuDisk(kept.Test):
    def allocated(self, one):
        """The allocated bytes of the disk."""
        with wire.connect(one.path, 'disk') as client:
            return sum(length for length, flags in client.status(0, SIZE)[1] if not flags & 1)

    def start(self, drive):
        initramfs = guest.Initramfs(os.path.join(self.directory(), 'root'), 'qemu_disk')
        initramfs.programs('mkfs.ext4', 'e2fsck')
        initramfs.modules('virtio_pci', 'virtio_blk', 'crc32c_generic', 'ext4')
        return running_guest.RunningGuest(self, initramfs, memory=512, devices=drive)

    def test_disk(self):
        one = self.keep(config=CONFIG)
        drive, (add, mirror, cancel) = manual(one)
        machine = self.start(drive)
        machine.wait_for('STEP written')
        written = self.allocated(one)
        machine.say('')
        machine.wait_for('STEP trimmed')
        self.assertLess(self.allocated(one), written - 36 * MiB)  # 48 MiB were removed
        machine.say('')
        machine.wait_for('STEP loading')
        for _ in range(KILLS):
            machine.wait_for_more('PROGRESS')
            one.kill_and_wait()
        machine.wait_for_more('PROGRESS')
        machine.send(add)
        machine.send(mirror)
        machine.wait_for_event('BLOCK_JOB_READY')
        machine.wait_for_more('PROGRESS')
        machine.say('')
        machine.wait_for('STEP unmounted')
        machine.send(cancel)
        machine.wait_for_event('BLOCK_JOB_COMPLETED')
        uris = [f'nbd+unix:///{name}?socket={one.path}' for name in ('disk', 'copy')]
        self.command('qemu-img', 'compare', '-f', 'raw', '-F', 'raw', *uris)
        machine.say('')
        self.assertEqual(machine.results(), ['disk ok'])


if __name__ == '__main__':
    server.main()
