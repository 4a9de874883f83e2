#!/usr/bin/env python3
"""Records the terminal that README shows: runs SESSION with the real program and draws it as an SVG.

    ./dev run --version && tests/picture/record.py      # writes tests/picture/session.svg

Everything on the picture has happened: the commands run one after the other on one terminal of 80 columns,
with the server in the background as a shell would have it. Only port 10809 has to be free. From run to run,
the times of the log and the machine's memory differ.
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
    "gpunbd serve --size 1G --device host &",
    "nbdinfo --size nbd://127.0.0.1:10809",
    "nbdcopy disk.img nbd://127.0.0.1:10809",
    "nbdinfo --map --totals nbd://127.0.0.1:10809",
    "gpunbd check gpunbd.yaml",
)

# One dark look in light and dark surroundings.
THEME = rich.terminal_theme.TerminalTheme(
    (22, 27, 34), (201, 209, 217),
    [(72, 79, 88), (255, 123, 114), (126, 231, 135), (227, 179, 65),
     (121, 192, 255), (210, 168, 255), (118, 227, 234), (177, 186, 196)],
    [(110, 118, 129), (255, 161, 152), (155, 240, 160), (240, 200, 100),
     (165, 214, 255), (226, 197, 255), (179, 240, 255), (255, 255, 255)])


class Terminal:
    """A pseudo-terminal that all commands share, and what they have written to it."""

    def __init__(self, folder):
        self.screen, self.commands = pty.openpty()
        subprocess.run(["stty", "cols", str(COLUMNS), "rows", "50"], stdin=self.commands, check=True)
        self.folder = folder
        self.environment = {**os.environ, "PATH": f"{BUILD}:{os.environ['PATH']}", "TERM": "xterm-256color",
                            "COLUMNS": str(COLUMNS), "LC_ALL": "C.UTF-8", "TZ": "UTC"}
        self.output = ""

    def start(self, command):
        return subprocess.Popen(["bash", "-c", f"exec {command}"], cwd=self.folder, env=self.environment,
                                stdin=subprocess.DEVNULL, stdout=self.commands, stderr=self.commands)

    def type(self, command):
        self.output += f"\033[1;32m$\033[0m \033[1m{command}\033[0m\n"

    def read_until_quiet(self, seconds):
        while select.select([self.screen], [], [], seconds)[0]:
            self.output += os.read(self.screen, 65536).decode("utf-8").replace("\r\n", "\n")


def play(terminal):
    background = []
    try:
        for command in SESSION:
            terminal.type(command)
            process = terminal.start(command.removesuffix(" &"))
            if command.endswith(" &"):
                background.append(process)
                terminal.read_until_quiet(1.5)
                if process.poll() is not None:
                    sys.exit(f"record: the server has ended:\n{terminal.output}")
            else:
                while process.poll() is None:
                    terminal.read_until_quiet(0.1)
                terminal.read_until_quiet(0.3)
    finally:
        for process in background:
            process.terminate()
            process.wait()
    return terminal.output


def draw(output):
    console = rich.console.Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True,
                                   color_system="truecolor", legacy_windows=False)
    console.print(rich.text.Text.from_ansi(output.rstrip("\n")), highlight=False, soft_wrap=False)
    svg = console.export_svg(title="gpunbd", theme=THEME, unique_id="gpunbd")
    # A picture fetches nothing: its fonts are those of whoever looks at it.
    svg = re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.DOTALL)
    return svg.replace("font-family: Fira Code, monospace", "font-family: ui-monospace, monospace")


def main():
    if not (BUILD / "gpunbd").exists():
        sys.exit("record: build/release/gpunbd is not there: ./dev run --version builds it")
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
        output = play(Terminal(folder))
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("session.svg")
    target.write_text(draw(output), encoding="utf-8")
    print(f"record: wrote {target}")


if __name__ == "__main__":
    main()
