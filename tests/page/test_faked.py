"""Tests of the page with simulated servers: a hundred exports, and all kinds of failures."""
import json
import os
import threading

import browser
import fake_admin
import server
import views
from admin import openapi
from fake_admin import GiB, MiB, TiB

browser.need_browser()
from selenium.webdriver.common.action_chains import ActionChains  # noqa: E402
from selenium.webdriver.common.keys import Keys  # noqa: E402


class Fake(views.Views):
    def show(self, admin):
        self.admin, self.url = admin, admin.url
        self.addCleanup(self.stop)
        return admin

    def still(self, *exports, **options):
        """A server that changes only when the test changes it, with ten ticks per second."""
        device = fake_admin.Device('cuda:0', 'NVIDIA H200', 80 * GiB, 9 * GiB, GiB)
        return self.show(fake_admin.FakeAdmin(list(exports), [device], moves=False, every=0.1, **options))

    def stop(self):
        if self.admin.running:
            self.admin.stop()


class SimulatedServer(Fake):
    def test_responses_match_openapi(self):
        import yaml
        from jsonschema import Draft202012Validator, RefResolver
        described = yaml.safe_load(openapi())
        for schema in described['components']['schemas'].values():
            schema.pop('required', None)  # a counter that the page does not show need not be simulated
        admin = self.show(fake_admin.a_machine())
        for path, query in (('status', ''), ('exports', ''), ('devices', ''), ('connections', ''), ('events', ''),
                            ('map', '?export=scratch&cells=64'), ('history', '?export=scratch'), ('history', '?export=scratch&seconds=3600'),
                            ('pages', '?export=scratch'), ('trends', ''), ('access', '')):
            schema = described['paths'][f'/{path}']['get']['responses']['200']['content']['application/json']['schema']
            Draft202012Validator(schema, resolver=RefResolver('', described)).validate(self.api(path + query))
        Draft202012Validator({'$ref': '#/components/schemas/Tick'}, resolver=RefResolver('', described)).validate(json.loads(json.dumps(admin.tick(0))))

    def test_the_page_is_small(self):
        self.assertLess(sum(file.stat().st_size for file in os.scandir(fake_admin.PAGE)), 112 * 1024)


class Hundred(Fake):
    def setUp(self):
        super().setUp()
        self.show(fake_admin.a_hundred(moves=False, every=0.2))
        self.overview()
        self.browser.shows('#exports-count', '100')

    def rows(self):
        return self.browser.run("return [...document.querySelectorAll('#exports .row')].map((row) => row.dataset.export)")

    def seen(self):
        """The names of the visible rows."""
        return self.browser.run("""const box = document.getElementById('exports-scroll').getBoundingClientRect(), head = document.querySelector('thead').offsetHeight;
            return [...document.querySelectorAll('#exports .row')].filter((row) => { const place = row.getBoundingClientRect();
                return place.top >= box.top + head - 1 && place.bottom <= box.bottom + 1; }).map((row) => row.dataset.export)""")

    def test_only_rows_in_view_are_drawn(self):
        self.assertEqual(self.rows()[0], 'volume-000')
        self.assertLess(len(self.rows()), 30)
        self.browser.run("document.getElementById('exports-scroll').scrollTop = 1e6")
        self.browser.until(lambda: self.seen()[-1:] == ['volume-099'], 'the last export is visible')
        self.assertLess(len(self.rows()), 30)
        self.assertEqual(self.browser.run("return document.querySelector('[data-export=\"volume-099\"]').getAttribute('aria-rowindex')"), '101')

    def test_search_and_sort(self):
        self.browser.enter('#search', 'volume-07')
        self.browser.shows('#exports-count', '10 of 100')
        self.assertEqual(self.rows(), [f'volume-07{digit}' for digit in range(10)])
        self.browser.enter('#search', 'nothing')
        self.browser.shows('#exports-none', 'No name or description contains')
        self.browser.enter('#search', ' ')
        self.browser.shows('#exports-count', '100')
        self.browser.click('[data-key=used] button')
        by_use = sorted(self.admin.exports, key=lambda export: (-export.used, export.name))
        self.browser.until(lambda: self.rows()[:5] == [export.name for export in by_use[:5]], 'the exports with the most memory come first')
        self.assertEqual(self.browser.run("return document.querySelector('[data-key=used]').getAttribute('aria-sort')"), 'descending')

    def test_by_keyboard_alone(self):
        self.browser.press('/')
        self.assertEqual(self.browser.focused(), 'search')
        self.browser.press(Keys.ARROW_DOWN)
        self.assertEqual(self.browser.focused(), 'volume-000')
        self.browser.press(Keys.ARROW_DOWN, Keys.ARROW_DOWN)
        self.assertEqual(self.browser.focused(), 'volume-002')
        self.browser.press(Keys.END)
        self.assertEqual(self.browser.focused(), 'volume-099')
        self.assertIn('volume-099', self.seen())
        self.browser.tick()
        self.assertEqual(self.browser.focused(), 'volume-099', 'a tick does not move the focus')
        self.browser.press(Keys.ENTER)
        self.browser.shows('#export-name', 'volume-099')
        self.assertEqual(self.browser.focused(), 'volume-099', 'the heading has the focus')

    def test_only_the_map_of_the_open_export_is_requested(self):
        self.browser.tick()
        self.assertNotIn('/api/v1/map', self.admin.requested)
        self.opened('volume-042')
        self.assertEqual(self.browser.run('return opened.map.data.cells * opened.map.data.cell'), TiB)
        self.assertLessEqual(self.browser.run('return opened.map.data.cells'), 16384)


