import math
import unittest

from tests.bench.python.report import (
    Row, as_json, median_interval, seconds, table, worst)


class ReportTest(unittest.TestCase):
    def test_interval_of_few_values_holds_them_all(self):
        self.assertEqual(median_interval([3, 1, 2]), (2, 1, 3))

    def test_interval_of_many_values_leaves_outliers_out(self):
        median, low, high = median_interval([*range(1, 25), 1000])
        self.assertEqual(median, 13)
        self.assertLess(low, 13)
        self.assertLess(high, 24)

    def test_units(self):
        self.assertEqual([seconds(t) for t in (2, 0.0125, 3.2e-6, 5e-9)],
                         ["2 s", "12.5 ms", "3.2 us", "5 ns"])

    def test_nan_is_worse_than_any_number(self):
        self.assertEqual(worst(0.0, 2.0, 1.0), 2.0)
        self.assertEqual(worst(0.0, math.nan, 1.0), math.inf)

    def test_ratios_are_taken_round_by_round(self):
        # A round in which the machine was slow changes nothing.
        row = Row("b", "v", djinn=[1, 10, 1], local=[2, 20, 2], checked="equal bits")
        self.assertEqual(median_interval(row.ratios()), (0.5, 0.5, 0.5))
        self.assertIn("0.50 [0.50, 0.50]", table([row]))
        self.assertEqual(as_json([row])[0]["ratio"], (0.5, 0.5, 0.5))

    def test_a_wrong_output_is_shown_instead_of_the_check(self):
        row = Row("b", "v", djinn=[1], local=[1], checked="equal bits", error="differs")
        self.assertIn("WRONG: differs", table([row]))
        self.assertNotIn("equal bits", table([row]))

    def test_a_row_without_times_can_be_shown(self):
        self.assertRegex(table([Row("b", "v", error="died")]), r"(?m)^b +v +- +- +- +WRONG: died$")
