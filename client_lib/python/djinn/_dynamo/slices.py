"""Replays a graph for slices of larger tensors.

A captured graph names each input's place in its memory, so `model(data[i : i + 16])` is another call
for each i. A graph that only reads such an input gets a copy in memory of its own instead, once a
call on another slice of the same sizes was captured.
"""

import torch

from djinn._dynamo.nodes import name_of

# Functions that reach memory outside of a tensor's elements, or ask for its place.
_REACH_OUTSIDE = frozenset(
    "_get_data_attr as_strided as_strided_ as_strided_copy as_strided_scatter data data_ptr "
    "resize_ resize_as_ set_ set_data storage storage_offset sym_storage_offset typed_storage "
    "untyped_storage".split()
)
_MAX_KNOWN = 256


class Slices:
    """Knows which inputs of a graph may be copies.

    `positions` are those of the inputs that are tensors and no parameters. Of the results, the
    program gets the first `visible` ones. If `visible` is None, it gets all, and a result that is an
    input must not be a copy of it.
    """

    def __init__(self, graph, positions, visible):
        self._visible = visible
        nodes = graph.graph.nodes
        is_plain = not any(
            isinstance(node.target, torch._ops.HigherOrderOperator)
            or name_of(node.target).partition(".")[0] in _REACH_OUTSIDE
            for node in nodes
            if node.op.startswith("call")
        )
        self._positions = positions if is_plain else ()
        # For each form of a call the operands that it writes, or None if no input may be a copy.
        self._written = {}

    def copy(self, args, operands):
        """Returns the inputs with copies of slices. Returns None if nothing is to be copied."""
        if not self._written:
            return None
        slices = self._slices_of(args)
        written = self._written.get(_form_of(operands)) if slices else None
        if written is None:
            return None
        tensors = operands[1] + operands[2]
        places = {_memory_of(tensors[i]) for i in written}
        copied = list(args)
        for i in slices:
            if _memory_of(args[i]) not in places:
                copied[i] = args[i].clone()
        return copied

    def begin(self, args, operands):
        """Returns what end() needs about a call that is captured, or None."""
        if not self._slices_of(args) or _form_of(operands) in self._written:
            return None
        tensors = operands[1] + operands[2]
        if any(one.is_inference() for one in tensors):
            return None
        return [one._version for one in tensors]

    def end(self, versions, args, operands, results):
        """Learns from a captured call whether its slices may be copies."""
        tensors = operands[1] + operands[2]
        slices = [args[i] for i in self._slices_of(args)]
        places = set(map(_memory_of, slices))
        visible = [one for one in results[: self._visible] if isinstance(one, torch.Tensor)]
        if self._visible is not None:
            visible = [one for one in visible if not any(one is other for other in slices)]
        written = None
        if places.isdisjoint(map(_memory_of, visible)):
            written = [i for i, one in enumerate(tensors) if one._version != versions[i]]
        if len(self._written) >= _MAX_KNOWN:
            self._written = {}
        self._written[_form_of(operands)] = written

    def _slices_of(self, args):
        return [i for i in self._positions if _is_slice(args[i])]


def _is_slice(tensor):
    return (
        tensor.layout is torch.strided
        and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
        and tensor.is_contiguous()
        and not tensor.requires_grad
        and not tensor.is_inference()
        and tensor.numel() * tensor.element_size() < tensor.untyped_storage().nbytes()
    )


def _memory_of(tensor):
    return tensor.untyped_storage()._cdata if tensor.layout is torch.strided else None


def _form_of(operands):
    """Returns what decides which operators a graph calls: numbers, sizes and strides."""
    key, tensors, static = operands
    strided = [one for one in tensors if one.layout is torch.strided]
    return key, *((one.shape, one.stride(), one.dtype) for one in strided)
