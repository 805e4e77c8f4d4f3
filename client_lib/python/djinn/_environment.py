"""What a function refers to besides its arguments, found by looking through it.

Tensors are listed, plain values are read anew before every call, and of everything else
it is checked that it is what it was.
"""

import enum
import functools
import types

import torch

_VALUES = (
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    type(None),
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
    torch.Size,
    enum.Enum,
)
# Whose own code is not looked through: what it refers to does not change.
_STABLE_PACKAGES = ("torch", "djinn", "builtins", "math", "numpy", "transformers")
_MAX_DEPTH = 12
_MAX_THINGS = 100_000


def is_value(thing):
    """Whether it can be compared by value, and is no tensor."""
    return isinstance(thing, _VALUES)


class Environment:
    """What `function` refers to, as it is now."""

    def __init__(self, function):
        # Tensors, each once.
        self.tensors = []
        self._seen = {}  # id -> thing, which keeps the id its own
        # (dict, key, thing): dict[key] must be this very thing.
        self._items = []
        # (collection, length).
        self._lengths = []
        # (cell, thing).
        self._cells = []
        # (list, index, thing).
        self._elements = []
        # (tensor, its hooks, their number).
        self._hooks = []
        # (dict, key) and cells whose values are part of the key.
        self._value_items = []
        self._value_cells = []
        self._kinds = None
        self._look_at(function, 0)
        self._seen = None

    def is_like(self, other):
        """Whether it consists of the very things that `other`, alive, consists of."""
        return self._identity() == other._identity()

    def _identity(self):
        return (
            [id(tensor) for tensor in self.tensors],
            [(id(collection), length) for collection, length in self._lengths],
            [(id(dictionary), key, id(thing)) for dictionary, key, thing in self._items],
            [(id(cell), id(thing)) for cell, thing in self._cells],
            [(id(sequence), index, id(thing)) for sequence, index, thing in self._elements],
            [(id(tensor), id(hooks), count) for tensor, hooks, count in self._hooks],
            [(id(dictionary), key) for dictionary, key in self._value_items],
            [id(cell) for cell in self._value_cells],
        )

    def changed(self):
        """Whether something else has taken the place of something."""
        for collection, length in self._lengths:
            if len(collection) != length:
                return True
        for dictionary, key, thing in self._items:
            if dictionary.get(key) is not thing:
                return True
        for cell, thing in self._cells:
            if cell.cell_contents is not thing:
                return True
        for sequence, index, thing in self._elements:
            if sequence[index] is not thing:
                return True
        for tensor, hooks, count in self._hooks:
            if tensor._backward_hooks is not hooks or len(hooks or ()) != count:
                return True
        return False

    def values(self):
        """Every plain value with its type: 1, 1.0 and True are not the same.

        None when one of them is no plain value any more.
        """
        values = [dictionary.get(key) for dictionary, key in self._value_items]
        values += [cell.cell_contents for cell in self._value_cells]
        kinds = tuple(map(type, values))
        if kinds != self._kinds:
            if not all(map(is_value, values)):
                return None
            self._kinds = kinds
        return tuple(values), kinds

    def _look_at(self, thing, depth):
        if id(thing) in self._seen or depth > _MAX_DEPTH:
            return
        if len(self._seen) >= _MAX_THINGS:
            raise RuntimeError(
                "djinn.compile(): the function refers to more things than can be watched"
            )
        self._seen[id(thing)] = thing
        if isinstance(thing, torch.Tensor):
            self.tensors.append(thing)
            hooks = thing._backward_hooks
            self._hooks.append((thing, hooks, len(hooks or ())))
        elif isinstance(thing, torch.nn.Module):
            self._look_at_attributes(thing, depth)
            self._look_at_methods(thing, depth)
        elif isinstance(thing, functools.partial):
            for part in (thing.func, thing.args, thing.keywords):
                self._look_at(part, depth + 1)
        elif isinstance(thing, types.MethodType):
            self._look_at(thing.__self__, depth + 1)
            self._look_at(thing.__func__, depth + 1)
        elif isinstance(thing, types.FunctionType):
            self._look_at_function(thing, depth)
        elif isinstance(thing, dict):
            self._look_at_items(thing, depth)
        elif isinstance(thing, (list, tuple)):
            self._look_at_elements(thing, depth)
        elif isinstance(thing, (set, frozenset)):
            self._lengths.append((thing, len(thing)))
            for element in thing:
                self._look_at(element, depth + 1)
        elif _has_attributes(thing):
            self._look_at_attributes(thing, depth)
            self._look_at_methods(thing, depth)

    def _look_at_function(self, function, depth):
        if _package(function) in _STABLE_PACKAGES:
            return
        for cell in function.__closure__ or ():
            try:
                contents = cell.cell_contents
            except ValueError:  # not filled yet
                continue
            if is_value(contents):
                self._value_cells.append(cell)
            else:
                self._cells.append((cell, contents))
                self._look_at(contents, depth + 1)
        for defaults in (function.__defaults__, function.__kwdefaults__):
            self._look_at(defaults, depth + 1)
        names = set()
        _collect_names(function.__code__, names)
        for name in sorted(names & function.__globals__.keys()):
            self._look_at_item(function.__globals__, name, depth)

    def _look_at_methods(self, thing, depth):
        for kind in type(thing).__mro__:
            if _package(kind) not in _STABLE_PACKAGES:
                for member in vars(kind).values():
                    if isinstance(member, types.FunctionType):
                        self._look_at(member, depth + 1)

    def _look_at_attributes(self, thing, depth):
        for name in list(thing.__dict__):
            self._look_at_item(thing.__dict__, name, depth)
        self._lengths.append((thing.__dict__, len(thing.__dict__)))

    def _look_at_items(self, dictionary, depth):
        self._lengths.append((dictionary, len(dictionary)))
        for key in list(dictionary):
            self._look_at(key, depth + 1)
            self._look_at_item(dictionary, key, depth)

    def _look_at_item(self, dictionary, key, depth):
        thing = dictionary[key]
        if is_value(thing):
            self._value_items.append((dictionary, key))
        elif not isinstance(thing, (types.ModuleType, type, types.BuiltinFunctionType)):
            self._items.append((dictionary, key, thing))
            self._look_at(thing, depth + 1)

    def _look_at_elements(self, sequence, depth):
        self._lengths.append((sequence, len(sequence)))
        for index, thing in enumerate(sequence):
            if isinstance(sequence, list):
                self._elements.append((sequence, index, thing))
            self._look_at(thing, depth + 1)


def _has_attributes(thing):
    return (
        not isinstance(thing, (types.ModuleType, type))
        and isinstance(getattr(thing, "__dict__", None), dict)
        and not callable(getattr(thing, "__torch_dispatch__", None))
    )


def _package(code):
    """Of a function or class."""
    return (code.__module__ or "").partition(".")[0]


def _collect_names(code, names):
    names.update(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            _collect_names(constant, names)
