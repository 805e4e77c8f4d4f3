"""The wrong calls of the operator database: see errors.py."""

import unittest

from tests.operator_database import errors


class ErrorsTest(unittest.TestCase):
    def test_enough_raise_what_the_cpu_raises(self):
        self.assertEqual(errors.main([]), 0)
