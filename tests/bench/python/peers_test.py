"""Tests the table of peers."""

import unittest

from tests.bench.python.peers import runner


class TableTest(unittest.TestCase):
    def test_the_table_shows_times_ratios_and_reasons(self):
        table = runner.table({
            "quick": {"version": "1.2", "workloads": {
                "op": {"peer": [2e-3, 4e-3], "local": [1e-3, 1e-3], "error": ""},
                "step": {"not_measured": "serves whole models"}}},
            "wrong": {"version": "3", "workloads": {
                "op": {"peer": [1.0], "local": [1.0], "error": "differs by 2"},
                "step": {"peer": [1.0], "local": [2.0], "error": ""}}},
            "absent": {"missing": "not installed: no wheel"},
        })
        self.assertEqual(table.splitlines(), [
            "| | op | step |",
            "|---|---|---|",
            "| quick (1.2) | 3 ms (3.00) | - |",
            "| wrong (3) | WRONG: differs by 2 | 1 s (0.50) |",
            "| absent | not installed: no wheel | |",
            "",
            "quick: serves whole models"])
