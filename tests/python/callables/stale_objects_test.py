"""Registered callables: objects that a function leads to change, and no answer is stale."""

import collections
import contextlib
import enum
import functools
import gc
import importlib
import importlib.util
import inspect
import operator
import os
import pathlib
import random
import sys
import tempfile
import threading
import types
import unittest.mock
import weakref

import torch

import djinn
from tests.python.callables.stale_answers_case import StaleAnswersCase

SCALE = 2.0

# A module of the program's own.
settings = types.ModuleType("djinn_test_settings")
sys.modules[settings.__name__] = settings


class Holder:
    """Something with attributes."""

    def __init__(self, scale):
        self.scale = scale


class StaleObjectsTest(StaleAnswersCase):
    def setUp(self):
        super().setUp()
        settings.__dict__.pop("late", None)
        settings.scale = 2.0

    # Objects that other objects refer to ------------------------------------------

    def test_objects_behind_weak_references_are_watched(self):
        holder = Holder(2.0)
        reference = weakref.ref(holder)
        self.check(lambda x: x * reference().scale, lambda: setattr(holder, "scale", 3.0))

        class Child(torch.nn.Module):
            def __init__(self, parent):
                super().__init__()
                self.parent = weakref.ref(parent)

            def forward(self, x):
                return x * self.parent().gain

        parent = torch.nn.Module()
        parent.gain = 2.0
        parent.child = Child(parent)
        self.check(parent.child, lambda: setattr(parent, "gain", 3.0))

        weight = torch.ones(4, device=self.device)
        weakly = weakref.ref(weight)
        self.check_refused(lambda x: x * weakly(), "refers weakly to a tensor")
        self.assertIsNotNone(weight)
        # The weights are also referred to in another way, as an LSTM's are.
        layer = torch.nn.LSTM(4, 4).to(self.device)
        with torch.no_grad():
            compiled = self.warm(lambda x: layer(x[None])[0])
            layer.bias_ih_l0.add_(1)
            x = torch.randn(4).to(self.device)
            torch.testing.assert_close(compiled(x).cpu(), layer(x[None])[0].cpu())

    def test_a_weakly_referenced_object_can_be_collected(self):
        holder = Holder(2.0)
        reference = weakref.ref(holder)

        def function(x):
            there = reference()
            return x * there.scale if there is not None else x - 1

        compiled = self.warm(function)
        del holder
        gc.collect()
        self.assertIsNone(reference())
        x = torch.randn(4)
        torch.testing.assert_close(compiled(x.to(self.device)).cpu(), x - 1)

    def test_methods_of_builtin_objects(self):
        by_name, in_order = {"scale": 2.0}, [2.0]
        get, item, size = by_name.get, in_order.__getitem__, in_order.__len__
        self.check(lambda x: x * get("scale"), lambda: by_name.update(scale=3.0))
        self.check(lambda x: x * item(0), lambda: in_order.__setitem__(0, 3.0))
        self.check(lambda x: x * size(), lambda: in_order.append(1.0))
        draw = random.Random(1).random
        self.check_refused(lambda x: x * draw(), "a Random, which cannot be watched")

    def test_attributes_of_plain_values(self):
        class Name(str):
            factor = 1.0

        class Bare(int):
            __slots__ = ()
            factor = 1.0

        name = Name("x")
        name.scale = 2.0
        self.check(lambda x: x * name.scale, lambda: setattr(name, "scale", 3.0))
        self.check(lambda x: x * name.factor, lambda: setattr(Name, "factor", 3.0))
        bare = Bare(2)
        self.check(lambda x: x * bare.factor, lambda: setattr(Bare, "factor", 3.0))

    def test_members_of_enums(self):
        class Kind(enum.Enum):
            A = {"scale": 2.0}
            B = 1

            def twice(self):
                return self.scale * 2

        class Level(enum.IntEnum):
            LOW = 1

        Kind.B.scale = Level.LOW.scale = 2.0
        self.check(lambda x: x * Kind.A.value["scale"], lambda: Kind.A.value.update(scale=3.0))
        self.check(lambda x: x * Level.LOW.scale, lambda: setattr(Level.LOW, "scale", 3.0))
        # The same is true of arguments.
        by_value = lambda x, kind: x * kind.value["scale"]  # noqa: E731
        self.check(by_value, lambda: Kind.A.value.update(scale=4.0), Kind.A)
        by_attribute = lambda x, kind: x * kind.scale  # noqa: E731
        self.check(by_attribute, lambda: setattr(Kind.B, "scale", 5.0), Kind.B)
        self.check(by_attribute, lambda: setattr(Level.LOW, "scale", 5.0), Level.LOW)
        other = lambda self: self.scale * 3  # noqa: E731
        self.check(lambda x, kind: x * kind.twice(), lambda: setattr(Kind, "twice", other), Kind.B)

    def test_attributes_of_classes(self):
        class Meta(type):
            scale = 2.0

        class Made(metaclass=Meta):
            __factor__ = 2.0

        made = Made()
        self.check(lambda x: x * Made.scale, lambda: setattr(Meta, "scale", 3.0))
        self.check(lambda x: x * made.__factor__, lambda: setattr(Made, "__factor__", 3.0))

        class Weight(torch.nn.Parameter):
            scale = 2.0

        weight = Weight(torch.ones(4), requires_grad=False)
        self.check(lambda x: x * weight.scale, lambda: setattr(Weight, "scale", 3.0))
        called = functools.partial(lambda x: x * called.scale)
        called.scale = 2.0
        self.check(called, lambda: setattr(called, "scale", 3.0))

    def test_constructors_count_where_they_may_be_called(self):
        factor = 2.0

        class Scale:
            def __init__(self):
                self.scale = eval("1.0") * factor

        class Plain:
            def __init__(self):
                self.scale = factor

        def change():
            nonlocal factor
            factor += 1

        scale, plain = Scale(), Plain()
        self.check(lambda x: x * scale.scale, lambda: setattr(scale, "scale", 3.0))
        self.check(lambda x: x * Plain().scale, change)
        self.check(lambda x: x * type(plain)().scale, change)
        self.check(lambda x: x * plain.__class__().scale, change)
        self.check_refused(lambda x: x * Scale().scale, "it uses eval()")

    def test_collections_of_ones_own(self):
        class Numbers(list):
            pass

        class Pair(tuple):
            pass

        pair = Pair((Holder(2.0), 1))
        self.check(lambda x: x * pair[0].scale, lambda: setattr(pair[0], "scale", 3.0))
        self.check(lambda x: x * getattr(pair, "more", 1.0), lambda: setattr(pair, "more", 3.0))
        numbers = Numbers([2.0])
        self.check(lambda x: x * numbers[0], lambda: numbers.__setitem__(0, 3.0))
        counted = collections.defaultdict(lambda: 2.0)
        pick = lambda x: x * (counted.default_factory or float)()  # noqa: E731
        self.check(pick, lambda: setattr(counted, "default_factory", lambda: 3.0))
        chosen = {1}

        def change():
            chosen.clear()
            chosen.add(True)

        self.check(lambda x: x * (2 if type(min(chosen)) is int else 3), change)

        class Turns(collections.deque):
            pass

        turns = Turns([2.0])
        self.check_refused(lambda x: x * turns[0], "a Turns, which cannot be watched")
        local = threading.local()
        local.scale = 2.0
        self.check_refused(lambda x: x * local.scale, "a _local, which cannot be watched")
        cached = functools.lru_cache(lambda: SCALE)
        self.check_refused(lambda x: x * cached(), "a cache of calls")

    def test_equal_but_different_values_are_told_apart(self):
        numbers = range(0, 3, 2)

        def change():
            nonlocal numbers
            numbers = range(0, 4, 2)

        self.assertEqual(numbers, range(0, 4, 2))
        self.check(lambda x: x * numbers.stop, change)
        for first, second in [
            ({(2,): 1}, {(2.0,): 1}),
            ({(1, (0.0,)): 1}, {(1, (-0.0,)): 1}),
            ({0.0: 1}, {-0.0: 1}),
            ({range(0, 3, 2): 1}, {range(0, 4, 2): 1}),
            ({frozenset((2,)): 1}, {frozenset((2.0,)): 1}),
            ({0.0}, {-0.0}),
        ]:
            chosen, text = first.copy(), str(first)
            self.assertEqual(chosen, second)

            def replace(chosen=chosen, second=second):
                chosen.clear()
                chosen.update(second)

            self.check(lambda x: x * (2 if str(chosen) == text else 3), replace)

    def test_a_missing_attribute_differs_from_none(self):
        module, options = types.ModuleType("settings"), type("Options", (), {})
        for owner, function in (
            (module, lambda x: x * (2.0 if hasattr(module, "late") else 3.0)),
            (options, lambda x: x * (2.0 if hasattr(options, "late") else 3.0)),
            (torch.nn.ReLU, lambda x: x * (2.0 if hasattr(torch.nn.ReLU, "late") else 3.0)),
            (torch.Tensor, lambda x: x * (2.0 if hasattr(x, "late") else 3.0)),
        ):
            with self.subTest(owner):
                self.check(function, lambda: setattr(owner, "late", None))
                self.check(function, lambda: delattr(owner, "late"))

    def test_deleters_of_properties(self):
        scale = [2.0]

        class Box:
            def drop(self):
                self.kept = scale[0]

            value = property(lambda self: 1.0, None, drop)

        def function(x):
            box = Box()
            del box.value
            return x * box.kept

        self.check(function, lambda: scale.__setitem__(0, 3.0))

    def test_named_tuples_and_slices(self):
        Pair = collections.namedtuple("Pair", "scale part")
        pair = Pair(2.0, slice(0, 2))
        holder = Holder(pair)

        def function(x):
            return x[holder.scale.part] * holder.scale.scale

        self.check(function, lambda: setattr(holder, "scale", Pair(3.0, slice(1, 3))))

    def test_a_hook_that_replaces_another_is_seen(self):
        weight = torch.nn.Parameter(torch.ones(4, device=self.device))
        handles = [weight.register_hook(lambda gradient: gradient * 2)]

        @djinn.compile
        def step(x):
            weight.grad = None
            (weight * x).sum().backward()

        ones = torch.ones(4, device=self.device)
        for _ in range(5):
            step(ones)
        self.assertGreater(step.statistics()["replays"], 0)
        handles.pop().remove()
        handles.append(weight.register_hook(lambda gradient: gradient * 3))
        step(ones)
        self.assertEqual(weight.grad.tolist(), [3] * 4)

        register = torch.nn.modules.module.register_module_forward_hook
        with contextlib.ExitStack() as stack:
            factor = 2.0
            first = register(lambda module, args, output: output * factor)
            stack.callback(lambda: first.remove())

            def other_hook():
                nonlocal first
                first.remove()
                first = register(lambda module, args, output: output * 5)

            def other_factor():
                nonlocal factor
                factor = 3.0

            self.check(torch.nn.Tanh(), other_factor)
            self.check(torch.nn.Tanh(), other_hook)

    # Other ways to name a value ---------------------------------------------------

    def test_attributes_of_modules_named_by_strings(self):
        change = lambda: setattr(settings, "scale", 3.0)  # noqa: E731
        self.check(lambda x: x * getattr(settings, "scale"), change)
        change = lambda: setattr(settings, "late", 3.0)  # noqa: E731
        self.check(lambda x: x * getattr(settings, "late", 1.0), change)
        del settings.late
        self.check(lambda x: x * (settings.late if hasattr(settings, "late") else 1.0), change)
        name = "scale"
        why = "it looks through the module djinn_test_settings"
        self.check_refused(lambda x: x * getattr(settings, name), f"{why} (getattr)")
        self.check_refused(lambda x: x * getattr(settings, name, 1.0), f"{why} (getattr)")
        self.check_refused(lambda x: x * getattr(settings, "s" + name[1:]), f"{why} (getattr)")
        self.check_refused(lambda x: x * getattr(settings, name or "x"), f"{why} (getattr)")
        self.check_refused(lambda x: x * [*map(getattr, [settings], [name])][0], f"{why} (getattr)")
        self.check_refused(lambda x: x * vars(settings)["scale"], f"{why} (vars)")
        self.check_refused(lambda x: x * settings.__dict__["scale"], f"{why} (__dict__)")
        self.check_refused(lambda x: x * operator.attrgetter(name)(settings), f"{why} (attrgetter)")
        for function, how in (
            (lambda x: x * settings.__getattribute__(name), "__getattribute__"),
            (lambda x: x * inspect.getattr_static(settings, name), "getattr_static"),
            (lambda x: x * len(operator.methodcaller("__dir__")(settings)), "methodcaller"),
        ):
            self.check_refused(function, f"{why} ({how})")
        # A function that has the module itself may read any of its attributes.
        scale_of = lambda module: module.scale  # noqa: E731
        package = types.ModuleType("djinn_test_package")
        package.settings = enclosing = settings

        def matches(x):
            match settings:
                case types.ModuleType(scale=scale):
                    return x * scale

        def renames(x):
            module = settings
            return x * scale_of(module)

        def imports(x):
            import djinn_test_settings as module

            return x * scale_of(module)

        def imports_from_a_package(x):
            from djinn_test_package import settings as module

            return x * scale_of(module)

        self.enterContext(unittest.mock.patch.dict(sys.modules, djinn_test_package=package))
        for function in (
            imports,
            imports_from_a_package,
            lambda x: x * float("{0.scale}".format(settings)),
            lambda x: x * scale_of(settings),
            lambda x: x * scale_of(package.settings),
            lambda x: x * scale_of(enclosing),
            lambda x: x * [settings][0].scale,
            matches,
            renames,
        ):
            self.check_refused(function, "it refers to the module djinn_test_settings as a whole")

        def asks(x):
            module = settings
            import djinn_test_settings

            scale = djinn_test_settings.scale
            return x * module.scale * scale if settings is not None and enclosing else x

        self.check(asks, lambda: setattr(settings, "scale", 4.0))
        self.enterContext(unittest.mock.patch.dict(os.environ, DJINN_TEST_SCALE="2"))
        scaled = lambda module: float(module.getenv("DJINN_TEST_SCALE"))  # noqa: E731
        self.check(lambda x: x * scaled(os), lambda: os.environ.update(DJINN_TEST_SCALE="3"))
        # With other objects these names have no effect.
        holder = Holder(2.0)
        self.check(lambda x: x * getattr(holder, name), lambda: setattr(holder, "scale", 3.0))

    def test_modules_that_make_their_attributes(self):
        made = {"scale": 2.0}
        lazy = types.ModuleType("djinn_test_lazy")
        lazy.__getattr__ = lambda name: made[name]
        with unittest.mock.patch.dict(sys.modules, djinn_test_lazy=lazy):

            def imports(x):
                import djinn_test_lazy

                return x * djinn_test_lazy.scale

            self.check(imports, lambda: made.update(scale=3.0))

            class Made(types.ModuleType):
                scale = property(lambda self: made["scale"])

            sys.modules["djinn_test_lazy"] = Made("djinn_test_lazy")
            self.check_refused(imports, "a module with a class of its own")

    def test_dynamic_lookup_of_names_is_refused(self):
        key = settings.__name__
        for function, what in [
            (lambda x: x * globals()["SCALE"], "globals()"),
            (lambda x: x * eval("SCALE"), "eval()"),
            (lambda x: x * sys.modules[key].scale, "sys.modules"),
            (lambda x: x * __import__(key).scale, "__import__()"),
            (lambda x: x * importlib.import_module(key).scale, "importlib.import_module()"),
            (lambda x: x * sys._getframe().f_globals["SCALE"], "sys._getframe()"),
        ]:
            self.check_refused(function, f"it uses {what}, through which it may refer to anything")
        everything = globals
        self.check_refused(lambda x: x * everything()["SCALE"], "it uses globals()")

    def test_the_environment_of_the_process(self):
        get, expand = os.environ.get, os.path.expandvars
        for read in (
            lambda: os.environ["DJINN_TEST_SCALE"],
            lambda: os.getenv("DJINN_TEST_SCALE"),
            lambda: get("DJINN_TEST_SCALE"),
            lambda: os.path.expandvars("$DJINN_TEST_SCALE"),
            lambda: expand("$DJINN_TEST_SCALE"),
        ):
            with unittest.mock.patch.dict(os.environ, DJINN_TEST_SCALE="2"):
                change = lambda: os.environ.update(DJINN_TEST_SCALE="3")  # noqa: E731
                self.check(lambda x: x * int(read()), change)

    def test_a_file_of_the_programs_named_like_a_standard_one(self):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        path = pathlib.Path(folder, "code.py")
        path.write_text(
            "SCALE = 2.0\n"
            "class Holder:\n"
            "    scale = 1.0\n"
            "def function(x):\n"
            "    return x * SCALE * Holder.scale\n"
        )
        specification = importlib.util.spec_from_file_location("code", path)
        module = importlib.util.module_from_spec(specification)
        with unittest.mock.patch.dict(sys.modules, code=module):
            specification.loader.exec_module(module)
            self.check(module.function, lambda: setattr(module, "SCALE", 3.0))
            self.check(module.function, lambda: setattr(module.Holder, "scale", 3.0))
