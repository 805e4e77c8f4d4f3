"""Watches operators of torch.ops, to which a program may give kernels in Python."""

import torch
from torch._library.custom_ops import OPDEFS
from torch._library.simple_registry import singleton as _registry

from djinn._operators import is_of_pytorch, kernels_in_python, qualified_name_of
from djinn._registered.outside import Unwatchable

OPERATORS = (torch._ops.OpOverloadPacket, torch._ops.OpOverload)
# Functions, each with its argument, whose results change when operators get kernels.
_COUNTS_OF_KERNELS = ((len, torch.library._impls), (len, OPDEFS))


def find_operators(module, names):
    """Loads the operators and namespaces with these names, if `module` is torch.ops or in it."""
    if module is torch.ops:
        missing = names - module.__dict__.keys()
        for namespace in missing & _namespaces() if missing else ():
            getattr(module, namespace)
    elif isinstance(module, torch._ops._OpNamespace):
        for name in names - module.__dict__.keys():
            getattr(module, name, None)


def _namespaces():
    return {name.partition("::")[0] for name in torch._C._dispatch_get_all_op_names()}


def watch_operator(watch, operator):
    """Watches an operator, and returns the program's functions that it calls.

    Raises Unwatchable if it has a kernel in Python.
    """
    for read in _COUNTS_OF_KERNELS:
        watch.add_read(*read)
    name = qualified_name_of(operator)
    if is_of_pytorch(name):
        return []
    if name in OPDEFS:
        return [OPDEFS[name]]
    fakes = []
    for overload in getattr(operator, "_overloadpacket", operator).overloads():
        qualified = name if overload == "default" else f"{name}.{overload}"
        if qualified in _registry._data:
            fakes += _registry.find(qualified).fake_impl.kernels
    for kernel in kernels_in_python(name):
        # Kernels that infer shapes may be in Python.
        if not fakes or not kernel.endswith("/Meta"):
            raise Unwatchable(f"it calls {name}, which has a kernel in Python")
    return [fake.func for fake in fakes]
