"""Registers functions and modules whose calls repeat."""

import functools

import torch

from djinn._dynamo.traced import TracedCalls, is_module
from djinn._dynamo.traced_module import TracedMethod, TracedModule, trace_module
from djinn._registered.compiled import CompiledCallable
from djinn._registered.environment import Environment

Environment.transparent[CompiledCallable] = "_function"
Environment.transparent[TracedMethod] = "_function"
Environment.transparent[TracedModule] = "_djinn_module"


def _name_of(function):
    """Returns the name that operators of the cluster see: the function's, or the module's class."""
    return getattr(function, "__qualname__", None) or getattr(
        function, "__name__", type(function).__name__
    )


def compile(function):
    """Registers a function or module whose calls repeat, and returns what to call instead.

    Its calls are captured. Once two consecutive calls have been captured with equal results,
    later ones are replayed on the worker, and the function's Python code does not run.

        @djinn.compile
        def step(inputs, labels):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(inputs), labels)
            loss.backward()
            optimizer.step()
            return loss.detach()

    The function must only call operators on one device, and these must depend only on the
    metadata of its arguments and on the objects that it refers to: modules, optimizers,
    tensors and plain values in its closure, its defaults and the globals that it names. Djinn
    inspects these before every call, and a change of them, such as eval(), makes another call.
    The floats of PyTorch's optimizers and their counts of steps may differ. If Djinn detects
    something that it cannot replay (a value that is read, a shape that depends on data, a tensor
    of this process that is used), it calls the function as if it were not registered, and
    statistics()["refusal"] gives the reason. Side effects that it cannot detect, such as a print,
    do not happen in a replay.

    A module, or a method of one, is traced by torch.compile(backend="djinn") instead. So is a
    function that names a module and refers to something that Djinn cannot inspect, unless it
    computes gradients. The result for a module is a module with the same attributes, of a subclass
    of its class. It has statistics(), warm_up() and forget() as well.

    Raises TypeError if `function` is not callable.
    """
    if not callable(function):
        raise TypeError(f"djinn.compile() needs a callable, got {function!r}")
    name = _name_of(function)
    if isinstance(function, torch.nn.Module):
        return trace_module(function, name)
    if is_module(function):
        return TracedMethod(function, name)
    return CompiledCallable(function, name, functools.partial(TracedCalls, name))


def register_model(model, name=None):
    """Registers a module as compile() does, under a name, and returns what to call instead.

    `djinnctl get models` shows the tensors that the module captures on a worker under this
    name, which is the module's class by default. Raises TypeError if `model` is not a
    torch.nn.Module.
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"djinn.register_model() needs a torch.nn.Module, got {model!r}")
    return trace_module(model, _name_of(model) if name is None else name)
