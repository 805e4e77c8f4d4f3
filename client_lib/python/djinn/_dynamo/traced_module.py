"""The results of djinn.compile() for modules and their methods."""

import copy
import functools
import types

import torch

from djinn._dynamo.traced import TracedCalls
from djinn._errors import Error
from djinn._refusals import MAX_WARM_UP_CALLS


class TracedModule:
    """The base of the classes of compiled modules.

    A compiled module is a module of a subclass of the original's class, and has the original's
    dictionary of attributes: parameters, submodules, hooks and plain attributes are the same ones.
    A call of it is traced. Its other methods run as they are, and the calls that they make of it,
    as generate() does, are traced.
    """

    __slots__ = ()

    def __init_subclass__(cls, **kwargs):
        """Hides the subclass from the original's class, which may keep a list of its subclasses."""

    def __call__(self, /, *args, **kwargs):
        if torch.compiler.is_compiling():
            # The module is a part of what is traced.
            return super().__call__(*args, **kwargs)
        return self._djinn_calls.call(self._djinn_module, args, kwargs)

    def __copy__(self):
        return trace_module(self._djinn_module, self._djinn_name)

    def __deepcopy__(self, memo):
        # A copy captures its own calls.
        return trace_module(copy.deepcopy(self._djinn_module, memo), self._djinn_name)

    def __reduce_ex__(self, protocol):
        return trace_module, (self._djinn_module, self._djinn_name)


def trace_module(module, name):
    """Returns a module with the attributes of `module` whose calls are traced.

    Operators of the cluster see the name.
    """
    if isinstance(module, TracedModule):
        module = module._djinn_module
    kind = type(module)
    namespace = {
        "__slots__": ("_djinn_module", "_djinn_name", "_djinn_calls"),
        "__module__": kind.__module__,
        "__qualname__": kind.__qualname__,
        "__doc__": kind.__doc__,
        "__new__": lambda cls, *args, **kwargs: kind.__new__(kind, *args, **kwargs),
        # PyTorch limits the recompilations of each code.
        "__call__": _copy_of(TracedModule.__call__),
    }
    if hasattr(kind, "__del__"):
        # The original cleans up.
        namespace["__del__"] = lambda self: None
    for function in (statistics, warm_up, forget):
        if not hasattr(module, function.__name__):
            namespace[function.__name__] = function
    namespace.update((name, _slot_of_original(name)) for name in _slots_of(kind))
    subclass = types.new_class(
        kind.__name__,
        (TracedModule, kind),
        {"metaclass": _metaclass_of(kind)},
        lambda body: body.update(namespace),
    )
    subclass._djinn_stands_for = kind
    traced = _builtin_base_of(kind).__new__(subclass)
    for attribute, value in (
        ("__dict__", vars(module)),
        ("_djinn_module", module),
        ("_djinn_name", name),
        ("_djinn_calls", TracedCalls(name)),
    ):
        object.__setattr__(traced, attribute, value)
    return traced


def _metaclass_of(kind):
    """Returns a metaclass whose classes stand for `kind`, once they have _djinn_stands_for.

    A program that makes another model of such a class gets one that is not compiled. What it sets
    or deletes in the class, it sets or deletes in `kind`.
    """

    def standing(cls):
        return "_djinn_stands_for" in vars(cls)

    class Metaclass(type(kind)):
        def __call__(cls, *args, **kwargs):
            return kind(*args, **kwargs) if standing(cls) else super().__call__(*args, **kwargs)

        def __setattr__(cls, name, value):
            if standing(cls):
                setattr(kind, name, value)
            else:
                super().__setattr__(name, value)

        def __delattr__(cls, name):
            if standing(cls):
                delattr(kind, name)
            else:
                super().__delattr__(name)

    return Metaclass


def _slots_of(kind):
    """Yields the names of the attributes that instances of `kind` have outside of their dictionary."""
    for base in kind.__mro__:
        for name, member in vars(base).items():
            if isinstance(member, types.MemberDescriptorType) and base.__flags__ & _HEAP_TYPE:
                yield name


def _slot_of_original(name):
    """Returns a property that is the attribute of the model that a compiled module stands for."""
    return property(
        lambda self: getattr(self._djinn_module, name),
        lambda self, value: setattr(self._djinn_module, name, value),
        lambda self: delattr(self._djinn_module, name),
    )


def _builtin_base_of(kind):
    """Returns the class of the interpreter's that lays out instances of `kind`."""
    return next(base for base in kind.__mro__ if not base.__flags__ & _HEAP_TYPE)


# Py_TPFLAGS_HEAPTYPE: the class is made by a program.
_HEAP_TYPE = 1 << 9


class TracedMethod:
    """The result of djinn.compile() for a method of a module."""

    def __init__(self, method, name):
        functools.update_wrapper(self, method)
        self._function = method
        self._name = name
        self._djinn_calls = TracedCalls(name)

    def __reduce__(self):
        # A copy captures its own calls.
        return type(self), (self._function, self._name)

    def __call__(self, /, *args, **kwargs):
        return self._djinn_calls.call(self._function, args, kwargs)

    def statistics(self):
        """See TracedCalls.statistics()."""
        return statistics(self)

    def warm_up(self, /, *args, **kwargs):
        """See warm_up()."""
        return warm_up(self, *args, **kwargs)

    def forget(self):
        """See forget()."""
        forget(self)


def statistics(self):
    """See TracedCalls.statistics()."""
    return self._djinn_calls.statistics()


def warm_up(self, /, *args, **kwargs):
    """Calls a module or method with these arguments until a call is replayed, at most eight times.

    Each call has its full effect. Returns statistics(). Raises djinn.Error with the reason
    NOT_REGISTRABLE, and the refusal, if no call was replayed.
    """
    for _ in range(MAX_WARM_UP_CALLS):
        before = statistics(self)
        self(*args, **kwargs)
        after = statistics(self)
        if after["replays"] > before["replays"]:
            return after
    refusal = statistics(self)["refusal"] or "no graph of its calls is replayed"
    raise Error(refusal, "FAILED_PRECONDITION", "NOT_REGISTRABLE")


def forget(self):
    """Forgets every captured call. Workers stop counting the captured tensors as a model."""
    self._djinn_calls.forget()


def _copy_of(function):
    """Returns a function that is equal to this one, with code of its own."""
    code = function.__code__.replace()
    return types.FunctionType(
        code, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
