"""Calculates the numbers of a replayed training step from the optimizer's floats and counts.

A training step's operators get numbers that follow from a learning rate, and Adam's also from the
number of steps. Schedules change learning rates, and each step changes the number of steps. So the
captured graph of a step has places for numbers, and each replay calculates them without the step's
code:

- While a call is captured, the optimizer's floats and counts are Numbers, which note on a Tape
  what is calculated with them.
- A Program finds, for each number among the operators' arguments, the calculations that had this
  value. It is made after two captures, and keeps those that had it in both.
- A replay repeats the Tape with the floats and counts of its time. The call is captured once more
  if the calculations that are left for a place disagree, a comparison has another answer, or a
  float changes for the first time.

A Tape does not note every calculation, for example math.sqrt(). Such a calculation shows when its
result changes, but rounding could hide that. So only optimizers of PyTorch whose code does nothing
but arithmetic with its floats take part, and only if no other code of the call can get at their
parameter groups.

A scheduler of PyTorch's with which the call does nothing but step() is stepped by each replay, too,
after the captured graph. The call must not use the floats that the scheduler has set.
"""

import copy
import ctypes
import functools
import operator
import struct
import types

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree

from djinn._registered.tape import Number, Spent, Tape, plain_of
from djinn._stable import is_stable_class

# ASGD keeps its counts on the device, and LBFGS and Adafactor read values there.
_OPTIMIZERS = (
    torch.optim.Adadelta,
    torch.optim.Adagrad,
    torch.optim.Adam,
    torch.optim.Adamax,
    torch.optim.AdamW,
    torch.optim.NAdam,
    torch.optim.RAdam,
    torch.optim.RMSprop,
    torch.optim.SGD,
)
# The attributes by which code reaches an optimizer's floats.
_WAYS_TO_FLOATS = frozenset(("param_groups", "state_dict"))
# The only attributes of schedulers that a call may name.
_OF_SCHEDULERS = frozenset(("optimizer", "step"))
# The functions by which optimizers use their counts, besides item().
_COUNTING = frozenset(
    (
        torch.Tensor.add_,
        torch.Tensor.__iadd__,
        torch.Tensor.is_cpu.__get__,
        torch.Tensor.device.__get__,
        torch._foreach_add_,
    )
)
# The functions by which NAdam multiplies its products.
_MULTIPLYING = frozenset((torch.Tensor.mul_, torch.Tensor.__imul__, torch._foreach_mul_))
# Float32 counts exactly up to here.
_MAX_COUNT = 1 << 24


def multiply(product, factor):
    """Multiplies as a tensor of type float32 does."""
    # The product of two float32 is exact in float64.
    return ctypes.c_float(product * ctypes.c_float(factor).value).value


class Optimizers:
    """The floats and counts of the optimizers that a function refers to, and its schedulers.

    The products that NAdam keeps are counts that are multiplied. Not thread-safe, as optimizers are
    not.
    """

    def __init__(self, optimizers, schedulers=()):
        self.schedulers = schedulers
        # The places of floats and of tuples of floats in parameter groups, and the tuples' lengths.
        self._floats, self._tuples = [], []
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                for key, value in group.items():
                    if type(value) is float:
                        self._floats.append((group, key))
                    elif _is_floats(value):
                        self._tuples.append((group, key, len(value)))
        self._number_of_floats = len(self._floats) + sum(length for _, _, length in self._tuples)
        counters = [
            state[key]
            for key in ("step", "mu_product")
            for optimizer in optimizers
            for state in optimizer.state.values()
            if _is_counter(state.get(key))
        ]
        self.counters = list({id(one): one for one in counters}.values())
        self._positions = {id(one): i for i, one in enumerate(self.counters)}
        self._versions = None
        # The different counts, a counter that has each, and for each counter the index of its
        # count among these.
        self._counts = ()
        self._examples = ()
        self._kinds = ()

    def places(self):
        """Returns the ids of the dictionaries, each with a key, in which the floats are."""
        return {(id(group), key) for group, key, *_ in self._floats + self._tuples}

    def read(self):
        """Returns (leaves, which counters are equal), or None if a float is none any more."""
        floats = [group.get(key) for group, key in self._floats]
        if any(type(one) is not float for one in floats):
            return None
        for group, key, length in self._tuples:
            value = group.get(key)
            if not _is_floats(value) or len(value) != length:
                return None
            floats += value
        if self._versions != [one._version for one in self.counters] or self._counts != tuple(
            [one.item() for one in self._examples]  # .data has no version.
        ):
            self._read_counters()
        return (*floats, *self._counts), self._kinds

    def count(self, increments, products):
        """Adds to each counter what a captured call added to it, and sets products by counter."""
        counted = [one for one, increment in zip(self.counters, increments) if increment]
        with torch.no_grad():
            for position, product in products:
                self.counters[position].fill_(product)
            if not counted:
                return
            torch._foreach_add_(counted, 1.0)
        if all(increments):
            self._versions = [one._version for one in self.counters]
            self._counts = tuple(count + 1.0 for count in self._counts)

    def trace(self, leaves):
        """Returns a context in which the floats and counts are Numbers of a new Tape."""
        return _Tracing(self, Tape(leaves))

    def position_of(self, counter):
        """Returns the index of a counter, or None for other tensors."""
        return self._positions.get(id(counter))

    def leaf_of(self, counter):
        """Returns the index of the leaf that is a counter's count, or None for other tensors."""
        position = self._positions.get(id(counter))
        return None if position is None else self._number_of_floats + self._kinds[position]

    def _read_counters(self):
        self._versions = [one._version for one in self.counters]
        counts = [one.item() for one in self.counters]
        indices = {count: i for i, count in enumerate(dict.fromkeys(counts))}
        self._counts = tuple(indices)
        self._examples = [self.counters[counts.index(count)] for count in indices]
        self._kinds = tuple(map(indices.get, counts))


