"""Phases, and what operators see of a program's calls."""

import threading

import torch

import djinn
from tests.python.remote_case import RemoteCase


class PhasesTest(RemoteCase):
    def test_phases_nest_and_are_the_threads(self):
        with djinn.phase("llm_prefill"):
            with djinn.phase("llm_decode"):
                self.assertEqual(djinn.signal_phase("training"), "llm_decode")
            other = []
            thread = threading.Thread(target=lambda: other.append(djinn.signal_phase("forward")))
            thread.start()
            thread.join()
            self.assertEqual(other, ["unknown"])
            self.assertEqual(djinn.signal_phase("llm_prefill"), "llm_prefill")
        self.assertEqual(djinn.signal_phase("unknown"), "unknown")

    def test_unknown_phases_are_refused(self):
        with self.assertRaisesRegex(ValueError, "must be one of unknown, forward, llm_prefill"):
            djinn.signal_phase("lunch")

    def test_no_result_changes(self):
        x = torch.randn(4, 4)
        remote = x.to(self.device)
        with djinn.phase("llm_decode"):
            self.assert_same(remote @ remote + 1, x @ x + 1)
