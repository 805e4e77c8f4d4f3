"""Types, sizes and strides of results are the CPU's, on operands in arbitrary layouts.

Also strides of dimensions of one element: products choose their kernels, and with them the
order of their sums, by these.
"""

import random
import warnings

import torch
import torch.nn.functional as F

from tests.python.remote_case import RemoteCase

_TYPES = (
    torch.bool, torch.uint8, torch.int32, torch.int64,
    torch.float16, torch.bfloat16, torch.float32, torch.float64,
)  # fmt: skip
_OF_ONE = """
    abs angle bitwise_not clone deg2rad digamma erfinv exp exp2 floor frac i0 isfinite isinf isnan
    logical_not logit nan_to_num neg ones_like positive reciprocal relu round sgn sigmoid signbit
    sin sinc sqrt square tril zeros_like
""".split()
_OF_ONE_IN_NETWORKS = """
    elu gelu hardswish hardtanh leaky_relu logsigmoid mish silu softplus
""".split()
_OF_TWO = """
    add atan2 bitwise_and bitwise_left_shift bmm copysign div eq floor_divide fmax fmod gcd
    heaviside hypot isclose ldexp logaddexp logical_and lt matmul maximum minimum mm mul nextafter
    pow remainder rsub sub xlogy
""".split()
_LOSSES = """
    binary_cross_entropy_with_logits huber_loss kl_div l1_loss mse_loss smooth_l1_loss
""".split()


def _into(operator, dtype):
    """The operator's variant that resizes what it is given for its result."""
    return lambda *args: operator(*args, out=torch.empty(0, device=args[0].device, dtype=dtype))


def _index(x, *sizes):
    return torch.zeros(sizes, dtype=torch.long, device=x.device)


ONE = {name: getattr(torch, name) for name in _OF_ONE}
ONE.update((name, getattr(F, name)) for name in _OF_ONE_IN_NETWORKS)
ONE.update({
    "add a number": lambda x: x + 1.5,
    "add an integer": lambda x: x + 1,
    "add, foreach": lambda x: torch._foreach_add([x], 1.5),
    "add, out": lambda x: _into(torch.add, torch.float64)(x, x),
    "all": lambda x: x.all(-1),
    "amax": lambda x: x.amax(0, keepdim=True),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "clamp": lambda x: x.clamp(0.5, 1.5),
    "compare": lambda x: x > 0.5,
    "convert": lambda x: x.double(),
    "cumsum": lambda x: x.cumsum(0),
    "divide": lambda x: x / 2,
    "exp, foreach": lambda x: torch._foreach_exp([x]),
    "exp, out": _into(torch.exp, torch.float64),
    "flip": lambda x: x.flip(0),
    "gather": lambda x: x.gather(0, _index(x, *x.shape)),
    "index": lambda x: x[_index(x, 2)],
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "masked_fill": lambda x: x.masked_fill(x > 0, 1),
    "max": lambda x: x.max(-1),
    "mean": lambda x: x.mean(-1),
    "norm": lambda x: x.norm(dim=-1),
    "power of": lambda x: 2**x,
    "power": lambda x: x**1.5,
    "repeat": lambda x: x.repeat(*[2] * x.dim()),
    "roll": lambda x: x.roll(1, 0),
    "softmax": lambda x: x.softmax(-1),
    "sort": lambda x: x.sort(-1),
    "subtract from": lambda x: 1 - x,
    "sum": lambda x: x.sum(-1, keepdim=True),
    "threshold": lambda x: F.threshold(x, 0, 1),
    "where a number": lambda x: torch.where(x > 0, x, 1.5),
})  # fmt: skip
TWO = {name: getattr(torch, name) for name in _OF_TWO}
TWO.update((name, lambda x, y, loss=getattr(F, name): loss(x, y, reduction="none"))
           for name in _LOSSES)  # fmt: skip
TWO.update({
    "add a multiple": lambda x, y: torch.add(x, y, alpha=2),
    "add, foreach": lambda x, y: torch._foreach_add([x], [y]),
    "addcdiv": lambda x, y: torch.addcdiv(x, x, y, value=0.5),
    "addcmul": lambda x, y: torch.addcmul(x, x, y),
    "cat": lambda x, y: torch.cat([x, y]),
    "divide, out": _into(torch.div, torch.float64),
    "greater, out": _into(torch.gt, torch.float32),
    "lerp": lambda x, y: torch.lerp(x, y, 0.5),
    "masked_fill": lambda x, y: x.masked_fill(y > 0, 1),
    "stack": lambda x, y: torch.stack([x, y], -1),
    "where": lambda x, y: torch.where(x > 0, x, y),
})  # fmt: skip


def _facts(results):
    if isinstance(results, torch.Tensor):
        return results.dtype, tuple(results.shape), results.stride()
    return [_facts(result) for result in results]


class LayoutsTest(RemoteCase):
    def setUp(self):
        self.random = random.Random(5)

    def strides(self, shape):
        """Dense in some order, or anything, with whatever for dimensions of one element."""
        if self.random.random() < 0.6:
            return [self.random.choice((0, 1, 2, 3, 5, 6, 7, 12, 57)) for _ in shape]
        strides, next_stride = [0] * len(shape), 1
        for dim in self.random.sample(range(len(shape)), len(shape)):
            strides[dim] = next_stride
            next_stride *= shape[dim]
        return [
            self.random.choice((stride, 1, 5, 60)) if size == 1 else stride
            for size, stride in zip(shape, strides)
        ]

    def operand(self, shape, dtype):
        """The same on both sides, and what it is."""
        strides = self.strides(shape)
        last = sum((size - 1) * stride for size, stride in zip(shape, strides))
        whole = torch.ones(last + 1, dtype=dtype)
        pair = [each.as_strided(shape, strides) for each in (whole, whole.to(self.device))]
        return pair, (dtype, shape, strides)

    def check(self, name, operator, *operands):
        local, remote = zip(*[pair for pair, _ in operands])
        try:
            expected = operator(*local)
        except (RuntimeError, IndexError, TypeError, ValueError):
            return 0
        self.assertEqual(
            _facts(operator(*remote)), _facts(expected), (name, *[what for _, what in operands])
        )
        return 1

    def test_results_are_laid_out_as_on_the_cpu(self):
        checked = 0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for _ in range(500):
                shape = [self.random.choice((1, 1, 2, 3)) for _ in range(self.random.randint(1, 4))]
                first = self.operand(shape, self.random.choice(_TYPES))
                for name in self.random.sample(list(ONE), 20):
                    checked += self.check(name, ONE[name], first)
                # The shape often broadcasts.
                shape = [self.random.choice((size, size, 1)) for size in shape]
                shape = shape[self.random.choice((0, 0, len(shape) - 1)) :]
                dtype = self.random.choice((first[1][0], self.random.choice(_TYPES)))
                second = self.operand(shape, dtype)
                for name in self.random.sample(list(TWO), 15):
                    operands = self.random.sample((first, second), 2)
                    checked += self.check(name, TWO[name], *operands)
        self.assertGreater(checked, 10_000)
