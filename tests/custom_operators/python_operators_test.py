"""Operators of a C++ library, and of torch.library, called from Python."""

import pathlib
import unittest

import torch

import djinn

# The library is in the runfiles, or in the tree when the test runs by hand.
_LIBRARY = next(
    path
    for folder in ("", "bazel-bin/")
    if (path := pathlib.Path(f"{folder}tests/custom_operators/libexample_operators.so")).exists()
)

torch.ops.load_library(str(_LIBRARY.resolve()))


@torch.library.custom_op("written_here::parts", mutates_args=())
def parts(x: torch.Tensor, scale: float) -> torch.Tensor:
    """Serves every device: PyTorch runs it in this process, part by part."""
    return torch.sin(x) * scale


@parts.register_fake
def _(x, scale):
    return torch.empty_like(x)


def _save(ctx, inputs, output):
    ctx.save_for_backward(inputs[0])
    ctx.scale = inputs[1]


def _backward(ctx, gradient):
    (x,) = ctx.saved_tensors
    return gradient * torch.cos(x) * ctx.scale, None


parts.register_autograd(_backward, setup_context=_save)


@torch.library.custom_op("written_here::on_cpu", mutates_args=(), device_types="cpu")
def on_cpu(x: torch.Tensor) -> torch.Tensor:
    """Serves the CPU only: a worker would need a library with it."""
    return torch.from_numpy(x.numpy() * 2)


@on_cpu.register_fake
def _(x):
    return torch.empty_like(x)


@torch.library.custom_op("written_here::cast", mutates_args=())
def cast(x: torch.Tensor) -> torch.Tensor:
    """Has an autocast kernel for the CPU."""
    return x * 3


cast.register_autocast("cpu", torch.float16)
torch.library.define("written_here::cast_by_name", "(Tensor x, Tensor[] more) -> Tensor")
torch.library.impl("written_here::cast_by_name", "default", lambda x, more: x * more[0])
for _type, _dtype in (("cuda", torch.bfloat16), ("cpu", torch.float16)):
    torch.library.register_autocast("written_here::cast_by_name", _type, _dtype)


@torch.library.register_fake("example::asks")
def _(x):
    return x.new_empty(torch.library.get_ctx().new_dynamic_size())


@torch.library.register_fake("example::reads")
def _(x):
    return x.new_empty(int((x > 0).sum()))


@torch.library.register_fake("example::raises")
def _(x):
    raise ValueError("this fake takes no tensors")


@torch.library.register_fake("example::ends")
def _(x):
    raise KeyboardInterrupt


class CustomOperatorsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.enterClassContext(
            djinn.local(worker_threads=1, operator_libraries=[_LIBRARY])
        )
        cls.device = djinn.device()

    def assert_same(self, program):
        local, remote = program("cpu"), program(self.device)
        for here, there in zip(local, remote, strict=True):
            self.assertEqual(there.device.type, self.device.type)
            self.assertEqual(there.stride(), here.stride())
            torch.testing.assert_close(there.cpu(), here, rtol=0, atol=0)

    def test_a_library_forward_and_backward(self):
        def program(device):
            torch.manual_seed(0)
            x = torch.randn(4, 5).to(device).requires_grad_()
            y = torch.ops.example.bend(x, 0.25)
            y.square().sum().backward()
            return y.detach(), x.grad, torch.ops.example.positives(x.detach())

        self.assert_same(program)

    def test_a_library_under_autocast(self):
        def program(device):
            torch.manual_seed(0)
            found = []
            for dtype in (torch.bfloat16, torch.float16, torch.float32):
                x = torch.randn(4, 5).to(device, dtype).requires_grad_()
                with torch.autocast(torch.device(device).type, torch.bfloat16):
                    y = torch.ops.example.bend(x, 0.25)
                y.sum().backward()
                found += [y.detach(), x.grad]
            return found

        self.assert_same(program)

    def test_operators_written_in_python_under_autocast(self):
        def program(device):
            torch.manual_seed(0)
            x = torch.randn(4, 5).to(device)
            with torch.autocast(torch.device(device).type, torch.bfloat16):
                found = [cast(x), torch.ops.written_here.cast_by_name(x, [x]), cast(x.double())]
            self.assertEqual([y.dtype for y in found], [torch.float16, torch.float16, torch.float64])
            return found

        self.assert_same(program)

    def test_fakes_that_cannot_tell_the_shape(self):
        library = torch.ops.example
        for operator in (library.asks, library.reads, library.raises):
            with self.subTest(operator=operator):
                x = torch.linspace(-1, 1, 6)
                for _ in range(2):
                    result = operator(x.to(self.device))
                    self.assertEqual(result.tolist(), operator(x).tolist())
                self.assertGreaterEqual(djinn.synchronous_calls()[operator._qualified_op_name], 2)
        with self.assertRaises(KeyboardInterrupt):
            library.ends(torch.ones(2, device=self.device))

    def test_a_fake_that_cannot_tell_of_an_operator_that_the_worker_lacks(self):
        torch.library.define("written_here::unknown", "(Tensor x) -> Tensor")
        torch.library.register_fake(
            "written_here::unknown", lambda x: x.new_empty(torch.library.get_ctx().new_dynamic_size()))
        with self.assertRaises(djinn.Error) as raised:
            torch.ops.written_here.unknown(torch.ones(2, device=self.device))
        self.assertEqual(raised.exception.reason, "OPERATOR_UNKNOWN")

    def test_an_operator_that_is_defined_again_with_other_arguments(self):
        x = torch.ones(2, device=self.device)
        for schema, arguments in (("(Tensor x) -> Tensor", (x,)), ("(int n, Tensor x) -> Tensor", (2, x))):
            library = torch.library.Library("again", "DEF")
            library.define("f" + schema)
            with self.subTest(schema), self.assertRaises(djinn.Error) as raised:
                torch.ops.again.f(*arguments)
            self.assertEqual(raised.exception.reason, "OPERATOR_UNKNOWN")
            library._destroy()

    def test_an_operator_that_is_defined_again_and_writes_under_autocast(self):
        first = torch.library.Library("again", "DEF")
        first.define("g(Tensor x) -> Tensor")
        first.impl("g", lambda x: x, "AutocastCPU")
        # The device gets an autocast kernel, too.
        x = torch.ones(2, dtype=torch.bfloat16, device=self.device)
        first._destroy()

        def write(x):
            x.add_(1)

        second = torch.library.Library("again", "DEF")
        second.define("g(Tensor(a!) x) -> ()")
        second.impl("g", write, "PrivateUse1")
        with torch.autocast(self.device.type, torch.bfloat16):
            torch.ops.again.g(x)
        self.assertEqual(x.tolist(), [2, 2])
        second._destroy()

    def test_mistakes_raise_at_the_call(self):
        with self.assertRaisesRegex(RuntimeError, "bend takes float32, not Double"):
            torch.ops.example.bend(torch.ones(2, device=self.device).double(), 1.0)

    def test_an_operator_written_in_python_for_every_device(self):
        def program(device):
            torch.manual_seed(0)
            x = torch.randn(4, 5).to(device).requires_grad_()
            y = parts(x, 0.5)
            y.sum().backward()
            return y.detach(), x.grad

        self.assert_same(program)

    def test_an_operator_written_in_python_for_the_cpu_is_refused(self):
        x = torch.ones(3, device=self.device)
        for _ in range(2):
            with self.assertRaises(djinn.Error) as raised:
                on_cpu(x)
            self.assertEqual(raised.exception.reason, "OPERATOR_UNKNOWN")
            self.assertIn("written_here::on_cpu", str(raised.exception))
            self.assertIn(_LIBRARY.name, str(raised.exception))
        self.assertEqual((x + 1).tolist(), [2, 2, 2])

    def test_the_first_call_raises_no_other_values_failure(self):
        x = torch.ones(3, device=self.device)
        dropped = x.take(torch.tensor([9], device=self.device))
        del dropped
        with self.assertRaises(djinn.Error) as raised:
            on_cpu(x)
        self.assertEqual(raised.exception.reason, "OPERATOR_UNKNOWN")
        with self.assertRaisesRegex(djinn.Error, "aten::take"):
            djinn.synchronize()

    def test_a_schema_from_python_and_kernels_from_the_workers_library(self):
        # A program without the library prints its calls and their results.
        program = djinn_program()
        self.assertEqual(program.stdout, "tensor([[0.5000, 0.5000]])\n(1, 2)\n", program.stderr)


def djinn_program():
    """In another process, which does not load the library."""
    import os  # pylint: disable=import-outside-toplevel
    import subprocess
    import sys

    source = """
import sys, torch, djinn
library = torch.library.Library("example", "DEF")
library.define("bend(Tensor x, float scale) -> Tensor")
@torch.library.register_fake("example::bend")
def _(x, scale):
    print(tuple(x.shape), file=sys.stderr)
    return x.new_empty(x.shape)
with djinn.local(worker_threads=1, operator_libraries=[sys.argv[1]]):
    y = torch.ops.example.bend(torch.ones(1, 2, device=djinn.device()), 1.0)
    print(y.cpu())
    print(tuple(torch.ops.example.bend(y, 1.0).shape))
"""
    return subprocess.run(
        [sys.executable, "-c", source, str(_LIBRARY.resolve())],
        capture_output=True,
        text=True,
        env=os.environ,
        timeout=120,
    )
