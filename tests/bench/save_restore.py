#!/usr/bin/env python3
"""Compares `gpunbd export save` and `restore` with nbdcopy, from the same export to the same disk, in turn.

    tests/bench/save_restore.py --folder /var/tmp --size 8G                # raw
    tests/bench/save_restore.py --folder /var/tmp --size 8G --threads 2    # compressed by two threads

Prints GB/s of each round and the medians, and the latency of a client's reads alone and during each. Files are synced and
not in the page cache. All contents are compared. The program is build/release/gpunbd, or GPUNBD_PROGRAM.
"""

import argparse
import filecmp
import json
import os
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "integration"))
import server  # noqa: E402: its folder is added to the path above
import wire  # noqa: E402
from cell import GIB, MIB, parse_size  # noqa: E402

NBDLOAD = Path(server.ROOT, "build", "release", "nbdload")
AT_ONCE = 32 * MIB
CONFIG = """listeners: {{unix: [{{path: '{{socket}}'}}]}}
admin: {{socket: '{{directory}}/admin'}}
exports: [{{name: source, size: {size}, devices: ['{device}']}}]
"""


def contents(length, seed):
    """Half of each block can be compressed."""
    source = random.Random(seed)
    return b"".join(source.randbytes(32 << 10) + bytes(32 << 10) for _ in range(length >> 16))


def forget(path):
    """Writes the file to the disk and drops it from the page cache."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def timed(command):
    began = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    return time.monotonic() - began


class Bench:
    def __init__(self, options):
        self.options = options
        self.folder = Path(options.folder)
        self.results = {}

    def export(self, *words):
        return [server.PROGRAM, "export", *map(str, words), "--socket", f"{self.serving.directory}/admin"]

    def note(self, what, seconds):
        rate = self.options.size / seconds / 1e9
        self.results.setdefault(what, []).append(rate)
        print(f"{what}: {rate:.2f} GB/s", flush=True)

    def fill(self):
        block = contents(AT_ONCE, 1)
        with wire.connect(self.serving.path, name="source") as client:
            for at in range(0, self.options.size, AT_ONCE):
                client.write(at, at.to_bytes(8, "big") + block[8:])

    def round(self):
        compressed = ["--compress", "zstd", "--threads", self.options.threads] if self.options.threads else []
        image, copy, back = (self.folder / name for name in ("save_restore.img", "save_restore.raw", "save_restore.back"))
        try:
            self.note("save", timed(self.export("save", "source", image, *compressed)))
            self.note("nbdcopy to a file", timed(["nbdcopy", "--flush", self.serving.uri("source"), copy]))
            if not compressed and not filecmp.cmp(image, copy, shallow=False):
                sys.exit("the image differs from the export")
            for path in (image, copy):
                forget(path)
            self.note("restore", timed(self.export("restore", image, "restored", "--device", self.options.device)))
            subprocess.run(["nbdcopy", self.serving.uri("restored"), back], check=True)
            if not filecmp.cmp(back, copy, shallow=False):
                sys.exit("the restored export differs")
            self.discard("restored")
            forget(copy)
            subprocess.run(self.export("create", "copied", "--size", self.options.size, "--device", self.options.device), check=True,
                           stdout=subprocess.DEVNULL)
            self.note("nbdcopy to an export", timed(["nbdcopy", "--flush", copy, self.serving.uri("copied")]))
            self.discard("copied")
        finally:
            for path in (image, copy, back):
                path.unlink(missing_ok=True)

    def discard(self, name):
        subprocess.run(self.export("remove", name), check=True, stdout=subprocess.DEVNULL)

    def reads(self, beside):
        """Of a client that reads 4 KiB at a time, for as long as `beside` runs."""
        image = self.folder / "save_restore.img"
        command = {"save": self.export("save", "source", image),
                   "nbdcopy": ["nbdcopy", "--flush", self.serving.uri("source"), image]}.get(beside)
        other = subprocess.Popen(command, stdout=subprocess.DEVNULL) if command else None
        try:
            done = subprocess.run([NBDLOAD, "--uri", self.serving.uri("source"), "--qd", "1", "--warmup", "0.1", "--seconds", "2"],
                                  check=True, capture_output=True, text=True)
            if other is not None and other.poll() is not None:
                print(f"{beside} ended before the reads: use a larger --size")
        finally:
            if other is not None:
                other.wait()
            image.unlink(missing_ok=True)
        found = json.loads(done.stdout)
        print(f"reads of 4 KiB, beside {beside}: {found['iops']:,.0f}/s, p50 {found['p50_us']:.0f} us, "
              f"p99 {found['p99_us']:.0f} us", flush=True)

    def run(self):
        config = CONFIG.format(size=self.options.size, device=self.options.device)
        self.serving = server.Server(config=config, name="source")
        try:
            self.fill()
            for _ in range(self.options.rounds):
                self.round()
            for beside in ("nothing", "save", "nbdcopy"):
                self.reads(beside)
        finally:
            self.serving.stop()
        medians = {what: statistics.median(rates) for what, rates in self.results.items()}
        for what, against in (("save", "nbdcopy to a file"), ("restore", "nbdcopy to an export")):
            print(f"{what}: {medians[what]:.2f} GB/s, {medians[what] / medians[against]:.2f}x of {against}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="host", help="(host)")
    parser.add_argument("--folder", default="/var/tmp", help="on the disk (/var/tmp)")
    parser.add_argument("--size", type=parse_size, default=2 * GIB, help="of the export: 512M, 8G (2G)")
    parser.add_argument("--rounds", type=int, default=3, help="(3)")
    parser.add_argument("--threads", type=int, default=0, metavar="N", help="compress by N threads")
    Bench(parser.parse_args()).run()


if __name__ == "__main__":
    main()
