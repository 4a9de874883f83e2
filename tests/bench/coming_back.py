#!/usr/bin/env python3
"""Measures how long clients wait after a server under gpunbd keep was killed, or while it hands over to another.

    tests/bench/coming_back.py --device host --used 8G             # from SIGKILL to the first reply
    tests/bench/coming_back.py --device cuda:0 --used 64G --rounds 3
    tests/bench/coming_back.py --upgrade                           # the longest latency during SIGUSR2

Prints a line for each round, and the median. The program is build/release/gpunbd, or GPUNBD_PROGRAM.
"""

import argparse
import os
import signal
import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
os.environ.setdefault("GPUNBD_PROGRAM", str(ROOT / "build" / "release" / "gpunbd"))
sys.path.insert(0, str(ROOT / "tests" / "integration"))
import kept  # noqa: E402: its folder is added to the path above

MIB, GIB = 1 << 20, 1 << 30
FILLED_AT_ONCE = 32 * MIB
FILLERS = 8  # connections
CONFIG = """listeners: {{unix: [{{path: {{socket}}}}]}}
exports: [{{name: "", size: {size}, devices: ["{device}"], keep: true}}]
{mapped}"""
MAPPED = "devices: [{{id: '{device}', mapped: {mapped}}}]\n"


def size(text):
    return 0 if text == "0" else int(text[:-1]) << {"M": 20, "G": 30}[text[-1]]


def fill(keeper, bytes_):
    block = os.urandom(MIB) * (FILLED_AT_ONCE // MIB)

    def fill_each(first):
        with keeper.client() as client:
            for at in range(first * FILLED_AT_ONCE, bytes_, FILLERS * FILLED_AT_ONCE):
                client.write(at, block)

    kept.in_processes(FILLERS, fill_each)


def longest_latency_of_upgrade(keeper, at):
    """The longest latency of one connection until the next server has taken over."""
    longest = 0
    served = keeper.log().count("serves now")
    with keeper.client() as client:
        client.read(at, 4096)
        os.kill(keeper.process.pid, signal.SIGUSR2)
        while keeper.log().count("serves now") == served:
            for _ in range(50):
                began = time.monotonic()
                client.read(at, 4096)
                longest = max(longest, time.monotonic() - began)
        client.disconnect()
    return longest


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="host", help="(host)")
    parser.add_argument("--used", type=size, default=2 * GIB, metavar="SIZE", help="size of the written contents: 512M, 64G (2G)")
    parser.add_argument("--rounds", type=int, default=15, help="(15)")
    parser.add_argument("--pause", type=float, default=4, metavar="SECONDS", help="pause between rounds, in which the "
                        "server finishes deferred work; without it the server exits faster (4)")
    parser.add_argument("--mapped", type=size, metavar="SIZE", help="GPU memory that the CPU can address")
    parser.add_argument("--upgrade", action="store_true", help="send SIGUSR2 instead of SIGKILL")
    options = parser.parse_args()
    keeper = kept.Kept(config=CONFIG.format(device=options.device, size=options.used,
                                            mapped="" if options.mapped is None else MAPPED.format(
                                                device=options.device, mapped=options.mapped)))
    took = []
    try:
        fill(keeper, options.used)
        for _ in range(options.rounds):
            if options.upgrade:
                took.append(longest_latency_of_upgrade(keeper, options.used - 4096))
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
