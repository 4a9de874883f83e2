#!/usr/bin/env python3
"""Measures how long clients wait after a server under gpunbd keep was killed, or while it hands over to another.

    tests/bench/coming_back.py --device host --used 8G             # from SIGKILL to the first reply
    tests/bench/coming_back.py --device cuda:0 --used 64G --rounds 3
    tests/bench/coming_back.py --upgrade --clients 4               # the longest latency during SIGUSR2

Prints a line for each round, and the median. The program is build/release/gpunbd, or GPUNBD_PROGRAM.
"""

import argparse
import multiprocessing
import os
import random
import signal
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "integration"))
import kept  # noqa: E402: its folder is added to the path above
from cell import GIB, MIB, parse_size  # noqa: E402

FILLED_AT_ONCE = 32 * MIB
FILLERS = 8  # connections
BLOCK = 64 << 10  # of the longest request during an upgrade
RANGE = 16 * MIB  # of each client
AROUND = 1  # seconds before an upgrade, and after it, in which the new server finishes what it has put off
CONFIG = """listeners: {{unix: [{{path: {{socket}}}}]}}
exports: [{{name: "", size: {size}, devices: ["{device}"], keep: true}}]
{mapped}"""
MAPPED = "devices: [{{id: '{device}', mapped: {mapped}}}]\n"


def fill(keeper, bytes_):
    block = os.urandom(MIB) * (FILLED_AT_ONCE // MIB)

    def fill_each(first):
        with keeper.client() as client:
            for at in range(first * FILLED_AT_ONCE, bytes_, FILLERS * FILLED_AT_ONCE):
                client.write(at, block)

    kept.in_processes(FILLERS, fill_each)


class Verifier:
    """A client in a process of its own. It reads and writes one request after the other, compares all data that it reads,
    and at its end its whole range."""

    def __init__(self, keeper, begin, length, seed):
        self.keeper, self.begin, self.length, self.random = keeper, begin, length, random.Random(seed)
        fork = multiprocessing.get_context("fork")
        self.ready, self.stopping = fork.Event(), fork.Event()
        self.upgrading = fork.Event()
        self.longest, self.answers = fork.Array("d", 2), fork.Value("Q", 0)  # seconds before and during the upgrade
        self.process = fork.Process(target=self.run, daemon=True)
        self.process.start()

    def run(self):
        with self.keeper.client() as client:
            self.model = bytearray(self.read_all(client))
            noise = self.random.randbytes(2 * BLOCK)
            self.ready.set()
            while not self.stopping.is_set():
                length = self.random.choice((512, 4096, 4096, self.random.randint(1, BLOCK)))
                at = self.random.randrange(self.length - length + 1)
                data = None
                if self.random.random() < 0.5:
                    start = self.random.randrange(BLOCK)
                    data = noise[start:start + length]
                self.request(client, at, length, data)
            assert self.read_all(client) == self.model, "wrong data"
            client.disconnect()

    def read_all(self, client):
        return b"".join(client.read(self.begin + at, min(MIB, self.length - at)) for at in range(0, self.length, MIB))

    def request(self, client, at, length, data):
        """Writes the data, or reads and compares if there is none."""
        phase = self.upgrading.is_set()
        began = time.monotonic()
        if data is None:
            got = client.read(self.begin + at, length)
        else:
            client.write(self.begin + at, data)
        took = time.monotonic() - began
        if data is None:
            assert got == self.model[at:at + length], f"wrong data at {self.begin + at}, {length} bytes"
        else:
            self.model[at:at + length] = data
        self.longest[phase] = max(self.longest[phase], took)
        self.answers.value += 1


def longest_latency_of_upgrade(keeper, end, clients):
    """The longest latency of verifying clients, in the last ranges before `end`, until the next server has taken over."""
    length = min(RANGE, end // clients)
    verifiers = [Verifier(keeper, end - (each + 1) * length, length, seed=each) for each in range(clients)]
    try:
        for each in verifiers:
            assert each.ready.wait(60), "a client did not start"
        time.sleep(AROUND)
        for each in verifiers:
            each.upgrading.set()
        served = keeper.log().count("serves now")
        os.kill(keeper.process.pid, signal.SIGUSR2)
        kept.server.wait_until(lambda: keeper.log().count("serves now") > served, 120, keeper.log)
        time.sleep(AROUND)
        for each in verifiers:
            each.stopping.set()
        for each in verifiers:
            each.process.join(60)
            assert each.process.exitcode == 0, f"a client failed; the server's log:\n{keeper.log()}"
    finally:
        for each in verifiers:
            each.process.kill()
    before, during = (max(each.longest[phase] for each in verifiers) for phase in (0, 1))
    print(f"{sum(each.answers.value for each in verifiers)} answers, longest before {before:.4f} s, during ", end="")
    return during


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="host", help="(host)")
    parser.add_argument("--used", type=parse_size, default=2 * GIB, metavar="SIZE",
                        help="size of the written contents: 512M, 64G (2G)")
    parser.add_argument("--rounds", type=int, default=15, help="(15)")
    parser.add_argument("--pause", type=float, default=4, metavar="SECONDS", help="pause between rounds, in which the "
                        "server finishes deferred work; without it the server exits faster (4)")
    parser.add_argument("--mapped", type=parse_size, metavar="SIZE", help="GPU memory that the CPU can address")
    parser.add_argument("--upgrade", action="store_true", help="send SIGUSR2 instead of SIGKILL")
    parser.add_argument("--clients", type=int, default=4, metavar="N", help="clients that read, write and compare during "
                        "an upgrade (4)")
    options = parser.parse_args()
    keeper = kept.Kept(config=CONFIG.format(device=options.device, size=options.used,
                                            mapped="" if options.mapped is None else MAPPED.format(
                                                device=options.device, mapped=options.mapped)))
    took = []
    try:
        fill(keeper, options.used)
        for _ in range(options.rounds):
            if options.upgrade:
                took.append(longest_latency_of_upgrade(keeper, options.used, options.clients))
            else:
                took.append(keeper.kill_until_answer(options.used - 4096))
            print(f"{took[-1]:.4f} s", flush=True)
            time.sleep(options.pause)
    finally:
        keeper.stop()
    what = "the longest answer during an upgrade" if options.upgrade else "from SIGKILL to the first answer"
    print(f"{options.device}, {options.used / GIB:g} GiB in use, {what}: median {statistics.median(took):.4f} s, "
          f"at most {max(took):.4f} s of {len(took)}")


if __name__ == "__main__":
    main()
