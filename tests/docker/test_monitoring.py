"""docker/monitoring: promtool checks Prometheus's configuration and rules, a Prometheus with all metrics of gpunbd
evaluates every query of the dashboard, and the files agree with each other."""
import itertools
import json
import os
import re
import subprocess

import yaml_files
from yaml_files import composed, documents, server, text_of

import admin
import wire
from fake_metrics import FakeServer, printed
from prometheus import Prometheus

server.need('promtool', 'prometheus')

MONITORING = os.path.join(yaml_files.FOLDER, 'monitoring')
HERE = os.path.dirname(os.path.abspath(__file__))


def promtool(*words):
    done = subprocess.run(['promtool', *words], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120,
                          check=False, preexec_fn=server.die_with_parent)
    return done.returncode, done.stdout


def rules():
    group, = documents('monitoring/rules.yml')[0]['groups']
    return group['rules']


def dashboard():
    return json.loads(text_of('monitoring/grafana/gpunbd.json'))


def panels():
    return [each for each in dashboard()['panels'] if each['type'] != 'row']


def variables():
    return {each['name']: each for each in dashboard()['templating']['list']}


def substituted(expression):
    """The expression as Grafana sends it, with "All" selected."""
    for name, value in (('$__rate_interval', '60s'), ('$instance', '.*'), ('$export', '.*')):
        expression = expression.replace(name, value)
    return expression


class Rules(server.Test):
    def test_configuration_is_valid(self):
        status, out = promtool('check', 'config', os.path.join(MONITORING, 'prometheus.yml'))
        self.assertEqual(status, 0, out)
        self.assertIn(f'{len(rules())} rules found', out)

    def test_every_alert_fires_and_does_not_fire(self):
        status, out = promtool('test', 'rules', os.path.join(HERE, 'alerts.yaml'))
        self.assertEqual(status, 0, out)
        tested = set()
        with open(os.path.join(HERE, 'alerts.yaml'), encoding='utf-8') as file:
            for test in yaml_files.yaml.safe_load(file)['tests']:
                tested |= {(each['alertname'], bool(each['exp_alerts'])) for each in test['alert_rule_test']}
        self.assertEqual(tested, set(itertools.product((each['alert'] for each in rules()), (True, False))))

    def test_labels_and_annotations(self):
        for rule in rules():
            with self.subTest(alert=rule['alert']):
                self.assertIn(rule['labels']['severity'], ('info', 'warning', 'critical'))
                self.assertEqual(set(rule['annotations']), {'summary', 'description'})
                self.assertIn('{{ $labels.instance }}', rule['annotations']['summary'])

    def test_their_metrics_are_exposed(self):
        exposed = set(re.findall(r'^(\w+)', printed('prometheus'), re.MULTILINE)) | {'up'}
        for rule in rules():
            used = set(re.findall(r'\b(?:gpunbd|process)_\w+', rule['expr'])) | set(re.findall(r'\bup\b', rule['expr']))
            self.assertTrue(used)
            self.assertLessEqual(used, exposed)


class MemoryNearlyFull(server.Test):
    """The alert, with the metrics of a server."""
    CONFIG = '''
listeners: {unix: [{path: '{socket}'}]}
admin: {socket: '{directory}/admin'}
devices: [{id: host, capacity: 64M}]
exports:
  - {name: disk, size: 64M, devices: [host]}
'''

    def setUp(self):
        self.one = self.serve(config=self.CONFIG)
        self.states = []

    def write(self, begin, end):
        with wire.connect(self.one.address, 'disk') as client:
            for offset in range(begin, end, server.MiB):
                client.write(offset, b'x' * server.MiB)

    def expect(self, fires):
        _, body = admin.request(f'{self.one.directory}/admin', '/metrics')
        known = set(re.findall(r'gpunbd_\w+', next(each['expr'] for each in rules() if each['alert'] == 'GpunbdMemoryNearlyFull')))
        samples = re.findall(r'^(\w+){(.*)} (\S+)$', body.decode(), re.MULTILINE)
        series = [{'series': f'{name}{{job="gpunbd",instance="a",{labels}}}', 'values': f'{value}x20'}
                  for name, labels, value in samples if name in known]
        self.assertEqual({each['series'].split('{')[0] for each in series}, known)
        alert = {'exp_labels': {'job': 'gpunbd', 'instance': 'a', 'device': 'host', 'severity': 'warning'},
                 'exp_annotations': {'summary': 'host of a is nearly full',
                                     'description': 'Thin exports are larger than the memory that is left. '
                                                    'Less than 5% of the device is available to them.'}}
        self.states.append({'interval': '1m', 'input_series': series, 'alert_rule_test': [
            {'eval_time': '15m', 'alertname': 'GpunbdMemoryNearlyFull', 'exp_alerts': [alert] if fires else []}]})

    def test_states_of_a_server(self):
        self.expect(fires=False)  # idle, with less than 5% of the machine's memory
        self.write(0, 8 * server.MiB)
        snapshots = ''.join(f'  - {{name: s{number}, clone_of: disk, read_only: true}}\n' for number in range(10))
        self.one.reload(self.CONFIG + snapshots)
        self.expect(fires=False)  # the exports use more than the capacity, and share nearly all
        self.write(8 * server.MiB, 62 * server.MiB)
        self.expect(fires=True)
        path = os.path.join(self.directory(), 'states.yaml')
        with open(path, 'w', encoding='utf-8') as file:
            json.dump({'rule_files': [os.path.join(MONITORING, 'rules.yml')], 'evaluation_interval': '1m', 'tests': self.states}, file)
        status, out = promtool('test', 'rules', path)
        self.assertEqual(status, 0, out)


