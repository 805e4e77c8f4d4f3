"""Refuses sparse tensors on the device with one sentence; PyTorch would list its backends."""

import torch

from djinn import _device_module

_NAME = _device_module._NAME
_KEYS = ("SparsePrivateUse1", "SparseCsrPrivateUse1")
_OF_GRADIENTS = "aten::_sparse_coo_tensor_with_dims_and_tensors"
# The registrations live as long as this object.
_library = torch.library.Library("_", "IMPL")


def refuse():
    """Registers the refusal."""
    for key in _KEYS:
        _library.fallback(_refuse, key)


def _refuse(operator, *args, **kwargs):
    name = operator._schema.name
    why = f"{name}: {_NAME} has strided tensors only, no sparse ones"
    if name == _OF_GRADIENTS:
        why += ": create the Embedding without sparse=True, whose gradient is sparse"
    raise NotImplementedError(why)
