"""The metrics of a fake status that includes every metric (tests/server/admin/metrics/print_metrics.cpp), as text and from
a server that Prometheus scrapes."""
import http.server
import os
import subprocess
import threading

import server

PROGRAM = os.environ.get('GPUNBD_PRINT_METRICS', os.path.join(server.ROOT, 'build/release/print_metrics'))
FORMS = {'prometheus': 'text/plain; version=0.0.4; charset=utf-8',
         'openmetrics': 'application/openmetrics-text; version=1.0.0; charset=utf-8'}


def printed(form, seconds=0):
    return subprocess.run([PROGRAM, form, str(seconds)], stdout=subprocess.PIPE, timeout=60, check=True,
                          preexec_fn=server.die_with_parent).stdout.decode()


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.requests += 1
        form = self.server.form
        body = printed(form, self.server.requests).encode()
        self.send_response(200)
        self.send_header('Content-Type', FORMS[form])
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


class FakeServer:
    """Time advances by one second with each response."""

    def __init__(self, form):
        self.http = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
        self.http.form = form
        self.http.requests = 0
        self.address = f'127.0.0.1:{self.http.server_address[1]}'
        self.thread = threading.Thread(target=self.http.serve_forever, daemon=True)
        self.thread.start()

    def stop(self):
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()
