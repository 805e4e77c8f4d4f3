"""Copies of nested arguments: the same values, strides, aliasing and flags.

`Tensor.to()` makes a dense tensor of one that is not, and two of one memory;
shapes, strides and aliases of results depend on those.
"""

import torch
from torch.utils._pytree import tree_map


class Mirror:
    """Copies tensors to a device, keeping which of them share memory."""

    def __init__(self, device):
        self.device = torch.device(device)
        # Maps the address of a CPU storage to (the storage, its copy). The
        # reference to the storage prevents another use of its address.
        self._storages = {}

    def storages(self):
        """The copied storages, in the order in which they were met."""
        return [copy.untyped_storage() for _, copy in self._storages.values()]

    def __call__(self, value):
        return tree_map(self._copy, value)

    def _copy(self, value):
        if isinstance(value, torch.Tensor):
            return self._copy_tensor(value)
        if isinstance(value, torch.device) and value.type == "cpu":
            return self.device
        if isinstance(value, torch.Generator):
            generator = torch.Generator(device=self.device)
            generator.set_state(value.get_state())
            return generator
        if isinstance(value, str) and value == "cpu":
            return str(self.device)
        if isinstance(value, slice):
            return slice(
                *(self._copy(part) for part in (value.start, value.stop, value.step))
            )
        return value

    def _copy_tensor(self, tensor):
        if tensor.layout != torch.strided:
            return tensor.detach().to(self.device)
        plain = tensor.detach()
        # Removes the lazy conjugation and negation flags of the tensor, and
        # sets them afterwards.
        if plain.is_conj():
            plain = plain.conj()
        if plain.is_neg():
            plain = torch._neg_view(plain)
        copy = torch.as_strided(
            self._copy_storage(plain).view(plain.dtype),
            plain.size(),
            plain.stride(),
            plain.storage_offset(),
        )
        if tensor.is_conj():
            copy = copy.conj()
        if tensor.is_neg():
            copy = torch._neg_view(copy)
        if isinstance(tensor, torch.nn.Parameter):
            return torch.nn.Parameter(copy, tensor.requires_grad)
        return copy.detach().requires_grad_(tensor.requires_grad)

    def _copy_storage(self, tensor):
        storage = tensor.untyped_storage()
        key = storage.data_ptr() or id(storage)
        if key not in self._storages:
            source = torch.empty(0, dtype=torch.uint8).set_(storage)
            # Copies the bytes of all whole elements. The copy has memory of its
            # own, even if the device is the CPU.
            whole = storage.nbytes() // tensor.element_size() * tensor.element_size()
            copy = torch.empty(whole, dtype=torch.uint8, device=self.device)
            copy.copy_(source[:whole])
            self._storages[key] = (storage, copy)
        return self._storages[key][1]
