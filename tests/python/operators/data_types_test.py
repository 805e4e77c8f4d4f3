"""Every dtype that PyTorch has, on a remote device: the CPU's bytes, or the CPU's error."""

import torch

from tests.python.remote_case import RemoteCase

# One of each, without other names of the same dtype.
_TYPES = sorted(
    {value for value in vars(torch).values() if isinstance(value, torch.dtype)}, key=str)
_QUANTISED = [dtype for dtype in _TYPES if str(dtype).startswith(("torch.qint", "torch.quint"))]
_PLAIN = [dtype for dtype in _TYPES if dtype not in _QUANTISED]


def bytes_of(tensor):
    """The elements' bytes: torch.equal() has no kernel for many dtypes."""
    tensor = tensor.cpu().contiguous() if tensor.numel() > 1 else tensor.cpu()
    return bytes(tensor.reshape(-1).view(torch.uint8).tolist())


def sample(dtype):
    """A vector of the dtype with all kinds of bits, the same at each call."""
    raw = (torch.arange(64) * 37 % 251).to(torch.uint8)
    if dtype is torch.bool:
        return raw % 2 == 0
    return raw.view(dtype)


class DataTypesTest(RemoteCase):
    def outcome(self, call, *arguments):
        """Returns what the call gives, with everything that a program can see."""
        try:
            result = call(*arguments)
        except Exception as error:  # what is raised is compared
            return type(error).__name__, str(error)
        return str(result.dtype), tuple(result.shape), result.stride(), bytes_of(result)

    def assert_as_cpu(self, call, *arguments):
        expected = self.outcome(call, *arguments)
        remote = [argument.to(self.device) for argument in arguments]
        self.assertEqual(self.outcome(call, *remote), expected)

    def test_there_are_dtypes_of_all_kinds(self):
        self.assertGreaterEqual(len(_PLAIN), 41)
        self.assertIn(torch.float8_e4m3fn, _PLAIN)
        self.assertIn(torch.uint4, _PLAIN)
        self.assertIn(torch.float4_e2m1fn_x2, _PLAIN)

    def test_every_dtype_survives_a_round_trip(self):
        for dtype in _PLAIN:
            with self.subTest(dtype):
                values = sample(dtype)
                remote = values.to(self.device)
                self.assertEqual(remote.dtype, dtype)
                self.assertEqual(remote.element_size(), values.element_size())
                self.assertEqual(bytes_of(remote), bytes_of(values))

    def test_viewed_sliced_and_cloned(self):
        for dtype in _PLAIN:
            for call in (
                lambda x: x.clone(),
                lambda x: x.view(torch.uint8),
                lambda x: x[2:4],
                lambda x: x.reshape(2, -1).t().contiguous(),
                lambda x: torch.empty_like(x).copy_(x),
                lambda x: torch.zeros_like(x),
                lambda x: torch.cat([x, x]),
            ):
                with self.subTest(dtype, line=call.__code__.co_firstlineno):
                    self.assert_as_cpu(call, sample(dtype))

    def test_converted_from_and_to_each_other(self):
        for source in _PLAIN:
            values = sample(source)
            for target in _PLAIN:
                with self.subTest(source=source, target=target):
                    self.assert_as_cpu(lambda x: x.to(target), values)

    def test_converted_on_the_way(self):
        for target in _PLAIN:
            values = torch.arange(-3.0, 5.0)
            with self.subTest(target):
                expected = self.outcome(lambda: values.to(target))
                self.assertEqual(
                    self.outcome(lambda: values.to(self.device, target)), expected)

    def test_operators_treat_every_dtype_as_the_cpu_does(self):
        for dtype in _PLAIN:
            for call in (
                lambda x: x + x,
                lambda x: x * 2,
                lambda x: x.sum(),
                lambda x: x == x,
                lambda x: x < x,
                lambda x: x.reshape(1, -1) @ x.reshape(-1, 1),
                lambda x: torch.relu(x),
                lambda x: x.sort().values,
                lambda x: x & x,
                lambda x: x.abs(),
                lambda x: x.fill_(1),
                lambda x: torch.where(x == x, x, x),
                lambda x: x.index_select(0, torch.zeros(1, dtype=torch.int64, device=x.device)),
                lambda x: x + torch.ones(1, device=x.device),
            ):
                with self.subTest(dtype, line=call.__code__.co_firstlineno):
                    self.assert_as_cpu(call, sample(dtype))

    def test_scaled_products_of_float8(self):
        a = torch.linspace(-2, 2, 256).reshape(16, 16).to(torch.float8_e4m3fn)
        one = torch.ones(())

        def call(a, one):
            return torch._scaled_mm(a, a.t(), one, one, out_dtype=torch.float32)

        self.assert_as_cpu(call, a, one)

    def test_products_with_weights_of_four_bits(self):
        torch.manual_seed(0)
        weights = torch.randint(0, 256, (32, 32), dtype=torch.uint8)
        for dtype, block in (
                (torch.float32, 64), (torch.float32, 32), (torch.bfloat16, 64)):
            for bias in (None, torch.randn(32)):
                def call(x, weights, scales, bias, block=block):
                    packed = torch.ops.aten._dyn_quant_pack_4bit_weight(
                        weights, scales, bias, block, 64, 32)
                    return torch.ops.aten._dyn_quant_matmul_4bit(x, packed, block, 64, 32)

                x, scales = torch.randn(4, 64).to(dtype), torch.rand(32 * 64 // block)
                made = [
                    call(*[None if one is None else one.to(device)
                           for one in (x, weights, scales, bias)])
                    for device in ("cpu", self.device)]
                with self.subTest(dtype, block=block, bias=bias is not None):
                    self.assert_same(made[1], made[0])

    def test_quantised_ones_are_refused_by_name(self):
        for dtype in _QUANTISED:
            with self.subTest(dtype), self.assertRaisesRegex(
                    (NotImplementedError, RuntimeError), "no quantised tensors|uantized"):
                torch.empty(2, dtype=dtype, device=self.device)
