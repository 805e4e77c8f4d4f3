"""Says in a sentence that sparse tensors are not for the device; PyTorch lists its backends."""

import torch

from djinn import _device_module

_NAME = _device_module._NAME
_KEYS = ("SparsePrivateUse1", "SparseCsrPrivateUse1")
_OF_GRADIENTS = "aten::_sparse_coo_tensor_with_dims_and_tensors"
# As long as the library lives, so does what it says.
_library = torch.library.Library("_", "IMPL")


def refuse():
    """From now on."""
    for key in _KEYS:
        _library.fallback(_refuse, key)


def _refuse(operator, *args, **kwargs):
    name = operator._schema.name
    why = f"{name}: tensors on {_NAME} are strided, there are no sparse ones"
    if name == _OF_GRADIENTS:
        why += " (an Embedding with sparse=True makes one of its gradient)"
    raise NotImplementedError(why)
