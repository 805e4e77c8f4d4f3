"""Finds and watches everything that a function refers to besides its arguments.

The search raises Unwatchable for a thing whose changes would not be seen.
"""

import abc
import functools
import inspect
import logging
import types
import weakref

import torch

from djinn._registered.classes import Classes
from djinn._registered.functions import Functions
from djinn._registered.libraries import Libraries
from djinn._registered.modules import Modules
from djinn._registered.numbers import find_optimizers, is_scheduler
from djinn._registered.objects import Objects, look_at_logger
from djinn._registered.operators import OPERATORS, watch_operator
from djinn._registered.outside import Unwatchable, check_is_watchable
from djinn._registered.receivers import Receivers
from djinn._registered.special import (
    ASKED,
    OPAQUE,
    READS,
    check_bounds,
    check_together,
    make_any_class,
    may_read_variables,
)
from djinn._stable import BOUND, is_of_library, is_stateless, is_stable_class
from djinn._registered.tensors import Tensors
from djinn._registered.values import is_value
from djinn._registered.watch import Watch

_MAX_THINGS = 100_000


class Environment(Watch):
    """Everything that `function` refers to, as it is now.

    If `varies`, the floats of optimizers are left out (numbers.py).
    """

    # The classes of callables that stand for the function in the named attribute.
    transparent = {}

    def __init__(self, function, varies=False):
        search = self._search(function, varies)
        self.optimizers = None
        if varies and not search.reads_variables:
            self.optimizers = find_optimizers(
                self, search.things(), search.attributes(), search.schedulers
            )
        if self.optimizers is None and search.schedulers:
            search = self._search(function, False)
        # The random generators of this process. Their states show whether a call used them.
        self.generators = search.generators
        # True if some of the code may read its callers' variables.
        self.reads_variables = search.reads_variables
        if self.optimizers is not None:
            self.leave_out(self.optimizers.places())

    def _search(self, function, leaves_schedulers):
        super().__init__()
        search = _Search(self, self.transparent, leaves_schedulers)
        search.look_through(function)
        return search

    def numbers(self):
        """Returns the numbers of optimizers, as Optimizers.read() does."""
        return ((), ()) if self.optimizers is None else self.optimizers.read()


class _Pending:
    """The things and classes that were found and not looked at yet."""

    def __init__(self):
        self.things = []
        # The classes of objects that were found. Code may not call their constructors.
        self.kinds = []


