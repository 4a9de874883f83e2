#!/usr/bin/env python3
"""Compares gpunbd with other NBD servers, in turn, in one run, and prints Markdown.

Every cell (operation, size, queue depth, connections) is measured on each server, one after the
other, for a number of rounds. The medians are reported.
`compare.py --help` lists the options; results_page.py generates RESULTS.md from the files of --json.
"""

import argparse
import concurrent.futures
import contextlib
import ctypes
import datetime
import fnmatch
import json
import os
import platform
import re
import shlex
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import attack
import neighbour
from cell import GIB, KIB, MIB, Cell, both, parse_size, size_text

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "release"
START_LIMIT = 60  # seconds until a server must listen: CUDA starts slowly with large memory
LABELS = {"iops": "IOPS", "mbps": "MB/s", "p50_us": "p50", "p99_us": "p99",
          "server_cpu_us_per_io": "server CPU", "client_cpu_us_per_io": "client CPU"}
METRICS = tuple(LABELS)
TRANSPORTS = {"unix": "Unix socket", "tcp": "TCP, loopback", "tls": "TLS over TCP, loopback"}


class BenchError(Exception):
    """An error that ends the comparison, with a readable message."""


# --- cells -------------------------------------------------------------------------------------


CORE = [*both(4 * KIB, 1), *both(4 * KIB, 32), *both(4 * KIB, 32, 4), *both(128 * KIB, 16),
        *both(MIB, 8), *both(MIB, 8, 4)]
GPU = [*both(4 * KIB, 1), *both(4 * KIB, 32), *both(4 * KIB, 32, 4), *both(4 * KIB, 32, 8),
       *both(128 * KIB, 8), *both(128 * KIB, 16), *both(MIB, 8), *both(MIB, 8, 4),
       *both(MIB, 8, 8), *both(MIB, 8, 12), Cell("rw", 4 * KIB, 32, 8), Cell("rw", MIB, 8, 8)]
SEVERAL_GPUS = [*both(4 * KIB, 32, 16), *both(MIB, 8, 16)]
# One reader that waits for each reply, alone and beside each attack.
FAIRNESS = [Cell("read", 4 * KIB, 1), *(Cell("read", 4 * KIB, 1, attack=each) for each in attack.ATTACKS)]
# The same reader beside a load of many connections. The rate of the load is reported as well.
LOADS = [*both(4 * KIB, 32, 16), *both(MIB, 8, 16)]
LIGHT = [Cell("read", 4 * KIB, 1), *LOADS, *(Cell("read", 4 * KIB, 1, attack=each.name) for each in LOADS)]
TLS = [*both(4 * KIB, 32), *both(4 * KIB, 32, 4), *both(MIB, 8), *both(MIB, 8, 4), *both(MIB, 8, 8),
       Cell("read", 4 * KIB, 1), *(Cell("read", 4 * KIB, 1, attack=each) for each in attack.IN_TLS)]
# First writes into an empty export, and rewrites.
FIRST = [Cell("write", 4 * KIB, 32), Cell("write", 4 * KIB, 32, first=True)]
SETS = {"core": CORE, "gpu": GPU, "stripe": SEVERAL_GPUS, "fairness": FAIRNESS, "light": LIGHT,
        "tls": TLS, "first": FIRST}


def choose_cells(texts):
    """Accepts sets, patterns of cell names, and names of new cells: core; 4k-*; 1M-read-qd8x4."""
    chosen = []
    known = list(dict.fromkeys(CORE + GPU + SEVERAL_GPUS + FAIRNESS + LIGHT + TLS + FIRST))
    for text in texts:
        if text in SETS:
            found = SETS[text]
        else:
            found = [cell for cell in known if fnmatch.fnmatchcase(cell.name, text)]
            match = re.fullmatch(r"(\w+)-(read|write|rw)-qd(\d+)(?:x(\d+)(?:\+\d+)?)?", text)
            if not found and match:
                found = [Cell(match[2], parse_size(match[1]), int(match[3]), int(match[4] or 1))]
        if not found:
            raise BenchError(f"no cell is called {text!r}: give {', '.join(SETS)}, or a name or "
                             "pattern such as 4k-read-qd32x4 or '1M-*'")
        chosen += found
    return list(dict.fromkeys(chosen))


# --- bars --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bar:
    """A limit for `metric` of a server that matches `subject`, relative to `reference` in the same cell, or
    absolute if that is None."""
    cells: str
    subject: str
    reference: str | None
    metric: str
    limit: float
    most: bool = False  # `limit` is a maximum, otherwise a minimum
    plus: float = 0  # added to the limit
    either: bool = False  # it is enough to meet one of these bars of a cell
    over: tuple = ("unix", "tcp")  # the transports

    def text(self):
        sign = "<=" if self.most else ">="
        words = f"{LABELS[self.metric]} {sign} "
        if self.reference is None:
            words += f"{self.limit:,g}" if self.limit < 1e5 else f"{self.limit:,.0f}"
        else:
            words += f"{self.limit:.3g}x" + (f" + {self.plus:g} us" if self.plus else "")
        return words + (" (or)" if self.either else "")


