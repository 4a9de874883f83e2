#!/usr/bin/env python3
"""Records the terminal that README shows: runs SESSION with the real program and draws it as an SVG.

    /usr/bin/python3 tests/picture/record.py      # writes tests/picture/session.svg

It needs build/release/gpunbd (./dev test builds it), nbdinfo and nbdcopy (libnbd-bin), and python3-rich.
The export lies on cuda:0 where gpunbd lists it, else on the host. Everything on the picture has happened: the commands run one after the other on terminals of 80 columns,
the server in the background; what it logs meanwhile stands behind a command's own lines. Port 10809 has to be
free. From run to run, the times of the log and the machine's memory differ.
"""

import io
import os
import pty
import re
import select
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from page import device

try:
    import rich.console
    import rich.terminal_theme
    import rich.text
except ImportError:
    sys.exit("record: the Python module rich is missing: apt-get install python3-rich, for /usr/bin/python3")

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "release"
COLUMNS = 80
FILES = {
    "gpunbd.yaml": "exports:\n"
                   "  - {name: scratch, size: 4G, devices: [host]}\n"
                   "  - {name: cache, size: 2GB, device: [host]}\n",
}
SESSION = (
    "gpunbd devices",
    "gpunbd serve --size 1G --device DEVICE &",
    "nbdcopy disk.img nbd://127.0.0.1:10809",
    "nbdinfo --map --totals nbd://127.0.0.1:10809",
    "gpunbd check gpunbd.yaml",
)

# One dark look in light and dark surroundings.
THEME = rich.terminal_theme.TerminalTheme(
    (22, 27, 34), (201, 209, 217),
    [(139, 148, 158), (255, 123, 114), (126, 231, 135), (227, 179, 65),
     (121, 192, 255), (210, 168, 255), (118, 227, 234), (177, 186, 196)],
    [(160, 168, 178), (255, 161, 152), (155, 240, 160), (240, 200, 100),
     (165, 214, 255), (226, 197, 255), (179, 240, 255), (255, 255, 255)])


class Terminal:
    """A pseudo-terminal, and what has been written to it."""

    def __init__(self):
        self.screen, self.commands = pty.openpty()
        subprocess.run(["stty", "cols", str(COLUMNS), "rows", "50"], stdin=self.commands, check=True)

    def start(self, command, folder):
        environment = {**os.environ, "PATH": f"{BUILD}:{os.environ['PATH']}", "TERM": "xterm-256color",
                       "COLUMNS": str(COLUMNS), "LC_ALL": "C.UTF-8", "TZ": "UTC"}
        return subprocess.Popen(["bash", "-c", f"exec {command}"], cwd=folder, env=environment,
                                stdin=subprocess.DEVNULL, stdout=self.commands, stderr=self.commands)

    def read_until_quiet(self, seconds):
        text = b""
        while select.select([self.screen], [], [], seconds)[0]:
            text += os.read(self.screen, 65536)
        return text.decode("utf-8").replace("\r\n", "\n")


def play(folder):
    """Both have a terminal of their own, so that the server's lines do not land within those of a command."""
    output, server, servers_terminal, terminal = "", None, Terminal(), Terminal()
    try:
        for command in (each.replace("DEVICE", device()) for each in SESSION):
            output += f"\033[1;32m$\033[0m \033[1m{command}\033[0m\n"
            if command.endswith(" &"):
                server = servers_terminal.start(command.removesuffix(" &"), folder)
                output += servers_terminal.read_until_quiet(1.5)
                if server.poll() is not None:
                    sys.exit(f"record: the server has ended:\n{output}")
            else:
                process = terminal.start(command, folder)
                while process.poll() is None:
                    output += terminal.read_until_quiet(0.1)
                output += terminal.read_until_quiet(0.1) + servers_terminal.read_until_quiet(0.3)
    finally:
        if server:
            server.terminate()
            server.wait()
    return output


def draw(output):
    console = rich.console.Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True,
                                   color_system="truecolor", legacy_windows=False)
    console.print(rich.text.Text.from_ansi(output.rstrip("\n")), highlight=False, soft_wrap=False)
    svg = console.export_svg(title="gpunbd", theme=THEME, unique_id="gpunbd")
    # Not every viewer keeps the spaces at the start of a line by itself.
    svg = svg.replace("<svg ", '<svg xml:space="preserve" ', 1)
    # A picture fetches nothing: its fonts are those of whoever looks at it.
    svg = re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.DOTALL)
    return svg.replace("font-family: Fira Code, monospace", "font-family: ui-monospace, monospace")


def main():
    if not (BUILD / "gpunbd").exists():
        sys.exit("record: build/release/gpunbd is not there: ./dev test builds it")
    missing = [program for program in ("nbdinfo", "nbdcopy", "stty") if not shutil.which(program)]
    if missing:
        sys.exit(f"record: {', '.join(missing)} not installed: apt-get install libnbd-bin coreutils")
    with tempfile.TemporaryDirectory() as folder:
        for name, text in FILES.items():
            Path(folder, name).write_text(text, encoding="utf-8")
        image = Path(folder, "disk.img")
        with open(image, "wb") as file:  # 300 MiB, of which 100 MiB are data
            file.write(os.urandom(100 << 20))
            file.truncate(300 << 20)
        output = play(folder)
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("session.svg")
    target.write_text(draw(output), encoding="utf-8")
    print(f"record: wrote {target}")


if __name__ == "__main__":
    main()