class Map(Fake):
    def setUp(self):
        super().setUp()
        self.still(fake_admin.Export('disk', 8 * GiB), token=None)
        self.admin.export('disk').write(6 * GiB, 2 * MiB)
        self.opened('disk')

    def view(self):
        return self.browser.run('return [opened.map.offset, opened.map.length]')

    def wait_for_view(self, offset, length):
        self.browser.until(lambda: self.browser.run('return [opened.map.data.offset, opened.map.data.length]') == [offset, length],
                           lambda: f'the map shows {offset}, {length}; the view is {self.view()}')

    def test_keys_zoom_to_a_single_page(self):
        self.browser.run("document.getElementById('map').focus()")
        self.browser.press(Keys.HOME)
        self.assertIn('2 MiB at 0 B (offset 0): a hole', self.browser.text('#map-cell'))
        self.browser.press(Keys.ARROW_RIGHT)
        self.assertIn('2 MiB at 2 MiB (offset 2\u202f097\u202f152): a hole', self.browser.text('#map-cell'))
        self.browser.run('opened.map.select(arguments[0])', 6 * GiB)
        self.browser.shows('#map-cell', '2 MiB at 6 GiB (offset 6\u202f442\u202f450\u202f944): used')
        self.browser.shows('#map-cell', 'on cuda:0')
        for length in (GiB * 4, GiB * 2, GiB, 512 * MiB):
            self.browser.press('+')
            self.assertEqual(self.view()[1], length)
            self.wait_for_view(*self.view())
            self.assertIn('Page 3\u202f072, 2 MiB at 6 GiB', self.browser.text('#map-cell'))
        self.browser.press('+' * 12)
        self.wait_for_view(6 * GiB, 2 * MiB)
        self.assertIn('a cell is one page of 2 MiB', self.browser.text('#map-range'))
        self.assertTrue(self.browser.run("return document.getElementById('map-in').disabled"))
        self.browser.press(Keys.PAGE_UP)
        self.wait_for_view(6 * GiB - 2 * MiB, 2 * MiB)
        self.browser.press('0')
        self.wait_for_view(0, 8 * GiB)

    def test_the_selection_moves_beyond_the_view(self):
        self.browser.run("document.getElementById('map').focus(); opened.map.setRange(0, 64 * 2 ** 20)")
        self.wait_for_view(0, 64 * MiB)
        self.browser.press(Keys.END, Keys.ARROW_RIGHT)
        self.browser.shows('#map-cell', 'Page 32, 2 MiB at 64 MiB')
        self.assertGreater(self.view()[0], 0)

    def test_mouse_and_touch_zoom_and_move(self):
        canvas = self.browser.one('#map')
        self.browser.run("arguments[0].scrollIntoView({block: 'center'})", canvas)
        wheel = "arguments[0].dispatchEvent(new WheelEvent('wheel', {deltaY: -100, bubbles: true, cancelable: true, clientX: 500, clientY: 400}))"
        self.browser.run(wheel, canvas)
        self.assertEqual(self.view(), [0, 8 * GiB], 'the wheel scrolls the page before a click on the map')
        ActionChains(self.browser.driver, duration=0).move_to_element(canvas).click().perform()
        self.assertEqual(self.browser.focused(), 'map')
        self.browser.run(wheel, canvas)
        self.assertLess(self.view()[1], 6 * GiB)
        self.browser.run('opened.map.setRange(2 ** 32, 2 ** 30)')
        self.wait_for_view(4 * GiB, GiB)
        ActionChains(self.browser.driver, duration=0).move_to_element(canvas).click_and_hold().move_by_offset(90, 0).release().perform()
        self.assertLess(self.view()[0], 4 * GiB, 'dragging to the right shows lower offsets')
        self.browser.run('opened.map.setRange(2 ** 32, 2 ** 30)')
        x, y = self.browser.run('const box = arguments[0].getBoundingClientRect(); return [box.x + box.width / 2, box.y + box.height / 2]', canvas)
        for kind, apart in (('touchStart', 30), ('touchMove', 45), ('touchMove', 70)):
            self.browser.driver.execute_cdp_cmd('Input.dispatchTouchEvent', {'type': kind, 'touchPoints': [{'x': x - apart, 'y': y, 'id': 0}, {'x': x + apart, 'y': y, 'id': 1}]})
        self.browser.driver.execute_cdp_cmd('Input.dispatchTouchEvent', {'type': 'touchEnd', 'touchPoints': []})
        self.browser.until(lambda: self.view()[1] < 800 * MiB, lambda: f'a pinch zooms in: {self.view()}')

    def test_map_and_history_survive_a_resize(self):
        self.browser.see(360, 800, mobile=True)
        self.browser.until(lambda: self.browser.run('return opened.map.data.cells') == 1024, 'fewer cells on a phone')


