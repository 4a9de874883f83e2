"""The admin endpoint of a server, by HTTP: http.client over a Unix socket or TCP."""
import http.client
import json
import socket


class Connection(http.client.HTTPConnection):
    """`place`: a path, or a port of 127.0.0.1. `tls`: a context of ssl."""

    def __init__(self, place, tls=None, timeout=60):
        super().__init__('localhost', place if isinstance(place, int) else 80, timeout=timeout)
        self.place = place
        self.tls = tls

    def connect(self):
        if isinstance(self.place, int):
            self.sock = socket.create_connection(('127.0.0.1', self.place), self.timeout)
        else:
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.settimeout(self.timeout)
            self.sock.connect(self.place)
        if self.tls:
            self.sock = self.tls.wrap_socket(self.sock, server_hostname='localhost')


def ask(place, path, body=None, tls=None, **fields):
    """The status and what the answer holds: of JSON the value. A body is sent as JSON, by POST."""
    connection = Connection(place, tls)
    try:
        fields = {name.replace('_', '-'): value for name, value in fields.items()}
        if body is None:
            connection.request('GET', path, headers=fields)
        else:
            connection.request('POST', path, json.dumps(body), {'Content-Type': 'application/json', **fields})
        answer = connection.getresponse()
        text = answer.read()
        kind = answer.getheader('Content-Type')
        return answer.status, json.loads(text) if kind == 'application/json' else text
    finally:
        connection.close()


def first_tick(place):
    """The data of the first event of the stream."""
    connection = Connection(place)
    try:
        connection.request('GET', '/api/v1/stream')
        answer = connection.getresponse()
        assert answer.status == 200, answer.read()
        assert answer.getheader('Content-Type') == 'text/event-stream'
        assert answer.readline() == b'event: tick\n'
        line = answer.readline()
        assert line.startswith(b'data: ') and answer.readline() == b'\n'
        return json.loads(line[6:])
    finally:
        connection.close()
