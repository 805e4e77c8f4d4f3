"""Makes safetensors accept the device's name.

Its reader knows a fixed list of device names. It passes a number on to PyTorch, where it
means a device of this backend.
"""

import functools

import torch


def _as_number(device):
    name = torch._C._get_privateuse1_backend_name()
    try:
        named = torch.device(device)
    except (RuntimeError, TypeError):
        return device
    if named.type != name:
        return device
    return torch.accelerator.current_device_index() if named.index is None else named.index


def teach():
    """Replaces safetensors.safe_open, if safetensors is installed."""
    try:
        import safetensors
        import safetensors.torch
    except ImportError:
        return
    original = safetensors.safe_open

    @functools.wraps(original, updated=())
    def safe_open(filename, framework, device="cpu", **options):
        return original(filename, framework, device=_as_number(device), **options)

    safetensors.safe_open = safe_open
    safetensors.torch.safe_open = safe_open
