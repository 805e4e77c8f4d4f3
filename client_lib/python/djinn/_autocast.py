"""Makes torch.autocast on the device do what it does on the CPU.

Its dtype is bfloat16 if the program names none, and autocast kernels that the program writes in
Python for the CPU or CUDA serve the device as well.
"""

import functools
import threading

import torch
from torch._library import custom_ops

_NAME = torch._C._get_privateuse1_backend_name()
_KEY = torch._C.DispatchKey.AutocastPrivateUse1
_libraries = []
_dtypes = {}
_set_autocast_dtype = torch.set_autocast_dtype


class _Thread(threading.local):
    """Sets the device's dtype to bfloat16 once per thread. PyTorch begins each with float16."""

    begun = True

    def __init__(self):
        if torch.get_autocast_dtype(_NAME) == torch.float16:
            _set_autocast_dtype(_NAME, torch.bfloat16)


_thread = _Thread()


def begin_in_this_thread():
    """Sets this thread's dtype to bfloat16 on first use, because guards compare it."""
    return _thread.begun


def _in_bfloat16(original):
    """Wraps torch.autocast.__init__, which takes the thread's dtype."""

    @functools.wraps(original)
    def __init__(self, device_type, dtype=None, *args, **kwargs):
        if device_type == _NAME:
            begin_in_this_thread()
        original(self, device_type, dtype, *args, **kwargs)

    return __init__


def _noting_the_choice(original):
    """For torch.set_autocast_dtype: what the program sets stays."""

    @functools.wraps(original)
    def set_autocast_dtype(device_type, dtype):
        if device_type == _NAME:
            begin_in_this_thread()
        original(device_type, dtype)

    return set_autocast_dtype


def _register(lib, name, operator, device_type, dtype):
    """Makes the device cast the operator's operands as another device does. The CPU's dtype wins."""
    full_name = str(operator)
    is_new = full_name not in _dtypes
    if is_new or device_type == "cpu":
        _dtypes[full_name] = dtype

    def kernel(_, *args):
        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(_KEY)):
            return operator(*custom_ops._cast(args, _NAME, _dtypes[full_name]))

    if is_new:
        lib.impl(name, kernel, _KEY.name, with_keyset=True)


def _also_for_the_device(original):
    """For CustomOpDef.register_autocast."""

    @functools.wraps(original)
    def register_autocast(self, device_type, cast_inputs):
        kernel = original(self, device_type, cast_inputs)
        _register(self._lib, self._name, self._opoverload, device_type, cast_inputs)
        return kernel

    return register_autocast


def _also_for_the_device_by_name(original):
    """For torch.library.register_autocast, which passes a CustomOpDef to the former."""

    @functools.wraps(original)
    def register_autocast(op, device_type, cast_inputs, /, *, lib=None):
        original(op, device_type, cast_inputs, lib=lib)
        if custom_ops._maybe_get_opdef(op) is not None:
            return
        operator = op if isinstance(op, torch._ops.OpOverload) else torch._library.utils.lookup_op(op)
        namespace, name = torch._library.utils.parse_namespace(operator._name)
        if lib is None:
            lib = torch.library.Library(namespace, "FRAGMENT")
            _libraries.append(lib)
        _register(lib, name, operator, device_type, cast_inputs)

    return register_autocast


def teach():
    begin_in_this_thread()
    torch.set_autocast_dtype = _noting_the_choice(torch.set_autocast_dtype)
    torch.autocast.__init__ = _in_bfloat16(torch.autocast.__init__)
    definition = custom_ops.CustomOpDef
    definition.register_autocast = _also_for_the_device(definition.register_autocast)
    torch.library.register_autocast = _also_for_the_device_by_name(torch.library.register_autocast)
