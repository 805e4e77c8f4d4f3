"""djinn.compile() of modules: changes that Dynamo's guards do not see, and djinn sees."""

import contextlib
import functools
import operator
import os
import types
import unittest.mock

import torch

import djinn
from tests.python.callables.stale_answers_case import StaleAnswersCase

VARIABLE = "DJINN_UNGUARDED_TEST"
UNUSED = "DJINN_UNGUARDED_TEST_UNUSED"


class Helper:
    factor = 2.0
    table = {"factor": 2.0}

    def shift(self, x):
        return x + 1

    def __len__(self):
        return 3

    def __call__(self, x):
        return x * 2

    def __getitem__(self, index):
        return 2.0

    def __mul__(self, x):
        return x * 3

    @property
    def rate(self):
        return 2.0

    @staticmethod
    def double(x):
        return x * 2

    @classmethod
    def triple(cls, x):
        return x * 3


class Derived(Helper):
    pass


class Slotted:
    __slots__ = ("helper",)

    def __init__(self):
        self.helper = Derived()


HELPER = Derived()
namespace = types.ModuleType("namespace")
namespace.helper = Derived()


def scaled(x, factor=2.0):
    return x * factor


def scaled_by_name(x, *, factor=2.0):
    return x * factor


def scaled_by_list(x, factors=[2.0]):  # noqa: B006
    return x * factors[0]


def plain(x):
    return x * 2


def _made():
    factor = 2.0
    helper = Derived()

    def inner(x):
        return helper.shift(x) * factor

    return inner


closed = _made()
partial = functools.partial(scaled, factor=3.0)


class Calls(torch.nn.Module):
    """Calls a function of the module and the input."""

    def __init__(self, function):
        super().__init__()
        self.function = function
        self.helper = Derived()
        self.helpers = [Derived()]
        self.named = {"helper": Derived()}
        self.slotted = Slotted()

    def forward(self, x):
        return self.function(self, x)


_more = lambda self, x: x + 100  # noqa: E731
# Each function, and the attribute that is set: its owner, its name and its new value.
_ATTRIBUTES = {
    "a method": (lambda m, x: m.helper.shift(x), Helper, "shift", _more),
    "a method of a derived class": (lambda m, x: m.helper.shift(x), Derived, "shift", _more),
    "in a list": (lambda m, x: m.helpers[0].shift(x), Helper, "shift", _more),
    "in a dictionary": (lambda m, x: m.named["helper"].shift(x), Helper, "shift", _more),
    "in a slot": (lambda m, x: m.slotted.helper.shift(x), Helper, "shift", _more),
    "in a global": (lambda m, x: HELPER.shift(x), Helper, "shift", _more),
    "in a module": (lambda m, x: namespace.helper.shift(x), Helper, "shift", _more),
    "in a closure": (lambda m, x: closed(x), Helper, "shift", _more),
    "of a new object": (lambda m, x: Helper().shift(x), Helper, "shift", _more),
    "by a name": (lambda m, x: getattr(m, "helper").shift(x), Helper, "shift", _more),
    "len()": (lambda m, x: x * len(m.helper), Helper, "__len__", lambda self: 5),
    "a call": (lambda m, x: m.helper(x), Helper, "__call__", _more),
    "an element": (lambda m, x: x * m.helper[0], Helper, "__getitem__", lambda self, i: 5.0),
    "an operator": (lambda m, x: m.helper * x, Helper, "__mul__", _more),
    "a property": (lambda m, x: x * m.helper.rate, Helper, "rate", property(lambda self: 5.0)),
    "a static method": (lambda m, x: m.helper.double(x), Helper, "double", staticmethod(lambda x: x)),
    "a static method of a class": (
        lambda m, x: Helper.double(x), Helper, "double", staticmethod(lambda x: x)),
    "a class method": (lambda m, x: m.helper.triple(x), Helper, "triple", classmethod(_more)),
    "an attribute of a class": (lambda m, x: x * m.helper.factor, Helper, "factor", 5.0),
    "an attribute by its class": (lambda m, x: x * Helper.factor, Helper, "factor", 5.0),
    "how attributes are found": (
        lambda m, x: m.helper.shift(x), Helper, "__getattribute__",
        lambda self, name: torch.exp if name == "shift" else object.__getattribute__(self, name)),
    "a default": (lambda m, x: scaled(x), scaled, "__defaults__", (5.0,)),
    "a keyword's default": (
        lambda m, x: scaled_by_name(x), scaled_by_name, "__kwdefaults__", {"factor": 5.0}),
    "a default of a method": (
        lambda m, x: HELPER.shift(x), Helper, "shift", lambda self, x, more=5: x + more),
    "code": (lambda m, x: plain(x), plain, "__code__", (lambda x: x * 5).__code__),
    "a closure": (
        lambda m, x: closed(x), closed.__closure__[0], "cell_contents", 5.0),
    "a function of PyTorch": (
        lambda m, x: torch.nn.functional.silu(x), torch.nn.functional, "silu", lambda x: x * 7),
}
# Each function, and the dictionary or list, the place in it and the new value.
_ITEMS = {
    "a table of a class": (lambda m, x: x * m.helper.table["factor"], Helper.table, "factor", 5.0),
    "an item of a default": (lambda m, x: scaled_by_list(x), scaled_by_list.__defaults__[0], 0, 5.0),
    "an item of keywords' defaults": (
        lambda m, x: scaled_by_name(x), scaled_by_name.__kwdefaults__, "factor", 5.0),
    "a partial function": (lambda m, x: partial(x), partial.keywords, "factor", 5.0),
    "a variable": (
        lambda m, x: x * float(os.environ.get(VARIABLE, "1")), os.environ, VARIABLE, "5"),
    "a variable by getenv": (
        lambda m, x: x * float(os.getenv(VARIABLE, "1")), os.environ, VARIABLE, "5"),
    "whether a variable is set": (
        lambda m, x: x * (5 if VARIABLE in os.environ else 1), os.environ, VARIABLE, "5"),
}


