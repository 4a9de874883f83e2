"""The page in a browser, for tests with real and simulated servers."""
import json
import urllib.request

import browser
import server

HOSTILE = '<script>alert(1)</script>'


class Views(server.Test):
    """Derived classes define `url`, and `token` if the server needs one."""
    token = None

    @classmethod
    def setUpClass(cls):
        cls.browser = browser.shared()

    def setUp(self):
        self.browser.see()
        self.browser.prefer('light')

    def tearDown(self):
        """The page had no errors. A cleanup would check it after others have stopped the server."""
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
