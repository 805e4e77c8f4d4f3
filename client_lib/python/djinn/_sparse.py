"""Refuses sparse and quantised tensors with one sentence; PyTorch would list its backends."""

import torch

from djinn import _device_module

_NAME = _device_module._NAME
_KEYS = ("SparsePrivateUse1", "SparseCsrPrivateUse1", "QuantizedPrivateUse1")
_OF_GRADIENTS = "aten::_sparse_coo_tensor_with_dims_and_tensors"
# The registrations live as long as this object.
_library = torch.library.Library("_", "IMPL")


def refuse():
    """Registers the refusal."""
    for key in _KEYS:
        _library.fallback(_refuse, key)


def _refuse(operator, *args, **kwargs):
    name = operator._schema.name
    if name == "aten::empty_quantized":
        raise NotImplementedError(
            f"{name}: {_NAME} has no quantised tensors: dequantize() before, or keep them here")
    why = f"{name}: {_NAME} has strided tensors only, no sparse ones"
    if name == _OF_GRADIENTS:
        why += ": create the Embedding without sparse=True, whose gradient is sparse"
    raise NotImplementedError(why)
