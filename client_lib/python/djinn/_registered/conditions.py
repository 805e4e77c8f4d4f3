"""Finds out what a registered function asks about its arguments' values.

A question is for example whether a mask masks anything: operators on integers and truth values of
the arguments and on plain values, and a read of the result. Before a later call, the questions are
asked again. The call is replayed by the captured graph of the calls with the same answers.
"""

import itertools
import threading
import weakref

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree

from djinn._registered.values import is_value

# The largest numbers of answers to one question, questions in one call, and operators in one
# question.
_MAX_ANSWERS = 8
_MAX_DEPTH = 16
_MAX_OPERATORS = 64

# Functions that write nothing, and whose results depend only on their operands' values.
_PURE_NAMES = """
    __and__ __eq__ __ge__ __getitem__ __gt__ __invert__ __le__ __lt__ __ne__ __or__ __rsub__ __xor__
    add all amax amin any arange bitwise_and bitwise_not bitwise_or bitwise_xor bool clone
    contiguous count_nonzero cumsum diff eq expand flatten full_like ge gt int le logical_and logical_not
    logical_or logical_xor long lt max min mul narrow ne neg ones ones_like permute reshape rsub
    select squeeze sub sum t to transpose unsqueeze view zeros zeros_like
""".split()
_PURE = frozenset(
    function
    for owner in (torch, torch.Tensor)
    for name in _PURE_NAMES
    if callable(function := getattr(owner, name, None)) and not isinstance(function, type)
)
_READS = frozenset(
    getattr(torch.Tensor, name) for name in ("__bool__", "__index__", "__int__", "item")
)
# Functions after which memory may change although its tensor's version does not.
_BYPASSES = frozenset(
    getattr(torch.Tensor, name)
    for name in ("data_ptr", "numpy", "set_", "storage", "untyped_storage", "__dlpack__")
) | {torch.Tensor.data.__get__, torch.Tensor.data.__set__}
# Functions that only read a tensor's metadata; `__get__` is the one of a property.
_LOOKS = frozenset(("__get__", "__len__", "dim", "is_contiguous", "numel", "size", "stride"))
# Modules that take another execution path while a mode sees the functions that are called.
_TAKE_ANOTHER_PATH = (
    torch.nn.MultiheadAttention,
    torch.nn.TransformerEncoder,
    torch.nn.TransformerEncoderLayer,
)
_numbers = itertools.count(1)
_ARGUMENT, _CALL, _SLICE, _VALUE = "argument", "call", "slice", "value"


class _Unknown(Exception):
    """A value depends on more than arguments and plain values."""


def can_be_asked(environment):
    """Returns whether a function calls the same operators while its questions are observed."""
    return not environment.has_one_of(_TAKE_ANOTHER_PATH)


def describe(tensors):
    """Returns everything of arguments that questions may depend on besides their values."""
    firsts = {}
    return tuple(
        (
            tensor.shape,
            tensor.stride(),
            tensor.dtype,
            tensor.device,
            firsts.setdefault((id(tensor), tensor.untyped_storage()._cdata), i),
            firsts.setdefault(tensor.untyped_storage()._cdata, i),
        )
        for i, tensor in enumerate(tensors)
    )


class Answers:
    """A node in the tree of questions. It stands for calls whose questions so far had the answers
    of its path."""

    _lock = threading.Lock()

    def __init__(self, key, path=()):
        # Distinguishes calls with these answers from others with the key `key`.
        self.key = f"{key}.{next(_numbers)}"
        # The pairs (question, answer), in the order in which the questions were asked.
        self.path = path
        # The next question, and the Answers that follow from each of its answers.
        self._question = None
        self._next = {}

    def of(self, tensors):
        """Asks the known questions about a call's arguments, and returns the last node.

        Returns None if a question has too many different answers.
        """
        known = self
        while known is not None and known._question is not None:
            question = known._question
            if _names_arguments(question):
                known = known._after(_ask(question, tensors))
            else:
                # This question always has the same answer.
                (known,) = known._next.values()
        return known

    def learn(self, reads):
        """Adds the questions that a call of this node asked besides the known ones."""
        known = self
        for question, answer in reads:
            if question is None or known is None or len(known.path) >= _MAX_DEPTH:
                return
            with self._lock:
                if known._question is None:
                    known._question = question
                elif known._question != question:
                    return
            known = known._after(answer)

    def _after(self, answer):
        kind = type(answer), answer
        with self._lock:
            known = self._next.get(kind)
            if known is None and len(self._next) < _MAX_ANSWERS:
                path = (*self.path, (self._question, answer))
                known = Answers(self.key, path)
                self._next[kind] = known
        return known


