"""A Prometheus that scrapes a server every second, and answers queries with its HTTP API."""
import json
import os
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.parse
import urllib.request

import server


def get(url):
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=30) as answer:
        return answer.read().decode()


class Prometheus:
    """`target`: the address to scrape, such as "127.0.0.1:1234". `rules`: a file of rules."""

    def __init__(self, target, rules=None):
        self.directory = tempfile.mkdtemp(prefix='gpunbd-prometheus-')
        self.address = f'127.0.0.1:{server.free_port()}'
        self.log_path = os.path.join(self.directory, 'log')
        self.rules = rules
        self.configure(target)
        with open(self.log_path, 'wb') as log:
            self.process = subprocess.Popen(
                ['prometheus', f'--config.file={self.config_path}', f'--web.listen-address={self.address}',
                 f'--storage.tsdb.path={self.directory}/data', '--log.level=warn'],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=server.die_with_parent)
        try:
            server.wait_until(self.ready, 120, 'Prometheus to be ready')
            server.wait_until(lambda: self.query('up{job="gpunbd"} == 1'), 120, self.last_errors)
        except BaseException:
            self.stop()
            raise

    def configure(self, target):
        self.config_path = os.path.join(self.directory, 'prometheus.yml')
        with open(self.config_path, 'w', encoding='utf-8') as file:
            json.dump({'global': {'scrape_interval': '1s', 'scrape_timeout': '1s', 'evaluation_interval': '1s'},
                       'rule_files': [self.rules] if self.rules else [],
                       'scrape_configs': [{'job_name': 'gpunbd', 'static_configs': [{'targets': [target]}]}]}, file)

    def ready(self):
        if self.process.poll() is not None:
            raise AssertionError(f'Prometheus ended with {self.process.returncode}:\n{self.log()}')
        try:
            get(f'http://{self.address}/-/ready')
            return True
        except OSError:
            return False

    def last_errors(self):
        return f'a successful scrape: {[each["lastError"] for each in self.get_data("targets")["activeTargets"]]}'

    def get_data(self, path, **parameters):
        try:
            answer = get(f'http://{self.address}/api/v1/{path}?{urllib.parse.urlencode(parameters, doseq=True)}')
        except urllib.error.HTTPError as error:
            raise AssertionError(f'{parameters}: {error.read().decode()}') from error
        return json.loads(answer)['data']

    def query(self, expression):
        """The current result: pairs of labels and value. Raises an exception if the expression is invalid."""
        return [(each['metric'], float(each['value'][1])) for each in self.get_data('query', query=expression)['result']]

    def data(self, expression):
        """Waits until the result is not empty: a scrape that takes too long leaves a gap."""
        found = []
        server.wait_until(lambda: found or found.extend(self.query(expression)) or found, 120, f'data of {expression}')
        return found

    def value(self, expression):
        """The value of the only series, as soon as it exists."""
        (_, number), = self.data(expression)
        return number

    def log(self):
        with open(self.log_path, encoding='utf-8', errors='replace') as file:
            return file.read()

    def stop(self):
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(60)
        shutil.rmtree(self.directory, ignore_errors=True)
