"""Finds the kernels in Python that a program gave an operator."""

import sys

import torch

# The namespaces of PyTorch's own operators.
_NAMESPACES_OF_PYTORCH = frozenset(("aten", "prim", "prims"))
# PyTorch's module whose operators have kernels in Python for all devices, which do nothing but call
# other operators, with its namespace and the keys of these kernels.
_COMPOSING_MODULE = "torch.ao.quantization.fx._decomposed"
_COMPOSING_NAMESPACE = "quantized_decomposed/"
_COMPOSING_KEYS = (
    "/Autograd",
    "/CompositeExplicitAutograd",
    "/CompositeImplicitAutograd",
    "/Meta",
)


def qualified_name_of(operator):
    """Returns the name of a torch.ops operator or overload, such as "aten::add"."""
    return getattr(operator, "_overloadpacket", operator)._qualified_op_name


def is_of_pytorch(name):
    return name.partition("::")[0] in _NAMESPACES_OF_PYTORCH


def kernels_in_python(name):
    """Yields the kernels of the operator, each as "namespace/name.overload/key".

    Leaves out those of PyTorch's that do nothing but call operators.
    """
    beginning = name.replace("::", "/")
    for kernel in torch.library._impls:
        if kernel.startswith(beginning) and kernel[len(beginning)] in "/.":
            if not _only_composes(kernel):
                yield kernel


def _only_composes(kernel):
    return (
        kernel.startswith(_COMPOSING_NAMESPACE)
        and kernel.endswith(_COMPOSING_KEYS)
        and _COMPOSING_MODULE in sys.modules
    )
