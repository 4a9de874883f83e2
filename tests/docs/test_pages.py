#!/usr/bin/env python3
"""Checks the pages: every link, every test that they name, and every message of gpunbd that they quote."""

import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parents[2]
MANUAL = ROOT / "server/manual"
LINK = re.compile(r"\]\(([^()\s]+(?:\([^()\s]*\)[^()\s]*)*)\)")


def pages(root):
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".") and name != "build"]
        yield from (Path(folder) / name for name in files if name.endswith(".md"))


def prose(page):
    """The page's numbered lines outside of code."""
    fenced = False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("```"):
            fenced = not fenced
        elif not fenced and not line.startswith("    "):
            yield number, line


def anchors(page):
    """The anchors that GitHub generates for headings."""
    seen = {}
    for _, line in prose(page):
        match = re.match(r"#{1,6} +(.*?) *#* *$", line)
        if match:
            text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", match[1]).lower()
            name = re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
            seen[name] = seen.get(name, -1) + 1
            yield name if seen[name] == 0 else f"{name}-{seen[name]}"


def broken_links(root):
    for page in sorted(pages(root)):
        for number, line in prose(page):
            for target in LINK.findall(re.sub(r"`[^`]*`", "", line)):
                if re.match(r"[a-z]+:", target):  # links to other sites are not checked
                    continue
                file, _, anchor = unquote(target).partition("#")
                place = f"{page.relative_to(root)}:{number}: ({target})"
                aim = (page.parent / file).resolve() if file else page
                if not aim.exists():
                    yield f"{place}: there is no such file"
                elif anchor and anchor not in anchors(aim):
                    yield f"{place}: there is no such heading"


def source_of_test(name):
    """The file that defines a test, given its name in ctest, or None."""
    group, _, rest = name.partition(".")
    folder = ROOT / "tests" / group
    listed = (folder / "CMakeLists.txt").read_text(encoding="utf-8") if (folder / "CMakeLists.txt").exists() else ""
    called = re.search(rf"gpunbd_python_test\({re.escape(name)} \S*?/(\w+\.py)\)", listed)
    script = folder / (called[1] if called else f"test_{rest}.py")
    if script.exists():
        return script
    case = f'TEST_CASE("{rest}")'
    return next((file for file in folder.rglob("*_test.cpp") if case in file.read_text(encoding="utf-8")), None)


def missing_tests(text):
    """Names of tests in a page that no test has: `storage.a case`, `integration.script` (`test_one`, `test_two`)."""
    groups = "|".join(folder.name for folder in (ROOT / "tests").iterdir() if folder.is_dir())
    for name, methods in re.findall(rf"`((?:{groups})\.[^`/]+)`(?: \(((?:`test_\w+`(?:, )?)+)\))?", text):
        source = source_of_test(name)
        if source is None:
            yield name
            continue
        defined = re.findall(r"def (test_\w+)", source.read_text(encoding="utf-8"))
        yield from (f"{name}: {method}" for method in re.findall(r"\w+", methods) if method not in defined)


def missing_files(text):
    """Paths in a page, such as `server/net/listener.hpp` or `storage/pages/`, that do not exist."""
    folders = "|".join(sorted(folder.name for folder in ROOT.iterdir() if folder.is_dir() and not folder.name.startswith(".") and folder.name != "build"))
    for path in re.findall(rf"`((?:{folders})/[\w./-]*)`", text):
        if not (ROOT / path).exists():
            yield path


def literals(source):
    """The string literals of a C++ file, with adjacent literals joined."""
    source = re.sub(r"(?m)//.*$", "", source)
    return re.sub(r'"\s*"', "", source).replace('\\"', '"')


def unknown_messages(page, sources):
    """Texts quoted in the first column of tables of symptoms that no source file contains."""
    for table in re.findall(r"(?m)^\| symptom \|.*\n\|.*\n((?:\|.*\n)+)", page):
        for row in table.splitlines():
            for quoted in re.findall(r"`([^`]+)`", row.split("|")[1]):
                message = quoted.replace(": Address already in use", "")  # the kernel adds this
                if not message.startswith("gpunbd ") and not any(message in source for source in sources):
                    yield quoted


