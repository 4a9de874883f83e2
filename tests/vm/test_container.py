"""The container of the Kubernetes example that attaches a disk. After a kill and a restart it finds its device, and after
SIGTERM it detaches the device. No cluster is needed: the guest runs its script in namespaces.

debian_guest.py describes the guest."""
import os

import yaml

import debian_guest
import server


def script():
    """The script without TLS, because the guest has no certificates."""
    with open(os.path.join(server.ROOT, 'docker/kubernetes/client.yaml'), encoding='utf-8') as file:
        text = next(each for each in yaml.safe_load_all(file) if each['kind'] == 'ConfigMap')['data']['attach']
    in_tls = 'nbds://$SERVER:10809/scratch?tls-certificates=/tls'
    assert in_tls in text
    return text.replace(in_tls, 'nbd://$SERVER/scratch')


class Container(server.Test):
    def test_restarts(self):
        port = server.free_port()
        self.serve(config='listeners: {unix: [{path: "{socket}"}], tcp: [{address: 127.0.0.1, port: %d}]}\n'
                   'exports: [{name: scratch, size: 64M, devices: [host]}]\n' % port)
        with open(os.path.join(debian_guest.HERE, 'scenario_container'), encoding='ascii') as file:
            disk = debian_guest.Disk(self, {'scenario': file.read(), 'attach': script()})
        self.assertEqual(disk.boot(self, f'port={port}').results(400), ['started ok', 'restarted ok', 'ended ok', 'again ok'])


if __name__ == '__main__':
    server.main()
