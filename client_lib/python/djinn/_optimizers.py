"""Makes some optimizers and averages loop over parameters by default, as they do on the CPU.

PyTorch takes the list form (`foreach`) on every other device, which needs far fewer calls. Most
optimizers compute the same bits in both forms. These do not.
"""

import functools

import torch
from torch.optim import adamax, asgd, nadam, radam, swa_utils

_NAME = torch._C._get_privateuse1_backend_name()
# Adamax differs if its learning rate is a tensor.
_MODULES = (adamax, asgd, nadam, radam)


def _choosing_loops(choose):
    @functools.wraps(choose)
    def choose_as_cpu(params, differentiable, use_fused=False):
        if any(p is not None and p.device.type == _NAME for p in params):
            return False, False
        return choose(params, differentiable, use_fused)

    return choose_as_cpu


def choose_as_cpu():
    """Replaces the default of these optimizers, which `foreach=True` overrides, and of averages."""
    for module in _MODULES:
        module._default_to_fused_or_foreach = _choosing_loops(module._default_to_fused_or_foreach)
    devices = swa_utils._get_foreach_kernels_supported_devices
    swa_utils._get_foreach_kernels_supported_devices = lambda: [d for d in devices() if d != _NAME]