def _is_floats(value):
    return type(value) is tuple and value and all(type(one) is float for one in value)


def _is_counter(step):
    return (
        type(step) is torch.Tensor
        and step.device.type == "cpu"
        and step.dtype is torch.float32
        and not step.dim()
    )


def is_scheduler(thing):
    """Returns whether it is a scheduler of PyTorch's, which step() alone changes."""
    kind = type(thing)
    return (
        isinstance(thing, torch.optim.lr_scheduler.LRScheduler)
        and kind.__module__ == torch.optim.lr_scheduler.__name__
        and kind is not torch.optim.lr_scheduler.ReduceLROnPlateau
        and "step" not in vars(thing)
    )


def find_optimizers(watch, things, names, schedulers):
    """Returns the Optimizers among the things that a function refers to, or None.

    `watch` says where things are held, `names` are the attributes that the program's code
    names, and `schedulers` are those into which the search did not look.
    """
    optimizers = [thing for thing in things if type(thing) in _OPTIMIZERS]
    if not optimizers or not _WAYS_TO_FLOATS.isdisjoint(names):
        return None
    if any(
        isinstance(thing, torch.optim.lr_scheduler.LRScheduler)
        and not any(thing is one for one in schedulers)
        for thing in things
    ):
        return None
    if not all(_is_only_stepped(one, names) for one in schedulers):
        return None
    methods = [thing for thing in things if isinstance(thing, types.MethodType)]
    if any(method.__self__ is one for method in methods for one in schedulers):
        return None
    if schedulers and watch.is_held_elsewhere(schedulers, watch.places_of_programs(is_stable_class)):
        return None
    lists = [optimizer.param_groups for optimizer in optimizers]
    groups = [group for groups in lists for group in groups]
    holders = [vars(optimizer) for optimizer in optimizers] + lists
    if watch.is_held_elsewhere(lists + groups, holders):
        return None
    defaults = {id(thing.__defaults__) for thing in things if isinstance(thing, types.FunctionType)}
    tuples = [thing for thing in things if type(thing) is tuple]
    if not {id(part) for one in tuples for part in one}.isdisjoint(map(id, lists + groups)):
        return None
    others = [part for one in tuples if id(one) not in defaults for part in one]
    if any(part is one for part in others for one in schedulers):
        return None
    return Optimizers(optimizers, schedulers)


def _state_of(scheduler):
    """Returns what each step of a scheduler changes."""
    return [
        copy.copy(vars(scheduler).get(name)) for name in ("last_epoch", "_step_count", "_last_lr")
    ]


def _is_only_stepped(scheduler, names):
    ways = set(dir(scheduler)) - _OF_SCHEDULERS
    # Every object has the others of these names.
    ways -= set(dir(object)) - {"__getattribute__", "__reduce__", "__reduce_ex__", "__setattr__"}
    return ways.isdisjoint(names)


