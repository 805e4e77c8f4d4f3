"""Makes some optimizers and averages loop over parameters by default, as they do on the CPU.

PyTorch takes the list form (`foreach`) on every other device, which needs far fewer calls. Most
optimizers compute the same bits in both forms, unless a parameter has fewer than 32 bits, or
torch.compile traces the step: the forms then round at other places.
"""

import functools

import torch
from torch.optim import (
    adadelta,
    adagrad,
    adam,
    adamax,
    asgd,
    nadam,
    radam,
    rmsprop,
    rprop,
    sgd,
    swa_utils,
)

_NAME = torch._C._get_privateuse1_backend_name()
# Optimizers whose forms differ in every dtype. Adamax differs if its learning rate is a tensor.
_DIFFERENT = (adamax, asgd, nadam, radam)
_OTHERS = (adadelta, adagrad, adam, rmsprop, rprop, sgd)


def _choosing_loops(choose, is_different):
    @functools.wraps(choose)
    def choose_as_cpu(params, differentiable, use_fused=False):
        is_traced = torch.compiler.is_compiling()
        if any(
            p is not None
            and p.device.type == _NAME
            and (is_different or is_traced or _is_short(p.dtype))
            for p in params
        ):
            return False, False
        return choose(params, differentiable, use_fused)

    return choose_as_cpu


def _is_short(dtype):
    return torch.finfo(dtype).bits < 32


def choose_as_cpu():
    """Replaces the default of optimizers, which `foreach=True` overrides, and of averages."""
    for module in (*_DIFFERENT, *_OTHERS):
        module._default_to_fused_or_foreach = _choosing_loops(
            module._default_to_fused_or_foreach, module in _DIFFERENT
        )
    devices = swa_utils._get_foreach_kernels_supported_devices
    swa_utils._get_foreach_kernels_supported_devices = lambda: [d for d in devices() if d != _NAME]