class Questions(TorchFunctionMode):
    """Answers the known questions during a call, and notes the other ones."""

    def __init__(self, known, tensors, used):
        super().__init__()
        self._path = known.path
        self._answered = 0
        # The pairs (question or None, answer) of values that the call read.
        self.reads = []
        # The tensors whose values questions may use: id -> (weak reference, version, how the value
        # is computed, number of operators in that).
        self._tracked = {}
        storages = [tensor.untyped_storage()._cdata for tensor in used]
        # An argument that is passed twice has one version. Tensors that share memory may have
        # several.
        storages += {id(t): t.untyped_storage()._cdata for t in tensors}.values()
        for i, tensor in enumerate(tensors):
            alone = storages.count(tensor.untyped_storage()._cdata) == 1
            if alone and id(tensor) not in self._tracked:
                self._track(tensor, (_ARGUMENT, i), 0)

    def is_as_expected(self):
        """Returns whether the call asked all known questions."""
        return self._answered == len(self._path)

    def forget_tensors(self):
        self._tracked.clear()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if torch.compiler.is_compiling():
            # The compiler must see the operators, because it traces the function itself.
            return func(*args, **kwargs)
        if func in _READS:
            return self._read(func, args, kwargs)
        is_pure = func in _PURE and "out" not in kwargs
        if func in _BYPASSES:
            self._tracked.clear()
        elif not is_pure and getattr(func, "__name__", "") not in _LOOKS:
            self._forget_what_may_be_written(args, kwargs)
        what = self._call(func, args, kwargs) if is_pure else None
        result = func(*args, **kwargs)
        if what is not None and type(result) is torch.Tensor:
            self._track(result, *what)
        return result

    def _read(self, func, args, kwargs):
        what = self._call(func, args, kwargs)
        question = what and what[0]
        if not self.reads and self._answered < len(self._path):
            expected, answer = self._path[self._answered]
            if question is not None and question == expected:
                self._answered += 1
                return answer
        answer = func(*args, **kwargs)
        self.reads.append((question if type(answer) in (bool, int) else None, answer))
        return answer

    def _forget_what_may_be_written(self, args, kwargs):
        """Stops tracking all tensors whose memory an operator may write.

        Tensors of inference mode have no versions, and operators on lists do not change them.
        """
        given = {
            leaf.untyped_storage()._cdata
            for leaf in _pytree.tree_leaves((args, kwargs))
            if isinstance(leaf, torch.Tensor) and leaf.layout is torch.strided
        }
        for key, (reference, *_) in list(self._tracked.items()):
            tensor = reference()
            if tensor is None or tensor.untyped_storage()._cdata in given:
                del self._tracked[key]

    def _track(self, tensor, what, operators):
        # Sums of floating-point and complex numbers may depend on modes that the function enters.
        if type(tensor) is not torch.Tensor or tensor.is_floating_point() or tensor.is_complex():
            return
        version = None if tensor.is_inference() else tensor._version
        self._tracked[id(tensor)] = weakref.ref(tensor), version, what, operators

    def _call(self, func, args, kwargs):
        """Returns (how a call's result is computed, its number of operators), or None."""
        try:
            operators = [1]
            given = tuple([self._describe(arg, operators) for arg in args])
            named = tuple(
                [(name, self._describe(kwargs[name], operators)) for name in sorted(kwargs)]
            )
        except _Unknown:
            return None
        if sum(operators) > _MAX_OPERATORS:
            return None
        return (_CALL, func, given, named), sum(operators)

    def _describe(self, thing, operators):
        if isinstance(thing, torch.Tensor):
            reference, version, what, size = self._tracked.get(id(thing), (_nothing, None, None, 0))
            if reference() is not thing or version is not None and thing._version != version:
                raise _Unknown
            operators.append(size)
            return what
        if is_value(thing):
            # The values 1, 1.0 and True are equal, but of different types.
            return _VALUE, type(thing), thing, repr(thing)
        if type(thing) is slice:
            parts = (thing.start, thing.stop, thing.step)
            return _SLICE, *[self._describe(part, operators) for part in parts]
        if type(thing) in (tuple, list):
            return type(thing), *[self._describe(part, operators) for part in thing]
        raise _Unknown


def _nothing():
    return None


def _names_arguments(what):
    if type(what) is not tuple or not what:
        return False
    if what[0] is _ARGUMENT:
        return True
    return what[0] is not _VALUE and any(map(_names_arguments, what))


def _ask(what, tensors):
    kind = what[0]
    if kind is _ARGUMENT:
        return tensors[what[1]]
    if kind is _VALUE:
        return what[2]
    if kind is _SLICE:
        return slice(*[_ask(part, tensors) for part in what[1:]])
    if kind is _CALL:
        _, func, given, named = what
        args = [_ask(arg, tensors) for arg in given]
        return func(*args, **{name: _ask(arg, tensors) for name, arg in named})
    return kind(_ask(part, tensors) for part in what[1:])