HOST, CUDA, STRIPE = "gpunbd:host", "gpunbd:cuda:?", "gpunbd:cuda:?,*"
CIPHER = "aes-128-gcm"  # the only one that nbdload offers
CPU = "server_cpu_us_per_io"
BARS = [
    Bar("4k-*-qd32", HOST, "nbdkit", "iops", 1.5),
    Bar("4k-*-qd32", HOST, "nbdkit", CPU, 1 / 3, most=True),
    Bar("4k-*-qd32x4", HOST, "nbdkit", "iops", 1.5),
    Bar("4k-*-qd32x4", HOST, "nbdkit", CPU, 1 / 3, most=True),
    Bar("4k-*-qd1", HOST, "nbdkit", "iops", 1.0),
    Bar("128k-*-qd16", HOST, "nbdkit", "mbps", 1.0),
    Bar("128k-*-qd16", HOST, "nbdkit", CPU, 0.8, most=True),
    Bar("1M-*-qd8", HOST, "nbdkit", "mbps", 1.0),
    Bar("1M-*-qd8", HOST, "nbdkit", CPU, 0.8, most=True),
    Bar("1M-*-qd8x4", HOST, "nbdkit", "mbps", 1.0),
    Bar("1M-*-qd8x4", HOST, "nbdkit", CPU, 0.8, most=True),
    Bar("4k-write-qd1", CUDA, HOST, "p50_us", 1.1, most=True),
    Bar("4k-read-qd1", CUDA, HOST, "p50_us", 1.0, most=True, plus=8),
    Bar("4k-*-qd1", CUDA, None, "iops", 75_000, over=("unix",)),
    Bar("4k-read-qd32", CUDA, HOST, "iops", 0.7),
    Bar("4k-write-qd32", CUDA, HOST, "iops", 0.9),
    Bar("4k-*-qd32x4", CUDA, None, "iops", 1_000_000, over=("unix",)),
    Bar("4k-*-qd32x8", CUDA, HOST, "iops", 0.8),
    Bar("4k-*-qd32x8", CUDA, "nbdkit", "iops", 1.5),
    Bar("128k-*-qd8", CUDA, HOST, "mbps", 0.9),
    Bar("128k-*-qd16", CUDA, None, "mbps", 8_000, over=("unix",)),
    Bar("1M-*-qd8", CUDA, HOST, "mbps", 0.9),
    Bar("1M-*-qd8", CUDA, None, "mbps", 9_500, over=("unix",)),
    Bar("1M-*-qd8x4", CUDA, HOST, "mbps", 0.8),
    Bar("1M-*-qd8x4", CUDA, "nbdkit", "mbps", 1.0),
    Bar("1M-*-qd8x4", CUDA, None, "mbps", 25_000, over=("unix",)),
    Bar("1M-*-qd8x8", CUDA, None, "mbps", 30_000, either=True),
    Bar("1M-*-qd8x8", CUDA, "sockets", "mbps", 0.95, either=True),
    Bar("1M-*-qd8x12", CUDA, None, "mbps", 30_000, either=True),
    Bar("1M-*-qd8x12", CUDA, "sockets", "mbps", 0.95, either=True),
    Bar("*x16", STRIPE, CUDA, "mbps", 1.0),
    Bar("4k-*-qd32*", "gpunbd:*", "nbdkit", "iops", 1.5, over=("tls",)),
    Bar("1M-*", "gpunbd:*", "nbdkit", "mbps", 1.0, over=("tls",)),
    Bar("1M-*", "gpunbd:*", CIPHER, "mbps", 0.7, over=("tls",)),
    Bar("*-beside-*", "gpunbd:*", "nbdkit", "p99_us", 1.0, most=True),
]
OTHERS = ("nbdkit", "qemu-nbd", "sockets", CIPHER)
LOAD_BAR = 0.95  # beside a light connection: share of the rate of the load alone, and on the first build
FAIR_BAR = 5  # beside an attack: multiple of the p99 of the same cell alone
RW_BAR = 0.7  # both directions: share of the rate of one direction alone
FIRST_BAR = 0.7  # first writes: share of the rate of rewrites
WATCHED_BAR = 0.98  # with metrics scraped and the page open: share of the rate without
KEPT_BAR = 0.97  # exports with kept contents: share of the rate without
KEPT = "+keep"
WATCHED = "+watched"


# --- servers -----------------------------------------------------------------------------------


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def version_of(program):
    done = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=30)
    line = ((done.stdout or done.stderr).strip().splitlines() or [""])[0]
    if done.returncode != 0 or not line:
        return f"{os.path.basename(program)} of unknown version"
    return os.path.basename(line) if line.startswith("/") else line


