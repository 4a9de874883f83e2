"""A simulated admin endpoint. It implements openapi.yaml with loads that a real server cannot have in a test, and
fails on demand.

    /usr/bin/python3 tests/page/fake_admin.py [PORT]      # serves the page without a gpunbd server
"""
import json
import math
import os
import random
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PAGE = os.path.join(ROOT, 'server/admin/page')
TYPES = {'.html': 'text/html', '.css': 'text/css', '.js': 'text/javascript'}
POLICY = ("default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self' data:; "
          "base-uri 'none'; form-action 'none'; frame-ancestors 'none'")

KiB, MiB, GiB, TiB = 1 << 10, 1 << 20, 1 << 30, 1 << 40
NO_RATES = {'bytes_per_second': None, 'iops': None, 'burst': 1}
WAIT_STAGES = ('queue', 'payload', 'memory', 'device', 'socket', 'worker')


def run_length(values):
    coded = []
    for value in values:
        if coded and coded[-2] == value:
            coded[-1] += 1
        else:
            coded += [value, 1]
    return coded


class Requests:
    def __init__(self, kind, median):
        self.kind, self.median = kind, median
        self.requests = self.bytes = self.in_flight = 0
        self.errors = {}

    def status(self):
        latency = {'count': self.requests, 'sum': self.requests * self.median * 1.1, 'p50': self.median,
                   'p90': self.median * 2.1, 'p99': self.median * 5.3, 'max': self.median * 31}
        if not self.requests:
            latency = dict.fromkeys(latency, 0)
        return {'type': self.kind, 'requests': self.requests, 'bytes': self.bytes, 'in_flight': self.in_flight,
                'errors': self.errors, 'latency': latency}


