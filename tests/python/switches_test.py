"""Switches of the program's process: honoured, or warned of by name."""

import unittest

from tests.python.remote_case import run_program

# Each sets a switch to another value than PyTorch's default.
_SWITCHES = {
    "torch.use_deterministic_algorithms": "torch.use_deterministic_algorithms(True)",
    "torch.set_float32_matmul_precision": "torch.set_float32_matmul_precision('medium')",
    "torch.backends.mkldnn.enabled": "torch.backends.mkldnn.enabled = False",
    "torch.backends.mkldnn.deterministic": "torch.backends.mkldnn.deterministic = True",
    "torch.backends.nnpack": "torch.backends.nnpack.set_flags(False)",
    "torch.backends.cudnn.enabled": "torch.backends.cudnn.enabled = False",
    "torch.backends.cudnn.deterministic": "torch.backends.cudnn.deterministic = True",
    "torch.backends.cuda.matmul.allow_tf32": "torch.backends.cuda.matmul.allow_tf32 = True",
    "torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction":
        "torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False",
    "torch.set_flush_denormal": "torch.set_flush_denormal(True)",
}
_PROGRAM = """
import warnings
import torch, djinn
djinn.local(worker_threads=1)
warnings.simplefilter("always")
switches = {switches!r}
with warnings.catch_warnings(record=True) as said:
    for statement in switches.values():
        exec(statement)
        exec(statement)
for name in switches:
    named = [each for each in said if f"djinn: {{name}} does not reach" in str(each.message)]
    if len(named) != 1: print(name, [str(each.message) for each in said])
"""


class SwitchesTest(unittest.TestCase):
    def test_each_switch_is_warned_of_once_by_name(self):
        self.assertEqual(run_program(_PROGRAM.format(switches=_SWITCHES)).stdout, "")

    def test_a_switch_from_before_the_session_is_warned_of(self):
        program = run_program(
            "import torch, djinn\ntorch.use_deterministic_algorithms(True)\nprint('-')\n"
            "djinn.local(worker_threads=1)")
        self.assertIn("torch.use_deterministic_algorithms does not reach", program.stderr)

    def test_new_memory_is_filled_for_deterministic_algorithms(self):
        self.assertEqual(run_program("""
            import warnings
            import torch, djinn
            warnings.simplefilter("ignore")
            djinn.local(worker_threads=1)
            torch.use_deterministic_algorithms(True)
            def made(device, dtype):
                x = torch.zeros(2, 3, device=device, dtype=dtype)
                return [
                    torch.empty(2, 3, device=device, dtype=dtype),
                    torch.empty_strided((2, 3), (1, 2), device=device, dtype=dtype),
                    torch.empty_like(x), x.new_empty(4), x.new_empty_strided((2,), (2,)),
                    torch.empty_permuted((2, 3), (1, 0), device=device, dtype=dtype),
                    torch.zeros(2, device=device, dtype=dtype).resize_(5),
                    torch.empty(0, device=device, dtype=dtype),
                ]
            def check(fills):
                torch.utils.deterministic.fill_uninitialized_memory = fills
                for dtype in (torch.float32, torch.bfloat16, torch.complex64, torch.int32,
                              torch.bool):
                    for k, (local, remote) in enumerate(zip(
                            made("cpu", dtype), made("remote_accelerator", dtype))):
                        if not fills: local = torch.zeros_like(local)
                        if not torch.allclose(remote.cpu(), local, equal_nan=True):
                            print(fills, dtype, k, local, remote)
            check(True)
            check(False)
            """).stdout, "")

    def test_nothing_is_said_without_a_session_or_for_defaults(self):
        program = run_program(
            "import torch, djinn\ntorch.use_deterministic_algorithms(True)\n"
            "torch.use_deterministic_algorithms(False)\ndjinn.local(worker_threads=1)\n"
            "torch.backends.mkldnn.enabled = True\ntorch.set_float32_matmul_precision('highest')")
        self.assertNotIn("djinn:", program.stderr)


if __name__ == "__main__":
    unittest.main()
