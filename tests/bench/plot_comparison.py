#!/usr/bin/env python3
"""Draws README's comparison from the runs in results/: throughput as a multiple of nbdkit's, to an SVG.

    tests/bench/plot_comparison.py            # writes tests/bench/figures/comparison.svg
    tests/bench/plot_comparison.py --table    # prints the absolute figures of the README

Each bar is a server's figure over nbdkit's in the same run, since figures of different runs are not comparable.
"""

import json
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
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


def draw(series, output):
    try:
        import matplotlib
    except ImportError:
        sys.exit("plot: matplotlib is missing: apt-get install python3-matplotlib, for /usr/bin/python3")
    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.hashsalt": "gpunbd", "font.size": 11})
    from matplotlib import pyplot

    figure, axis = pyplot.subplots(figsize=(10, 4.6))
    width = 0.27
    for index, (name, colour, values) in enumerate(series):
        places = [place + (index - 1) * width for place in range(len(CELLS))]
        bars = axis.bar(places, values, width * 0.92, label=name, color=colour)
        axis.bar_label(bars, fmt="%.1f", fontsize=9, padding=2)
    axis.axhline(1, color="#555555", linewidth=1, linestyle="--", label="nbdkit's memory plugin, host memory = 1")
    axis.set_xticks(range(len(CELLS)), [label for _, label in CELLS])
    axis.set_ylabel("requests per second,\nmultiple of nbdkit's (more is better)")
    axis.set_title("NBD over a Unix socket. One NVIDIA H200 (PCIe gen 5 x16), 16 cores, 2026-11-21, medians",
                   fontsize=11)
    axis.spines[["top", "right"]].set_visible(False)
    axis.margins(y=0.12)
    axis.legend(frameon=False, fontsize=10)
    figure.text(0.01, 0.005, "Each bar over nbdkit in the same run. nbd-vram was measured in a run of its own with "
                "nbdkit, on the same kind of machine.", fontsize=8.5, color="#444444")
    figure.tight_layout(rect=(0, 0.025, 1, 1))
    figure.savefig(output, metadata={"Date": None})


def main():
    if sys.argv[1:] == ["--table"]:
        print("\n".join(table()))
        return
    output = sys.argv[1] if len(sys.argv) > 1 else HERE / "figures" / "comparison.svg"
    draw(list(ratios()), output)
    print(f"plot: wrote {output}")


if __name__ == "__main__":
    main()
