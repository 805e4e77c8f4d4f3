"""Watches the objects of methods, such as the trainer whose step is registered.

If code only uses attributes of such an object by their names, calls do not depend on its other
attributes, such as a log or a clock.
"""

import abc
import types
import typing

import torch

from djinn._registered.contents import watch_class_item, watch_item
from djinn._registered.names import uses_of_object
from djinn._stable import is_stable_class
from djinn._registered.values import ABSENT

# Classes of the standard library whose objects have no more attributes than others.
_PLAIN = (abc.ABC, typing.Generic, object)
# Attributes with which a class itself decides what attributes its objects have.
_SAY_ATTRIBUTES = ("__delattr__", "__getattr__", "__getattribute__", "__setattr__", "__slots__")
_SAY_VALUES = ("__get__", "__set__", "__delete__")
# Attributes that every object has. Through them code reaches things that it does not name.
_OF_OBJECT = frozenset(dir(object)) | {"__dict__"}
# Attributes through which code gets from a method, or from its frame, to the object.
_LEAD_BACK = frozenset(("__closure__", "__self__", "__traceback__", "cell_contents"))
# Builtins whose calls are understood, unless a global of the program has the name.
_BUILTINS = frozenset(("getattr", "hasattr", "super"))
# The code of the wrapper that decorators such as torch.no_grad() return.
_IN_CONTEXT = torch.no_grad()(lambda: None).__code__


class Receivers:
    """Adds the attributes that code names to `watch`, and their values to `pending`.

    An object of which code may use other attributes is added to `pending` itself.
    """

    def __init__(self, watch, pending):
        self._watch = watch
        self._pending = pending
        # The objects by id. The watch keeps them alive, so ids are not reused.
        self._receivers = {}
        self._classes = set()
        # The attributes of any of the objects that code names, and those of them whose values it
        # uses in other ways than to call them.
        self._named = set()
        self._taken = set()
        self._seen_members = set()

    def look_at_method(self, method):
        """Looks at a bound method."""
        receiver = method.__self__
        self._pending.things.append(method.__func__)
        if not (_is_plain(type(receiver)) and self._follow(method.__func__)):
            self._pending.things.append(receiver)
        elif id(receiver) not in self._receivers:
            self._receivers[id(receiver)] = receiver
            self._watch.add_class_of(receiver)
            self._watch.add_dictionary_of(receiver)
            for kind in _classes_of(receiver):
                if kind not in self._classes:
                    self._classes.add(kind)
                    self._watch.add_attribute(kind, "__bases__", kind.__bases__)
                    for name in _SAY_ATTRIBUTES:
                        self._watch.add_class_item(kind.__dict__, name, ABSENT)

    def count(self):
        """Returns counts that grow if there is more to look at."""
        return len(self._receivers), len(self._named), len(self._taken)

    def look_at_named(self, attributes, searches):
        """Watches the attributes of the objects that code names.

        Code names `attributes` of things that are not known. If `searches`, it may use others, too.
        """
        if searches or attributes & _LEAD_BACK or self._named & _OF_OBJECT:
            self._pending.things += self._receivers.values()
            return
        for receiver in self._receivers.values():
            for name in sorted(self._named):
                if (id(receiver), name) not in self._seen_members:
                    self._seen_members.add((id(receiver), name))
                    self._look_at_member(receiver, name)
            # A bound method that the code passes on carries its object with it.
            if any(_has_method(receiver, name) for name in self._taken):
                self._pending.things.append(receiver)

    def _look_at_member(self, receiver, name):
        self._pending.things += watch_item(self._watch, vars(receiver), name)
        # super() may reach the classes after the first one that has the attribute.
        for kind in _classes_of(receiver):
            for member in watch_class_item(self._watch, kind.__dict__, name):
                self._pending.things.append(member)
                if not self._keeps_object(member):
                    self._pending.things.append(receiver)

    def _keeps_object(self, member):
        """Returns whether a member of a class only uses attributes of an object by their names."""
        if type(member) is types.FunctionType:
            return self._follow(member)
        if type(member) is property:
            return all(map(self._follow, filter(None, (member.fget, member.fset, member.fdel))))
        if type(member) is staticmethod:
            return True
        return not any(hasattr(type(member), name) for name in _SAY_VALUES)

    def _follow(self, function):
        """Notes the attributes that a method uses of its object. Returns False if it may use all."""
        function = _without_context(function)
        if type(function) is not types.FunctionType:
            return False
        uses = uses_of_object(function.__code__)
        if uses is None or not _BUILTINS.isdisjoint(function.__globals__):
            return False
        self._named |= uses.named
        self._taken |= uses.taken
        return True


def _classes_of(receiver):
    """Returns the classes of an object that a program may change."""
    return [kind for kind in type(receiver).__mro__ if kind not in _PLAIN]


def _has_method(receiver, name):
    return any(type(k.__dict__.get(name)) is types.FunctionType for k in _classes_of(receiver))


def _without_context(function):
    if getattr(function, "__code__", None) is _IN_CONTEXT:
        return dict(zip(_IN_CONTEXT.co_freevars, function.__closure__))["func"].cell_contents
    return function


def _is_plain(kind):
    return all(
        one in _PLAIN
        or type(one) in (type, abc.ABCMeta)
        and not is_stable_class(one)
        and not any(name in one.__dict__ for name in _SAY_ATTRIBUTES)
        and type(one.__dict__.get("__dict__")) in (types.NoneType, types.GetSetDescriptorType)
        for one in kind.__mro__
    )
