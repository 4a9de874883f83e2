"""The image: its user, entry point and health check, and the examples of the Compose files. buildah builds it on a base
made by debootstrap, so neither Docker nor a registry is needed."""
import json
import os
import re
import shutil
import subprocess
import tempfile

from yaml_files import composed, server

MIRROR = os.environ.get('GPUNBD_FRESH_MIRROR', 'http://deb.debian.org/debian')
CACHED_BASE = os.path.join(os.environ.get('GPUNBD_FRESH_FOLDER', '/var/tmp/gpunbd-fresh'), 'debian-12')
BASE = 'localhost/gpunbd-base'
IMAGE = 'localhost/gpunbd-test'
CLIENT = 'localhost/gpunbd-client-test'

for program in ('buildah', 'debootstrap'):
    if not shutil.which(program):
        server.skip(f'{program} is not installed (apt-get install {program})')
if os.geteuid() != 0:
    server.skip('buildah needs root for chroot isolation')


def buildah(*words, check=True, **kwargs):
    done = subprocess.run(['buildah', *map(str, words)], capture_output=True, text=True, check=False, **kwargs)
    if check and done.returncode != 0:
        raise AssertionError(f'buildah {words}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}')
    return done


class Image(server.Test):
    @classmethod
    def setUpClass(cls):
        storage = tempfile.mkdtemp(prefix='gpunbd-buildah-', dir='/var/tmp')
        cls.addClassCleanup(shutil.rmtree, storage, True)
        os.environ.update(BUILDAH_ISOLATION='chroot', STORAGE_DRIVER='vfs')
        with open(f'{storage}/storage.conf', 'w', encoding='ascii') as file:
            file.write(f'[storage]\ndriver = "vfs"\ngraphroot = "{storage}/graph"\nrunroot = "{storage}/run"\n')
        os.environ['CONTAINERS_STORAGE_CONF'] = f'{storage}/storage.conf'
        cls.make_base(storage)
        base = [f'--build-arg={which}={BASE}' for which in ('BUILD_BASE', 'RUN_BASE')]
        file, context = cls.build_input(storage)
        # The OCI format has no health checks.
        buildah('bud', '--format', 'docker', *base, '-f', file, '-t', IMAGE, context, cwd=server.ROOT)
        buildah('bud', '--format', 'docker', base[1], '-f', 'docker/client.Dockerfile', '-t', CLIENT, 'docker', cwd=server.ROOT)

    @classmethod
    def build_input(cls, storage):
        """The Dockerfile and its context. $GPUNBD_FRESH_DEB: a package to use instead of building one."""
        deb = os.environ.get('GPUNBD_FRESH_DEB')
        if not deb:
            return 'docker/Dockerfile', '.'
        context = f'{storage}/context'
        os.makedirs(f'{context}/docker')
        shutil.copy(os.path.join(server.ROOT, 'docker/entrypoint'), f'{context}/docker')
        shutil.copy(deb, context)
        with open(os.path.join(server.ROOT, 'docker/Dockerfile'), encoding='utf-8') as file:
            text = re.sub(r'(?s)(AS build\n).*?(?=FROM )', r'\1COPY gpunbd_*.deb /build/\n', file.read())
        with open(f'{context}/Dockerfile', 'w', encoding='utf-8') as file:
            file.write(text)
        return f'{context}/Dockerfile', context

    @classmethod
    def make_base(cls, storage):
        root = CACHED_BASE
        if not os.path.exists(root):
            root = f'{storage}/root'
            made = subprocess.run(['debootstrap', '--variant=minbase', 'bookworm', root, MIRROR], capture_output=True,
                                  text=True, check=False)
            if made.returncode != 0:
                server.skip(f'debootstrap fails: {made.stdout.splitlines()[-1:]}')
        container = buildah('from', 'scratch').stdout.strip()
        buildah('add', '-q', container, root, '/')
        buildah('commit', '-q', '--rm', container, BASE)

    def setUp(self):
        self.config = json.loads(buildah('inspect', '--type', 'image', IMAGE).stdout)['Docker']['config']
        self.volume = self.directory()
        os.chown(self.volume, 10809, 10809)

    def container(self, image):
        name = buildah('from', image).stdout.strip()
        self.addCleanup(buildah, 'rm', name)
        return name

    def words(self, container, command, volume=(), environment=(), entry=None):
        """The command that runs like `docker run`: the entry point (that of the image if None), and then `command`."""
        if entry is None:
            entry = self.config['Entrypoint'] if container == self.server_container else []
        mounts = [f'--volume={each}' for each in volume or [f'{self.volume}:/run/gpunbd']]
        settings = [f'--env={name}={value}' for name, value in environment]
        return ['buildah', 'run', *mounts, *settings, container, '--', *entry, *map(str, command)]

    def run_in(self, container, command, status=0, **kwargs):
        done = subprocess.run(self.words(container, command, **kwargs), capture_output=True, text=True, timeout=300,
                              errors='replace', check=False)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def serve_in(self, container, command, **kwargs):
        log = tempfile.TemporaryFile()
        self.addCleanup(log.close)
        process = subprocess.Popen(self.words(container, command, **kwargs), stdin=subprocess.DEVNULL, stdout=log, stderr=log)

        def terminate():
            process.terminate()
            process.wait(60)
        self.addCleanup(terminate)

        def output():
            log.seek(0)
            return log.read().decode()
        server.wait_until(lambda: 'ready' in output() or process.poll() is not None, 120, output)
        self.assertIsNone(process.poll(), output())
        return output

    def test_user_labels_and_entry_point(self):
        self.server_container = self.container(IMAGE)
        self.assertEqual(self.config['User'], '10809:10809')
        self.assertEqual(self.config['Labels']['org.opencontainers.image.title'], 'gpunbd')
        self.assertEqual(self.config['Labels']['org.opencontainers.image.licenses'], 'MIT')
        version = self.run_in(self.server_container, ['--version'])
        self.assertIn(self.config['Labels']['org.opencontainers.image.version'], version)
        self.assertIn('unknown flag', self.run_in(self.server_container, ['--frob'], status=2))
        out = self.run_in(self.server_container, ['serve', '--size', '1M', '--device', 'host', '--run', 'id -u; id -g'])
        self.assertRegex(out, r'(?m)^10809\n10809$')

    def test_the_default_command_is_healthy(self):
        self.server_container = self.container(IMAGE)
        health = self.config['Healthcheck']['Test']
        self.assertEqual(health[0], 'CMD-SHELL')

        def check(status):
            return self.run_in(self.server_container, ['sh', '-c', health[1]], status, entry=[],
                               environment=[each.split('=', 1) for each in self.config['Env']])
        self.assertIn('/run/gpunbd/gpunbd.sock: No such file or directory', check(1))
        self.serve_in(self.server_container, self.config['Cmd'])
        self.assertRegex(check(0), r"export '' answers: \d")
        self.check_status()

    def check_status(self):
        """gpunbd status and gpunbd kept find the only server of the container."""
        environment = [each.split('=', 1) for each in self.config['Env']]
        self.assertRegex(self.run_in(self.server_container, ['status'], environment=environment), r'pid \d+, serving')
        self.assertRegex(self.run_in(self.server_container, ['kept'], environment=environment), r"(?m)^'' .* in use$")

    def test_status_with_an_empty_volume(self):
        """An emptyDir of Kubernetes belongs to root, and everyone can write to it. It hides the folders of the image."""
        self.server_container = self.container(IMAGE)
        os.chown(self.volume, 0, 0)
        os.chmod(self.volume, 0o777)
        self.serve_in(self.server_container, self.config['Cmd'])
        self.check_status()

    def test_the_sidecar(self):
        services = composed('compose.yaml')['services']
        self.server_container = self.container(IMAGE)
        client = self.container(CLIENT)
        self.serve_in(self.server_container, services['gpunbd']['command'])
        script = re.sub(r'exec sleep infinity\n', '', services['client']['command'][2])
        out = self.run_in(client, ['sh', '-ec', script], environment=services['client']['environment'].items())
        self.assertIn('export-size: 268435456', out)
        self.assertIn('read back the same data', out)

    def test_remote_clients(self):
        services = composed('compose.remote.yaml')['services']
        self.server_container = self.container(IMAGE)
        client = self.container(CLIENT)
        tls = self.directory()
        os.chown(tls, 10809, 10809)
        volume = [f'{tls}:/etc/gpunbd/tls']
        self.run_in(self.server_container, services['tls-setup']['command'], volume=volume)
        self.serve_in(self.server_container, services['gpunbd']['command'], volume=volume)
        # Both containers share the host's network here, which has no service names. The certificate includes localhost.
        command = [word.replace('//gpunbd:', '//localhost:') for word in services['client']['command']]
        self.assertIn('export-size: 268435456', self.run_in(client, command, volume=volume))
        ping = services['gpunbd']['environment']['GPUNBD_PING'].replace('//gpunbd:', '//localhost:')
        self.assertIn('answers: 256 MiB', self.run_in(self.server_container, ['ping', ping], volume=volume))
        self.assertIn('in TLS only', self.run_in(self.server_container, ['ping', 'nbd://localhost:10809/'], status=1, volume=volume))


if __name__ == '__main__':
    server.main()
