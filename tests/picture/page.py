#!/usr/bin/env python3
"""Records the page that README shows: a server, a minute of real load on it, and Chromium's view of an export.

    /usr/bin/python3 tests/picture/page.py [FILE]      # writes tests/page/page.png, or FILE

It needs build/release/gpunbd and build/release/nbdload (./dev test builds both), and chromium, chromium-driver and
python3-selenium. The export lies on cuda:0 where gpunbd lists it, else on the host.
"""
import os
import re
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(HERE, '../integration'), os.path.join(HERE, '../page')]

import browser  # noqa: E402
import server  # noqa: E402

SIZE, SECONDS = 4 * server.GiB, 62  # the charts show a minute
NBDLOAD = os.path.join(os.path.dirname(server.PROGRAM), 'nbdload')
# Operation, size of a request, and a part of the export: its beginning and length, in sixteenths. The map then has parts
# that are busy, quiet and unused.
LOADS = (('rw', '64k', 0, 4), ('read', '4k', 8, 2), ('write', '1M', 12, 1))


def device():
    """The one of which pictures are taken."""
    listed = subprocess.run([server.PROGRAM, 'devices'], capture_output=True, text=True, check=True).stdout
    return 'cuda:0' if re.search(r'^cuda:0\b', listed, re.MULTILINE) else 'host'


def started(*command, **options):
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, preexec_fn=server.die_with_parent, **options)


def record(path, folder, size=SIZE, seconds=SECONDS):
    port, socket = server.free_port(), os.path.join(folder, 'socket')
    uri = f'nbd+unix:///scratch?socket={socket}'
    processes = [started(server.PROGRAM, 'serve', '--name', 'scratch', '--size', str(size), '--device', device(), '-U', socket,
                         '--admin', f'127.0.0.1:{port}', '--admin-socket', 'none', '--log-level', 'warn')]
    try:
        server.wait_until(lambda: subprocess.run([server.PROGRAM, 'ping', uri], capture_output=True, check=False).returncode == 0,
                          60, 'the server')
        for operation, request, offset, span in LOADS:
            processes.append(started(
                NBDLOAD, '--uri', uri, '--op', operation, '--size', request, '--qd', '4', '--connections', '2', '--prefill',
                '--offset', str(size // 16 * offset), '--span', str(size // 16 * span), '--seconds', str(seconds + 600),
                stdout=subprocess.DEVNULL))
        window = browser.Browser()
        try:
            window.see(1280, 1000)
            window.prefer('light')
            window.open(f'http://127.0.0.1:{port}/#/export/scratch')
            window.shows('#state', 'serving')
            window.select('#minutes', '1')
            time.sleep(seconds)  # what the charts show
            window.tick()
            if any(process.poll() is not None for process in processes):
                sys.exit('page: the server or a load has ended before the picture was taken')
            window.screenshot('readme', 1082, path)
        finally:
            window.close()
    finally:
        for process in reversed(processes):
            process.terminate()
            process.wait()


def main():
    server.need(NBDLOAD)
    path = os.path.abspath(sys.argv[1]) if len(sys.argv) > 1 else os.path.join(HERE, '../page/page.png')
    with tempfile.TemporaryDirectory() as folder:
        record(path, folder)
    print(f'page: wrote {os.path.normpath(path)}, of {device()}')


if __name__ == '__main__':
    main()
