"""A device whose worker has no room for the model: it spans workers."""

import copy
import unittest

import torch

import djinn

_WORKER_BYTES = 24 << 20


def _model():
    """40 MiB of weights."""
    torch.manual_seed(3)
    layers = [torch.nn.Conv2d(3, 64, 3, padding=1), torch.nn.ReLU(), torch.nn.Flatten()]
    for sizes in [(16384, 256), (256, 4096), (4096, 1024), (1024, 1000)]:
        layers += [torch.nn.Linear(*sizes), torch.nn.Dropout(0.25), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers)


class MultiWorkerTest(unittest.TestCase):
    def setUp(self):
        self.enterContext(
            djinn.local(workers=3, worker_threads=1, worker_memory_bytes=_WORKER_BYTES)
        )
        self.addCleanup(torch.set_num_threads, torch.get_num_threads())
        torch.set_num_threads(1)
        self.local = _model()
        self.remote = copy.deepcopy(self.local).to(djinn.device())

    def check(self, calls):
        for _ in range(calls):
            x = torch.randn(4, 3, 16, 16)
            state = torch.get_rng_state()
            expected = self.local(x)
            torch.set_rng_state(state)
            torch.remote_accelerator.set_rng_state(state)
            actual = self.remote(x.to(djinn.device())).cpu()
            self.assertTrue(torch.equal(actual, expected))

    @torch.inference_mode()
    def test_a_model_larger_than_a_worker(self):
        self.local.eval()
        self.remote.eval()
        self.check(4)
        self.assertEqual(len(djinn.where_is().worker_id.split("+")), 2)
        self.assertEqual(djinn.root_errors(), [])

    @torch.inference_mode()
    def test_one_generator_for_all_workers(self):
        self.check(4)
        self.assertEqual(len(djinn.where_is().worker_id.split("+")), 2)

    @torch.inference_mode()
    def test_captured_graphs_on_several_workers_are_refused(self):
        self.remote.eval()
        compiled = djinn.compile(self.remote)
        for _ in range(4):
            compiled(torch.randn(4, 3, 16, 16).to(djinn.device()))
        self.assertEqual(compiled.statistics()["replays"], 0)
        self.assertIn("spans workers", compiled.statistics()["refusal"])
