"""Support for the GPU tests: the available GPUs, and clients that transfer and compare gigabytes.

GPUNBD_TEST_DEVICES=host,host runs the tests on other devices, to test the tests themselves.
GPUNBD_TEST_SIZE (bytes) is how much of a device a test uses; the default is 4 GiB.
"""
import hashlib
import os
import random
import re
import struct
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), '../integration'))

import server  # noqa: E402
import wire  # noqa: E402
from server import GiB, MiB  # noqa: E402

SIZE = int(os.environ.get('GPUNBD_TEST_SIZE', 4 * GiB))


def devices(count):
    """The ids of `count` GPUs. Skips the test if there are fewer."""
    if os.environ.get('GPUNBD_TEST_DEVICES'):
        found = os.environ['GPUNBD_TEST_DEVICES'].split(',')
    else:
        listed = subprocess.run([server.PROGRAM, 'devices'], capture_output=True, text=True, check=False)
        found = sorted(set(re.findall(r'cuda:\d+', listed.stdout)))
        print(listed.stdout, listed.stderr, flush=True)
    if not found and os.environ.get('GPUNBD_REQUIRE_GPU'):
        print('FAILED: gpunbd finds no GPU, and GPUNBD_REQUIRE_GPU is set')
        sys.exit(1)
    if len(found) < count:
        server.skip(f'needs {count} GPU(s), and gpunbd finds {len(found)}')
    return found[:count]


def config(exports, capacities=()):
    text = "listeners: {unix: [{path: '{socket}'}]}\n"
    if capacities:
        text += 'devices:\n' + ''.join(f"  - {{id: '{name}', capacity: {capacity}}}\n" for name, capacity in capacities)
    text += 'exports:\n'
    for name, options in exports.items():
        options = dict(options)
        ids = ', '.join(f"'{device}'" for device in options.pop('devices'))
        rest = ''.join(f', {key}: {value}' for key, value in options.items())
        text += f"  - {{name: '{name}', devices: [{ids}]{rest}}}\n"
    return text


class Stream:
    """Endless data that differ everywhere and are fast to generate: a block of noise with a number in each repetition."""

    def __init__(self, seed):
        self.noise = bytearray(random.Random(seed).randbytes(16 * MiB + 1))

    def pieces(self, total, seed):
        """Yields (offset, bytes) of varying lengths that cover 0..total without a gap."""
        generator, at = random.Random(seed), 0
        while at < total:
            length = min(total - at, generator.choice((1, 511, 4097, 65535, 999999, 5000001, 16 * MiB)))
            struct.pack_into('>Q', self.noise, generator.randrange(length - 16) if length > 16 else 0, at)
            yield at, memoryview(self.noise)[:length]
            at += length


def send_and_hash(client, total, seed, depth=8):
    """Writes 0..total in pieces, with `depth` in flight. Returns the SHA-256 of the data."""
    digest, pending = hashlib.sha256(), []
    for at, piece in Stream(seed).pieces(total, seed):
        digest.update(piece)
        client.send(wire.encode_request(wire.WRITE, at, len(piece), cookie=at))
        client.send(piece)
        pending.append(at)
        if len(pending) == depth:
            finish(client, pending)
    finish(client, pending)
    return digest.hexdigest()


def finish(client, pending):
    """Receives the replies to all pending writes, in any order."""
    pending = pending if isinstance(pending, list) else list(pending)
    while pending:
        error, cookie = client.simple_reply()
        assert error == 0, f'a write at {cookie} failed with {error}'
        pending.remove(cookie)


def read_and_hash(client, total, seed):
    """Reads 0..total in other pieces. Returns the SHA-256 of the data."""
    digest, generator, at = hashlib.sha256(), random.Random(seed + 1), 0
    while at < total:
        length = min(total - at, generator.choice((3, 513, 12289, 300007, 7000003, 16 * MiB, 32 * MiB)))
        digest.update(client.read(at, length))
        at += length
    return digest.hexdigest()


class Test(server.Test):
    def client(self, one, name='', structured=False):
        """Writing gigabytes uses simple replies, because they are faster to receive."""
        client = wire.connect(one.address, name, structured=structured, timeout=120)
        self.addCleanup(client.close)
        return client

    def round_trip(self, one, name, size, seed=1):
        client = self.client(one, name)
        written = send_and_hash(client, size, seed)
        self.assertEqual(read_and_hash(self.client(one, name, structured=True), size, seed), written)

    def against_shadow(self, one, name, size, seed, steps=400):
        """Writes, zeroes and trims at unaligned offsets, compared with a model in memory."""
        client, generator, shadow = self.client(one, name, structured=True), random.Random(seed), bytearray(size)
        noise = generator.randbytes(8 * MiB)
        for at in range(0, size, 32 * MiB):  # clear the data of earlier tests
            client.zero(at, min(32 * MiB, size - at))
        for _ in range(steps):
            length = generator.choice((1, 3, 511, 4096, 4097, 65536, 99999, 2 * MiB, 3000001, 5 * MiB + 1))
            at = generator.randrange(size - length)
            kind = generator.randrange(8)
            if kind < 5:
                start = generator.randrange(len(noise) - length)
                data = noise[start:start + length]
                client.write(at, data, wire.FUA if kind == 4 else 0)
            else:
                data = bytes(length)
                (client.trim, client.zero, lambda *a: client.zero(*a, wire.NO_HOLE))[kind - 5](at, length)
            shadow[at:at + length] = data
            if kind == 0:  # read the written range and its surroundings
                start = max(0, at - 1000)
                self.assertEqual(client.read(start, min(length + 2000, size - start)),
                                 shadow[start:min(start + length + 2000, size)])
        for at in range(0, size, 32 * MiB):
            self.assertEqual(client.read(at, min(32 * MiB, size - at)), shadow[at:at + 32 * MiB], f'at {at}')

    def take(self, load, device, mib, blocks, *pause):
        """The program `load` takes blocks of device memory, with a pause in milliseconds after each, and keeps them. Prints how
        long that takes, and returns the program."""
        program = subprocess.Popen([load, 'take', device.split(':')[1], *map(str, (mib, blocks, *pause))],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(lambda: (program.kill(), program.wait(), program.stdout.close(), program.stdin.close()))
        lines = []
        for line in program.stdout:
            lines.append(line.rstrip())
            if line.startswith('ready'):
                break
        times = [float(re.search(r' ms ([\d.]+)', line).group(1)) for line in lines if ' ms ' in line]
        self.assertTrue(times, 'it could not begin')
        print(f'{len(times)} blocks of {mib} MiB in {sum(times) / 1000:.2f} s, longest {max(times):.1f} ms: {lines[-2:]}', flush=True)
        self.assertEqual(lines[-1:], ['ready'], lines[-3:])
        self.assertEqual(len(times), blocks)
        return program

    def load(self, one, *options, name=''):
        self.command(server.NBDLOAD, '--uri', one.uri(name), '--verify', *options, seconds=300)
