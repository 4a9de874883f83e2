"""The metrics in their text formats: checked with promtool and Prometheus's client for Python."""
import re
import subprocess

import server
from fake_metrics import FORMS, FakeServer, printed
from prometheus import Prometheus

server.need('promtool', 'prometheus')
try:
    from prometheus_client import parser
    from prometheus_client.openmetrics import parser as openmetrics_parser
except ImportError:
    server.skip('the Python module prometheus_client is missing (python3-prometheus-client, for /usr/bin/python3; '
                './dev setup installs it)')

HARD = 'a "b" \\ c\nd \ufffd\u20ac'  # the name of an export
RATE = 4096000  # bytes that `scratch` reads in each second


def promtool(*words, text=None):
    done = subprocess.run(['promtool', *words], input=text, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=120, check=False, preexec_fn=server.die_with_parent)
    return done.returncode, done.stdout


def samples_of(families):
    return {(each.name, tuple(sorted(each.labels.items()))): each.value for family in families for each in family.samples}


class Text(server.Test):
    def test_promtool_accepts_the_metrics(self):
        self.assertEqual(promtool('check', 'metrics', text=printed('prometheus')), (0, ''))

    def test_both_formats_have_the_same_samples(self):
        strict = samples_of(openmetrics_parser.text_string_to_metric_families(printed('openmetrics')))
        old = samples_of(parser.text_string_to_metric_families(printed('prometheus')))
        self.assertEqual(strict, old)
        self.assertIn(('gpunbd_export_size_bytes', (('export', HARD),)), strict)

    def test_samples_are_unique(self):
        for form in FORMS:
            keys = [line.rsplit(' ', 1)[0] for line in printed(form).splitlines() if not line.startswith('#')]
            self.assertEqual(len(keys), len(set(keys)))


class Scraped(server.Test):
    def test_prometheus_reads_both_formats(self):
        for form in FORMS:
            with self.subTest(form=form):
                fake = FakeServer(form)
                self.addCleanup(fake.stop)
                prometheus = Prometheus(fake.address)
                self.addCleanup(prometheus.stop)
                self.check(prometheus)

    def check(self, prometheus):
        names = {each for each in prometheus.get_data('label/__name__/values') if re.match('gpunbd|process', each)}
        self.assertEqual(names, {name for name, _ in samples_of(parser.text_string_to_metric_families(printed('prometheus')))})
        self.assertEqual(prometheus.value('gpunbd_export_size_bytes{export="scratch"}'), 64 << 30)
        self.assertEqual({labels['export'] for labels, _ in prometheus.data('gpunbd_export_size_bytes')}, {'scratch', HARD})
        per_second = f'gpunbd_export_request_bytes_total{{export="scratch",type="read"}} / {RATE}'
        first = prometheus.value(per_second)
        self.assertEqual(first, int(first))
        server.wait_until(lambda: prometheus.value(per_second) > first, 120, 'a later value')
        quantile = 'histogram_quantile({}, gpunbd_export_request_duration_seconds_bucket{{export="scratch",type="write"}})'
        self.assertEqual(prometheus.value(quantile.format(1)), 10)  # one request took longer than the last bound
        metadata = prometheus.get_data('metadata')
        self.assertEqual(metadata['gpunbd_export_connections'][0]['type'], 'gauge')
        self.assertTrue(metadata['gpunbd_export_connections'][0]['help'])


if __name__ == '__main__':
    server.main()
