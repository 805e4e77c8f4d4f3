"""How strict workers are about bits."""

import torch

import djinn
from tests.python.remote_case import RemoteCase


class ExecutionModeTest(RemoteCase):
    def tearDown(self):
        djinn.set_execution_mode("strict")

    def test_strict_is_the_default(self):
        self.assertEqual(djinn.execution_mode(), "strict")

    def test_fast_runs_give_the_same_numbers_within_rounding(self):
        djinn.set_execution_mode("fast")
        self.assertEqual(djinn.execution_mode(), "fast")
        x, w = torch.randn(8, 784), torch.randn(784, 128)
        remote_x, remote_w = x.to(self.device), w.to(self.device)
        # Beyond the trials, so that both counts of threads and the choice are seen.
        for _ in range(20):
            torch.testing.assert_close(
                (remote_x @ remote_w).cpu(), x @ w, rtol=1e-4, atol=1e-4)

    def test_unknown_modes_are_refused(self):
        with self.assertRaisesRegex(ValueError, "'quick': must be one of strict, fast"):
            djinn.set_execution_mode("quick")
        self.assertEqual(djinn.execution_mode(), "strict")
