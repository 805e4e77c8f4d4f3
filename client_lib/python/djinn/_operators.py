"""Finds the kernels in Python that a program gave an operator."""

import torch

# The namespaces of PyTorch's own operators.
_NAMESPACES_OF_PYTORCH = frozenset(("aten", "prim", "prims"))


def qualified_name_of(operator):
    """Returns the name of a torch.ops operator or overload, such as "aten::add"."""
    return getattr(operator, "_overloadpacket", operator)._qualified_op_name


def is_of_pytorch(name):
    return name.partition("::")[0] in _NAMESPACES_OF_PYTORCH


def kernels_in_python(name):
    """Yields the kernels of the operator, each as "namespace/name.overload/key"."""
    beginning = name.replace("::", "/")
    for kernel in torch.library._impls:
        if kernel.startswith(beginning) and kernel[len(beginning)] in "/.":
            yield kernel