class UnguardedTest(StaleAnswersCase):
    def setUp(self):
        super().setUp()
        torch._dynamo.reset()
        self.enterContext(torch.no_grad())

    def test_attributes_that_are_set_are_seen(self):
        for name, (function, owner, attribute, value) in _ATTRIBUTES.items():
            with self.subTest(name), contextlib.ExitStack() as restored:
                if isinstance(owner, type) and attribute not in vars(owner):
                    restored.callback(delattr, owner, attribute)
                else:
                    # A class gives its own methods another form.
                    old = (vars(owner) if isinstance(owner, type) else {}).get(attribute)
                    old = getattr(owner, attribute) if old is None else old
                    restored.callback(setattr, owner, attribute, old)
                self.check(Calls(function), functools.partial(setattr, owner, attribute, value))

    def test_items_that_are_set_are_seen(self):
        for name, (function, items, place, value) in _ITEMS.items():
            with self.subTest(name), contextlib.ExitStack() as restored:
                if items is os.environ:
                    restored.callback(os.environ.pop, place)
                else:
                    restored.callback(operator.setitem, items, place, items[place])
                self.check(
                    Calls(function), functools.partial(operator.setitem, items, place, value))

    def test_a_list_that_is_a_default_and_grows_is_seen(self):
        factors = scaled_by_list.__defaults__[0]
        self.addCleanup(factors.pop, 0)
        self.check(Calls(lambda m, x: scaled_by_list(x)), lambda: factors.insert(0, 5.0))

    def test_an_unused_environment_variable_causes_no_capture(self):
        module = Calls(lambda m, x: x * float(os.environ.get(VARIABLE, "1")))
        compiled = self.warm(module)
        before = compiled.statistics()
        with unittest.mock.patch.dict(os.environ):
            os.environ[UNUSED] = "1"
            del os.environ[UNUSED]
            for _ in range(3):
                compiled(torch.randn(4).to(self.device))
        after = compiled.statistics()
        self.assertEqual(after["captures"], before["captures"])
        self.assertEqual(after["replays"], before["replays"] + 3)

    def test_the_class_of_an_argument_is_seen(self):
        class Batch:
            def __init__(self, x):
                self.x = x

            def scaled(self):
                return self.x * 2

        class Model(torch.nn.Module):
            def forward(self, batch):
                return batch.scaled() + 1

        compiled = djinn.compile(Model().to(self.device))
        x = self.on(4)
        for _ in range(5):
            self.assert_same(compiled(Batch(x)), (x * 2 + 1).cpu())
        self.patch(Batch, "scaled", lambda self: self.x * 5)()
        for _ in range(3):
            self.assert_same(compiled(Batch(x)), (x * 5 + 1).cpu())

    def test_the_environment_by_another_name_is_seen(self):
        class Model(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.settings = os.environ

            def forward(self, x):
                return x * (3 if self.settings.get(VARIABLE) else 2)

        compiled = djinn.compile(Model().to(self.device))
        x = self.on(4)
        for _ in range(5):
            self.assert_same(compiled(x), (x * 2).cpu())
        with unittest.mock.patch.dict(os.environ, {VARIABLE: "1"}):
            for _ in range(3):
                self.assert_same(compiled(x), (x * 3).cpu())

    def test_a_list_in_a_list_that_is_a_default_is_seen(self):
        table = [[2.0]]

        class Model(torch.nn.Module):
            def forward(self, x, table=table):
                return x * table[0][0]

        compiled = djinn.compile(Model().to(self.device))
        x = self.on(4)
        for _ in range(5):
            self.assert_same(compiled(x), (x * 2).cpu())
        table[0][0] = 7.0
        for _ in range(3):
            self.assert_same(compiled(x), (x * 7).cpu())
