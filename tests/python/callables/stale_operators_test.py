"""Registered callables: what chooses a function by classes or by names changes; no stale answer."""

import abc
import collections.abc
import functools
import types
import typing

import torch

import djinn
from tests.python.callables.stale_answers_case import StaleAnswersCase

library = torch.library.Library("djinn_test_stale", "DEF")
library.define("scale(Tensor x) -> Tensor")
library.impl("scale", lambda x: x * factors["scale"], "CompositeImplicitAutograd")
factors = {}


@torch.library.custom_op("djinn_test_stale::custom", mutates_args=())
def custom(x: torch.Tensor) -> torch.Tensor:
    return x * factors["custom"]


class StaleOperatorsTest(StaleAnswersCase):
    def setUp(self):
        super().setUp()
        factors.update(scale=2.0, custom=2.0, dispatched=2.0)

    # Functions that dispatch on an argument's class ----------------------------------------

    def test_functions_that_dispatch_on_a_class(self):
        @functools.singledispatch
        def scaled(x):
            return x * factors["dispatched"]

        class Thing:
            @functools.singledispatchmethod
            def scaled(self, x):
                return x * factors["dispatched"]

        thing = Thing()
        for function in (lambda x: scaled(x), lambda x: thing.scaled(x)):
            self.check(function, lambda: factors.update(dispatched=factors["dispatched"] + 1))
        self.check(lambda x: scaled(x), lambda: scaled.register(torch.Tensor, lambda x: x * 7))
        # The function that is chosen now is examined, too.
        scaled.register(torch.Tensor, lambda x: x * factors["scale"])
        self.check(lambda x: scaled(x), lambda: factors.update(scale=8.0))

    def test_functions_that_a_library_keeps_in_a_list(self):
        kept = [lambda x: x * factors["scale"]]

        def call(x):
            return kept[0](x)

        # The code appears to come from the library.
        code = call.__code__.replace(co_filename=torch.nn.functional.__file__)
        function = types.FunctionType(code, call.__globals__, "call", None, call.__closure__)
        self.check(lambda x: function(x), lambda: factors.update(scale=3.0))
        self.check(lambda x: function(x), lambda: kept.__setitem__(0, lambda x: x * 9))

    def test_classes_that_are_registered_with_an_abstract_one(self):
        class Abstract(abc.ABC):
            pass

        for named in (Abstract, collections.abc.Sized, typing.Hashable):

            class Thing:
                __hash__ = None

            thing = Thing()
            kind = getattr(named, "__origin__", named)
            choose = lambda x: x * (2 if isinstance(thing, named) else 3)  # noqa: E731
            self.check(choose, lambda: kind.register(Thing))

        class Other:
            pass

        other = Other()
        choose = lambda x: x * (2 if isinstance(other, collections.abc.Sized) else 3)  # noqa: E731
        self.check(choose, lambda: collections.abc.Sized.register(Other))
        # Where no such class is named, the registration has no effect.
        compiled = self.warm(lambda x: x * 2)
        Abstract.register(type("Another", (), {}))
        before = compiled.statistics()["replays"]
        compiled(torch.randn(4).to(self.device))
        self.assertEqual(compiled.statistics()["replays"], before + 1)

    # Operators with kernels in Python --------------------------------------------------------

    def test_operators_defined_in_python(self):
        operator = torch.ops.djinn_test_stale.scale
        overload = operator.default
        why = "it calls djinn_test_stale::scale, which has a kernel in Python"
        self.check_refused(lambda x: torch.ops.djinn_test_stale.scale(x), why)
        self.check_refused(lambda x: operator(x), why)
        self.check_refused(lambda x: overload(x), why)
        own = torch.ops.djinn_test_stale.custom
        change = lambda: factors.update(custom=factors["custom"] + 1)  # noqa: E731
        self.check(lambda x: torch.ops.djinn_test_stale.custom(x), change)
        self.check(lambda x: own(x), change)
        self.check(lambda x: custom(x), change)
        # PyTorch's own operators are trusted.
        self.warm(lambda x: torch.ops.aten.mul(x, 2.0))

    @torch.no_grad()
    def test_modules_that_are_not_registered(self):
        @functools.singledispatch
        def scaled(x):
            return x * factors["dispatched"]

        class Dispatches(torch.nn.Module):
            def forward(self, x):
                return scaled(x)

        class Calls(torch.nn.Module):
            def forward(self, x):
                return torch.ops.djinn_test_stale.scale(x)

        djinn.set_automatic_registration(True)
        self.addCleanup(djinn.set_automatic_registration, False)
        x = torch.randn(4)
        for kind, name in ((Dispatches, "dispatched"), (Calls, "scale")):
            module = kind()
            for _ in range(8):
                module(x.to(self.device))
            factors[name] = 5.0
            torch.testing.assert_close(module(x.to(self.device)).cpu(), x * 5)
