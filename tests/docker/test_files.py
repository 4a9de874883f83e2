"""The Compose files and the Kubernetes objects: names agree between files, gpunbd accepts their commands and
configuration, and nothing listens on public addresses."""
import json
import os
import re
import shlex
import subprocess

import yaml_files
from yaml_files import composed, documents, server, text_of, yaml

try:
    import jsonschema
except ImportError:
    server.skip('the Python module jsonschema is missing (python3-jsonschema, for /usr/bin/python3; ./dev setup installs it)')

COMPOSE = ('compose.yaml', 'compose.gpu.yaml', 'compose.vulkan.yaml', 'compose.remote.yaml')
USER = 10809


def dockerfile(name='Dockerfile'):
    """The instructions of a Dockerfile as [name, arguments]."""
    joined = re.sub(r'\\\n(?:#.*\n)*', ' ', text_of(name))
    return [line.split(None, 1) for line in joined.splitlines() if line and not line.startswith('#')]


def last(instruction, name='Dockerfile'):
    return [rest for word, rest in dockerfile(name) if word == instruction][-1]


class Image(server.Test):
    def test_user(self):
        self.assertEqual(last('USER'), f'{USER}:{USER}')
        self.assertIn(f'useradd --system --no-create-home --uid {USER}', text_of('Dockerfile'))

    def test_health_check_pings_the_listener(self):
        self.assertTrue(last('HEALTHCHECK').endswith('CMD gpunbd ping "$GPUNBD_PING"'))
        path = yaml.safe_load(last('CMD'))[-1]
        self.assertIn(f'GPUNBD_PING="nbd+unix:///?socket={path}"', text_of('Dockerfile'))
        self.assertEqual(yaml.safe_load(last('CMD'))[:-1], ['keep', '--', 'serve', '--keep', '--unix'])

    def test_build_context(self):
        """The ignore file admits every file that the Dockerfile copies and CMake needs."""
        ignored = text_of('Dockerfile.dockerignore').splitlines()
        for name in re.findall(r'^COPY (docker/\S+)', text_of('Dockerfile'), re.MULTILINE):
            self.assertIn(f'!{name}', ignored)
            self.assertTrue(os.access(os.path.join(server.ROOT, name), os.X_OK))
        for name in ('config', 'protocol', 'server', 'storage', 'CMakeLists.txt', 'LICENSE'):
            self.assertIn(f'!{name}', ignored)

    def test_entry_point(self):
        folder = self.directory()
        server.write_file(os.path.join(folder, 'gpunbd'), '#!/bin/sh\nprintf "%s\\n" "$@"\n', 0o755)
        for given, run in (((), []), (('serve', '--size', '1 G'), ['serve', '--size', '1 G']),
                           (('--size', '1G'), ['serve', '--size', '1G']), (('-U', '/a b'), ['serve', '-U', '/a b']),
                           (('--version',), ['--version']), (('-h',), ['-h']), (('--help',), ['--help']),
                           (('devices', '--calibrate'), ['devices', '--calibrate'])):
            out = self.command(os.path.join(yaml_files.FOLDER, 'entrypoint'), *given,
                               environment={'PATH': f'{folder}:{os.environ["PATH"]}'})
            self.assertEqual(out.splitlines(), run or [''])


