"""Makes PyTorch's higher-order operators (torch.cond, while_loop) work on remote devices.

They have kernels for the dispatch keys that PyTorch knows, and raise an error for any other key,
such as the one with which Djinn captures. This key only needs to see the operators that they call,
so they pass it on.

Two of them repeat a random operator in the backward pass of a compiled checkpoint. They save and
set the states of the generators that PyTorch knows. Here they get kernels for those of remote
devices.

flex_attention() is one of them, and refuses devices that it does not know.
"""

import functools

import torch
from torch import _ops
from torch._prims import rng_prims
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.amp import autocast_mode

from djinn import _device_module

_NAME = torch._C._get_privateuse1_backend_name()
_AUTOCAST = torch._C.DispatchKey.AutocastPrivateUse1
# The first one is the key that capture_scope.cc uses. PyTorch passes on those of autocast that it
# knows.
_KEYS = (torch._C._dispatch_key_parse("TESTING_ONLY_GenericMode"), _AUTOCAST)


def teach():
    """Registers the fallthroughs for all present and future higher-order operators."""
    _ops._HIGHER_ORDER_OP_DEFAULT_FALLTHROUGH_DISPATCH_KEYS.extend(_KEYS)
    for operator in _ops._higher_order_ops.values():
        for key in _KEYS:
            operator.fallthrough(key)
    torch._higher_order_ops.flex_attention.py_impl(_AUTOCAST)(_flex_attention_in_autocast)
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
    return next((device for device in devices if device.type == _NAME), None)


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


def _flex_attention_in_autocast(*args, **kwargs):
    """Converts query, key and value, as the operator does under autocast on other devices."""
    dtype = torch.get_autocast_dtype(_NAME)
    converted = [autocast_mode._cast(one, _NAME, dtype) for one in args[:3]]
    with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(_AUTOCAST)):
        return torch._higher_order_ops.flex_attention(*converted, *args[3:], **kwargs)


def teach_flex_attention(module):
    """Changes `torch.nn.attention.flex_attention`, which knows some devices by name."""
    original = module._validate_device

    @functools.wraps(original)
    def _validate_device(query, key, value):
        if query.device.type != _NAME:
            original(query, key, value)

    module._validate_device = _validate_device
    create = module.create_block_mask

    @functools.wraps(create)
    def create_block_mask(mask_mod, B, H, Q_LEN, KV_LEN, device=None, *args, **kwargs):
        # Transformers asks PyTorch to compile it with Inductor.
        if kwargs.get("_compile") and device is not None and torch.device(device).type == _NAME:
            kwargs["_compile"] = False
        return create(mask_mod, B, H, Q_LEN, KV_LEN, device, *args, **kwargs)

    module.create_block_mask = create_block_mask


def teach_transformers(module):
    """Changes `transformers.integrations.flex_attention`, which compiles it with Inductor."""
    original = module.compile_friendly_flex_attention

    @functools.wraps(original)
    def compile_friendly_flex_attention(query, key, value, training=False, **kwargs):
        if query.device.type != _NAME:
            return original(query, key, value, training, **kwargs)
        return module.flex_attention(query, key, value, **kwargs)

    module.compile_friendly_flex_attention = compile_friendly_flex_attention


TEACHERS = {
    "torch.nn.attention.flex_attention": teach_flex_attention,
    "transformers.integrations.flex_attention": teach_transformers,
}
