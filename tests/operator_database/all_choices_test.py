"""All operators in all combinations of choices.py: four minutes on two cores that others use, too."""

import unittest

from tests.operator_database import choices


class AllChoicesTest(unittest.TestCase):
    def test_bits_and_strides_are_the_cpus(self):
        compared, differences = choices.compare(choices.operators(), samples=2)
        self.assertEqual(differences, {}, f"of {compared}")
        self.assertGreater(compared, 7000)


if __name__ == "__main__":
    unittest.main()
