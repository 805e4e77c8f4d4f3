"""All operators in all combinations of choices.py, in a random order, for a quarter of an hour at most.

They take four minutes on two cores that a few others use, too.
"""

import faulthandler
import random
import unittest

from tests.operator_database import choices

_SECONDS = 900
# The whole process ends then, with the place where it hangs.
_HANGS_AFTER = 1200


class AllChoicesTest(unittest.TestCase):
    def test_bits_and_strides_are_the_cpus(self):
        faulthandler.dump_traceback_later(_HANGS_AFTER, exit=True)
        self.addCleanup(faulthandler.cancel_dump_traceback_later)
        ops = choices.operators()
        random.Random(1).shuffle(ops)
        compared, differences = choices.compare(ops, samples=2, seconds=_SECONDS)
        print(compared, "combinations", flush=True)
        self.assertEqual(differences, {}, f"of {compared}")
        self.assertGreater(compared, 1000)
