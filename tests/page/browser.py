"""Headless Chromium with helpers for tests. problems() returns errors of the console and violations of the content security
policy."""
import atexit
import base64
import functools
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), 'integration'))
import server

SCREENSHOTS = os.path.join(os.environ.get('GPUNBD_BUILD', os.path.join(server.ROOT, 'build/release')), 'screenshots')
WATCH = """window.violations = [];
    document.addEventListener('securitypolicyviolation', (event) => violations.push(`${event.violatedDirective} ${event.blockedURI}`));"""


def need_browser():
    server.need('chromium', 'chromedriver')
    try:
        import selenium
    except ImportError:
        server.skip('the Python module selenium is missing (python3-selenium, for /usr/bin/python3)')
    return selenium


def driver_service():
    """Addresses chromedriver as 127.0.0.1. Selenium uses localhost, which cannot be resolved without /etc/hosts."""
    from selenium.webdriver.chrome.service import Service
    from selenium.webdriver.common import utils

    class ByAddress(Service):
        service_url = property(lambda self: f'http://127.0.0.1:{self.port}')

        def is_connectable(self):
            return utils.is_connectable(self.port, '127.0.0.1')
    return ByAddress('/usr/bin/chromedriver')


class Browser:
    def __init__(self):
        need_browser()
        from selenium import webdriver
        options = webdriver.ChromeOptions()
        options.binary_location = '/usr/bin/chromium'
        for argument in ('--headless=new', '--disable-gpu', '--disable-dev-shm-usage', '--force-prefers-reduced-motion',
                         '--no-first-run', '--disable-background-networking', '--disable-component-update',
                         '--remote-debugging-pipe'):  # otherwise chromedriver resolves localhost
            options.add_argument(argument)
        if os.geteuid() == 0:
            options.add_argument('--no-sandbox')
        options.set_capability('goog:loggingPrefs', {'browser': 'ALL'})
        self.driver = webdriver.Chrome(service=driver_service(), options=options)
        self.driver.execute_cdp_cmd('Page.addScriptToEvaluateOnNewDocument', {'source': WATCH})
        self.tokens = set()
        self.see()

    def see(self, width=1280, height=1000, scale=1, mobile=False):
        self.driver.execute_cdp_cmd('Emulation.setDeviceMetricsOverride',
                                    {'width': width, 'height': height, 'deviceScaleFactor': scale, 'mobile': mobile})

    def prefer(self, scheme):
        self.driver.execute_cdp_cmd('Emulation.setEmulatedMedia', {'features': [{'name': 'prefers-color-scheme', 'value': scheme}]})

    def open(self, url, token=None):
        """Loads the page."""
        origin = url.partition('#')[0]
        if token and (origin, token) not in self.tokens:  # as if the user had entered it before
            self.driver.execute_cdp_cmd('Page.addScriptToEvaluateOnNewDocument', {
                'source': f'if (location.href.startsWith({origin!r})) sessionStorage.token = {token!r};'})
            self.tokens.add((origin, token))
        if self.driver.current_url.partition('#')[0] == origin:
            self.driver.get('about:blank')  # otherwise an URL that differs only after # is not reloaded
        self.driver.get(url)

    def go(self, url, token=None):
        """Follows a link to the view, or loads the page if this server's page is not open."""
        origin, _, view = url.partition('#')
        if self.driver.current_url.partition('#')[0] != origin:
            return self.open(url, token)
        self.run('location.hash = arguments[0]', view or '/')

    def run(self, script, *arguments):
        return self.driver.execute_script(script, *arguments)

    def one(self, selector):
        return self.driver.find_element('css selector', selector)

    def text(self, selector):
        """The text of a visible element; '' if there is none."""
        return self.run("""const found = document.querySelector(arguments[0]);
            return found && found.checkVisibility() ? found.innerText : ''""", selector)

    def value(self, selector):
        return float(self.run('return document.querySelector(arguments[0]).value', selector))

    def values(self, selector):
        return [float(value) for value in self.run('return [...document.querySelectorAll(arguments[0])].map((one) => one.value)', selector)]

    def figure(self, label, within='totals'):
        return self.value(f'#{within} [data-figure="{label}"] data')

    def until(self, condition, what, seconds=60):
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                raise AssertionError(f'timed out waiting until {what() if callable(what) else what}; the page:\n{self.text("body")[:3000]}')
            time.sleep(0.03)

    def shows(self, selector, text):
        self.until(lambda: text in self.text(selector), lambda: f'{selector} shows {text!r} instead of {self.text(selector)!r}')

    def press(self, *keys):
        """Sends keys to the focused element."""
        from selenium.webdriver.common.action_chains import ActionChains
        ActionChains(self.driver, duration=0).send_keys(*keys).perform()

    def focused(self):
        return self.run('return document.activeElement.innerText || document.activeElement.id')

    def click(self, selector):
        """Clicks the centre of an element, which nothing may cover. chromedriver needs half a second for a click; tests of
        the mouse use it."""
        covered = self.run("""const one = document.querySelector(arguments[0]);
            one.scrollIntoView({block: 'nearest', behavior: 'instant'});
            const place = one.getBoundingClientRect(), top = document.elementFromPoint(place.x + place.width / 2, place.y + place.height / 2);
            if (!one.contains(top)) return String(top?.outerHTML);
            one.focus();
            one.click();""", selector)
        if covered is not None:
            raise AssertionError(f'{selector} cannot be clicked, because it is covered by {covered[:200]}')

    def enter(self, selector, text):
        """Replaces the text of a field."""
        self.run("""const field = document.querySelector(arguments[0]);
            field.focus();
            field.select();
            document.execCommand(arguments[1] ? 'insertText' : 'delete', false, arguments[1]);""", selector, text)

    def select(self, selector, value):
        self.run('''const list = document.querySelector(arguments[0]);
            list.value = arguments[1];
            for (const kind of ['input', 'change']) list.dispatchEvent(new Event(kind, {bubbles: true}));''', selector, value)

    def tick(self):
        """Waits until the next tick is drawn."""
        self.run("window.ticked = false; const put = take; take = (tick) => { put(tick); requestAnimationFrame(() => requestAnimationFrame(() => { ticked = true; })); take = put; };")
        self.until(lambda: self.run('return window.ticked'), 'the next tick has been drawn')

    def screenshot(self, name, height=None, path=None):
        """Saves a screenshot of the whole page, or of its upper part, in the build folder."""
        os.makedirs(SCREENSHOTS, exist_ok=True)
        width, all_of_it = self.run('return [document.documentElement.clientWidth, document.documentElement.scrollHeight]')
        shot = self.driver.execute_cdp_cmd('Page.captureScreenshot', {
            'format': 'png', 'captureBeyondViewport': True,
            'clip': {'x': 0, 'y': 0, 'width': width, 'height': height or all_of_it, 'scale': 1}})
        with open(path or os.path.join(SCREENSHOTS, f'{name}.png'), 'wb') as file:
            file.write(base64.b64decode(shot['data']))

    def problems(self):
        """Errors and warnings of the page, without network errors of a stopped server or a missing token."""
        messages = [entry['message'] for entry in self.driver.get_log('browser') if entry['level'] in ('SEVERE', 'WARNING')]
        expected = ('net::ERR_', 'status of 40', 'willReadFrequently')  # the last: a warning about getImageData() in the tests
        return [message for message in messages if not any(words in message for words in expected)] + (self.run('return window.violations') or [])

    def close(self):
        self.driver.quit()


@functools.cache
def shared():
    """The browser of all tests of this process. Its start takes as long as a few tests."""
    browser = Browser()
    atexit.register(browser.close)
    return browser
