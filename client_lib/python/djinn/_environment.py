"""What a function refers to besides its arguments, found by looking through it.

Tensors are listed, plain values are read anew before every call, and of everything else
it is checked that it is what it was. What cannot be watched is refused.
"""

import dis
import enum
import functools
import logging
import math
import re
import sys
import threading
import types
import typing
import weakref

import torch

_VALUES = (
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    type(None),
    type(Ellipsis),
    range,
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
    torch.Size,
    enum.Enum,
)
# Whose code is not looked through: what it refers to does not change.
STABLE_PACKAGES = frozenset(("torch", "djinn", "numpy", "transformers")) | frozenset(
    sys.stdlib_module_names
)
# What calls of operators cannot depend on, or only by being another one.
_OPAQUE = (
    logging.Logger,
    logging.Handler,
    re.Pattern,
    torch.Generator,
    type(threading.Lock()),
    type(threading.RLock()),
    types.BuiltinFunctionType,
    types.BuiltinMethodType,
    types.MethodWrapperType,
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    weakref.ref,
)
_GLOBAL_HOOKS = [
    hooks
    for name, hooks in vars(torch.nn.modules.module).items()
    if name.startswith("_global_") and isinstance(hooks, dict)
]
_MAX_THINGS = 100_000


class Unwatchable(Exception):
    """The function refers to something whose changes would not be seen."""


def is_value(thing):
    """Whether it can be compared by value, and is no tensor."""
    return isinstance(thing, _VALUES)


