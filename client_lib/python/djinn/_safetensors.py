"""safetensors' device=: its reader knows devices by a fixed list of names.

A plain number it hands to PyTorch, where it means this backend's device.
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
    """Makes safetensors.safe_open take the device by its name; nothing without it."""
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
