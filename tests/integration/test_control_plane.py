"""A model test of the control plane: random sequences of changes of a server's exports, and a model of what must be true
after each step. The model states rules, not how the server keeps them:

    contents     each export has the bytes that were written to it, also after an end of the server
    restored     a restored export has the contents of the file, whatever had its name before
    interrupted  an export whose restore did not end is never served with a part of the contents
    torn         a snapshot or clone of an export that is being restored is refused or complete
    open         clients cannot open an export that is being restored, whatever else is refused meanwhile
    exports      the exports are those of the model, with their sizes
    left over    memory without an export belongs to contents that `kept` lists; an explicit removal frees memory
    claims       the server lists each claim until the claim is ended or its time has passed
    memory       a page is counted once on its device, also of contents without an export; an export's own pages are those
                 that no other contents have
    answer       what cannot fail is not refused, and what must be refused is
    server       the server and its keeper run, and end when they are to

test_control_plane.py --seed 7 repeats sequence 7 and prints its steps, --sequences 5000 runs as many. Sequences are as
repeatable as processes are: an answer that the server gives late may come before or after the next step."""
import argparse
import errno
import os
import random
import shutil
import signal
import sys
import time
import traceback
import unittest

import admin
import held_calls
import kept
import server
import wire
from server import KiB, MiB

PAGE = 64 * KiB
HOLE = bytes(PAGE)
BUFFER = memoryview(bytearray(8 * MiB))  # for the contents of an export
RULES = ('contents', 'restored', 'interrupted', 'torn', 'open', 'exports', 'left over', 'claims', 'memory', 'answer', 'server')
NAMES = ('a', 'b', 'c', 'd', 'extra')
SIZES = (MiB, MiB, 2 * MiB)
CONFIG = '''
listeners: {unix: [{path: '{socket}'}]}
admin: {socket: '{directory}/admin'}
state: '{directory}/state'
threads: 1
keeping: {grace: 3600}
DEVICES
exports:
  - {name: base, size: 1M, page_size: 64K, devices: [host], keep: KEEP}
  - {name: node, clone_per_client: {of: base, name: machine, max: 40}}
'''
EXTRA = '  - {name: extra, size: 1M, page_size: 64K, devices: [host], keep: KEEP}\n'
SPILL = "devices: [{id: host, spill: [{file: '{directory}/spill', size: 8M}]}]"

OPTIONS = argparse.Namespace(first=0, sequences=6 if server.SANITIZED else 200, seed=None, steps=12, rules=RULES, patience=60,
                             verbose=False)


class Violation(AssertionError):
    def __init__(self, rule, text):
        super().__init__(f'{rule}: {text}')
        self.rule = rule


def fail(rule, text):
    if rule in OPTIONS.rules:
        raise Violation(rule, text)


