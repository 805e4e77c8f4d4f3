"""PyTorch's warnings about calls, whose texts and numbers are those of the CPU."""

import re
import warnings

import torch

from tests.python.remote_case import RemoteCase


class WarningsTest(RemoteCase):
    def setUp(self):
        # Also those that PyTorch gives once in a process.
        self.addCleanup(torch.set_warn_always, torch.is_warn_always_enabled())
        torch.set_warn_always(True)

    def texts(self, call, place):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                call(place)
            except RuntimeError:
                pass  # Deprecated solvers refuse what stands in for their operands.
        return [re.sub(r" \(Triggered internally at .*\)$", "", str(warning.message)).strip()
                for warning in caught]

    def test_calls_that_the_cpu_warns_of(self):
        def mask(place, *sizes):
            return torch.ones(*sizes, dtype=torch.uint8, device=place)

        ones = torch.ones
        calls = {
            "std": lambda d: ones(1, device=d).std(),
            "std of nothing": lambda d: ones(0, device=d).std(),
            "std of a large tensor": lambda d: ones(1, 9000, device=d).std(0),
            "std with a correction": lambda d: torch.std(ones(4, device=d), 0, correction=4),
            "std into an output": lambda d: torch.std(
                ones(1, 3, device=d), 0, out=torch.empty(3, device=d)),
            "var": lambda d: ones(1, device=d).var(),
            "std_mean": lambda d: torch.std_mean(ones(1, device=d)),
            "var_mean": lambda d: torch.var_mean(ones(2, 1, device=d), 1),
            "std of complex numbers": lambda d: ones(1, dtype=torch.complex64, device=d).std(),
            "a mask of bytes": lambda d: ones(3, device=d)[mask(d, 3)],
            "a large mask of bytes": lambda d: ones(9000, device=d)[mask(d, 9000)],
            "a condition of bytes": lambda d: torch.where(
                mask(d, 3), ones(3, device=d), ones(3, device=d)),
            "a write to an expanded tensor": lambda d: ones(1, device=d).expand(3).index_put_(
                (torch.tensor([0], device=d),), torch.tensor(1.0, device=d)),
            "a search in columns": lambda d: torch.searchsorted(
                ones(3, 3, device=d).T, ones(3, 3, device=d).T),
            "an output of another size": lambda d: torch.add(
                ones(3, device=d), 1, out=torch.empty(2, device=d)),
            "index_reduce": lambda d: ones(3, device=d).index_reduce_(
                0, torch.tensor([0, 1], device=d), ones(2, device=d), "mean"),
            "cholesky": lambda d: torch.cholesky(torch.eye(2, device=d)),
            "a sound call": lambda d: ones(2, device=d).std(),
        }
        for name, call in calls.items():
            with self.subTest(call=name):
                expected = self.texts(call, "cpu")
                self.assertEqual(bool(expected), name != "a sound call")
                # A call that equals an earlier one warns as well.
                for _ in range(2):
                    self.assertEqual(self.texts(call, self.device), expected)
