"""Watches what a program may change in libraries, whose own code is assumed to stay.

A program may replace the attributes of modules and classes that code names, and change the
collections and the switches that libraries have for programs.
"""

import abc
import collections
import inspect
import logging
import os
import sys
import types

import torch

from djinn import _device_module
from djinn._registered.classes import OF_CREATION
from djinn._registered.contents import MAPPINGS, watch_class_item, watch_items, watch_keys
from djinn._registered.names import names_in
from djinn._registered.operators import OPERATORS, find_operators, watch_operator
from djinn._registered.outside import check_is_watchable
from djinn._registered.special import SPECIAL
from djinn._stable import (
    contents_of,
    is_of_library,
    is_changeable,
    is_stable_function,
    package_of_module,
)
from djinn._registered.values import ABSENT, is_value

_GLOBAL_HOOKS = [
    hooks
    for module in (torch.nn.modules.module, sys.modules[torch.optim.Optimizer.__module__])
    for name, hooks in vars(module).items()
    if name.startswith("_global_") and isinstance(hooks, dict)
]
# The class of the modules of torch.backends, and the classes that it derives from.
_WITH_SWITCHES = torch.backends.PropModule
_OF_MODULES = _WITH_SWITCHES.__mro__
# Modules that belong to a library although their names say another package.
_UNDER_OTHER_NAMES = (os.path, _device_module)
# Types of collections whose contents are watched in a library's modules.
_COLLECTIONS = (list, collections.abc.Mapping)


class Libraries:
    """Adds things in libraries to `watch`, and those that programs put there to `pending`."""

    def __init__(self, watch, pending):
        self._watch = watch
        self._pending = pending
        # The watched modules, each with names and trust; see look_at_module().
        self._seen_modules = set()
        self._seen_collections = {}
        # True if code names an abstract class. The result of isinstance() changes when a program
        # registers another class for it.
        self.asks_abstract_classes = False
        for hooks in _GLOBAL_HOOKS:
            pending.things += watch_items(watch, hooks)

    def look_at_module(self, module, names, *, trusted=False):
        """Watches the attributes of a module that have these names.

        If `trusted`, a library's own code names them.
        """
        if (id(module), names, trusted) in self._seen_modules:
            return
        self._seen_modules.add((id(module), names, trusted))
        self._watch.add_class_of(module)
        if not trusted:
            find_operators(module, names.attributes)
        contents = module.__dict__
        if isinstance(module, _WITH_SWITCHES):
            self._look_at_switches(module, names)
        for name in names.attributes:
            thing = contents.get(name)
            if name not in contents:
                if name in names.sought_attributes:
                    self._watch.add_item(contents, name, ABSENT)
            elif not isinstance(thing, types.ModuleType):
                self._look_at_item(contents, name, trusted)
                if isinstance(thing, type) and not trusted:
                    self._look_at_attributes(thing, names)
            else:
                self._watch.add_item(contents, name, thing)
                # A module of another package that the library merely uses is not watched.
                same = package_of_module(thing) == package_of_module(module)
                if same or thing in _UNDER_OTHER_NAMES:
                    self.look_at_module(thing, names, trusted=trusted)

    def look_at_function(self, function):
        """Looks at the closure of a library's function: things in it may be the program's."""
        for thing in contents_of(function):
            if not is_of_library(thing, inside=True):
                self._pending.things.append(thing)
            elif type(thing) in (dict, list):
                # A function may depend on a collection, as singledispatch does on its registry.
                self._look_at_collection(thing)

    def look_at_class(self, kind):
        """Watches the members of a library's class: a program may replace methods."""
        if not is_changeable(kind):
            return
        self._watch.add_members(kind)
        self._pending.kinds += kind.__bases__
        for member in kind.__dict__.values():
            if not is_of_library(member):
                self._pending.things.append(member)
        if issubclass(kind, collections.abc.Mapping):
            for name, member in kind.__dict__.items():
                if isinstance(member, (dict, list)) and name not in OF_CREATION:
                    self._look_at_collection(member)
        if issubclass(kind, torch.nn.Module):
            forward = inspect.unwrap(kind.__dict__.get("forward"))
            if isinstance(forward, types.FunctionType) and is_stable_function(forward):
                self._look_at_names(forward)

    def _look_at_names(self, function):
        """Watches the things that a library's function names, such as F.relu."""
        names = names_in(function.__code__)
        variables = function.__globals__
        for name in names.globals & variables.keys():
            thing = variables[name]
            if isinstance(thing, types.ModuleType):
                self._watch.add_item(variables, name, thing)
                self.look_at_module(thing, names, trusted=True)
            else:
                self._look_at_item(variables, name, trusted=True)

    def _look_at_item(self, contents, name, trusted):
        thing = contents[name]
        if is_value(thing):
            self._watch.add_value_item(contents, name)
            return
        self._watch.add_item(contents, name, thing)
        if not is_of_library(thing):
            self._pending.things.append(thing)
        elif trusted:
            if isinstance(thing, _COLLECTIONS):
                self._look_at_collection(thing)
        elif isinstance(thing, OPERATORS):
            self._pending.things += watch_operator(self._watch, thing)
        else:
            check_is_watchable(thing)
            # An alias of the module typing stands for its origin.
            kind = getattr(thing, "__origin__", thing)
            self.asks_abstract_classes |= isinstance(kind, abc.ABCMeta)
            if id(thing) in SPECIAL or isinstance(thing, (*_COLLECTIONS, set, logging.Logger)):
                self._pending.things.append(thing)

    def _look_at_attributes(self, kind, names):
        """Watches the attributes of a class that have these names."""
        for name in names.attributes:
            is_there = any(name in vars(base) for base in kind.__mro__)
            if not is_there and name not in names.sought_attributes:
                continue
            for base in filter(is_changeable, kind.__mro__):
                contents = base.__dict__
                if name not in OF_CREATION or is_value(contents.get(name, ABSENT)):
                    members = watch_class_item(self._watch, contents, name)
                    self._pending.things += [one for one in members if not is_of_library(one)]
                if name in contents:
                    break

    def _look_at_switches(self, module, names):
        """Watches the attributes that ask PyTorch, such as torch.backends.cudnn.allow_tf32."""
        for name in names.attributes:
            if any(name in vars(kind) for kind in type(module).__mro__[: -len(_OF_MODULES)]):
                if is_value(getattr(module, name)):
                    self._watch.add_read(getattr, module, name)

    def _look_at_collection(self, collection):
        """Watches a collection of a library, and looks at things that a program put there."""
        if id(collection) in self._seen_collections:
            return
        self._seen_collections[id(collection)] = collection
        if isinstance(collection, list):
            self._watch.add_length(collection)
            for index, thing in enumerate(collection):
                self._watch.add_element(collection, index, thing)
                self._look_at_content(thing)
        elif isinstance(collection, dict):
            for key in watch_keys(self._watch, collection):
                self.asks_abstract_classes |= isinstance(key, abc.ABCMeta)
                thing = dict.get(collection, key)
                self._watch.add_item(collection, key, thing)
                self._look_at_content(thing)
        if type(collection) is not list and type(collection) not in MAPPINGS:
            # Some collections, such as those of transformers, hold some entries themselves and
            # others in a class.
            self._pending.kinds.append(type(collection))
            for thing in list(getattr(collection, "__dict__", {}).values()):
                if isinstance(thing, (dict, list)):
                    self._look_at_collection(thing)

    def _look_at_content(self, thing):
        if isinstance(thing, _COLLECTIONS):
            self._look_at_collection(thing)
        elif not is_value(thing) and not is_of_library(thing):
            self._pending.things.append(thing)
