"""What the analysis finds of the zoo's programs, beside what their modules say."""

import pathlib
import subprocess
import tempfile
import unittest

import transformers

from tests.semantics.capture import capture_each
from tests.semantics.zoo import PROGRAMS

transformers.logging.set_verbosity_error()

# What is reached at least, in precision and recall: of patterns, modalities and phases.
# docs/semantics.md says what is missed.
_LEAST = (0.97, 0.99, 0.99)
_LEAST_HELD_OUT = (0.96, 0.99, 0.99)
# By each family alone, so that no total hides it.
_LEAST_OF_ONE = (0.95, 0.98, 0.98)
_LEAST_BY_FAMILY = {
    "autoencoder": (0.76, 1, 1),  # activations behind convolutions
    "clip": (0.98, 0.92, 0.92),  # what leads to the comparison, and masks
    "mixtral": (0.93, 0.98, 0.98),  # experts that are pieces
    "vilt": (0.47, 1, 1),  # places of patches, looked up by data
    # Held out.
    "convnext": (0.90, 1, 1),  # MLPs without a label
    "efficientnet": (0.94, 1, 1),  # padding by itself
    "regnet": (0.87, 1, 1),  # activations behind convolutions
}

DJINNCTL = "coordinator/ctl/djinnctl"
SCORE = "tests/semantics/score"


class ZooTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.tuned, cls.held_out = {}, {}
        for program, file, found in capture_each(DJINNCTL, cls.folder, PROGRAMS):
            assert found, program.name
            families = cls.held_out if program.held_out else cls.tuned
            families.setdefault(program.family, []).append(file)

    def _score(self, files, least):
        pattern, modality, phase = least
        scored = subprocess.run(
            [SCORE, f"--least_pattern={pattern}", f"--least_modality={modality}",
             f"--least_phase={phase}", *sorted(files)], capture_output=True, text=True)
        print(scored.stdout, scored.stderr, flush=True)
        self.assertEqual(scored.returncode, 0)

    def test_families_tuned_on(self):
        self.assertGreaterEqual(len(self.tuned), 15)
        self._score(sum(self.tuned.values(), []), _LEAST)

    def test_families_held_out(self):
        self.assertGreaterEqual(len(self.held_out), 8)
        self._score(sum(self.held_out.values(), []), _LEAST_HELD_OUT)

    def test_each_family(self):
        families = {**self.tuned, **self.held_out}
        self.assertLessEqual(set(_LEAST_BY_FAMILY), set(families))
        for family, files in families.items():
            with self.subTest(family):
                self._score(files, _LEAST_BY_FAMILY.get(family, _LEAST_OF_ONE))


if __name__ == "__main__":
    unittest.main()
