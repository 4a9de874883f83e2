#!/usr/bin/env python3
"""Draws the results of `compare.py --cells sweep --json FILE` to a PNG: latency and bandwidth by request size.

The left column shows the median latency at queue depth 1, the right column the bandwidth at depth 16
(solid) and 1 (dashed). Reads are above, writes below. Uses matplotlib.
"""

import argparse
import json
import sys

from cell import size_text

LATENCY = "median latency at QD 1, us"
BANDWIDTH = "MB/s at QD 16 (solid) and QD 1 (dashed)"
COLOURS = ["#0060ad", "#dd181f", "#2e8b57", "#e69f00", "#7b3294", "#555555", "#56b4e9", "#8c510a"]


def read_series(path):
    """{(server, transport): {(op, qd): [(size, p50 in us, MB/s), ...]}}, in ascending order of sizes."""
    with open(path, encoding="utf-8") as file:
        document = json.load(file)
    series = {}
    for result in document["results"]:
        if result["op"] == "rw" or result["connections"] != 1 or result["qd"] not in (1, 16):
            continue
        curves = series.setdefault((result["server"], result["transport"]), {})
        median = result["median"]
        curves.setdefault((result["op"], result["qd"]), []).append(
            (result["size"], median["p50_us"], median["mbps"]))
    for curves in series.values():
        for points in curves.values():
            points.sort()
    return document["header"], series


def panels():
    for op in ("read", "write"):
        yield op, LATENCY, 1, ((1, "solid"),)
        yield op, BANDWIDTH, 2, ((16, "solid"), (1, "dashed"))


def labels_of(series):
    transports = {transport for _, transport in series}
    return {key: key[0] if len(transports) == 1 else f"{key[0]}, {key[1]}" for key in series}


def title_of(header):
    gpu = header.get("gpu", "none")
    return f"{header['cpu']}, {header['cores']} cores" + ("" if gpu == "none" else f"; {gpu}")


def draw(header, series, output):
    try:
        import matplotlib
    except ImportError:
        sys.exit("plot: matplotlib is missing: apt-get install python3-matplotlib, for /usr/bin/python3")

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import FuncFormatter

    figure, axes = pyplot.subplots(2, 2, figsize=(15, 10))
    names = labels_of(series)
    for axis, (op, what, column, depths) in zip(axes.flat, panels()):
        for index, (key, curves) in enumerate(series.items()):
            for qd, dash in depths:
                points = curves.get((op, qd), [])
                axis.plot([point[0] for point in points], [point[column] for point in points],
                          marker="o", markersize=3, linestyle=dash,
                          color=COLOURS[index % len(COLOURS)],
                          label=names[key] if dash == "solid" else None)
        axis.set(yscale="log", title=op, ylabel=what,
                 xlabel="size of a request, bytes")
        axis.set_xscale("log", base=2)
        axis.xaxis.set_major_formatter(FuncFormatter(lambda size, _: size_text(int(size))))
        axis.grid(True, alpha=0.4)
        axis.legend()
    figure.suptitle(title_of(header))
    figure.tight_layout()
    figure.savefig(output, dpi=100)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("json", help="output of compare.py --cells sweep --json")
    parser.add_argument("output", help="the PNG to write")
    parser.add_argument("--transport", choices=("unix", "tcp"), help="draw only this transport (all)")
    options = parser.parse_args()
    header, series = read_series(options.json)
    series = {key: curves for key, curves in series.items()
              if options.transport in (None, key[1])}
    sizes = {point[0] for curves in series.values() for points in curves.values()
             for point in points}
    if len(sizes) < 3:
        sys.exit("plot: there is no sweep in this file: make one by compare.py --cells sweep --json FILE")
    draw(header, series, options.output)


if __name__ == "__main__":
    main()
