"""Switches of the program's process: workers follow them, or a warning names them."""

import itertools
import unittest

import torch

from djinn import _switches
from tests.python.remote_case import run_program

# Each sets a switch, that workers do not follow, to another value than PyTorch's default.
_LOCAL = {
    "torch.backends.cuda.preferred_linalg_library":
        "torch.backends.cuda.preferred_linalg_library('cusolver')",
    "torch.backends.cuda.preferred_blas_library":
        "torch.backends.cuda.preferred_blas_library('cublaslt')",
    "torch.nn.attention.sdpa_kernel's order":
        "torch._C._set_sdp_priority_order(torch._C._get_sdp_priority_order()[::-1])",
}
# Sets a switch that workers follow, and the default again.
_FOLLOWED = {
    "torch.set_flush_denormal(True)": "torch.set_flush_denormal(False)",
    "torch.backends.mkldnn.enabled = False": "torch.backends.mkldnn.enabled = True",
    "torch.backends.mkldnn.set_flags(False)": "torch.backends.mkldnn.set_flags(True)",
    "torch.backends.mkldnn.deterministic = True": "torch.backends.mkldnn.deterministic = False",
    "torch.backends.nnpack.set_flags(False)": "torch.backends.nnpack.set_flags(True)",
    "torch.set_float32_matmul_precision('medium')":
        "torch.set_float32_matmul_precision('highest')",
    "torch.set_float32_matmul_precision('high')":
        "torch.set_float32_matmul_precision('highest')",
    "torch.backends.mkldnn.matmul.fp32_precision = 'bf16'":
        "torch.backends.mkldnn.matmul.fp32_precision = 'none'",
    "torch.backends.mkldnn.conv.fp32_precision = 'bf16'":
        "torch.backends.mkldnn.conv.fp32_precision = 'none'",
    "torch.backends.cudnn.deterministic = True": "torch.backends.cudnn.deterministic = False",
    "torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = False":
        "torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = True",
    # This one has its effect here: attention is split.
    "torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True)":
        "torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(False)",
}
# The setters of torch._C, without "_set_", that have their effect in this process: calls are captured
# otherwise, or refused.
_HERE = frozenset("""
    autograd_fallback_mode check_sparse_tensor_invariants conj default_dtype default_tensor_type
    deterministic_algorithms deterministic_fill_uninitialized_memory fwd_grad_enabled grad_enabled
    math_sdp_allow_fp16_bf16_reduction multithreading_enabled neg qengine sdp_use_cudnn sdp_use_flash
    sdp_use_math sdp_use_mem_efficient tensor_metadata torch_function_state tracing_state view_replay_enabled
    """.split())
