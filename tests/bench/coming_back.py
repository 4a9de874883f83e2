#!/usr/bin/env python3
"""How long clients wait for a server that has been killed, or that hands over to another, under gpunbd keep.

    tests/bench/coming_back.py --device host --used 8G             # from SIGKILL to the first answered request
    tests/bench/coming_back.py --device cuda:0 --used 64G --rounds 3
    tests/bench/coming_back.py --upgrade                           # the longest answer while SIGUSR2 takes effect

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
import kept  # noqa: E402: where it lies is said above

MIB, GIB = 1 << 20, 1 << 30
FILLED_AT_ONCE = 32 * MIB


def size(text):
    return int(text[:-1]) << {"M": 20, "G": 30}[text[-1]]


def fill(keeper, bytes_):
    block = os.urandom(MIB) * (FILLED_AT_ONCE // MIB)
    with keeper.client() as client:
        for at in range(0, bytes_, FILLED_AT_ONCE):
            client.write(at, block)


def until_the_next_has_taken_over(keeper, at):
    """The longest of the answers that one connection waits for meanwhile."""
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
    parser.add_argument("--used", type=size, default=2 * GIB, metavar="SIZE", help="written before: 512M, 64G (2G)")
    parser.add_argument("--rounds", type=int, default=15, help="(15)")
    parser.add_argument("--upgrade", action="store_true", help="SIGUSR2 instead of SIGKILL")
    options = parser.parse_args()
    keeper = kept.Kept("--device", options.device, "--size", options.used)
    took = []
    try:
        fill(keeper, options.used)
        for _ in range(options.rounds):
            if options.upgrade:
                took.append(until_the_next_has_taken_over(keeper, options.used - 4096))
            else:
                took.append(keeper.kill_until_answer(options.used - 4096))
            print(f"{took[-1]:.4f} s", flush=True)
            time.sleep(0.2)
    finally:
        keeper.stop()
    what = "the longest answer during an upgrade" if options.upgrade else "from SIGKILL to the first answer"
    print(f"{options.device}, {options.used / GIB:g} GiB in use, {what}: median {statistics.median(took):.4f} s, "
          f"at most {max(took):.4f} s of {len(took)}")


if __name__ == "__main__":
    main()
