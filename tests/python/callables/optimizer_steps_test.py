"""Optimizer steps need few graphs, and compute the CPU's values."""

import copy

import torch

import djinn
from tests.python.remote_case import RemoteCase

_STEPS = 12


def _train(model, optimizer, inputs, each=lambda: None):
    for x in inputs:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        each()


class OptimizerStepsTest(RemoteCase):
    def setUp(self):
        torch.manual_seed(1)
        self.local = torch.nn.Sequential(
            torch.nn.Linear(6, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2)
        )
        self.remote = copy.deepcopy(self.local).to(self.device)
        self.inputs = [torch.randn(3, 6) for _ in range(_STEPS)]

    def _graphs(self):
        return djinn.statistics()["graphs_defined"]

    def test_a_step_is_one_graph(self):
        for kind, options in (
            (torch.optim.AdamW, {}),
            (torch.optim.Adam, {"amsgrad": True}),
            (torch.optim.AdamW, {"foreach": False}),
            (torch.optim.NAdam, {}),
            (torch.optim.Adamax, {}),
        ):
            with self.subTest(kind=kind.__name__, **options):
                self.setUp()
                counts = []

                def count():
                    self.remote[0].bias.detach().cpu()
                    counts.append(self._graphs())

                _train(
                    self.remote,
                    kind(self.remote.parameters(), lr=0.01, **options),
                    [x.to(self.device) for x in self.inputs],
                    count,
                )
                _train(
                    self.local,
                    kind(self.local.parameters(), lr=0.01, **options),
                    self.inputs,
                )
                for remote, local in zip(self.remote.parameters(), self.local.parameters()):
                    self.assert_same(remote.detach(), local.detach())
                # The first few steps differ from the others, because they
                # create the optimizer's state. Later steps are alike.
                self.assertEqual(counts[-1], counts[_STEPS // 2], counts)

    def test_lists_of_unlike_numbers_keep_their_places(self):
        x = [torch.rand(3) + 0.5 for _ in range(3)]
        y = [tensor.to(self.device) for tensor in x]
        for numbers in ([1.5, 1.5, 1.5], [1.5, 2.5, 1.5], [0.0, -0.0, 0.0], [2, 2, 2], [2.0, 2, 2.0]):
            for name in ("_foreach_mul", "_foreach_div", "_foreach_pow", "_foreach_clamp_min"):
                with self.subTest(name=name, numbers=numbers):
                    operator = getattr(torch, name)
                    for remote, local in zip(operator(y, numbers), operator(x, numbers)):
                        self.assert_same(remote, local)

    def test_lists_that_do_not_fit_are_refused_as_on_a_cpu(self):
        x = [torch.randn(3) for _ in range(3)]
        y = [tensor.to(self.device) for tensor in x]
        for numbers in ([1.5, 1.5], [1.5] * 4):
            with self.assertRaisesRegex(RuntimeError, "same number of elements"):
                torch._foreach_mul_(x, numbers)
            with self.assertRaisesRegex(RuntimeError, "same number of elements"):
                torch._foreach_mul_(y, numbers)
