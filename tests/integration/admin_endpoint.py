"""The simulated admin endpoint of tests/page for gpunbd status and top: also on a Unix socket, with exports that are
read at a fixed rate, and with invalid responses."""
import os
import socket
import sys

import server

sys.path.append(os.path.join(server.ROOT, 'tests/page'))
import fake_admin  # noqa: E402
from fake_admin import GiB  # noqa: E402


class Export(fake_admin.Export):
    rate = 0  # bytes that are read in each second, in requests of 4 KiB

    def pass_second(self, second):
        self.requests['read'].requests += self.rate // 4096
        self.requests['read'].bytes += self.rate


class UnixServer(fake_admin.FakeServer):
    address_family = socket.AF_UNIX

    def server_bind(self):
        self.socket.bind(self.server_address)


class Endpoint(fake_admin.FakeAdmin):
    """`raw`: bytes that answer every request. `stream`: its status code; its time passes 20 times as fast."""

    def __init__(self, path=None, raw=None, stream=200, token=None, names=('fast', 'slow'), pid=4711):
        self.path, self.raw, self.stream, self.requests = path, raw, stream, []
        exports = [Export(name, 4 * GiB, 0.25, clients=2 if name == 'fast' else 0) for name in names]
        devices = [fake_admin.Device('cuda:0', 'NVIDIA H200', 140 * GiB)]
        super().__init__(exports, devices, token=token, history=0, every=0.05)
        self.pid, self.started = pid, self.origin - 3600

    def server(self, handler):
        if not self.path:
            return super().server(handler)
        handler.disable_nagle_algorithm = False
        return UnixServer(self.path, handler)

    def read_at(self, rate):
        for each in self.exports:
            each.rate = rate

    def answers(self, handler):
        self.requests.append((handler.path, dict(handler.headers)))
        if self.raw is not None:
            handler.close_connection = True
            handler.wfile.write(self.raw)
            return True
        if handler.path == '/api/v1/stream' and self.stream != 200:
            handler.answer(self.stream, {'error': 'not here'})
            return True
        return False
