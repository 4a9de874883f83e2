"""A QEMU guest that a test controls while it runs: by lines on its console, and by QEMU's QMP."""
import json
import os
import re
import socket
import subprocess
import sys
import threading

import test_kernel_client as guest
import server


class RunningGuest:
    """Its init reads lines from the console, and prints messages that the test waits for."""

    def __init__(self, test, initramfs, **options):
        control = os.path.join(test.directory(), 'qmp')
        command = guest.machine(test, initramfs, **options) + ['-qmp', f'unix:{control},server=on,wait=off']
        self.test = test
        self.console = ''
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                        preexec_fn=server.die_with_parent)
        self.listener = threading.Thread(target=self.listen, daemon=True)
        self.listener.start()
        server.wait_until(lambda: 'init has started' in self.console or self.ended(), 300, 'the init of the guest')
        test.addCleanup(self.end)
        self.qmp = socket.socket(socket.AF_UNIX)
        server.wait_until(lambda: self.ended() or self.connected(control), 60, 'QEMU')
        self.answers = self.qmp.makefile('r', encoding='utf-8')
        self.events = []
        self.message()  # the greeting
        self.execute('qmp_capabilities')

    def connected(self, control):
        return self.qmp.connect_ex(control) == 0

    def listen(self):
        for line in self.process.stdout:
            self.console += line.decode(errors='replace')

    def ended(self):
        """Whether the guest has ended. Then the console contains all of its output."""
        if self.process.poll() is None:
            return False
        self.listener.join()
        return True

    def wait_for(self, text, count=1, seconds=500):
        """Waits until the guest has printed `text` `count` times. Fails as soon as the guest reports a failure."""
        def there():
            return self.console.count(text) >= count or self.ended() or re.search('RESULT .* failed', self.console)
        server.wait_until(there, seconds, lambda: f'{text!r} from the guest:\n{self.console[-4000:]}')
        if self.console.count(text) < count:
            raise AssertionError(f'the guest did not print {text!r}:\n{self.console[-4000:]}')

    def say(self, line):
        self.process.stdin.write(f'{line}\n'.encode())
        self.process.stdin.flush()

    def wait_for_more(self, text, more=3):
        """Waits until the guest has printed `text` that many times more."""
        self.wait_for(text, self.console.count(text) + more)

    def message(self):
        line = self.answers.readline()
        assert line, f'QEMU has ended: {self.console[-4000:]}'
        return json.loads(line)

    def execute(self, command, **arguments):
        self.send({'execute': command, 'arguments': arguments})

    def send(self, command):
        """Sends a complete QMP command. Raises an exception if QEMU returns an error."""
        self.qmp.sendall(json.dumps(command).encode())
        while 'return' not in (message := self.message()):
            if 'error' in message:
                raise AssertionError(f'{command}: {message["error"]["desc"]}')
            self.events.append(message)

    def wait_for_event(self, name):
        while not any(event['event'] == name for event in self.events):
            self.events.append(self.message())

    def results(self, seconds=300):
        """The results that the guest printed, after it has powered off."""
        server.wait_until(self.ended, seconds, lambda: f'the guest to power off:\n{self.console[-4000:]}')
        results = re.findall(r'RESULT ([^\r\n]*)', self.console)
        if not all(result.endswith(' ok') for result in results):
            print(self.console[-12000:], file=sys.stderr)
        return results

    def kill(self):
        self.process.kill()
        self.process.wait()

    def end(self):
        self.kill()
        self.process.stdin.close()
        self.qmp.close()
