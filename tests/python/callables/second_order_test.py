"""Gradients of the gradients of compiled modules and functions."""

import copy
import gc
import weakref

import torch

import djinn
from tests.python.callables.registered_case import RegisteredCase


def _critic():
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))


def _penalize(call, model, x):
    """Returns the gradients of a penalty on the gradient for x, as in a Wasserstein GAN."""
    model.zero_grad()
    (gradient,) = torch.autograd.grad(call(x).sum(), x, create_graph=True)
    (gradient.norm(2, 1) - 1).square().mean().backward()
    return [gradient.detach(), *(one.grad for one in model.parameters() if one.grad is not None)]


class SecondOrderTest(RegisteredCase):
    def setUp(self):
        super().setUp()
        torch._dynamo.reset()

    def test_a_gradient_penalty(self):
        local = _critic()
        for name, compile in (
            ("djinn.compile", djinn.compile),
            ("torch.compile", lambda model: torch.compile(model, backend="djinn")),
        ):
            remote = copy.deepcopy(local).to(self.device)
            compiled = compile(remote)
            for _ in range(4):
                with self.subTest(name):
                    x = torch.randn(3, 4)
                    expected = _penalize(local, local, x.clone().requires_grad_())
                    there = x.to(self.device).requires_grad_()
                    for one, other in zip(
                        _penalize(compiled, remote, there), expected, strict=True
                    ):
                        self.assert_same(one, other)

    def test_an_input_that_is_computed_from_another_one(self):
        def function(x, y):
            return torch.sin(x) * y, (y**3).sum()

        compiled = torch.compile(function, backend="djinn")
        found = []
        for call, device in ((function, "cpu"), (compiled, self.device)):
            x = torch.linspace(-1, 1, 5).to(device).requires_grad_()
            first, second = call(x, x * x)
            (one,) = torch.autograd.grad(first.sum() + second, x, create_graph=True)
            (two,) = torch.autograd.grad(one.sum(), x, create_graph=True)
            (three,) = torch.autograd.grad(two.sum(), x)
            found.append([one.detach().cpu(), two.detach().cpu(), three.cpu()])
        torch.testing.assert_close(found[1], found[0])

    def test_autocast_of_the_forward_pass_applies(self):
        remote = _critic().to(self.device)
        compiled = torch.compile(copy.deepcopy(remote), backend="djinn")
        found = []
        for call in (remote, compiled):
            x = torch.linspace(-1, 1, 12).view(3, 4).to(self.device).requires_grad_()
            with torch.autocast(self.device.type, torch.bfloat16):
                result = call(x).float().sum()
            (gradient,) = torch.autograd.grad(result, x, create_graph=True)
            gradient.square().sum().backward()
            found.append([gradient.detach().cpu(), x.grad.cpu()])
        torch.testing.assert_close(found[1], found[0], rtol=0, atol=0)

    def test_a_graph_that_would_do_something_else_is_refused_by_its_place(self):
        counter = torch.zeros(4, device=self.device)

        def random(x):
            return torch.nn.functional.dropout(x.sin(), 0.5)

        def writing(x):
            counter.add_(1)
            return x.sin() * counter

        for function, reason in ((random, "draws random numbers"), (writing, "writes to its inputs")):
            with self.subTest(function.__name__):
                x = self.on(4).requires_grad_()
                result = torch.compile(function, backend="djinn")(x).sum()
                (gradient,) = torch.autograd.grad(result, x, create_graph=True)
                with self.assertRaisesRegex(RuntimeError, rf"(?s)djinn.*{__file__}.*{reason}"):
                    gradient.square().sum().backward()

    def test_an_input_that_changed_meanwhile_is_an_error(self):
        model = _critic().to(self.device)
        compiled = torch.compile(model, backend="djinn")
        x = self.on(3, 4).requires_grad_()
        result = compiled(x).sum()
        with torch.no_grad():
            model[0].bias.add_(1)
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            torch.autograd.grad(result, x, create_graph=True)

    def test_inputs_are_released_by_the_backward_pass(self):
        compiled = torch.compile(_critic().to(self.device), backend="djinn")
        x = self.on(3, 4)
        released = weakref.ref(x)
        result = compiled(x).sum()
        result.backward()
        del x
        gc.collect()
        self.assertIsNone(released())
        self.assertIsNotNone(result.grad_fn)


if __name__ == "__main__":
    import unittest

    unittest.main()