class Compose(server.Test):
    def check_command(self, service):
        """Expects that gpunbd accepts all arguments: it rejects only an invalid one that is added at the end."""
        words = [str(word) for word in service['command']]
        if words[:2] == ['keep', '--']:
            words = words[2:]
        last_flag = {'serve': '--log-level', 'tls-setup': '--days'}[words[0]]
        self.command(server.PROGRAM, *words, last_flag, 'wrong', status=2)
        self.assertIn(f': {last_flag}: ', self.errors)

    def services(self):
        for name in COMPOSE:
            for service, what in composed(name)['services'].items():
                yield name, service, what

    def test_commands_are_valid(self):
        count = 0
        for name, service, what in self.services():
            if service == 'client':
                continue
            with self.subTest(file=name, service=service):
                self.check_command(what)
                count += 1
        self.assertEqual(count, 5)

    def test_check_command_detects_invalid_flags(self):
        for words in (['serve', '--no-such-flag'], ['serve', '--size', 'x'], ['tls-setup', '/a', '--hosts', 'a']):
            with self.assertRaises(AssertionError):
                self.check_command({'command': words})

    def test_nothing_listens_on_public_addresses(self):
        for name, service, what in self.services():
            with self.subTest(file=name, service=service):
                words = [str(word) for word in what.get('command', [])]
                self.assertNotIn('--insecure', words)
                for port in what.get('ports', []):
                    self.assertTrue(port.startswith('127.0.0.1:'), port)
                    self.assertIn('--tls=required', words)

    def test_health_check_uses_the_address_of_the_client(self):
        for name in ('compose.yaml', 'compose.remote.yaml'):
            both = composed(name)
            server_ = both['services']['gpunbd']
            client = both['services']['client']
            uri = server_['environment']['GPUNBD_PING']
            self.assertEqual(client['depends_on']['gpunbd']['condition'], 'service_healthy')
            self.assertEqual(client['user'], f'{USER}:{USER}')
            self.assertIn(uri, [*client['command'], client.get('environment', {}).get('URI')])
            server_volumes = {volume.split(':')[0]: volume.split(':')[1] for volume in server_['volumes']}
            client_volumes = {volume.split(':')[0]: volume.split(':')[1] for volume in client['volumes']}
            self.assertEqual(server_volumes, client_volumes)
            self.assertEqual(set(server_volumes), set(both['volumes']))
            if 'socket=' in uri:
                self.assertEqual(uri.split('socket=')[1], server_['command'][-1])
            else:
                self.assertIn(f'{next(iter(server_volumes.values()))}/clients/client', uri)

    def test_the_gpu_file_overrides_existing_services(self):
        below = composed('compose.yaml')['services']
        self.assertLessEqual(set(composed('compose.gpu.yaml')['services']), set(below))

    def test_client_commands_are_valid_shell(self):
        words = composed('compose.yaml')['services']['client']['command']
        self.assertEqual(words[:2], ['sh', '-ec'])
        subprocess.run(['sh', '-n'], input=words[2], text=True, check=True)


MANIFESTS = ('kubernetes/server.yaml', 'kubernetes/client.yaml')


class Published(server.Test):
    def test_objects_comply_with_the_schema_that_the_kubernetes_project_publishes(self):
        path = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'schemas/kubernetes.json')
        schema, seen = json.loads(server.read_file(path)), set()
        for name in MANIFESTS:
            for thing in documents(name):
                with self.subTest(file=name, kind=thing['kind'], name=thing['metadata']['name']):
                    kind = f'{thing["apiVersion"]} {thing["kind"]}'
                    checker = jsonschema.Draft7Validator({**schema, '$ref': f'#/definitions/{schema["kinds"][kind]}'})
                    problems = [f'{"/".join(map(str, each.path))}: {each.message}'
                                for each in checker.iter_errors(thing)]
                    self.assertEqual(problems, [])
                    seen.add(kind)
        self.assertEqual(seen, set(schema['kinds']))  # the reduced schema has no unused kinds