class _Tracing(TorchFunctionMode):
    """Puts Numbers in the place of floats, and returns Numbers for counts that are read."""

    def __init__(self, optimizers, tape):
        super().__init__()
        self.tape = tape
        # The schedulers that were stepped, in order.
        self.stepped = []
        self._spent = Spent(tape)
        self._is_stepping = False
        self._optimizers = optimizers
        self._before = []
        # The schedulers whose step() is replaced, and the states of those that were not stepped.
        self._replaced = []
        self._states = {}
        # (group, key, what was put there, what a scheduler or the program had put there).
        self._put = []
        # The Number of each counter that was multiplied, by position.
        self._products = {}
        # Once the block has ended, the increment of each counter, and for each that was multiplied
        # its position and the index of its product on the tape.
        self.increments = ()
        self.products = ()

    def __enter__(self):
        optimizers = self._optimizers
        self._before = [one.item() for one in optimizers.counters]
        leaf = iter(range(len(self.tape.leaves)))
        for group, key in optimizers._floats:
            self._put_in(group, key, self.tape.leaf(next(leaf)))
        for group, key, length in optimizers._tuples:
            self._put_in(group, key, tuple([self.tape.leaf(next(leaf)) for _ in range(length)]))
        for scheduler in optimizers.schedulers:
            if "step" in vars(scheduler):
                self.tape.is_lost = True  # The program has replaced it.
                continue
            vars(scheduler)["step"] = functools.partial(self._step, scheduler)
            self._replaced.append(scheduler)
            self._states[id(scheduler)] = _state_of(scheduler)
        return super().__enter__()

    def __exit__(self, *raised):
        super().__exit__(*raised)
        for scheduler in self._replaced:
            vars(scheduler).pop("step", None)
            # The function stepped it in another way.
            state = self._states.get(id(scheduler))
            self.tape.is_lost |= state is not None and state != _state_of(scheduler)
        self._take_back(self._put)
        after = [one.item() for one in self._optimizers.counters]
        for position, product in self._products.items():
            self.tape.is_lost |= after[position] != plain_of(product)
            after[position] = self._before[position]
        self.products = tuple((one, product.index) for one, product in self._products.items())
        self.increments = tuple(now - before for now, before in zip(after, self._before))
        self.tape.is_lost |= not set(self.increments) <= {0.0, 1.0} or any(
            count >= _MAX_COUNT for count in after
        )

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.tape.is_lost |= self._is_stepping
        if func in _MULTIPLYING and self._note_products(*args, **(kwargs or {})):
            pass
        elif func is not torch.Tensor.item:
            leaves = _pytree.tree_leaves((args, kwargs))
            if func not in _COUNTING and any(map(self._is_counter, leaves)):
                self.tape.is_lost = True
            if self.stepped and any(type(one) is Number and one.tape is self._spent for one in leaves):
                self.tape.is_lost = True
        elif (leaf := self._optimizers.leaf_of(args[0])) is not None:
            count, now = self.tape.leaves[leaf], func(*args)
            product = self._products.get(self._optimizers.position_of(args[0]))
            if product is not None and now == plain_of(product):
                return product
            if now == count:
                return self.tape.leaf(leaf)
            if now == count + 1:
                return self.tape.calculate(operator.add, self.tape.leaf(leaf), 1.0)
            self.tape.is_lost = True
            return now
        return func(*args, **(kwargs or {}))

    def _is_counter(self, thing):
        return self._optimizers.leaf_of(thing) is not None

    def _note_products(self, counters, factors=None, /, **others):
        """Notes that counters are about to be multiplied; returns False if it cannot."""
        if not isinstance(counters, (list, tuple)):
            counters, factors = [counters], [factors]
        if others or not isinstance(factors, (list, tuple)) or len(factors) != len(counters):
            return False
        if not all(type(one) is Number and one.tape is self.tape for one in factors):
            return False
        if not all(map(self._is_counter, counters)):
            return False
        for counter, factor in zip(counters, factors):
            position = self._optimizers.position_of(counter)
            product = self._products.get(position)
            if product is None:
                product = self.tape.leaf(self._optimizers.leaf_of(counter))
            self._products[position] = self.tape.calculate(multiply, product, factor)
        return True

    def _put_in(self, group, key, numbers):
        self._put.append((group, key, numbers, group[key]))
        group[key] = numbers

    def _take_back(self, put):
        for group, key, numbers, before in put:
            if group.get(key) is numbers:
                group[key] = before
                continue
            # The function sets it itself, which a replay would not do.
            self.tape.is_lost = True
            if key in group:
                group[key] = _pytree.tree_map(plain_of, group[key])

    def _step(self, scheduler, *args, **kwargs):
        """Steps a scheduler, in the place of its method."""
        step = type(scheduler).step
        if self._is_stepping:
            return step(scheduler, *args, **kwargs)  # One of a scheduler that has others.
        # Replays step without arguments.
        self.tape.is_lost |= bool(args or kwargs)
        groups = getattr(getattr(scheduler, "optimizer", None), "param_groups", None)
        its = [one for one in self._put if groups is None or any(one[0] is group for group in groups)]
        self._take_back(its)
        self._is_stepping = True
        try:
            return step(scheduler, *args, **kwargs)
        finally:
            self._is_stepping = False
            self.stepped.append(scheduler)
            # A step of one scheduler may be a step of others.
            self._states = {
                id(one): _state_of(one) for one in self._replaced if id(one) in self._states
            }
            self._states.pop(id(scheduler), None)
            self._put = [one for one in self._put if not any(one is other for other in its)]
            for group, key, *_ in its:
                if key in group:
                    self._put_in(group, key, _pytree.tree_map(self._spend, group[key]))

    def _spend(self, thing):
        if type(thing) is Number:
            # It follows from what another optimizer has.
            self.tape.is_lost = True
            thing = plain_of(thing)
        return Number(thing, self._spent, 0) if type(thing) is float else thing


