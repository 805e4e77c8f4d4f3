"""Captures the calls of a registered function, and replays them."""

import contextlib
import ctypes
import enum
import functools
import itertools
import random
import sys
import threading
import types

import torch
from torch.nn.utils import parametrize
from torch.utils import _pytree
from torch.utils._device import DeviceContext

from djinn import _capture, _djinn
from djinn._autocast import begin_in_this_thread
from djinn._errors import Error
from djinn._recording import recording
from djinn._refusals import MAX_WARM_UP_CALLS, NEVER_ALIKE, Differences, is_silent, warn
from djinn._refusals import describe as describe_function
from djinn._registered.arguments import Arguments, Unread
from djinn._registered.caches import describe_value, is_cache
from djinn._registered.conditions import Answers, Questions, can_be_asked, describe
from djinn._registered.environment import Environment
from djinn._registered.names import names_in
from djinn._registered.numbers import Program
from djinn._registered.outputs import Given, take_apart
from djinn._registered.outside import Unwatchable
from djinn._registered.values import is_value
from djinn._stable import contents_of

# Keys are never reused, because captured graphs outlive the dictionaries of keys.
_numbers = itertools.count(1)
_MAX_KEYS = 1024
# A number of skipped calls after which the next call is captured in any case.
_WANTED = 1 << 20
# The number of consecutive refusals after which calls are skipped.
_CALLS_IN_VAIN = 4
# The largest numbers of calls to skip: for a callable without replays, and for one with replays.
_MOST_CALLS_TO_WAIT, _MOST_GOOD_CALLS_TO_WAIT = 64, 8
# The number of consecutive refusals after which the program is warned.
_CALLS_BEFORE_WARNING = 2
# The beginning of the session's refusal of a call that reads a value.
_READS_A_VALUE = "it reads a value from the device"
# The attributes that only steps name.
_OF_STEPS = frozenset(("backward", "grad", "step", "zero_grad"))
# The Python whose bytecode names.py knows.
_KNOWN_PYTHON = (3, 11)
_OTHER_PYTHON = "Djinn inspects functions, and with them training steps, on Python 3.11 alone"
# The refusal if too many calls differed from all earlier ones.
_CHANGES = "it changes what it refers to, or its arguments"
_UNKNOWN_NUMBERS = (
    "its optimizer's numbers differ at each call, and it does more with them than the optimizer"
)
# The number of captures with unlike calculations after which numbers become parts of the key.
_MAX_OTHER_PROGRAMS = 8
# The number of forms of one function up to which forgotten ones are not looked for.
_MIN_FORMS = 64


