"""Measures a server that shares its GPU with another program, the neighbour, and the neighbour's loss of speed.

Each cell is measured on each server in turn, without and with the neighbour, for several rounds.
The neighbour's rate is the median of its time windows that lie completely within the load.
`compare.py --cells neighbour` runs this module. The reported figures are medians.
"""

import os
import signal
import statistics
import subprocess
import threading
import time

from cell import KIB, MIB, Cell, both

START_LIMIT = 60  # seconds; starting CUDA and PyTorch takes long
SETTLE = 0.3  # seconds in which the servers detect that the neighbour works
REST = 0.6  # seconds in which they detect that it rests
SHORT = {"seconds": 0.1, "warmup": 0.2}
CELLS = (Cell("read", 4 * KIB, 1), Cell("read", 4 * KIB, 32), *both(4 * KIB, 32, 4), Cell("read", 128 * KIB, 16),
         *both(MIB, 8, 4))
METRICS = ("iops", "p50_us", "p99_us")
# The limits for the figures with the neighbour: factors of the figures without it, and "p99" in microseconds.
BARS = {"4k-read-qd1": {"p50_us": 1.3, "p99_us": 3.0}, "4k-read-qd32": {"iops": 0.5, "p99": 300},
        "4k-read-qd32x4": {"iops": 0.4, "p99": 300}, "128k-read-qd16": {"iops": 0.75},
        "1M-read-qd8x4": {"iops": 0.75}, "1M-write-qd8x4": {"iops": 0.75}}
KEEPS = 0.97  # the share of its own rate that the neighbour must keep
MAX_AT_START_US = 10_000  # the limit for every request while the neighbour starts


class Neighbour:
    """A program that uses the GPU and prints its rate. Signals stop and continue it."""

    def __init__(self, command):
        self.name = " ".join(os.path.basename(word) for word in command)
        self.windows = []  # (end, length, rate)
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        threading.Thread(target=self.listen, daemon=True).start()
        limit = time.monotonic() + START_LIMIT
        while not self.windows:
            if self.process.poll() is not None or time.monotonic() > limit:
                raise RuntimeError(f"{self.name} does not run")
            time.sleep(0.05)
        self.rest()

    def listen(self):
        for line in self.process.stdout:
            end, length, rate = map(float, line.split())
            self.windows.append((end, length, rate))

    def work(self):
        self.process.send_signal(signal.SIGCONT)

    def rest(self):
        self.process.send_signal(signal.SIGSTOP)

    def rate(self, begin, end):
        rates = [rate for at, length, rate in self.windows if at - length >= begin and at <= end]
        return statistics.median(rates) if rates else None

    def end(self):
        self.process.kill()
        self.process.wait()


def measure(load, server, neighbour, cell, seconds):
    """The figures of a cell without and with the neighbour, and the share of its rate that the neighbour keeps."""
    alone = load(server, cell)
    neighbour.work()
    time.sleep(SETTLE)
    begin = time.monotonic()
    time.sleep(seconds / 2)
    own = neighbour.rate(begin, time.monotonic())
    load(server, cell, **SHORT)  # excludes the time in which the server detects the neighbour
    begin = time.monotonic()
    beside = load(server, cell)
    beside_it = neighbour.rate(begin + 0.3, time.monotonic())
    neighbour.rest()
    time.sleep(REST)
    load(server, cell, **SHORT)
    return alone, beside, beside_it / own if beside_it and own else None


def measure_start(load, server, neighbour, cell):
    """The longest time that a request takes while the neighbour starts."""
    timer = threading.Timer(0.7, neighbour.work)
    timer.start()
    result = load(server, cell, seconds=1.5, warmup=0.2)
    timer.join()
    neighbour.rest()
    time.sleep(REST)
    return result["max_us"]


def summary(rounds):
    """The medians of (alone, beside, share) of each round. A share is None if no window was complete."""
    alone, beside, shares = zip(*rounds)
    shares = [share for share in shares if share is not None]
    return {"alone": {metric: statistics.median(one[metric] for one in alone) for metric in METRICS},
            "beside": {metric: statistics.median(one[metric] for one in beside) for metric in METRICS},
            "ratio": {metric: statistics.median(with_it[metric] / without[metric] for without, with_it, _ in rounds)
                      for metric in METRICS},
            "keeps": statistics.median(shares) if shares else None}


def check(name, figures):
    """[(text, met)] for the bars of a cell."""
    found = []
    for metric, limit in BARS.get(name, {}).items():
        if metric == "p99":
            value = figures["beside"]["p99_us"]
            found.append((f"p99 {value:.0f} us <= {limit}", value <= limit))
        else:
            value = figures["ratio"][metric]
            met = value >= limit if metric == "iops" else value <= limit
            found.append((f"{metric} {value:.2f}x {'>=' if metric == 'iops' else '<='} {limit}x", met))
    if (value := figures["keeps"]) is not None:
        found.append((f"the neighbour keeps {value:.3f} >= {KEEPS}", value >= KEEPS))
    return found


def verdicts(result):
    """One line for each server: how many bars it meets, which bars it misses, and the longest wait at the start."""
    for server, cells in result["cells"].items():
        checks = [(name, *one) for name, figures in cells.items() for one in check(name, figures)]
        worst = result["max_us_at_start"][server]
        checks.append(("start", f"longest wait {worst:.0f} us <= {MAX_AT_START_US}", worst <= MAX_AT_START_US))
        missed = "; ".join(f"`{name}`: {text}" for name, text, met in checks if not met)
        yield (f"{server}: **{sum(met for *_, met in checks)} of {len(checks)} bars met**, longest wait while the neighbour "
               f"starts {worst / 1000:.1f} ms." + (f" Missed: {missed}." if missed else ""))


def run(servers, load, command, rounds, seconds):
    """Measures all cells and returns the figures as plain data.

    `load(server, cell, seconds=, warmup=)` runs nbdload and returns its figures.
    """
    neighbour = Neighbour(command)
    found = {server.name: {cell.name: [] for cell in CELLS} for server in servers}
    starts = {server.name: [] for server in servers}
    try:
        for _ in range(rounds):
            for cell in CELLS:
                for server in servers:
                    found[server.name][cell.name].append(measure(load, server, neighbour, cell, seconds))
            for server in servers:
                starts[server.name].append(measure_start(load, server, neighbour, CELLS[0]))
    finally:
        neighbour.end()
    cells = {server: {cell: summary(rounds) for cell, rounds in of.items()} for server, of in found.items()}
    return {"neighbour": neighbour.name, "cells": cells,
            "max_us_at_start": {server: max(times) for server, times in starts.items()}}


def markdown(result):
    lines = [f"### Beside `{result['neighbour']}`", "", *(f"- {line}" for line in verdicts(result)), ""]
    for server, cells in result["cells"].items():
        lines += [f"| {server} | alone | beside it | ratio | p50, p99 alone | beside it | it keeps |",
                  "|---|---|---|---|---|---|---|"]
        for name, figures in cells.items():
            alone, with_it, ratio, share = (figures[key] for key in ("alone", "beside", "ratio", "keeps"))
            lines.append(f"| {name} | {alone['iops']:,.0f} IOPS | {with_it['iops']:,.0f} | {ratio['iops']:.2f}x "
                         f"| {alone['p50_us']:.1f}, {alone['p99_us']:.1f} us "
                         f"| {with_it['p50_us']:.1f}, {with_it['p99_us']:.1f} us "
                         f"| {'-' if share is None else f'{share:.3f}'} |")
        lines.append("")
    return "\n".join(lines)
