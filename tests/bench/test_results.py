#!/usr/bin/env python3
"""RESULTS.md is the output of results_page.py, is short, and names every missed bar."""

import json
import unittest

import compare
import plot_comparison
import results_page

MAX_LINES = 320


class Page(unittest.TestCase):
    def setUp(self):
        self.lines = results_page.PAGE.read_text(encoding="utf-8").splitlines()
        self.runs = {path.stem: json.loads(path.read_text(encoding="utf-8"))
                     for path in (results_page.HERE / "results").glob("*.json")}

    def test_page_is_current(self):
        self.assertEqual(results_page.page().splitlines(), self.lines, "run tests/bench/results_page.py")

    def test_page_is_short(self):
        self.assertLessEqual(len(self.lines), MAX_LINES)

    def test_page_shows_every_run(self):
        shown = [kind for section in results_page.SECTIONS for kind in section.kinds]
        self.assertEqual(sorted(shown), sorted(self.runs))

    def test_page_names_every_missed_bar(self):
        missed = [(bar["cell"], bar["server"], bar["bar"]) for run in self.runs.values()
                  for bar in compare.judged(compare.bars(compare.Comparison({}, run.get("results", []))))[1]]
        named = [line for line in self.lines if "Missed: " in line]
        for cell, server, bar in missed:
            self.assertTrue(any(f"`{cell}` {server}" in line and bar in line for line in named), (cell, server, bar))

    def test_picture_is_current(self):
        self.assertEqual("\n".join(plot_comparison.svg()).splitlines(),
                         plot_comparison.PICTURE.read_text(encoding="utf-8").splitlines(), "run tests/bench/plot_comparison.py")


class Judged(unittest.TestCase):
    def test_one_of_several_alternatives_is_sufficient(self):
        def bar(met, either, server="a"):
            return {"transport": "unix", "cell": "c", "server": server, "met": met, "either": either}

        self.assertEqual(compare.judged([bar(True, True), bar(False, True)]), (1, []))
        self.assertEqual(compare.judged([bar(True, True), bar(False, False)]), (2, [bar(False, False)]))
        self.assertEqual(compare.judged([bar(True, True), bar(False, True, "b")]), (2, [bar(False, True, "b")]))


if __name__ == "__main__":
    unittest.main()
