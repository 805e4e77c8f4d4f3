"""Registered callables: what things are of, and where they keep it, changes; no answer is stale."""

import copy
import dataclasses
import functools
import sys
import types
import weakref

import torch

import djinn
from tests.python.callables.stale_answers_case import StaleAnswersCase

# A module of the program's own.
settings = types.ModuleType("djinn_test_contents")
settings.scale = 2.0
sys.modules[settings.__name__] = settings


class Holder:
    """Something with attributes."""

    def __init__(self, scale):
        self.scale = scale


class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = 2.0
        self.holder = Holder(2.0)

    def forward(self, x):
        return x * self.scale * self.holder.scale


class Tripled(Scaled):
    def forward(self, x):
        return super().forward(x) * 3


class StaleContentsTest(StaleAnswersCase):
    # Replaced dictionaries -----------------------------------------------------------

    def test_dictionaries_that_are_replaced(self):
        def factor(x):
            return x * factor.scale

        def replace(thing):
            thing.__dict__ = {**thing.__dict__, "scale": thing.scale + 1}

        factor.scale = 2.0
        holder, referred_to, module = Holder(2.0), Holder(2.0), Scaled()
        reference = weakref.ref(referred_to)
        called = functools.partial(torch.mul, 2.0)
        weight = torch.ones(4, device=self.device)
        called.scale = weight.scale = 2.0
        for thing, function in (
            (holder, lambda x: x * holder.scale),
            (module, module),
            (factor, lambda x: factor(x)),
            (referred_to, lambda x: x * reference().scale),
            (called, lambda x: called(x) * called.scale),
            (weight, lambda x: x * weight.scale),
        ):
            with self.subTest(type(thing).__name__):
                self.check(function, lambda: replace(thing))
                # The contents of the new one are watched, too.
                self.check(function, lambda: setattr(thing, "scale", 7.0))

    def test_states_that_are_set(self):
        module, other = Scaled(), Scaled()
        other.scale = 3.0
        self.check(module, lambda: module.__setstate__(dict(vars(other))))

    # Replaced classes ------------------------------------------------------------------

    def test_classes_that_are_replaced(self):
        class Tenfold(torch.Tensor):
            @classmethod
            def __torch_function__(cls, function, kinds, args=(), kwargs=None):
                result = super().__torch_function__(function, kinds, args, kwargs or {})
                if not isinstance(result, Tenfold):
                    return result
                factor = 10 if function is torch.Tensor.mul else 1
                return result.as_subclass(torch.Tensor) * factor

        weight = torch.ones(4, device=self.device)
        here = torch.ones(4)
        compiled = self.warm(lambda x: x * weight)
        weight.__class__ = here.__class__ = Tenfold
        x = torch.randn(4)
        torch.testing.assert_close(compiled(x.to(self.device)).cpu(), x * here)

        module = Scaled()
        self.check(module, lambda: setattr(module, "__class__", Tripled))

        class Made(types.ModuleType):
            scale = property(lambda self: 3.0)

        def change():
            del settings.scale
            settings.__class__ = Made

        self.check(lambda x: x * settings.scale, change)

        class Meta(type):
            scale = 2.0

        class Other(Meta):
            scale = 3.0

        class Thing(metaclass=Meta):
            pass

        self.check(lambda x: x * Thing.scale, lambda: setattr(Thing, "__class__", Other))

    # Collections with methods of their own -----------------------------------------------

    def test_collections_that_are_read_in_another_way(self):
        class Lowered(dict):
            def get(self, key, default=None):
                return dict.get(self, key.lower(), default)

        class Hiding(dict):
            __len__ = lambda self: 1  # noqa: E731
            __iter__ = lambda self: iter(["scale"])  # noqa: E731

        class Reversed(list):
            def __getitem__(self, index):
                return list.__getitem__(self, -1 - index)

        class Short(list):
            __len__ = lambda self: 1  # noqa: E731
            __iter__ = lambda self: iter([0])  # noqa: E731

        class Few(set):
            __len__ = lambda self: 1  # noqa: E731
            __iter__ = lambda self: iter([0])  # noqa: E731

        lowered, hiding = Lowered(Scale=2.0, scale=1.0), Hiding(scale=2.0)
        self.check(lambda x: x * lowered["Scale"], lambda: lowered.update(Scale=3.0))
        held = Lowered(Held=Holder(2.0))
        self.check(lambda x: x * held["Held"].scale, lambda: held.update(Held=Holder(3.0)))
        late = lambda x: x * (3.0 if "late" in hiding else 2.0)  # noqa: E731
        self.check(late, lambda: dict.update(hiding, late=1))
        numbers, holders = Reversed([2.0, 3.0]), Reversed([Holder(2.0), Holder(3.0)])

        def first(x):
            one, _ = numbers
            return x * one

        self.check(first, lambda: list.__setitem__(numbers, 0, 7.0))
        change = lambda: list.__setitem__(holders, 0, Holder(7.0))  # noqa: E731
        self.check(lambda x: x * [*holders][0].scale, change)
        self.check(lambda x: x * [*holders][0].scale, lambda: setattr([*holders][0], "scale", 8.0))
        short, few = Short([2.0]), Few([2.0])
        self.check(lambda x: x * (3.0 if 5.0 in short else 2.0), lambda: list.append(short, 5.0))
        self.check(lambda x: x * (3.0 if 5.0 in few else 2.0), lambda: set.add(few, 5.0))

    # Constructors ------------------------------------------------------------------------

    def test_constructors_that_methods_of_classes_call(self):
        factor = 2.0

        class Scale:
            def __init__(self):
                self.scale = factor

            @classmethod
            def make(cls):
                return cls()

            def __class_getitem__(cls, key):
                return cls()

        class Derived(Scale):
            def __init__(self):
                self.scale = factor * 3

        class Meta(type):
            def make(cls):
                return cls()

        class Made(metaclass=Meta):
            def __init__(self):
                self.scale = factor

        class Copied(tuple):
            def __new__(cls, parts=()):
                return super().__new__(cls, (factor,))

        @dataclasses.dataclass(eq=False, repr=False)
        class Replaced:
            part: float = 1.0

            def __post_init__(self):
                self.scale = factor

        def change():
            nonlocal factor
            factor += 1

        scale, derived, copied, replaced = Scale(), Derived(), Copied(), Replaced()
        make, made, kind_of = scale.make, Made(), type
        self.check(lambda x: x * scale.make().scale, change)
        self.check(lambda x: x * derived.make().scale, change)
        self.check(lambda x: x * make().scale, change)
        self.check(lambda x: x * made.scale * Made.make().scale, change)
        self.check(lambda x: x * kind_of(copied)()[0], change)
        self.check(lambda x: x * copy.copy(copied)[0], change)
        self.check(lambda x: x * dataclasses.replace(replaced, part=2.0).scale, change)
        self.check_refused(lambda x: x * len(Scale.__subclasses__()), "it reads __subclasses__")

    def test_constructors_that_are_not_called(self):
        class Loaded:
            def __init__(self):
                self.scale = float(eval("2"))

        class Other:
            @classmethod
            def make(cls):
                return cls()

        loaded, other = Loaded(), Other()
        other.loaded = loaded
        self.check(lambda x: x * other.loaded.scale, lambda: setattr(loaded, "scale", 3.0))

    # Modules by themselves -----------------------------------------------------------------

    @torch.no_grad()
    def test_modules_that_are_not_registered(self):
        djinn.set_automatic_registration(True)
        self.addCleanup(djinn.set_automatic_registration, False)
        x = torch.randn(4).to(self.device)

        def replace(thing):
            thing.__dict__ = {**thing.__dict__, "scale": 5.0}

        for change in (
            lambda module: replace(module),
            lambda module: replace(module.holder),
            lambda module: setattr(module, "__class__", Tripled),
        ):
            module = Scaled()
            for _ in range(8):
                before = module(x).cpu()
            statistics = [s for one, s in djinn.registered_modules() if one is module]
            self.assertGreater(statistics[0]["replays"], 0, statistics)
            change(module)
            expected = module.forward(x).cpu()
            self.assertFalse(torch.equal(before, expected))
            torch.testing.assert_close(module(x).cpu(), expected)
