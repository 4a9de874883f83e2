"""The kernel's own client over a network that stalls, and a client's machine that is gone: a QEMU guest under load.

What the guest is made of is told in test_kernel_client.py."""
import os
import re
import shutil
import sys
import time

import running_guest
import test_kernel_client as guest
import server

sys.path.insert(0, os.path.join(guest.HERE, '../integration'))

import wire  # noqa: E402

CONFIG = '''
listeners: {tcp: [{address: 127.0.0.1, port: %d}], unix: [{path: "{socket}"}]}
exports:
- {name: late, size: 64M, devices: [host]}
- {name: attached, size: 64M, devices: [host]}
- {name: plain, size: 64M, devices: [host]}
- {name: others, size: 64M, devices: [host]}
'''
STALL = 10  # seconds, in which nothing passes
NETWORK = ('-netdev', 'user,id=net', '-device', 'virtio-net-pci,netdev=net,romfile=',
           # Holds packets of both directions back, in order, while it is on.
           '-object', 'filter-buffer,id=stall,netdev=net,queue=all,interval=4000000000,status=off')


def dead(one):
    """The lines of the connections to the first export that have ended."""
    return re.findall("export 'late': [0-9]+ request.*", one.log())


class Network(server.Test):
    def start(self, port):
        initramfs = guest.Initramfs(os.path.join(self.directory(), 'root'), 'network')
        for program in ('mkfs.ext4', 'e2fsck', 'nbd-client'):
            initramfs.program(shutil.which(program))
        initramfs.program(server.PROGRAM, 'gpunbd')
        for module in ('virtio_pci', 'virtio_net', 'nbd', 'crc32c_generic', 'ext4'):
            initramfs.module(module)
        return running_guest.RunningGuest(self, initramfs, append=f'nbd.nbds_max=2 port={port}', memory=512, network=NETWORK)

    def both_go_on(self, machine, steps):
        for device in ('nbd0', 'nbd1'):
            machine.wait_for_more(f'PROGRESS of {device}', steps)

    def unplug(self, machine):
        machine.say('unplug')
        machine.wait_for_more('plugged', 1)

    def hold_back(self, machine):
        machine.ask('qom-set', path='/objects/stall', property='status', value='on')
        time.sleep(STALL)
        machine.ask('qom-set', path='/objects/stall', property='status', value='off')

    def test_stalls_and_vanishes(self):
        port = server.free_port()
        one = self.serve(config=CONFIG % port)
        other = wire.connect(one.path, 'others')
        self.addCleanup(other.close)
        machine = self.start(port)
        machine.wait_for('STEP written anew')
        server.wait_until(lambda: dead(one), 120, 'the end of the connection that was dead')
        self.assertIn(', 64 KiB written;', dead(one)[0])
        machine.say('')
        for stall in (self.hold_back, self.unplug):
            self.both_go_on(machine, 3)
            stall(machine)
        self.both_go_on(machine, 20)
        machine.say('')
        machine.wait_for('RESULT network ok')
        self.both_go_on(machine, 3)
        served = one.log().count("export 'attached'") + one.log().count("export 'plain'")
        machine.kill()
        server.wait_until(lambda: one.log().count("export 'attached'") + one.log().count("export 'plain'") == served + 6, 60,
                          'the connections of a machine that is gone')
        self.assertEqual(other.read(0, 512), bytes(512))


if __name__ == '__main__':
    server.main()
