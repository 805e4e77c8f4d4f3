"""Sends PyTorch's global settings of numerics to the workers, and warns if they do not follow one.

Most of these switches travel with each run (djinn/execution_mode.h). Others have their effect in
this process: deterministic algorithms, the choices of attention, the default dtype and autocast.
"""

import functools
import warnings

import torch

from djinn import _djinn
from djinn._device_module import is_available

_NAME = torch._C._get_privateuse1_backend_name()
# The switches that workers do not follow: the function of torch._C for each that programs set.
_LOCAL = {
    "torch.backends.mkldnn.allow_tf32": "onednn_allow_tf32",
    "torch.backends.cuda.preferred_linalg_library": "linalg_preferred_backend",
    "torch.backends.cuda.preferred_blas_library": "blas_preferred_backend",
    "torch.nn.attention.sdpa_kernel's order": "sdp_priority_order",
}
# The switches that workers follow.
_FOLLOWED = [
    "float32_matmul_precision", "fp32_precision_setter", "mkldnn_enabled", "mkldnn_deterministic",
    "nnpack_enabled", "cpu_allow_fp16_reduced_precision_reduction", "cudnn_enabled",
    "cudnn_deterministic", "cudnn_allow_tf32", "cublas_allow_tf32",
    "cublas_allow_fp16_reduced_precision_reduction",
    "cublas_allow_bf16_reduced_precision_reduction", "cublas_allow_fp16_accumulation",
]
_said = set()


def _read(name):
    getter = getattr(torch._C, f"_get_{_LOCAL[name]}", None)
    try:
        return None if getter is None else getter()
    except RuntimeError:
        return None  # This PyTorch lacks the switch's backend.


def check():
    """Applies the switches to later calls. If a session is wanted, warns of those not followed."""
    _djinn.update_switches(_flushes)
    if not is_available():
        return
    for name, value in _defaults.items():
        if _read(name) != value and name not in _said:
            _said.add(name)
            warnings.warn(
                f"djinn: {name} does not reach the workers, which compute as PyTorch does by "
                "default", stacklevel=3)


def _checking(function):
    @functools.wraps(function)
    def setter(*args, **kwargs):
        result = function(*args, **kwargs)
        check()
        return result

    return setter


def _flush_denormal(function):
    @functools.wraps(function)
    def set_flush_denormal(mode):
        global _flushes
        result = function(mode)
        _flushes = bool(mode) and result
        check()
        return result

    return set_flush_denormal


def teach_interpolation(module):
    """Interpolates for deterministic algorithms as otherwise, as on the CPU.

    On devices other than the CPU, PyTorch takes this decomposition then, whose sums round otherwise.
    """
    original = module._upsample_linear_vec

    @functools.wraps(original)
    def _upsample_linear_vec(input, output_size, align_corners, scale_factors):
        if input.device.type != _NAME:
            return original(input, output_size, align_corners, scale_factors)
        name = {3: "linear1d", 4: "bilinear2d", 5: "trilinear3d"}[input.dim()]
        upsample = getattr(torch._C._nn, f"upsample_{name}")
        return upsample(input, output_size, align_corners, scale_factors)

    module._upsample_linear_vec = _upsample_linear_vec


def watch():
    """Follows the switches from now on."""
    global _defaults, _flushes
    _defaults = {name: _read(name) for name in _LOCAL}
    _flushes = torch.tensor(1e-310, dtype=torch.float64).mul(1).item() == 0
    for name in (*_LOCAL.values(), *_FOLLOWED):
        setter = f"_set_{name}"
        if hasattr(torch._C, setter):
            setattr(torch._C, setter, _checking(getattr(torch._C, setter)))
    # The switches of modules of torch.backends hold their setters themselves.
    properties = torch.backends.ContextProp
    properties.__set__ = _checking(properties.__set__)
    torch.set_flush_denormal = _flush_denormal(torch.set_flush_denormal)
    _djinn.update_switches(_flushes)
