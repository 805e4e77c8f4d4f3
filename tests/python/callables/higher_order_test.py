"""Higher order operators of PyTorch's, in functions that are registered."""

import warnings

import torch
import torch.utils.checkpoint

import djinn
from tests.python.callables.registered_case import RegisteredCase
from tests.python.remote_case import RemoteCase


class Sine(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x.sin()

    @staticmethod
    def setup_context(context, inputs, output):
        context.save_for_backward(*inputs)

    @staticmethod
    def backward(context, gradient):
        return gradient * context.saved_tensors[0].cos()


def gradient_of_sine(x):
    return torch.func.grad(lambda y: Sine.apply(y).sum())(x)


def chosen(x, mask):
    return torch.cond(mask.sum() > 0, lambda y: y.sin(), lambda y: y.cos(), (x,))


def chosen_after_a_read(x, mask):
    if mask.all():
        x = x + 1
    return chosen(x, mask)


def repeated(x, mask):
    more = torch._higher_order_ops.while_loop
    return more(lambda y: y.sum() < 9, lambda y: (y + 1,), (x * mask,))[0]


def mapped(x, mask):
    return torch._higher_order_ops.map(lambda y: y * 2, x * mask)


class Module(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


class HigherOrderTest(RegisteredCase):
    def setUp(self):
        super().setUp()
        x, mask = torch.arange(3.0), torch.tensor([1, 1, 0])
        self.functions = {
            gradient_of_sine: (x,),
            chosen: (x, mask),
            chosen_after_a_read: (x, mask),
            repeated: (x, mask),
            mapped: (x, mask),
        }

    def check(self, called, function, args):
        expected = function(*args)
        for _ in range(7):
            remote = [arg.to(self.device) for arg in args]
            torch.testing.assert_close(called(*remote).cpu(), expected)

    @torch.no_grad()
    def test_of_a_registered_function(self):
        for function, args in self.functions.items():
            with self.subTest(function.__name__):
                self.check(djinn.compile(function), function, args)

    @torch.no_grad()
    def test_of_a_module_registered_by_itself(self):
        self.addCleanup(djinn.set_automatic_registration, False)
        djinn.set_automatic_registration(True)
        for function, args in self.functions.items():
            with self.subTest(function.__name__):
                self.check(Module(function), function, args)


class CheckpointTest(RemoteCase):
    def test_a_compiled_checkpoint_repeats_its_draws(self):
        layers = torch.nn.Sequential(
            torch.nn.Linear(3, 3), torch.nn.Dropout(0.5), torch.nn.Linear(3, 3), torch.nn.Dropout(0.5)
        ).to(self.device)
        x = torch.randn(4, 3)

        def checkpointed(x):
            return torch.utils.checkpoint.checkpoint(layers, x, use_reentrant=False)

        def results(function):
            torch.manual_seed(3)
            found = []
            for _ in range(3):
                leaf = x.to(self.device).requires_grad_()
                layers.zero_grad()
                function(leaf).sum().backward()
                found += [leaf.grad.cpu(), layers[0].weight.grad.cpu()]
            return found

        expected = results(checkpointed)
        for backend in ("aot_eager", "djinn"):
            torch._dynamo.reset()
            with self.subTest(backend=backend), warnings.catch_warnings():
                # It says that the operators are sent one by one.
                warnings.simplefilter("ignore")
                found = results(torch.compile(checkpointed, backend=backend))
                for one, other in zip(found, expected):
                    torch.testing.assert_close(one, other)