class CompiledCallable:
    """The result of djinn.compile(). It is called with the function's arguments.

    Thread-safe as far as the function is.
    """

    def __init__(self, function, name, make_traced):
        """`make_traced` makes the traced calls of a function whose surroundings cannot be watched."""
        functools.update_wrapper(self, function, updated=())
        self._function = function
        self._make_traced = make_traced
        self._callable = _djinn.RegisteredCallable(name)
        # True if the callable decorates a method, whose first argument is the object.
        self._is_method = False
        # Counts the environments that differ from the one before. The count at
        # that time is the environment's number.
        self._environments = 0
        # Maps each captured graph to the function that gives the graph's outputs their form. To
        # forget forms, the whole dictionary is replaced. A thread that found a captured graph
        # just before finds its form in the previous dictionary.
        self._forms = {}
        self._former_forms = {}
        # The number of forms above which those of forgotten captured graphs are dropped.
        self._most_forms = _MIN_FORMS
        self._lock = threading.Lock()
        # The number of calls that were skipped since the last begin().
        self._calls_eager = 0
        self._is_warned = False
        self._differences = Differences()
        self._start_over()

    def _start_over(self):
        """Sets the state of a callable that has captured nothing, besides its forms."""
        self._environment = None
        self._arguments = Arguments()
        # A short key for every known combination of values.
        self._keys = {}
        # The keys of calls that read values.
        self._reading = {}
        # The Answers (conditions.py) of such calls, by key and description of the tensors.
        self._answers = {}
        # The programs of captured graphs with numbers that vary, and whether such are captured.
        self._programs = {}
        self._varies = True
        # True if optimizers' numbers vary, and how others follow from them is not known.
        self._has_unknown_numbers = False
        # The number of captures that calculated otherwise than the equal one before.
        self._other_programs = 0
        self._refusal = ""
        # The number of next calls to skip, and of consecutive captures without a result.
        self._calls_to_wait = 0
        self._calls_in_vain = 0
        # The TracedCalls that call the function from now on, or None.
        self._traced = None

    def __call__(self, /, *args, **kwargs):
        begin_in_this_thread()
        prepared = None if self._traced else self._prepare(args, kwargs)
        if prepared is None:
            # Another thread may forget it in the meantime.
            traced = self._traced
            return traced.call(self._function, args, kwargs) if traced else self._function(*args, **kwargs)
        environment, call, places, _, leaves = prepared
        # Another thread may replace the dictionary in the meantime.
        forms = self._forms
        answers = None
        if call[0] in self._reading:
            answers = self._ask(call)
            if answers is None:
                return self._function(*args, **kwargs)
            call = (answers.key, *call[1:])
        found = self._replay(environment, call, leaves)
        if found is not None:
            self._calls_in_vain = 0
            captured_graph, outputs = found
            form = forms.get(captured_graph)
            if form is None:
                with self._lock:
                    form = self._forms.get(captured_graph) or self._former_forms[captured_graph]
            return form(outputs, places)
        eager, self._calls_eager = self._calls_eager, 0
        optimizers = environment.optimizers
        counters = None if optimizers is None else optimizers.counters
        self._differences.look_at(call[0], call[1])
        if not self._callable.begin(*call, eager, counters):
            if self._callable.statistics()[2] == NEVER_ALIKE:
                self._wait(_MOST_GOOD_CALLS_TO_WAIT)  # Some calls in between may recur.
                if not self._is_warned:
                    self._is_warned = True
                    refusal = self._differences.describe()
                    if self._has_unknown_numbers:
                        refusal = _UNKNOWN_NUMBERS
                    warn(describe_function(self._function), refusal)
            return self._function(*args, **kwargs)
        if answers is None:
            result, is_refused = self._capture(prepared, args, kwargs, self._function)
            if is_refused and self._reads_values() and can_be_asked(environment):
                with self._lock:
                    _make_room(self._reading, _MAX_KEYS)
                    self._reading[call[0]] = True
            return result
        prepared = environment, call, *prepared[2:]
        return self._capture_asking(prepared, answers, args, kwargs)

    def __set_name__(self, owner, name):
        qualified_name = getattr(self._function, "__qualname__", None)
        self._is_method = qualified_name == f"{owner.__qualname__}.{name}"

    def __get__(self, instance, owner=None):
        if instance is None or not self._is_method:
            return self
        raise TypeError(
            f"djinn.compile() cannot decorate {self._function.__name__}, a method of "
            f"{type(instance).__name__}: compile the object, djinn.compile(model), or its "
            "bound method"
        )

    def statistics(self):
        """Returns a dict of "replays" and "captures", the numbers of calls that were replayed and
        captured, and "refusal", the reason why the last call was not registered, or ""."""
        traced = self._traced
        if traced is not None:
            return traced.statistics()
        replays, captures, refusal = self._callable.statistics()
        return {
            "replays": replays,
            "captures": captures,
            "refusal": self._refusal or refusal,
        }

    def warm_up(self, /, *args, **kwargs):
        """Calls the function with these arguments until a call is replayed, at most eight times.

        Each call has its full effect: a training step trains, and a generator draws. A call
        receives the arguments as the one before left them. Tensors that were the same in all
        captured calls are assumed to stay the same, so a call on other tensors is captured once
        more unless another warm-up has used other tensors. Returns statistics(). Raises
        djinn.Error with the reason NOT_REGISTRABLE, and the refusal, if no call was replayed.
        """
        for _ in range(MAX_WARM_UP_CALLS):
            before = self.statistics()
            self._calls_to_wait, self._calls_eager = 0, _WANTED
            self(*args, **kwargs)
            after = self.statistics()
            if after["replays"] > before["replays"]:
                return after
            if after["captures"] == before["captures"]:
                # A further call would show nothing new.
                break
        refusal = self.statistics()["refusal"] or "no call equals the one before"
        raise Error(refusal, "FAILED_PRECONDITION", "NOT_REGISTRABLE")

    def forget(self):
        """Forgets every captured call, so that calls are captured again.

        Workers stop counting the captured tensors as a model.
        """
        with self._lock:
            traced = self._traced
            self._former_forms, self._forms = self._forms, {}
            self._start_over()
        self._callable.forget()
        if traced is not None:
            traced.forget()

    def _replay(self, environment, call, leaves):
        if environment.optimizers is None:
            return self._callable.replay(*call)

        program = None

        def values(captured_graph):
            nonlocal program
            program = self._programs.get(captured_graph)
            return None if program is None else program.calculate(leaves)

        found = self._callable.replay(*call, values)
        if found is not None:
            environment.optimizers.count(program.increments, program.products)
            for scheduler in program.schedulers:
                scheduler.step()
        return found

    def _learn(self, captured_graph, tracing):
        """Learns from a capture how its numbers follow from those of optimizers.

        The caller holds the lock.
        """
        bits, predecessor = self._callable.numbers_of(captured_graph)
        program = Program(
            tracing.tape, tracing.increments, bits, tracing.stepped, tracing.products
        )
        before = self._programs.get(predecessor)
        is_like = before is not None and program.is_like(before)
        self._other_programs += before is not None and not is_like
        if (
            tracing.tape.is_lost
            or self._other_programs > _MAX_OTHER_PROGRAMS
            or (is_like and not program.meet(before))
        ):
            # From now on, a call with other numbers is another call.
            self._varies = False
            self._has_unknown_numbers = True
            self._environment = None
            self._programs = {}
            return
        self._programs[captured_graph] = program
        if is_like:
            self._callable.vary(captured_graph, program.places())

    def _capture_asking(self, prepared, answers, args, kwargs):
        call = prepared[1]
        questions = Questions(answers, *call[1:])

        def function(*args, **kwargs):
            try:
                with questions:
                    return self._function(*args, **kwargs)
            finally:
                # The captured graph refuses tensors that stay alive.
                questions.forget_tensors()

        result, _ = self._capture(prepared, args, kwargs, function, questions.is_as_expected)
        answers.learn(questions.reads)
        return result

    def _ask(self, call):
        """Returns the call's Answers, or None if the call must not be registered."""
        key, tensors, _ = call
        described = key, describe(tensors)
        with self._lock:
            answers = self._answers.get(described)
            if answers is None:
                _make_room(self._answers, _MAX_KEYS)
                answers = self._answers[described] = Answers(key)
        try:
            known = answers.of(tensors)
        except RuntimeError:
            # The function itself reports what is wrong with the values.
            return None
        if known is None:
            self._refusal = "it reads too many different values"
        return known

    def _reads_values(self):
        return self._callable.statistics()[2].startswith(_READS_A_VALUE)

    def _capture(self, prepared, args, kwargs, function, is_as_expected=lambda: True):
        """Returns the function's result, and whether the session refused the captured graph."""
        environment, call, places, values, leaves = prepared
        optimizers = environment.optimizers
        tracing = None if optimizers is None else optimizers.trace(leaves)
        try:
            given = Given(places)
            before = self._world(prepared, args, kwargs)
            with tracing or contextlib.nullcontext(), recording.capture():
                result = function(*args, **kwargs)
            outputs, form = take_apart(result, environment, given)
            # The call may create state that the next call refers to, such as an optimizer's.
            changed = environment.changed()
            self._refusal = ""
            if form is None:
                self._refusal = outputs
            elif lost := _class_that_is_lost(outputs, args, kwargs):
                self._refusal = f"it returns a {lost.__name__}"
            elif changed or before != self._world(prepared, args, kwargs):
                self._refusal = _UNKNOWN_NUMBERS if self._has_unknown_numbers else _CHANGES
            elif before[0] != values:
                # These values are part of the key.
                self._refusal = "what it refers to was changed while it was called"
            elif not is_as_expected():
                self._refusal = "equal calls issued different operators"
        except BaseException:
            self._callable.abandon()
            raise
        if self._refusal:
            self._callable.abandon()
            self._wait()
            self._warn()
            return result, False
        with self._lock:
            captured_graph = self._callable.end(outputs)
            if captured_graph:
                self._calls_in_vain = 0
                self._forms[captured_graph] = form
                if tracing is not None:
                    self._learn(captured_graph, tracing)
                if len(self._forms) > self._most_forms:
                    self._drop_forms()
        if not captured_graph:
            self._warn()
        return result, not captured_graph

    def _wait(self, most=None):
        """Skips calls after a fruitless capture: inspecting may take longer than the function."""
        self._calls_in_vain += 1
        doublings = self._calls_in_vain - _CALLS_IN_VAIN
        if most is None:
            # Calls that can be replayed may be among the skipped ones.
            replays = self._callable.statistics()[0]
            most = _MOST_GOOD_CALLS_TO_WAIT if replays else _MOST_CALLS_TO_WAIT
        self._calls_to_wait = min(2**doublings, most) if doublings > 0 else 0

    def _drop_forms(self):
        """Drops the forms of forgotten captured graphs. The caller holds the lock."""
        forms = self._former_forms = self._forms
        kept = self._callable.captured_graphs()
        self._forms = {number: forms[number] for number in kept if number in forms}
        self._programs = {one: self._programs[one] for one in kept if one in self._programs}
        self._most_forms = max(_MIN_FORMS, 2 * len(self._forms))

    def _world(self, prepared, args, kwargs):
        """Returns the state in this process that a registered call must not change."""
        environment, (_, tensors, _), places, _, _ = prepared
        leaves, spec = _pytree.tree_flatten((args, kwargs), is_leaf=is_cache)
        things = [(id(leaf), leaf if is_value(leaf) else None) for leaf in leaves]
        classes = {type(leaf) for leaf in leaves if isinstance(leaf, enum.Enum)}
        classes.update(type(place) for place in places if is_cache(place))
        numpy = sys.modules.get("numpy")
        return (
            environment.values(),
            spec,
            things,
            [_attributes_of(tensor) for tensor in tensors],
            [self._arguments.look_at_class(kind) for kind in classes],
            # To C++, all hooks in one dictionary are one hook.
            [_count_of_hooks(tensor) for tensor in tensors],
            random.getstate(),
            _state_of_numpy(numpy) if numpy else None,
            [_state_of(generator) for generator in environment.generators],
        )

    def _prepare(self, args, kwargs):
        """Returns (environment, call, places among the arguments, values in the environment,
        numbers of optimizers), or None if the call must not be registered.

        The call is (key, input tensors, captured tensors).
        """
        if sys.version_info[:2] != _KNOWN_PYTHON:
            return self._refuse(_OTHER_PYTHON)
        modes = _modes()
        if modes is None:
            self._refusal = "a mode or a trace sees every call"
            return None
        if parametrize._cache_enabled:
            self._refusal = "parametrizations are cached: their results outlast the call"
            return None
        # The count may become negative, because threads count without a lock.
        if self._calls_to_wait > 0:
            self._calls_to_wait -= 1
            self._calls_eager += 1
            return None
        try:
            environment, values, (leaves, kinds) = self._surroundings()
        except Exception as error:  # Properties may raise any exception.
            if isinstance(error, Unwatchable) and self._may_be_traced():
                self._traced = self._make_traced()
                return None
            return self._refuse(str(error))
        if not kwargs and all(type(arg) is torch.Tensor for arg in args):
            tensors, form, places = list(args), len(args), ()
        else:
            try:
                tensors, form, places = self._arguments.take_apart(
                    *environment.unread.leave_out(args, kwargs)
                )
            except Unwatchable as error:
                return self._refuse(str(error))
        if any(map(environment.holds, places)):
            return self._refuse("an argument is a cache that the function refers to")
        if any(tensor.requires_grad and any(_count_of_hooks(tensor)) for tensor in tensors):
            return self._refuse("an argument has hooks")
        marks = ()
        if any(map(vars, tensors)):
            marks = tuple(map(_attributes_of, tensors))
            if None in marks:
                return self._refuse("an argument has attributes that are no plain values")
        combination = (form, marks, environment.number, values, kinds, modes, _settings())
        key = self._keys.get(combination)
        if key is None:
            with self._lock:
                _make_room(self._keys, _MAX_KEYS)
                key = self._keys.setdefault(combination, str(next(_numbers)))
        return environment, (key, tensors, environment.tensors), places, values, leaves

    def _may_be_traced(self):
        """Returns whether the function's own code names a module, and computes no gradients."""
        function = self._function
        if not isinstance(function, types.FunctionType):
            return False
        names = names_in(function.__code__)
        things = [function.__globals__.get(name) for name in names.globals]
        things += [*contents_of(function), *(function.__defaults__ or ())]
        is_around_a_model = any(isinstance(thing, torch.nn.Module) for thing in things)
        return is_around_a_model and _OF_STEPS.isdisjoint(names.attributes)

    def _refuse(self, why):
        """Notes why a call is not registered. Returns None, as _prepare() does then."""
        self._refusal = why
        self._wait()
        self._warn()

    def _warn(self):
        """Warns at the second refusal: the first call may create state that later calls use."""
        refusal = self.statistics()["refusal"]
        if self._calls_in_vain == _CALLS_BEFORE_WARNING and not self._is_warned:
            if not is_silent(refusal):
                self._is_warned = True
                warn(describe_function(self._function), refusal)

    def _surroundings(self):
        """Returns (environment, its plain values, numbers of optimizers) as they are now."""
        environment = self._environment
        if environment is None or environment.changed():
            environment = self._look_around()
        values, numbers = environment.values(), environment.numbers()
        if values is None or numbers is None:
            environment = self._look_around()
            values, numbers = environment.values(), environment.numbers()
        return environment, values, numbers

    def _look_around(self):
        environment = Environment(self._function, self._varies)
        environment.unread = Unread(None if environment.reads_variables else self._function)
        with self._lock:
            before = self._environment
            if before is None or not environment.is_like(before):
                self._environments += 1
            environment.number = self._environments
            self._environment = environment
        return environment


