"""Layers under torch.utils.checkpoint, which repeats their draws in the backward pass."""

import copy

import torch
from torch.utils.checkpoint import checkpoint

import djinn
from tests.python.callables.registered_case import RegisteredCase


class _Network(torch.nn.Module):
    def __init__(self, reentrant):
        super().__init__()
        self.layers = torch.nn.ModuleList(
            torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Dropout(0.5), torch.nn.Tanh())
            for _ in range(3)
        )
        self.reentrant = reentrant

    def forward(self, x):
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=self.reentrant)
        return x


class CheckpointsTest(RegisteredCase):
    def step_of(self, model):
        optimizer = torch.optim.SGD(model.parameters(), 0.1)

        def step(x):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        return step

    def train(self, step, model, place):
        torch.manual_seed(4)
        generator = torch.Generator().manual_seed(1)
        found = []
        for _ in range(8):
            x = torch.randn(5, 6, generator=generator).to(place).requires_grad_(model.reentrant)
            found.append(step(x))
        return [*found, *(one.detach() for one in model.parameters())]

    def check(self, reentrant, wrap=lambda step: step):
        local = _Network(reentrant)
        remote = copy.deepcopy(local).to(self.device)
        expected = self.train(self.step_of(local), local, "cpu")
        step = wrap(self.step_of(remote))
        for one, other in zip(self.train(step, remote, self.device), expected, strict=True):
            self.assert_same(one, other)
        return step

    def test_values(self):
        for reentrant in (False, True):
            with self.subTest(reentrant=reentrant):
                self.check(reentrant)

    def test_a_step_is_replayed(self):
        step = self.check(False, djinn.compile)
        self.assertGreaterEqual(step.statistics()["replays"], 3, step.statistics())

    def test_a_step_reads_nothing(self):
        model = _Network(False).to(self.device)
        step = self.step_of(model)
        x = self.on(5, 6)
        step(x)
        djinn.synchronize()
        before = djinn.statistics()
        step(x)
        after = djinn.statistics()
        for counter in ("reads", "synchronous_calls"):
            self.assertEqual(after[counter], before[counter])


if __name__ == "__main__":
    import unittest

    unittest.main()
