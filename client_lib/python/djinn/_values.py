"""Plain values: those that can be compared, and are no tensors."""

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
# What is where there is nothing: None may be put there, too.
ABSENT = type("_Absent", (), {"__slots__": ()})()
# Of which those that are equal may not be the same: see detail().
EQUAL_TO_OTHERS = (float, complex, range)


def is_value(thing):
    """Whether it can be compared by value, and is no tensor."""
    return type(thing) in _VALUE_TYPES or is_value_type(type(thing))


def is_value_type(kind):
    """Whether what is of it has nothing but a value."""
    if kind in _VALUE_TYPES:
        return True
    return issubclass(kind, VALUES) and not kind.__dictoffset__ and is_stable_class(kind)


def detail(value):
    """What distinguishes plain values of one type that are equal: 0.0 and -0.0, or ranges."""
    if isinstance(value, float):
        return math.copysign(1, value)
    if isinstance(value, complex):
        return math.copysign(1, value.real), math.copysign(1, value.imag)
    if isinstance(value, range):
        return value.start, value.stop, value.step
    return None


def is_other_key(one, another):
    """Of two keys that are different objects, whether they may not stand for one another."""
    if one is another:
        return False
    if type(one) is not type(another):
        return True
    if type(one) is tuple:
        return len(one) != len(another) or any(map(is_other_key, one, another))
    return not is_value(one) or one != another or detail(one) != detail(another)
