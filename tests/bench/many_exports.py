#!/usr/bin/env python3
"""Measures what a change of one export costs on a server with many: many_exports.py [--exports 3800] [--seconds 5].

Prints the time, and the CPU time of the server, for each creation and removal, and the time from connect() to the
greeting of a new client, alone and while two clients have clones made (clone_per_client). The program is
build/release/gpunbd, or GPUNBD_PROGRAM.
"""

import argparse
import contextlib
import os
import statistics
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "integration"))
import admin  # noqa: E402: its folder is added to the path above
import server  # noqa: E402
import wire  # noqa: E402

CHANGES = 50  # of each kind
CLONES = 200
CONFIG = """listeners: {{unix: [{{path: '{{socket}}'}}]}}
threads: 2
admin: {{socket: '{{directory}}/admin'}}
log: {{level: warn}}
exports:
- {{name: base, size: 1M, devices: ['{device}']}}
- {{name: node, clone_per_client: {{of: base, name: machine, max: {clones}}}}}
{others}"""


def cpu_time(pid):
    """Seconds, also of threads that have ended. Without the thread "admin", which samples a history each second."""
    total = 0
    for path, sign in ((f"/proc/{pid}", 1), *((each, -1) for each in Path(f"/proc/{pid}/task").iterdir())):
        before, after = Path(path, "stat").read_text(encoding="ascii").rsplit(")", 1)
        if sign > 0 or before.endswith("(admin"):
            total += sign * sum(map(int, after.split()[11:13]))
    return total / os.sysconf("SC_CLK_TCK")


def measure_changes(run, action, body):
    used, times = cpu_time(run.process.pid), []
    for n in range(CHANGES):
        start = time.monotonic()
        status, answer = admin.request(f"{run.directory}/admin", f"/api/v1/exports/{action}", body(n))
        times.append(time.monotonic() - start)
        if status != 200:
            sys.exit(f"{action}: {answer}")
    used = cpu_time(run.process.pid) - used
    print(f"{action:8} {1e3 * used / CHANGES:.2f} ms of CPU, {1e3 * statistics.median(times):.2f} ms (median)", flush=True)


def measure_greetings(run, seconds, what):
    times, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        start = time.monotonic()
        with wire.Stream(run.path) as client:
            client.greeting()
        times.append(time.monotonic() - start)
        time.sleep(0.005)
    p99 = sorted(times)[99 * len(times) // 100]
    print(f"greeting {what}: p50 {1e3 * statistics.median(times):.2f} ms, p99 {1e3 * p99:.2f} ms", flush=True)


def make_clones(run, stop, first, made):
    for n in range(first, CLONES, 2):
        if stop.is_set():
            return
        with contextlib.suppress(OSError, wire.Refused, wire.Closed):
            with wire.Wire(run.path) as client:
                client.greet()
                client.go(f"node/x{n}")
            made.append(n)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--exports", type=int, default=3800)
    parser.add_argument("--seconds", type=float, default=5)
    wanted = parser.parse_args()
    others = "".join(f"- {{name: e{n}, size: 1M, devices: ['{server.DEVICE}']}}\n" for n in range(wanted.exports))
    run = server.Server(config=CONFIG.format(device=server.DEVICE, clones=CLONES, others=others))
    try:
        new = {"size": "1M", "devices": [server.DEVICE]}
        measure_changes(run, "create", lambda n: {"export": {"name": f"n{n}", **new}, "persist": False})
        measure_changes(run, "remove", lambda n: {"name": f"n{n}", "force": False})
        measure_greetings(run, wanted.seconds, "alone")
        stop, made = threading.Event(), []
        makers = [threading.Thread(target=make_clones, args=(run, stop, first, made)) for first in range(2)]
        for maker in makers:
            maker.start()
        used = cpu_time(run.process.pid)
        measure_greetings(run, wanted.seconds, "while clones are made")
        used = cpu_time(run.process.pid) - used
        stop.set()
        for maker in makers:
            maker.join()
        print(f"{len(made)} clones, {1e3 * used / max(1, len(made)):.2f} ms of CPU for each")
    finally:
        run.stop()


if __name__ == "__main__":
    main()
