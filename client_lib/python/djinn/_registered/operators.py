"""Operators of torch.ops, and what a program has given them in Python."""

import torch
from torch._library.custom_ops import OPDEFS
from torch._library.simple_registry import singleton as _registry

from djinn._registered.outside import Unwatchable

OPERATORS = (torch._ops.OpOverloadPacket, torch._ops.OpOverload)
# Kernels in Python, each as "namespace/name.overload/key", without the functions themselves.
_kernels = torch.library._impls
# Calls whose results change when operators get kernels or definitions.
_WHAT_CHANGES_OPERATORS = ((len, _kernels), (len, OPDEFS))
# PyTorch's own namespaces, whose code is not watched.
_OF_TORCH = frozenset(("aten", "prim", "prims"))


def find_operators(module, names):
    """Has torch.ops, or a namespace there, have those of these names that there are."""
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
    """What a program has given it in Python, which is to be looked at, too.

    Raises Unwatchable where something of that cannot be.
    """
    for read in _WHAT_CHANGES_OPERATORS:
        watch.add_read(*read)
    packet = getattr(operator, "_overloadpacket", operator)
    name = packet._qualified_op_name
    namespace, _, short = name.partition("::")
    if namespace in _OF_TORCH:
        return []
    if name in OPDEFS:
        return [OPDEFS[name]]
    fakes = []
    for overload in packet.overloads():
        qualified = name if overload == "default" else f"{name}.{overload}"
        if qualified in _registry._data:
            fakes += _registry.find(qualified).fake_impl.kernels
    beginning = f"{namespace}/{short}"
    for kernel in _kernels:
        if not kernel.startswith(beginning) or kernel[len(beginning)] not in "/.":
            continue
        # Kernels that infer shapes may be in Python.
        if not fakes or not kernel.endswith("/Meta"):
            raise Unwatchable(f"it calls {name}, which has a kernel in Python")
    return [fake.func for fake in fakes]
