"""Makes PyTorch's higher-order operators (torch.cond, while_loop) work on remote devices.

They have kernels for the dispatch keys that PyTorch knows, and raise an error for any other key,
such as the one with which Djinn captures. This key only needs to see the operators that they call,
so they pass it on.

Two of them repeat a random operator in the backward pass of a compiled checkpoint. They save and
set the states of the generators that PyTorch knows. Here they get kernels for those of remote
devices.
"""

import torch
from torch import _ops
from torch._prims import rng_prims
from torch._subclasses.fake_tensor import FakeTensorMode

from djinn import _device_module

# The key that capture_scope.cc uses.
_KEY = torch._C._dispatch_key_parse("TESTING_ONLY_GenericMode")


def teach():
    """Registers the fallthrough for all present and future higher-order operators."""
    _ops._HIGHER_ORDER_OP_DEFAULT_FALLTHROUGH_DISPATCH_KEYS.append(_KEY)
    for operator in _ops._higher_order_ops.values():
        operator.fallthrough(_KEY)
    _replace(rng_prims.run_and_save_rng_state, _saving)
    _replace(rng_prims.run_with_rng_state, _repeating)


def _replace(operator, made):
    """Gives the operator a kernel that serves remote devices, too."""
    for table, key in (
        (operator.py_kernels, torch._C.DispatchKey.BackendSelect),
        (operator.python_key_table, FakeTensorMode),
    ):
        table[key] = made(table[key], is_fake=key is FakeTensorMode)
    operator._dispatch_cache.clear()


def _device_of(args, kwargs):
    """Returns the remote device of an operator's call, or None."""
    devices = [torch.device(kwargs["device"])] if kwargs.get("device") else []
    devices += [arg.device for arg in args if isinstance(arg, torch.Tensor)]
    name = torch._C._get_privateuse1_backend_name()
    return next((device for device in devices if device.type == name), None)


def _saving(others, is_fake):
    def run_and_save(*all_args, **kwargs):
        mode, (op, *args) = (all_args[0], all_args[1:]) if is_fake else (None, all_args)
        device = _device_of(args, kwargs)
        if device is None:
            return others(*all_args, **kwargs)
        if not is_fake:
            return _device_module.get_rng_state(device), op(*args, **kwargs)
        size = _device_module.get_rng_state(device).shape
        with mode:
            return torch.empty(size, dtype=torch.uint8), op(*args, **kwargs)

    return run_and_save


def _repeating(others, is_fake):
    def run_with(*all_args, **kwargs):
        device = None if is_fake else _device_of(all_args[2:], kwargs)
        if device is None:
            return others(*all_args, **kwargs)
        state, op, *args = all_args
        current = _device_module.get_rng_state(device)
        _device_module.set_rng_state(state, device)
        try:
            return op(*args, **kwargs)
        finally:
            _device_module.set_rng_state(current, device)

    return run_with