# No result depends on these setters, or only results of devices that no worker has.
_HARMLESS = frozenset("""
    backcompat_broadcast_warn backcompat_keepdim_warn cached_tensors_enabled cudnn_benchmark
    default_mobile_cpu_allocator dispatch_mode dtensor_allow_implicit_replication graph_exec_group
    graph_executor_optimize meta_in_tls_dispatch_include miopen_immediate only_lift_cpu_tensors
    print_stack_traces_on_fatal_signal rocm_fa_preferred_backend sdp_use_fa3 sdp_use_overrideable
    should_use_format_with_string_table sm_carveout_experimental storage_access_error_msg
    storage_data_ptr_access_error_msg thread_name throw_on_mutable_data_ptr value_trace warnAlways
    warn_deprecated_on_mutable_data_ptr warn_on_accumulate_grad_stream_mismatch worker_pids
    worker_signal_handlers
    """.split())
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
# Prints the switches under which a result differs from the CPU's.
_CALLS = """
import warnings
import torch, djinn
import torch.nn.functional as F
warnings.simplefilter("ignore")
djinn.local(worker_threads=1)
torch.set_num_threads(1)
torch.manual_seed(0)
image, weight = torch.randn(2, 8, 24, 24), torch.randn(16, 8, 3, 3)
last = image.to(memory_format=torch.channels_last)
many = last.repeat(9, 1, 1, 1).contiguous(memory_format=torch.channels_last)
a, b = torch.randn(256, 384), torch.randn(384, 192)
calls = {{
    "mm": (torch.mm, (a, b)),
    "bfloat16": (torch.mm, (a.bfloat16(), b.bfloat16())),
    "conv": (F.conv2d, (image, weight)),
    "channels last": (F.conv2d, (last, weight)),
    "many images": (F.conv2d, (many, weight)),
    "gelu": (F.gelu, (a,)),
    "attention": (F.scaled_dot_product_attention, (
        torch.randn(2, 2, 5, 8).bfloat16(), torch.randn(2, 2, 7, 8).bfloat16(),
        torch.randn(2, 2, 7, 6).bfloat16())),
    "tiny": (lambda x: x * 0.1, (torch.full((100,), 2e-38),)),
}}
moved = {{name: [x.to("remote_accelerator") for x in operands]
         for name, (_, operands) in calls.items()}}
def product(x, y): return x @ y
compiled = djinn.compile(product)
def outcome(call, operands):
    with torch.no_grad():
        try: return call(*operands).cpu()
        except RuntimeError: return None
def same(x, y):
    if x is None or y is None: return x is y
    # Compares bits: a processor that flushes denormals takes them for zeros.
    x_bits, y_bits = (each.contiguous().view(torch.uint8) for each in (x, y))
    return torch.equal(x_bits, y_bits) and x.stride() == y.stride()
plain = {{name: outcome(call, operands) for name, (call, operands) in calls.items()}}
change = {changes!r}
for begin, end in change.items():
    for statement in (begin, end, begin, end):
        exec(statement)
        for name, (call, operands) in calls.items():
            local = outcome(call, operands)
            if statement == end and not same(local, plain[name]): print("CPU", statement, name)
            if not same(outcome(call, moved[name]), local): print(statement, name)
            # A captured call is not replayed under other switches.
            if "mm" in name and not same(outcome(compiled, moved["mm"]), outcome(product, (a, b))):
                print("compiled", statement)
"""


