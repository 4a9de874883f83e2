"""tests/picture/page.py, which records the page for README: it ends with a picture of a server under load."""
import os
import struct
import sys

import browser
import server

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), '../picture'))
import page  # noqa: E402

browser.need_browser()


class Picture(server.Test):
    def test_picture(self):
        folder = self.directory()
        path = os.path.join(folder, 'page.png')
        page.record(path, folder, size=64 * server.MiB, seconds=1)
        with open(path, 'rb') as file:
            head = file.read(24)
        self.assertEqual(head[:8], b'\x89PNG\r\n\x1a\n')
        width, height = struct.unpack('>II', head[16:])
        self.assertEqual(height, 1082)
        self.assertGreater(width, 1200)  # 1280 less a scroll bar


if __name__ == '__main__':
    server.main()
