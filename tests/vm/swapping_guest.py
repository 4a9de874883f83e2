"""Guests that swap to an export, for the tests of swap over NBD and over ublk. test_kernel_client.py describes the guest."""
import os

import test_kernel_client as guest
import server

# To test without some of the protection, for example: GPUNBD_SWAP_FLAGS=--provision,full
FLAGS = os.environ.get('GPUNBD_SWAP_FLAGS', '--swap')
CARD = ('-object', 'memory-backend-ram,id=bar,share=on,size=512M', '-device', 'ivshmem-plain,memdev=bar,addr=04.0')
SPILL = 320  # megabytes of the file to which the pages of the card move


class Swapping(server.Test):
    def swap(self, device, size, hog, ways, memory, spill=None, flags=FLAGS, driver='nbd', **options):
        initramfs = guest.root(self, 'swap', ('nbd-client',) if device == 'host' else (), (driver,))
        guest.add_hog(initramfs)
        append = f'nbd.nbds_max=2 flags={flags} device={device} size={size}M hog={hog} ways={",".join(ways)}'
        if spill:
            initramfs.modules('virtio_pci', 'virtio_blk', 'crc32c_generic', 'ext4')
            append += f' spill={spill} rounds=2'
        expected = ['protected ok', *(f'{way} ok' for way in ways), 'ending ok']
        guest.run(self, initramfs, expected, append=append, memory=memory, **options)

    def swap_with_spill_memory(self, way, **options):
        """Half of the memory of a card is given back to others and returned, again and again, below live swap."""
        disk = os.path.join(self.directory(), 'disk')
        with open(disk, 'wb') as file:
            file.truncate(SPILL * 5 // 4 * server.MiB)
        self.command('mkfs.ext4', '-q', disk)
        self.swap('pci:00:04.0/2', 320, 260, (way,), memory=448, spill=SPILL, seconds=540,
                  devices=(*CARD, '-drive', f'file={disk},format=raw,if=virtio'), **options)
