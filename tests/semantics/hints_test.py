"""Compares a program's phase hints with the phases that the coordinator finds."""

import unittest

import torch

import djinn
from tests.semantics.capture import Graphs

DJINNCTL = "coordinator/ctl/djinnctl"


class HintsTest(unittest.TestCase):
    def _phases(self, use):
        """Returns the phases that the coordinator shows for a program's graphs."""
        with djinn.local(workers=1, worker_threads=1) as cluster:
            use(djinn.device())
            djinn.synchronize()
            graphs = Graphs(DJINNCTL, cluster)
            return {graphs.get(one)["meaning"].get("phase")
                    for one in graphs.fingerprints()}

    def test_a_hint_decides_a_phase_that_the_graph_leaves_open(self):
        x = torch.randn(4, 4)

        def plain(device):
            (x.to(device) @ x.to(device) + 1).cpu()

        def said(device):
            with djinn.phase("llm_prefill"):
                plain(device)

        self.assertNotIn("PHASE_LLM_PREFILL", self._phases(plain))
        self.assertEqual(self._phases(said), {"PHASE_LLM_PREFILL"})

    def test_a_wrong_hint_does_not_override_the_graph(self):
        def encode(device):
            with djinn.phase("llm_decode"), torch.no_grad():
                image = torch.randn(1, 3, 8, 8).to(device)
                torch.nn.Conv2d(3, 4, 3).to(device)(image).cpu()

        self.assertEqual(self._phases(encode), {"PHASE_VISION_ENCODING"})
