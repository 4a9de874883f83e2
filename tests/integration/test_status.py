"""gpunbd status: it finds and shows the right server, and reports missing, invalid and hostile servers in one line."""
import json
import os
import shutil
import socket
import subprocess

import server
from admin_endpoint import Endpoint

STATUS = (server.PROGRAM, 'status')


class Status(server.Test):
    def endpoint(self, *args, **kwargs):
        made = Endpoint(*args, **kwargs)
        self.addCleanup(made.stop)
        return made

    def path(self, name='admin.sock'):
        return os.path.join(self.directory(), name)

    def run_status(self, *arguments, status=0, environment=None):
        out = self.command(*STATUS, *arguments, status=status, environment=environment, seconds=60)
        if status:
            self.assertEqual(out, '')
            self.assertEqual(len(self.errors.splitlines()), 1, self.errors)
            self.assertTrue(self.errors.startswith('gpunbd status: '), self.errors)
        return out

    def refused(self, message, *arguments, status=1, environment=None):
        self.run_status(*arguments, status=status, environment=environment)
        self.assertIn(message, self.errors)


class Servers(Status):
    def test_tcp_and_a_token(self):
        one = self.endpoint(token='secret')
        self.refused('the server refuses the request: a token is required', '--url', one.url)
        file = self.path('token')
        for token, message in ((b'secret\n', None), (b'other', 'the server refuses the request'), (b'', 'is not a token'),
                               (b'a\r\nX-Evil: b\n', 'is not a token'), (b'a b', 'is not a token')):
            server.write_file(file, token)
            os.chmod(file, 0o600)
            if message:
                self.refused(message, '--url', one.url, '--token', file)
            else:
                self.assertIn('pid 4711', self.run_status('--url', one.url, '--token', file))
        self.assertEqual(one.requests[1][1]['Host'], f'127.0.0.1:{one.port}')
        os.chmod(file, 0o644)
        self.refused('all users may', '--url', one.url, '--token', file)
        self.refused('/no/such: cannot be read: there is no folder \'/no\'; copy the server\'s token there', '--url', one.url, '--token', '/no/such')

    def test_watch_continues_after_a_restart_of_the_server(self):
        path = self.path()
        one = Endpoint(path)
        process = subprocess.Popen([*STATUS, '--watch', '--socket', path], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, preexec_fn=server.die_with_parent)
        try:
            for _ in range(2):
                while 'pid 4711' not in process.stdout.readline():
                    self.assertIsNone(process.poll())
            os.unlink(path)  # first: the command reports another error if the file exists without a server
            self.assertIn('No such file', process.stderr.readline())
            one.stop()
            self.endpoint(path, pid=4712)
            while 'pid 4712' not in process.stdout.readline():
                self.assertIsNone(process.poll())
        finally:
            process.kill()
            process.communicate()


class DefaultServer(Status):
    """The selection of a server if none is given."""

    def folder(self):
        folder = self.directory()
        return folder, {'RUNTIME_DIRECTORY': folder}

    def test_the_only_server_that_answers(self):
        folder, environment = self.folder()
        self.refused(f'no server was found in {folder}; start one with', environment=environment)
        dead = socket.socket(socket.AF_UNIX)
        dead.bind(f'{folder}/admin-1.sock')
        dead.close()
        self.refused('admin-1.sock: Connection refused; start one with', environment=environment)
        self.endpoint(f'{folder}/admin-12.sock')
        self.assertIn('pid 4711', self.run_status(environment=environment))
        for other in ('admin-x.sock', 'admin-.sock', 'xadmin-7.sock', 'keeping.sock'):
            self.endpoint(f'{folder}/{other}')
        self.assertIn('pid 4711', self.run_status(environment=environment))
        self.endpoint(f'{folder}/admin-13.sock')
        self.refused('2 servers run: ', environment=environment)
        for each in ('admin-12.sock (pid 12)', 'admin-13.sock (pid 13)', '; choose one with --socket PATH'):
            self.assertIn(each, self.errors)

    def test_missing_folder(self):
        self.refused('no server was found in /no/such; start one with', environment={'RUNTIME_DIRECTORY': '/no/such'})

    def test_another_users_server(self):
        if os.geteuid() != 0:
            server.skip('only root can use two other users')
        path = self.path()
        program = self.program_for_all_users()
        os.chmod(os.path.dirname(path), 0o755)
        with socket.socket(socket.AF_UNIX) as foreign:
            foreign.bind(path)
            os.chmod(path, 0o777)
            os.seteuid(65534)
            foreign.listen()
            os.seteuid(0)
            out = self.command(program, 'status', '--socket', path, status=1, user=65533)
        self.assertEqual(out, '')
        self.assertIn("the server belongs to another user", self.errors)