class Program:
    """Calculates the numbers of a captured graph, as a capture and those before it had them."""

    def __init__(self, tape, increments, bits, schedulers=(), products=()):
        self._tape = tape
        self.increments = increments
        # For each counter that is multiplied, its position and the calculation that is its product.
        self._products = products
        # The counters' positions with their products, as last calculated.
        self.products = ()
        # The schedulers that a replay steps, in order.
        self.schedulers = schedulers
        self._bits = bits
        found = {}
        for index, value in enumerate(_bits_of(tape.values)):
            found.setdefault(value, set()).add(index)
        # For each number: whether it may be a constant, and the calculations that may be it.
        self._origins = [(True, frozenset(found.get(one, ()))) for one in bits]
        self._leaves = _bits_of(tape.leaves)
        # The leaves that had the same value in all captures.
        self._fixed = set(range(len(self._leaves)))
        self._groups = []

    def is_like(self, before):
        """Returns whether an earlier capture calculated and counted the same."""
        return (
            self.increments == before.increments
            and self._products == before._products
            and list(map(id, self.schedulers)) == list(map(id, before.schedulers))
            and len(self._bits) == len(before._bits)
            and self._tape.is_like(before._tape)
        )

    def meet(self, before):
        """Drops the origins that an earlier capture, which is like this one, does not have.

        Returns whether each number has an origin left.
        """
        self._origins = [
            (constant and was_constant and now == then, calculations & earlier)
            for (constant, calculations), (was_constant, earlier), now, then in zip(
                self._origins, before._origins, self._bits, before._bits
            )
        ]
        self._fixed = {one for one in before._fixed if self._leaves[one] == before._leaves[one]}
        return all(constant or calculations for constant, calculations in self._origins)

    def places(self):
        """Returns, for each number, its index among the results of calculate(), or -1."""
        groups, places = {}, []
        for (constant, calculations), bits in zip(self._origins, self._bits):
            if not calculations:
                places.append(-1)
                continue
            group = bits if constant else None, tuple(sorted(calculations))
            places.append(groups.setdefault(group, len(groups)))
        self._groups = list(groups)
        return places

    def calculate(self, leaves):
        """Returns the numbers as bits, or None if the call must be captured again."""
        now = _bits_of(leaves)
        if any(now[one] != self._leaves[one] for one in self._fixed):
            return None
        values = self._tape.repeat(leaves)
        if values is None:
            return None
        bits, numbers = _bits_of(values), []
        for constant, calculations in self._groups:
            number = bits[calculations[0]]
            if constant is not None and number != constant:
                return None
            if any(bits[other] != number for other in calculations[1:]):
                return None
            numbers.append(number)
        self.products = [(position, values[index]) for position, index in self._products]
        return numbers


def _bits_of(values):
    return struct.unpack(f"{len(values)}Q", struct.pack(f"{len(values)}d", *values))
