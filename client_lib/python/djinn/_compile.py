"""Registered callables: capture a function once, then carry its calls out as a whole."""

import ctypes
import enum
import functools
import random
import sys
import threading

import torch
from torch.nn.utils import parametrize
from torch.utils import _pytree
from torch.utils._device import DeviceContext

from djinn import _capture, _djinn
from djinn._arguments import Arguments, Unread
from djinn._caches import describe_value, is_cache
from djinn._conditions import Answers, Questions, can_be_asked, describe
from djinn._environment import Environment
from djinn._errors import Error
from djinn._outputs import Given, take_apart
from djinn._outside import Unwatchable
from djinn._values import is_value


class CompiledCallable:
    """What djinn.compile() returns; called as the function is."""

    environment_type = Environment

    def __init__(self, function, name=None):
        functools.update_wrapper(self, function, updated=())
        self._function = function
        self._callable = _djinn.RegisteredCallable(_name_of(function) if name is None else name)
        self._environment = None
        # Whether it decorates a function in a class, which takes the object first.
        self._is_method = False
        # Counts the environments that were not like the one before, which each has as
        # its number.
        self._environments = 0
        self._arguments = Arguments(self.environment_type, _numbers)
        # A short key for every combination of values that was met.
        self._keys = {}
        # How to give the outputs of a recording their form. Whoever finds a
        # recording finds its form, if need be once it has the lock: one that is
        # forgotten goes with a whole dictionary, in whose place another one comes.
        self._forms = {}
        # Those that they took the place of, for whoever found one just before.
        self._former_forms = {}
        # How many of them there may be before it is seen which are forgotten.
        self._most_forms = _MIN_FORMS
        # Calls captured that could be carried out again.
        self._recorded = 0
        # Keys of calls that read values, and for each size of their arguments where
        # to begin to ask for them.
        self._reading = {}
        self._answers = {}
        self._lock = threading.Lock()
        self._refusal = ""
        # Calls that are not looked at, after so many in succession that were in vain.
        self._calls_to_wait = 0
        self._calls_in_vain = 0
        # Those that were left alone since the last that might have been captured.
        self._calls_unasked = 0

    def __call__(self, /, *args, **kwargs):
        prepared = self._prepare(args, kwargs)
        if prepared is None:
            return self._function(*args, **kwargs)
        # Another thread may find another one meanwhile, or none.
        environment, call, places, values = prepared
        forms = self._forms
        answers = None
        if call[0] in self._reading:
            answers = self._ask(call)
            if answers is None:
                return self._function(*args, **kwargs)
            call = (answers.key, *call[1:])
        found = self._callable.replay(*call)
        if found is not None:
            self._calls_in_vain = 0
            recording, outputs = found
            form = forms.get(recording)
            if form is None:
                with self._lock:
                    form = self._forms.get(recording) or self._former_forms[recording]
            return form(outputs, places)
        unasked, self._calls_unasked = self._calls_unasked, 0
        if not self._callable.begin(*call, unasked):
            if self._callable.statistics()[2] == _NEVER_ALIKE:
                self._wait(_MOST_GOOD_CALLS_TO_WAIT)  # There may be some in between.
            return self._function(*args, **kwargs)
        if answers is None:
            result, is_refused = self._capture(prepared, args, kwargs, self._function)
            if is_refused and self._reads_values() and can_be_asked(environment):
                with self._lock:
                    _make_room(self._reading, _MAX_KEYS)
                    self._reading[call[0]] = True
            return result
        return self._capture_asking((environment, call, places, values), answers, args, kwargs)

    def __set_name__(self, owner, name):
        qualified_name = getattr(self._function, "__qualname__", None)
        self._is_method = qualified_name == f"{owner.__qualname__}.{name}"

    def __get__(self, instance, owner=None):
        if instance is None or not self._is_method:
            return self
        raise TypeError(
            f"djinn.compile() of a method: {self._function.__name__} of "
            f"{type(instance).__name__} knows no object yet. Compile the object instead, "
            "djinn.compile(model), or the method that is bound to one"
        )

    def statistics(self):
        """Calls carried out again, calls captured, and why the last was refused."""
        replays, captures, refusal = self._callable.statistics()
        return {
            "replays": replays,
            "captures": captures,
            "refusal": self._refusal or refusal,
        }

    def warm_up(self, /, *args, **kwargs):
        """Calls the function with these arguments until such a call is carried out as a whole.

        Eight times at most; each is a call in earnest: a training step trains, a generator
        draws. What a call changes of its arguments, the next one is given. That other
        tensors may come in their place is known after a second warm-up, or call, with
        others: until then one more call is captured. Returns
        statistics(). Raises djinn.Error (NOT_REGISTRABLE), which says why, where no call
        can be carried out so.
        """
        for _ in range(_MAX_WARM_UP_CALLS):
            before = self.statistics()
            self._calls_to_wait, self._calls_unasked = 0, _WANTED
            self(*args, **kwargs)
            after = self.statistics()
            if after["replays"] > before["replays"]:
                return after
            if after["captures"] == before["captures"]:
                # Nothing is going to be found out by calling it again.
                break
        refusal = self.statistics()["refusal"] or "no call was like the one before"
        raise Error(refusal, "FAILED_PRECONDITION", "NOT_REGISTRABLE")

    def forget(self):
        """Has every call be captured anew: all that is known of earlier ones is dropped.

        Workers are told that what these kept using is no model any more.
        """
        with self._lock:
            # Who has found a recording of these holds the forms, if they are not the last.
            self._former_forms, self._forms = self._forms, {}
            self._environment = None
            self._arguments = Arguments(self.environment_type, _numbers)
            self._keys = {}
            self._reading = {}
            self._answers = {}
            self._refusal = ""
            self._calls_to_wait = self._calls_in_vain = 0
        self._callable.forget()

    def _capture_asking(self, prepared, answers, args, kwargs):
        _, call, _, _ = prepared
        questions = Questions(answers, *call[1:])

        def function(*args, **kwargs):
            try:
                with questions:
                    return self._function(*args, **kwargs)
            finally:
                # The recording is to know of none that would stay.
                questions.forget_tensors()

        result, _ = self._capture(prepared, args, kwargs, function, questions.is_as_expected)
        answers.learn(questions.reads)
        return result

    def _ask(self, call):
        """What is known of the call by its questions' answers; None if it is to be left alone."""
        key, tensors, _ = call
        described = key, describe(tensors)
        with self._lock:
            answers = self._answers.get(described)
            if answers is None:
                _make_room(self._answers, _MAX_KEYS)
                answers = self._answers[described] = Answers(f"{key}.{next(_numbers)}", _numbers)
        try:
            known = answers.of(tensors)
        except RuntimeError:
            # Whatever is wrong with the values, the function says it.
            return None
        if known is None:
            self._refusal = "the values that it reads are too many different ones"
        return known

    def _reads_values(self):
        return self._callable.statistics()[2].startswith(_READS_A_VALUE)

    def _capture(self, prepared, args, kwargs, function, is_as_expected=lambda: True):
        """What the function returns, and whether the session refused the recording."""
        environment, _, places, values = prepared
        try:
            given = Given(places)
            before = self._world(prepared, args, kwargs)
            result = function(*args, **kwargs)
            outputs, form = take_apart(result, environment, given)
            # What the call left behind, as an optimizer's state, is around the next.
            changed = environment.changed()
            self._refusal = ""
            if form is None:
                self._refusal = outputs
            elif lost := _class_that_is_lost(outputs, args, kwargs):
                self._refusal = f"it returns a {lost.__name__}"
            elif changed or before != self._world(prepared, args, kwargs):
                self._refusal = "it changes what it refers to, or its arguments"
            elif before[0] != values:
                # The call is known by them.
                self._refusal = "what it refers to was changed while it was called"
            elif not is_as_expected():
                self._refusal = "calls that should be alike are not"
        except BaseException:
            self._callable.abandon()
            raise
        if self._refusal:
            self._callable.abandon()
            self._wait()
            return result, False
        with self._lock:
            recording = self._callable.end(outputs)
            if recording:
                self._calls_in_vain = 0
                self._forms[recording] = form
                self._recorded += 1
                if len(self._forms) > self._most_forms:
                    self._drop_forms()
        return result, not recording

    def _wait(self, most=None):
        """After a call that was in vain: looking around takes longer than many functions."""
        self._calls_in_vain += 1
        doublings = self._calls_in_vain - _CALLS_IN_VAIN
        if most is None:
            # Those that are carried out again may be among them.
            replays = self._callable.statistics()[0]
            most = _MOST_GOOD_CALLS_TO_WAIT if replays else _MOST_CALLS_TO_WAIT
        self._calls_to_wait = min(2**doublings, most) if doublings > 0 else 0

    def _drop_forms(self):
        """Of recordings that are not going to be found any more; the lock is held."""
        forms = self._former_forms = self._forms
        self._forms = {number: forms[number] for number in self._callable.recordings()
                       if number in forms}
        self._most_forms = max(_MIN_FORMS, 2 * len(self._forms))

    def _world(self, prepared, args, kwargs):
        """What a call must leave as it is, besides what is on devices."""
        environment, (_, tensors, _), places, _ = prepared
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
            # Hooks in one dictionary are one hook to C++.
            [_count_of_hooks(tensor) for tensor in tensors],
            random.getstate(),
            _state_of_numpy(numpy) if numpy else None,
            [_state_of(generator) for generator in environment.generators],
        )

    def _prepare(self, args, kwargs):
        """The environment, the call, the places that it is given, and values in the environment.

        The call: its key, tensors given, tensors used besides. None if it cannot be registered.
        """
        modes = _modes()
        if modes is None:
            self._refusal = "a mode or a trace sees every call"
            return None
        if parametrize._cache_enabled:
            self._refusal = "parametrizations are cached: their results outlast the call"
            return None
        # Below 0 where threads count at the same time.
        if self._calls_to_wait > 0:
            self._calls_to_wait -= 1
            self._calls_unasked += 1
            return None
        try:
            environment, values = self._surroundings()
        except Exception as error:  # whatever user code in properties may raise
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
        combination = (form, marks, environment.number, values, modes, _settings())
        key = self._keys.get(combination)
        if key is None:
            with self._lock:
                _make_room(self._keys, _MAX_KEYS)
                key = self._keys.setdefault(combination, str(next(_numbers)))
        return environment, (key, tensors, environment.tensors), places, values

    def _refuse(self, why):
        self._refusal = why
        self._wait()

    def _surroundings(self):
        environment = self._environment
        if environment is None or environment.changed():
            environment = self._look_around()
        values = environment.values()
        if values is None:
            environment = self._look_around()
            values = environment.values()
        return environment, values

    def _look_around(self):
        environment = self.environment_type(self._function)
        environment.unread = Unread(None if environment.reads_variables else self._function)
        with self._lock:
            before = self._environment
            if before is None or not environment.is_like(before):
                self._environments += 1
            environment.number = self._environments
            self._environment = environment
        return environment