class Devices(Fake):
    def test_segments_of_a_device(self):
        self.still(fake_admin.Export('disk', 8 * GiB), fake_admin.Export('other', 8 * GiB))
        self.admin.export('disk').write(0, GiB)
        self.admin.export('other').write(0, 2 * GiB)
        self.overview()
        parts = lambda: self.browser.run("return [...document.querySelectorAll('.parts > span')].map((part) => part.innerText)")
        self.assertEqual(parts(), ['other 2 GiB', 'disk 1 GiB', 'reserve 1 GiB', 'others 9 GiB', 'free 67 GiB'])
        widths = self.browser.run("return [...document.querySelectorAll('.bar i')].map((part) => Math.round(80 * part.offsetWidth / part.parentElement.offsetWidth))")
        self.assertEqual(widths, [2, 1, 1, 9])
        colours = """return [...document.querySelectorAll(arguments[0])].map((one) => getComputedStyle(one)).map(({backgroundColor, backgroundImage}) => backgroundColor + backgroundImage)"""
        segments, named, legend = (self.browser.run(colours, of) for of in ('.bar i', '.parts i', '#overview .legend i'))
        self.assertEqual(len(set(segments)), 4, 'each segment differs from its neighbours')
        self.assertEqual(named[:4], segments)
        self.assertEqual(legend, named, 'the legend explains all of them')
        self.assertIn('others: in use by other programs', self.browser.text('#overview .legend'))
        self.admin.devices[0].others = 78 * GiB  # the sum exceeds the total: no part is counted twice
        self.browser.until(lambda: parts()[2:] == ['reserve 1 GiB', 'others 76 GiB', 'free 0 B'], parts)

    def test_claims_of_a_device(self):
        self.still(fake_admin.Export('disk', 8 * GiB))
        self.overview()
        self.assertFalse(self.browser.one('.claims').is_displayed())
        self.admin.devices[0].claims = [{'id': 3, 'owner': 'uid 7', 'asked': None, 'bytes': GiB, 'age': 5, 'ends_in': 90}]
        self.browser.shows('.claims', 'Claim 3: 1 GiB given back, all asked, by uid 7 5 s ago, for 1 min 30 s more')

    def test_copies_and_staging_memory(self):
        self.still(fake_admin.Export('disk', 8 * GiB))
        self.overview()
        self.assertFalse(self.browser.text('.device table'))
        self.browser.run("document.querySelector('.device summary').click()")
        self.browser.shows('.device table', 'copy engine')
        self.assertEqual(self.browser.text('.device tbody tr').split('\t'), ['copy engine', 'read', '5', '5 MiB'])
        self.browser.shows('.device .staging', 'Staging memory: 3 MiB of 64 MiB in use, no waits')
        self.admin.devices[0].staging_waits = 7
        self.browser.shows('.device .staging', '7 waits')
        self.assertTrue(self.browser.text('.device table'), 'the table stays open')

    def test_refused_connections(self):
        self.still(fake_admin.Export('disk', 8 * GiB))
        self.admin.refused = {'connections_per_peer': 2, 'handshakes': 0}
        self.overview()
        self.browser.shows('#connection-counts [data-figure="Refused"]', 'connections per peer 2')
        self.assertNotIn('handshakes', self.browser.text('#connection-counts [data-figure="Refused"]'))
        self.assertEqual(self.browser.figure('Failed handshakes', 'connection-counts'), 0)
        self.admin.failed_handshakes = {'hung_up': 3, 'tls': 1}
        self.browser.shows('#connection-counts [data-figure="Failed handshakes"]', 'hung up 3, tls 1')
        self.assertEqual(self.browser.figure('Failed handshakes', 'connection-counts'), 4)


