"""What is watched: things that stay in their places, and plain values.

Tensors are listed, plain values are read anew at every look, and of everything else it is
checked that it is where it was.
"""

import math
import operator

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


def is_value(thing):
    """Whether it can be compared by value, and is no tensor."""
    return type(thing) in _VALUE_TYPES or is_value_type(type(thing))


def is_value_type(kind):
    """Whether what is of it has nothing but a value."""
    if kind in _VALUE_TYPES:
        return True
    return issubclass(kind, VALUES) and not kind.__dictoffset__ and is_stable_class(kind)


class Watch:
    """Places and what was there; whoever makes it fills its lists."""

    def __init__(self):
        # Tensors, each once.
        self.tensors = []
        # Each entry says what must be as it was; see changed().
        self._items = []  # (dictionary, key, thing)
        self._class_items = []  # (what is in a class, key, thing)
        self._attributes = []  # (object, name, thing)
        self._objects = []
        self._kinds_of_objects = []
        self._kinds_of_tensors = []
        self._owners = []  # Of a __dict__
        self._dictionaries = []  # Those
        self._members = []  # (class, what is in it)
        self._references = []  # (weak reference, its object's class, and __dict__)
        self._cells = []  # (cell, thing)
        self._elements = []  # (list, index, thing)
        # Lists of the program's classes: (list, length, (index, thing) of each thing)
        self._lists = []
        self._keys = []  # (mapping or set, its keys in order)
        # The same of the program's classes: (mapping or set, its keys, what iterates it)
        self._orders = []
        self._lengths = []  # (collection, length)
        self._empty = []  # Collections
        self._hooks = []  # (tensor, attribute, hooks)
        # Where plain values are, which are part of the key.
        self._value_items = []  # (dictionary, key)
        self._value_class_items = []  # (what is in a class, key)
        self._value_elements = []  # (list, index)
        self._value_cells = []
        self._value_reads = []  # (function, what it is called with)
        self._kinds = None
        self._places = None
        # Of the values, those of which equal ones may not be the same.
        self._unequal = ()

    def holds(self, place):
        """Whether this object, list or dictionary is part of it."""
        if self._places is None:
            places = self._objects + [reference() for reference, _, _ in self._references]
            places += [one for one, _ in self._keys + self._lengths] + self._empty
            places += [one for one, _, _ in self._orders + self._lists]
            self._places = frozenset(map(id, places))
        return id(place) in self._places

    def has_one_of(self, kinds):
        """Whether an object of these classes is part of it."""
        return any(isinstance(one, kinds) for one in self._objects)

    def is_like(self, other):
        """Whether it consists of the very things that `other`, alive, consists of."""
        return self._identity() == other._identity()

    def _identity(self):
        return (
            [(id(tensor), id(kind)) for tensor, kind in zip(self.tensors, self._kinds_of_tensors)],
            [(id(mapping), key, id(thing)) for mapping, key, thing in self._items],
            [(id(kind), key, id(thing)) for kind, key, thing in self._class_items],
            [(id(owner), name, id(thing)) for owner, name, thing in self._attributes],
            [(id(one), id(kind)) for one, kind in zip(self._objects, self._kinds_of_objects)],
            [(id(one), id(held)) for one, held in zip(self._owners, self._dictionaries)],
            [(id(kind), [id(member) for member in members]) for kind, members in self._members],
            [(id(reference), id(kind), id(held)) for reference, kind, held in self._references],
            [(id(cell), id(thing)) for cell, thing in self._cells],
            [(id(sequence), index, id(thing)) for sequence, index, thing in self._elements],
            [
                (id(one), length, [(index, id(thing)) for index, thing in things])
                for one, length, things in self._lists
            ],
            [(id(mapping), [id(key) for key in keys]) for mapping, keys in self._keys],
            [(id(mapping), [id(key) for key in keys]) for mapping, keys, _ in self._orders],
            [(id(collection), length) for collection, length in self._lengths],
            [id(collection) for collection in self._empty],
            [(id(tensor), name, id(hooks)) for tensor, name, hooks in self._hooks],
            [(id(mapping), key) for mapping, key in self._value_items],
            [(id(kind), key) for kind, key in self._value_class_items],
            [(id(sequence), index) for sequence, index in self._value_elements],
            [id(cell) for cell in self._value_cells],
            [(id(function), *map(id, args)) for function, *args in self._value_reads],
        )

    def changed(self):
        """Whether something else has taken the place of something."""
        if any(self._empty):
            return True
        for mapping, key, thing in self._items:
            if _get(mapping, key) is not thing:
                return True
        for kind, key, thing in self._class_items:
            if kind.get(key) is not thing:
                return True
        if not (
            all(map(operator.is_, map(type, self._objects), self._kinds_of_objects))
            and all(map(operator.is_, map(type, self.tensors), self._kinds_of_tensors))
            and all(map(operator.is_, map(_dictionary_of, self._owners), self._dictionaries))
        ):
            return True
        for kind, members in self._members:
            if len(kind.__dict__) != len(members) or not all(
                map(operator.is_, kind.__dict__.values(), members)
            ):
                return True
        for owner, name, thing in self._attributes:
            if getattr(owner, name) is not thing:
                return True
        for collection, length in self._lengths:
            if len(collection) != length:
                return True
        for mapping, keys in self._keys:
            if len(mapping) != len(keys):
                return True
            if not all(map(operator.is_, mapping, keys)) and any(map(_is_other, mapping, keys)):
                return True
        for mapping, keys, iterate in self._orders:
            now = tuple(iterate(mapping))
            if len(now) != len(keys) or any(map(_is_other, now, keys)):
                return True
        for reference, kind, held in self._references:
            thing = reference()
            if type(thing) is not kind or thing.__dict__ is not held:
                return True
        for cell, thing in self._cells:
            if cell.cell_contents is not thing:
                return True
        for sequence, index, thing in self._elements:
            if sequence[index] is not thing:
                return True
        for sequence, length, things in self._lists:
            if _count(sequence) != length:
                return True
            if any(_element(sequence, index) is not thing for index, thing in things):
                return True
        for tensor, name, hooks in self._hooks:
            if getattr(tensor, name) is not hooks:
                return True
        return False

    def values(self):
        """Every plain value with its type: 1, 1.0 and True are not the same.

        None when one of them is no plain value any more.
        """
        values = [_get(mapping, key) for mapping, key in self._value_items]
        values += [kind.get(key) for kind, key in self._value_class_items]
        values += [sequence[index] for sequence, index in self._value_elements]
        values += [cell.cell_contents for cell in self._value_cells]
        values += [function(*args) for function, *args in self._value_reads]
        kinds = tuple(map(type, values))
        if kinds != self._kinds:
            if not all(map(is_value_type, kinds)):
                return None
            self._kinds = kinds
            self._unequal = [i for i, kind in enumerate(kinds) if issubclass(kind, _EQUAL_TO_OTHERS)]
        details = tuple([detail(values[i]) for i in self._unequal])
        return tuple(values), kinds, details


# What classes of the program's may do in another way is not asked of them.
_get = dict.get
_count = list.__len__
_element = list.__getitem__
_dictionary_of = operator.attrgetter("__dict__")
_EQUAL_TO_OTHERS = (float, complex, range)


def detail(value):
    """What distinguishes plain values of one type that are equal: 0.0 and -0.0, or ranges."""
    if isinstance(value, float):
        return math.copysign(1, value)
    if isinstance(value, complex):
        return math.copysign(1, value.real), math.copysign(1, value.imag)
    if isinstance(value, range):
        return value.start, value.stop, value.step
    return None


def _is_other(one, another):
    """Of two keys that are different objects, whether they may not stand for one another."""
    if one is another:
        return False
    if type(one) is not type(another):
        return True
    if type(one) is tuple:
        return len(one) != len(another) or any(map(_is_other, one, another))
    return not is_value(one) or one != another or detail(one) != detail(another)
