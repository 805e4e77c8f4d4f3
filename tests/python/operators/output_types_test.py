"""Calls with given outputs, and with mixed types, return what the CPU returns."""

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

    def test_types_are_taken_and_refused_as_on_the_cpu(self):
        operand = torch.tensor([[4.0, 1.0], [1.0, 3.0]])
        several = {
            "lu_factor": lambda t, out: torch.linalg.lu_factor(t, out=(out, out.int())),
            "frexp": lambda t, out: torch.frexp(t, out=(out, out.to(torch.int32, copy=True))),
            "max": lambda t, out: torch.max(t, 0, out=(out, out.to(torch.int64, copy=True))),
        }
        calls = {
            "nonzero": lambda t, out: torch.nonzero(t, out=out),
            "masked_select": lambda t, out: torch.masked_select(t, t > 0, out=out),
            "abs": lambda t, out: torch.abs(t, out=out),
            "signbit": lambda t, out: torch.signbit(t, out=out),
            "isposinf": lambda t, out: torch.isposinf(t, out=out),
            "nan_to_num": lambda t, out: torch.nan_to_num(t, out=out),
            "clamp_max": lambda t, out: torch.clamp_max(t, 1, out=out),
            "deg2rad": lambda t, out: torch.deg2rad(t, out=out),
            "stack": lambda t, out: torch.stack([t, t], out=out),
            "addr": lambda t, out: torch.addr(t, t[0], t[1], out=out),
            "heaviside": lambda t, out: torch.heaviside(t, t, out=out),
            "multinomial": lambda t, out: torch.multinomial(t, 2, out=out),
            "bernoulli": lambda t, out: torch.bernoulli(t * 0, out=out),
            "det": lambda t, out: torch.linalg.det(t, out=out),
            "solve": lambda t, out: torch.linalg.solve(t, t, out=out),
            "pinv": lambda t, out: torch.linalg.pinv(t, out=out),
            "gelu": lambda t, out: torch._C._nn.gelu(t, out=out),
            "matmul": lambda t, out: torch.matmul(t, t, out=out),
            "gather": lambda t, out: torch.gather(t, 0, (t > 1).long(), out=out),
            "conj_physical": lambda t, out: torch.conj_physical(t, out=out),
            **several,
        }
        types = [torch.float32, torch.float64, torch.int64, torch.bool, torch.complex64]
        for name, call in calls.items():
            for type_, size in itertools.product(types, ((2, 2), (0,), (40, 200))):
                outcomes = []
                for place in ("cpu", self.device):
                    out = torch.zeros(size, dtype=type_, device=place)
                    try:
                        with warnings.catch_warnings():
                            warnings.simplefilter("ignore")
                            result = call(operand.to(place), out)
                        outcomes.append(None)
                    except (RuntimeError, TypeError) as error:
                        outcomes.append((type(error), str(error)))
                with self.subTest(call=name, type=type_, size=size):
                    self.assertEqual(outcomes[1], outcomes[0])
                    if outcomes[1] is None:
                        # The result can be read; solvers may differ in the last bits of others.
                        for part in result if isinstance(result, tuple) else (result,):
                            part.cpu()

    def test_selecting_by_a_mask_refuses_types_at_the_call(self):
        for type_ in (torch.uint16, torch.uint32, torch.uint64):
            for elements in (3, 9000):
                texts = []
                for place in ("cpu", self.device):
                    values = torch.ones(elements, dtype=torch.int32, device=place).to(type_)
                    mask = torch.ones(elements, dtype=torch.bool, device=place)
                    with self.assertRaises(NotImplementedError) as raised:
                        torch.masked_select(values, mask)
                    texts.append(str(raised.exception))
                self.assertEqual(texts[1], texts[0])

    def test_shifts_promote(self):
        for (name, call), operand in itertools.product(SHIFTS.items(), OPERANDS):
            with self.subTest(name=name, operand=operand.dtype):
                self.assert_same(call, operand)
