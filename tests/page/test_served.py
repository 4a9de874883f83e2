"""Tests of the page with a real server and loads of known size."""
import os

import browser
import server
import views
from views import HOSTILE

browser.need_browser()
nbd = server.need_libnbd()

DISK, PAGE, SIZE = 'disk', 2 * server.MiB, 64 * server.MiB
CONFIG = """
listeners:
  unix: [{path: '{socket}'}]
devices:
  - {id: host, spill: [{file: SPILL, size: 128M}]}
exports:
  - {name: "NAME", size: 64M, devices: [host]}
  - {name: "HOSTILE", size: 64M, devices: [host]}
  - {name: node, clone_per_client: {of: "NAME", name: machine}}
""".replace('NAME', DISK).replace('HOSTILE', HOSTILE)


class Served(views.Views):
    token = '0123456789abcdef0123456789abcdef'

    def setUp(self):
        super().setUp()
        self.connected = None
        self.port = server.free_port()
        self.url = f'http://127.0.0.1:{self.port}/'
        self.secret = os.path.join(self.directory(), 'token')
        with open(os.open(self.secret, os.O_CREAT | os.O_WRONLY, 0o600), 'w', encoding='ascii') as file:
            file.write(self.token + '\n')
        self.restart()

    def restart(self):
        spill = os.path.join(self.directory(), 'spill')
        self.served = self.serve(config=CONFIG.replace('SPILL', spill), extra=['--admin', f'127.0.0.1:{self.port}', '--admin-token', self.secret, '--admin-socket', 'none'])

    def stop(self):
        self.served.stop()

    def client(self):
        if self.connected is None:
            self.connected = nbd.NBD()
            self.connected.connect_uri(self.served.uri(DISK))
            self.addCleanup(self.connected.shutdown)
        return self.connected

    def write(self, offset, length):
        self.client().pwrite(b'x' * length, offset)

    def trim(self, offset, length):
        self.client().trim(length, offset)

    def swatch(self, name):
        return self.browser.run('return getComputedStyle(document.querySelector(`#export .swatch.${arguments[0]}`)).backgroundColor', name)

    def test_numbers_are_those_of_the_api(self):
        self.write(0, 3 * PAGE)
        self.write(8 * PAGE, PAGE)
        self.overview()
        row = f'[data-export="{DISK}"]'
        self.browser.until(lambda: self.browser.value(f'{row} .wide data') == 4 * PAGE, 'four pages are used')
        self.browser.tick()
        status = self.api('status')
        exported = next(one for one in status['exports'] if one['name'] == DISK)
        self.assertEqual(self.browser.values(f'{row} data')[:2], [exported['used'], exported['size']])
        self.assertEqual(self.browser.text(f'{row} .wide data'), '8 MiB')
        self.assertEqual(self.browser.figure('Memory used'), sum(one['used'] for one in status['devices']))
        self.assertEqual(self.browser.figure('Connections'), status['connections'])
        self.assertIn(f"pid {status['process']['pid']} ", self.browser.text('#process'))
        for device in status['devices']:
            item = f"[data-device=\"{device['id']}\"]"
            self.assertEqual(sum(self.browser.values(f'{item} [data-part="in-use"] data')), device['allocated'])
            self.browser.run('document.querySelector(arguments[0]).open = true', f'{item} details')
            self.assertEqual(self.browser.values(f'{item} tbody data'), [each[what] for each in device['copies'] for what in ('copies', 'bytes')])
        for label, value in (('Accepted', status['accepted']), ('Opened an export', status['handshakes']), ('Refused', sum(status['refused'].values())),
                             ('Failed handshakes', sum(status['failed_handshakes'].values()))):
            self.assertEqual(self.browser.figure(label, 'connection-counts'), value)
        self.opened(DISK)
        self.browser.shows('#requests', 'write')
        writes = next(of for of in exported['requests'] if of['type'] == 'write')
        self.assertEqual(self.browser.values('#requests [data-type="write"] data')[:2], [writes['requests'], writes['bytes']])
        self.assertEqual(writes['bytes'], 4 * PAGE)
        self.assertEqual(self.browser.figure('Used', 'export-figures'), 4 * PAGE)

    def test_map_shows_a_written_range_and_its_hole(self):
        self.opened(DISK)
        self.assertEqual(self.browser.run('return opened.map.data.cells'), SIZE // PAGE)
        self.assertEqual(self.cell(5), (f'Page 5, 2 MiB at 10 MiB (offset 10\u202f485\u202f760): a hole', self.swatch('hole')))

        def lately():
            self.write(4 * PAGE, 2 * PAGE)
            self.browser.tick()
            return self.cell(5) == ('Page 5, 2 MiB at 10 MiB (offset 10\u202f485\u202f760): used, written in the last second', self.swatch('written'))
        self.browser.until(lately, lambda: f'page 5 has been written in the last second: {self.cell(5)}')
        self.browser.until(lambda: 'written' not in self.cell(5)[0], 'one second has passed since the WRITE')
        self.assertTrue(self.cell(5)[0].endswith('): used'), self.cell(5))
        self.assertEqual([self.cell(index)[1] == self.swatch('used') for index in (3, 4, 5, 6)], [False, True, True, False])
        self.trim(5 * PAGE, PAGE)
        self.browser.until(lambda: self.cell(5)[0].endswith('): a hole'), 'page 5 is a hole, and one second has passed since the TRIM')
        self.assertEqual([self.cell(index)[1] for index in (4, 5)], [self.swatch('used'), self.swatch('hole')])

    def test_survives_a_restart_and_reports_it(self):
        self.overview()
        self.browser.run('window.same = true')
        self.stop()
        self.browser.shows('#notices', 'The server has not answered since ')
        self.assertIn('trying again', self.browser.text('#notices'))
        self.browser.shows('#state', 'does not answer')
        self.assertEqual(self.browser.run("return getComputedStyle(document.querySelector('main section')).opacity"), '0.5')
        self.restart()
        self.browser.shows('#notices', 'The server was restarted at ')
        self.browser.shows('#state', 'serving')
        self.assertNotIn('does not answer', self.browser.text('#notices'))
        self.assertEqual(self.browser.run("return getComputedStyle(document.querySelector('main section')).opacity"), '1')
        self.assertIn(f"pid {self.api('status')['process']['pid']} ", self.browser.text('#process'))
        self.assertTrue(self.browser.run('return window.same'), 'the page was not reloaded')

    def test_names_are_text(self):
        self.overview()
        self.assertIn(HOSTILE, self.browser.text('#exports'))
        self.browser.run("[...document.querySelectorAll('#exports a')].find((link) => link.textContent === arguments[0]).click()", HOSTILE)
        self.browser.shows('#export-name', HOSTILE)
        self.browser.until(lambda: self.browser.run('return Boolean(opened.map.data)'), 'the map is loaded')
        self.assertEqual(self.browser.run("return [...document.scripts].filter((script) => !script.src.startsWith(arguments[0])).length", self.url), 0)
        self.assertEqual(self.browser.driver.title, f'{HOSTILE} – gpunbd')

    def test_changes_need_a_confirmation(self):
        self.opened(DISK)
        exported = lambda: next(one for one in self.api('exports') if one['name'] == DISK)
        self.browser.click('#set-read-only')
        self.assertEqual(self.browser.text('#dialog-title'), 'Make the export read-only?')
        self.browser.click('#dialog-no')
        self.assertFalse(exported()['read_only'])
        self.browser.click('#set-read-only')
        self.browser.click('#dialog-yes')
        self.browser.shows('#export-about', 'read-only')
        self.assertTrue(exported()['read_only'])
        self.browser.click('#set-rates')
        self.browser.enter('[name=bytes]', 'many')
        self.browser.click('#dialog-yes')
        self.browser.shows('#dialog-error', "rates.bytes_per_second: 'many' is not a size")
        self.browser.enter('[name=bytes]', '10M')
        self.browser.click('#dialog-yes')
        self.browser.shows('#export-about', 'at most 10.0 MiB/s for all clients together')
        self.assertEqual(exported()['rates'], {'bytes_per_second': 10 * server.MiB, 'iops': None, 'burst': 1})
        self.browser.click('#set-rates')
        self.assertEqual(self.browser.run("return document.querySelector('[name=bytes]').value"), '10M')
        self.browser.click('#dialog-no')

    def test_exports_are_created_resized_copied_and_removed(self):
        self.write(0, PAGE)
        exports = lambda: {one['name']: one for one in self.api('exports')}
        self.overview()
        self.browser.click('#create-export')
        self.assertEqual(self.browser.run("return [...document.querySelectorAll('#dialog [name=devices]')].map((one) => one.value)"), ['host'], 'without spill memory')
        self.browser.click('#dialog-no')
        self.answer_dialog('#create-export', name='new', size='many', devices=['host'])
        self.browser.shows('#dialog-error', "export.size: 'many'")
        self.browser.click('#dialog-no')
        self.answer_dialog('#create-export', name='new', size='32M', devices=['host'], provision='full')
        self.browser.shows('#notices', "Export 'new' is created.")
        self.browser.shows('[data-export="new"]', '32 MiB')
        self.assertEqual([exports()['new'][of] for of in ('layout', 'provision')], ['linear', 'full'])
        self.assertEqual([memory['device'] for memory in exports()['new']['memory'] if not memory.get('home')], ['host'])
        self.opened('new')
        self.answer_dialog('#resize-export', size='16M', discard=True)
        self.browser.shows('#export-figures', 'of 16 MiB')
        self.browser.click('#rename-export')
        self.browser.enter('#dialog [name=name]', 'newer')
        self.browser.click('#dialog-yes')
        self.browser.shows('#notices', "Export 'new' has the name 'newer' now.")
        self.browser.shows('#export-name', 'newer')
        self.browser.shows('#export-figures', 'of 16 MiB')
        self.opened(DISK)
        for button in ('#rename-export', '#remove-export'):
            self.assertFalse(self.browser.one(button).is_displayed())  # it is in the configuration
        self.answer_dialog('#snapshot-export', name='before')
        self.browser.shows('#notices', "Export 'before' is created.")
        self.answer_dialog('#clone-export', name='copy')
        self.browser.shows('#notices', "Export 'copy' is created.")
        self.assertEqual([(exports()[name]['clone_of'], exports()[name]['read_only'], exports()[name]['used']) for name in ('before', 'copy')],
                         [(DISK, True, PAGE), (DISK, False, PAGE)])
        self.overview()
        self.browser.shows('[data-export="before"]', f'snapshot of {DISK}')
        self.browser.shows('[data-export="copy"]', f'clone of {DISK}')
        self.browser.click('#create-export')
        self.browser.select('#dialog [name=source]', DISK)
        self.assertFalse(self.browser.one('#dialog [name=size]').is_displayed(), 'a clone has the size of its source')
        self.browser.enter('#dialog [name=name]', 'another')
        self.browser.click('#dialog-yes')
        self.browser.shows('[data-export="another"]', f'clone of {DISK}')
        self.opened('copy')
        self.browser.click('#remove-export')
        self.assertEqual(self.browser.text('#dialog-text'), 'Removes export copy and its contents.')
        self.browser.click('#dialog-yes')
        self.browser.shows('#export-about', 'No export has this name.')
        self.assertEqual(set(exports()), {DISK, HOSTILE, 'newer', 'before', 'another'})

    def test_clones_for_clients_are_counted(self):
        self.overview()
        self.browser.shows('#exports', 'base of node: 0 of 200 clones')
        client = nbd.NBD()
        client.connect_uri(self.served.uri('node/a'))
        self.addCleanup(client.shutdown)
        self.browser.shows('#exports', 'base of node: 1 of 200 clones')

    def test_memory_is_given_back_and_used_again(self):
        self.write(0, 4 << 20)
        self.overview()
        self.browser.click('.device .tools button')
        self.browser.enter('[name=bytes]', 'much')
        self.browser.click('#dialog-yes')
        self.browser.shows('#dialog-error', "'much' is not a size")
        self.browser.enter('[name=bytes]', '')
        self.browser.click('#dialog-yes')
        self.browser.shows('#notices', 'host gave back 64 MiB of 64 MiB')
        self.browser.shows('.device-head', '4 MiB moved elsewhere')
        self.browser.click('.device .tools button:last-child')
        self.browser.click('#dialog-yes')
        self.browser.shows('#notices', 'host moved 4 MiB back')
        self.browser.until(lambda: 'elsewhere' not in self.browser.text('.device-head'), 'no page is elsewhere')


if __name__ == '__main__':
    server.main()
