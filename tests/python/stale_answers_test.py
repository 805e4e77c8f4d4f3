"""Registered callables: whatever a function refers to changes, no answer is stale."""

import builtins
import collections
import contextlib
import datetime
import decimal
import enum
import functools
import gc
import importlib
import importlib.util
import logging
import math
import mimetypes
import operator
import os
import pathlib
import random
import secrets
import sys
import tempfile
import threading
import time
import types
import unittest.mock
import uuid
import weakref

import torch
import torch.nn.functional as F
import transformers

import djinn
from tests.python.remote_case import RemoteCase

SCALE = 2.0

# A module of the program's own.
settings = types.ModuleType("djinn_test_settings")
sys.modules[settings.__name__] = settings


class Holder:
    """Something with attributes."""

    def __init__(self, scale):
        self.scale = scale


class StaleAnswersTest(RemoteCase):
    def setUp(self):
        torch.manual_seed(3)
        settings.__dict__.pop("late", None)
        settings.scale = 2.0

    def warm(self, function, *args):
        """Registered and carried out again; `function` takes a tensor first."""
        compiled = djinn.compile(function)
        for _ in range(4):
            compiled(torch.randn(4).to(self.device), *args)
        self.assertGreater(compiled.statistics()["replays"], 0, compiled.statistics())
        return compiled

    def check(self, function, change, *args):
        """After `change` it is carried out as a call of the function itself would be."""
        compiled = self.warm(function, *args)
        x = torch.randn(4)
        before = function(x, *args)
        change()
        expected = function(x, *args)
        self.assertFalse(torch.equal(before, expected), "the change changes nothing")
        for _ in range(3):
            torch.testing.assert_close(compiled(x.to(self.device), *args).cpu(), expected)

    def check_refused(self, function, why, *args):
        compiled = djinn.compile(function)
        for _ in range(4):
            compiled(torch.randn(4).to(self.device), *args)
        self.assertEqual(compiled.statistics()["replays"], 0)
        self.assertIn(why, compiled.statistics()["refusal"])

    # What objects lead to ---------------------------------------------------------

    def test_what_a_weak_reference_leads_to(self):
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
        # Weights that are also referred to in another way, as those of an LSTM are.
        layer = torch.nn.LSTM(4, 4).to(self.device)
        with torch.no_grad():
            compiled = self.warm(lambda x: layer(x[None])[0])
            layer.bias_ih_l0.add_(1)
            x = torch.randn(4).to(self.device)
            torch.testing.assert_close(compiled(x).cpu(), layer(x[None])[0].cpu())

    def test_what_is_referred_to_weakly_is_free_to_go(self):
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
        # As arguments, too.
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

    def test_what_is_equal_and_not_the_same(self):
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

    def test_a_hook_in_another_ones_place(self):
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

    # What arguments are like ------------------------------------------------------

    def check_arguments(self, function, first, second):
        """Warmed with one argument, called with another; no gradients."""
        with torch.no_grad():
            compiled = djinn.compile(function)
            for _ in range(5):
                result = compiled(first)
            self.assertGreater(compiled.statistics()["replays"], 0, compiled.statistics())
            expected = function(second)
            self.assertFalse(torch.equal(result.cpu(), expected.cpu()), "nothing is different")
            torch.testing.assert_close(compiled(second).cpu(), expected.cpu())
        return compiled

    def test_what_arguments_are_like(self):
        ones = torch.ones(4, device=self.device)
        leaf, other = ones.clone().requires_grad_(), ones.clone().requires_grad_()
        other.grad = ones
        self.check_arguments(lambda x: x * (2 if x.grad is None else 3), leaf, other)
        self.check_arguments(lambda x: x * (2 if x.is_leaf else 3), leaf, leaf * 1)
        hooked = leaf.detach().requires_grad_()
        hooked.register_hook(lambda gradient: gradient)
        compiled = self.check_arguments(lambda x: x * (3 if x._backward_hooks else 2), leaf, hooked)
        self.assertIn("hooks", compiled.statistics()["refusal"])
        eight = torch.ones(8, device=self.device)
        self.check_arguments(lambda x: x * x.untyped_storage().nbytes(), ones, eight[:4])
        self.check_arguments(lambda x: x * (2 if x._is_view() else 3), ones, ones.clone().view(4))
        square = torch.ones(2, 4, device=self.device)
        self.check_arguments(lambda x: x * x._base.dim(), eight[:4], square[0])

    def test_arguments_among_what_is_referred_to(self):
        weight = torch.ones(4, device=self.device)
        compare = lambda x: x * (2 if x is weight else 3)  # noqa: E731
        self.check_arguments(compare, weight, weight.view(4))
        self.check_arguments(compare, weight.detach(), weight)

    def test_names_of_dimensions(self):
        named = torch.ones(4, device=self.device).refine_names("a")
        compiled = djinn.compile(lambda x: x * (2 if x.names[0] == "a" else 3))
        for given, factor in ((named, 2), (named.rename("b"), 3)):
            for _ in range(4):
                result = compiled(given)
                self.assertEqual(result.tolist(), [factor] * 4)
        self.assertIn("named", compiled.statistics()["refusal"])

    def test_counts_of_writes_are_not_watched(self):
        for function, what in [
            (lambda x: x * x._version, "_version"),
            (lambda x: x * getattr(x, "_version"), "_version"),
            (lambda x: x * (1 + x.data_ptr() % 2), "data_ptr"),
        ]:
            self.check_refused(function, f"it reads {what}")

    # Gradients ----------------------------------------------------------------------

    def test_gradients_that_share_memory(self):
        x = torch.randn(4)
        # Either may be the one whose memory is named when the call is carried out.
        for replaced in range(2):
            weights = [torch.nn.Parameter(torch.ones(4, device=self.device)) for _ in range(2)]
            p, q = weights

            @djinn.compile
            def step(x):
                ((p * x).sum() + (q * x).sum()).backward()

            p.grad = q.grad = torch.zeros(4, device=self.device)
            for _ in range(5):
                step(x.to(self.device))
            self.assertGreater(step.statistics()["replays"], 0, step.statistics())
            torch.testing.assert_close(p.grad.cpu(), x * 10)
            weights[replaced].grad = torch.zeros(4, device=self.device)
            step(x.to(self.device))
            torch.testing.assert_close(weights[replaced].grad.cpu(), x)
            torch.testing.assert_close(weights[1 - replaced].grad.cpu(), x * 11)
            # And back, where they share it as two tensors.
            weights[replaced].grad = weights[1 - replaced].grad.view(4)
            step(x.to(self.device))
            torch.testing.assert_close(p.grad.cpu(), x * 13)

    def test_gradients_that_share_memory_with_arguments(self):
        p = torch.nn.Parameter(torch.ones(4, device=self.device))

        @djinn.compile
        def step(x, y):
            (p * x).sum().backward()
            return y * 1

        x, zeros = torch.ones(4, device=self.device), torch.zeros(4, device=self.device)
        for _ in range(5):
            p.grad = zeros.clone()
            self.assertEqual(step(x, p.grad).tolist(), [1] * 4)
        self.assertGreater(step.statistics()["replays"], 0, step.statistics())
        for _ in range(3):
            p.grad = zeros.clone()
            self.assertEqual(step(x, zeros).tolist(), [0] * 4)
            self.assertEqual(p.grad.tolist(), [1] * 4)

    def test_gradients_that_share_memory_with_other_tensors(self):
        p = torch.nn.Parameter(torch.ones(4, device=self.device))
        total = torch.zeros(4, device=self.device)

        @djinn.compile
        def step(x):
            (p * x).sum().backward()
            return total * 1

        x = torch.ones(4, device=self.device)
        p.grad = total
        for i in range(1, 6):
            self.assertEqual(step(x).tolist(), [i] * 4)
        self.assertGreater(step.statistics()["replays"], 0, step.statistics())
        for _ in range(3):
            p.grad = torch.zeros(4, device=self.device)
            self.assertEqual(step(x).tolist(), [5] * 4)
            self.assertEqual(p.grad.tolist(), [1] * 4)

    def test_gradients_that_are_compared(self):
        p, q = (torch.nn.Parameter(torch.ones(4, device=self.device)) for _ in range(2))
        p.grad = q.grad = torch.zeros(4, device=self.device)

        def function(x):
            return x * (2 if p.grad is q.grad else 3)

        self.check(function, lambda: setattr(q, "grad", p.grad.view(4)))

    # Functions that were replaced -------------------------------------------------

    def patch(self, owner, name, thing):
        patched = unittest.mock.patch.object(owner, name, thing, create=True)
        self.addCleanup(patched.stop)
        return patched.start

    def test_replaced_functions_of_libraries(self):
        self.check(lambda x: torch.nn.functional.gelu(x), self.patch(F, "gelu", lambda x: x * 7))
        self.check(lambda x: F.silu(x), self.patch(F, "silu", lambda x: x * 7))

        def imports(x):
            from torch.nn.functional import mish

            return mish(x)

        self.check(imports, self.patch(F, "mish", lambda x: x * 7))
        replaced = lambda self, x: x * 7  # noqa: E731
        layers = torch.nn.Sequential(torch.nn.ReLU())
        self.check(layers, self.patch(torch.nn.ReLU, "forward", replaced))
        # Of what a module of PyTorch's calls itself.
        self.check(torch.nn.ELU(), self.patch(F, "elu", lambda x, *_: x * 7))
        tanh = torch.nn.Tanh()
        self.patch(torch.nn.Tanh, "scale", 2.0)()
        self.check(lambda x: x * tanh.scale, self.patch(torch.nn.Tanh, "scale", 3.0))
        self.check(lambda x: x * max(1, 2), self.patch(builtins, "max", lambda *_: 7))

    def test_what_replaced_them_is_looked_through(self):
        scale = 2.0

        def change():
            nonlocal scale
            scale *= 2

        def replacement(x):
            return x * scale

        self.patch(F, "softsign", replacement)()
        self.check(lambda x: F.softsign(x), change)
        self.patch(torch.nn.Softshrink, "forward", lambda self, x: replacement(x))()
        self.check(torch.nn.Softshrink(), change)
        # However it calls itself.
        self.check(functools.wraps(F.relu)(replacement), change)
        self.check(torch.no_grad()(replacement), change)
        part = functools.partial(replacement)
        self.check(torch.vmap(part), change)

    def test_a_global_named_like_a_builtin(self):
        variables = {"__builtins__": builtins, "__name__": "shadows"}
        function = types.FunctionType((lambda x: x * min(1, 2)).__code__, variables)
        self.check(function, lambda: variables.update(min=lambda *_: 7))

    # What libraries keep -------------------------------------------------------------

    def test_collections_of_libraries_modules(self):
        self.patch(sys, "argv", ["program"])()
        self.check(lambda x: x * len(sys.argv), lambda: sys.argv.append("more"))
        self.check(lambda x: x * len(sys.argv[0]), lambda: sys.argv.__setitem__(0, "other"))
        self.enterContext(unittest.mock.patch.dict(mimetypes.types_map, {".djinn": "a/b"}))
        types_map = mimetypes.types_map
        for function in (
            lambda x: x * len(mimetypes.types_map[".djinn"]),
            lambda x: x * len(types_map[".djinn"]),
        ):
            mimetypes.types_map[".djinn"] = "a/b"
            self.check(function, lambda: mimetypes.types_map.update({".djinn": "a/bc"}))

    def test_attention_functions_of_transformers(self):
        config = transformers.LlamaConfig(
            hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
            num_key_value_heads=2, vocab_size=11, attn_implementation="sdpa",
        )
        model = transformers.LlamaModel(config).eval().to(self.device)
        ids = torch.randint(0, 11, (1, 4)).to(self.device)
        layer, scale = model.layers[0].self_attn, 1.0

        def replacement(module, query, key, value, mask, **kwargs):
            return torch.ones_like(query).transpose(1, 2).contiguous() * scale, None

        interface = transformers.AttentionInterface
        functions = transformers.modeling_utils.ALL_ATTENTION_FUNCTIONS
        own, common = functions._local_mapping, interface._global_mapping
        calls = {
            "named by the model": lambda ids: model(ids, use_cache=False).last_hidden_state,
            "named by the program": lambda ids: functions["sdpa"](
                layer, ids[None, None] * 1.0, ids[None, None] * 1.0, ids[None, None] * 2.0, None
            )[0],
        }

        def replace():
            nonlocal scale
            scale += 1

        def check(function, change):
            compiled = djinn.compile(function)
            # Some are looked through for the values that they read.
            for _ in range(8):
                before = compiled(ids)
            self.assertGreater(compiled.statistics()["replays"], 0, compiled.statistics())
            change()
            result, expected = compiled(ids).cpu(), function(ids).cpu()
            self.assertFalse(torch.equal(before.cpu(), expected), "the change changes nothing")
            torch.testing.assert_close(result, expected)

        for name, function in calls.items():
            for mapping, change in (
                (own, lambda: functions.__setitem__("sdpa", replacement)),
                (common, lambda: interface.register("sdpa", replacement)),
            ):
                with self.subTest(name), torch.no_grad(), unittest.mock.patch.dict(mapping):
                    check(function, change)
                    # It is looked through, too.
                    check(function, replace)

    # What is named in another way -------------------------------------------------

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
        # Of other things they do no harm.
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

    def test_what_may_lead_anywhere_is_refused(self):
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
        get = os.environ.get
        for read in (
            lambda: os.environ["DJINN_TEST_SCALE"],
            lambda: os.getenv("DJINN_TEST_SCALE"),
            lambda: get("DJINN_TEST_SCALE"),
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

    # What cannot be watched -----------------------------------------------------------

    def test_states_of_the_process_are_refused(self):
        now, clock = datetime.datetime, time.time
        generator = torch.Generator()
        log = logging.getLogger("djinn_test")
        for function, what in [
            (lambda x: x * (2 if threading.current_thread().name == "a" else 3), "threading.current_thread"),
            (lambda x: x * (threading.get_ident() % 2), "threading.get_ident"),
            (lambda x: x * secrets.randbelow(2), "secrets.randbelow"),
            (lambda x: x * secrets.choice([2, 2]), "SystemRandom"),
            (lambda x: x * (2 if time.time() > 0 else 3), "time.time"),
            (lambda x: x * (2 if clock() > 0 else 3), "time.time"),
            (lambda x: x * (2 if time.perf_counter() > 0 else 3), "time.perf_counter"),
            (lambda x: x * (2 if now.now().year else 3), "datetime.datetime and now"),
            (lambda x: x * (2 if datetime.date.today().year else 3), "datetime.date and today"),
            (lambda x: x * len(os.getcwd()), "os.getcwd"),
            (lambda x: x * (2 if os.path.exists("/x") else 3), "posixpath.exists"),
            (lambda x: x * len(open("/dev/null").read()), "builtins.open"),
            (lambda x: x * (2 if id(x) % 2 else 3), "builtins.id"),
            (lambda x: x * decimal.getcontext().prec, "decimal.getcontext"),
            (lambda x: x * float(decimal.Decimal(1) / 3), "decimal.Decimal"),
            (lambda x: x * (torch.initial_seed() % 3), "initial_seed"),
            (lambda x: x * (generator.initial_seed() % 3), "initial_seed"),
            (lambda x: x * (torch.default_generator.initial_seed() % 3), "initial_seed"),
            (lambda x: x * logging.getLogger("djinn_test").getEffectiveLevel(), "logging.getLogger"),
            (lambda x: x * len(uuid.uuid4().hex), "uuid.uuid4"),
        ]:
            with self.subTest(what):
                self.check_refused(function, what)
        # What is logged is nobody's concern but the program's.
        self.warm(lambda x: (log.debug("a"), logging.getLogger("b").debug("c"), x * 2)[2])

    def test_levels_of_loggers(self):
        parent, log = logging.getLogger("djinn_test"), logging.getLogger("djinn_test.a")
        self.addCleanup(parent.setLevel, parent.level)
        self.addCleanup(logging.disable, logging.NOTSET)
        for function in (
            lambda x: x * (2 if log.isEnabledFor(logging.DEBUG) else 3),
            lambda x: x * log.getEffectiveLevel(),
        ):
            parent.setLevel(logging.INFO)
            self.check(function, lambda: parent.setLevel(logging.DEBUG))
        enabled = lambda x: x * (2 if log.isEnabledFor(logging.DEBUG) else 3)  # noqa: E731
        self.check(enabled, lambda: logging.disable(logging.DEBUG))

    # Arguments and modes ----------------------------------------------------------

    def test_keys_of_dictionaries_as_arguments(self):
        compiled = djinn.compile(lambda named: [x * key for key, x in named.items()][0])
        x = torch.arange(3).to(self.device)
        for _ in range(4):
            self.assertEqual(compiled({2: x}).dtype, torch.int64)
        self.assertGreater(compiled.statistics()["replays"], 0)
        self.assertEqual(compiled({2.0: x}).dtype, torch.float32)

    def test_arguments_that_are_equal_and_not_the_same(self):
        x = torch.randn(4)
        compiled = djinn.compile(lambda x, numbers: x * numbers.stop)
        for stop in (3, 4):
            for _ in range(4):
                result = compiled(x.to(self.device), range(0, stop, 2))
                torch.testing.assert_close(result.cpu(), x * stop)
        self.assertGreater(compiled.statistics()["replays"], 2)
        by_key = lambda named: [x * math.copysign(2, key) for key, x in named.items()][0]  # noqa: E731
        compiled = djinn.compile(by_key)
        for key in (0.0, -0.0):
            for _ in range(4):
                torch.testing.assert_close(compiled({key: x.to(self.device)}).cpu(), by_key({key: x}))
        self.assertGreater(compiled.statistics()["replays"], 2)

    def test_classes_of_tensors_as_arguments(self):
        choose = lambda xs: xs[0] * (2 if isinstance(xs[0], torch.nn.Parameter) else 3)  # noqa: E731
        x = torch.randn(4)
        plain = x.to(self.device)
        weight = torch.nn.Parameter(plain, requires_grad=False)
        for wrap in (list, tuple, lambda xs: {0: xs[0]}):
            compiled = djinn.compile(choose)
            for _ in range(2):
                for given, factor in ((plain, 3), (weight, 2)):
                    for _ in range(4):
                        torch.testing.assert_close(compiled(wrap([given])).cpu(), x * factor)
            self.assertGreater(compiled.statistics()["replays"], 6, compiled.statistics())
        compiled = self.warm(lambda x: x * (2 if isinstance(x, torch.nn.Parameter) else 3))
        torch.testing.assert_close(compiled(weight).cpu(), x * 2)

        class Scaled(torch.Tensor):
            scale = 2.0

        compiled = djinn.compile(lambda x: x * x.scale)
        for scale in (2.0, 3.0):
            Scaled.scale = scale
            for _ in range(4):
                result = compiled(plain.as_subclass(Scaled))
                torch.testing.assert_close(result.as_subclass(torch.Tensor).cpu(), x * scale)
        self.assertEqual(compiled.statistics()["replays"], 0)
        self.assertIn("an argument is a Scaled", compiled.statistics()["refusal"])

    def test_classes_and_attributes_of_tensors_returned(self):
        class Scaled(torch.Tensor):
            pass

        def tag(x):
            result = x * 2
            result.tag = 3
            return result

        x = torch.randn(4).to(self.device)
        for function, what in (
            (lambda x: torch.nn.Parameter(x * 2, requires_grad=False), torch.nn.Parameter),
            (lambda x: [(x * 2).as_subclass(Scaled)], Scaled),
            (tag, torch.Tensor),
        ):
            compiled = djinn.compile(function)
            for _ in range(5):
                result = compiled(x)
                result = result[0] if isinstance(result, list) else result
                self.assertIs(type(result), what)
                self.assertEqual(vars(result), {"tag": 3} if function is tag else {})
            if function is not tag:
                self.assertIn("it returns a", compiled.statistics()["refusal"])
        # One that is given is the same one.
        weight = torch.nn.Parameter(x, requires_grad=False)
        compiled = djinn.compile(lambda x: x.add_(1))
        for _ in range(5):
            self.assertIs(compiled(weight), weight)
        self.assertGreater(compiled.statistics()["replays"], 0)

    def test_who_sees_every_call(self):
        weight = torch.tensor([-1.0, 4.0], device=self.device, requires_grad=True)

        @djinn.compile
        def step(x):
            weight.grad = None
            (weight.sqrt() * weight * x).sum().backward()

        ones = torch.ones(2, device=self.device)
        for _ in range(5):
            step(ones)
        before = step.statistics()["replays"]
        self.assertGreater(before, 0)
        plain = weight.grad.tolist()[1]
        with self.assertRaisesRegex(RuntimeError, "nan values"):
            with torch.autograd.detect_anomaly(check_nan=True):
                step(ones)
        self.assertIn("anomaly", step.statistics()["refusal"])
        with torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x * 2):
            step(ones)
        self.assertIn("autograd saves", step.statistics()["refusal"])
        self.assertNotEqual(weight.grad.tolist()[1], plain)
        self.assertEqual(step.statistics()["replays"], before)
        step(ones)
        self.assertEqual(step.statistics()["replays"], before + 1)

    def test_settings_of_torch_that_choose_no_operator(self):
        self.addCleanup(torch.set_num_threads, torch.get_num_threads())
        self.check(lambda x: x * torch.get_num_threads(), lambda: torch.set_num_threads(2))
        self.addCleanup(torch.set_float32_matmul_precision, torch.get_float32_matmul_precision())
        self.check(
            lambda x: x * len(torch.get_float32_matmul_precision()),
            lambda: torch.set_float32_matmul_precision("medium"),
        )

    def test_modes_that_are_part_of_the_call(self):
        compiled = self.warm(lambda x: x * 2)
        x = torch.randn(4).to(self.device)
        fast = torch.backends.mha
        for enter, leave in [
            (lambda: torch.use_deterministic_algorithms(True, warn_only=True),
             lambda: torch.use_deterministic_algorithms(False)),
            (lambda: fast.set_fastpath_enabled(False), lambda: fast.set_fastpath_enabled(True)),
            (lambda: torch.backends.cuda.enable_cudnn_sdp(False),
             lambda: torch.backends.cuda.enable_cudnn_sdp(True)),
        ]:
            before = compiled.statistics()["replays"]
            enter()
            try:
                compiled(x)
                self.assertEqual(compiled.statistics()["replays"], before)
            finally:
                leave()
            compiled(x)
            self.assertEqual(compiled.statistics()["replays"], before + 1)
        for mode in (
            torch.autograd.forward_ad._set_fwd_grad_enabled(False),
            torch.autograd.grad_mode._force_original_view_tracking(True),
            torch._C.DisableTorchFunction(),
        ):
            before = compiled.statistics()["replays"]
            with mode:
                compiled(x)
            self.assertEqual(compiled.statistics()["replays"], before, mode)
