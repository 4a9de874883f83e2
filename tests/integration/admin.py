"""Requests to the admin endpoint of a server, with http.client over a Unix socket or TCP, and by commands of gpunbd."""
import http.client
import json
import os
import select
import socket
import subprocess

import server


class Connection(http.client.HTTPConnection):
    """`address`: the path of a socket, or a port of 127.0.0.1. `tls`: an SSLContext."""

    def __init__(self, address, tls=None, timeout=60):
        super().__init__('localhost', address if isinstance(address, int) else 80, timeout=timeout)
        self.address = address
        self.tls = tls

    def connect(self):
        if isinstance(self.address, int):
            self.sock = socket.create_connection(('127.0.0.1', self.address), self.timeout)
        else:
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.settimeout(self.timeout)
            self.sock.connect(self.address)
        if self.tls:
            self.sock = self.tls.wrap_socket(self.sock, server_hostname='localhost')


def openapi():
    """The description of the API, in YAML."""
    template = os.path.join(server.ROOT, 'server/admin/openapi.yaml.in')
    return subprocess.run([server.PROGRAM, 'manual', template], check=True, capture_output=True, text=True).stdout


def request(address, path, body=None, tls=None, **fields):
    """The status and the body of the response, decoded if it is JSON. A request body is sent as JSON in a POST."""
    connection = Connection(address, tls)
    try:
        fields = {name.replace('_', '-'): value for name, value in fields.items()}
        if body is None:
            connection.request('GET', path, headers=fields)
        else:
            connection.request('POST', path, json.dumps(body), {'Content-Type': 'application/json', **fields})
        response = connection.getresponse()
        text = response.read()
        kind = response.getheader('Content-Type')
        return response.status, json.loads(text) if kind == 'application/json' else text
    finally:
        connection.close()


class PendingRequest:
    """A POST whose response is read later."""

    def __init__(self, address, path, body):
        self.connection = Connection(address)
        self.connection.request('POST', path, json.dumps(body), {'Content-Type': 'application/json'})

    def answered(self, seconds):
        """Whether a response begins to arrive within that time."""
        return bool(select.select([self.connection.sock], [], [], seconds)[0])

    def answer(self):
        """The result of request()."""
        try:
            response = self.connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            self.connection.close()


def first_tick(address):
    """The data of the first event of the stream."""
    connection = Connection(address)
    try:
        connection.request('GET', '/api/v1/stream')
        response = connection.getresponse()
        assert response.status == 200, response.read()
        assert response.getheader('Content-Type') == 'text/event-stream'
        assert response.readline() == b'event: tick\n'
        line = response.readline()
        assert line.startswith(b'data: ') and response.readline() == b'\n'
        return json.loads(line[6:])
    finally:
        connection.close()


class Commands:
    """For tests: commands of gpunbd for the server `one`. Its admin socket is `admin` in its folder."""

    @property
    def admin(self):
        return f'{self.one.directory}/admin'

    def gpunbd(self, *words, status=0):
        return self.command(server.PROGRAM, *words, '--socket', self.admin, status=status)

    def export(self, *words, status=0):
        return self.gpunbd('export', *words, status=status)

    def exports(self):
        return {each['name']: each for each in json.loads(self.export('list', '--json'))}

    def devices(self):
        """The list of devices, with their figures."""
        return json.loads(self.gpunbd('status', '--json'))['devices']
