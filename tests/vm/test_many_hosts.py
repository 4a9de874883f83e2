"""Exports of three servers as one device, with md and LVM in a QEMU guest, by the commands of the manual. One server is
killed under load.

test_kernel_client.py describes the guest."""
import os

import recipe
import test_kernel_client as guest
import server

EXPECTED = ['raid1 ok', 'lvm ok']
LVM = ('vgcreate', 'vgreduce', 'vgextend', 'vgs', 'lvcreate', 'lvremove', 'lvconvert')
FILES = {
    'etc/hosts': ''.join(f'127.0.0.{number} host-{name}\n' for number, name in enumerate('abc', 2)),
    'etc/nsswitch.conf': 'hosts: files\n',
    # The guest has no udev and no dmeventd.
    'etc/lvm/lvm.conf': 'activation { udev_sync = 0 udev_rules = 0 monitoring = 0 }\n'
                        'devices { obtain_device_list_from_udev = 0 use_devicesfile = 0 }\n'
                        'global { use_lvmpolld = 0 event_activation = 0 }\n'
}

# The timeouts of the manual, and those for a guest that other tests slow down.
TIMEOUTS = {'--timeout 2 --dead-timeout 3': '--timeout 5 --dead-timeout 10'}

server.need('mdadm', 'lvm', 'dmsetup')


class ManyHosts(server.Test):
    def test_md_and_lvm(self):
        initramfs = guest.root(self, 'many_hosts', ('mdadm', 'lvm', 'dmsetup', 'mkfs.ext4', 'e2fsck'),
                               ('nbd', 'crc32c_generic', 'ext4', 'raid1', 'dm_mod', 'dm_raid'))
        for name in LVM:
            os.symlink('lvm', os.path.join(initramfs.root, 'bin', name))
        md, md_again = recipe.blocks('server/manual/many-hosts.md', 'By md')
        lvm, lvm_repair, lvm_again = recipe.blocks('server/manual/many-hosts.md', 'By LVM')
        for name, block in (('md', md), ('md_again', md_again), ('lvm', lvm), ('lvm_repair', lvm_repair), ('lvm_again', lvm_again)):
            text = recipe.script(block)
            for original, replacement in TIMEOUTS.items():
                text = text.replace(original, replacement)
            initramfs.file(f'manual/{name}', text)
        for name, text in FILES.items():
            initramfs.file(name, text)
        guest.run(self, initramfs, EXPECTED, append='nbd.nbds_max=4')


if __name__ == '__main__':
    server.main()