class Kubernetes(server.Test):
    def setUp(self):
        self.objects = {(each['kind'], each['metadata']['name']): each for name in MANIFESTS for each in documents(name)}
        self.daemons = self.objects['DaemonSet', 'gpunbd']
        self.pod = self.daemons['spec']['template']
        self.container = self.pod['spec']['containers'][0]
        self.disk_pod = self.objects['StatefulSet', 'scratch-user']['spec']['template']

    def test_labels_select_the_pods(self):
        labels = self.pod['metadata']['labels']
        for selector in (self.daemons['spec']['selector']['matchLabels'],
                         self.objects['Service', 'gpunbd']['spec']['selector'],
                         self.objects['NetworkPolicy', 'gpunbd']['spec']['podSelector']['matchLabels']):
            self.assertLessEqual(selector.items(), labels.items())
        stateful = self.objects['StatefulSet', 'scratch-user']['spec']
        labels = self.disk_pod['metadata']['labels']
        self.assertLessEqual(stateful['selector']['matchLabels'].items(), labels.items())
        self.assertIn(('Service', stateful['serviceName']), self.objects)
        allowed = self.objects['NetworkPolicy', 'gpunbd']['spec']['ingress'][0]['from'][0]['podSelector']['matchLabels']
        self.assertLessEqual(allowed.items(), labels.items())

    def test_ports_agree(self):
        path = server.write_file(os.path.join(self.directory(), 'gpunbd.yaml'),
                                 self.objects['ConfigMap', 'gpunbd']['data']['gpunbd.yaml'])
        checked = subprocess.run([server.PROGRAM, 'check', path], capture_output=True, text=True, check=False)
        self.assertIn(checked.returncode, (0, 1), checked.stderr)  # 1: this machine has no such GPU and no such folder
        port = yaml.safe_load(checked.stdout)['listeners']['tcp'][0]['port']
        named = {each['name']: each['containerPort'] for each in self.container['ports']}
        self.assertEqual(named, {'nbd': port})
        service = self.objects['Service', 'gpunbd']['spec']['ports'][0]
        self.assertEqual((service['port'], service['targetPort']), (port, 'nbd'))
        policy = self.objects['NetworkPolicy', 'gpunbd']['spec']['ingress'][0]['ports']
        self.assertEqual(policy, [{'protocol': 'TCP', 'port': port}])
        self.assertIn(f'nbds://127.0.0.1:{port}/', self.container['env'][0]['value'])
        self.assertIn(f' "nbds://$SERVER:{port}/', self.objects['ConfigMap', 'scratch-disk']['data']['attach'])

    def test_a_crashed_server_keeps_its_contents(self):
        self.assertEqual(self.container['args'][:3], ['keep', '--', 'serve'])
        exports = yaml.safe_load(self.objects['ConfigMap', 'gpunbd']['data']['gpunbd.yaml'])['exports']
        self.assertTrue(all(export['keep'] for export in exports))
        self.assertIn(' gpunbd attach ', self.objects['ConfigMap', 'scratch-disk']['data']['attach'])

    def test_only_the_client_has_access(self):
        path = server.write_file(os.path.join(self.directory(), 'gpunbd.yaml'),
                                 self.objects['ConfigMap', 'gpunbd']['data']['gpunbd.yaml'])
        client = self.command(server.PROGRAM, 'check', path, '--who', '10.0.0.1', '--tls-name', 'client')
        other = self.command(server.PROGRAM, 'check', path, '--who', '10.0.0.1', '--tls-name', 'other')
        self.assertIn(': read-write: rule 1 matches', client)
        self.assertNotIn('rule 1 matches', other)
        self.assertEqual(yaml.safe_load(open(path, encoding='utf-8'))['tls']['mode'], 'required')

    def test_probes_ping_an_existing_export(self):
        exports = yaml.safe_load(self.objects['ConfigMap', 'gpunbd']['data']['gpunbd.yaml'])['exports']
        uri = self.container['env'][0]
        self.assertIn(f'/{exports[0]["name"]}?', uri['value'])
        for name in ('startupProbe', 'readinessProbe', 'livenessProbe'):
            probe = self.container[name]
            words = shlex.split(probe['exec']['command'][2])
            self.assertEqual(words, ['gpunbd', 'ping', '--timeout', '4', f'${uri["name"]}'])
            self.assertGreater(probe['timeoutSeconds'], 4)  # time for ping to report its error
        self.command(server.PROGRAM, 'ping', uri['value'], '--timeout', '30', status=1)
        self.assertRegex(self.errors, 'Connection refused|No such file|not known|TLS|certificate')

    def test_mounts_and_volumes_agree(self):
        for pod in (self.pod, self.disk_pod):
            volumes = {each['name']: each for each in pod['spec']['volumes']}
            used = set()
            for container in [*pod['spec'].get('initContainers', []), *pod['spec']['containers']]:
                used |= {mount['name'] for mount in container['volumeMounts']}
            self.assertEqual(used, set(volumes))
            for volume in volumes.values():
                if 'configMap' in volume:
                    self.assertIn(('ConfigMap', volume['configMap']['name']), self.objects)
                if 'secret' in volume:
                    self.assertIn(f'create secret generic {volume["secret"]["secretName"]} ',
                                  text_of('kubernetes/README.md'))
                    self.assertEqual(volume['secret']['defaultMode'] & 0o007, 0)  # gpunbd refuses keys that others can read

    def test_privileges(self):
        self.assertEqual(self.pod['spec']['securityContext']['runAsUser'], USER)
        self.assertEqual(self.container['securityContext']['capabilities'], {'drop': ['ALL']})
        self.assertFalse(self.container['securityContext']['allowPrivilegeEscalation'])
        self.assertEqual(self.container['resources']['limits']['nvidia.com/gpu'], '1')
        init, = self.disk_pod['spec']['initContainers']
        self.assertTrue(init['securityContext']['privileged'])
        mounts = {mount['name']: mount.get('mountPropagation') for mount in init['volumeMounts']}
        self.assertEqual(mounts['disk'], 'Bidirectional')
        program, = self.disk_pod['spec']['containers']
        self.assertNotIn('privileged', program['securityContext'])
        self.assertEqual(program['volumeMounts'][0]['mountPropagation'], 'HostToContainer')
        subprocess.run(['sh', '-n'], input=self.objects['ConfigMap', 'scratch-disk']['data']['attach'], text=True, check=True)

    def test_no_keys_are_included(self):
        for (kind, _), each in self.objects.items():
            self.assertNotEqual(kind, 'Secret')
            self.assertNotIn('PRIVATE KEY', str(each))


if __name__ == '__main__':
    server.main()