class Failures(Fake):
    def one(self, **options):
        return self.still(fake_admin.Export('disk', 8 * GiB, clients=2), **options)

    def test_requests_the_token(self):
        self.one(token='secret')
        self.browser.open(self.url)
        self.browser.shows('#dialog-title', 'Token required')
        for words in ('admin.tcp.token', '--admin-token', 'sudo cat FILE', 'make changes', 'Only this tab keeps it'):
            self.assertIn(words, self.browser.text('#dialog-text'))
        self.browser.enter('[name=token]', 'wrong')
        self.browser.click('#dialog-yes')
        self.browser.shows('#dialog-text', 'The server refuses that token.')
        self.browser.click('#dialog-no')
        self.browser.shows('#notices', 'The server requires a token.')
        self.browser.click('#notices button')
        self.browser.enter('[name=token]', 'secret')
        self.browser.click('#dialog-yes')
        self.browser.shows('#state', 'serving')
        self.assertEqual(self.browser.text('#notices'), '')
        self.assertEqual(self.browser.run('return [JSON.stringify(localStorage).includes("secret"), sessionStorage.token, document.cookie]'), [False, 'secret', ''])
        self.browser.driver.refresh()
        self.browser.shows('#state', 'serving')
        self.browser.run('sessionStorage.clear()')

    def test_no_buttons_without_permission_for_changes(self):
        self.one(steering=False)
        self.opened('disk')
        self.browser.until(lambda: self.browser.text('#changes') == 'Changes\n\nChanges are not allowed: this endpoint allows no changes.', 'the reason is shown')
        self.assertNotIn('Close', self.browser.text('#connections tbody'))
        self.assertEqual(self.browser.text('#log-level-label'), '')
        self.assertEqual(self.admin.posted, [])

    def test_buttons_disappear_after_a_refused_change(self):
        self.one()
        self.opened('disk')
        self.browser.shows('#connections', 'Close')
        self.admin.steering = False  # after the page has fetched its access
        self.browser.click('#connections tbody button')
        self.browser.click('#dialog-yes')
        self.browser.shows('#dialog-error', 'this endpoint allows no changes')
        self.browser.click('#dialog-no')
        self.browser.until(lambda: self.browser.text('#changes') == 'Changes\n\nChanges are not allowed: this endpoint allows no changes.' and 'Close' not in self.browser.text('#connections tbody'), 'the buttons disappear')
        self.assertEqual(self.admin.posted, [])

    def test_failed_requests_are_highlighted(self):
        self.one()
        self.overview()
        self.assertEqual(self.browser.figure('Failed requests'), 0)
        self.assertEqual(self.tile('Failed requests'), ('', self.colour('--ink')))
        self.assertEqual(self.health(), ('good', 'healthy'))
        self.admin.export('disk').fail(1, 266)
        self.browser.until(lambda: self.browser.figure('Failed requests') == 266, 'all are counted')
        self.assertEqual(self.tile('Failed requests'), ('1 export in the last minute', self.colour('--bad')))
        self.assertEqual(self.health(), ('bad', '1 export fails requests'))
        self.browser.shows('#exports [data-export="disk"] .errors', '266')
        self.assertEqual(self.browser.run("return document.querySelector('#exports .row .errors data').className"), 'error')
        self.opened('disk')
        self.browser.shows('#export-figures [data-figure="Failed"]', 'EINVAL 266')
        self.browser.shows('#requests [data-type="read"]', 'EINVAL 266')
        self.assertEqual(self.browser.values('#connections [data-connection="1"] data')[-1], 0)
        self.assertEqual(self.browser.values('#connections [data-connection="2"] data')[-1], 266)
        self.assertEqual(self.tile('Failed', 'export-figures'), ('EINVAL 266, in the last minute', self.colour('--bad')))
        self.admin.passed += 30
        self.browser.tick()
        self.assertEqual(self.health(), ('bad', '1 export fails requests'))
        self.admin.clock_set = -3600  # what happened when does not depend on the clock
        self.admin.passed += 31
        self.browser.tick()
        self.assertEqual(self.health(), ('good', 'healthy'))
        self.assertEqual(self.tile('Failed', 'export-figures'), ('EINVAL 266', self.colour('--ink')))
        self.overview()
        self.assertEqual(self.tile('Failed requests'), ('', self.colour('--ink')))
        self.assertEqual(self.browser.run("return document.querySelector('#exports .row .errors data').className"), '')

    def test_requests_to_an_origin_have_their_times(self):
        reads = {'operation': 'read', 'count': 9, 'p50': 0.0012, 'p99': 0.025, 'longest': 1.5}
        self.still(fake_admin.Export('disk', 8 * GiB, origins=[{'path': '/srv/a.img', 'requests': [reads]}]), fake_admin.Export('other', 8 * GiB))
        self.opened('disk')
        self.browser.until(lambda: self.browser.figure('Origin: read', 'export-figures') == 0.0012, 'the median')
        self.assertEqual(self.tile('Origin: read', 'export-figures')[0], 'median; 99th 25.0 ms, longest 1.50 s')
        self.opened('other')
        self.assertNotIn('Origin', self.browser.text('#export-figures'))

    def tile(self, label, within='totals'):
        """The text below the number of a tile, and the colour of the number."""
        return tuple(self.browser.run("""const tile = document.querySelector(arguments[0]), number = tile.querySelector('data');
            return [tile.querySelector('small').textContent, getComputedStyle(number).color]""", f'#{within} [data-figure="{label}"]'))

    def colour(self, name):
        return self.browser.run('return ink(arguments[0])', name.removeprefix('--'))

    def health(self):
        return self.browser.run("return document.getElementById('health').dataset.health"), self.browser.text('#health')

    def test_ages_and_rates_do_not_follow_the_clock(self):
        self.one()
        self.admin.started = self.admin.now() - 125
        self.admin.devices[0].claims = [{'id': 3, 'owner': 'uid 7', 'asked': None, 'bytes': GiB, 'age': 125, 'ends_in': 90}]
        tick = self.admin.tick

        def write_and_set_the_clock(after):
            self.admin.clock_set += 86400
            self.admin.export('disk').write(0, 2 * MiB)
            return tick(after)
        self.admin.tick = write_and_set_the_clock
        self.opened('disk')
        self.browser.tick()
        self.assertGreater(self.browser.figure('Writing', 'export-figures'), MiB)
        self.assertIn('2 min ', self.browser.text('#connections [data-connection="1"]'))
        self.overview()
        self.assertIn('by uid 7 2 min 5 s ago, for 1 min 30 s more', self.browser.text('.claims'))

    def test_stalled_clients_are_highlighted(self):
        self.one()
        self.overview()
        self.assertEqual(self.browser.text('#totals [data-figure="Connections"]').split('\n'), ['Connections', '2'])
        self.admin.export('disk').stalled[1] = 12.5
        self.browser.shows('#totals [data-figure="Connections"]', '1 stalled')
        self.assertEqual(self.health(), ('bad', '1 client stalled'))
        self.browser.shows('#exports [data-export="disk"]', '2, 1 stalled')
        self.opened('disk')
        self.browser.shows('#connections [data-connection="2"]', '192.0.2.2:40002, stalled for 12 s')
        self.assertNotIn('stalled', self.browser.text('#connections [data-connection="1"]'))
        self.admin.export('disk').stalled.clear()
        self.browser.until(lambda: 'stalled' not in self.browser.text('#connections'), 'the client reads its replies again')

    def test_every_value_of_an_export_is_visible_on_a_phone(self):
        self.still(fake_admin.Export('a-name-that-is-much-longer-than-the-width-of-a-phone', 8 * GiB, 0.3, clients=120, keep=True),
                   fake_admin.Export('base', 100 * GiB, keep=True, templates=[{'name': 'node', 'clones': 12, 'max': 200}]))
        long = self.admin.exports[0]
        long.read_only, long.failed = True, {1: 4}
        long.fail(1, 12345)
        long.stalled.update({client: 9 for client in range(12)})
        self.browser.see(400, 900, mobile=True)
        self.overview()
        for width in (400, 360):
            self.browser.see(width, 900, mobile=True)
            self.browser.tick()
            cut = self.browser.run("""return [...document.querySelectorAll('#exports .row :is(data, .tag)')].filter((one) => {
                const place = one.getBoundingClientRect(), cell = one.closest('td').getBoundingClientRect(), row = one.closest('tr').getBoundingClientRect();
                return !one.checkVisibility() || one.scrollWidth > one.clientWidth || place.right > Math.min(cell.right, innerWidth) + 1 || place.bottom > row.bottom;
            }).map((one) => one.outerHTML)""")
            self.assertEqual(cut, [], width)
            self.assertEqual(self.browser.run("return [...document.querySelectorAll('#exports .tag')].map((tag) => tag.textContent)"), ['read-only, kept', 'base of node: 12 of 200 clones, kept'])
            self.assertIn('120, 12 stalled', self.browser.text('#exports'))
            self.assertIn('12\u202f345', self.browser.text('#exports'))
            self.assertEqual(self.browser.run('return document.documentElement.scrollWidth'), width)
            self.browser.screenshot(f'exports-{width}')

    def test_limits_name_the_clients_that_share_them(self):
        self.still(fake_admin.Export('disk', 8 * GiB, rates_per_peer={'bytes_per_second': None, 'iops': 300, 'burst': 1}))
        self.admin.export('disk').rates = {'bytes_per_second': 4 * MiB, 'iops': None, 'burst': 1}
        self.opened('disk')
        self.browser.shows('#export-about', 'at most 4.00 MiB/s for all clients together · at most 300 requests per second for each client')

    def test_a_version_without_a_commit(self):
        self.one()
        status = self.admin.status
        self.admin.status = lambda: {**status(), 'process': {**status()['process'], 'commit': ''}}
        self.overview()
        self.browser.shows('#process', '0.1.0, Release')
        self.assertNotIn('()', self.browser.text('#process'))

    def test_an_export_is_created_as_chosen(self):
        self.one()
        self.overview()
        self.answer_dialog('#create-export', name='new', size='8M', devices=['cuda:0'], others='cuda:1, host', layout='stripe', persist=True)
        self.browser.shows('#notices', "Export 'new' is created.")
        self.assertEqual(self.admin.posted, [('exports/create', {'export': {'name': 'new', 'size': '8M', 'layout': 'stripe', 'provision': 'thin', 'devices': ['cuda:0', 'cuda:1', 'host']}, 'persist': True})])

    def test_closes_a_connection(self):
        self.one()
        self.opened('disk')
        self.browser.until(lambda: len(self.browser.run("return [...document.querySelectorAll('#connections tbody tr')]")) == 2, 'two clients are connected')
        self.browser.click('#connections [data-connection="2"] button')
        self.browser.shows('#dialog-text', 'Disconnects 192.0.2.2:40002')
        self.browser.click('#dialog-yes')
        self.browser.shows('#notices', 'connection 2 is closed')
        self.browser.until(lambda: '192.0.2.2' not in self.browser.text('#connections'), 'the client is gone')
        self.assertEqual(self.admin.posted, [('connections/end', {'id': 2})])

    def test_no_restart_notice_when_the_same_server_returns(self):
        self.one()
        self.overview()
        self.admin.stop()
        self.browser.shows('#notices', 'has not answered since')
        self.admin.start()
        self.browser.shows('#state', 'serving')
        self.browser.tick()
        self.assertEqual(self.browser.text('#notices'), '')

    def test_a_hung_server_is_reported(self):
        self.resumed = threading.Event()
        self.one()
        self.overview()
        self.browser.run('const wait = setTimeout; window.setTimeout = (act, time) => wait(act, time / 6)')
        self.browser.tick()  # so that the page waits a sixth as long for the next one
        tick, self.admin.tick = self.admin.tick, lambda after: self.resumed.wait() and tick(after)
        self.addCleanup(self.resumed.set)
        self.browser.shows('#notices', 'has not answered since')
        self.resumed.set()
        self.browser.until(lambda: not self.browser.text('#notices'), 'the server responds again')

    def test_invalid_responses_are_reported(self):
        self.one()
        self.overview()
        self.admin.tick = None  # each response is truncated
        self.browser.shows('#notices', 'has not answered since')
        del self.admin.tick
        self.browser.until(lambda: not self.browser.text('#notices'), 'the server responds again')

    def test_an_unknown_export(self):
        self.one()
        self.browser.open(f'{self.url}#/export/none')
        self.browser.shows('#export-about', 'No export has this name.')
        self.assertEqual(self.browser.text('#export section'), '')

    def test_the_export_without_a_name(self):
        self.still(fake_admin.Export('', 3 * MiB, page_size=2 * MiB))
        self.overview()
        self.browser.shows('#exports tbody', '(no name)')
        self.browser.click('#exports tbody a')
        self.browser.shows('#export-name', '(no name)')
        self.browser.shows('#map-cell', '0 of 2 cells are in use.')
        self.assertIn('a hole', self.cell(1)[0])
        self.assertTrue(self.cell(1)[0].startswith('Page 1, 1 MiB at 2 MiB'), 'the last page is shorter')

    def test_more_connections_than_are_listed(self):
        self.still(fake_admin.Export('disk', 8 * GiB, clients=300))
        self.opened('disk')
        self.browser.shows('#connections-none', '44 less active connections are not listed.')
        self.assertEqual(self.browser.text('#connections-count'), '300')

    def test_failed_devices_long_work_and_states(self):
        self.one()
        self.admin.devices[0].failed = True
        self.admin.state = 'draining'
        self.admin.progress = [{'what': 'provisioning', 'of': 'disk', 'done': 2 * GiB, 'total': 8 * GiB, 'unit': 'bytes'},
                               {'what': 'draining', 'of': '', 'done': 1, 'total': 0, 'unit': 'connections'}]
        self.browser.open(self.url)
        self.browser.shows('#state', 'draining')
        self.browser.shows('#devices', 'failed: what only it has is EIO')
        self.assertEqual(self.health(), ('bad', '1 device has failed'))
        self.browser.shows('#works', 'provisioning disk')
        self.assertEqual(self.browser.run("const bar = document.querySelector('progress'); return bar.value / bar.max"), 0.25)
        self.assertIn('2 GiB of 8 GiB', self.browser.text('#works'))
        self.assertIn('1 connection', self.browser.text('#works'))
        self.admin.progress = []
        self.browser.until(lambda: not self.browser.text('#progress'), 'no work is in progress')

    def test_events(self):
        self.one()
        self.admin.say('debug', 'a round has ended')
        self.admin.say('info', f'{views.HOSTILE} has connected')
        self.admin.say('error', 'no memory for a write: ENOSPC')
        self.overview()
        self.browser.shows('#events', 'ENOSPC')
        self.assertIn(f'{views.HOSTILE} has connected', self.browser.text('#events'))
        self.assertNotIn('a round', self.browser.text('#events'))
        self.browser.run("const level = document.getElementById('level'); level.value = '4'; level.dispatchEvent(new Event('change'))")
        self.browser.until(lambda: 'has connected' not in self.browser.text('#events'), 'only errors are shown')
        self.admin.say('error', 'another one')
        self.browser.shows('#events', 'another one')
        self.assertTrue(self.browser.text('#events li').endswith('another one'), 'the newest event comes first')
        self.assertEqual(self.rows_of_events(), 2, 'each event is shown once')

    def rows_of_events(self):
        return self.browser.run("return document.querySelectorAll('#events li').length")

    def test_equal_events_are_grouped(self):
        self.one()
        self.admin.say('error', 'no memory')
        for _ in range(3):
            self.admin.passed += 60
            self.admin.say('error', 'a copy failed')
        self.admin.say('warning', 'a copy failed')
        self.overview()
        self.browser.until(lambda: self.rows_of_events() == 3, 'equal events are in one row')
        self.assertRegex(self.browser.text('#events li:nth-child(2)'), r'a copy failed\n3 times, \d\d:\d\d:\d\d \u2013 \d\d:\d\d:\d\d$')
        self.assertTrue(self.browser.text('#events li:nth-child(3)').endswith('no memory'))
        self.browser.click('#events li:nth-child(2) summary')
        self.browser.until(lambda: self.browser.text('#events li:nth-child(2) details p').count(':') == 6, 'the three times are shown')
        self.browser.select('#level', '4')
        self.browser.until(lambda: self.rows_of_events() == 2, 'the warning is hidden')
        self.admin.say('error', 'a copy failed')
        self.browser.shows('#events li', '4 times')
        self.assertEqual(self.browser.text('#events li details p').count(':'), 8, 'the row stays unfolded')


