"""Tests of the page for real and simulated servers. Derived classes provide the server."""
import json
import urllib.request

import browser
import server

HOSTILE = '<script>alert(1)</script>'
DISK, PAGE, SIZE = 'disk', 2 * server.MiB, 64 * server.MiB


class Views(server.Test):
    """Derived classes define `url`, `begin` (starts a server with the empty exports DISK and HOSTILE of SIZE), `write`, `trim`, `settle`, `stop` and `restart`."""
    token = None

    @classmethod
    def setUpClass(cls):
        cls.browser = browser.shared()

    def setUp(self):
        self.browser.see()
        self.browser.prefer('light')

    def end(self):
        """Checks at the end of each test that the page had no errors. A cleanup would run after the next page is loaded."""
        self.assertEqual(self.browser.problems(), [])

    def api(self, path):
        request = urllib.request.Request(f'{self.url}api/v1/{path}', headers={'Authorization': f'Bearer {self.token}'} if self.token else {})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.load(answer)

    def overview(self):
        self.browser.go(self.url, self.token)
        self.browser.shows('#state', 'serving')
        self.browser.until(lambda: self.browser.text('#totals'), 'the overview is drawn')

    def opened(self, name):
        self.browser.go(f'{self.url}#/export/{urllib.request.quote(name, safe="")}', self.token)
        self.browser.until(lambda: self.browser.run('return opened.name === arguments[0] && opened.map.name === opened.name && Boolean(opened.map.data && opened.history)', name), 'the map and the history are loaded')

    def cell(self, index):
        """The description and the colour of a cell of the map."""
        words = self.browser.run("""const map = opened.map; map.select(map.data.offset + arguments[0] * map.data.cell);
            map.draw(true); return document.getElementById('map-cell').textContent""", index)
        colour = self.browser.run("""const map = opened.map, [x, y] = map.placeOf(arguments[0]), scale = devicePixelRatio;
            const [red, green, blue] = map.canvas.getContext('2d').getImageData(Math.round((x + 1) * scale), Math.round((y + 1) * scale), 1, 1).data;
            return `rgb(${red}, ${green}, ${blue})`""", index)
        return words, colour

    def answer_dialog(self, button, **values):
        self.browser.click(button)
        for name, value in values.items():
            field = f'#dialog [name={name}]'
            if value is True:
                self.browser.click(field)
            elif isinstance(value, list):
                for each in value:
                    self.browser.click(f'{field}[value="{each}"]')
            elif self.browser.run('return document.querySelector(arguments[0]).matches("select")', field):
                self.browser.select(field, value)
            else:
                self.browser.enter(field, value)
        self.browser.click('#dialog-yes')

    def swatch(self, name):
        return self.browser.run('return getComputedStyle(document.querySelector(`#export .swatch.${arguments[0]}`)).backgroundColor', name)


class OfAnyServer:
    """The tests that every server passes. `device`: the one of its exports."""

    def test_numbers_are_those_of_the_api(self):
        self.begin()
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
        self.end()

    def test_map_shows_a_written_range_and_its_hole(self):
        self.begin()
        self.opened(DISK)
        self.assertEqual(self.browser.run('return opened.map.data.cells'), SIZE // PAGE)
        self.assertEqual(self.cell(5), (f'Page 5, 2 MiB at 10 MiB (offset 10\u202f485\u202f760): a hole', self.swatch('hole')))

        def lately():
            self.write(4 * PAGE, 2 * PAGE)
            self.browser.tick()
            return self.cell(5) == ('Page 5, 2 MiB at 10 MiB (offset 10\u202f485\u202f760): used, written in the last second', self.swatch('written'))
        self.browser.until(lately, lambda: f'page 5 has been written in the last second: {self.cell(5)}')
        self.settle()
        self.browser.until(lambda: 'written' not in self.cell(5)[0], 'one second has passed since the WRITE')
        self.assertTrue(self.cell(5)[0].endswith('): used'), self.cell(5))
        self.assertEqual([self.cell(index)[1] == self.swatch('used') for index in (3, 4, 5, 6)], [False, True, True, False])
        self.trim(5 * PAGE, PAGE)
        self.browser.until(lambda: self.cell(5)[0].endswith('): a hole'), 'page 5 is a hole, and one second has passed since the TRIM')
        self.assertEqual([self.cell(index)[1] for index in (4, 5)], [self.swatch('used'), self.swatch('hole')])
        self.end()

    def test_survives_a_restart_and_reports_it(self):
        self.begin()
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
        self.end()

    def test_names_are_text(self):
        self.begin()
        self.overview()
        self.assertIn(HOSTILE, self.browser.text('#exports'))
        self.browser.run("[...document.querySelectorAll('#exports a')].find((link) => link.textContent === arguments[0]).click()", HOSTILE)
        self.browser.shows('#export-name', HOSTILE)
        self.browser.until(lambda: self.browser.run('return Boolean(opened.map.data)'), 'the map is loaded')
        self.assertEqual(self.browser.run("return [...document.scripts].filter((script) => !script.src.startsWith(arguments[0])).length", self.url), 0)
        self.assertEqual(self.browser.driver.title, f'{HOSTILE} – gpunbd')
        self.end()

    def test_changes_need_a_confirmation(self):
        self.begin()
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
        self.end()

    def test_exports_are_created_resized_copied_and_removed(self):
        self.begin()
        self.write(0, PAGE)
        exports = lambda: {one['name']: one for one in self.api('exports')}
        self.overview()
        self.browser.click('#create-export')
        self.assertEqual(self.browser.run("return [...document.querySelectorAll('#dialog [name=devices]')].map((one) => one.value)"), [self.device], 'without spill memory')
        self.browser.click('#dialog-no')
        self.answer_dialog('#create-export', name='new', size='many', devices=[self.device])
        self.browser.shows('#dialog-error', "export.size: 'many'")
        self.browser.click('#dialog-no')
        self.answer_dialog('#create-export', name='new', size='32M', devices=[self.device], provision='full')
        self.browser.shows('#notices', "Export 'new' is created.")
        self.browser.shows('[data-export="new"]', '32 MiB')
        self.assertEqual([exports()['new'][of] for of in ('layout', 'provision')], ['linear', 'full'])
        self.assertEqual([memory['device'] for memory in exports()['new']['memory'] if not memory.get('home')], [self.device])
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
        self.end()
