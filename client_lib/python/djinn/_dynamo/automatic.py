"""Registers modules whose calls repeat."""

import collections
import itertools
import os
import threading
import weakref

import torch

from djinn._dynamo.nodes import is_remote
from djinn._dynamo.traced import TracedCalls

# The number of calls after which a module is registered.
_CALLS_BEFORE = 2
# The containers in which tensors are looked for, among the first elements of each.
_MAPPINGS = (dict, collections.UserDict)
_CONTAINERS = (list, tuple, *_MAPPINGS)
_MAX_ELEMENTS, _MAX_DEPTH = 16, 2

_call_unregistered = torch.nn.Module.__call__
_thread = threading.local()


class _Repeating:
    """The state of a module that was called on a device."""

    def __init__(self, module):
        self.module = weakref.ref(module)
        self.number = 0
        self.calls = None

    def __call__(self, module, args, kwargs):
        self.number += 1
        if self.number <= _CALLS_BEFORE:
            return _call_unregistered(module, *args, **kwargs)
        if self.calls is None:
            self.calls = TracedCalls(type(module).__name__)
        return self.calls.call(_call_unregistered, (module, *args), kwargs)


# The live modules by id, because modules may be equal or not hashable.
_modules = {}


def _repeating_of(module):
    repeating = _modules.get(id(module))
    if repeating is None:
        repeating = _modules[id(module)] = _Repeating(module)
        weakref.finalize(module, _modules.pop, id(module), None).atexit = False
    return repeating


def _call(self, *args, **kwargs):
    # A module that another module calls is part of that call.
    if (
        torch.compiler.is_compiling()
        or torch.is_grad_enabled()
        or getattr(_thread, "inside", False)
        or not _has_remote(args, kwargs)
    ):
        return _call_unregistered(self, *args, **kwargs)
    repeating = _repeating_of(self)
    _thread.inside = True
    try:
        return repeating(self, args, kwargs)
    finally:
        _thread.inside = False


def _has_remote(args, kwargs):
    """Returns whether the first tensor among the arguments, and in containers, is remote."""
    for thing in (*args, *kwargs.values()):
        if isinstance(thing, torch.Tensor):
            return is_remote(thing)
        if isinstance(thing, _CONTAINERS) and (found := _first_tensor(thing)) is not None:
            return is_remote(found)
    return False


def _first_tensor(container, depth=0):
    """Returns the first tensor in a container that is nested little, or None."""
    if isinstance(container, _MAPPINGS):
        container = container.values()
    for thing in itertools.islice(container, _MAX_ELEMENTS):
        if isinstance(thing, torch.Tensor):
            return thing
        if isinstance(thing, _CONTAINERS) and depth < _MAX_DEPTH:
            if (found := _first_tensor(thing, depth + 1)) is not None:
                return found
    return None


def set_automatic_registration(on):
    """Sets whether modules whose calls repeat are registered automatically.

    The registration is that of djinn.compile(). It applies to the outermost module that is
    called with a tensor on the device, or a container of such, while gradients are off, from its
    third call on. DJINN_AUTOMATIC_REGISTRATION=1 enables it initially.
    """
    torch.nn.Module.__call__ = _call if on else _call_unregistered


def begin():
    """Applies DJINN_AUTOMATIC_REGISTRATION."""
    value = os.environ.get("DJINN_AUTOMATIC_REGISTRATION", "0")
    if value not in ("0", "1"):
        raise ImportError(f"DJINN_AUTOMATIC_REGISTRATION is {value!r}: it must be 0 or 1")
    set_automatic_registration(value == "1")


def registered_modules():
    """Returns (module, statistics) for each module that was tried; see djinn.compile()."""
    return [
        (module, repeating.calls.statistics())
        for repeating in list(_modules.values())
        if repeating.calls is not None and (module := repeating.module()) is not None
    ]