class Server:
    """A server program in the foreground. Subclasses define its command line."""

    export = ""

    def __init__(self, name, program):
        self.name = name
        self.program = program
        self.process = None
        self.uri = None

    @property
    def pid(self):
        return self.process.pid

    def command(self, transport, endpoint, size, folder):
        raise NotImplementedError

    def start(self, transport, size, folder):
        for attempt in range(3):
            slug = re.sub(r"\W", "-", self.name) + f"-{attempt}"
            self.log = folder / f"{slug}.log"
            endpoint = str(folder / f"{slug}.sock") if transport == "unix" else free_port()
            self.tls_folder = folder / "tls" if transport == "tls" else None
            if transport == "unix":
                Path(endpoint).unlink(missing_ok=True)  # left by a server that has ended early
            command = [str(part) for part in self.command(transport, endpoint, size, folder)]
            with open(self.log, "wb") as log:
                self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log,
                                                stderr=log, start_new_session=True,
                                                preexec_fn=die_with_parent)
            if self.wait_until_it_listens(transport, endpoint):
                where = (f"nbd+unix:///{self.export}?socket={endpoint}" if transport == "unix"
                         else f"nbd{'s' if self.tls_folder else ''}://127.0.0.1:{endpoint}/{self.export}")
                self.uri = where
                self.address = endpoint if transport == "unix" else f"127.0.0.1:{endpoint}"
                return
            # Another program may have taken the port before the server bound it: try again.
            if transport == "unix" or "in use" not in self.log_tail():
                break
        raise BenchError(f"{self.name} did not start: {shlex.join(command)}\n{self.log_tail()}")

    def wait_until_it_listens(self, transport, endpoint):
        limit = time.monotonic() + START_LIMIT
        while time.monotonic() < limit and self.process.poll() is None:
            family = socket.AF_UNIX if transport == "unix" else socket.AF_INET
            with socket.socket(family, socket.SOCK_STREAM) as probe:
                try:
                    probe.connect(endpoint if transport == "unix" else ("127.0.0.1", endpoint))
                    return self.process.poll() is None
                except OSError:
                    time.sleep(0.05)
        return False

    def log_tail(self):
        lines = self.log.read_text(errors="replace").splitlines()[-20:]
        return "\n".join("  | " + line for line in lines) or "  (it wrote nothing)"

    def check_alive(self, during):
        status = self.process.poll()
        if status is not None:
            how = f"by signal {-status}" if status < 0 else f"with status {status}"
            raise BenchError(f"{self.name} ended {how} during {during}\n{self.log_tail()}")

    def stop(self):
        if self.process is None:
            return
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()
        self.process = None


