"""What a registered callable returns: taken apart once, given its form at every call."""

import sys

import torch
from torch.utils import _pytree

from djinn._watch import is_value


class _Unrepeatable(Exception):
    """The result has something that no other call can be given one like."""


def take_apart(result, environment):
    """The tensors of a result, and what gives others of their kind its form.

    If there is something else in it than tensors, plain values, classes, and caches of
    transformers that the call has made: why not, and None. `environment`: what the
    function refers to.
    """
    if type(result) is torch.Tensor:
        return [result], _first
    leaves = []
    try:
        build = _builder_of(result, leaves, environment, seen=set())
    except _Unrepeatable as why:
        return str(why), None
    # A tensor that is there twice stays one.
    tensors, numbers, places = [], {}, []
    for place, leaf in enumerate(leaves):
        if isinstance(leaf, torch.Tensor):
            if id(leaf) not in numbers:
                numbers[id(leaf)] = len(tensors)
                tensors.append(leaf)
            places.append((place, numbers[id(leaf)]))
    # No tensor of this call may live on in the next ones.
    constants = [None if isinstance(x, torch.Tensor) else x for x in leaves]

    def form(outputs):
        filled = list(constants)
        for place, number in places:
            filled[place] = outputs[number]
        return build(iter(filled))

    return tensors, form


def _first(outputs):
    return outputs[0]


def _builder_of(thing, leaves, environment, seen):
    """Adds the leaves of `thing`; returns what makes one like it from an iterator of leaves."""
    flat, spec = _pytree.tree_flatten(thing)
    parts = []
    for leaf in flat:
        if isinstance(leaf, (torch.Tensor, type)) or is_value(leaf):
            leaves.append(leaf)
            parts.append(next)
        elif _is_cache(leaf):
            # Its identity may be meant.
            if id(leaf) in seen or environment.has(leaf):
                raise _Unrepeatable(f"it returns a {type(leaf).__name__} that it did not make")
            seen.add(id(leaf))
            attributes = _builder_of(vars(leaf), leaves, environment, seen)
            parts.append(_Object(type(leaf), attributes))
        else:
            kind = type(leaf).__name__
            raise _Unrepeatable(f"it returns a {kind}, something other than tensors and plain values")
    if all(part is next for part in parts):
        count = len(parts)
        return lambda rest: _pytree.tree_unflatten([next(rest) for _ in range(count)], spec)
    return lambda rest: _pytree.tree_unflatten([part(rest) for part in parts], spec)


class _Object:
    """Makes an object that consists of its attributes."""

    def __init__(self, kind, attributes):
        self._kind = kind
        self._attributes = attributes

    def __call__(self, rest):
        made = object.__new__(self._kind)
        made.__dict__.update(self._attributes(rest))
        return made


def _is_cache(thing):
    """Whether it is one of transformers' caches or their layers, of attributes only."""
    module = sys.modules.get("transformers.cache_utils")
    if module is None or type(thing).__module__ != module.__name__:
        return False
    return isinstance(thing, (module.Cache, module.CacheLayerMixin))
