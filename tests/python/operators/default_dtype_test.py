"""torch.set_default_dtype(): what calls leave to it is as on the CPU."""

import itertools

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_leaves, tree_map

import djinn

from tests.python.remote_case import RemoteCase

NUMBERS = torch.arange(1, 7)
FLAGS = NUMBERS > 3

# The operands are integers, or there are none.
CALLS = {
    "quotient": lambda t: t / 2,
    "quotient of tensors": lambda t: torch.true_divide(t, t + 1),
    "sum with a number": lambda t: t + 0.5,
    "product with a number": lambda t: torch.mul(t, 0.1),
    "complex product": lambda t: t * 2j,
    "sine": torch.sin,
    "exponential": torch.exp,
    "sigmoid": torch.sigmoid,
    "power": lambda t: torch.pow(t, 0.5),
    "power of a number": lambda t: torch.pow(0.5, t),
    "clamped": lambda t: torch.clamp(t, 1.5),
    "xlogy": lambda t: torch.xlogy(t, t),
    "arctangent of two": lambda t: torch.atan2(t, t.flip(0)),
    "mean of quotients": lambda t: (t / 3).mean(),
    "transform": torch.fft.fft,
    "chosen numbers": lambda t: torch.where(t > 2, 1.0, 0.0),
    "chosen": lambda t: torch.where(t > 2, t, 0.5),
    "arange": lambda t: torch.arange(0, 1, 0.25, device=t.device),
    "linspace": lambda t: torch.linspace(0, 1, 4, device=t.device),
    "logspace": lambda t: torch.logspace(0, 1, 4, device=t.device),
    "scalar": lambda t: torch.scalar_tensor(1.5, device=t.device),
    "tensor": lambda t: torch.tensor([1.5], device=t.device),
    "zeros": lambda t: torch.zeros(3, device=t.device),
    "ones": lambda t: torch.ones(3, device=t.device),
    "filled": lambda t: torch.empty(3, device=t.device).fill_(1),
    "full": lambda t: torch.full((2,), 1.5, device=t.device),
    "full of complex": lambda t: torch.full((2,), 1 + 2j, device=t.device),
    "new_full": lambda t: t.new_full((2,), 1.5),
    "eye": lambda t: torch.eye(3, device=t.device),
    "window": lambda t: torch.hann_window(4, device=t.device),
    "drawn": lambda t: torch.rand(5, device=t.device),
    "drawn normally": lambda t: torch.normal(0.0, 1.0, (5,), device=t.device),
    "weighed counts": lambda t: torch.bincount(t, torch.ones(6, device=t.device)),
    "out": lambda t: torch.sin(t, out=torch.empty(6, dtype=torch.float32, device=t.device)),
    "real operand": lambda t: t.to(torch.float32) * 1.5,
    "whole numbers": lambda t: t * 3 + t.sum(),
    "places": torch.nonzero,
    "logarithm of a sum": lambda t: torch.logsumexp(t, 0),
    "logarithm of a sum, out": lambda t: torch.logsumexp(
        t, 0, out=torch.empty((), dtype=torch.float32, device=t.device)),
    "covariance": lambda t: torch.cov(t.view(2, 3)),
    "counts by whole numbers": lambda t: torch.bincount(t, t),
}

# The first samples of each operator.
_SAMPLES = 3
# Operators with samples that do not move: views of larger memory, and sections on the CPU.
_NOT_MOVED = ("as_strided.partial_views", "tensor_split")


class DefaultDtypeTest(RemoteCase):
    def setUp(self):
        self.addCleanup(torch.set_default_dtype, torch.get_default_dtype())

    def check(self, default):
        torch.set_default_dtype(default)
        for name, call in CALLS.items():
            for numbers in (NUMBERS, FLAGS):
                with self.subTest(name, default=default, of=numbers.dtype):
                    torch.manual_seed(5)
                    try:
                        local = call(numbers)
                    except RuntimeError as error:
                        torch.manual_seed(5)
                        with self.assertRaises(type(error)):
                            call(numbers.to(self.device)).cpu()
                        continue
                    torch.manual_seed(5)
                    self.assert_same(call(numbers.to(self.device)), local)

    def test_double(self):
        self.check(torch.float64)

    def test_half_precision(self):
        self.check(torch.bfloat16)

    def test_a_later_default_replaces_an_earlier_one(self):
        for default in (torch.float32, torch.float64, torch.float32, torch.bfloat16):
            self.check(default)

    def test_a_registered_function(self):
        function = djinn.compile(lambda t: t / 2 + torch.ones(6, device=t.device))
        numbers = NUMBERS.to(self.device)
        for default in (torch.float32, torch.float64, torch.float32):
            torch.set_default_dtype(default)
            for _ in range(4):
                self.assert_same(function(numbers), NUMBERS / 2 + torch.ones(6))

    def test_every_operator_on_integers(self):
        torch.set_default_dtype(torch.float64)
        for op in op_db:
            if torch.int64 not in op.dtypes or op.full_name in _NOT_MOVED:
                continue
            for sample in itertools.islice(op.sample_inputs("cpu", torch.int64), _SAMPLES):
                arguments = (sample.input, sample.args, sample.kwargs)
                try:
                    local = tree_leaves(op(sample.input, *sample.args, **sample.kwargs))
                except (RuntimeError, TypeError, ValueError, AssertionError):
                    continue
                value, args, kwargs = tree_map(
                    lambda t: t.to(self.device) if isinstance(t, torch.Tensor) else t, arguments)
                with self.subTest(operator=op.full_name):
                    for there, here in zip(tree_leaves(op(value, *args, **kwargs)), local):
                        if isinstance(here, torch.Tensor):
                            self.assertEqual(there.cpu().dtype, here.dtype)
