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
devices:
  - {id: host, spill: [{file: SPILL, size: 128M}]}
exports:
  - {name: "NAME", size: 64M, devices: [host]}
  - {name: "HOSTILE", size: 64M, devices: [host]}
  - {name: node, clone_per_client: {of: "NAME", name: machine}}
""".replace('NAME', views.DISK).replace('HOSTILE', views.HOSTILE)


class LikeAnyServer(views.OfAnyServer, views.Views):
    device = 'host'
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
        spill = os.path.join(self.directory(), 'spill')
        self.served = self.serve(config=CONFIG.replace('SPILL', spill), extra=['--admin', f'127.0.0.1:{self.port}', '--admin-token', self.secret, '--admin-socket', 'none'])

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

    def test_clones_for_clients_are_counted(self):
        self.begin()
        self.overview()
        self.browser.shows('#exports', 'base of node: 0 of 200 clones')
        client = nbd.NBD()
        client.connect_uri(self.served.uri('node/a'))
        self.addCleanup(client.shutdown)
        self.browser.shows('#exports', 'base of node: 1 of 200 clones')
        self.end()

    def test_memory_is_given_back_and_used_again(self):
        self.begin()
        self.write(0, 4 << 20)
        self.overview()
        self.browser.click('.device .tools button')
        self.browser.enter('[name=bytes]', 'much')
        self.browser.click('#dialog-yes')
        self.browser.shows('#dialog-error', "'much' is not a size")
        self.browser.enter('[name=bytes]', '')
        self.browser.click('#dialog-yes')
        self.browser.shows('#notices', 'host gave back 64 MiB of 64 MiB')
        self.browser.shows('.device-head', '4 MiB moved elsewhere')
        self.browser.click('.device .tools button:last-child')
        self.browser.click('#dialog-yes')
        self.browser.shows('#notices', 'host moved 4 MiB back')
        self.browser.until(lambda: 'elsewhere' not in self.browser.text('.device-head'), 'no page is elsewhere')
        self.end()


if __name__ == '__main__':
    server.main()
