"""Calls registered modules through torch.compile with the backend "djinn"."""

import contextlib
import gc
import threading
import types
import weakref

import torch

from djinn._dynamo.unguarded import Unguarded
from djinn._recording import recording
from djinn._refusals import describe, warn

_NO_GRAPH = "PyTorch's Dynamo finds no graph of operators on the device in it"
# The number of times that a function is traced from the beginning.
_MAX_TRACES = 8
_CHANGES = "it raises errors, or classes and functions that it uses change, again and again"
# The number of consecutive calls without a graph after which the program is warned.
_CALLS_BEFORE_WARNING = 4


def is_module(function):
    """Returns whether a callable is a module or a method of one."""
    return isinstance(getattr(function, "__self__", function), torch.nn.Module)


class TracedCalls:
    """Calls one function or module through torch.compile, and does not keep it alive.

    Thread-safe as far as the function is.
    """

    def __init__(self, name):
        self._name = name
        self._compiled = None
        self._unguarded = None
        # The code objects that were traced.
        self._codes = set()
        # True until the first call of what was compiled has returned.
        self._is_new = False
        # The number of times that the code was traced from the beginning.
        self._traces = 0
        # The captured calls of each graph that the calls execute.
        self._captures = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()
        self._replays = 0
        self._captured = 0
        self._refusal = ""
        # Why Dynamo calls a function as it is, behind a colon.
        self._untraced = ""
        self._calls_in_vain = 0

    def call(self, function, args, kwargs):
        # The operators of a call within a captured function are a part of what is captured.
        compiled = None if recording.active else self._compiled_for(function, args, kwargs)
        if compiled is None:
            return function(*args, **kwargs)
        from djinn._dynamo.backend import thread

        call, outer = _Call(self, _called(function, args)), thread.call
        thread.call = call
        try:
            with _FewCollections() if self._is_new else contextlib.nullcontext():
                return compiled(function, *args, **kwargs)
        except Exception:
            # After an error of the program, Dynamo would never trace this code again.
            self._compiled = None
            raise
        finally:
            thread.call = outer
            self._count(call, function, args, kwargs)

    def _compiled_for(self, function, args, kwargs):
        """Returns torch.compile's form of the function, or None if it must be called as it is."""
        compiled, unguarded = self._compiled, self._unguarded
        if compiled is not None and unguarded.is_as_it_was():
            return compiled
        if self._traces > _MAX_TRACES:
            self._refusal = _CHANGES
            return None
        with self._lock:
            self._traces += 1
            if self._traces > _MAX_TRACES:
                warn(describe(_called(function, args)), _CHANGES, "")
        compiled = _compile()
        self._unguarded = Unguarded(_called(function, args), (args, kwargs), self._codes, unguarded)
        self._is_new = True
        self._compiled = compiled
        return compiled

    def captures_of(self, graph):
        """Returns the captured calls of a graph. Other calls of the graph do not use them."""
        found = self._captures.get(graph)
        if found is None:
            from djinn._dynamo.backend import Captures

            with self._lock:
                found = self._captures.setdefault(graph, Captures(self._name))
        return found

    def statistics(self):
        """Returns a dict of "replays" and "captures", the numbers of calls whose graphs were all
        replayed, and of which one was captured, and "refusal", the reason why a graph of the last
        call was neither, or ""."""
        return {"replays": self._replays, "captures": self._captured, "refusal": self._refusal}

    def forget(self):
        with self._lock:
            captures, self._captures = self._captures, weakref.WeakKeyDictionary()
            self._refusal = ""
        for one in captures.values():
            one.callable.forget()

    def _count(self, call, function, args, kwargs):
        with self._lock:
            self._refusal = call.refusal
            if call.captured:
                self._captured += 1
            elif call.replayed and not call.refusal:
                self._replays += 1
            if call.codes or self._is_new:
                # The call may use other modules than earlier ones, and the first call imports
                # some.
                self._is_new = False
                self._codes |= call.codes
                self._unguarded = Unguarded(
                    _called(function, args), (args, kwargs), self._codes, self._unguarded
                )
            if call.graphs:
                self._calls_in_vain = 0
                return
            if call.untraced:
                self._untraced = f": {call.untraced}"
            self._refusal = refusal = _NO_GRAPH + self._untraced
            self._calls_in_vain += 1
            if self._calls_in_vain != _CALLS_BEFORE_WARNING:
                return
        advice = 'TORCH_LOGS="graph_breaks" says where it stops.'
        warn(describe(_called(function, args)), refusal, advice)


def _called(function, args):
    """Returns the module of a call of torch.nn.Module.__call__, or the function."""
    return args[0] if args and not is_module(function) and is_module(args[0]) else function


class _Call:
    """Counts what the graphs of one call do."""

    def __init__(self, calls, called):
        self.captures_of = calls.captures_of
        self.called = called
        # The numbers of graphs that were executed, and of those replayed and captured.
        self.graphs = 0
        self.replayed = 0
        self.captured = 0
        # The reason why a graph was neither replayed nor captured, or an empty string.
        self.refusal = ""
        # The code objects of graphs that were traced.
        self.codes = set()
        # The reason why Dynamo calls a function as it is, or an empty string.
        self.untraced = ""


class _FewCollections:
    """Makes Python's garbage collector run rarely within the block, in all threads.

    Dynamo makes hundreds of thousands of objects while it traces a model, and keeps most of them.
    """

    # The number of new objects after which the collector runs; Python's default is 700.
    _NEW_OBJECTS = 100_000

    _lock = threading.Lock()
    # The number of blocks that are active, and the thresholds outside them.
    _active = 0
    _before = ()

    def __enter__(self):
        kind = type(self)
        with self._lock:
            kind._active += 1
            if kind._active == 1:
                kind._before = gc.get_threshold()
                # Zero means that the program has switched the collector off.
                if kind._before[0]:
                    gc.set_threshold(max(kind._before[0], self._NEW_OBJECTS))

    def __exit__(self, *raised):
        kind = type(self)
        with self._lock:
            kind._active -= 1
            if not kind._active:
                gc.set_threshold(*kind._before)


def _run(function, /, *args, **kwargs):
    return function(*args, **kwargs)


def _compile():
    """Returns the compiled form of a function that calls its first argument with the others.

    Its code is a copy, because PyTorch limits the recompilations of each code.
    """
    # These imports take a second.
    import torch._dynamo
    from djinn._dynamo.backend import djinn

    run = types.FunctionType(_run.__code__.replace(), globals(), _run.__name__)
    return torch.compile(run, backend=djinn)
