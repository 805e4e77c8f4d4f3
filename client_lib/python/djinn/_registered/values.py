"""Tells plain values, which are compared by value, from other objects."""

import math

import torch

from djinn._stable import is_stable_class

VALUES = (
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    type(None),
    type(Ellipsis),
    type(NotImplemented),
    range,
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
    torch.Size,
)
_VALUE_TYPES = frozenset(VALUES)
# Stands for a missing thing, because None may be a value.
ABSENT = type("_Absent", (), {"__slots__": ()})()
# Types whose equal values may differ: see detail().
EQUAL_TO_OTHERS = (float, complex, range)


def is_value(thing):
    """Returns whether a thing is a plain value."""
    return type(thing) in _VALUE_TYPES or is_value_type(type(thing))


def is_value_type(kind):
    """Returns whether the instances of a type are plain values."""
    if kind in _VALUE_TYPES:
        return True
    return issubclass(kind, VALUES) and not kind.__dictoffset__ and is_stable_class(kind)


def detail(value):
    """Returns what distinguishes equal plain values of one type, such as 0.0 and -0.0."""
    if isinstance(value, float):
        return math.copysign(1, value)
    if isinstance(value, complex):
        return math.copysign(1, value.real), math.copysign(1, value.imag)
    if isinstance(value, range):
        return value.start, value.stop, value.step
    return None


def is_other_key(one, another):
    """Returns whether two keys that are different objects must not replace each other."""
    if one is another:
        return False
    if type(one) is not type(another):
        return True
    if type(one) is tuple:
        return len(one) != len(another) or any(map(is_other_key, one, another))
    return not is_value(one) or one != another or detail(one) != detail(another)
