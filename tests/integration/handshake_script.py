"""Builds valid and invalid handshake messages of a server, for tests of clients."""
import contextlib
import socket
import struct
import threading

import wire

FLAGS = wire.HAS_FLAGS | wire.SEND_FLUSH


class Answers:
    """Replies to one option."""

    def __init__(self, option):
        self.option = option

    def reply(self, kind, data=b'', option=None, magic=wire.OPTION_REPLY_MAGIC, length=None):
        return wire.encode_option_reply(self.option if option is None else option, kind, data, length, magic)

    def info(self, kind, data):
        return self.reply(wire.REP_INFO, struct.pack('>H', kind) + data)

    def export(self, size=1 << 20, flags=FLAGS):
        return self.info(wire.INFO_EXPORT, struct.pack('>QH', size, flags))


@contextlib.contextmanager
def scripted_server(path, scripts, hang=False):
    """A server at `path` that sends one script on each connection, and then closes it unless `hang` is set."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        connections = []

        def serve():
            for script in scripts:
                connections.append(listener.accept()[0])
                connections[-1].sendall(script)
                if not hang:
                    connections[-1].shutdown(socket.SHUT_WR)
        server = threading.Thread(target=serve, daemon=True)
        server.start()
        yield
        server.join()
        for each in connections:
            each.close()
