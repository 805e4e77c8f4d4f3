"""Some operators in all combinations of choices.py. all_choices_test has every operator."""

import random
import unittest

import torch

from tests.operator_database import choices

_OPERATORS = 64


class ChoicesTest(unittest.TestCase):
    def test_bits_and_strides_are_the_cpus(self):
        ops = random.Random(0).sample(choices.operators(), _OPERATORS)
        compared, differences = choices.compare(ops, samples=1)
        self.assertEqual(differences, {}, f"of {compared}")
        self.assertGreater(compared, 100)

    def test_a_difference_is_found(self):
        """The comparison tells bits, strides, sizes and numbers of results apart."""
        value = torch.ones(2, 3)
        for other in (torch.nextafter(value, 2 * value), value.t().contiguous().t(), value[:1], [value, value]):
            self.assertIsNotNone(choices.difference(value, other))
        self.assertIsNone(choices.difference(value, value.clone()))
