"""What the analysis finds of the zoo's programs, beside what their modules say."""

import pathlib
import subprocess
import tempfile
import unittest

import transformers

from tests.semantics.capture import capture_each
from tests.semantics.zoo import PROGRAMS

transformers.logging.set_verbosity_error()

DJINNCTL = "coordinator/ctl/djinnctl"
SCORE = "tests/semantics/score"


class ZooTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.tuned, cls.held_out = [], []
        for program, file, found in capture_each(DJINNCTL, cls.folder, PROGRAMS):
            assert found, program.name
            (cls.held_out if program.held_out else cls.tuned).append(file)

    def _score(self, files, least):
        scored = subprocess.run(
            [SCORE, f"--least={least}", *sorted(files)], capture_output=True, text=True)
        print(scored.stdout, scored.stderr, flush=True)
        self.assertEqual(scored.returncode, 0)

    def test_families_tuned_on(self):
        self.assertGreaterEqual(len({program.family for program in PROGRAMS}), 15)
        self._score(self.tuned, 0.95)

    def test_families_held_out(self):
        held_out = {program.family for program in PROGRAMS if program.held_out}
        self.assertGreaterEqual(len(held_out), 3)
        self._score(self.held_out, 0.90)


if __name__ == "__main__":
    unittest.main()