class Gpunbd(Server):
    export = "bench"

    def __init__(self, name, program, devices, extra, kept=False):
        super().__init__(name, program)
        self.devices = devices
        self.extra = extra
        self.kept = kept

    @property
    def pid(self):
        """The process that serves, not its keeper."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return int(children.read_text().split()[0]) if self.kept else self.process.pid

    def command(self, transport, endpoint, size, folder):
        keep, kept = (["keep", "--"], ["--keep"]) if self.kept else ([], [])
        command = [self.program, *keep, "serve", "--name", self.export, "--size", size, *kept]
        for device in self.devices:
            command += ["--device", device]
        if len(self.devices) > 1:
            command += ["--layout", "stripe"]
        if transport == "unix":
            command += ["-U", endpoint]
        else:
            command += ["-b", "127.0.0.1", "-p", endpoint]
        if self.tls_folder:
            command += ["--tls", "required", "--tls-certificates", self.tls_folder]
        return command + self.extra


class Watched(Gpunbd):
    """A server whose metrics are scraped each second, and whose page is open."""

    watcher = None

    def command(self, transport, endpoint, size, folder):
        self.admin = folder / "admin.sock"
        return super().command(transport, endpoint, size, folder) + ["--admin-socket", self.admin]

    def start(self, transport, size, folder):
        super().start(transport, size, folder)
        self.watcher = subprocess.Popen([sys.executable, Path(__file__).parent / "watcher.py", self.admin, self.export],
                                        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, preexec_fn=die_with_parent)
        if not self.watcher.stdout.readline():
            raise BenchError(f"the admin socket of {self.name} does not respond")

    def check_alive(self, during):
        super().check_alive(during)
        if self.watcher.poll() is not None:
            raise BenchError(f"the admin socket of {self.name} failed during {during}")

    def stop(self):
        if self.watcher is not None:
            self.watcher.kill()
            self.watcher.communicate()
            self.watcher = None
        super().stop()


class Nbdkit(Server):
    def command(self, transport, endpoint, size, folder):
        where = ["-U", endpoint] if transport == "unix" else ["-i", "127.0.0.1", "-p", endpoint]
        if self.tls_folder:
            where += ["--tls=require", f"--tls-certificates={self.tls_folder}", "--tls-verify-peer"]
        return [self.program, "-f", *where, "memory", f"size={size}"]


class QemuNbd(Server):
    def __init__(self, name, program, tmpfs):
        super().__init__(name, program)
        self.image = tmpfs / "qemu-nbd.raw"

    def command(self, transport, endpoint, size, folder):
        with open(self.image, "wb") as image:
            image.truncate(size)
        where = ["-k", endpoint] if transport == "unix" else ["-b", "127.0.0.1", "-p", endpoint]
        if self.tls_folder:
            where += ["--tls-creds", "tls", "--object",
                      f"tls-creds-x509,id=tls,dir={self.tls_folder},endpoint=server,verify-peer=yes"]
        return [self.program, "-f", "raw", "--cache=writeback", "-t", "-e", "64", *where,
                self.image]

    def stop(self):
        super().stop()
        self.image.unlink(missing_ok=True)


class Ceiling:
    """Measures an upper limit for servers."""

    def __init__(self, name, program):
        self.name = name
        self.program = program

    def start(self, transport, size, folder):
        pass

    def check_alive(self, during):
        pass

    def stop(self):
        pass


class Sockets(Ceiling):
    """The limit of sockets. socket_ceiling has its own peer."""

    def measure(self, cell, transport, options, times, limit):
        command = [self.program, "--transport", transport, *cell.arguments(), *times]
        return run_json(command, self, f"{cell.name} over {transport}", limit)


class CipherSpeed(Ceiling):
    """The rate at which one core encrypts, with the record length of TLS."""

    def measure(self, cell, transport, options, times, limit):
        done = subprocess.run([self.program, "speed", "-mr", "-seconds", "1", "-bytes", str(16 * KIB), "-evp", CIPHER],
                              capture_output=True, text=True, timeout=limit)
        found = re.search(r"^\+F:.*:([\d.]+)$", done.stdout, re.MULTILINE)
        if not found:
            raise BenchError(f"`openssl speed` printed no result: {done.stderr.strip()}")
        rate = float(found[1])
        return {**dict.fromkeys(METRICS), "iops": rate / cell.size, "mbps": rate / 1e6}


def wanted(name, filters):
    return not filters or any(name == f or name.split(":")[0] == f or fnmatch.fnmatchcase(name, f)
                              for f in filters)


def gpunbd_builds(options):
    """Returns pairs of a label, which may be None, and a program."""
    return [re.fullmatch(r"(?:([\w.-]+)=)?(.+)", text).groups() for text in options.gpunbd or [str(BUILD / "gpunbd")]]


def choose_servers(options, tmpfs):
    servers, versions, left_out = [], {}, []

    def add(server, program):
        servers.append(server)
        if program:
            versions.setdefault(server.name.split(":")[0], version_of(program))

    for label, path in gpunbd_builds(options):
        for devices in options.device or ["host"]:
            name = f"{label or 'gpunbd'}:{devices}"
            if not wanted(name, options.servers):
                continue
            if not shutil.which(path):
                left_out.append(f"{name} is left out: there is no {shown_path(path)}")
                continue
            for kept in [False, True] if options.keep else [False]:
                add(Gpunbd(name + KEPT * kept, path, devices.split(","), shlex.split(options.gpunbd_args), kept), path)
            if label in options.watched or not label and "gpunbd" in options.watched:
                add(Watched(name + WATCHED, path, devices.split(","), shlex.split(options.gpunbd_args)), path)
    for name in ("nbdkit", "qemu-nbd"):
        path = shutil.which(name)
        if not wanted(name, options.servers):
            continue
        if path is None:
            left_out.append(f"{name} is left out: it is not installed")
        elif name == "nbdkit":
            add(Nbdkit(name, path), path)
        elif tmpfs is None or shutil.disk_usage(tmpfs).free < options.span * 1.05:
            left_out.append(f"{name} is left out: /dev/shm has no room for {options.span} bytes")
        else:
            add(QemuNbd(name, path, tmpfs), path)
    if options.socket_ceiling:
        servers.append(Sockets("sockets", options.ceiling_program))
    if options.transports == ["tls"] and wanted(CIPHER, options.servers):
        servers.append(CipherSpeed(CIPHER, "openssl"))
    return servers, versions, left_out


# --- measuring ---------------------------------------------------------------------------------


def shown_path(path):
    """Relative to the project if it is inside."""
    path = os.path.abspath(path)
    return os.path.relpath(path, ROOT) if path.startswith(f"{ROOT}/") else path


def run_json(command, server, during, limit):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        server.check_alive(during)
        raise BenchError(f"{server.name} hangs in {during}: no result after {limit:.0f} s") from None
    server.check_alive(during)
    if done.returncode != 0:
        raise BenchError(f"{server.name} failed in {during}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def nbdload(server, options):
    tls = ["--tls-certificates", server.tls_folder] if server.tls_folder else []
    return [options.nbdload, "--uri", server.uri, *tls]


def make_certificates(program, folder):
    """Creates a CA and certificates for the servers and nbdload."""
    command = [program, "tls-setup", folder, "--host", "127.0.0.1", "--client", "bench"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise BenchError(f"no certificates: {done.stderr.strip()}")
    for file in (folder / "clients" / "bench").glob("client-*.pem"):
        shutil.copy(file, folder)


def prefill(server, options):
    if isinstance(server, Ceiling):
        return
    run_json([*nbdload(server, options), "--span", str(options.span), "--prefill",
              "--warmup", "0", "--seconds", "0.05"], server, "the prefill", 600)


@contextlib.contextmanager
def attacked(server, cell, options):
    """Attacks the server, if the cell has an attack."""
    if not cell.attack or cell.load or isinstance(server, Ceiling):
        yield
        return
    attacker = subprocess.Popen(
        [sys.executable, "-B", ROOT / "tests" / "bench" / "attack.py", cell.attack,
         server.address, server.export, str(options.span)],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        preexec_fn=die_with_parent)
    try:
        if attacker.stdout.readline() != "ready\n":
            attacker.kill()
            raise BenchError(f"the attack {cell.attack} on {server.name} failed: "
                             f"{attacker.communicate()[1].strip()}")
        yield
    finally:
        attacker.kill()
        attacker.communicate()


def empty(server, options):
    with attack.wire.connect(server.address, server.export, structured=False) as client:
        for offset in range(0, options.span, GIB):
            client.request(attack.wire.TRIM, offset, min(GIB, options.span - offset))
            error, _ = client.simple_reply()
            if error:
                raise BenchError(f"{server.name} does not free its memory: error {error}")


def measure(server, cell, transport, options):
    if cell.first and not isinstance(server, Ceiling):
        empty(server, options)
        return measure_now(server, cell, transport, options, warmup=0)
    if cell.load and not isinstance(server, Ceiling):
        return measure_beside_load(server, cell, transport, options)
    with attacked(server, cell, options):
        return measure_now(server, cell, transport, options)


def measure_beside_load(server, cell, transport, options):
    """The load begins earlier and ends later than the measurement."""
    load = next(each for each in LOADS if each.name == cell.load)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        loaded = pool.submit(measure_now, server, load, transport, options, options.seconds + 0.4, options.warmup,
                             ["--offset", str(options.span // 2)])
        time.sleep(0.2)
        result = measure_now(server, cell, transport, options)
        return {**result, "load_iops": loaded.result()["iops"]}


def measure_now(server, cell, transport, options, seconds=None, warmup=None, more=()):
    seconds = options.seconds if seconds is None else seconds
    warmup = options.warmup if warmup is None else warmup
    times = ["--seconds", str(seconds), "--warmup", str(warmup)]
    limit = seconds + warmup + 90
    if isinstance(server, Ceiling):
        return server.measure(cell, transport, options, times, limit)
    span = options.span // (2 if cell.attack or more else 1)
    command = [*nbdload(server, options), *cell.arguments(), *times, "--span", str(span),
               "--server-pid", str(server.pid), *shlex.split(options.nbdload_args), *more]
    return run_json(command, server, f"{cell.name} over {transport}", limit)


def median_of(rounds):
    def median(values):
        return statistics.median(values) if values and None not in values else None

    out = {metric: median([each[metric] for each in rounds]) for metric in METRICS}
    if all("read" in each and "write" in each for each in rounds):
        for direction in ("read", "write"):
            out[direction] = {metric: median([each[direction][metric] for each in rounds])
                              for metric in ("iops", "mbps", "p50_us", "p99_us")}
    if all("load_iops" in each for each in rounds):
        out["load_iops"] = median([each["load_iops"] for each in rounds])
    rates = [each["iops"] for each in rounds]
    out["spread"] = (max(rates) - min(rates)) / out["iops"] if out["iops"] else None
    return out


@dataclass
class Comparison:
    header: dict
    results: list = field(default_factory=list)

    def find(self, transport, cell, server):
        for result in self.results:
            if (result["transport"], result["cell"], result["server"]) == (transport, cell, server):
                return result["median"]
        return {}

    def save(self, path):
        if path is None:
            return
        # One result per line, so that the diff of two runs is readable.
        results = ",".join("\n  " + json.dumps(each) for each in self.results)
        text = f'{{\n "header": {json.dumps(self.header)},\n "results": [{results}\n ]\n}}'
        Path(f"{path}.part").write_text(text + "\n")
        os.replace(f"{path}.part", path)


def revive(server, transport, options, folder):
    """Restarts another server that did not survive an attack, and prints a note."""
    if isinstance(server, (Gpunbd, Ceiling)) or server.process.poll() is None:
        return
    note(f"{server.name} ended after an attack ({server.process.returncode}); restarted")
    server.stop()
    server.start(transport, options.span, folder)
    prefill(server, options)


def measure_alive(server, cell, transport, options, folder):
    for _ in range(5):
        revive(server, transport, options, folder)
        try:
            return measure(server, cell, transport, options)
        except BenchError as error:
            if isinstance(server, (Gpunbd, Ceiling)) or not cell.attack:
                raise
            if "no request was answered" in str(error):
                break
    note(f"{server.name} answers no request beside {cell.attack}")
    return {**dict.fromkeys(METRICS), "iops": 0}


def compare(comparison, servers, cells, options, folder):
    total = len(cells) * len(servers) * len(options.transports) * options.rounds
    seconds = total * (options.seconds + options.warmup + 0.1)
    note(f"{total} runs, about {seconds / 60:.1f} minutes")
    for transport in options.transports:
        try:
            for server in servers:
                server.start(transport, options.span, folder)
                prefill(server, options)
            for cell in cells:
                rounds = {server.name: [] for server in servers}
                for _ in range(options.rounds):
                    for server in servers:
                        rounds[server.name].append(
                            measure_alive(server, cell, transport, options, folder))
                for server in servers:
                    comparison.results.append({
                        "transport": transport, "cell": cell.name, "server": server.name,
                        "op": cell.op, "size": cell.size, "qd": cell.qd,
                        "connections": cell.connections, "attack": cell.attack, "first": cell.first,
                        "median": median_of(rounds[server.name])})
                comparison.save(options.json)
                note(f"{transport} {cell.name}: " + ", ".join(
                    f"{name} {statistics.median(r['iops'] for r in each):,.0f} IOPS"
                    for name, each in rounds.items()))
        finally:
            for server in servers:
                server.stop()


# --- reporting ---------------------------------------------------------------------------------


def note(text):
    print(f"compare: {text}", file=sys.stderr, flush=True)


def quotient(above, below):
    return above / below if above is not None and below else None


def ratios(comparison):
    """Compares each gpunbd with every other program, and with the earlier gpunbd servers."""
    cells = {}
    for result in comparison.results:
        cells.setdefault((result["transport"], result["cell"]), []).append(result)
    out = []
    for (transport, cell), results in cells.items():
        for place, result in enumerate(results):
            if result["server"] in OTHERS:
                continue
            for against, other in enumerate(results):
                if against < place or other["server"] in OTHERS:
                    out.append({"transport": transport, "cell": cell, "server": result["server"],
                                "against": other["server"],
                                **{metric: quotient(result["median"][metric],
                                                    other["median"][metric])
                                   for metric in ("iops", "p50_us", "p99_us", CPU)}})
    return out


def bars(comparison):
    """Every bar that applies to these results: its text, the figure, and whether it is met."""
    out = []

    def judge(result, against, words, value, met, either=False):
        out.append({"transport": result["transport"], "cell": result["cell"],
                    "server": result["server"], "against": against, "bar": words, "is": value,
                    "met": met, "either": either})

    def judge_share(result, against, words, limit, value, reference):
        """A bar for the share of a reference, if that was measured."""
        if reference:
            judge(result, against, words, value / reference, value / reference >= limit)

    def of_first_build(result):
        return next(each for each in comparison.results if each["transport"] == result["transport"] and
                    each["cell"] == result["cell"] and each["server"] not in OTHERS)

    for result in comparison.results:
        for bar in BARS:
            if not (fnmatch.fnmatchcase(result["cell"], bar.cells)
                    and fnmatch.fnmatchcase(result["server"], bar.subject)
                    and result["transport"] in bar.over):
                continue
            value = result["median"][bar.metric]
            reference, against = 1.0, None
            if bar.reference is not None:
                others = [r for r in comparison.results if r["transport"] == result["transport"]
                          and r["cell"] == result["cell"]
                          and fnmatch.fnmatchcase(r["server"], bar.reference)]
                if not others:
                    continue
                against, reference = others[0]["server"], others[0]["median"][bar.metric]
            if value is None or not reference:
                continue
            limit = bar.limit * reference + bar.plus
            judge(result, against, bar.text(), value / reference if against else value,
                  value <= limit if bar.most else value >= limit, bar.either)
        transport, server, median = result["transport"], result["server"], result["median"]
        shape = result["size"], result["qd"], result["connections"]
        same = Cell(result["op"], *shape).name  # without an attack, and not into an empty export
        if server.endswith(WATCHED):
            first = of_first_build(result)
            judge_share(result, first["server"], f"IOPS >= {WATCHED_BAR}x of the one without", WATCHED_BAR,
                        median["iops"], first["median"]["iops"])
        if server.endswith(KEPT):
            other = server.removesuffix(KEPT)
            judge_share(result, other, f"IOPS >= {KEPT_BAR:g}x", KEPT_BAR, median["iops"],
                        comparison.find(transport, result["cell"], other).get("iops"))
        if not server.startswith("gpunbd"):
            continue
        if result.get("attack"):
            alone = comparison.find(transport, same, server).get("p99_us")
            if alone and median["p99_us"] is not None:
                times = median["p99_us"] / alone
                judge(result, same, f"p99 <= {FAIR_BAR:g}x of alone", times, times <= FAIR_BAR)
            if "load_iops" in median:
                judge_share(result, result["attack"], f"load >= {LOAD_BAR}x of alone", LOAD_BAR, median["load_iops"],
                            comparison.find(transport, result["attack"], server).get("iops"))
                first = of_first_build(result)
                if first is not result:
                    judge_share(result, first["server"], f"load >= {LOAD_BAR}x", LOAD_BAR,
                                median["load_iops"], first["median"]["load_iops"])
        if result.get("first"):
            judge_share(result, same, f"IOPS >= {FIRST_BAR:g}x of rewrites", FIRST_BAR, median["iops"],
                        comparison.find(transport, same, server).get("iops"))
        for direction in ("read", "write") if result["op"] == "rw" else ():
            if median.get(direction):
                alone = Cell(direction, *shape).name
                judge_share(result, alone, f"{direction} >= {RW_BAR:g}x of alone", RW_BAR, median[direction]["mbps"],
                            comparison.find(transport, alone, server).get("mbps"))
    return out


def judged(found):
    """Returns the number of bars and the missed bars. Of bars with (or), one is enough."""
    groups = {}
    for place, bar in enumerate(found):
        alternatives = (bar["transport"], bar["cell"], bar["server"]) if bar["either"] else place
        groups.setdefault(alternatives, []).append(bar)
    missed = [group for group in groups.values() if not any(bar["met"] for bar in group)]
    return len(groups), [bar for group in missed for bar in group]


def table(head, rows, left=2):
    """The first `left` columns contain text, the others numbers."""
    yield "| " + " | ".join(head) + " |"
    yield "|" + "|".join("---" if i < left else "---:" for i in range(len(head))) + "|"
    for row in rows:
        yield "| " + " | ".join(row) + " |"


def number(value, digits=0, suffix=""):
    return "-" if value is None else f"{value:,.{digits}f}{suffix}"


def markdown(comparison):
    header = comparison.header
    for key in ("date", "command", "commit", "cpu", "cores", "kernel", "gpu", "servers",
                "measured"):
        if header.get(key):
            yield f"- {key}: {header[key]}"
    for line in header["left_out"] + header["notes"]:
        yield f"- {line}"
    for transport in dict.fromkeys(r["transport"] for r in comparison.results):
        rows = []
        for result in (r for r in comparison.results if r["transport"] == transport):
            m = result["median"]
            rows.append([result["cell"], result["server"], number(m["iops"]), number(m["mbps"]),
                         number(m["p50_us"], 1), number(m["p99_us"], 1), number(m[CPU], 2),
                         number(m["client_cpu_us_per_io"], 2),
                         number(None if m["spread"] is None else 100 * m["spread"], 0, "%")])
            if result["op"] == "rw":
                for direction in ("read", "write"):
                    d = m[direction]
                    rows.append([f"  {direction} of it", result["server"], number(d["iops"]),
                                 number(d["mbps"]), number(d["p50_us"], 1), number(d["p99_us"], 1),
                                 "", "", ""])
        yield ""
        yield f"### {TRANSPORTS[transport]}"
        yield ""
        yield from table(["cell", "server", "IOPS", "MB/s", "p50 us", "p99 us", "server CPU us/IO",
                          "client CPU us/IO", "spread"], rows)
    found = ratios(comparison)
    if found:
        yield ""
        yield "### Ratios"
        yield ""
        yield from table(["cell", "server", "against", "over", "IOPS", "p50", "p99", "server CPU"],
                         [[r["cell"], r["server"], r["against"], r["transport"],
                           number(r["iops"], 2, "x"), number(r["p50_us"], 2, "x"),
                           number(r["p99_us"], 2, "x"), number(r[CPU], 2, "x")] for r in found])
    found = bars(comparison)
    if found:
        yield ""
        total, missed = judged(found)
        yield f"### Bars: {total - len(missed)} of {total} met"
        yield ""
        yield from table(["cell", "server", "against", "over", "bar", "is", "met"],
                         [[b["cell"], b["server"], b["against"] or "", b["transport"], b["bar"],
                           number(b["is"], 2, "x") if b["against"] else number(b["is"]),
                           "yes" if b["met"] else "**no**"] for b in found])


def output_of(command):
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, cwd=ROOT)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def commit():
    return output_of(["git", "describe", "--always", "--dirty", "--exclude", "*"])


def hardware():
    text = Path("/proc/cpuinfo").read_text()
    model = re.search(r"^(?:model name|Model)\s*:\s*(.*)$", text, re.MULTILINE)
    gpus = output_of(["nvidia-smi", "--format=csv,noheader", "--query-gpu=name,memory.total,"
                      "pcie.link.gen.max,pcie.link.width.max,driver_version"]).splitlines()
    described = []
    for gpu in dict.fromkeys(gpus):
        name, memory, gen, width, driver = (part.strip() for part in gpu.split(","))
        described.append(f"{gpus.count(gpu)} x {name}, {memory}, PCIe gen {gen} x{width}, "
                         f"driver {driver}")
    return {"cpu": model[1] if model else platform.machine(),
            "cores": len(os.sched_getaffinity(0)), "kernel": platform.release(),
            "gpu": "; ".join(described) or "none"}


def make_header(options, versions, left_out):
    program = os.path.relpath(Path(__file__).resolve(), ROOT)
    return {"date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
            "command": "`" + shlex.join([program, *sys.argv[1:]]) + "`",
            "commit": commit(), **hardware(),
            "servers": ", ".join(versions.values()),
            "measured": f"medians of {options.rounds} rounds in turn, {options.seconds:g} s each "
                        f"after {options.warmup:g} s, random offsets within "
                        f"{size_text(options.span)}",
            "left_out": left_out, "notes": options.note}


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])

    def words(text):
        return [word for word in text.split(",") if word]

    parser.add_argument("--cells", type=words, default=["core"], help="sets (core, gpu, stripe, fairness, light, tls, "
                        "first) or names and patterns of them, with commas: core,'4k-*',1M-rw-qd8x8+8 (core)")
    parser.add_argument("--neighbour", type=shlex.split, metavar="COMMAND",
                        default=[str(BUILD / "gpu_load"), "compute"],
                        help="program beside which `--cells neighbour` measures (gpu_load compute; gpu_load "
                             "copy; python3 tests/bench/torch_load.py)")
    parser.add_argument("--rounds", type=int, default=5, help="number of rounds (5)")
    parser.add_argument("--seconds", type=float, default=2, help="length of each measurement (2)")
    parser.add_argument("--warmup", type=float, default=0.5, help="seconds before each measurement (0.5)")
    parser.add_argument("--servers", type=words, default=[], help="only these: gpunbd, nbdkit, "
                        "qemu-nbd, or names such as gpunbd:host")
    parser.add_argument("--transports", type=words, default=["unix", "tcp"], help="unix, tcp, tls (unix,tcp)")
    parser.add_argument("--device", action="append", help="device of gpunbd; repeat for another server; "
                        "cuda:0,cuda:1 is one striped export (host)")
    parser.add_argument("--gpunbd", action="append", metavar="[LABEL=]PATH", help="repeat with a "
                        "label to compare builds (build/release/gpunbd)")
    parser.add_argument("--keep", action="store_true", help="also measure each gpunbd with kept contents: NAME+keep")
    parser.add_argument("--watched", type=words, default=[], metavar="LABEL", help="also measure these builds (gpunbd: the "
                        "one without a label) with metrics scraped each second and the page open: NAME+watched, "
                        "compared with the first build")
    parser.add_argument("--gpunbd-args", default="", help="further arguments of `gpunbd serve`")
    parser.add_argument("--nbdload", default=str(BUILD / "nbdload"), help="path of nbdload (build/release/nbdload)")
    parser.add_argument("--nbdload-args", default="", help="further arguments of nbdload: --structured")
    parser.add_argument("--socket-ceiling", action="store_true", help="also measure the limit of the sockets")
    parser.add_argument("--span", type=parse_size, default=GIB, help="size of each export (1G)")
    parser.add_argument("--json", metavar="FILE", help="write the medians of all cells")
    parser.add_argument("--note", action="append", default=[], metavar="SENTENCE",
                        help="a remark about the figures; may be repeated")
    options = parser.parse_args()
    if not set(options.transports) <= set(TRANSPORTS) or not options.transports:
        parser.error(f"--transports are {', '.join(TRANSPORTS)}")
    if options.json and not os.access(os.path.dirname(os.path.abspath(options.json)), os.W_OK):
        parser.error(f"--json: cannot write {options.json}")
    options.ceiling_program = str(Path(options.nbdload).with_name("socket_ceiling"))
    for program in [options.nbdload] + [options.ceiling_program] * options.socket_ceiling:
        if not shutil.which(program):
            parser.error(f"there is no {shown_path(program)}: build the project, or say --nbdload")
    return options


def beside_neighbour(options, folder, tmpfs):
    servers, versions, left_out = choose_servers(options, tmpfs)
    servers = [server for server in servers if isinstance(server, Gpunbd)]
    header = make_header(options, versions, left_out)
    try:
        for server in servers:
            server.start("unix", options.span, folder)
            prefill(server, options)
        result = neighbour.run(
            servers, lambda server, cell, **times: measure_now(server, cell, "unix", options, **times),
            options.neighbour, options.rounds, options.seconds)
    except RuntimeError as error:
        raise BenchError(str(error)) from error
    finally:
        for server in servers:
            server.stop()
    if options.json:
        Path(options.json).write_text(json.dumps({"header": header, **result}, indent=1) + "\n")
    print(neighbour.markdown(result))
    return 0


def main():
    options = parse_options()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    in_memory = Path("/dev/shm")
    tmpfs = None
    folder = Path(tempfile.mkdtemp(prefix="gpunbd-bench-"))
    comparison = None
    status = 0
    try:
        if os.access(in_memory, os.W_OK):
            tmpfs = Path(tempfile.mkdtemp(prefix="gpunbd-bench-", dir=in_memory))
        if options.cells == ["neighbour"]:
            return beside_neighbour(options, folder, tmpfs)
        cells = choose_cells(options.cells)
        servers, versions, left_out = choose_servers(options, tmpfs)
        for line in left_out:
            note(line)
        if not servers:
            raise BenchError("there is no server to measure")
        if "tls" in options.transports:
            make_certificates(gpunbd_builds(options)[0][1], folder / "tls")
        comparison = Comparison(make_header(options, versions, left_out))
        compare(comparison, servers, cells, options, folder)
    except BenchError as error:
        note(f"error: {error}")
        status = 1
    except KeyboardInterrupt:
        note("interrupted; what was measured until then:")
        status = 130
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        if tmpfs is not None:
            shutil.rmtree(tmpfs, ignore_errors=True)
    if comparison is not None and comparison.results:
        comparison.save(options.json)
        print("\n".join(markdown(comparison)))
    return status


if __name__ == "__main__":
    sys.exit(main())