class Queries(server.Test):
    """Evaluated by a Prometheus."""

    def setUp(self):
        fake = FakeServer('openmetrics')
        self.addCleanup(fake.stop)
        self.prometheus = Prometheus(fake.address, os.path.join(MONITORING, 'rules.yml'))
        self.addCleanup(self.prometheus.stop)
        self.prometheus.data('rate(process_cpu_seconds_total[60s]) > 0')  # there have been two scrapes

    def test_every_query_of_the_dashboard(self):
        for panel in panels():
            for target in panel['targets']:
                with self.subTest(panel=panel['title'], query=target['refId']):
                    found = self.prometheus.data(substituted(target['expr']))
                    for name in re.findall(r'{{(\w+)}}', target['legendFormat']):
                        self.assertTrue(all(name in labels for labels, _ in found), name)
        for each in dashboard()['annotations']['list']:
            self.prometheus.query(substituted(each['expr']))

    def test_variables_have_values(self):
        for name, label in (('instance', 'instance'), ('export', 'export')):
            definition = re.fullmatch(r'label_values\((\w+(?:{.*})?), (\w+)\)', variables()[name]['definition'])
            self.assertEqual(definition[2], label)
            found = self.prometheus.data(substituted(definition[1]))
            self.assertTrue(all(label in labels for labels, _ in found))

    def test_selecting_one_export_excludes_the_others(self):
        expressions = [target['expr'] for panel in panels() for target in panel['targets'] if '$export' in target['expr']]
        self.assertGreater(len(expressions), 10)
        for expression in expressions:
            for labels, _ in self.prometheus.data(substituted(expression.replace('$export', 'scratch'))):
                self.assertEqual(labels.get('export', 'scratch'), 'scratch')

    def test_rules_are_evaluated_without_errors(self):
        def evaluated():
            group, = self.prometheus.get_data('rules')['groups']
            return group['rules'] if all(each['health'] != 'unknown' for each in group['rules']) else None
        server.wait_until(evaluated, 60, 'the rules')
        for rule in evaluated():
            self.assertEqual((rule['name'], rule['health'], rule.get('lastError')), (rule['name'], 'ok', None))
        (labels, _), = self.prometheus.data('ALERTS{alertname="GpunbdDeviceFailed"}')
        self.assertEqual((labels['device'], labels['alertstate']), ('cuda:1', 'firing'))


class Dashboard(server.Test):
    def test_ids_are_unique(self):
        every = dashboard()['panels']
        self.assertEqual(len({each['id'] for each in every}), len(every))
        for panel in panels():
            letters = [each['refId'] for each in panel['targets']]
            self.assertEqual(len(set(letters)), len(letters))

    def test_panels_do_not_overlap(self):
        taken = set()
        for panel in dashboard()['panels']:
            at = panel['gridPos']
            self.assertLessEqual(at['x'] + at['w'], 24)
            cells = set(itertools.product(range(at['x'], at['x'] + at['w']), range(at['y'], at['y'] + at['h'])))
            self.assertFalse(cells & taken, panel['title'])
            taken |= cells

    def test_all_queries_use_the_selected_data_source_and_server(self):
        self.assertEqual(set(variables()), {'datasource', 'instance', 'export'})
        queries = [*panels(), *(target for panel in panels() for target in panel['targets']), variables()['instance'],
                   variables()['export'], *dashboard()['annotations']['list']]
        for each in queries:
            self.assertEqual(each['datasource'], {'type': 'prometheus', 'uid': '${datasource}'})
        for panel in panels():
            for target in panel['targets']:
                self.assertIn('instance=~"$instance"', target['expr'])


