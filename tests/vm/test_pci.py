"""Memory of a PCI card without a driver: a QEMU guest with a card whose memory is a file of the host, and with a display.

test_kernel_client.py describes the guest. Its CPU has no SSE 4.1, so the server reads the card without streaming loads."""
import os

import recipe
import test_kernel_client as guest
import server
from server import MiB

EXPECTED = ['listed ok', 'served ok', 'alone ok', 'again ok', 'manual ok', 'refused ok', 'forced ok']
MARK = b'the bytes that the host will look for in the memory of the card'


class Pci(server.Test):
    def test_pci(self):
        memory = os.path.join(self.directory(), 'memory')
        initramfs = guest.root(self, 'pci', ('nbdinfo', 'nbdcopy'))
        devices, unbind, serve = recipe.blocks('server/manual/sharing-a-gpu.md', 'Memory of a PCI card')[0]
        self.assertIn('/driver/unbind', unbind)  # no driver has the card
        initramfs.file('manual/pci', recipe.script([devices, serve.replace('0000:01:00.0', '0000:00:04.0')]))
        cards = ('-cpu', 'qemu64',
                 '-object', f'memory-backend-file,id=bar,share=on,mem-path={memory},size={64 * MiB}',
                 '-device', 'ivshmem-plain,memdev=bar,addr=04.0', '-device', 'VGA,vgamem_mb=16,addr=05.0,romfile=')
        guest.run(self, initramfs, EXPECTED, memory=512, devices=cards)
        # The clients' data are in the memory of the card, once.
        with open(memory, 'rb') as file:
            self.assertEqual(file.read().count(MARK), 1)


if __name__ == '__main__':
    server.main()