class Export:
    """`reads` and `writes` are in bytes per second, with requests of `request` bytes."""

    def __init__(self, name, size, used=0.0, device='cuda:0', page_size=2 * MiB, reads=0, writes=0, request=64 * KiB,
                 clients=0, **other):
        self.name, self.size, self.page_size, self.device = name, size, page_size, device
        self.loads, self.request, self.clients = {'read': reads, 'write': writes}, request, clients
        self.read_only, self.rates, self.other = False, dict(NO_RATES), other
        self.failed, self.stalled = {}, {}  # failed requests, and seconds of a stall; by the number of the client
        self.dice = random.Random(name)
        self.extents = list(self.scattered(used))
        self.hot = {'read': [], 'write': []}
        self.requests = {kind: Requests(kind, median) for kind, median in (('read', 92e-6), ('write', 61e-6))}
        self.history = {name: [] for name in ('read_bytes', 'written_bytes', 'reads', 'writes', 'read_p50', 'read_p99',
                                              'write_p50', 'write_p99', 'longest')}
        self.waits = {stage: [] for stage in WAIT_STAGES}  # of the longest request

    def scattered(self, share):
        """Runs of pages, most of them near the start, as in a typical file system."""
        pages = self.size // self.page_size
        runs = min(48, max(1, pages // 4)) if share else 0
        for index in range(runs):
            start = int(pages * (index / runs) ** 1.2)
            end = int(pages * ((index + 1) / runs) ** 1.2)
            length = min(end - start, max(1, round((end - start) * share * self.dice.uniform(0.3, 1.7))))
            yield start * self.page_size, (start + length) * self.page_size

    @property
    def used(self):
        return sum(end - start for start, end in self.extents)

    def write(self, offset, length):
        """Simulates a write of a client."""
        self.unmap(offset, length)
        self.extents.append((offset, offset + length))
        self.hot['write'] = [(offset, offset + length)]
        self.requests['write'].requests += 1
        self.requests['write'].bytes += length

    def fail(self, client, times, error='EINVAL'):
        """Simulates failed reads of a client."""
        of = self.requests['read']
        of.requests += times
        of.errors[error] = of.errors.get(error, 0) + times
        self.failed[client] = self.failed.get(client, 0) + times

    def history_over(self, seconds):
        """Intervals of a second for up to ten minutes, otherwise of ten seconds."""
        step = 1 if seconds <= 600 else 10

        def steps_of(name, values):
            if step == 1:
                return values[-seconds:]
            whole = [values[at:at + step] for at in range(len(values) % step, len(values), step)][-seconds // step:]
            return [max(part) if '_p' in name or name == 'longest' else sum(part) for part in whole]
        return {'step': step, **{name: steps_of(name, values) for name, values in self.history.items()},
                'longest_waits': {stage: steps_of('longest', values) for stage, values in self.waits.items()}}

    def longest(self):
        return {'type': 'read', 'age': 1, 'seconds': self.history['longest'][-1] if self.history['longest'] else 0,
                'waits': [{'stage': stage, 'seconds': values[-1] if values else 0} for stage, values in self.waits.items()]}

    def unmap(self, offset, length):
        left = []
        for start, end in self.extents:
            left += [(a, b) for a, b in ((start, min(end, offset)), (max(start, offset + length), end)) if a < b]
        self.extents = left

    def pass_second(self, second):
        for kind, load in self.loads.items():
            wave = 1 + 0.45 * math.sin(second / (23 if kind == 'read' else 37)) + self.dice.uniform(-0.12, 0.12)
            count = round(load * wave / self.request)
            of = self.requests[kind]
            of.requests += count
            of.bytes += count * self.request
            of.in_flight = self.dice.randrange(32) if count else 0
            wide = max(self.page_size, self.size // 300)
            self.hot[kind] = [(at, at + wide) for at in (
                self.dice.choice(self.extents)[0] + self.dice.randrange(4) * wide for _ in range(5 if count else 0))]
            short, written = ('read', 'read_bytes') if kind == 'read' else ('write', 'written_bytes')
            self.history[written].append(count * self.request)
            self.history[short + 's'].append(count)
            slow = of.median * (1 + 0.3 * math.sin(second / 17)) * self.dice.uniform(0.9, 1.1)
            self.history[short + '_p50'].append(slow if count else 0)
            self.history[short + '_p99'].append(slow * self.dice.uniform(4, 7) if count else 0)
        longest = 2 * max(self.history['read_p99'][-1], self.history['write_p99'][-1])
        self.history['longest'].append(longest)
        for stage, share in zip(WAIT_STAGES, (0.1, 0.1, 0.05, 0.6, 0.05, 0.1), strict=True):
            self.waits[stage].append(longest * share)
        for values in (*self.history.values(), *self.waits.values()):
            del values[:-3600]

    def status(self):
        allocated = -(-self.used // (64 * MiB)) * 64 * MiB
        return {'name': self.name, 'description': self.other.get('description', ''), 'size': self.size,
                'page_size': self.page_size, 'layout': self.other.get('layout', 'linear'), 'provision': self.other.get('provision', 'thin'), 'read_only': self.read_only,
                'keep': self.other.get('keep', False), 'swap': False, 'run_time': self.other.get('run_time', False),
                'persistent': False, 'created': None, 'clone_of': self.other.get('clone_of', ''),
                'snapshot': self.read_only and 'clone_of' in self.other,
                'templates': self.other.get('templates', []), 'origins': self.other.get('origins', []), 'shared': 0,
                'instance': '0123456789abcdef', 'used': self.used, 'own': self.used,
                'allocated': allocated, 'connections': self.clients, 'stalled': len(self.stalled), 'rates': self.rates,
                'rates_per_peer': self.other.get('rates_per_peer', NO_RATES), 'held_back': 0,
                'last_second': {'longest': self.longest(), **{
                    name: values[-1] if values else 0 for name, values in self.history.items() if '_p' in name}},
                'longest': self.longest(),
                'memory': [{'device': self.device, 'used': self.used, 'allocated': allocated,
                            'slabs': allocated // (64 * MiB)}],
                'requests': [of.status() for of in self.requests.values() if of.requests]}

    def map(self, offset, length, cells):
        length = min(length, self.size - offset)
        pages = -(-length // self.page_size)
        cell = -(-pages // cells) * self.page_size
        count = -(-length // cell)

        def shares(extents):
            covered = [0] * count
            for start, end in extents:
                start, end = max(start, offset), min(end, offset + length)
                for index in range((start - offset) // cell, -(-(end - offset) // cell) if end > start else 0):
                    low = offset + index * cell
                    covered[index] += min(end, low + cell) - max(start, low)
            return [min(100, -(-100 * covered[index] // min(cell, length - index * cell))) for index in range(count)]

        return {'export': self.name, 'size': self.size, 'page_size': self.page_size, 'offset': offset, 'length': length,
                'cell': cell, 'used': run_length(shares(self.extents)),
                'read': run_length(map(int, map(bool, shares(self.hot['read'])))),
                'written': run_length(map(int, map(bool, shares(self.hot['write']))))}


class Device:
    def __init__(self, identity, name, total, others=0, reserve=0):
        self.identity, self.name, self.total, self.others, self.reserve = identity, name, total, others, reserve
        self.failed, self.staging_waits, self.claims = False, 0, []

    def status(self, exports):
        mine = [one['memory'][0] for one in (export.status() for export in exports) if one['memory'][0]['device'] == self.identity]
        allocated = sum(memory['allocated'] for memory in mine)
        return {'id': self.identity, 'name': self.name, 'failed': self.failed, 'total': self.total,
                'available': max(0, self.total - self.others - self.reserve - allocated), 'reserve': self.reserve,
                'mapped': 0, 'allocated': allocated, 'used': sum(memory['used'] for memory in mine),
                'slabs': sum(memory['slabs'] for memory in mine), 'staging': 64 * MiB, 'staging_used': 3 * MiB,
                'staging_waits': self.staging_waits, 'failures': int(self.failed),
                'copies': [{'path': 'copy engine', 'direction': 'read', 'copies': 5, 'bytes': 5 * MiB}],
                'others_compute': None if self.identity == 'host' else self.others > 0, 'competition_noticed': 0,
                'reclaimable': False, 'revocable': 0, 'yielded': 0, 'evictions': 0,
                'spilled': 0, 'limit': None, 'withheld': 0, 'claims': self.claims, 'moved_out': 0, 'moved_back': 0, 'not_reclaimed': 0,
                'last_reclaim': None}


class FakeAdmin:
    """`moves`: the load changes each second, and has done so for `history` seconds. Otherwise only the test changes the
    state. `every`: seconds between two ticks."""

    def __init__(self, exports, devices, port=0, moves=True, token=None, steering=True, history=3600, every=1.0):
        self.exports, self.devices, self.moves, self.token, self.steering = exports, devices, moves, token, steering
        self.progress, self.state, self.posted, self.requested, self.ended = [], 'serving', [], [], set()
        self.events, self.pid, self.started, self.every = [], 4711, time.time() - 3 * 3600 - 125, every
        self.refused, self.failed_handshakes = {'connections': 2}, {}
        self.passed, self.clock_set = 0, 0  # seconds that a test lets pass, and by which it sets the clock
        self.changed, self.running, self.second = threading.Condition(), False, 0
        self.origin = time.time() - (history if moves else 600)
        if moves:
            for _ in range(history):
                self.pass_second()
        self.port = port
        self.start()

    def now(self):
        """If `moves` is set, each tick counts as a second, at any rate of ticks."""
        return (self.origin + self.second if self.moves else time.time()) + self.passed

    @property
    def url(self):
        return f'http://127.0.0.1:{self.port}/'

    def export(self, name):
        return next((export for export in self.exports if export.name == name), None)

    def start(self):
        fake = self

        class BoundHandler(Handler):
            admin = fake

        self.http = self.server(BoundHandler)
        self.running = True
        threading.Thread(target=self.http.serve_forever, args=(0.01,), daemon=True).start()  # stop() waits for an interval
        threading.Thread(target=self.live, daemon=True).start()

    def server(self, handler):
        made = FakeServer(('127.0.0.1', self.port), handler)
        self.port = made.server_address[1]
        return made

    def answers(self, handler):
        """Whether a derived class has answered this GET itself."""
        return False

    def stop(self):
        """Stops the server and closes all connections."""
        self.running = False
        with self.changed:
            self.changed.notify_all()
        self.http.shutdown()
        self.http.server_close()
        self.http.cut()

    def live(self):
        while self.running:
            time.sleep(self.every)
            if self.moves:
                self.pass_second()
            with self.changed:
                self.changed.notify_all()

    def pass_second(self):
        self.second += 1
        for export in self.exports:
            export.pass_second(self.second)

    def say(self, level, text, **fields):
        self.events.append({'id': len(self.events) + 1, 'time': self.now(), 'level': level, 'text': text, 'fields': fields})

    def connections(self):
        for place, export in enumerate(self.exports):
            for client in range(export.clients):
                identity = place * 1000 + client + 1
                if identity not in self.ended:
                    count = export.clients
                    yield {'id': identity, 'peer': f'192.0.2.{1 + client % 250}:{40000 + identity}',
                           'listener': '0.0.0.0:10809', 'export': export.name, 'serving': True, 'read_only': export.read_only,
                           'age': self.now() - self.started - 60 * client, 'tls': 'TLS 1.3, TLS_AES_256_GCM_SHA384' if client % 2 else None,
                           'identity': f'CN=node{client}' if client % 2 else None,
                           'requests': sum(of.requests for of in export.requests.values()) // count, 'in_flight': client % 7,
                           'errors': export.failed.get(client, 0), 'stalled': export.stalled.get(client, 0),
                           'read': export.requests['read'].bytes // count, 'written': export.requests['write'].bytes // count}

    def status(self):
        connections = len(list(self.connections()))
        return {'time': self.now() + self.clock_set,
                'process': {'version': '0.1.0', 'commit': '0123abc', 'build': 'Release, CUDA 13.0', 'pid': self.pid,
                            'started': self.started, 'uptime': self.now() - self.started,
                            'cpu_seconds': 812.5 + self.second * 0.31, 'resident': 214 * MiB, 'open_files': 41 + connections,
                            'max_open_files': 65536, 'workers': 8, 'state': self.state},
                'progress': self.progress, 'certificates': [], 'accepted': connections + 12, 'connections': connections,
                'refused': self.refused, 'handshakes': connections + 9, 'tls_handshakes': connections // 2,
                'failed_handshakes': self.failed_handshakes, 'devices': [device.status(self.exports) for device in self.devices],
                'exports': [export.status() for export in self.exports], 'contents': []}

    def tick(self, after):
        busiest = list(self.connections())
        return {'status': self.status(), 'connections': busiest[:256], 'connections_left_out': max(0, len(busiest) - 256),
                'events': [event for event in self.events if event['id'] > after]}

    def history(self, export, seconds):
        return {'export': export.name, 'end': math.floor(self.now()), **export.history_over(seconds)}

    def trends(self):
        def moved(export):
            return [sum(both) for both in zip(export.history['read_bytes'][-60:], export.history['written_bytes'][-60:])]
        return {'end': math.floor(self.now()), 'exports': [{'export': export.name, 'bytes': moved(export)} for export in self.exports
                                                           if any(moved(export))]}

    def post(self, path, body):
        """The completed change as a sentence, or None."""
        self.posted.append((path, body))
        export = self.export(body.get('export'))
        if path == 'connections/end' and any(one['id'] == body['id'] for one in self.connections()):
            self.ended.add(body['id'])
            return f'connection {body["id"]} is closed'
        if path == 'rates' and export:
            export.rates = {name: parsed(f'rates.{name}', value) for name, value in body['rates'].items()}
            return f"the rates of export '{export.name}' are set"
        if path == 'read-only' and export:
            export.read_only = body['read_only']
            return f"export '{export.name}' is read-only" if export.read_only else f"export '{export.name}' is writable"
        if path == 'log-level':
            return f'the log level is {body["level"]}'
        if path == 'exports/create':
            wanted = body['export']
            device = wanted.get('devices', ['cuda:0'])[0]
            self.exports.append(Export(wanted['name'], parsed('export.size', wanted['size']), device=device, run_time=True,
                                       layout=wanted['layout'], provision=wanted['provision']))
            return f"Export '{wanted['name']}' is created."
        return None


class InvalidValue(Exception):
    """A value that the server refuses."""


def parsed(key, value):
    """Parses a value in the notation of the configuration."""
    if value is None:
        return None
    text = str(value)
    units = {'s': 1} if key in ('rates.iops', 'rates.burst') else {'K': KiB, 'M': MiB, 'G': GiB, 'T': TiB}
    number, unit = (text[:-1], units[text[-1]]) if text[-1:] in units else (text, 1)
    if not number.isdigit():
        raise InvalidValue(f"{key}: '{text}' is not a size; write for example 8G, 1.5GiB or 4096")
    return int(number) * unit


class FakeServer(ThreadingHTTPServer):
    daemon_threads, allow_reuse_address, block_on_close = True, True, False

    def __init__(self, *arguments):
        self.sockets = set()
        super().__init__(*arguments)

    def process_request(self, request, client_address):
        self.sockets.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request):
        self.sockets.discard(request)
        super().shutdown_request(request)

    def cut(self):
        for one in list(self.sockets):
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # the client has closed it already

    def handle_error(self, request, client_address):
        pass  # the browser has disconnected


class Handler(BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    disable_nagle_algorithm = True  # a response is several writes
    admin = None

    def log_message(self, format, *args):
        pass

    def answer(self, status, body, kind='application/json'):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in (('Content-Type', f'{kind}; charset=utf-8'), ('Content-Length', len(data)),
                            ('Content-Security-Policy', POLICY), ('X-Content-Type-Options', 'nosniff'),
                            ('Cache-Control', 'no-store')):
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(data)

    def trusted(self):
        token = self.admin.token
        if token is None or self.headers.get('Authorization') == f'Bearer {token}':
            return True
        self.answer(401, {'error': 'a token is required; send Authorization: Bearer TOKEN'})
        return False

    def do_GET(self):
        if self.admin.answers(self):
            return None
        split = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(split.query, keep_blank_values=True).items()}
        self.admin.requested.append(split.path)
        name = split.path.removeprefix('/') or 'index.html'
        if name in os.listdir(PAGE):
            with open(os.path.join(PAGE, name), 'rb') as file:
                return self.answer(200, file.read(), TYPES[os.path.splitext(name)[1]])
        if not split.path.startswith('/api/v1/'):
            return self.answer(404, {'error': 'there is nothing here'})
        if not self.trusted():
            return None
        what = split.path.removeprefix('/api/v1/')
        if what == 'stream':
            return self.stream()
        return self.report(what, query)

    def report(self, what, query):
        admin = self.admin
        plain = {'status': admin.status, 'connections': lambda: list(admin.connections()), 'events': lambda: admin.events,
                 'exports': lambda: admin.status()['exports'], 'devices': lambda: admin.status()['devices'], 'trends': admin.trends,
                 'access': lambda: {'steering': admin.steering, 'why_not': None if admin.steering else 'this endpoint allows no changes'}}
        if what in plain:
            return self.answer(200, plain[what]())
        export = admin.export(query.get('export'))
        if what not in ('map', 'history', 'pages') or export is None:
            return self.answer(404, {'error': 'there is no such export'})
        if what == 'history':
            return self.answer(200, admin.history(export, int(query.get('seconds', 600))))
        offset, length = int(query.get('offset', 0)), int(query.get('length', export.size))
        if what == 'map':
            return self.answer(200, export.map(offset, length, int(query.get('cells', 1024))))
        runs = [{'offset': a, 'length': b - a, 'device': export.device} for a, b in sorted(export.extents)
                if a < offset + length and b > offset]
        return self.answer(200, {'export': export.name, 'page_size': export.page_size, 'runs': runs, 'next': None})

    def stream(self):
        self.send_response(200)
        self.send_header('Content-Type', 'text/event-stream')
        self.send_header('Cache-Control', 'no-store')
        self.send_header('Connection', 'close')
        self.end_headers()
        self.close_connection = True
        server, last = self.admin.http, 0
        while self.admin.running and self.admin.http is server:
            tick = self.admin.tick(last)
            last = len(self.admin.events)
            self.wfile.write(b'event: tick\ndata: ' + json.dumps(tick).encode() + b'\n\n')
            with self.admin.changed:
                self.admin.changed.wait(5)

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers.get('Content-Length', 0))) or b'{}')
        if not self.trusted():
            return None
        if not self.admin.steering:
            return self.answer(403, {'error': 'this endpoint allows no changes'})
        try:
            done = self.admin.post(urlsplit(self.path).path.removeprefix('/api/v1/'), body)
        except InvalidValue as error:
            return self.answer(400, {'error': str(error)})
        if done:
            return self.answer(200, {'done': done})
        return self.answer(404, {'error': 'there is no such export or connection'})


def a_machine(**options):
    """A typical machine with two GPUs and host memory."""
    exports = [
        Export('scratch', 64 * GiB, 0.62, reads=1.9e9, writes=1.1e9, request=256 * KiB, clients=4, description='for renders'),
        Export('vm-images', 32 * GiB, 0.35, reads=2.4e8, writes=3e7, clients=3, keep=True),
        Export('cache', 24 * GiB, 0.81, device='cuda:1', reads=6.2e8, writes=4.1e8, request=4 * KiB, clients=8),
        Export('swap0', 16 * GiB, 0.12, device='cuda:1', writes=9e6, reads=4e6, request=4 * KiB, clients=1),
        Export('<script>alert(1)</script>', 3 * GiB, 0.2, device='host'),
        Export('archive', 8 * GiB, 0.97, device='host', clients=1),
    ]
    devices = [Device('cuda:0', 'NVIDIA H200', 141 * GiB, others=38 * GiB, reserve=4 * GiB),
               Device('cuda:1', 'NVIDIA H200', 141 * GiB, others=61 * GiB, reserve=4 * GiB),
               Device('host', 'host memory', 64 * GiB, others=31 * GiB, reserve=2 * GiB)]
    admin = FakeAdmin(exports, devices, **options)
    admin.second -= 301
    admin.say('info', "ready: 6 exports on 0.0.0.0:10809")
    admin.second += 143
    admin.say('info', "192.0.2.1:40001: reads and writes export 'scratch'", export='scratch')
    admin.say('info', "192.0.2.2:40002: reads and writes export 'scratch', TLS 1.3, CN=node1", export='scratch')
    admin.second += 71
    admin.say('warning', "192.0.2.77:51312: refused: export 'cache' has no more than 8 connections", export='cache')
    admin.second += 4
    admin.say('error', "export 'archive': no memory for a write: ENOSPC, offset 8321499136, length 1048576", export='archive')
    admin.second += 83
    admin.say('info', 'configuration read again: 1 export changed')
    return admin


def a_hundred(**options):
    """A hundred exports of 1 TiB."""
    exports = [Export(f'volume-{index:03}', TiB, 0.05 + index % 9 / 1000, device=f'cuda:{index % 8}', clients=index % 5,
                      reads=(index % 5) * 4e7, writes=(index % 5) * 2e7) for index in range(100)]
    devices = [Device(f'cuda:{index}', 'NVIDIA H200', 2 * TiB, others=40 * GiB, reserve=4 * GiB) for index in range(8)]
    return FakeAdmin(exports, devices, **options)


if __name__ == '__main__':
    made = {'hundred': a_hundred, 'machine': a_machine}[sys.argv[2] if len(sys.argv) > 2 else 'machine']
    shown = made(port=int(sys.argv[1]) if len(sys.argv) > 1 else 8080)
    print(shown.url, flush=True)
    threading.Event().wait()
