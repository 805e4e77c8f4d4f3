"""Objects that are there for their methods' sake, as a trainer is whose step is registered.

As long as all code that has such an object uses no more than attributes of it by their names,
what it has besides, such as a log or a clock, is nothing that calls depend on.
"""

import types

from djinn._contents import watch_item, watch_keys
from djinn._names import keeps_its_object
from djinn._stable import is_stable_class
from djinn._values import is_value

# By these a class says itself what attributes there are.
_SAY_ATTRIBUTES = ("__delattr__", "__getattr__", "__getattribute__", "__setattr__", "__slots__")
# By which code comes from a method, or from the object, to what it does not name.
_LEAD_ELSEWHERE = frozenset(("__class__", "__self__"))


class Receivers:
    """Adds to `watch` what of them must stay, and to `pending` what code names of them.

    Those of which it may use more are added themselves.
    """

    def __init__(self, watch, pending):
        self._watch = watch
        self._pending = pending
        # By id, which is theirs as long as they are watched.
        self._receivers = {}
        self._seen_members = set()

    def look_at_method(self, method):
        """A bound one."""
        receiver = method.__self__
        self._pending.things.append(method.__func__)
        if not (_keeps_its_object(method.__func__) and _is_plain(type(receiver))):
            self._pending.things.append(receiver)
        elif id(receiver) not in self._receivers:
            self._receivers[id(receiver)] = receiver
            self._watch.add_class_of(receiver)
            watch_keys(self._watch, self._watch.add_dictionary_of(receiver))
            for kind in _classes_of(receiver):
                self._watch.add_attribute(kind, "__bases__", kind.__bases__)
                self._watch.add_members(kind)

    def count(self):
        return len(self._receivers)

    def look_at_named(self, attributes, searches):
        """At all in them that has one of these names, which are those that any code uses.

        `searches`: it looks up others, too.
        """
        if searches or not _LEAD_ELSEWHERE.isdisjoint(attributes):
            self._pending.things += self._receivers.values()
            return
        for receiver in self._receivers.values():
            for name in sorted(attributes):
                if (id(receiver), name) not in self._seen_members:
                    self._seen_members.add((id(receiver), name))
                    self._look_at_member(receiver, name)

    def _look_at_member(self, receiver, name):
        contents = vars(receiver)
        if name in contents:
            self._pending.things += watch_item(self._watch, contents, name)
        for kind in _classes_of(receiver):
            if name not in kind.__dict__:
                continue
            member = kind.__dict__[name]
            if not is_value(member):
                self._pending.things.append(member)
            if not _keeps_object_of(member):
                self._pending.things.append(receiver)
            return


def _classes_of(receiver):
    """Those that a program may change."""
    return type(receiver).__mro__[:-1]


def _keeps_object_of(member):
    """Whether what is in its class does no more with an object than use named attributes."""
    if isinstance(member, types.FunctionType):
        return _keeps_its_object(member)
    if isinstance(member, property):
        return all(map(_keeps_its_object, filter(None, (member.fget, member.fset, member.fdel))))
    return isinstance(member, staticmethod) or not hasattr(type(member), "__get__")


def _keeps_its_object(function):
    return isinstance(function, types.FunctionType) and keeps_its_object(function.__code__)


def _is_plain(kind):
    *classes, last = kind.__mro__
    return last is object and all(
        type(one) is type
        and not is_stable_class(one)
        and not any(name in one.__dict__ for name in _SAY_ATTRIBUTES)
        for one in classes
    )
