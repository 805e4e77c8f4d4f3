"""Keeps programs that use the CPU alone unchanged where PyTorch looks for accelerators.

PyTorch assumes that parallel programs use any accelerator that it finds. This one has no
collectives, and a module is on it only if the program put it there.
"""

import functools

import torch

from djinn import _device_module

_NAME = _device_module._NAME


def leave_alone():
    """Replaces the constructors that look for an accelerator."""
    torch.nn.DataParallel.__init__ = _knowing_its_module(torch.nn.DataParallel.__init__)
    if torch.distributed.is_available():
        config = torch.distributed.distributed_c10d.BackendConfig
        config.__init__ = _without_accelerator(config.__init__)


def _knowing_its_module(original):
    @functools.wraps(original)
    def __init__(self, module, device_ids=None, output_device=None, dim=0):
        if torch._utils._get_available_device_type() == _NAME:
            places = {tensor.device.type for tensor in (*module.parameters(), *module.buffers())}
            if device_ids is None and _NAME not in places:
                # This is what PyTorch does without an accelerator.
                torch.nn.Module.__init__(self)
                self.module = module
                self.device_ids = []
                return
            if device_ids is None or len(device_ids) > 1:
                raise RuntimeError(
                    f"DataParallel broadcasts a module with CUDA, which {_NAME} does not support: "
                    "pass one device, device_ids=[0], or call the module itself"
                )
        original(self, module, device_ids, output_device, dim)

    return __init__


def _without_accelerator(original):
    @functools.wraps(original)
    def __init__(self, backend):
        backends = torch.distributed.Backend
        known = backends.default_device_backend_map
        if str(backend) == backends.UNDEFINED and _NAME not in known:
            device = torch._C._get_accelerator().type
            if device == _NAME:
                device = "cuda" if torch.cuda.is_available() else "cpu"
                backend = f"{device}:{known[device]}"
        original(self, backend)

    return __init__
