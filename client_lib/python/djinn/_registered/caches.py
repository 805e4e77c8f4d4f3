"""Caches of transformers as arguments of registered callables.

A cache, its layers, and the lists and dictionaries in them are places. A call's changes to a
place are repeated in the same place of the cache that a replayed call receives.
"""

import sys

import torch
from torch.utils import _pytree

from djinn._registered.values import detail, is_value


class Unopenable(Exception):
    """A cache contains something that is neither a tensor, a plain value nor a place."""


def is_cache(thing):
    """Returns whether a thing is a cache of transformers or a layer of one."""
    module = sys.modules.get("transformers.cache_utils")
    if module is None or type(thing).__module__ != module.__name__:
        return False
    return isinstance(thing, (module.Cache, module.CacheLayerMixin))


def describe_value(value):
    """Returns a key that distinguishes equal values that differ: 1 and True, 0.0 and -0.0."""
    return type(value), value, detail(value)


class OpenedCaches:
    """The places of the caches among a call's arguments, each one once, in order."""

    def __init__(self):
        self.places = []
        self._numbers = {}

    def open(self, thing, tensors, look_at_class):
        """Returns a key of the contents of `thing`, and adds its tensors to `tensors`.

        `look_at_class` returns the key of a class.
        """
        if type(thing) is torch.Tensor:
            tensors.append(thing)
            return torch.Tensor
        if is_value(thing):
            return describe_value(thing)
        if type(thing) is tuple:
            return tuple, *[self.open(part, tensors, look_at_class) for part in thing]
        if isinstance(thing, type):
            return thing, look_at_class(thing)
        number = self._numbers.get(id(thing))
        if number is not None:
            return "again", number
        kind = type(thing)
        if kind is not list and kind is not dict and not is_cache(thing):
            raise Unopenable(f"it holds a {kind.__name__}")
        self._numbers[id(thing)] = len(self.places)
        self.places.append(thing)
        if kind is list:
            return list, *[self.open(part, tensors, look_at_class) for part in thing]
        parts = []
        for key, part in contents_of(thing).items():
            if not is_value(key):
                raise Unopenable("it holds a dictionary with keys that are no plain values")
            parts.append((describe_value(key), self.open(part, tensors, look_at_class)))
        return kind, look_at_class(kind) if kind is not dict else None, tuple(parts)

    def are_met_in(self, arguments):
        """Returns whether one of the places is also a container among the arguments."""
        met = []

        def is_leaf(thing):
            if type(thing) in (list, dict) and id(thing) in self._numbers:
                met.append(thing)
            return is_cache(thing)

        _pytree.tree_flatten(arguments, is_leaf=is_leaf)
        return bool(met)


def contents_of(place):
    """Returns the list or dictionary with the contents of a place."""
    return place if type(place) in (list, dict) else vars(place)


def copies_of(places):
    """Returns copies of the contents of the places."""
    return [contents_of(place).copy() for place in places]


def is_as_it_was(place, before):
    """Returns whether a place has its former contents."""
    now = contents_of(place)
    if len(now) != len(before):
        return False
    if type(now) is list:
        return all(map(_is_same, now, before))
    return all(map(_is_same, now, before)) and all(map(_is_same, now.values(), before.values()))


def fill(place, contents):
    """Replaces the contents of a place."""
    now = contents_of(place)
    if type(now) is list:
        now[:] = contents
        return
    if list(now) != list(contents):
        now.clear()
    now.update(contents)


def _is_same(one, other):
    return one is other or (
        is_value(one) and is_value(other) and describe_value(one) == describe_value(other)
    )
