"""Autocast, also within operators that PyTorch computes by other operators."""

import concurrent.futures
import re

import torch
import torch.nn.functional as F
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_map

import djinn
from tests.python.remote_case import RemoteCase

# The first samples of each operator.
_SAMPLES = 2


class AutocastTest(RemoteCase):
    def cast(self):
        return torch.autocast(self.device.type, torch.bfloat16)

    def test_the_dtype_is_bfloat16_by_default(self):
        x = torch.ones(2, 2, device=self.device)

        def product():
            with torch.autocast(self.device.type):
                return torch.mm(x, x).dtype

        threads = concurrent.futures.ThreadPoolExecutor(1)
        self.addCleanup(threads.shutdown)
        for call in (product, torch.compile(product, backend="djinn")):
            self.assertEqual(call(), torch.bfloat16)
            self.assertEqual(threads.submit(call).result(), torch.bfloat16)
        with torch.autocast(self.device.type, torch.float16):
            self.assertEqual(product(), torch.float16)

    def test_parts_of_composites_are_cast(self):
        x = torch.ones(2, 2, device=self.device, dtype=torch.bfloat16)
        y = torch.ones(2, 2, device=self.device)
        q = torch.ones(2, 1, 4, 8, device=self.device)
        network = torch.nn.RNN(2, 3, nonlinearity="relu", device=self.device)
        for mode in (torch.enable_grad, torch.no_grad, torch.inference_mode):
            for call, dtype in (
                (lambda: torch.ldexp(x, x), torch.float32),
                (lambda: torch.ops.aten._safe_softmax(x, -1), torch.float32),
                (lambda: torch._foreach_log([x, x])[1], torch.float32),
                (lambda: torch.einsum("ij,jk->ik", y, y), torch.bfloat16),
                (lambda: network(y)[0], torch.bfloat16),
                (lambda: torch.vmap(F.scaled_dot_product_attention)(q, q, q), None),
                (lambda: torch.matmul(y, y), torch.bfloat16),
            ):
                with self.subTest(mode=mode.__name__, line=call.__code__.co_firstlineno):
                    # An equal call outside must leave no trace inside.
                    with mode():
                        call()
                        with self.cast():
                            result = call()
                        again = call()
                    self.assertIn(dtype, (None, result.dtype))
                    self.assertEqual(result.cpu().dtype, result.dtype)
                    again.cpu()

    def test_every_operator_has_the_type_that_was_inferred(self):
        """A worker that computes another type than the client inferred answers with an error."""
        for op in op_db:
            if torch.float32 not in op.dtypes:
                continue
            samples = op.sample_inputs("cpu", torch.float32)
            for _, sample in zip(range(_SAMPLES), samples):
                arguments = (sample.input, sample.args, sample.kwargs)
                for dtype in (torch.float32, torch.bfloat16):
                    value, args, kwargs = tree_map(
                        lambda t: self._place(t, dtype) if isinstance(t, torch.Tensor) else t,
                        arguments)
                    with self.cast():
                        try:
                            results = tree_flatten(op(value, *args, **kwargs))[0]
                        except (RuntimeError, TypeError, ValueError, AssertionError):
                            continue  # refused at the call
                    with self.subTest(operator=op.full_name, dtype=dtype):
                        for result in results:
                            if isinstance(result, torch.Tensor) and result.device.type == self.device.type:
                                try:
                                    self.assertEqual(result.cpu().dtype, result.dtype)
                                except djinn.Error as error:
                                    self._assert_refused_by_the_cpu(error, op, arguments, dtype)

    def _assert_refused_by_the_cpu(self, error, op, arguments, dtype):
        """The CPU's kernel lacks the type, with or without a device.

        The device casts by a GPU's lists. The CPU is therefore asked twice: casting by its own
        lists, and not casting.
        """
        value, args, kwargs = tree_map(
            lambda t: t.to(dtype if t.is_floating_point() else None) if isinstance(t, torch.Tensor) else t,
            arguments)
        refusals = []
        for casts in (True, False):
            try:
                with torch.autocast("cpu", torch.bfloat16, enabled=casts):
                    op(value, *args, **kwargs)
            except RuntimeError as refusal:
                refusals += re.findall(r"\"[\w.]+\" not implemented for '\w+'", str(refusal))
        self.assertTrue(
            any(refusal in str(error) for refusal in refusals), f"the CPU: {refusals}; the device: {error}")

    def _place(self, tensor, dtype):
        return tensor.to(self.device, dtype if tensor.is_floating_point() else None)
