#!/usr/bin/env python3
"""Makes RESULTS.md of the runs that are kept in results/, the latest of each kind.

    tests/bench/results_page.py            # writes tests/bench/RESULTS.md
    tests/bench/results_page.py --print    # to standard output

A run takes the place of the one before: `compare.py ... --json tests/bench/results/KIND.json`.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path

import neighbour
from compare import Comparison, bars, judged, number, table

HERE = Path(__file__).resolve().parent
PAGE = HERE / "RESULTS.md"
BESIDE = ("", "pytorch", "copy", "mps")  # what neighbour*.json were measured beside
LONG = 128 << 10  # bytes; from here on the throughput of a cell is told in MB/s

INTRODUCTION = """# Results

Made by `tests/bench/results_page.py` from [results/](results), the latest run of each kind; do not edit. What the
figures have taught, and the experiments behind them, is in [PERFORMANCE.md](../../server/PERFORMANCE.md#experiments).

**Measured** by `nbdload`, which keeps requests in flight on each connection, one thread for each, at random multiples
of the request's size within 1 GiB that was written before. The servers of a run take turns, A B A B; figures are medians
over the rounds. Figures of different runs are not comparable: machines differ, shared ones are noisy.

- Each entry: requests a second (from 128 KiB on: 10^6 bytes a second) / p99 in us / the server's CPU time in us for each
  request, of all its threads. p50, the client's CPU time and the spread of the rounds are in the JSON.
- `1M-read-qd8x4`: reads of 1 MiB, 8 in flight on each of 4 connections; `1M-rw-qd8x8+8`: 8 that read beside 8 that write.
- nbdkit serves by its memory plugin, qemu-nbd a raw file on tmpfs; "sockets" is the same client and the same messages
  against a peer that handles no NBD: no server is faster over such a socket.
- A bar is what the project asks of itself (`BARS` in [compare.py](compare.py)); missed ones are named.
- "transcribed": from the printed tables of a run whose JSON was not kept, so rounded, and without the rounds.

**To reproduce:** each run's own command, on a machine of its kind; `--json` keeps it, then run `results_page.py`. Also:

    ./dev bench                                   # gpunbd on host memory, nbdkit, qemu-nbd: the core cells
    ./dev bench --cells '4k-*' --transports unix --rounds 3 --seconds 1          # some of it, noisier
    ./dev bench --gpunbd old=build/old/gpunbd --gpunbd build/release/gpunbd --servers old,gpunbd   # two builds
    ./dev bench --keep --cells core,first          # also with contents that outlive the server; first writes
    ./dev bench --cells gpu --device host --device cuda:0 --socket-ceiling       # with a GPU
    tests/conformance/scores.py                   # the scores of conformance
    tests/bench/plot_comparison.py                # figures/comparison.svg, from results/
"""


class BadRun(Exception):
    """What is wrong with the files of results/, in words for people."""


@dataclass(frozen=True)
class Section:
    title: str
    kinds: tuple  # the files, less .json; several: side by side in one table
    table: object  # what makes its lines


def load(kind):
    path = HERE / "results" / f"{kind}.json"
    try:
        run = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadRun(f"{path.name}: {error}") from error
    lacking = [key for key in ("date", "commit", "command", "hardware") if not run["header"].get(key)
               and not (key == "hardware" and run["header"].get("cpu"))]
    if lacking:
        raise BadRun(f"{path.name}: its header lacks {', '.join(lacking)}")
    return run


def hardware(header):
    if "hardware" in header:
        return header["hardware"]
    gpu = "" if header["gpu"] == "none" else f", {header['gpu']}"
    return f"{header['cpu']}, {header['cores']} cores{gpu}"


def miss(bar, several_transports):
    where = f" over {bar['transport']}" if several_transports else ""
    against = f" against {bar['against']}" if bar["against"] else ""
    figure = number(bar["is"], 2, "x") if bar["against"] else number(bar["is"])
    return f"`{bar['cell']}` {bar['server']}{where}: {bar['bar']}{against}, is {figure}"


def about(run):
    """When, where and how it was measured, how it did, and what has to be known of it."""
    header = run["header"]
    words = [header["date"], f"commit {header['commit']}", hardware(header)]
    words += [header[key] for key in ("servers", "measured") if header.get(key)]
    words += ["transcribed"] if header.get("transcribed") else []
    yield f"- {'; '.join(words)}: {header['command']}"
    if "max_us_at_start" in run:
        yield from (f"- {line}" for line in neighbour.verdicts(run))
    found = bars(Comparison(header, run.get("results", [])))
    if found:
        total, missed = judged(found)
        several = len({bar["transport"] for bar in found}) > 1
        names = "; ".join(miss(bar, several) for bar in missed)
        yield f"- **{total - len(missed)} of {total} bars met.**" + (f" Missed: {names}." if missed else "")
    if remarks := header.get("left_out", []) + header.get("notes", []):
        yield "- " + " ".join(remark if remark.endswith(".") else f"{remark}." for remark in remarks)


# --- tables ------------------------------------------------------------------------------------


def entry(result):
    median = result["median"]
    throughput = median["mbps"] if result["size"] >= LONG else median["iops"]
    return " / ".join([number(throughput), number(median["p99_us"]), number(median["server_cpu_us_per_io"], 2)])


def throughput(runs):
    results = {(r["transport"], r["cell"], r["server"]): r for run in runs for r in run["results"]}
    columns = list(dict.fromkeys((transport, server) for transport, _, server in results))
    several = len({transport for transport, _ in columns}) > 1
    heads = [f"{server.removeprefix('gpunbd:')}{f', {transport}' if several else ''}" for transport, server in columns]
    rows = [[cell, *(entry(results[transport, cell, server]) if (transport, cell, server) in results else ""
                     for transport, server in columns)]
            for cell in dict.fromkeys(cell for _, cell, _ in results)]
    return table(["cell", *heads], rows, left=1)


def beside(runs):
    """Each server alone and beside the neighbour, and what share of its own rate that one keeps."""
    def shown(rounds, where):
        iops, p50, p99 = (neighbour.median(rounds, where, metric) for metric in ("iops", "p50_us", "p99_us"))
        return f"{number(iops)} / {number(p50, 1)} / {number(p99)}"

    columns = [(server, runs[0]["cells"][server]) for server in runs[0]["cells"]]
    heads = [f"{server.removesuffix(':cuda:0')}{what}" for server, _ in columns
             for what in (", alone", ", beside", ", it keeps")]
    others = [cells for run in runs[1:] for cells in run["cells"].values()]
    heads += [f"{what} ({kind})" for kind in BESIDE[1:] for what in ("beside", "it keeps")]
    rows = []
    for cell in columns[0][1]:
        row = [cell]
        for _, cells in columns:
            row += [shown(cells[cell], "alone"), shown(cells[cell], "beside"), number(neighbour.kept(cells[cell]), 3)]
        for cells in others:
            row += [shown(cells[cell], "beside"), number(neighbour.kept(cells[cell]), 3)]
        rows.append(row)
    return table(["cell: IOPS / p50 / p99", *heads], rows, left=1)


def before_and_after(runs):
    """Two builds in turn: where the later one's throughput is below 0.97x, with its CPU time for each request."""
    ratios = runs[0]["ratios"]
    below = [f"`{ratio['cell']}` {ratio['server']} {ratio['run']}: {ratio['iops']:.2f}x / "
             f"{ratio['server_cpu_us_per_io']:.2f}x" for ratio in ratios if ratio["iops"] < 0.97]
    text = f"{len(ratios) - len(below)} of {len(ratios)} cells reach 0.97x."
    return [text + (f" Below, throughput / CPU time: {'; '.join(below)}." if below else "")]


def fairness(runs):
    """A lone reader alone, and beside each attack."""
    results = runs[0]["results"]
    cells = {}
    for result in results:
        median = result["median"]
        cells.setdefault(result["attack"] or "alone", {})[result["server"]] = (
            f"{number(median['iops'])} / {number(median['p50_us'], 1)} / {number(median['p99_us'], 1)}")
    servers = list(cells["alone"])
    return table(["4k-read-qd1: IOPS / p50 / p99", *cells],
                 [[server, *(of.get(server, "") for of in cells.values())] for server in servers], left=1)


def scores(runs):
    groups = ("MUST", "SHOULD", "extensions", "holes")
    return table(["server", "MUST that fail", *groups],
                 [[server["server"], "; ".join(server["broken"]) or "none",
                   *(f"{server['summary'][group]['passed']}/{server['summary'][group]['judged']}" for group in groups)]
                  for server in runs[0]["servers"]])


def tests(runs):
    return table(["program", "on", "cases", "what it holds"],
                 [[f"`{test['program']}`", test["on"], str(test["cases"]), test["holds"]] for test in runs[0]["tests"]],
                 left=4)


SECTIONS = (
    Section("One H200", ("h200-unix", "h200-tcp", "h200-tls"), throughput),
    Section("Host memory on 2 cores, beside nbdkit and qemu-nbd", ("host",), throughput),
    Section("Beside other programs on the same H200", tuple(f"neighbour{kind and '-'}{kind}" for kind in BESIDE), beside),
    Section("Several H200s, striped, and one of two", ("two-h200", "one-of-two-h200", "four-h200"), throughput),
    Section("Before and after the connection was remade", ("redesign",), before_and_after),
    Section("Contents that outlive the server, and first writes: on one H200, and on 2 cores", ("kept-h200", "kept"), throughput),
    Section("One reader beside hostile clients", ("fairness",), fairness),
    Section("nbd-vram beside nbdkit, one H200", ("nbd-vram",), throughput),
    Section("Conformance", ("conformance",), scores),
    Section("What ran on GPUs", ("gpu-tests",), tests),
)


def page():
    lines = INTRODUCTION.splitlines()
    for section in SECTIONS:
        runs = [load(kind) for kind in section.kinds]
        lines += ["", f"## {section.title}", ""]
        for run in runs:
            lines += about(run)
        lines += ["", *section.table(runs)]
    return "\n".join(lines) + "\n"


def main():
    try:
        text = page()
    except BadRun as error:
        sys.exit(f"results_page: {error}")
    if sys.argv[1:] == ["--print"]:
        print(text, end="")
    elif sys.argv[1:]:
        sys.exit(f"results_page: unknown arguments; write {Path(__file__).name} [--print]")
    else:
        PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