class InvalidServers(Status):
    def test_invalid_responses(self):
        def body(text, code=b'200 OK'):
            return b'HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n%s' % (code, len(text), text)
        for raw, message in ((b'', 'the server closed the connection'), (b'NBDMAGICIHAVEOPT' + b'\0' * 20, 'is a socket for NBD clients'),
                             (body(b'{}'), 'is not the status of a gpunbd server'), (body(b'<html>'), 'is not JSON'),
                             (b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffffffff\r\n', 'is not HTTP'),
                             (body(b'{"error":"no\\u001b[2J"}', b'503 Later'), 'the server refuses the request: no?[2J'),
                             (body(b'x', b'500 Oops'), 'responds with HTTP status 500'), (body(b'', b'401 No'), 'add --token FILE')):
            with self.subTest(message=message, raw=raw[:60]):
                path = self.path()
                self.endpoint(path, raw=raw)
                self.refused(message, '--socket', path)

    def test_a_server_that_never_answers(self):
        path = self.path()
        with socket.socket(socket.AF_UNIX) as silent:
            silent.bind(path)
            silent.listen()
            self.refused('within the time limit', '--socket', path)


class RealServer(Status):
    def test_values(self):
        path = self.path()
        one = self.serve(name='real', size='3M', extra=['--admin-socket', path])
        out = self.run_status('--socket', path)
        self.assertIn(f'pid {one.process.pid}, serving', out)
        self.assertRegex(out, r'\nreal +3 MiB +0 bytes +0% +0 +0 ')
        self.assertRegex(out, r'\nhost ')
        self.assertEqual(json.loads(self.run_status('--json', '--socket', path))['exports'][0]['size'], 3 << 20)

    def in_namespace(self, commands):
        """Runs commands with a new /run and /tmp: `serve` starts a server, `ask COMMAND` repeats a command until it succeeds."""
        if os.geteuid() != 0:
            server.skip('only root can mount')
        folder = self.directory()
        program = shutil.copy(server.PROGRAM, folder)
        if subprocess.run(['unshare', '-m', 'mount', '-t', 'tmpfs', 'none', folder], check=False, capture_output=True).returncode:
            server.skip('no mount namespace can be created')
        script = f'''
mount -t tmpfs none /run
cp {program} /run/gpunbd-program
mount -t tmpfs -o mode=1777 none /tmp
unset RUNTIME_DIRECTORY XDG_RUNTIME_DIR
serve() {{ "$@" /run/gpunbd-program keep -- serve --keep --size 1M --device host -U /tmp/socket 2>/tmp/log & ask grep -q ready: /tmp/log; }}
ask() {{
    tries=0
    until "$@" >/tmp/output 2>/tmp/errors; do
        tries=$((tries + 1))
        if [ $tries = 600 ]; then cat /tmp/errors /tmp/log; exit 1; fi
        sleep 0.1
    done
    cat /tmp/output
}}
{commands}
cat /tmp/log
kill $!
wait $!
'''
        return self.command('unshare', '-m', '/bin/bash', '-ec', script)

    def test_root_and_the_folder_of_the_service(self):
        """root does not use a folder that belongs to the user of the service, as in the package."""
        out = self.in_namespace('''
install -d -o 10809 -g 10809 -m 0755 /run/gpunbd
serve env
ask /run/gpunbd-program status
ask /run/gpunbd-program kept
test -z "$(ls /run/gpunbd)"
test "$(stat -c %U:%a /run/gpunbd-root)" = root:700
''')
        self.assertRegex(out, r', pid \d+, serving for ')
        self.assertRegex(out, r'1 MiB +0 bytes +host .* in use')
        self.assertIn('gpunbd status and gpunbd kept reach this server in /run/gpunbd-root (/run/gpunbd: it belongs to another user (10809))', out)

    def test_a_user_without_a_session(self):
        user = 'setpriv --reuid 65534 --regid 65534 --clear-groups'
        out = self.in_namespace(f'''
serve {user}
ask {user} /run/gpunbd-program status
ask {user} /run/gpunbd-program kept
test "$(stat -c %u:%a /tmp/gpunbd-65534)" = 65534:700
''')
        self.assertRegex(out, r', pid \d+, serving for ')
        self.assertRegex(out, r'1 MiB +0 bytes +host .* in use')

    def test_a_user_whose_folder_belongs_to_another_user(self):
        """The folder is not used, and the log contains the remedy."""
        user = 'setpriv --reuid 65534 --regid 65534 --clear-groups'
        out = self.in_namespace(f'''
install -d -o 65533 -m 0777 /tmp/gpunbd-65534
serve {user}
test -z "$(ls /tmp/gpunbd-65534)"
{user} /run/gpunbd-program status 2>&1 && exit 1
{user} /run/gpunbd-program kept 2>&1 && exit 1
''')
        self.assertIn('gpunbd status and gpunbd kept cannot reach this server: /tmp/gpunbd-65534: it belongs to another user (65533); set --admin-socket', out)
        self.assertIn('gpunbd status: no server was found in /run/gpunbd, /run/gpunbd-root; start one with', out)


if __name__ == '__main__':
    server.main()
