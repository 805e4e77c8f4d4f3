"""Objects that are there for their methods' sake, as a trainer is whose step is registered.

As long as all code that has such an object uses no more than attributes of it by their names,
what it has besides, such as a log or a clock, is nothing that calls depend on.
"""

import types

from djinn._names import keeps_its_object
from djinn._stable import is_stable_class

# Of classes of such objects: their attributes are where they seem to be.
_TELL_ATTRIBUTES = ("__delattr__", "__getattr__", "__getattribute__", "__setattr__", "__slots__")
# By which code comes from a method, or from the object, to what it does not name.
_LEAD_ELSEWHERE = frozenset(("__class__", "__self__"))


def is_method_of_receiver(method):
    """Whether its object need not be looked through for what this bound method does."""
    return _keeps_its_object(method.__func__) and _is_plain(type(method.__self__))


def leads_elsewhere(attributes):
    """Whether code that names these may come by all that receivers have."""
    return not _LEAD_ELSEWHERE.isdisjoint(attributes)


def classes_of(receiver):
    """Those that a program may change."""
    return type(receiver).__mro__[:-1]


def keeps_object_of(member):
    """Whether what is in a receiver's class, once it is used, does no more than that with it."""
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
        and not any(name in one.__dict__ for name in _TELL_ATTRIBUTES)
        for one in classes
    )
