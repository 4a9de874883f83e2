"""Tests of the page with a real server and loads of known size."""
import os

import browser
import server
import views

browser.need_browser()
nbd = server.need_libnbd()

CONFIG = """
listeners:
  unix: [{path: '{socket}'}]
exports:
  - {name: "NAME", size: 64M, devices: [host]}
  - {name: "HOSTILE", size: 64M, devices: [host]}
""".replace('NAME', views.DISK).replace('HOSTILE', views.HOSTILE)


class LikeAnyServer(views.OfAnyServer, views.Views):
    token = '0123456789abcdef0123456789abcdef'

    def begin(self):
        self.connected = None
        self.port = server.free_port()
        self.url = f'http://127.0.0.1:{self.port}/'
        self.secret = os.path.join(self.directory(), 'token')
        with open(os.open(self.secret, os.O_CREAT | os.O_WRONLY, 0o600), 'w', encoding='ascii') as file:
            file.write(self.token + '\n')
        self.restart()

    def restart(self):
        self.served = self.serve(config=CONFIG, extra=['--admin', f'127.0.0.1:{self.port}', '--admin-token', self.secret, '--admin-socket', 'none'])

    def stop(self):
        self.served.stop()

    def client(self):
        if self.connected is None:
            self.connected = nbd.NBD()
            self.connected.connect_uri(self.served.uri(views.DISK))
            self.addCleanup(self.connected.shutdown)
        return self.connected

    def write(self, offset, length):
        self.client().pwrite(b'x' * length, offset)

    def trim(self, offset, length):
        self.client().trim(length, offset)

    def settle(self):
        """Nothing to do: the test writes no more."""


if __name__ == '__main__':
    server.main()