def _name_of(function):
    """What operators see: a function's name, or a module's class."""
    return getattr(function, "__qualname__", None) or getattr(
        function, "__name__", type(function).__name__
    )


Environment.transparent[CompiledCallable] = "_function"

# Numbers are never used again: recordings outlive the dictionaries of keys.
_numbers = iter(range(1, 1 << 62))
_MAX_KEYS = 1024
_MAX_WARM_UP_CALLS = 8
# As many calls were left alone that the next is captured, whatever those before were like.
_WANTED = 1 << 20
# Calls that may be refused in succession before others wait, and how many wait at most.
_CALLS_IN_VAIN = 4
_MOST_CALLS_TO_WAIT, _MOST_GOOD_CALLS_TO_WAIT = 64, 8
# How it begins what the session says of a call that does.
_READS_A_VALUE = "it reads a value from the device"
# What it says where too many calls were like none before.
_NEVER_ALIKE = "no call was like an earlier one"
# Of one function, before it is looked for those that are not needed any more.
_MIN_FORMS = 64


def _make_room(known, most):
    """For one more of so many: what was met first goes."""
    while len(known) >= most:
        del known[next(iter(known))]


def _attributes_of(tensor):
    """Those that the program gave it; None if not all are plain values."""
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
    """Of a tensor that the call has made: where it is carried out as a whole it is a plain one."""
    given = set(map(id, _pytree.tree_leaves((args, kwargs))))
    for tensor in outputs:
        if type(tensor) is not torch.Tensor and id(tensor) not in given:
            return type(tensor)
    return None