class Pages(unittest.TestCase):
    def test_links_have_targets(self):
        self.assertGreater(len(list(pages(ROOT))), 5)
        self.assertEqual([], list(broken_links(ROOT)))

    def test_broken_links_are_found(self):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "a.md").write_text(
                "# Here, and `there`\n\n# Twice\n# Twice\n[1](a.md#here-and-there) [2](#twice-1) [3](b.md)\n"
                "[4](#nowhere) [5](https://example.com/) `[6](c.md)`\n\n    [7](d.md)\n", encoding="utf-8")
            self.assertEqual(["a.md:5: (b.md): there is no such file", "a.md:6: (#nowhere): there is no such heading"],
                             list(broken_links(Path(folder))))

    def test_tests_of_promises_exist(self):
        text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
        self.assertEqual([], list(missing_tests(text)))
        self.assertGreater(len(re.findall("`(?:server|storage|protocol|integration)[.]", text)), 30)
        # Every test method is named after its script.
        behind = re.sub(r"`[\w]+\.[^`/]+` \((?:`test_\w+`(?:, )?)+\)", "", text)
        self.assertEqual([], re.findall(r"`test_\w+`", behind))

    def test_missing_tests_are_found(self):
        self.assertEqual(
            ["server.no such case", "integration.nothing", "integration.access: test_none"],
            list(missing_tests("`server.no such case`, `integration.nothing`, `integration.access` (`test_none`, "
                               "`test_by_address`), `protocol.transmission flags`, `server/main.cpp`")))

    def test_named_files_exist(self):
        for page in (ROOT / "DESIGN.md", *MANUAL.glob("*.md")):
            self.assertEqual([], list(missing_files(page.read_text(encoding="utf-8"))), page.name)

    def test_missing_files_are_found(self):
        self.assertEqual(["server/none.hpp", "storage/none/"], list(missing_files(
            "`server/none.hpp`, `storage/none/`, `storage/pages/`, `server/net/listener.hpp`, `/etc/none`, `none/none.hpp`")))

    def test_tests_of_recipes_exist(self):
        text = (MANUAL / "README.md").read_text(encoding="utf-8")
        recipes = re.search(r"(?s)## Recipes\n(.*?)\n## ", text)[1]
        rows = [line.split("|")[1:-1] for line in recipes.splitlines() if line.startswith("|")][2:]
        self.assertGreater(len(rows), 5)
        self.assertEqual([], list(missing_tests(recipes)))
        for row in rows:
            self.assertRegex(row[2], r"`\w+\.\w+`")
            self.assertRegex(row[1], r"\]\(")

    def test_the_index_lists_all_pages_of_the_manual(self):
        index = (MANUAL / "README.md").read_text(encoding="utf-8")
        for page in MANUAL.glob("*.md"):
            if page.name != "README.md":
                self.assertIn(f"]({page.name})", index)

    def test_quoted_messages_are_in_the_sources(self):
        text = (MANUAL / "troubleshooting.md").read_text(encoding="utf-8")
        self.assertIn("\n| symptom |", text)
        sources = [literals(file.read_text(encoding="utf-8"))
                   for folder in ("config", "protocol", "server", "storage") for file in (ROOT / folder).rglob("*.cpp")]
        self.assertEqual([], list(unknown_messages(text, sources)))
        self.assertEqual(["it has eaten"], list(unknown_messages(
            "| symptom | cause |\n|---|---|\n| `it has` or `it has eaten` | x |\n", [literals('say("it "\n    "has {}");')])))

    def test_the_absolute_figures_are_those_of_the_plot(self):
        printed = subprocess.run([sys.executable, "-B", ROOT / "tests/bench/plot_comparison.py", "--table"],
                                 capture_output=True, text=True, check=True).stdout
        self.assertGreater(len(printed.splitlines()), 5)
        self.assertIn(printed, (ROOT / "README.md").read_text(encoding="utf-8"))

    def test_problems_are_reported_to_the_contact_of_the_package(self):
        contact = re.search(r'CPACK_PACKAGE_CONTACT "([^"]+)"', (ROOT / "config/packaging/CMakeLists.txt").read_text(encoding="utf-8"))
        self.assertIn(contact[1], (ROOT / "SECURITY.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
