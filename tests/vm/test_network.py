"""The kernel's NBD client on a network that stalls, and a client machine that disappears: a QEMU guest under load.

test_kernel_client.py describes the guest."""
import os
import re
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
STALL = 10  # seconds without any packet
NETWORK = (*guest.NETWORK,
           # While it is enabled, it delays the packets of both directions without reordering them.
           '-object', 'filter-buffer,id=stall,netdev=net,queue=all,interval=4000000000,status=off')


def dead(one):
    """The log lines of closed connections to the first export."""
    return re.findall("export 'late': [0-9]+ request.*", one.log())


def connections(port):
    """The number of connections that the server has at its port."""
    with open('/proc/net/tcp', encoding='ascii') as file:
        sockets = [line.split() for line in file.readlines()[1:]]
    listening, time_wait = '0A', '06'
    return sum(each[1].endswith(f':{port:04X}') and each[3] not in (listening, time_wait) for each in sockets)


class Network(server.Test):
    def start(self, port):
        initramfs = guest.root(self, 'network', ('mkfs.ext4', 'e2fsck', 'nbd-client'),
                               ('virtio_pci', 'virtio_net', 'nbd', 'crc32c_generic', 'ext4'))
        return running_guest.RunningGuest(self, initramfs, append=f'nbd.nbds_max=2 port={port}', memory=512, network=NETWORK)

    def wait_for_progress(self, machine, steps):
        for device in ('nbd0', 'nbd1'):
            machine.wait_for_more(f'PROGRESS of {device}', steps)

    def unplug(self, machine):
        before = machine.console.count('plugged')
        machine.say('unplug')
        machine.wait_for('plugged', before + 1)

    def hold_back(self, machine):
        machine.execute('qom-set', path='/objects/stall', property='status', value='on')
        time.sleep(STALL)
        machine.execute('qom-set', path='/objects/stall', property='status', value='off')

    def test_stalls_and_vanishes(self):
        port = server.free_port()
        one = self.serve(config=CONFIG % port)
        other = wire.connect(one.path, 'others')
        self.addCleanup(other.close)
        machine = self.start(port)
        machine.wait_for('STEP written anew')
        server.wait_until(lambda: dead(one), 120, 'the end of the dead connection')
        self.assertIn(', 64 KiB written;', dead(one)[0])
        machine.say('')
        for stall in (self.hold_back, self.unplug):
            self.wait_for_progress(machine, 3)
            stall(machine)
        self.wait_for_progress(machine, 20)
        machine.say('')
        machine.wait_for('RESULT network ok')
        self.wait_for_progress(machine, 3)
        def ended():
            return one.log().count("export 'attached'") + one.log().count("export 'plain'")

        before = ended()
        machine.kill()
        # The server may also have connections from before a stall.
        server.wait_until(lambda: ended() >= before + 6 and connections(port) == 0, 60, 'the end of the connections of the killed guest')
        self.assertEqual(other.read(0, 512), bytes(512))


if __name__ == '__main__':
    server.main()
