"""Creates tensors on a remote device by default."""

import contextlib
import contextvars
import functools
import threading

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._device import DeviceContext, _device_constructors

from djinn import _session

_NAME = torch._C._get_privateuse1_backend_name()

# The device of the innermost scope in the current thread or asyncio task.
_device = contextvars.ContextVar("djinn_capture_device", default=None)

# For each thread: the number of open scopes in its tasks, and the mode that they share.
_thread = threading.local()


class FactoriesGoRemote(TorchFunctionMode):
    """Gives factories that name no device the one of the innermost scope."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        device = _device.get()
        if device is not None and func in _device_constructors():
            if kwargs.get("device") is None:
                kwargs["device"] = _device_of_generator(kwargs) or device
        return func(*args, **kwargs)


def _device_of_generator(kwargs):
    """Returns the device of a factory's generator, which draws there only, or None.

    The DataLoader shuffles with a generator of the CPU, and so does random_split().
    """
    generator = kwargs.get("generator")
    return None if generator is None else generator.device


def follow_generators():
    """Lets generators decide where torch.set_default_device() gives factories a remote device."""
    original = DeviceContext.__torch_function__

    @functools.wraps(original)
    def __torch_function__(self, func, types, args=(), kwargs=None):
        if kwargs and self.device.type == _NAME and func in _device_constructors():
            if kwargs.get("device") is None:
                kwargs["device"] = _device_of_generator(kwargs)
        return original(self, func, types, args, kwargs)

    DeviceContext.__torch_function__ = __torch_function__


def current_device():
    """Returns the device of the innermost scope, or None."""
    return _device.get()


def _push_mode():
    _thread.scopes = getattr(_thread, "scopes", 0) + 1
    if _thread.scopes == 1:
        _thread.mode = FactoriesGoRemote()
        torch._C._push_on_torch_function_stack(_thread.mode)


def _pop_mode():
    """Removes the mode, which need not be the last: tasks of one thread leave in any order."""
    _thread.scopes -= 1
    if _thread.scopes:
        return
    above = []
    while (mode := torch._C._pop_torch_function_stack()) is not _thread.mode:
        above.append(mode)
    for mode in reversed(above):
        torch._C._push_on_torch_function_stack(mode)


@contextlib.contextmanager
def capture(index=0):
    """`with djinn.capture(): torch.randn(3)` creates a remote tensor.

    Within the block, factories that name no device create their tensor on virtual device
    `index`. The scope applies to the current thread or asyncio task, and scopes nest. Calls
    that name a device or a generator of one, and tensors that exist already, are unaffected.
    """
    _push_mode()
    outer = _device.set(_session.device(index))
    try:
        yield
    finally:
        _device.reset(outer)
        _pop_mode()
