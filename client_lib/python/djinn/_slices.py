"""Replays calls for slices of larger tensors.

A captured graph names each input's place in its memory, so `model(data[i : i + 16])` is another
call for each i. A call that only reads such an input gets a copy in memory of its own instead, once
a call on another slice of the same sizes was captured.
"""

import torch

# Functions and attributes that reach memory outside of a tensor's elements, or ask for its place.
REACH_OUTSIDE = frozenset(
    "_base _get_data_attr _is_view as_strided as_strided_ as_strided_copy as_strided_scatter data "
    "data_ptr is_set_to resize_ resize_as_ set_ set_data storage storage_offset sym_storage_offset "
    "swap_tensors typed_storage untyped_storage".split()
)
_MAX_KNOWN = 256


class Slices:
    """Knows which inputs may be copies.

    The methods' `call` is (key, inputs, other tensors), as calls of `callable`, a
    RegisteredCallable, are captured. Of the results, the program gets the first `visible` ones. If
    `visible` is None, it gets all, and a result that is an input must not be a copy of it.
    """

    def __init__(self, visible=None):
        self._visible = visible
        # For each form of a call the positions of inputs that it does not return, and of the
        # tensors that it writes, among the inputs and others.
        self._known = {}

    def copy(self, callable, call):
        """Returns {id of an input: its copy} for the slices of a call."""
        if not self._known or not any(map(_is_slice, call[1])):
            return {}
        not_returned, written = self._known.get(_form_of(callable, call), ((), ()))
        tensors = _tensors_of(call)
        if not not_returned or len(tensors) <= max(written, default=0):
            return {}
        places = {_memory_of(tensors[i]) for i in written}
        places.update(_memory_of(one.grad) for one in tensors if _has_gradient(one))
        others = set(map(id, call[2]))
        return {
            id(one): one.clone()
            for one in map(call[1].__getitem__, not_returned)
            if _is_slice(one) and id(one) not in others and _memory_of(one) not in places
        }

    def begin(self, callable, call):
        """Returns what end() needs about a call that is to be captured next, or None.

        While a call is captured, the thread's state is another one.
        """
        if not any(map(_is_slice, call[1])):
            return None
        form, tensors = _form_of(callable, call), _tensors_of(call)
        if form is None or form in self._known or any(one.is_inference() for one in tensors):
            return None
        return form, [one._version for one in tensors]

    def end(self, begun, call, results):
        """Learns from a captured call whether its slices may be copies."""
        form, versions = begun
        tensors = _tensors_of(call)
        visible = [one for one in results[: self._visible] if isinstance(one, torch.Tensor)]
        if self._visible is not None:
            inputs = set(map(id, call[1]))
            visible = [one for one in visible if id(one) not in inputs]
        visible += [one.grad for one in tensors if _has_gradient(one)]
        places = set(map(_memory_of, visible))
        not_returned = [i for i, one in enumerate(call[1]) if _memory_of(one) not in places]
        written = [i for i, one in enumerate(tensors) if one._version != versions[i]]
        if len(self._known) >= _MAX_KNOWN:
            self._known = {}
        self._known[form] = not_returned, written


def _tensors_of(call):
    return [*call[1], *call[2]]


def _is_slice(tensor):
    return (
        type(tensor) is torch.Tensor
        and tensor.layout is torch.strided
        and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
        and tensor.is_contiguous()
        and not tensor.requires_grad
        and not tensor.is_inference()
        and tensor.numel() * tensor.element_size() < tensor.untyped_storage().nbytes()
        and not vars(tensor)
    )


def _has_gradient(tensor):
    return tensor.is_leaf and tensor.grad is not None


def _memory_of(tensor):
    return tensor.untyped_storage()._cdata if tensor.layout is torch.strided else None


def _form_of(callable, call):
    """Returns what decides which operators a call calls, but for the places of slices in memory.

    Returns None if no other call can be alike.
    """
    key, inputs, others = call
    guard = callable.guard(key, [one for one in inputs if not _is_slice(one)], others)
    if not guard:
        return None
    numbers = {}
    for number, one in enumerate(_tensors_of(call)):
        numbers.setdefault(id(one), number)
    slices = [
        (one.shape, one.stride(), one.dtype, one.is_leaf, one.is_conj(), one.is_neg())
        if _is_slice(one)
        else None
        for one in inputs
    ]
    return guard, tuple(slices), tuple(numbers[id(one)] for one in inputs)