def _make_room(known, most):
    """Makes room for one more entry by removing the oldest ones."""
    while len(known) >= most:
        del known[next(iter(known))]


def _attributes_of(tensor):
    """Returns the attributes that the program set, or None if one is not a plain value."""
    attributes = vars(tensor)
    if not all(map(is_value, attributes.values())):
        return None
    return tuple([(name, describe_value(value)) for name, value in attributes.items()])


def _count_of_hooks(tensor):
    hooks = [tensor._backward_hooks]
    if tensor.is_leaf:
        hooks.append(tensor._post_accumulate_grad_hooks)
    return [len(some or ()) for some in hooks]


def _class_that_is_lost(outputs, args, kwargs):
    """Returns the class of a new tensor that a replay would return as a plain one, or None."""
    given = set(map(id, _pytree.tree_leaves((args, kwargs))))
    for tensor in outputs:
        if type(tensor) is not torch.Tensor and id(tensor) not in given:
            return type(tensor)
    return None


def _state_of(generator):
    """Returns the state of a local generator without calling an operator, which is observed."""
    state = generator.get_state()
    return ctypes.string_at(state.data_ptr(), state.numel())


def _state_of_numpy(numpy):
    """Returns the state of NumPy's random numbers."""
    state = numpy.random.get_state()
    if not isinstance(state, tuple):
        # The program uses another generator than the default one.
        return repr(state)
    return [part.tobytes() if isinstance(part, numpy.ndarray) else part for part in state]


def _modes():
    """Returns the devices of factories, or None if another mode must see every call."""
    if torch._C._len_torch_dispatch_stack() or torch._C._get_tracing_state():
        return None
    count = torch._C._len_torch_function_stack()
    if not count:
        return ()
    modes = [torch._C._get_function_stack_at(i) for i in range(count)]
    devices = []
    for mode in modes:
        if type(mode) is DeviceContext:
            devices.append(mode.device)
        elif type(mode) is _capture.FactoriesGoRemote:
            devices.append(_capture.current_device())
        else:
            return None
    return tuple(devices)


def _settings():
    """Returns the settings that PyTorch's Python code keeps in Python."""
    einsum = torch.backends.opt_einsum
    return torch.backends.mha.get_fastpath_enabled(), einsum.enabled, einsum.strategy
