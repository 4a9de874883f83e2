#!/usr/bin/env python3
"""Follows every link between the pages, looks for every test that they name, and for what they say that gpunbd says."""

import os
import re
import sys
import tempfile
import unittest
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parents[2]
LINK = re.compile(r"\]\(([^()\s]+(?:\([^()\s]*\)[^()\s]*)*)\)")


def pages(root):
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if not name.startswith(".") and name != "build"]
        yield from (Path(folder) / name for name in files if name.endswith(".md"))


def prose(page):
    """Its lines without code: what looks like a link or a heading there is none."""
    fenced = False
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if line.startswith("```"):
            fenced = not fenced
        elif not fenced and not line.startswith("    "):
            yield number, line


def anchors(page):
    """The names that GitHub gives to headings."""
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
                if re.match(r"[a-z]+:", target):  # another site's: not ours to follow
                    continue
                file, _, anchor = unquote(target).partition("#")
                place = f"{page.relative_to(root)}:{number}: ({target})"
                aim = (page.parent / file).resolve() if file else page
                if not aim.exists():
                    yield f"{place}: there is no such file"
                elif anchor and anchor not in anchors(aim):
                    yield f"{place}: there is no such heading"


def source_of_test(name):
    """The file that a test, called as ctest does, comes from; None: there is none."""
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
    """What a page names and no test is called: `storage.a case`, `integration.script` (`test_one`, `test_two`)."""
    groups = "|".join(folder.name for folder in (ROOT / "tests").iterdir() if folder.is_dir())
    for name, methods in re.findall(rf"`((?:{groups})\.[^`/]+)`(?: \(((?:`test_\w+`(?:, )?)+)\))?", text):
        source = source_of_test(name)
        if source is None:
            yield name
            continue
        defined = re.findall(r"def (test_\w+)", source.read_text(encoding="utf-8"))
        yield from (f"{name}: {method}" for method in re.findall(r"\w+", methods) if method not in defined)


def sentences(source):
    """What a C++ file prints: its string literals, those that stand side by side in one."""
    source = re.sub(r"(?m)//.*$", "", source)
    return re.sub(r'"\s*"', "", source).replace('\\"', '"')


def unsaid(page, sources):
    """What is quoted in the first column of tables of symptoms, and in no source."""
    for table in re.findall(r"(?m)^\| one sees \|.*\n\|.*\n((?:\|.*\n)+)", page):
        for row in table.splitlines():
            for quoted in re.findall(r"`([^`]+)`", row.split("|")[1]):
                said = quoted.replace(": Address already in use", "")  # the kernel's words
                if not said.startswith("gpunbd ") and not any(said in source for source in sources):
                    yield quoted


class Pages(unittest.TestCase):
    def test_every_link_leads_somewhere(self):
        self.assertGreater(len(list(pages(ROOT))), 5)
        self.assertEqual([], list(broken_links(ROOT)))

    def test_a_link_that_leads_nowhere_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "a.md").write_text(
                "# Here, and `there`\n\n# Twice\n# Twice\n[1](a.md#here-and-there) [2](#twice-1) [3](b.md)\n"
                "[4](#nowhere) [5](https://example.com/) `[6](c.md)`\n\n    [7](d.md)\n", encoding="utf-8")
            self.assertEqual(["a.md:5: (b.md): there is no such file", "a.md:6: (#nowhere): there is no such heading"],
                             list(broken_links(Path(folder))))

    def test_every_test_that_promises_rest_on_is_there(self):
        text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
        self.assertEqual([], list(missing_tests(text)))
        self.assertGreater(len(re.findall("`(?:server|storage|protocol|integration)[.]", text)), 30)
        # Each script that is named stands behind one that was looked for.
        behind = re.sub(r"`[\w]+\.[^`/]+` \((?:`test_\w+`(?:, )?)+\)", "", text)
        self.assertEqual([], re.findall(r"`test_\w+`", behind))

    def test_a_test_that_is_not_there_is_found(self):
        self.assertEqual(
            ["server.no such case", "integration.nothing", "integration.hostile: test_none"],
            list(missing_tests("`server.no such case`, `integration.nothing`, `integration.hostile` (`test_none`, "
                               "`test_noise`), `protocol.random bytes`, `server/main.cpp`")))

    def test_every_test_that_a_recipe_rests_on_is_there(self):
        text = (ROOT / "server/OPERATION.md").read_text(encoding="utf-8")
        recipes = re.search(r"(?s)## Recipes\n(.*?)\n## ", text)[1]
        rows = [line.split("|")[1:-1] for line in recipes.splitlines() if line.startswith("|")][2:]
        self.assertGreater(len(rows), 5)
        self.assertEqual([], list(missing_tests(recipes)))
        for row in rows:
            self.assertRegex(row[2], r"`\w+\.\w+`")
            self.assertRegex(row[1], r"\]\(")

    def test_what_one_sees_is_what_gpunbd_says(self):
        text = (ROOT / "server/OPERATION.md").read_text(encoding="utf-8")
        sources = [sentences(file.read_text(encoding="utf-8"))
                   for folder in ("config", "protocol", "server", "storage") for file in (ROOT / folder).rglob("*.cpp")]
        self.assertEqual([], list(unsaid(text, sources)))
        self.assertEqual(["it has eaten"], list(unsaid(
            "| one sees | it is |\n|---|---|\n| `it has` or `it has eaten` | x |\n", [sentences('say("it "\n    "has {}");')])))

    def test_problems_are_reported_to_the_contact_of_the_package(self):
        contact = re.search(r'CPACK_PACKAGE_CONTACT "([^"]+)"', (ROOT / "CMakeLists.txt").read_text(encoding="utf-8"))
        self.assertIn(contact[1], (ROOT / "SECURITY.md").read_text(encoding="utf-8"))


if __name__ == "__main__":
    unittest.main(argv=sys.argv)
