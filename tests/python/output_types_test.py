"""What a given output makes of a call, and what calls make of types, as on the CPU."""

import itertools
import warnings

import torch

from tests.python.remote_case import RemoteCase

TYPES = [torch.bool, torch.uint8, torch.int64, torch.float32, torch.float64]
OPERANDS = [
    torch.tensor([[True, False], [True, True]]),
    torch.tensor([[3, 0], [1, 2]], dtype=torch.uint8),
    torch.tensor([[3, -1], [0, 2]]),
    torch.tensor([[1.5, 2.5], [-3.0, 0.25]]),
]
REDUCTIONS = {
    "sum": lambda t, out: torch.sum(t, 0, out=out),
    "sum of a type": lambda t, out: torch.sum(t, 0, dtype=torch.int64, out=out),
    "nansum": lambda t, out: torch.nansum(t, 0, out=out),
    "prod": lambda t, out: torch.prod(t, 0, out=out),
    "mean": lambda t, out: torch.mean(t, 0, out=out),
    "cumsum": lambda t, out: torch.cumsum(t[0], 0, out=out),
    "cumprod": lambda t, out: torch.cumprod(t[0], 0, out=out),
    "all": lambda t, out: torch.all(t, 0, out=out),
    "any": lambda t, out: torch.any(t, 0, out=out),
    "all of several": lambda t, out: torch.all(t, (0, 1), out=out),
    "any of several": lambda t, out: torch.any(t, (0, 1), out=out),
    "sum of all": lambda t, out: torch.ops.aten.sum.out(t, out=out),
    "product of all": lambda t, out: torch.ops.aten.prod.out(t, out=out),
    "largest": lambda t, out: torch.amax(t, 0, out=out),
}
RANGES = {
    "arange": lambda out: torch.arange(4, out=out),
    "arange from": lambda out: torch.arange(1, 9, 2, out=out),
    "linspace": lambda out: torch.linspace(0, 3, 4, out=out),
    "logspace": lambda out: torch.logspace(0, 3, 4, out=out),
    "range": lambda out: torch.range(0, 3, out=out),
    "eye": lambda out: torch.eye(2, out=out),
}
SHIFTS = {
    "left": lambda t: t << 1,
    "left by truth": lambda t: t << True,
    "left by a real": lambda t: t << 1.5,
    "left by a tensor": lambda t: t << torch.ones(2, dtype=torch.uint8, device=t.device),
    "right": lambda t: t >> 1,
    "right by much": lambda t: t >> 70,
    "left in place": lambda t: t.clone().__ilshift__(1),
}


class OutputTypesTest(RemoteCase):
    def outcome(self, call):
        """Type, sizes and values; or that it is refused."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                result = call().cpu()
        except RuntimeError as error:
            return type(error)
        return result.dtype, result.tolist()

    def assert_same(self, call, *operands):
        local = self.outcome(lambda: call(*[t.clone() for t in operands]))
        remote = self.outcome(lambda: call(*[t.to(self.device) for t in operands]))
        self.assertEqual(remote, local)

    def test_reductions_compute_in_the_outputs_type(self):
        for (name, call), operand, dtype in itertools.product(
            REDUCTIONS.items(), OPERANDS, TYPES
        ):
            with self.subTest(name=name, operand=operand.dtype, output=dtype):
                self.assert_same(call, operand, torch.ones(2, dtype=dtype))

    def test_ranges_keep_the_sizes_of_outputs_that_fit(self):
        for (name, call), sizes, dtype in itertools.product(
            RANGES.items(), [(2, 2), (1, 4), (4,), (3,), (0,)], [torch.int64, torch.float32]
        ):
            with self.subTest(name=name, sizes=sizes, output=dtype):
                self.assert_same(call, torch.ones(sizes, dtype=dtype))
                transposed = torch.ones(tuple(reversed(sizes)), dtype=dtype)
                self.assert_same(lambda t: call(t.t()) if t.dim() == 2 else t, transposed)

    def test_shifts_promote(self):
        for (name, call), operand in itertools.product(SHIFTS.items(), OPERANDS):
            with self.subTest(name=name, operand=operand.dtype):
                self.assert_same(call, operand)
