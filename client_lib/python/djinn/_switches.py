"""Warns of switches of this process that would change results and do not reach the workers.

They are PyTorch's global settings of numerics. A worker computes as PyTorch does by default.
The list leaves out what djinn itself honours: deterministic algorithms, the choices of attention, the
default dtype and autocast.
"""

import functools
import warnings

import torch

# The functions of torch._C by what programs call: those that set and those that get.
_SWITCHES = {
    "torch.set_float32_matmul_precision": "float32_matmul_precision",
    "torch.backends.mkldnn.enabled": "mkldnn_enabled",
    "torch.backends.mkldnn.deterministic": "mkldnn_deterministic",
    "torch.backends.mkldnn.allow_tf32": "onednn_allow_tf32",
    "torch.backends.nnpack": "nnpack_enabled",
    "torch.backends.cpu.allow_fp16_reduced_precision_reduction":
        "cpu_allow_fp16_reduced_precision_reduction",
    "torch.backends.cudnn.enabled": "cudnn_enabled",
    "torch.backends.cudnn.deterministic": "cudnn_deterministic",
    "torch.backends.cudnn.allow_tf32": "cudnn_allow_tf32",
    "torch.backends.cuda.matmul.allow_tf32": "cublas_allow_tf32",
    "torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction":
        "cublas_allow_fp16_reduced_precision_reduction",
    "torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction":
        "cublas_allow_bf16_reduced_precision_reduction",
    "torch.backends.cuda.matmul.allow_fp16_accumulation": "cublas_allow_fp16_accumulation",
    "torch.backends.cuda.preferred_linalg_library": "linalg_preferred_backend",
    "torch.backends.cuda.preferred_blas_library": "blas_preferred_backend",
}
# The precisions of single backends and operators, which torch.backends.*.fp32_precision sets.
_PRECISIONS = [
    (backend, operator)
    for backend in ("generic", "cuda", "mkldnn")
    for operator in ("all", "matmul", "conv", "rnn")
]
_said = set()


def _read(name):
    getter = getattr(torch._C, f"_get_{_SWITCHES[name]}", None)
    try:
        return None if getter is None else getter()
    except RuntimeError:
        return None  # of a backend that this PyTorch lacks


def _rounds_products():
    """Returns whether any float32 product or convolution may round more than "ieee" does."""
    for backend, operator in _PRECISIONS:
        try:
            if torch._C._get_fp32_precision_getter(backend, operator) not in ("none", "ieee"):
                return True
        except (AttributeError, RuntimeError):
            continue
    return False


def _warn(name):
    if name in _said:
        return
    _said.add(name)
    warnings.warn(
        f"djinn: {name} does not reach the workers, which compute as PyTorch does by default",
        stacklevel=4)


def check():
    """Warns of each switch that differs from its default, once, if a session is wanted."""
    if not _is_wanted():
        return
    changed = [name for name, value in _defaults.items() if _read(name) != value]
    for name in changed:
        _warn(name)
    # A precision of all backends sets others along with it.
    if not changed and _rounds_products() and not _rounded_products:
        _warn("torch.backends.fp32_precision")
    if _flushes:
        _warn("torch.set_flush_denormal")


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


def watch(is_wanted):
    """Checks the switches whenever one is set. `is_wanted` says whether a session is wanted."""
    global _is_wanted, _defaults, _rounded_products, _flushes
    _is_wanted = is_wanted
    _defaults = {name: _read(name) for name in _SWITCHES}
    _rounded_products = _rounds_products()
    _flushes = False
    for name in (*_SWITCHES.values(), "fp32_precision_setter"):
        setter = f"_set_{name}"
        if hasattr(torch._C, setter):
            setattr(torch._C, setter, _checking(getattr(torch._C, setter)))
    # The switches of modules of torch.backends hold their setters themselves.
    properties = torch.backends.ContextProp
    properties.__set__ = _checking(properties.__set__)
    torch.set_flush_denormal = _flush_denormal(torch.set_flush_denormal)
