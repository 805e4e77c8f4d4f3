"""The whole operator database: see runner.py."""

import unittest

from tests.operator_database import runner


class WholeTest(unittest.TestCase):
    def test_enough_samples_are_equal(self):
        self.assertEqual(runner.main([]), 0)