class Looks(Fake):
    """Tests of the layout of all views, with a screenshot of each."""

    def machine(self):
        return self.show(fake_admin.a_machine(every=0.1))

    def assert_fits(self):
        self.assertEqual(self.browser.run('return document.documentElement.scrollWidth'), self.browser.run('return document.documentElement.clientWidth'))
        beyond = self.browser.run("""return [...document.querySelectorAll('main *, header *')].filter((one) => one.checkVisibility() && !one.closest('.scroll-x, .bar, .hidden, svg')
            && one.getBoundingClientRect().right > innerWidth + 1).map((one) => one.outerHTML.slice(0, 90))""")
        self.assertEqual(beyond, [])

    def a_minute(self):
        self.browser.until(lambda: self.browser.run('return Math.max(0, ...[...state.trends.values()].map((trend) => trend.length))') == 60, 'a minute has passed')

    def test_screenshots(self):
        admin = self.machine()
        for scheme in ('light', 'dark'):
            self.browser.prefer(scheme)
            self.browser.see(1280, 1380)
            self.overview()
            self.a_minute()
            self.browser.run("document.querySelector('.device summary').click()")
            self.browser.tick()
            self.assert_fits()
            self.browser.screenshot(f'overview-{scheme}')
            self.browser.see(1280, 1000)
            self.opened('scratch')
            self.browser.tick()
            self.browser.tick()
            self.assert_fits()
            self.browser.screenshot(f'export-{scheme}')
        self.browser.prefer('light')
        for name, path, height in (('phone', '', 1700), ('phone-export', '#/export/scratch', 2800)):
            self.browser.see(360, height, mobile=True)
            self.browser.go(self.url + path)
            self.browser.tick()
            self.browser.tick()
            self.assert_fits()
            self.browser.screenshot(name)
        self.browser.see(1280, 800)
        self.overview()
        admin.stop()
        self.browser.shows('#state', 'does not answer')
        self.browser.screenshot('gone')
        self.assertEqual(self.browser.problems(), [])  # before the next page
        self.show(fake_admin.a_hundred(history=60, every=0.1))
        self.browser.see(1280, 1300)
        self.overview()
        self.a_minute()
        self.browser.screenshot('hundred')

    def test_the_theme_is_saved(self):
        self.machine()
        ground = lambda: self.browser.run('return getComputedStyle(document.documentElement).backgroundColor')
        light, dark = 'rgb(246, 247, 248)', 'rgb(15, 19, 23)'
        self.overview()
        self.assertEqual(ground(), light)
        self.browser.prefer('dark')
        self.assertEqual(ground(), dark)
        self.browser.run("const theme = document.getElementById('theme'); theme.value = 'light'; theme.dispatchEvent(new Event('change'))")
        self.assertEqual(ground(), light)
        self.browser.driver.refresh()
        self.assertEqual(ground(), light)
        self.browser.run('localStorage.clear()')

    def test_colours_are_distinguishable(self):
        self.machine()

        def luminance(name):
            parts = self.browser.run("return ink(arguments[0]).match(/[\\d.]+/g).map(Number)", name)[:3]
            red, green, blue = (part / 255 / 12.92 if part <= 10 else ((part / 255 + 0.055) / 1.055) ** 2.4 for part in parts)
            return 0.2126 * red + 0.7152 * green + 0.0722 * blue

        def contrast(one, other):
            low, high = sorted((luminance(one), luminance(other)))
            return (high + 0.05) / (low + 0.05)
        for scheme in ('light', 'dark'):
            self.browser.prefer(scheme)
            self.overview()
            for text in ('ink', 'quiet', 'accent', 'second', 'bad'):
                for ground in ('panel', 'ground'):
                    self.assertGreaterEqual(contrast(text, ground), 4.5, (scheme, text, ground))
            steps = ['hole', 'part', 'used', 'written']
            for one, other in zip(steps, steps[1:]):
                self.assertGreaterEqual(contrast(one, other), 1.2, (scheme, one, other))
            for one in steps:
                self.assertGreaterEqual(contrast('read', one), 1.6, (scheme, one))
            self.assertGreaterEqual(contrast('used', 'hole'), 2, scheme)
            self.assertGreaterEqual(contrast('written', 'used'), 2, scheme)

    def test_all_elements_have_accessible_names(self):
        self.machine()
        for path in ('', '#/export/scratch'):
            self.browser.go(self.url + path)
            self.browser.shows('#state', 'serving')
            self.browser.tick()
            self.browser.tick()
            tree = self.browser.driver.execute_cdp_cmd('Accessibility.getFullAXTree', {})['nodes']
            nodes = [(node['role']['value'], node.get('name', {}).get('value', '')) for node in tree if not node['ignored']]
            spoken = ('button', 'link', 'textbox', 'searchbox', 'combobox', 'image', 'img', 'application', 'region', 'table', 'progressbar')
            self.assertEqual([node for node in nodes if node[0] in spoken and not node[1] and node[0] != 'table'], [])
            roles = [role for role, _ in nodes]
            for landmark in ('banner', 'main', 'region', 'status'):
                self.assertIn(landmark, roles)
            self.assertEqual(self.browser.run("""const ids = [...document.querySelectorAll('[id]')].map((one) => one.id);
                return ids.filter((id, index) => ids.indexOf(id) !== index)"""), [])
            heads = self.browser.run("return [...document.querySelectorAll('thead th')].filter((head) => !head.textContent.trim() || head.scope !== 'col').length")
            self.assertEqual(heads, 0)

    def choose_minutes(self, minutes):
        self.browser.select('#minutes', str(minutes))
        self.browser.until(lambda: self.browser.run('return opened.history !== null && opened.minutes') == minutes, 'the history is loaded')

    def test_a_new_page_shows_the_history_of_the_server(self):
        """Checks a minute, ten minutes, and an hour. In the hour each value covers ten seconds."""
        admin = self.machine()
        admin.moves, admin.every = False, 0.5
        self.overview()
        self.browser.until(lambda: self.browser.run("return state.trends.get('scratch')?.length") == 60, 'the last minute is loaded')
        self.opened('scratch')
        for minutes, count, words in ((1, 60, 'minute'), (10, 600, '10 minutes'), (60, 360, 'hour')):
            self.choose_minutes(minutes)
            history = self.api(f'history?export=scratch&seconds={60 * minutes}')
            self.assertEqual(self.browser.run('return opened.history.read_bytes.length'), count)
            self.browser.shows('#throughput-text', f'Highest in the last {words}: ')
            self.browser.run("document.getElementById('throughput').focus()")
            self.browser.press(Keys.HOME)
            oldest = [history[name][0] / history['step'] for name in ('read_bytes', 'written_bytes')]
            shown = self.browser.run('return arguments[0].map(rate)', oldest)
            self.browser.until(lambda: self.browser.text('#throughput-text').endswith(f': read {shown[0]}, written {shown[1]}'),
                               lambda: f'{shown}: {self.browser.text("#throughput-text")}')
            self.assertRegex(self.browser.text('#throughput-text'), r'^\d\d:\d\d:\d\d: read ')
            self.browser.press(Keys.ESCAPE)
            self.browser.screenshot(f'export-{minutes}-minutes')

    def test_latencies_follow_each_second(self):
        self.machine()
        self.opened('scratch')
        self.assertIn('Time in the server', self.browser.text('[aria-labelledby="latency-title"] .help'))
        self.choose_minutes(1)
        self.browser.until(lambda: self.browser.run('return opened.history.read_p99.length === 60 && opened.history.read_p99.every((one) => one > 0)'), 'no value is missing')
        for _ in range(7):
            self.browser.tick()
            self.assertTrue(self.browser.run('return opened.history.read_p99.at(-1) > 0'))
            self.assertTrue(self.browser.run(
                'const {longest, longest_waits: waits} = opened.history;'
                'return longest.length === 60 && longest.at(-1) > 0 && waits.device.length === 60 && waits.device.at(-1) > waits.queue.at(-1)'))
        self.assertRegex(self.browser.text('#longest-text'), r'^Highest in the last minute: total [0-9.]+ .s, queue .*, device [0-9.]+ .s, ')

    def test_seconds_without_a_tick_are_fetched(self):
        """They do not repeat the last rate."""
        self.machine()
        self.opened('scratch')
        self.choose_minutes(1)
        self.browser.until(lambda: self.browser.run("return opened.history.read_bytes.length === 60 && state.rates.has('scratch')"), 'the rates are known')
        lengths = self.browser.run("""
            const {history} = opened;
            for (const values of Object.values(history)) if (Array.isArray(values)) values.splice(-20);
            history.end -= 20;
            opened.continueHistory();
            return [history, opened.history].map((each) => each.read_bytes.length);""")
        self.assertEqual(lengths, [40, 40])
        self.browser.until(lambda: self.browser.run('return opened.history.read_bytes.length') == 60, 'the history is complete')
        self.assertGreater(self.browser.run('return new Set(opened.history.read_bytes.slice(-20)).size'), 15)


if __name__ == '__main__':
    server.main()
