"""Takes the outputs of a call apart: its result, and its changes to caches.

The outputs of a captured call are taken apart once into tensors and a form. Each replay gives the
form to its own tensors.
"""

import torch
from torch.utils import _pytree

from djinn._registered.caches import contents_of, copies_of, fill, is_as_it_was, is_cache
from djinn._registered.values import is_value


class _Unrepeatable(Exception):
    """The outputs contain something that a replay cannot create again."""


class Given:
    """The places (caches.py) among a call's arguments, with their contents before the call."""

    def __init__(self, places):
        self.places = places
        self._before = copies_of(places)
        self.numbers = {id(place): number for number, place in enumerate(places)}

    def changed(self):
        """Returns the numbers of the places whose contents have changed."""
        return [
            number
            for number, (place, before) in enumerate(zip(self.places, self._before))
            if not is_as_it_was(place, before)
        ]


def take_apart(result, environment, given):
    """Returns (tensors, form) of a call's outputs, or (reason, None) if there is no form.

    The form is a function of such tensors and of the places of a call. It fills the places and
    returns a result. The outputs may contain tensors, plain values, classes, arguments, and new
    caches of transformers. `environment` is what the function refers to.
    """
    if type(result) is torch.Tensor and not given.places and not vars(result):
        return [result], _first
    leaves = []
    seen = set()
    changed = given.changed()
    try:
        build = _builder_of(result, leaves, environment, given, seen)
        fillings = []
        for number in changed:
            # This is a copy, because the place itself means the argument.
            contents = contents_of(given.places[number]).copy()
            fillings.append((number, _builder_of(contents, leaves, environment, given, seen)))
        attributes = [_attributes_of(leaf) for leaf in leaves]
    except _Unrepeatable as why:
        return str(why), None
    # A tensor that occurs twice is one output.
    tensors, numbers, places, marked = [], {}, [], []
    for place, leaf in enumerate(leaves):
        if isinstance(leaf, torch.Tensor):
            if id(leaf) not in numbers:
                numbers[id(leaf)] = len(tensors)
                tensors.append(leaf)
                if attributes[place]:
                    marked.append((len(tensors) - 1, attributes[place]))
            places.append((place, numbers[id(leaf)]))
    # The form must not keep this call's tensors alive.
    constants = [None if isinstance(x, torch.Tensor) else x for x in leaves]

    def form(outputs, given_places):
        filled = list(constants)
        for place, number in places:
            filled[place] = outputs[number]
        for number, names in marked:
            vars(outputs[number]).update(names)
        rest = iter(filled)
        made = build(rest, given_places)
        # A place is filled only after all contents have been built.
        contents = [(number, part(rest, given_places)) for number, part in fillings]
        for number, new in contents:
            fill(given_places[number], new)
        return made

    return tensors, form


def _first(outputs, given_places):
    return outputs[0]


def _attributes_of(leaf):
    """Returns the attributes that a call set on a tensor, or None."""
    if not isinstance(leaf, torch.Tensor) or not vars(leaf):
        return None
    if not all(map(is_value, vars(leaf).values())):
        raise _Unrepeatable("it leaves a tensor with attributes that are no plain values")
    return dict(vars(leaf))


def _builder_of(thing, leaves, environment, given, seen):
    """Adds the leaves of `thing` and returns a function that builds an equal thing.

    The function takes an iterator of leaves, and the places of the call.
    """
    # torch.Size would be taken apart as a tuple, and become one.
    flat, spec = _pytree.tree_flatten(
        thing,
        is_leaf=lambda part: (
            id(part) in given.numbers or type(part) is torch.Size or is_cache(part)
        ),
    )
    parts = []
    for leaf in flat:
        if isinstance(leaf, (torch.Tensor, type)) or is_value(leaf):
            leaves.append(leaf)
            parts.append(_next)
        elif id(leaf) in given.numbers:
            parts.append(_place(given.numbers[id(leaf)]))
        elif is_cache(leaf):
            # The program may compare a cache that the call did not create by identity.
            if id(leaf) in seen or environment.holds(leaf):
                raise _Unrepeatable(f"it returns a {type(leaf).__name__} that it did not make")
            seen.add(id(leaf))
            attributes = _builder_of(vars(leaf), leaves, environment, given, seen)
            parts.append(_object(type(leaf), attributes))
        else:
            kind = type(leaf).__name__
            raise _Unrepeatable(
                f"it returns a {kind}, something other than tensors and plain values"
            )
    if all(part is _next for part in parts):
        count = len(parts)
        return lambda rest, _: _pytree.tree_unflatten([next(rest) for _ in range(count)], spec)
    return lambda rest, places: _pytree.tree_unflatten([part(rest, places) for part in parts], spec)


def _next(rest, places):
    return next(rest)


def _place(number):
    """Returns a function that returns the argument itself."""
    return lambda rest, places: places[number]


def _object(kind, attributes):
    """Returns a function that creates an object from its attributes."""

    def make(rest, places):
        made = object.__new__(kind)
        made.__dict__.update(attributes(rest, places))
        return made

    return make