class Environment:
    """What `function` refers to, as it is now."""

    # Callables that stand for the function in this attribute of theirs.
    transparent = {}

    def __init__(self, function):
        # Tensors, each once.
        self.tensors = []
        # Each entry says what must be as it was; see changed().
        self._items = []  # (mapping, key, thing)
        self._attributes = []  # (object, name, thing)
        self._cells = []  # (cell, thing)
        self._elements = []  # (list, index, thing)
        self._keys = []  # (mapping, its keys in order)
        self._lengths = []  # (collection, length)
        self._sets = []  # (set, its elements)
        self._hooks = []  # (tensor, attribute, hooks, their number)
        # Where plain values are, which are part of the key.
        self._value_items = []  # (mapping, key)
        self._value_elements = []  # (list, index)
        self._value_cells = []
        self._kinds = None
        self._floats = ()
        for hooks in _GLOBAL_HOOKS:
            self._lengths.append((hooks, len(hooks)))
        self._look_at_everything(function)

    def is_like(self, other):
        """Whether it consists of the very things that `other`, alive, consists of."""
        return self._identity() == other._identity()

    def _identity(self):
        return (
            [id(tensor) for tensor in self.tensors],
            [(id(mapping), key, id(thing)) for mapping, key, thing in self._items],
            [(id(owner), name, id(thing)) for owner, name, thing in self._attributes],
            [(id(cell), id(thing)) for cell, thing in self._cells],
            [(id(sequence), index, id(thing)) for sequence, index, thing in self._elements],
            [(id(mapping), [id(key) for key in keys]) for mapping, keys in self._keys],
            [(id(collection), length) for collection, length in self._lengths],
            [(id(collection), elements) for collection, elements in self._sets],
            [(id(tensor), name, id(hooks), count) for tensor, name, hooks, count in self._hooks],
            [(id(mapping), key) for mapping, key in self._value_items],
            [(id(sequence), index) for sequence, index in self._value_elements],
            [id(cell) for cell in self._value_cells],
        )

    def changed(self):
        """Whether something else has taken the place of something."""
        for mapping, key, thing in self._items:
            if mapping.get(key) is not thing:
                return True
        for owner, name, thing in self._attributes:
            if getattr(owner, name) is not thing:
                return True
        for collection, length in self._lengths:
            if len(collection) != length:
                return True
        for mapping, keys in self._keys:
            if len(mapping) != len(keys) or any(map(_is_other, mapping, keys)):
                return True
        for cell, thing in self._cells:
            if cell.cell_contents is not thing:
                return True
        for sequence, index, thing in self._elements:
            if sequence[index] is not thing:
                return True
        for collection, elements in self._sets:
            if collection != elements:
                return True
        for tensor, name, hooks, count in self._hooks:
            if getattr(tensor, name) is not hooks or len(hooks or ()) != count:
                return True
        return False

    def values(self):
        """Every plain value with its type: 1, 1.0 and True are not the same.

        None when one of them is no plain value any more.
        """
        values = [mapping.get(key) for mapping, key in self._value_items]
        values += [sequence[index] for sequence, index in self._value_elements]
        values += [cell.cell_contents for cell in self._value_cells]
        kinds = tuple(map(type, values))
        if kinds != self._kinds:
            if not all(map(is_value, values)):
                return None
            self._kinds = kinds
            self._floats = [i for i, kind in enumerate(kinds) if issubclass(kind, (float, complex))]
        # 0.0 and -0.0 are equal, but not the same.
        signs = tuple([_sign(values[i]) for i in self._floats])
        return tuple(values), kinds, signs

    def _look_at_everything(self, function):
        # id -> thing, which keeps the id its own.
        seen = {}
        self._pending = [function]
        while self._pending:
            thing = self._pending.pop()
            if id(thing) in seen:
                self._meet_again(thing)
                continue
            seen[id(thing)] = thing
            if len(seen) > _MAX_THINGS:
                raise Unwatchable("it refers to more things than can be watched")
            self._look_at(thing)
        del self._pending

    def _meet_again(self, thing):
        """It was looked at, and is referred to by something else, too."""

    def _look_at(self, thing):
        if isinstance(thing, torch.Tensor):
            self._look_at_tensor(thing)
        elif is_value(thing) or isinstance(thing, _OPAQUE):
            pass
        elif type(thing) in self.transparent:
            self._pending.append(getattr(thing, self.transparent[type(thing)]))
        elif isinstance(thing, functools.partial):
            self._pending += [thing.func, thing.args, thing.keywords]
        elif isinstance(thing, types.MethodType):
            self._pending += [thing.__self__, thing.__func__]
        elif isinstance(thing, types.FunctionType):
            self._look_at_function(thing)
        elif isinstance(thing, (staticmethod, classmethod)):
            self._pending.append(thing.__func__)
        elif isinstance(thing, property):
            self._pending += [thing.fget, thing.fset]
        elif isinstance(thing, type):
            self._look_at_class(thing)
        elif isinstance(thing, dict):
            self._look_at_items(thing)
            self._look_at_attributes(thing)
        elif type(thing) in (list, tuple) or hasattr(type(thing), "_fields"):
            self._look_at_elements(thing)
        elif type(thing) in (set, frozenset):
            self._look_at_set(thing)
        elif isinstance(thing, types.ModuleType):
            if package_of_module(thing) not in STABLE_PACKAGES:
                raise Unwatchable(f"it refers to the module {thing.__name__} as a whole")
        elif package_of(type(thing)) in ("torch", "djinn") and not hasattr(thing, "__dict__"):
            pass
        elif isinstance(getattr(thing, "__dict__", None), dict) and not _has_slots(thing):
            self._look_at_attributes(thing)
        else:
            raise Unwatchable(f"it refers to a {type(thing).__name__}, which cannot be watched")

    def _look_at_tensor(self, tensor):
        self.tensors.append(tensor)
        for name in ("_backward_hooks", "_post_accumulate_grad_hooks"):
            if name == "_post_accumulate_grad_hooks" and not tensor.is_leaf:
                continue
            hooks = getattr(tensor, name)
            self._hooks.append((tensor, name, hooks, len(hooks or ())))
            self._pending += list((hooks or {}).values())
        self._look_at_items(vars(tensor))

    def _look_at_function(self, function):
        if package_of(function) in STABLE_PACKAGES:
            return
        for name in ("__code__", "__defaults__", "__kwdefaults__"):
            self._attributes.append((function, name, getattr(function, name)))
        self._pending += [function.__defaults__, function.__kwdefaults__]
        if function.__dict__:
            self._look_at_items(function.__dict__)
        for cell in function.__closure__ or ():
            try:
                contents = cell.cell_contents
            except ValueError:
                raise Unwatchable("a variable that it refers to is not set yet") from None
            if is_value(contents):
                self._value_cells.append(cell)
            else:
                self._cells.append((cell, contents))
                self._pending.append(contents)
        names = names_in(function.__code__)
        # Modules are not looked through, but for the attributes that may be meant.
        seen = set()
        for name in names.globals & function.__globals__.keys():
            thing = function.__globals__[name]
            if isinstance(thing, types.ModuleType):
                self._items.append((function.__globals__, name, thing))
                self._look_at_module(thing, names, seen)
            else:
                self._look_at_item(function.__globals__, name)
        # What is not there yet would be None, and is another value then.
        for name in names.assigned_globals - function.__globals__.keys():
            self._value_items.append((function.__globals__, name))
        for statement in names.imports:
            self._look_at_import(statement.resolve(function.__globals__), names, seen)

    def _look_at_module(self, module, names, seen):
        if id(module) in seen or package_of_module(module) in STABLE_PACKAGES:
            return
        seen.add(id(module))
        contents = module.__dict__
        for name in names.attributes & contents.keys():
            thing = contents[name]
            if isinstance(thing, types.ModuleType):
                self._items.append((contents, name, thing))
                self._look_at_module(thing, names, seen)
            else:
                self._look_at_item(contents, name)
        for name in names.assigned_attributes - contents.keys():
            self._value_items.append((contents, name))

    def _look_at_import(self, statement, names, seen):
        if statement.package in STABLE_PACKAGES:
            return
        for name in statement.modules():
            # Importing one that is not there yet changes that.
            module = sys.modules.get(name)
            self._items.append((sys.modules, name, module))
            if isinstance(module, types.ModuleType):
                self._look_at_module(module, names, seen)
            elif module is not None:
                self._pending.append(module)

    def _look_at_class(self, kind):
        if package_of(kind) in STABLE_PACKAGES:
            return
        self._attributes.append((kind, "__bases__", kind.__bases__))
        self._pending += list(kind.__bases__)
        self._lengths.append((kind.__dict__, len(kind.__dict__)))
        for name, member in list(kind.__dict__.items()):
            if not (name.startswith("__") and name.endswith("__")) or callable(member):
                self._look_at_item(kind.__dict__, name)

    def _look_at_attributes(self, thing):
        kind = type(thing)
        if package_of(kind) not in STABLE_PACKAGES:
            self._attributes.append((thing, "__class__", kind))
            self._pending.append(kind)
        if isinstance(getattr(thing, "__dict__", None), dict):
            self._look_at_items(thing.__dict__)

    def _look_at_items(self, dictionary):
        keys = tuple(dictionary)
        self._keys.append((dictionary, keys))
        for key in keys:
            if not is_value(key):
                self._pending.append(key)
            self._look_at_item(dictionary, key)

    def _look_at_item(self, mapping, key):
        thing = mapping[key]
        if is_value(thing):
            self._value_items.append((mapping, key))
        else:
            self._items.append((mapping, key, thing))
            self._pending.append(thing)

    def _look_at_elements(self, sequence):
        if not isinstance(sequence, list):
            self._pending += [thing for thing in sequence if not is_value(thing)]
            return
        self._lengths.append((sequence, len(sequence)))
        for index, thing in enumerate(sequence):
            if is_value(thing):
                self._value_elements.append((sequence, index))
            else:
                self._elements.append((sequence, index, thing))
                self._pending.append(thing)

    def _look_at_set(self, collection):
        if not all(map(is_value, collection)):
            raise Unwatchable("it refers to a set of objects, which cannot be watched")
        self._sets.append((collection, frozenset(collection)))