class SwitchesTest(unittest.TestCase):
    def test_every_setter_of_pytorch_is_known(self):
        """The lists may name setters that only another version of PyTorch has."""
        setters = {name[len("_set_"):] for name in dir(torch._C) if name.startswith("_set_")}
        followed = {*_switches._FOLLOWED, *_switches._LOCAL.values()}
        self.assertEqual(setters - followed - _HERE - _HARMLESS, set())
        for one, other in itertools.combinations((followed, _HERE, _HARMLESS), 2):
            self.assertEqual(one & other, set())

    def test_each_switch_is_warned_of_once_by_name(self):
        self.assertEqual(run_program(_PROGRAM.format(switches=_LOCAL)).stdout, "")

    def test_a_switch_set_before_the_session_causes_a_warning(self):
        program = run_program(
            "import torch, djinn\ntorch.backends.cuda.preferred_blas_library('cublaslt')\nprint('-')\n"
            "djinn.local(worker_threads=1)")
        self.assertIn("torch.backends.cuda.preferred_blas_library does not reach", program.stderr)

    def test_workers_follow_the_switches(self):
        self.assertEqual(run_program(_CALLS.format(changes=_FOLLOWED)).stdout, "")

    def test_a_call_runs_under_the_switches_of_its_time(self):
        """Calls that wait in one segment, and switches from before the session."""
        self.assertEqual(run_program("""
            import torch
            torch.set_flush_denormal(True)
            import djinn
            djinn.local(worker_threads=1)
            tiny = torch.full((4,), 2e-38).to("remote_accelerator")
            made = []
            for flushes in (None, False, True, False):
                if flushes is not None: torch.set_flush_denormal(flushes)
                made.append((flushes in (None, True), tiny * 0.1))
            for flushes, result in made:
                if result.cpu().eq(0).all() != flushes: print(flushes, result)
            """).stdout, "")

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

    def test_interpolation_for_deterministic_algorithms_has_the_same_bits(self):
        self.assertEqual(run_program("""
            import torch, djinn
            import torch.nn.functional as F
            djinn.local(worker_threads=1)
            torch.set_num_threads(1)
            torch.use_deterministic_algorithms(True, warn_only=True)
            torch.manual_seed(0)
            def both(x, **options):
                made = []
                for device in ("cpu", "remote_accelerator"):
                    y = x.to(device).detach().requires_grad_()
                    z = F.interpolate(y, **options)
                    z.square().sum().backward()
                    made.append([z.detach(), y.grad])
                return all(torch.equal(b.cpu(), a) for a, b in zip(*made))
            for mode, dimensions in (
                    ("linear", 1), ("bilinear", 2), ("bicubic", 2), ("trilinear", 3), ("area", 2),
                    ("nearest", 1), ("nearest", 2), ("nearest", 3), ("nearest-exact", 2)):
                x = torch.randn(1, 3, *(17, 19, 11)[:dimensions])
                choices = (None, False, True) if "linear" in mode or mode == "bicubic" else (None,)
                for align in choices:
                    for size in ({"scale_factor": 1.7}, {"size": (23, 5, 13)[:dimensions]}):
                        if not both(x, mode=mode, align_corners=align, **size):
                            print(mode, align, size)
            """).stdout, "")

    def test_nondeterministic_operators_are_refused_as_on_the_cpu(self):
        self.assertEqual(run_program("""
            import warnings
            import torch, djinn
            import torch.nn.functional as F
            djinn.local(worker_threads=1)
            def outcome(call, device):
                with warnings.catch_warnings(record=True) as said:
                    warnings.simplefilter("always")
                    try:
                        call(device).cpu()
                        result = "computed"
                    except RuntimeError as error:
                        result = str(error).split(chr(10))[0]
                return result, sorted({str(each.message).split(chr(10))[0] for each in said})
            def put(device, **options):
                at = torch.tensor([0, 1], device=device)
                return torch.zeros(4, device=device).put_(at, torch.ones(2, device=device), **options)
            def put_anew(device):
                at = torch.tensor([0, 1], device=device)
                return torch.zeros(4, device=device).put(at, torch.ones(2, device=device))
            def unpool(device, dimensions, size):
                x = torch.rand(1, 1, *[size] * dimensions).to(device)
                pool = getattr(F, f"max_pool{dimensions}d")(x, 2, return_indices=True)
                return getattr(F, f"max_unpool{dimensions}d")(*pool, 2)
            calls = [
                put, lambda d: put(d, accumulate=True), put_anew,
                *(lambda d, n=n: unpool(d, n, 4) for n in (1, 2, 3)), lambda d: unpool(d, 2, 100),
                lambda d: torch.zeros(4, device=d).index_add_(
                    0, torch.tensor([1, 1], device=d), torch.ones(2, device=d)),
            ]
            for arguments in ((False,), (True,), (True, True), (False,)):
                torch.use_deterministic_algorithms(arguments[0], warn_only=len(arguments) > 1)
                for k, call in enumerate(calls):
                    local, remote = (outcome(call, d) for d in ("cpu", "remote_accelerator"))
                    if local != remote: print(arguments, k, local, remote)
            """).stdout, "")

    def test_elements_that_are_chosen_twice_are_written_in_their_order(self):
        self.assertEqual(run_program("""
            import torch, djinn
            djinn.local(worker_threads=2)
            torch.set_num_threads(2)
            torch.manual_seed(0)
            at, values = torch.randint(0, 50, (200_000,)), torch.randn(200_000)
            torch.use_deterministic_algorithms(True)
            def write(device, name, accumulate):
                x, i, v = (each.to(device) for each in (torch.zeros(50), at, values))
                if name == "put_" and accumulate: return x.put_(i, v, accumulate=True)
                if name == "index": return (
                    x.requires_grad_()[i].mul(v).sum().backward(), x.grad)[1]
                return getattr(x, name)((i,), v, accumulate=accumulate)
            for name, accumulate in (
                    ("index_put_", True), ("index_put_", False), ("index_put", True),
                    ("put_", True), ("index", True)):
                local = write("cpu", name, accumulate)
                for _ in range(3):
                    if not torch.equal(write("remote_accelerator", name, accumulate).cpu(), local):
                        print(name, accumulate)
            """).stdout, "")

    def test_switches_with_default_values_cause_no_warning(self):
        program = run_program(
            "import torch, djinn\ntorch.backends.mkldnn.enabled = False\n"
            "torch.backends.mkldnn.enabled = True\ndjinn.local(worker_threads=1)\n"
            "torch.use_deterministic_algorithms(True)\ntorch.set_float32_matmul_precision('highest')")
        self.assertNotIn("djinn:", program.stderr)
