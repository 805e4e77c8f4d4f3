"""Watches objects: their classes, their attributes, and the contents of collections.

Objects that keep other state in C are refused.
"""

import collections
import struct
import types
import weakref

import torch

from djinn._registered.contents import (
    COLLECTIONS,
    MAPPINGS,
    SEQUENCES,
    SETS,
    watch_dictionary_of,
    watch_elements,
    watch_items,
    watch_set,
)
from djinn._registered.outside import Unwatchable
from djinn._stable import OF_PYBIND11, is_changeable, package_of
from djinn._registered.values import VALUES

_OF_ATTRIBUTES_ONLY = (object, types.SimpleNamespace)
_STATES = frozenset((*MAPPINGS, *SEQUENCES, *SETS, *_OF_ATTRIBUTES_ONLY, *VALUES))
# Packages whose objects have no state in C++ on which calls depend.
_OF_CALLS = ("torch", "djinn")
_POINTER = struct.calcsize("P")


class Objects:
    """Adds objects to `watch`, and their classes and contents to `pending`."""

    def __init__(self, watch, pending):
        self._watch = watch
        self._pending = pending
        # The tensors to which weak references lead.
        self._weakly = []

    def look_at(self, thing):
        kind = type(thing)
        state = _what_holds_the_state(kind)
        if state in MAPPINGS:
            if state is collections.defaultdict:
                self._watch.add_attribute(thing, "default_factory", thing.default_factory)
                self._pending.things.append(thing.default_factory)
            self._pending.things += watch_items(self._watch, thing)
        elif state in SEQUENCES:
            self._pending.things += watch_elements(self._watch, thing)
        elif state in SETS:
            watch_set(self._watch, thing)
        elif state in _OF_ATTRIBUTES_ONLY or state in VALUES:
            pass
        elif issubclass(state, torch._C.ScriptObject) or package_of(state) not in _OF_CALLS:
            raise Unwatchable(f"it refers to a {kind.__name__}, which cannot be watched")
        if kind not in COLLECTIONS and kind is not tuple:
            self.look_at_attributes(thing)

    def look_at_attributes(self, thing):
        kind = type(thing)
        if any(isinstance(vars(base).get("__dict__"), property) for base in kind.__mro__):
            raise Unwatchable(f"it refers to a {kind.__name__}, whose __dict__ is not its own")
        self._watch.add_class_of(thing)
        self._pending.kinds.append(kind)
        if isinstance(getattr(thing, "__dict__", None), dict):
            self._pending.things += watch_dictionary_of(self._watch, thing)

    def look_at_reference(self, reference):
        """Looks at a weak reference. The thing that it leads to is not kept alive."""
        thing = reference()
        if thing is None:
            return
        if isinstance(thing, torch.Tensor):
            self._weakly.append(thing)
            return
        kind = type(thing)
        if isinstance(thing, (type, types.FunctionType)):
            self._pending.things.append(thing)
        elif (
            type(reference) in (weakref.ref, weakref.KeyedRef)
            and _what_holds_the_state(kind) is object
            and hasattr(thing, "__dict__")
        ):
            self._watch.add_reference(reference, thing)
            self._pending.kinds.append(kind)
            self._pending.things += watch_items(self._watch, thing.__dict__)
        else:
            raise Unwatchable(f"it refers weakly to a {kind.__name__}, which cannot be watched")

    def check_references(self):
        """Raises Unwatchable if only a weak reference leads to a tensor."""
        if not set(map(id, self._weakly)) <= set(map(id, self._watch.tensors)):
            raise Unwatchable("it refers weakly to a tensor, which cannot be watched")


def look_at_logger(watch, logger):
    """Watches the settings of a logger: code may do more if its messages go somewhere."""
    while logger is not None:
        contents = vars(logger)
        for name in ("level", "disabled", "propagate"):
            watch.add_value_item(contents, name)
        watch.add_item(contents, "parent", logger.parent)
        for name in ("handlers", "filters"):
            things = contents[name]
            watch.add_item(contents, name, things)
            watch.add_length(things)
            for index, thing in enumerate(things):
                watch.add_element(things, index, thing)
                if name == "handlers":
                    watch.add_value_item(vars(thing), "level")
        watch.add_value_item(vars(logger.manager), "_disable")
        logger = logger.parent


def _what_holds_the_state(kind):
    """Returns the class, of those from which `kind` derives, that defines the state of instances.

    The classes below it add nothing but attributes in a __dict__.
    """
    while kind is not object and kind not in _STATES and is_changeable(kind):
        base = kind.__base__
        if package_of(base) == OF_PYBIND11:
            return kind
        size = kind.__basicsize__ - base.__basicsize__
        # The class adds a dictionary, which is not stored in front of the object.
        if not base.__dictoffset__ and (kind.__dictoffset__ > 0 or kind.__itemsize__):
            size -= _POINTER * bool(kind.__dictoffset__)
        if not base.__weakrefoffset__:
            size -= _POINTER * bool(kind.__weakrefoffset__)
        if size or kind.__itemsize__ != base.__itemsize__:
            return kind
        kind = base
    return kind