def _state_of(generator):
    """Of one of this process, to be compared; without an operator, as those are watched."""
    state = generator.get_state()
    return ctypes.string_at(state.data_ptr(), state.numel())


def _state_of_numpy(numpy):
    """That of its random numbers, to be compared."""
    state = numpy.random.get_state()
    if not isinstance(state, tuple):
        # Of another generator than the usual one.
        return repr(state)
    return [part.tobytes() if isinstance(part, numpy.ndarray) else part for part in state]


def _modes():
    """The devices that factories go to; None if something else sees every call."""
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
    """Those that PyTorch's own Python code asks for, and keeps in Python."""
    einsum = torch.backends.opt_einsum
    return torch.backends.mha.get_fastpath_enabled(), einsum.enabled, einsum.strategy


def compile(function):
    """Registers a function or module whose calls repeat; returns what to call instead.

    Its calls are captured; once two in succession were captured alike, further ones
    are carried out on the worker as a whole, without its Python code running.

        @djinn.compile
        def step(inputs, labels):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(inputs), labels)
            loss.backward()
            optimizer.step()
            return loss.detach()

    The function must do nothing but call operators on one device, depending on its
    arguments and on what it refers to: modules, optimizers, tensors and plain values in
    its closure, its defaults and the globals that it names are looked through, and a
    change of them, such as another learning rate or eval(), is another call. What Djinn
    sees that it cannot repeat (a value that is read, a shape that depends on data, a
    tensor of this process that is used) leaves the function to be called as ever;
    statistics()["refusal"] says why. What it cannot see, such as a print, does not
    happen again.
    """
    if not callable(function):
        raise TypeError(f"djinn.compile() takes something callable, not {function!r}")
    return CompiledCallable(function)


def register_model(model, name=None):
    """Registers a module as compile() does, and under a name; returns what to call instead.

    Operators see by it, in `djinnctl get models`, what the module keeps using on a worker.
    Without one it is the module's class.
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"djinn.register_model() takes a torch.nn.Module, not {model!r}")
    return CompiledCallable(model, name)
