"""A measurement on a server: an operation, its size, and the number of requests in flight."""

import argparse
import re
from dataclasses import dataclass

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


def size_text(size):
    for unit, letter in ((GIB, "G"), (MIB, "M"), (KIB, "k")):
        if size >= unit and size % unit == 0:
            return f"{size // unit}{letter}"
    return str(size)


def parse_size(text):
    """The argument of an option: 256M or 1G, or bytes."""
    match = re.fullmatch(r"(\d+)([kmgt]?)(?:ib)?", text.lower())
    if not match:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size; write for example 256M or 1G")
    return int(match[1]) << (10 * " kmgt".index(match[2] or " "))


@dataclass(frozen=True)
class Cell:
    op: str  # read, write, rw
    size: int
    qd: int
    connections: int = 1  # of each direction
    attack: str = ""  # the name of a concurrent attack in attack.py, which uses half of the span
    first: bool = False  # the export is empty before

    @property
    def name(self):
        return self.name_alone + (f"-beside-{self.attack}" if self.attack else "") + ("-first" if self.first else "")

    @property
    def load(self):
        """The name of the cell that runs beside this one as load, or None."""
        return self.attack if "-qd" in self.attack else None

    @property
    def name_alone(self):
        shape = f"{self.connections}+{self.connections}" if self.op == "rw" else self.connections
        times = f"x{shape}" if self.op == "rw" or self.connections > 1 else ""
        return f"{size_text(self.size)}-{self.op}-qd{self.qd}{times}"

    def arguments(self):
        connections = self.connections * (2 if self.op == "rw" else 1)
        return ["--op", self.op, "--size", str(self.size), "--qd", str(self.qd),
                "--connections", str(connections)]


def both(size, qd, connections=1):
    return [Cell("read", size, qd, connections), Cell("write", size, qd, connections)]
