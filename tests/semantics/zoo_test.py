"""Compares the analysis of the zoo's programs with the labels of their modules."""

import pathlib
import subprocess
import tempfile
import unittest

import transformers

from tests.semantics.capture import capture_each
from tests.semantics.zoo import PROGRAMS

transformers.logging.set_verbosity_error()

# Required precision and recall of patterns, modalities and phases.
# docs/benchmarks/data/semantics.txt lists what is missed.
_LEAST = (0.99, 0.99, 0.99)
_LEAST_HELD_OUT = (0.98, 0.99, 0.98)
# Required of each family alone, so that no total hides a bad one.
_LEAST_OF_ONE = (0.95, 0.98, 0.98)
_LEAST_BY_FAMILY = {
    "aimv2": (0.92, 0.98, 0.98),  # pieces of MLPs
    "altclip": (0.99, 0.97, 0.97),  # lengths that are cut, one token's counting
    "audioflamingo3": (0.99, 0.98, 0.97),  # how long a sound is
    "clipseg": (0.99, 0.97, 0.97),  # squares of a piece before their sum
    "dual": (0.99, 0.97, 0.97),  # what scales the scores
    "flava": (0.95, 0.97, 0.97),  # poolers; masks that its own class makes
    "glmasr": (0.99, 0.99, 0.95),  # how long a sound is
    # Has activations after a group norm.
    "hubert": (0.9, 1, 1),
    "wav2vec2": (0.9, 1, 1),
    # Has a norm before windows of neighbours, and calls that count the windows.
    "lighton_ocr": (0.98, 0.98, 0.97),
    "mistral3": (0.98, 0.97, 0.97),
    "siglip": (0.98, 0.95, 0.95),  # the text's projection, and what scales the scores
    "vilt": (0.93, 1, 1),  # places of patches, chosen number by number
}

# Required of each label with 50 nodes or more, over all families.
_LEAST_OF_LABEL = 0.95
_LEAST_BY_LABEL = {
    # The analysis misses copies that end a piece before a projector, and
    # integers that count windows.
    "pattern/fusion": 0.92,
    # The analysis misses what it misses for patterns, a norm before such
    # windows, and convolutions of a projector.
    "modality/fusion": 0.92,
    "phase/multimodal_fusion": 0.92,
}
_LEAST_BY_LABEL_HELD_OUT = {
    # These have too few nodes to be checked unless they are named.
    "pattern/fusion": 0.95,
    "modality/fusion": 0.95,
    "phase/multimodal_fusion": 0.95,
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

    def _score(self, files, least, *options):
        pattern, modality, phase = least
        scored = subprocess.run(
            [SCORE, f"--least_pattern={pattern}", f"--least_modality={modality}",
             f"--least_phase={phase}", *options, *sorted(files)],
            capture_output=True, text=True)
        print(scored.stdout, scored.stderr, flush=True)
        self.assertEqual(scored.returncode, 0)

    def _score_labels(self, families, least, by_label):
        others = ",".join(f"{label}={share}" for label, share in by_label.items())
        self._score(sum(families.values(), []), least,
                    f"--least_label={_LEAST_OF_LABEL}", f"--least_by_label={others}")

    def test_families_tuned_on(self):
        self.assertGreaterEqual(len(self.tuned), 15)
        self._score_labels(self.tuned, _LEAST, _LEAST_BY_LABEL)

    def test_families_held_out(self):
        self.assertGreaterEqual(len(self.held_out), 8)
        self._score_labels(self.held_out, _LEAST_HELD_OUT, _LEAST_BY_LABEL_HELD_OUT)

    def test_each_family(self):
        families = {**self.tuned, **self.held_out}
        self.assertLessEqual(set(_LEAST_BY_FAMILY), set(families))
        for family, files in families.items():
            with self.subTest(family):
                self._score(files, _LEAST_BY_FAMILY.get(family, _LEAST_OF_ONE))
