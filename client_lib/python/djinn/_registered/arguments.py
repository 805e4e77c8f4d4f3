"""Divides the arguments of a registered function into tensors and a key of everything else."""

import collections
import collections.abc
import enum
import itertools
import threading
import types

import torch
from torch.utils import _pytree

from djinn._registered.caches import OpenedCaches, Unopenable, describe_value, is_cache
from djinn._registered.environment import Environment
from djinn._registered.names import unread_parameters
from djinn._registered.outside import Unwatchable
from djinn._registered.values import detail, is_value

# Types of tensors that have no behaviour of their own.
_TENSORS = (torch.Tensor, torch.nn.Parameter)
_MAX_CLASSES = 64
_numbers = itertools.count(1)


class Arguments:
    """Takes the arguments of calls apart."""

    def __init__(self):
        # The environments of the classes of enums and caches.
        self._classes = {}
        self._lock = threading.Lock()

    def take_apart(self, args, kwargs):
        """Returns (tensors, key of the rest, places of caches).

        Raises Unwatchable if an argument cannot be compared.
        """
        leaves, spec = _pytree.tree_flatten((args, kwargs), is_leaf=is_cache)
        tensors, values = [], []
        caches = None
        for leaf in leaves:
            if type(leaf) in _TENSORS:
                tensors.append(leaf)
                values.append(type(leaf))
            elif is_value(leaf):
                values.append(describe_value(leaf))
            elif isinstance(leaf, enum.Enum):
                values.append((leaf, *self.look_at_class(type(leaf))))
            elif is_cache(leaf):
                caches = caches or OpenedCaches()
                values.append(self._open(leaf, caches, tensors))
            else:
                is_mapping = isinstance(leaf, collections.abc.Mapping)
                what = ", a mapping that is no dictionary" if is_mapping else ""
                raise Unwatchable(f"an argument is a {type(leaf).__name__}{what}")
        places = caches.places if caches else ()
        if places and caches.are_met_in((args, kwargs)):
            raise Unwatchable("an argument is a part of a cache")
        return tensors, (spec, _kinds_of_keys(spec), tuple(values)), places

    def look_at_class(self, kind):
        """Returns the part of the key for what the members of a class have and do."""
        environment = self._classes.get(kind)
        if environment is None or environment.changed() or environment.values() is None:
            environment = Environment(kind)
            if environment.tensors:
                raise Unwatchable(f"an argument is a {kind.__name__}, which refers to tensors")
            environment.number = next(_numbers)
            with self._lock:
                self._classes.pop(kind, None)
                while len(self._classes) >= _MAX_CLASSES:
                    del self._classes[next(iter(self._classes))]
                self._classes[kind] = environment
        return environment.number, environment.values()

    def _open(self, cache, caches, tensors):
        try:
            return caches.open(cache, tensors, self.look_at_class)
        except Unopenable as error:
            raise Unwatchable(f"an argument is a {type(cache).__name__}, and {error}") from None


class Unread:
    """The parameters that a function's code does not use, such as a step's `batch_index`.

    If `function` is None, no parameter is known to be unused.
    """

    def __init__(self, function):
        self._positions, self._names = (), frozenset()
        bound = 0
        while True:
            if type(function) is types.MethodType:
                function, bound = function.__func__, bound + 1
            elif getattr(function, "__code__", None) in _FORWARDING:
                place = function.__code__.co_freevars.index("func")
                function = function.__closure__[place].cell_contents
            else:
                break
        if type(function) is types.FunctionType:
            code = function.__code__
            unread = unread_parameters(code)
            given = code.co_varnames[bound : code.co_argcount]
            self._positions = [i for i, name in enumerate(given) if name in unread]
            # Variadic arguments may have the names of positional-only parameters.
            self._names = unread - set(code.co_varnames[: code.co_posonlyargcount])

    def leave_out(self, args, kwargs):
        """Replaces unused arguments without tensors by None, so that they make no other call."""
        if self._positions:
            args = list(args)
            for i in self._positions:
                if i < len(args) and not _has_tensors(args[i]):
                    args[i] = None
            args = tuple(args)
        if kwargs and self._names:
            kwargs = {
                name: None if name in self._names and not _has_tensors(value) else value
                for name, value in kwargs.items()
            }
        return args, kwargs


def _forwards(decorator):
    """Returns the code of the wrapper of a decorator that passes all arguments on."""
    return decorator(lambda: None).__code__


# The wrappers of torch.no_grad() and similar decorators, and of torch.autocast().
_FORWARDING = (_forwards(torch.no_grad()), _forwards(torch.autocast("cpu")))


def _has_tensors(thing):
    if is_value(thing):
        return False
    leaves = _pytree.tree_leaves(thing, is_leaf=is_cache)
    return any(isinstance(leaf, torch.Tensor) or is_cache(leaf) for leaf in leaves)


def _kinds_of_keys(spec):
    """Returns the types of the keys in dictionaries: {1: x}, {1.0: x} and {True: x} are equal."""
    keys = ()
    if spec.type in (dict, collections.OrderedDict):
        keys = spec.context
    elif spec.type is collections.defaultdict:
        keys = spec.context[1]
    if not all(map(is_value, keys)):
        raise Unwatchable("an argument is a dictionary with keys that are no plain values")
    kinds = tuple((type(key), detail(key)) for key in keys)
    return kinds + tuple(kind for child in spec.children() for kind in _kinds_of_keys(child))
