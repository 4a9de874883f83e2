"""Prometheus scrapes a server, and has the values of a known load."""

import server
from prometheus import Prometheus

nbd = server.need_libnbd()
server.need('promtool', 'prometheus')

NAME = 'load "of" C:\\x'
LABEL = 'load \\"of\\" C:\\\\x'  # escaped for PromQL
CONFIG = """
listeners: {unix: [{path: '{socket}'}]}
admin: {tcp: {address: 127.0.0.1, port: PORT}}
exports:
  - {name: 'load "of" C:\\x', size: 64M, devices: [host]}
  - {name: idle, size: 32M, devices: [host]}
"""


class Scraped(server.Test):
    def test_before_during_and_after_a_load(self):
        """In one case, because Prometheus takes seconds to start."""
        address = f'127.0.0.1:{server.free_port()}'
        self.server = self.serve(config=CONFIG.replace('PORT', address.split(':')[1]))
        prometheus = Prometheus(address)
        self.addCleanup(prometheus.stop)
        self.check_values_without_clients(prometheus)
        self.check_values_after_a_known_load(prometheus)
        self.server.stop()
        self.assertEqual(prometheus.value('up{job="gpunbd"} == 0'), 0)

    def client(self):
        handle = nbd.NBD()
        handle.set_strict_mode(0)
        handle.set_export_name(NAME)
        handle.connect_unix(self.server.path)
        return handle

    def load(self, client):
        """Sends requests. Returns {type: (requests, bytes)}, and the name of the error of the failed request."""
        for i in range(64):
            client.pwrite(b'x' * 65536, i * 65536)
        for i in range(32):
            client.pread(4096, i * 4096)
        client.trim(4 * server.MiB, 32 * server.MiB)
        client.flush()
        with self.assertRaises(nbd.Error) as failed:
            client.pwrite(b'x' * 512, 64 * server.MiB)  # beyond the end
        return {'read': (32, 32 * 4096), 'write': (64, 64 * 65536), 'trim': (1, 4 * server.MiB)}, failed.exception.errno

    def check_values_after_a_known_load(self, prometheus):
        client = self.client()
        known, error = self.load(client)
        of = f'export="{LABEL}"'
        for kind, (requests, size) in known.items():
            answered = requests + (kind == 'write')  # includes the failed request
            for metric, expected in (('requests_total', answered), ('request_bytes_total', size)):
                with self.subTest(kind=kind, metric=metric):
                    self.assertEqual(prometheus.value(f'gpunbd_export_{metric}{{{of},type="{kind}"}} >= {expected}'), expected)
            timed = prometheus.value(f'gpunbd_export_request_duration_seconds_count{{{of},type="{kind}"}}')
            self.assertTrue(0 < timed <= answered, timed)
        self.assertEqual(prometheus.value(f'gpunbd_export_request_errors_total{{{of},type="write",error="{error}"}} > 0'), 1)
        self.assertEqual(prometheus.value(f'gpunbd_export_connections{{{of}}} > 0'), 1)
        self.assertEqual(prometheus.value('gpunbd_export_connections{export="idle"}'), 0)
        self.assertEqual(prometheus.value(f'gpunbd_export_memory_used_bytes{{{of},device="host"}} > 0'), 4 * server.MiB)
        client.shutdown()
        self.assertEqual(prometheus.value(f'gpunbd_export_connections{{{of}}} == 0'), 0)

    def check_values_without_clients(self, prometheus):
        self.assertEqual({labels['export'] for labels, _ in prometheus.data('gpunbd_export_info')}, {NAME, 'idle'})
        self.assertEqual(prometheus.value(f'gpunbd_export_size_bytes{{export="{LABEL}"}}'), 64 * server.MiB)
        self.assertEqual(prometheus.value('gpunbd_device_failed{device="host"}'), 0)
        self.assertGreater(prometheus.value('gpunbd_device_memory_size_bytes{device="host"}'), 64 * server.MiB)
        self.assertEqual(prometheus.value('gpunbd_state{state="serving"}'), 1)
        self.assertEqual(prometheus.value('gpunbd_process_id'), self.server.process.pid)
        self.assertGreater(prometheus.value('gpunbd_workers'), 0)
        self.assertGreater(prometheus.value('process_resident_memory_bytes'), server.MiB)
        self.assertGreater(prometheus.value('process_max_fds'), prometheus.value('process_open_fds'))
        self.assertGreater(prometheus.value('process_cpu_seconds_total'), 0)
        version = self.command(server.PROGRAM, '--version').split()[-1]
        (labels, _), = prometheus.data('gpunbd_build_info')
        self.assertIn(version, labels['version'])


if __name__ == '__main__':
    server.main()