class _Search:
    """Fills `watch` with everything that a function refers to."""

    def __init__(self, watch, transparent, leaves_schedulers):
        self.generators = []
        # The schedulers whose state was left out.
        self.schedulers = []
        self._leaves_schedulers = leaves_schedulers
        self.reads_variables = False
        self._watch = watch
        self._transparent = transparent
        # The things that were found, by id. The reference keeps the id from being reused.
        self._seen = {}
        self._asks_abstract_classes = False
        pending = self._pending = _Pending()
        self._tensors = Tensors(watch, pending)
        self._libraries = Libraries(watch, pending)
        self._classes = Classes(watch, pending, self._libraries)
        self._modules = Modules(watch, pending, self._libraries)
        self._functions = Functions(watch, pending, self._libraries, self._modules)
        self._objects = Objects(watch, pending)
        self._receivers = Receivers(watch, pending)

    def look_through(self, function):
        self._pending.things.append(function)
        self._look_at_pending()
        functions, named = self._functions, None
        # The last things that were found may contain names that apply to things found before.
        while True:
            if not self._classes.look_at_those_called(self._calls_any_class()):
                if named == (named := self._count()):
                    break
                self._modules.look_at_kept(functions.names())
                self._tensors.look_at_classes(functions.attributes, functions.searches)
                self._receivers.look_at_named(functions.attributes, functions.searches)
            self._look_at_pending()
        if self._asks_abstract_classes or self._libraries.asks_abstract_classes:
            self._watch.add_read(abc.get_cache_token)
        self._objects.check_references()
        check_together(self._seen, self.generators, functions.attributes)
        self.reads_variables = functions.searches or may_read_variables(
            self._seen, functions.attributes
        )

    def things(self):
        """Returns everything that was found."""
        return list(self._seen.values())

    def attributes(self):
        """Returns the names of attributes in the code that was looked through."""
        return self._functions.attributes

    def _count(self):
        """Returns counts that grow if there is more to look at."""
        kept = self._modules.count_of_kept()
        return kept, self._receivers.count(), self._functions.count_of_named()

    def _calls_any_class(self):
        return "__class__" in self._functions.attributes or make_any_class(self._seen)

    def _look_at_pending(self):
        seen, pending = self._seen, self._pending
        while pending.things or pending.kinds:
            if pending.kinds:
                self._classes.look_at(pending.kinds.pop())
                continue
            thing = pending.things.pop()
            if id(thing) in seen:
                continue
            seen[id(thing)] = thing
            if len(seen) > _MAX_THINGS:
                raise Unwatchable("it refers to more things than can be watched")
            self._look_at(thing)

    def _look_at(self, thing):
        if thing.__class__ is not type(thing):
            # A proxy claims another class, and has the state of another object.
            claimed = thing.__class__.__name__
            raise Unwatchable(f"it refers to a {type(thing).__name__} that says it is a {claimed}")
        check_is_watchable(thing)
        check_bounds(thing)
        self._asks_abstract_classes |= isinstance(thing, abc.ABCMeta)
        things = self._pending.things
        if isinstance(thing, torch.Tensor):
            self._tensors.look_at(thing)
        elif isinstance(thing, logging.Logger):
            look_at_logger(self._watch, thing)
        elif self._leaves_schedulers and is_scheduler(thing):
            self.schedulers.append(thing)
            self._watch.add_class_of(thing)
            self._pending.kinds.append(type(thing))
            things.append(thing.optimizer)
        elif is_value(thing) or isinstance(thing, OPAQUE):
            if isinstance(thing, torch.Generator) and thing.device.type == "cpu":
                self.generators.append(thing)
            if isinstance(thing, logging.Handler):
                self._watch.add_value_item(vars(thing), "level")
            if not is_value(thing) and not is_stable_class(type(thing)):
                self._objects.look_at_attributes(thing)
        elif isinstance(thing, BOUND):
            # A builtin function or method, such as `{}.get`.
            if not is_stateless(thing.__self__):
                things.append(thing.__self__)
        elif isinstance(thing, weakref.ref):
            self._objects.look_at_reference(thing)
        elif name := next(filter(None, map(self._transparent.get, type(thing).__mro__)), None):
            things.append(getattr(thing, name))
        elif isinstance(thing, functools.partial):
            things += [thing.func, thing.args, thing.keywords]
            self._objects.look_at_attributes(thing)
        elif isinstance(thing, types.MethodType):
            self._receivers.look_at_method(thing)
        elif id(thing) in ASKED:
            self._watch.add_read(thing)
        elif id(thing) in READS:
            things.append(READS[id(thing)])
        elif isinstance(thing, types.FunctionType):
            self._functions.look_at(thing)
        elif isinstance(thing, (staticmethod, classmethod)):
            things.append(thing.__func__)
            self._look_at_descriptor(thing)
        elif isinstance(thing, slice):
            things += [thing.start, thing.stop, thing.step]
        elif isinstance(thing, property):
            things += [thing.fget, thing.fset, thing.fdel]
            self._look_at_descriptor(thing)
        elif isinstance(thing, type):
            self._classes.look_at(thing)
            self._classes.look_at_constructors(thing)
        elif isinstance(thing, OPERATORS):
            things += watch_operator(self._watch, thing)
            self._objects.look_at(thing)
        elif isinstance(thing, types.ModuleType):
            self._modules.keep(thing)
        elif isinstance(thing, functools._lru_cache_wrapper):
            if not is_of_library(inspect.unwrap(thing)):
                raise Unwatchable("it refers to a cache of calls, which cannot be watched")
        else:
            self._objects.look_at(thing)

    def _look_at_descriptor(self, thing):
        """Looks at the attributes that a program's class of descriptors adds."""
        if not is_stable_class(type(thing)):
            self._objects.look_at_attributes(thing)
