"""Registers modules whose calls repeat, if their code has no side effects."""

import io
import logging
import os
import sys
import threading
import types
import weakref

import torch

from djinn import _session
from djinn._compile import CompiledCallable
from djinn._environment import Checks, Environment
from djinn._outside import Unwatchable
from djinn._stable import is_stable_class, is_stable_function, is_stable_module

# The number of a module's calls before it is registered, and the number of
# refusals after which it is never tried again. A replay sets the count of
# refusals back to zero.
_CALLS_BEFORE = 2
_MAX_REFUSALS = 4

# Packages of Python and NumPy whose functions may have side effects.
_PACKAGES_WITH_EFFECTS = (sys.stdlib_module_names | {"numpy"}) - frozenset(
    "abc builtins collections copy dataclasses enum functools inspect itertools math operator "
    "re types typing warnings weakref _thread".split()
)
_EFFECTS = frozenset(
    "__import__ breakpoint compile delattr eval exec exit globals help id input iter locals "
    "memoryview next open print quit setattr vars".split()
)

_DEVICE_TYPE = _session.device().type
_call_as_ever = torch.nn.Module.__call__
_thread = threading.local()


class _Forward:
    """Calls a module without keeping it alive."""

    def __init__(self, module):
        self._module = weakref.ref(module)
        self.__name__ = type(module).__name__

    @property
    def module(self):
        return self._module()

    def __call__(self, *args, **kwargs):
        return _call_as_ever(self._module(), *args, **kwargs)


Environment.transparent[_Forward] = "module"


class _OnlyOperators(Checks):
    """Refuses code that may have side effects."""

    def check(self, thing):
        if isinstance(thing, (logging.Logger, logging.Handler, io.IOBase)):
            raise Unwatchable(f"it refers to a {type(thing).__name__}, whose work would be missed")
        if isinstance(thing, types.BuiltinFunctionType):
            owner = thing.__module__ or type(thing.__self__).__module__
            _check_package(thing.__name__, owner)
        elif isinstance(thing, types.FunctionType):
            if is_stable_function(thing):
                _check_package(thing.__qualname__, thing.__module__)
        elif not isinstance(thing, (type, types.ModuleType)) and is_stable_class(type(thing)):
            _check_package(f"a {type(thing).__name__}", type(thing).__module__)

    def check_code(self, function, names):
        for name in sorted(names.globals):
            if name not in function.__globals__ and name in _EFFECTS:
                raise Unwatchable(f"it uses {name}, which would not happen again")
        if names.assigned_globals:
            name = min(names.assigned_globals)
            raise Unwatchable(f"it assigns the global {name}, which would not happen again")

    def check_module(self, module):
        if is_stable_module(module):
            _check_package(module.__name__, module.__name__)

    def check_import(self, statement):
        module = sys.modules.get(statement.name)
        if not isinstance(module, types.ModuleType) or not is_stable_module(module):
            raise Unwatchable(f"it imports {statement.name}, whose work would be missed")


def _check_package(what, module):
    """Refuses a thing of a package that may have side effects or state."""
    package = (module or "").partition(".")[0]
    if package in _PACKAGES_WITH_EFFECTS:
        raise Unwatchable(f"it refers to {what} of {package}, whose work would be missed")


class _SilentEnvironment(Environment):
    """The environment of a module or an argument. It does not keep the module alive."""

    def __init__(self, function):
        free = weakref.ref(function.module) if isinstance(function, _Forward) else None
        super().__init__(function, _OnlyOperators(), free)


class _AutomaticCallable(CompiledCallable):
    environment_type = _SilentEnvironment

    def _look_around(self):
        try:
            return super()._look_around()
        except BaseException:
            # The last environment may keep the module alive by now.
            self._environment = None
            raise

    def recorded(self):
        """Returns the number of captured calls that can be replayed."""
        return self._recorded


class _Repeating:
    """The state of a module that was called on a device."""

    def __init__(self, module):
        self.module = weakref.ref(module)
        self.calls = 0
        self.replays = 0
        self.recorded = 0
        self.refusals = 0
        self.callable = None

    def __call__(self, module, args, kwargs):
        self.calls += 1
        if self.calls <= _CALLS_BEFORE or self.refusals >= _MAX_REFUSALS:
            return _call_as_ever(module, *args, **kwargs)
        if self.callable is None:
            self.callable = _AutomaticCallable(_Forward(module))
        result = self.callable(*args, **kwargs)
        statistics = self.callable.statistics()
        recorded = self.callable.recorded() > self.recorded
        self.recorded = self.callable.recorded()
        if statistics["replays"] > self.replays:
            self.replays = statistics["replays"]
            self.refusals = 0
        elif statistics["refusal"] and not recorded:
            self.refusals += 1
        return result


# The live modules by id, because modules may be equal or not hashable.
_modules = {}


def _repeating_of(module):
    repeating = _modules.get(id(module))
    if repeating is None:
        repeating = _modules[id(module)] = _Repeating(module)
        weakref.finalize(module, _modules.pop, id(module), None).atexit = False
    return repeating


def _call(self, *args, **kwargs):
    # A module that another module calls is part of that call.
    if (
        torch.is_grad_enabled()
        or getattr(_thread, "inside", False)
        or torch.compiler.is_compiling()
        or not _is_remote(args, kwargs)
    ):
        return _call_as_ever(self, *args, **kwargs)
    repeating = _repeating_of(self)
    _thread.inside = True
    try:
        return repeating(self, args, kwargs)
    finally:
        _thread.inside = False


def _is_remote(args, kwargs):
    for thing in (*args, *kwargs.values()):
        if isinstance(thing, torch.Tensor):
            return thing.device.type == _DEVICE_TYPE
    return False


def set_automatic_registration(on):
    """Sets whether modules whose calls repeat are registered automatically.

    The registration is that of djinn.compile(). It applies to the outermost module that is
    called with a tensor on the device while gradients are off. A module is not registered if
    djinn.compile() would refuse it, or if its code may have side effects: it prints, logs, or
    uses files, clocks or Python's random numbers. DJINN_AUTOMATIC_REGISTRATION=1 enables it
    initially.
    """
    torch.nn.Module.__call__ = _call if on else _call_as_ever


def begin():
    """Applies DJINN_AUTOMATIC_REGISTRATION."""
    value = os.environ.get("DJINN_AUTOMATIC_REGISTRATION", "0")
    if value not in ("0", "1"):
        raise ImportError(f"DJINN_AUTOMATIC_REGISTRATION is {value!r}: it must be 0 or 1")
    set_automatic_registration(value == "1")


def registered_modules():
    """Returns (module, statistics) for each module that was tried; see djinn.compile()."""
    return [
        (module, repeating.callable.statistics())
        for repeating in list(_modules.values())
        if repeating.callable is not None and (module := repeating.module()) is not None
    ]
