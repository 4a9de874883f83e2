"""A fake admin endpoint as described by openapi.yaml. Tests can change its responses while it runs, and make
it send invalid ones."""
import http.server
import json
import socketserver
import threading
import time

GiB = 1 << 30


def requests(kind, count, moved, in_flight=0, errors=None):
    return {'type': kind, 'requests': count, 'bytes': moved, 'in_flight': in_flight, 'errors': errors or {},
            'latency': {'count': count, 'sum': 1.0, 'p50': 0.0001, 'p90': 0.001, 'p99': 0.02, 'max': 0.5}}

LONGEST = {'type': 'read', 'seconds': 0.02, 'age': 1, 'waits': [
    {'stage': stage, 'seconds': 0.02 if stage == 'device' else 0}
    for stage in ('queue', 'payload', 'memory', 'device', 'socket', 'worker')]}


def export(name, size=4 * GiB, used=GiB, moved=0):
    return {'name': name, 'description': '', 'size': size, 'page_size': 2 << 20, 'layout': 'linear', 'provision': 'thin',
            'read_only': False, 'keep': False, 'swap': False, 'run_time': False, 'persistent': False, 'created': None, 'clone_of': '', 'shared': 0,
            'instance': '0' * 32, 'used': used, 'own': used, 'allocated': used,
            'memory': [{'device': 'cuda:0', 'used': used, 'allocated': used, 'slabs': 1}], 'connections': 1,
            'stalled': 0, 'rates': {'bytes_per_second': None, 'iops': None, 'burst': 1.0},
            'rates_per_peer': {'bytes_per_second': None, 'iops': None, 'burst': 1.0}, 'held_back': 0,
            'last_second': {'read_p50': 0.0001, 'read_p99': 0.02, 'write_p50': 0, 'write_p99': 0, 'longest': LONGEST},
            'longest': LONGEST,
            'requests': [requests('read', 10 + moved // 4096, moved, 2, {'EIO': 1}), requests('write', 5, 8192)]}


def device(identity='cuda:0'):
    return {'id': identity, 'name': 'NVIDIA H200', 'failed': False, 'total': 140 * GiB, 'available': 70 * GiB, 'reserve': 0,
            'mapped': 0, 'allocated': 35 * GiB, 'used': GiB, 'slabs': 1, 'staging': 0, 'staging_used': 0, 'staging_waits': 0,
            'failures': 0, 'copies': [], 'others_compute': None, 'competition_noticed': 0,
            'revocable': 0, 'yielded': 0, 'evictions': 0,
            'reclaimable': False, 'spilled': 0, 'limit': None, 'withheld': 0, 'claims': [], 'moved_out': 0,
            'moved_back': 0, 'not_reclaimed': 0, 'last_reclaim': None}


def status(names=('fast', 'slow'), moved=0, at=0, pid=4711):
    start = 1_700_000_000.0
    return {'time': start + 3600 + at, 'process': {
                'version': '0.1.0', 'commit': 'abc1234', 'build': 'Release', 'pid': pid, 'started': start, 'uptime': 3600.0 + at,
                'cpu_seconds': 1.5, 'resident': 123456789, 'open_files': 45, 'max_open_files': 1024, 'workers': 2, 'state': 'serving'},
            'progress': [], 'certificates': [], 'accepted': 12, 'connections': 1, 'refused': {}, 'handshakes': 1, 'tls_handshakes': 0,
            'failed_handshakes': {}, 'devices': [device()], 'exports': [export(name, moved=moved) for name in names],
            'contents': []}


def connection(number=1, peer='10.1.2.3:4567', name='fast', moved=0):
    return {'id': number, 'peer': peer, 'listener': '127.0.0.1:10809', 'export': name, 'serving': True, 'read_only': False,
            'age': 3600.0, 'tls': None, 'identity': 'alice', 'requests': moved // 4096, 'in_flight': 3,
            'errors': 0, 'read': moved, 'written': 0, 'stalled': 0}


class Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64


class UnixServer(Server):
    address_family = __import__('socket').AF_UNIX

    def server_bind(self):
        self.socket.bind(self.server_address)


class Endpoint:
    """`raw`: bytes that answer every request. `stream`: the status code of the stream. Each response, of which the stream
    has twenty per second, is one second later than the last, and each export has read `per_tick` bytes more."""

    def __init__(self, path=None, raw=None, stream=200, token=None, names=('fast', 'slow'), pid=4711):
        self.path, self.raw, self.stream, self.token, self.names, self.pid = path, raw, stream, token, names, pid
        self.per_tick, self.ticks, self.requests = 0, 0, []
        self.ended = threading.Event()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = 'HTTP/1.1'

            def address_string(self):
                return 'client'

            def log_message(self, *_):
                pass

            def do_GET(self):
                outer.answer(self)

        self.server = UnixServer(path, Handler) if path else Server(('127.0.0.1', 0), Handler)
        self.port = None if path else self.server.server_address[1]
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={'poll_interval': 0.02}, daemon=True)
        self.thread.start()

    @property
    def url(self):
        return f'http://127.0.0.1:{self.port}'

    def close(self):
        """Closes its connections as well. The socket file remains, like that of a server that was killed."""
        self.ended.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def now(self):
        self.ticks += 1
        return status(self.names, self.per_tick * self.ticks, self.ticks, self.pid)

    def connections(self):
        return [connection(moved=self.per_tick * self.ticks)]

    def answer(self, handler):
        self.requests.append((handler.path, dict(handler.headers)))
        if self.raw is not None:
            handler.close_connection = True
            handler.wfile.write(self.raw)
            return
        if self.token and handler.headers.get('Authorization') != f'Bearer {self.token}':
            self.send(handler, 401, {'error': 'a token is needed'})
        elif handler.path == '/api/v1/status':
            self.send(handler, 200, self.now())
        elif handler.path == '/api/v1/connections':
            self.send(handler, 200, self.connections())
        elif handler.path == '/api/v1/stream' and self.stream == 200:
            self.send_stream(handler)
        else:
            self.send(handler, self.stream if handler.path == '/api/v1/stream' else 404, {'error': 'not here'})

    @staticmethod
    def send(handler, code, value):
        body = json.dumps(value).encode()
        handler.send_response(code)
        handler.send_header('Content-Type', 'application/json')
        handler.send_header('Content-Length', str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    def send_stream(self, handler):
        handler.close_connection = True
        handler.send_response(200)
        handler.send_header('Content-Type', 'text/event-stream')
        handler.send_header('Transfer-Encoding', 'chunked')
        handler.end_headers()
        while not self.ended.is_set():
            tick = {'status': self.now(), 'connections': self.connections(), 'connections_left_out': 0, 'events': []}
            event = f'event: tick\ndata: {json.dumps(tick)}\n\n'.encode()
            try:
                handler.wfile.write(b'%x\r\n%s\r\n' % (len(event), event))
            except OSError:
                return
            time.sleep(0.05)