class Export:
    """What an export must be. A page is a bytes object or None, a hole; exports that share a page have the same object."""

    def __init__(self, size, pages=None, rule='contents', **keys):
        self.size, self.rule = size, rule
        self.pages = list(pages or []) + [None] * (size // PAGE - len(pages or []))
        self.keep = self.read_only = self.run_time = self.persistent = self.is_clone = False
        self.restored_from = None  # the file of the key `restore`
        self.configured_size = size
        self.made_by = None        # the template
        self.__dict__.update(keys)

    def copy(self, **keys):
        return Export(**{**self.__dict__, **keys})

    def difference(self, data):
        """The number of the first page that differs; None: there is none."""
        return next((number for number, page in enumerate(self.pages)
                     if bytes(data[number * PAGE:(number + 1) * PAGE]) != (page or HOLE)), None)

    def used(self):
        return sum(page is not None for page in self.pages)


class Sequence:
    def __init__(self, seed):
        self.seed = seed
        self.dice = random.Random(seed)
        self.number = 0  # of patterns
        self.steps = []
        self.one = None
        self.keeps = self.dice.random() < 0.75
        self.exports, self.grace, self.templates, self.files = {}, {}, {}, {}
        self.doubt = {}    # name: what it may be, Export or None; the next check decides
        self.unsure = {}   # name: what contents without an export may be, if there are any; likewise
        self.again = None  # the arguments of a restore that was interrupted
        self.claims = {}     # id: when it ends, or None
        self.refused = set()  # exports that the server knows and cannot offer
        self.closed = set()  # exports that clients cannot open for now
        self.has_extra = self.dice.random() < 0.5
        self.exports['base'] = Export(MiB, keep=self.keeps)
        self.templates['node'] = 'base'
        if self.has_extra:
            self.exports['extra'] = Export(MiB, keep=self.keeps)

    # --- the server

    def start(self):
        self.one = kept.Kept(config=self.config(), before=self.observed())
        if not self.calls.works:
            server.skip('the kernel does not let a process decide about the system calls of another one')
        self.admin = f'{self.one.directory}/admin'
        for name in ('one', 'two'):
            self.write_image(name, self.dice.choice(SIZES))

    def observed(self):
        """What a new process does before it executes the keeper."""
        self.calls = calls = held_calls.HeldCalls()
        calls.start()

        def before():
            server.die_with_parent()
            calls.install()
        return before

    def config(self):
        text = CONFIG + (EXTRA if self.has_extra else '')
        return text.replace('KEEP', str(self.keeps).lower()).replace('DEVICES', '' if self.keeps else SPILL)

    def say(self, text):
        self.steps.append(text)
        if OPTIONS.verbose:
            print(f'  {text}', flush=True)

    def page(self):
        self.number += 1
        return (self.seed * 1000003 + self.number).to_bytes(8, 'big') * (PAGE // 8)

    def write_image(self, name, size):
        path = f'{self.one.directory}/{name}.img'
        pages = [self.page() if self.dice.random() < 0.4 else None for _ in range(size // PAGE)]
        pages[self.dice.randrange(len(pages))] = self.page()
        with open(path, 'wb') as file:
            for number, page in enumerate(pages):
                if page:
                    file.seek(number * PAGE)
                    file.write(page)
            file.truncate(size)
        self.files[path] = pages

    def post(self, path, **body):
        """(whether it is done, the reason why not)"""
        status, answer = admin.request(self.admin, f'/api/v1/{path}', body)
        return self.outcome(status, answer)

    @staticmethod
    def outcome(status, answer):
        if status not in (200, 400, 404, 409):
            raise Violation('answer', f'{status} {answer}')
        return status == 200, answer.get('error') or answer.get('done') or answer

    def get(self, path):
        return admin.request(self.admin, f'/api/v1/{path}')[1]

    def open(self, name):
        """A connection, or the refusal."""
        client = wire.Wire(self.one.path)
        try:
            client.greet()
            client.go(name)
            return client
        except wire.Refused as refusal:
            client.close()
            return refusal

    def opened(self, name):
        """A connection. The next server may have to restore an export before it opens it."""
        connections = []

        def is_open():
            connections.append(self.open(name))
            return isinstance(connections[-1], wire.Wire)
        self.until('open', is_open, lambda: f'{name} is refused: {connections[-1].args}')
        if not isinstance(connections[-1], wire.Wire):
            raise Violation('open', f'{name} is refused: {connections[-1].args}')
        return connections[-1]

    @staticmethod
    def contents(client):
        """All of an export, and the end of the connection."""
        client.simple_success(client.request(wire.READ, 0, client.size))
        data, have = BUFFER[:client.size], 0
        while have < len(data):
            got = client.socket.recv_into(data[have:])
            if not got:
                raise Violation('contents', f'the server closes the connection after {have} bytes')
            have += got
        client.disconnect()
        return data

    # --- the rules

    def until(self, rule, condition, text):
        """A rule that holds soon, because the server frees memory in other threads."""
        if rule not in OPTIONS.rules:
            return condition()
        end = time.monotonic() + OPTIONS.patience
        while not condition():
            if time.monotonic() > end:
                return fail(rule, text())
            time.sleep(0.002)
        return True

    def check(self):
        if self.one.process.poll() is not None:
            raise Violation('server', 'the keeper has ended')
        # The server tries exports again that it could not restore, and lists them until that fails.
        listed = {each['name']: each for each in self.get('exports') if each['name'] not in self.refused}
        for name, candidates in self.doubt.items():
            self.decide(name, candidates, listed.get(name))
        self.doubt.clear()
        if set(listed) - self.closed != set(self.exports) - self.closed:
            raise Violation('exports', f'they are {sorted(listed)}, not {sorted(self.exports)}')
        self.check_list()
        for name, export in self.exports.items():
            if name in self.closed and name not in listed:
                continue  # a new one is made when its restore ends, or before
            if listed[name]['size'] != export.size:
                raise Violation('exports', f'{name} has {listed[name]["size"]} bytes, not {export.size}')
            if name not in self.closed:
                self.check_contents(name, export)
        if self.closed:
            return  # the server lists kept contents when it has made exports
        self.check_kept()
        self.check_claims()
        self.until('memory', self.memory_is_right, lambda: self.wrong)

    def check_list(self):
        """Clients are not shown the names of other clients' clones."""
        with wire.Wire(self.one.path) as client:
            client.greet()
            names = set(client.listed()) - self.closed - self.refused
        expected = {name for name, each in self.exports.items() if not each.made_by} - self.closed
        if names != expected:
            raise Violation('exports', f'clients see {sorted(names)}, not {sorted(expected)}')

    def check_contents(self, name, export):
        with self.opened(name) as client:
            if client.size != export.size:
                raise Violation('exports', f'a client sees {client.size} bytes of {name}, not {export.size}')
            self.compare(name, export, self.contents(client))

    def compare(self, name, export, data):
        number = export.difference(data)
        if number is not None:
            raise Violation(export.rule, f'page {number} of {name} begins with {data[number * PAGE:][:8].hex()}, '
                                         f'not {(export.pages[number] or HOLE)[:8].hex()}')

    def decide(self, name, candidates, listed):
        """Finds out which of several outcomes a change had that was interrupted."""
        if listed is None:
            if None not in candidates:
                raise Violation('exports', f'{name} is lost')
            self.exports.pop(name, None)
            return
        with self.opened(name) as client:
            data = self.contents(client)
        left = [each for each in candidates if each is not None and each.size == listed['size']]
        for each in left:
            if each.difference(data) is None:
                self.exports[name] = each.copy(rule='contents')
                return
        if not left:
            raise Violation('exports', f'{name} has {listed["size"]} bytes')
        self.compare(name, max(left, key=Export.used), data)

    def check_kept(self):
        if not self.keeps:
            return
        used = {name for name, each in self.exports.items() if each.keep}

        def are_right():
            rows = self.get('kept')['kept']
            in_use = ('in use', 'being restored')
            self.used = {each['name'] for each in rows if each['state'] in in_use}
            self.left = {each['name'] for each in rows if each['state'] not in in_use} - self.closed
            return (self.used - self.closed == used - self.closed
                    and self.left - set(self.unsure) == set(self.grace) - set(self.unsure))
        self.until('left over', are_right, lambda: f'contents of {sorted(self.used)} are in use and of {sorted(self.left)} are '
                                                   f'not, instead of {sorted(used)} and {sorted(self.grace)}')
        for name, candidates in self.unsure.items():
            if name in self.left:
                self.grace[name] = candidates
            else:
                self.grace.pop(name, None)
        self.unsure.clear()

    def check_claims(self):
        def are_right():
            asked = time.monotonic()
            self.listed = {claim['id'] for device in self.get('status')['devices'] for claim in device['claims']}
            expired = {claim for claim, end in self.claims.items() if end is not None and end < asked}
            lasting = {claim for claim in self.claims if self.lasts(claim)}
            return lasting <= self.listed <= set(self.claims) - expired
        self.until('claims', are_right, lambda: f'claims {sorted(self.listed)} are in effect instead of {self.claims}')
        self.claims = {claim: end for claim, end in self.claims.items() if claim in self.listed}

    def lasts(self, claim):
        """Whether the time of the claim has not passed. The server has begun to count it later than this test."""
        end = self.claims[claim]
        return end is None or end > time.monotonic()

    def memory_is_right(self):
        status = self.get('status')
        kept_ones = [candidates[0] for candidates in self.grace.values() if len(candidates) == 1 and candidates[0] is not None]
        if len(kept_ones) != len(self.grace):
            return True
        owners = {}
        for export in (*self.exports.values(), *kept_ones):
            for page in {id(page) for page in export.pages if page is not None}:
                owners[page] = owners.get(page, 0) + 1
        self.wrong = ''
        for each in status['exports']:
            if each['name'] in self.refused:
                self.wrong = f'{each["name"]} is listed, which cannot be restored'
                return False
            export = self.exports[each['name']]
            own = sum(page is not None and owners[id(page)] == 1 for page in export.pages)
            expected = {'used': export.used() * PAGE, 'own': own * PAGE, 'shared': (export.used() - own) * PAGE}
            self.wrong += ''.join(f'{each["name"]}: {key} {each[key]} instead of {value}; '
                                  for key, value in expected.items() if each[key] != value)
        device_used = sum(each['used'] for each in status['devices'])
        if device_used != len(owners) * PAGE:
            self.wrong += f'the devices use {device_used} bytes instead of {len(owners) * PAGE}'
        return not self.wrong

    # --- steps

    def pick(self, wanted=lambda name, export: True):
        names = sorted(name for name, export in self.exports.items() if wanted(name, export))
        return self.dice.choice(names) if names else None

    def free_name(self):
        names = [name for name in NAMES if name not in self.exports and name not in self.refused and (name != 'extra' or not self.has_extra)]
        return self.dice.choice(names) if names else None

    def wait_unused(self, name):
        """The server notices the end of a connection later than the client."""
        server.wait_until(lambda: not any(each['connections'] for each in self.get('exports') if each['name'] == name))

    def must(self, expected, result, what):
        done, why = result
        if expected is not None and done != expected:
            fail('answer', f'{what} is {"refused" if expected else "done"}: {why}')
        return done

    def step_create(self):
        name = self.free_name()
        if not name:
            return
        size, keep, persist = self.dice.choice(SIZES), self.keeps and self.dice.random() < 0.7, self.dice.random() < 0.2
        self.say(f'create {name} {size} keep={keep} persist={persist}')
        export = Export(size, keep=keep, run_time=True, persistent=persist)
        answer = self.post('exports/create', export=self.keys(name, export), persist=persist)
        # Contents of another size that are kept for that name prevent it.
        if self.must(name not in self.grace or None, answer, f'create {name}'):
            self.exports[name] = export
            self.may_return(name, export)

    def may_return(self, name, export):
        """An export that is added again may get its contents back."""
        if name in self.grace:
            self.unsure[name] = self.grace[name]
            self.doubt[name] = [export] + [export.copy(size=each.size, pages=each.pages, rule=each.rule)
                                           for each in self.grace[name]]

    @staticmethod
    def keys(name, export):
        return {'name': name, 'size': str(export.size), 'page_size': '64K', 'devices': ['host'], 'keep': export.keep}

    def step_write(self):
        name = self.pick(lambda name, export: not export.read_only and name not in self.closed)
        if not name:
            return
        export = self.exports[name]
        export.rule = 'contents'
        with self.open(name) as client:
            for _ in range(self.dice.randint(1, 4)):
                self.write(name, export, client)
            client.disconnect()

    def write(self, name, export, client):
        first = self.dice.randrange(len(export.pages))
        kind = self.dice.choice(('write', 'write', 'part', 'trim', 'zero'))
        count = min(self.dice.randint(1, 3), len(export.pages) - first)
        self.say(f'{kind} {name} page {first}, {count} pages')
        if kind == 'part':
            begin = self.dice.randrange(PAGE // 8 - 1) * 8
            data = self.page()[begin:begin + 4 * KiB]
            client.write(first * PAGE + begin, data)
            old = export.pages[first] or bytes(PAGE)
            export.pages[first] = old[:begin] + data + old[begin + len(data):]
        elif kind == 'write':
            pages = [self.page() for _ in range(count)]
            client.write(first * PAGE, b''.join(pages))
            export.pages[first:first + count] = pages
        else:
            (client.trim if kind == 'trim' else client.zero)(first * PAGE, count * PAGE)
            export.pages[first:first + count] = [None] * count

    def clone_request(self, source):
        """(name, path, body, what it makes of the source)"""
        name = self.free_name()
        read_only = self.dice.random() < 0.5
        keep = self.exports[source].keep if source in self.exports else False
        return (name, f'exports/{"snapshot" if read_only else "clone"}', {'source': source, 'name': name},
                lambda export: export.copy(read_only=read_only, run_time=True, persistent=False, is_clone=True, keep=keep,
                                           restored_from=None, made_by=None, configured_size=export.size))

    def step_clone(self):
        source = self.pick()
        name, path, body, made = self.clone_request(source)
        if not name:
            return
        self.say(f'{path} {source} {name}')
        if self.must(True, self.post(path, **body), f'{path} of {source}'):
            self.exports[name] = made(self.exports[source].copy(rule='contents'))
            self.grace.pop(name, None)

    def step_template(self):
        source = self.pick(lambda name, export: export.run_time and not export.is_clone and not export.read_only)
        if not source or f't{source}' in self.templates:
            return
        name = f't{source}'
        self.say(f'template {name} of {source}')
        keys = {'name': name, 'clone_per_client': {'of': source, 'name': 'machine', 'max': 40}}
        self.must(True, self.post('exports/create', export=keys, persist=False), f'template of {source}')
        self.templates[name] = source

    def step_client_clone(self):
        template = self.dice.choice(sorted(self.templates))
        name = f'{template}/m{self.dice.randrange(3)}'
        self.say(f'client clone {name}')
        client = self.open(name)
        if isinstance(client, wire.Refused):
            return fail('answer', f'{name} is refused: {client.args}')
        client.disconnect()
        self.add_client_clone(name, self.exports[self.templates[template]])

    def add_client_clone(self, name, source, rule='contents'):
        if name not in self.exports:
            self.exports[name] = source.copy(rule=rule, run_time=True, persistent=False, is_clone=True, restored_from=None,
                                             made_by=name.split('/')[0], configured_size=source.size, read_only=False)
            self.grace.pop(name, None)

    def step_resize(self):
        name = self.pick()
        export = self.exports[name]
        pages = max(2, len(export.pages) + self.dice.randint(-8, 8))
        discard = self.dice.random() < 0.5
        self.say(f'resize {name} to {pages} pages discard={discard}')
        is_snapshot = export.read_only and export.is_clone
        loses = any(export.pages[pages:])
        done = self.must(not is_snapshot and (discard or not loses),
                         self.post('exports/resize', name=name, size=pages * PAGE, discard=discard, reconnect=False),
                         f'resize of {name}')
        if done:
            self.resize(export, pages)

    @staticmethod
    def resize(export, pages):
        export.pages = export.pages[:pages] + [None] * (pages - len(export.pages))
        export.size = pages * PAGE
        if export.run_time:
            export.configured_size = export.size

    def step_remove(self):
        name = self.pick(lambda name, export: name != 'base')
        if not name:
            return
        force, keep_contents = self.dice.random() < 0.5, self.dice.random() < 0.3
        self.say(f'remove {name} force={force} keep_contents={keep_contents}')
        if not force:
            self.wait_unused(name)
        export = self.exports[name]
        expected = export.run_time and name not in self.templates.values() and (export.keep or not keep_contents)
        if self.must(expected, self.post('exports/remove', name=name, force=force, keep_contents=keep_contents),
                     f'remove {name}'):
            del self.exports[name]
            if keep_contents:
                self.retire(name, export)

    def step_remove_in_use(self):
        name = self.pick(lambda name, export: export.run_time and name not in self.closed)
        if not name:
            return
        self.say(f'remove {name} while a client has it open')
        with self.open(name) as client:
            self.must(False, self.post('exports/remove', name=name, force=False), f'remove {name} in use')
            self.compare(name, self.exports[name], self.contents(client))

    def step_remove_template(self):
        name = self.dice.choice(sorted(self.templates))
        self.say(f'remove template {name}')
        if self.must(name != 'node', self.post('exports/remove', name=name, force=False), f'remove template {name}'):
            del self.templates[name]

    def step_save(self):
        name = self.pick()
        self.save(name, f'{self.one.directory}/{self.dice.choice(("x", "y"))}{self.dice.choice((".img", ".zst"))}')

    def save(self, name, path):
        error = self.dice.choice((None, None, errno.ENOSPC, errno.EIO))
        failing = self.dice.randrange(4)
        self.say(f'save {name} {os.path.basename(path)}' + (f', write {failing} fails with {error}' if error else ''))
        pages = list(self.exports[name].pages)
        if error:
            self.calls.arm(path, failing, error)
        done = self.must(None if error else True,
                         self.post('exports/save', name=name, file=path, compress='zstd' if path.endswith('zst') else None,
                                   threads=1), f'save of {name}')
        self.calls.release()
        if error and self.calls.calls > failing and done:
            fail('answer', f'a save of {name} that failed is done')
        if done:
            self.files[path] = pages

    def restorable(self):
        """(name, whether it exists, keep, file)"""
        if not self.files:
            self.write_image('one', self.dice.choice(SIZES))
        file = self.dice.choice(sorted(self.files))
        pages = self.files[file]
        empty = self.pick(lambda name, export: export.used() == 0 and len(export.pages) >= len(pages) and not export.is_clone)
        name = self.free_name()
        if empty and (not name or self.dice.random() < 0.5):
            return empty, True, self.exports[empty].keep, file
        return name, False, self.keeps and self.dice.random() < 0.7, file

    def restored(self, name, exists, keep, file, rule='restored'):
        pages = [bytes(bytearray(page)) if page else None for page in self.files[file]]
        if exists:
            old = self.exports[name]
            return old.copy(pages=pages + [None] * (len(old.pages) - len(pages)), rule=rule)
        return Export(len(pages) * PAGE, pages, rule, keep=keep, run_time=True, restored_from=file)

    def restore_body(self, name, exists, keep, file):
        export = {'name': name}
        if not exists:
            export.update(page_size='64K', devices=['host'], keep=keep)
        return {'file': file, 'export': export, 'persist': False}

    def step_restore(self):
        name, exists, keep, file = self.restorable()
        if name:
            self.restore(name, exists, keep, file)

    def restore(self, name, exists, keep, file, rule='restored'):
        error = self.dice.choice((None, None, errno.EIO))
        failing = self.dice.randrange(4)
        self.say(f'restore {os.path.basename(file)} to {"existing" if exists else "new"} {name} keep={keep}'
                 + (f', read {failing} fails' if error else ''))
        if exists:
            self.wait_unused(name)
        if error:
            # Reads with O_DIRECT that fail are tried again without.
            self.calls.arm(file, failing, error)
        done, why = self.post('exports/restore', **self.restore_body(name, exists, keep, file))
        if not done and not error:
            fail('restored', f'the restore of {name} is refused: {why}')
        self.calls.release()
        if done:
            self.exports[name] = self.restored(name, exists, keep, file, rule)
            self.unsure[name] = self.grace.get(name, [])

    # In the middle of a restore.

    def step_interrupted_restore(self):
        name, exists, keep, file = self.restorable()
        if not name:
            return
        if exists:
            self.wait_unused(name)
            if self.dice.random() < 0.5 and self.exports[name].run_time and not self.exports[name].is_clone:
                self.template_for(name)
        place = self.dice.randrange(2 * sum(page is not None for page in self.files[file]) + 2)
        self.say(f'restore {os.path.basename(file)} to {"existing" if exists else "new"} {name} keep={keep}, '
                 f'held at read {place}')
        complete = self.restored(name, exists, keep, file)
        self.calls.arm(file, place)
        asked = admin.PendingRequest(self.admin, '/api/v1/exports/restore', self.restore_body(name, exists, keep, file))
        held = self.calls.wait(lambda: asked.answered(0))
        late = []
        if held:
            self.say('... held')
            self.closed.add(name)
            for _ in range(self.dice.randint(0, 3)):
                self.meanwhile(name, exists, complete, late)
        end = self.dice.choice(('go on', 'go on', 'fail', 'truncate', 'kill', 'kill', 'terminate')) if held else 'go on'
        self.say(f'... {end}')
        if end == 'kill':
            ended = self.one.ready()
            self.one.kill()
            self.calls.release()
            self.one.wait_ready(ended + 1)
            self.closed.discard(name)
            if name in self.exports:
                self.resize(complete, len(self.exports[name].pages))
            before = [None]
            if exists and name in self.exports:
                old = self.exports[name].copy(rule='interrupted')
                # Incomplete contents are freed, with the size that they got at run time.
                before = [old, old.copy(size=old.configured_size, pages=None)]
            candidates = before + [complete.copy(rule='interrupted')]
            if name in self.removed_meanwhile:
                candidates.append(None)
            self.after_end(kept_contents=True)
            self.doubt[name] = [each and self.at_restart(each) for each in candidates]
            if keep:
                self.unsure[name] = self.grace.get(name, []) + [candidates[len(before)]]
            if not exists and self.dice.random() < 0.5:
                self.again = name, exists, keep, file
            for _, _, doubt in late:
                doubt()
            return
        if end == 'terminate':
            self.one.kill(signal.SIGTERM)
            self.calls.release()
            self.closed.discard(name)
            return self.start_again()
        if end == 'truncate':
            os.truncate(file, 0)
            del self.files[file]
        self.calls.release(errno.EIO if end == 'fail' else None)
        done, why = self.outcome(*asked.answer())
        self.closed.discard(name)
        if name in self.removed_meanwhile:
            return self.answer_late(late)
        if not done and end == 'go on' and not late:
            fail('restored', f'the restore of {name} is refused: {why}')
        if done:
            if name in self.exports and self.exports[name].size != complete.size:
                self.resize(complete, len(self.exports[name].pages))
            self.exports[name] = complete
            self.unsure[name] = self.grace.get(name, [])
        self.answer_late(late)

    def template_for(self, name):
        template = f't{name}'
        if template not in self.templates:
            keys = {'name': template, 'clone_per_client': {'of': name, 'name': 'machine', 'max': 40}}
            self.say(f'template {template} of {name}')
            self.must(True, self.post('exports/create', export=keys, persist=False), f'template of {name}')
            self.templates[template] = name

    def meanwhile(self, name, exists, complete, late):
        """Does something to an export that is being restored. Each such change is refused, or has its whole effect."""
        kind = self.dice.choice(('open', 'remove', 'clone', 'client clone', 'resize'))
        if kind == 'client clone':
            template = next((key for key, value in sorted(self.templates.items()) if value == name), None)
            if template is None:
                kind = 'open'
        self.say(f'... {kind} {name} meanwhile')
        if kind == 'remove':
            def gone(done):
                if done:
                    self.exports.pop(name, None)
                    self.removed_meanwhile.add(name)
            self.ask(late, 'exports/remove', {'name': name, 'force': False}, gone)
        elif kind == 'clone':
            clone, path, body, made = self.clone_request(name)
            if clone and clone != name and clone not in self.asked:
                self.asked.add(clone)

                def cloned(done):
                    if done:
                        self.exports[clone] = made(complete.copy(rule='torn'))
                        self.grace.pop(clone, None)
                self.ask(late, path, body, cloned, lambda: self.doubt.__setitem__(clone, [None, made(complete)]))
        elif kind == 'resize':
            pages = len(complete.pages) + 4

            def resized(done):
                if done:
                    self.resize(complete, pages)
                if done and name in self.exports:
                    self.resize(self.exports[name], pages)
            self.ask(late, 'exports/resize', {'name': name, 'size': pages * PAGE, 'discard': False, 'reconnect': False}, resized)
        elif kind == 'client clone':
            clone = f'{template}/m{self.dice.randrange(3)}'
            if clone not in self.exports:
                client = self.open(clone)
                if not isinstance(client, wire.Refused):
                    client.disconnect()
                    self.add_client_clone(clone, complete, 'torn')
        if name in self.removed_meanwhile:
            return
        client = self.open(name)
        if not isinstance(client, wire.Refused):
            client.close()
            fail('open', f'a client opens {name}, which is being restored')
        if self.exports:
            self.check()

    def ask(self, late, path, body, effect, doubt=lambda: None):
        """Sends a request that may be answered after the restore."""
        request = admin.PendingRequest(self.admin, f'/api/v1/{path}', body)
        if request.answered(0.05):
            done, why = self.outcome(*request.answer())
            self.say(f'... is {"done" if done else "refused: " + str(why)}')
            effect(done)
        else:
            late.append((request, effect, doubt))

    def answer_late(self, late):
        for request, effect, _ in late:
            done, why = self.outcome(*request.answer())
            self.say(f'... late: {"done" if done else "refused: " + str(why)}')
            effect(done)

    # Ends of the server.

    def at_restart(self, export):
        """What the next server makes of an export whose server was killed; None: nothing."""
        if export.keep:
            return export
        if export.is_clone:
            return None
        size = export.configured_size
        if export.restored_from:
            if export.restored_from not in self.files:
                return None  # refused, and its name stays in use
            pages = self.files[export.restored_from][:size // PAGE]
            return export.copy(size=size, pages=[bytes(bytearray(page)) if page else None for page in pages])
        return export.copy(size=size, pages=None)

    def after_end(self, kept_contents):
        for name, export in list(self.exports.items()):
            next_one = self.at_restart(export if kept_contents else export.copy(keep=False))
            if not kept_contents and export.run_time and not export.persistent:
                next_one = None
            if next_one is None:
                del self.exports[name]
                if kept_contents and export.restored_from:
                    self.refused.add(name)
            else:
                next_one.keep = export.keep
                self.exports[name] = next_one
        self.claims.clear()
        if not kept_contents:
            self.refused.clear()
            self.grace.clear()
            self.templates = {'node': 'base'}

    def step_kill(self):
        self.say('kill')
        self.one.kill_and_wait()
        self.after_end(kept_contents=True)

    def step_upgrade(self):
        if not self.keeps:
            return
        name = self.pick(lambda name, export: export.keep and not export.read_only)
        self.say(f'upgrade, while a client has {name} open')
        with self.open(name) as client:
            self.one.upgrade()
            self.after_end(kept_contents=True)
            self.write(name, self.exports[name], client)
            client.disconnect()

    def step_terminate(self):
        if self.dice.random() < 0.7:
            return
        self.say('terminate, and start again')
        self.one.kill(signal.SIGTERM)
        self.start_again()

    def start_again(self):
        server.wait_until(lambda: self.one.process.poll() is not None, 60, 'the end of the server and its keeper')
        if self.one.process.returncode != 0:
            raise Violation('server', f'the keeper ended with {self.one.process.returncode}')
        self.restart_keeper()
        self.after_end(kept_contents=False)

    def restart_keeper(self):
        self.one.start(self.one.command, before=self.observed())
        self.one.wait_ready(1)

    def step_reload(self):
        if 'extra' in self.exports and self.exports['extra'].run_time:
            return
        self.has_extra = not self.has_extra
        self.say(f'reload, {"with" if self.has_extra else "without"} extra')
        self.one.reload(self.config())
        if self.has_extra:
            self.exports['extra'] = Export(MiB, keep=self.keeps)
            self.may_return('extra', self.exports['extra'])
        else:
            old = self.exports.pop('extra', None)
            if old and old.keep:
                self.retire('extra', old)

    def retire(self, name, export):
        """Kept contents of another size may have its name already."""
        self.grace[name] = [*self.grace.get(name, []), export]

    def step_drop(self):
        name = self.dice.choice(sorted(self.grace)) if self.grace else 'base'
        self.say(f'kept --drop {name}')
        if self.must(name in self.grace, self.post('kept/drop', name=name), f'kept --drop {name}'):
            self.grace.pop(name)

    def step_reclaim(self):
        if self.keeps:
            return
        amount, seconds = self.dice.choice((256 * KiB, MiB, 8 * MiB)), self.dice.choice((None, 1))
        self.say(f'reclaim {amount} for {seconds} s')
        begun = time.monotonic()
        status, answer = admin.request(self.admin, '/api/v1/reclaim', {'device': 'host', 'bytes': amount, 'seconds': seconds})
        self.outcome(status, answer)
        for each in answer.get('reclaimed', []):
            if each['claim'] is not None:
                self.claims[each['claim']] = None if seconds is None else begun + seconds

    def step_end_reclaim(self):
        if self.keeps:
            return
        claim = self.dice.choice(sorted(self.claims)) if self.claims and self.dice.random() < 0.5 else None
        self.say(f'reclaim --end {claim or ""}')
        result = self.post('reclaim/end', device=None, claim=claim)
        # It can be refused only because the time of the claim has passed.
        self.must(True if claim is None or self.lasts(claim) else None, result, f'the end of claim {claim or "all"}')
        if claim is None:
            self.claims.clear()
        else:
            self.claims.pop(claim)

    STEPS = (('create', 5), ('write', 12), ('clone', 6), ('template', 2), ('client_clone', 3), ('resize', 3), ('remove', 6),
             ('remove_in_use', 1), ('remove_template', 1), ('save', 4), ('restore', 5), ('interrupted_restore', 8), ('kill', 3),
             ('upgrade', 2), ('terminate', 1), ('reload', 4), ('drop', 1), ('reclaim', 3), ('end_reclaim', 2))

    def run(self, steps):
        self.start()
        try:
            self.check()
            kinds, weights = zip(*self.STEPS)
            for _ in range(steps):
                self.removed_meanwhile, self.asked = set(), set()
                again, self.again = self.again, None
                if again and again[0] not in self.exports and again[3] in self.files:
                    self.restore(*again, rule='interrupted')
                else:
                    getattr(self, 'step_' + self.dice.choices(kinds, weights)[0])()
                self.check()
            self.say('the end')
            self.empty()
        finally:
            if self.one:
                self.calls.release()
                self.stop()

    def empty(self):
        """Nothing is left over when all exports are removed."""
        for name in sorted(self.templates):
            if name != 'node':
                self.post('exports/remove', name=name, force=True)
                del self.templates[name]
        for name in sorted(self.exports):
            if self.exports[name].run_time:
                self.must(True, self.post('exports/remove', name=name, force=True), f'remove {name}')
                del self.exports[name]
        self.check()

    def stop(self):
        if self.one.process.poll() is None:
            self.one.process.send_signal(signal.SIGTERM)
            server.wait_until(lambda: self.one.process.poll() is not None, 60, 'the end of the keeper')


class ControlPlane(unittest.TestCase):
    def test_random_sequences(self):
        failures = []
        first = OPTIONS.first if OPTIONS.seed is None else OPTIONS.seed
        count = OPTIONS.sequences if OPTIONS.seed is None else 1
        for seed in range(first, first + count):
            sequence = Sequence(seed)
            try:
                sequence.run(OPTIONS.steps)
            except unittest.SkipTest:
                raise
            except Exception as problem:  # the next sequences may show something else
                failures.append(f'seed {seed}: {type(problem).__name__} {problem}')
                print(failures[-1], flush=True)
                if not isinstance(problem, Violation):
                    traceback.print_exc(file=sys.stdout)
                if OPTIONS.seed is not None or not isinstance(problem, Violation):
                    print('\n'.join('    ' + each for each in sequence.steps))
                if OPTIONS.seed is not None:
                    print(sequence.one and sequence.one.log()[-6000:])
            finally:
                if sequence.one:
                    shutil.rmtree(sequence.one.directory, ignore_errors=True)
        if failures:
            self.fail(f'{len(failures)} of {count} sequences; repeat one by {sys.argv[0]} --seed NUMBER:\n' + '\n'.join(failures))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--seed', type=int, help='runs this sequence only, and prints its steps')
    parser.add_argument('--first', type=int, default=OPTIONS.first)
    parser.add_argument('--sequences', type=int, default=OPTIONS.sequences)
    parser.add_argument('--steps', type=int, default=OPTIONS.steps)
    parser.add_argument('--ignore', action='append', default=[], choices=RULES, help='a rule that is not checked')
    parser.add_argument('--patience', type=float, default=OPTIONS.patience, help='seconds until memory has to be free')
    parser.add_argument('--verbose', action='store_true')
    options, rest = parser.parse_known_args()
    options.rules = [each for each in RULES if each not in options.ignore]
    OPTIONS.__dict__.update(options.__dict__)
    sys.argv[1:] = rest
    server.main()


if __name__ == '__main__':
    main()
