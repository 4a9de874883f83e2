#!/usr/bin/env python3
"""Attacks an NBD server until it is ended: attack.py NAME ADDRESS EXPORT SPAN.

ADDRESS is the path of a Unix socket or HOST:PORT. Only the upper half of SPAN bytes is touched.
It says "ready" once the attack is under way.
"""

import importlib.util
import os
import socket
import ssl
import struct
import sys
import threading
import time
from pathlib import Path

# By its path: tests/conformance has a wire of its own, and calls compare.py, which reads this file.
WIRE = importlib.util.spec_from_file_location(
    "integration_wire", Path(__file__).resolve().parents[1] / "integration" / "wire.py")
wire = importlib.util.module_from_spec(WIRE)
WIRE.loader.exec_module(wire)

KIB, MIB = 1 << 10, 1 << 20


def requests(command, offsets, length, flags=0):
    return b"".join(struct.pack(">IHHQQI", wire.REQUEST, flags, command, n, offset, length)
                    for n, offset in enumerate(offsets))


class Target:
    def __init__(self, address, name, span):
        self.address, self.name = address, name
        self.middle, self.end = span // 2, span

    def connect(self, structured=True):
        for left in reversed(range(100)):
            try:
                return wire.connect(self.address, self.name, structured=structured, contexts=())
            except (ConnectionRefusedError, BlockingIOError):  # more at once than it queues
                if not left:
                    raise
                time.sleep(0.01)

    def offsets(self, count, step):
        return [self.middle + n * step % (self.end - self.middle) for n in range(count)]


def drain(client):
    """Takes answers and does not look at them."""
    room = bytearray(MIB)
    try:
        while client.socket.recv_into(room):
            pass
    except OSError:
        pass


def flood(target, clients, block, structured=True):
    """Each client sends the block again and again, as fast as its answers leave it room."""
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
    flood(target, 4, requests(wire.CMD_ZEROES, [target.middle] * 64, half, wire.NO_HOLE))


def trims(target):
    half = target.end - target.middle
    flood(target, 4, requests(wire.CMD_TRIM, [target.middle] * 64, half))


def holes(target):
    with target.connect() as client:
        client.trim(target.middle, target.end - target.middle)
    flood(target, 16, requests(wire.CMD_READ, target.offsets(32, 64 * KIB), 4 * KIB))


def flush(target):
    flood(target, 16, requests(wire.CMD_FLUSH, [0] * 1024, 0))


def greedy(target):
    flood(target, 4, requests(wire.CMD_READ, target.offsets(32, 64 * KIB), 4 * KIB), False)


def disconnect(target):
    block = requests(wire.CMD_READ, target.offsets(60_000, 1), 1)

    def again():
        while True:
            try:
                with target.connect() as client:
                    client.socket.settimeout(1)
                    client.socket.sendall(block)
            except (OSError, wire.Closed):
                pass

    threading.Thread(target=again, daemon=True).start()


def trickle(target):
    clients = [target.connect() for _ in range(16)]
    for client in clients:
        client.send(requests(wire.CMD_WRITE, [target.middle], MIB))

    def drip():
        while True:
            for client in clients:
                try:
                    client.socket.send(b"t")
                except OSError:
                    pass  # it was cut for this
            time.sleep(1)

    threading.Thread(target=drip, daemon=True).start()


def stalled(target):
    global kept
    kept = [target.connect() for _ in range(40)]
    for client in kept:
        client.send(requests(wire.CMD_READ, [target.middle] * 8, 32 * MIB))


def handshakes(target):
    """Of TLS, 64 at once, each as far as the server's signature: cheap for who never looks at it."""
    hello = ssl.MemoryBIO()
    try:
        ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), hello, server_hostname="localhost").do_handshake()
    except ssl.SSLWantReadError:
        hello = hello.read()

    def all_at_once():
        clients = [wire.Wire(target.address, 5) for _ in range(64)]
        for client in clients:
            client.greet()
            client.option(wire.OPT_STARTTLS)
        for client in clients:
            client.option_reply()
        for client in clients:
            client.send(hello)
        for client in clients:
            client.receive(1)
            client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()

    def again():
        while True:
            try:
                all_at_once()
            except (OSError, wire.Closed):
                pass

    threading.Thread(target=again, daemon=True).start()


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