def _is_other(one, another):
    return one is not another and (type(one) is not type(another) or one != another)


def _sign(number):
    if isinstance(number, complex):
        return math.copysign(1, number.real), math.copysign(1, number.imag)
    return math.copysign(1, number)


def _has_slots(thing):
    return any("__slots__" in kind.__dict__ and kind.__slots__ for kind in type(thing).__mro__)


def package_of(code):
    """Of a function or class."""
    return (getattr(code, "__module__", None) or "").partition(".")[0]


def package_of_module(module):
    return module.__name__.partition(".")[0]


class Import(typing.NamedTuple):
    """An import statement: from .name import members."""

    level: int
    name: str
    members: tuple

    @property
    def package(self):
        return self.name.partition(".")[0]

    def resolve(self, variables):
        """The same with an absolute name, among the globals `variables`."""
        if not self.level:
            return self
        package = variables.get("__package__")
        if package is None:
            package = variables.get("__name__", "")
            if "__path__" not in variables:
                package = package.rpartition(".")[0]
        parts = package.split(".")
        parts = parts[: len(parts) + 1 - self.level] + [self.name] * bool(self.name)
        return Import(0, ".".join(parts), self.members)

    def modules(self):
        """The names of the modules that it may bring in, or pass."""
        parts = self.name.split(".")
        names = [".".join(parts[:count]) for count in range(1, len(parts) + 1)]
        return names + [f"{self.name}.{member}" for member in self.members]


class Names(typing.NamedTuple):
    """What code, or code in it, names."""

    globals: frozenset
    assigned_globals: frozenset
    attributes: frozenset
    assigned_attributes: frozenset
    imports: frozenset


@functools.lru_cache(maxsize=4096)
def names_in(code):
    """Its Names."""
    names = Names(set(), set(), set(), set(), set())
    before = []
    for instruction in dis.get_instructions(code):
        name = instruction.argval
        match instruction.opname:
            case "LOAD_GLOBAL" | "LOAD_NAME":
                names.globals.add(name)
            case "STORE_GLOBAL" | "DELETE_GLOBAL":
                names.globals.add(name)
                names.assigned_globals.add(name)
            case "LOAD_ATTR" | "LOAD_METHOD" | "IMPORT_FROM":
                names.attributes.add(name)
            case "STORE_ATTR" | "DELETE_ATTR":
                names.attributes.add(name)
                names.assigned_attributes.add(name)
            case "IMPORT_NAME":
                level, members = before[-2:]
                names.imports.add(Import(level, name, members or ()))
            case "EXTENDED_ARG":
                continue
        before.append(name)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            for ours, inner in zip(names, names_in(constant)):
                ours |= inner
    return Names(*map(frozenset, names))
