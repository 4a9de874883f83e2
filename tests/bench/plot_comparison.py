#!/usr/bin/env python3
"""Draws README's comparison from the runs in results/: throughput as a multiple of nbdkit's, to an SVG.

    tests/bench/plot_comparison.py            # writes tests/bench/figures/comparison.svg
    tests/bench/plot_comparison.py --table    # prints the absolute figures of the README

Each bar is a server's figure over nbdkit's in the same run, since figures of different runs are not comparable.
"""

import json
import sys
from html import escape
from pathlib import Path

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
PICTURE = HERE / "figures" / "comparison.svg"
REFERENCE = "nbdkit"
# File in results/, server in that file, name on the plot.
SERIES = (
    ("h200-unix", "gpunbd:cuda:0", "gpunbd, GPU memory", "#1f77b4"),
    ("h200-unix", "gpunbd:host", "gpunbd, host memory", "#9ecae1"),
    ("nbd-vram", "nbd-vram", "nbd-vram, GPU memory", "#e6842a"),
)
CELLS = (
    ("4k-read-qd32", "4 KiB reads,\n32 at once"),
    ("4k-write-qd32", "4 KiB writes,\n32 at once"),
    ("1M-read-qd8", "1 MiB reads,\n8 at once"),
    ("1M-write-qd8", "1 MiB writes,\n8 at once"),
    ("1M-read-qd8x4", "1 MiB reads,\n4 x 8 at once"),
    ("1M-write-qd8x4", "1 MiB writes,\n4 x 8 at once"),
)
TITLE = "NBD over a Unix socket. One NVIDIA H200 (PCIe gen 5 x16), 16 cores, 2026-11-21, medians"
FOOTNOTE = ("Each bar over nbdkit in the same run. nbd-vram was measured in a run of its own with nbdkit, on the same kind of "
            "machine.")


def medians(kind):
    run = json.loads((RESULTS / f"{kind}.json").read_text(encoding="utf-8"))
    return {(result["cell"], result["server"]): result["median"] for result in run["results"]}


def absolute(median, cell):
    """The rate in requests for small requests, in bytes for large ones."""
    return f'{median["iops"]:,.0f}/s' if cell.startswith("4k") else f'{median["mbps"] / 1000:.1f} GB/s'


def table():
    """Columns: the series of the plot, and nbdkit in each of their runs."""
    kinds = list(dict.fromkeys(kind for kind, *_ in SERIES))
    columns = [(kind, server, name) for kind in kinds
               for server, name in [*((server, name) for of, server, name, _ in SERIES if of == kind), (REFERENCE, f"{REFERENCE}, same run")]]
    yield "| | " + " | ".join(name for _, _, name in columns) + " |"
    yield "|---|" + "---:|" * len(columns)
    for cell, label in CELLS:
        figures = [absolute(medians(kind)[cell, server], cell) for kind, server, _ in columns]
        yield f"| {' '.join(label.split())} | " + " | ".join(figures) + " |"


def ratios():
    for kind, server, name, colour in SERIES:
        file = RESULTS / f"{kind}.json"
        rate = {key: median["iops"] for key, median in medians(kind).items()}
        try:
            yield name, colour, [rate[cell, server] / rate[cell, REFERENCE] for cell, _ in CELLS]
        except KeyError as missing:
            sys.exit(f"plot: {file.name} has no figure of {missing.args[0]}")


def text(x, y, words, size=13, more=""):
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" {more}>{escape(words)}</text>'


def svg():
    """The lines of the picture. Its fonts are those of the viewer."""
    series = list(ratios())
    left, right, top, bottom, group, width = 76, 944, 36, 370, 144.6, 40
    scale = (bottom - top) / (1.12 * max(max(values) for _, _, values in series))
    middle = 'text-anchor="middle"'
    yield (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 960 440" font-family="sans-serif" fill="#222222">\n'
           '<rect width="960" height="440" fill="#ffffff"/>')
    yield text((left + right) / 2, 22, TITLE, 14.5, middle)
    yield text(24, (top + bottom) / 2, "requests per second, multiple of nbdkit's", 13,
               f'{middle} transform="rotate(-90 24 {(top + bottom) / 2:g})"')
    for value in range(int((bottom - top) / scale) + 1):
        yield (f'<path d="M{left} {bottom - value * scale:.1f}H{right}" stroke="#dddddd"/>'
               + text(left - 8, bottom - value * scale + 4, str(value), 13, 'text-anchor="end"'))
    for index, (name, colour, values) in enumerate(series):
        for place, value in enumerate(values):
            x, y = left + (place + 0.5) * group + (index - 1.5) * width, bottom - value * scale
            yield f'<rect x="{x + 1:.1f}" y="{y:.1f}" width="{width - 2}" height="{value * scale:.1f}" fill="{colour}"/>'
            yield text(x + width / 2, y - 4, f"{value:.1f}", 12, middle)
        yield f'<rect x="400" y="{44 + 20 * index}" width="16" height="11" fill="{colour}"/>' + text(424, 54 + 20 * index, name)
    yield f'<path d="M{left} {bottom - scale:.1f}H{right}M400 110H416" stroke="#555555" stroke-dasharray="5 3"/>'
    yield text(424, 114, "nbdkit's memory plugin, host memory = 1")
    for place, (_, label) in enumerate(CELLS):
        for number, line in enumerate(label.split("\n")):
            yield text(left + (place + 0.5) * group, bottom + 18 + 16 * number, line, 13, middle)
    yield text(12, 432, FOOTNOTE, 11.5)
    yield "</svg>"


def main():
    if sys.argv[1:] == ["--table"]:
        print("\n".join(table()))
        return
    PICTURE.write_text("\n".join(svg()) + "\n", encoding="utf-8")
    print(f"plot: wrote {PICTURE}")


if __name__ == "__main__":
    main()