class Compose(server.Test):
    def setUp(self):
        self.services = composed('monitoring/compose.yaml')['services']

    def test_mounted_files_exist(self):
        mounted = {}
        for service in self.services.values():
            for volume in service.get('volumes', []):
                source, target = volume.split(':')[:2]
                if source.startswith('./'):
                    self.assertTrue(os.path.isfile(os.path.join(MONITORING, source)), source)
                    self.assertTrue(volume.endswith(':ro'))
                    mounted[source] = target
        self.assertIn(f'--config.file={mounted["./prometheus.yml"]}', self.services['prometheus']['command'])
        configuration, = documents('monitoring/prometheus.yml')
        beside = os.path.dirname(mounted['./prometheus.yml'])
        self.assertEqual([os.path.join(beside, each) for each in configuration['rule_files']], [mounted['./rules.yml']])
        provider, = documents('monitoring/grafana/dashboards.yaml')[0]['providers']
        self.assertEqual(os.path.dirname(mounted['./grafana/gpunbd.json']), provider['options']['path'])
        self.assertEqual(self.services['grafana']['environment']['GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH'], mounted['./grafana/gpunbd.json'])

    def test_command_is_valid(self):
        self.command(server.PROGRAM, *self.services['gpunbd']['command'], '--log-level', 'wrong', status=2)
        self.assertIn(': --log-level: ', self.errors)

    def test_health_check_uses_the_listener(self):
        words = self.services['gpunbd']['command']
        path, = (word.split('=')[1] for word in words if word.startswith('--unix='))
        name, = (word.split('=')[1] for word in words if word.startswith('--name='))
        self.assertEqual(self.services['gpunbd']['environment']['GPUNBD_PING'], f'nbd+unix:///{name}?socket={path}')

    def test_the_remote_example_is_valid(self):
        text = text_of('monitoring/prometheus.yml')
        example = re.sub('^  # ?', '  ', text[text.index('  # - job_name'):], flags=re.MULTILINE)
        path = os.path.join(self.directory(), 'prometheus.yml')
        with open(path, 'w', encoding='utf-8') as file:
            file.write(text[:text.index('rule_files')] + text[text.index('scrape_configs'):text.index('  # A server')] + example)
        status, out = promtool('check', 'config', '--syntax-only', path)
        self.assertEqual(status, 0, out)
        self.assertEqual(len(yaml_files.yaml.safe_load(open(path, encoding='utf-8'))['scrape_configs']), 2)

    def test_addresses_agree(self):
        for name in ('gpunbd', 'prometheus', 'grafana'):
            self.assertEqual(self.services[name]['network_mode'], 'service:network')
        target, = documents('monitoring/prometheus.yml')[0]['scrape_configs'][0]['static_configs'][0]['targets']
        self.assertIn(f'--admin={target}', self.services['gpunbd']['command'])
        source, = documents('monitoring/grafana/datasource.yaml')[0]['datasources']
        self.assertEqual((source['type'], source['url'], source['isDefault']), ('prometheus', 'http://127.0.0.1:9090', True))
        configuration = documents('monitoring/prometheus.yml')[0]
        self.assertEqual(source['jsonData']['timeInterval'], configuration['global']['scrape_interval'])
        self.assertEqual(configuration['scrape_configs'][0]['job_name'], 'gpunbd')  # the rules use this name

    def test_nothing_listens_on_public_addresses(self):
        for name, service in self.services.items():
            for port in service.get('ports', []):
                self.assertEqual(name, 'network')
                self.assertRegex(port, r'^127\.0\.0\.1:(3000|9090):')
            self.assertEqual(service['cap_drop'], ['ALL'])
        self.assertEqual(self.services['grafana']['environment']['GF_AUTH_ANONYMOUS_ORG_ROLE'], 'Viewer')

    def test_third_party_images_have_a_version(self):
        for name in ('prometheus', 'grafana'):
            self.assertRegex(self.services[name]['image'], r':v?\d+\.\d+\.\d+$')


if __name__ == '__main__':
    server.main()
