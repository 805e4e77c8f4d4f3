"""Registered callables: what libraries and the process keep changes, and no answer is stale."""

import builtins
import configparser
import contextlib
import datetime
import decimal
import functools
import gc
import glob
import gzip
import linecache
import logging
import math
import mimetypes
import os
import pathlib
import pickle
import pydoc
import random
import secrets
import subprocess
import sys
import tempfile
import threading
import time
import types
import unittest.mock
import uuid
from pathlib import Path

import numpy
import torch
import torch.nn.functional as F
import transformers

import djinn
from tests.python.callables.stale_answers_case import StaleAnswersCase


class StaleLibrariesTest(StaleAnswersCase):
    # Functions that were replaced -------------------------------------------------

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
        # Functions that a module of PyTorch calls are watched, too.
        self.check(torch.nn.ELU(), self.patch(F, "elu", lambda x, *_: x * 7))
        tanh = torch.nn.Tanh()
        self.patch(torch.nn.Tanh, "scale", 2.0)()
        self.check(lambda x: x * tanh.scale, self.patch(torch.nn.Tanh, "scale", 3.0))
        self.check(lambda x: x * max(1, 2), self.patch(builtins, "max", lambda *_: 7))

    def test_a_member_under_another_name(self):
        gelu = torch.nn.GELU()

        def rename():
            # The new class has as many members, in the same order.
            members = list(vars(torch.nn.GELU).items())
            forward = torch.nn.GELU.forward
            self.addCleanup(setattr, torch.nn.GELU, "forward", forward)
            del torch.nn.GELU.forward
            torch.nn.GELU.another_forward = forward
            self.addCleanup(delattr, torch.nn.GELU, "another_forward")
            for name, member in members[members.index(("forward", forward)) + 1 :]:
                delattr(torch.nn.GELU, name)
                setattr(torch.nn.GELU, name, member)

        compiled = self.warm(gelu)
        rename()
        with self.assertRaises(NotImplementedError):
            compiled(torch.randn(4).to(self.device))

    def test_modules_however_they_are_reached(self):
        def within():
            import os

            return lambda x: x * float(os.environ["DJINN_TEST_SCALE"])

        def nested():
            import os

            return lambda x: (lambda: x * float(os.environ["DJINN_TEST_SCALE"]))()

        class Holder:
            of_class = os

            def __init__(self):
                self.os = os
                self.F = F

            def step(self, x):
                return x * float(self.os.environ["DJINN_TEST_SCALE"])

        holder, modules = Holder(), [os]

        def scaled(x, module):
            return x * float(module.getenv("DJINN_TEST_SCALE"))

        self.enterContext(unittest.mock.patch.dict(os.environ))
        for name, function in {
            "an enclosing function's import": within(),
            "the same, within another one": nested(),
            "a default": lambda x, module=os: x * float(module.environ["DJINN_TEST_SCALE"]),
            "an attribute": holder.step,
            "an attribute of a class": lambda x: scaled(x, Holder.of_class),
            "an element": lambda x: scaled(x, modules[0]),
            "part of a partial": functools.partial(scaled, module=os),
        }.items():
            with self.subTest(name):
                os.environ["DJINN_TEST_SCALE"] = "2"
                self.check(function, lambda: os.environ.update(DJINN_TEST_SCALE="3"))
        self.check(lambda x: holder.F.mish(x), self.patch(F, "mish", lambda x: x * 7))
        functional = F
        self.check(lambda x: functional.silu(x), self.patch(F, "silu", lambda x: x * 7))

    def test_clocks_and_files_of_modules_however_they_are_reached(self):
        import time as clocks

        class Holder:
            time = clocks

        holder, modules = types.SimpleNamespace(os=os), {"os": os}
        for function, what in [
            (lambda x: x * (2 if clocks.time() else 3), "time.time"),
            (lambda x: x * (2 if Holder.time.time() else 3), "time.time"),
            (lambda x: x * (2 if holder.os.path.exists("/x") else 3), "posixpath.exists"),
            (lambda x: x * len(modules["os"].getcwd()), "os.getcwd"),
        ]:
            with self.subTest(what):
                self.check_refused(function, what)

    def test_attributes_of_libraries_classes(self):
        distribution, normal = torch.distributions.Distribution, torch.distributions.Normal
        self.addCleanup(distribution.set_default_validate_args, distribution._validate_args)
        distribution.set_default_validate_args(True)
        # The layer has another class, so that ReLU is found only by the
        # function's name.
        layer = torch.nn.Tanhshrink()
        layer.inplace = False
        self.check(
            lambda x: x * (2 if torch.distributions.Normal._validate_args else 3),
            lambda: distribution.set_default_validate_args(False),
        )
        self.check(
            lambda x: x * (2 if torch.distributions.Normal._validate_args else 3),
            self.patch(normal, "_validate_args", True),
        )
        self.check(
            lambda x: torch.nn.ReLU.forward(layer, x),
            self.patch(torch.nn.ReLU, "forward", lambda self, x: x * 7),
        )

    def test_the_code_of_a_replacement_is_watched(self):
        scale = 2.0

        def change():
            nonlocal scale
            scale *= 2

        def replacement(x):
            return x * scale

        self.patch(F, "softsign", replacement)()
        self.check(lambda x: F.softsign(x), change)
        self.patch(torch.nn.Softshrink, "forward", lambda self, x: replacement(x))()
        shrink = torch.nn.Softshrink()
        self.check(lambda x: shrink(x), change)
        # The replacement may have any name.
        self.check(functools.wraps(F.relu)(replacement), change)
        self.check(torch.no_grad()(replacement), change)
        part = functools.partial(replacement)
        self.check(torch.vmap(part), change)

    def test_attributes_that_programs_add_to_tensors_are_watched(self):
        scale = 2.0

        def change():
            nonlocal scale
            scale += 1

        def scaled(self):
            return torch.mul(self, scale)

        self.patch(torch.Tensor, "scaled", scaled)()
        self.check(lambda x: x.scaled(), change)
        self.check(lambda x: getattr(x, "sca" + "led")(), change)
        self.check(lambda x: x.scaled(), self.patch(torch.Tensor, "scaled", lambda self: self * 7))
        weight = torch.nn.Parameter(torch.ones(1))
        self.patch(torch.nn.Parameter, "factor", property(lambda self: scale))()
        self.check(lambda x: x * weight.factor, change)
        self.check(lambda x: x * weight.factor, self.patch(torch.nn.Parameter, "factor", 9.0))
        self.check(lambda x: x * weight.factor, self.patch(torch.nn.Parameter, "factor", 7))

        def entered(x):
            with x as y:
                pass
            return y

        scaled_with = lambda self, other: scaled(self)  # noqa: E731
        # These replace PyTorch's own methods, in whichever class they are.
        for name, function, replacement in (
            ("relu", lambda x: x.relu(), scaled),
            ("norm", lambda x: x.norm(), scaled),
            ("__mul__", lambda x: x * 2, lambda self, other: scaled(self)),
            ("__pow__", lambda x: x**2, lambda self, other: scaled(self)),
            ("__rsub__", lambda x: 1 - x, lambda self, other: scaled(self)),
            ("__neg__", lambda x: -x, scaled),
            ("__len__", lambda x: torch.mul(x, len(x)), lambda self: 3),
            ("__divmod__", lambda x: divmod(x, 2), scaled_with),
            ("__round__", lambda x: round(x), scaled),
            ("__trunc__", lambda x: math.trunc(x), scaled),
            ("__enter__", entered, scaled),
        ):
            with self.subTest(name):
                for missing in {name, "__exit__"} - set(dir(torch.Tensor)):
                    self.patch(torch.Tensor, missing, lambda self, *_: torch.add(self, 1))()
                self.check(function, self.patch(torch.Tensor, name, replacement))
                self.doCleanups()
        self.patch(torch.Tensor, "shift", 2.0)()

        def matched(x, count):
            match x:
                case torch.Tensor(shift=shift):
                    return x * shift

        self.check(lambda x: matched(x, 0), self.patch(torch.Tensor, "shift", 3.0))
        calls = []
        self.patch(torch.Tensor, "counted", lambda self: (calls.append(1), self * 2)[1])()
        self.check_refused(lambda x: x.counted(), "changes what it refers to")
        self.assertEqual(len(calls), 3)
        # An attribute that no code uses has no effect.
        self.patch(torch.Tensor, "shown", lambda self: print(open(os.devnull), self))()
        self.warm(lambda x: x.relu() * 2)

    def test_a_global_named_like_a_builtin(self):
        variables = {"__builtins__": builtins, "__name__": "shadows"}
        function = types.FunctionType((lambda x: x * min(1, 2)).__code__, variables)
        self.check(function, lambda: variables.update(min=lambda *_: 7))

    # State of libraries --------------------------------------------------------------

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
            # Some are examined for the values that they read.
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
                    # The replacement is examined, too.
                    check(function, replace)

    def test_switches_that_libraries_keep(self):
        cudnn, future = torch.backends.cudnn, torch.__future__
        swaps = future.get_swap_module_params_on_conversion
        overwrites = future.get_overwrite_module_params_on_conversion
        for read, write in (
            (lambda: torch.backends.cudnn.allow_tf32, lambda on: setattr(cudnn, "allow_tf32", on)),
            (lambda: torch.is_warn_always_enabled(), torch.set_warn_always),
            (
                lambda: torch.__future__.get_swap_module_params_on_conversion(),
                future.set_swap_module_params_on_conversion,
            ),
            (lambda: swaps(), future.set_swap_module_params_on_conversion),
            (lambda: overwrites(), future.set_overwrite_module_params_on_conversion),
        ):
            self.addCleanup(write, read())
            write(False)
            self.check(lambda x: x * (2 if read() else 3), lambda: write(True))

    # State that cannot be watched -----------------------------------------------------

    def test_states_of_the_process_are_refused(self):
        now, clock = datetime.datetime, time.time
        generator = torch.Generator()
        log = logging.getLogger("djinn_test")
        scale = pickle.dumps(2.0)
        module = torch.get_device_module(self.device)
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
            (lambda x: x * (1 + len(logging.getLogger().handlers)), "logging.getLogger and handlers"),
            (lambda x: x * pickle.loads(scale), "_pickle.loads"),
            (lambda x: x * len(pydoc.locate("sys.argv")), "pydoc.locate"),
            (lambda x: x * len(uuid.uuid4().hex), "uuid.uuid4"),
            (lambda x: x * (module.memory_allocated() > 0), "memory_allocated"),
            (lambda x: x * (torch.accelerator.memory_allocated() > 0), "memory_allocated"),
            (lambda x: x * (torch.remote_accelerator.mem_get_info()[0] > 0), "mem_get_info"),
            (lambda x: x * (djinn.statistics() is not None), "statistics"),
            (lambda x: x * sys.getswitchinterval(), "sys.getswitchinterval"),
            (lambda x: x * gc.get_threshold()[0], "gc.get_threshold"),
            (lambda x: x * (2 if numpy.geterr()["over"] == "warn" else 3), "numpy.geterr"),
            (lambda x: x * torch._tensor_str.PRINT_OPTS.precision, "torch._tensor_str.PRINT_OPTS"),
            (lambda x: x * len(threading.main_thread().name), "threading.main_thread"),
            (lambda x: x * random.Random(3).random(), "random.Random"),
        ]:
            with self.subTest(what):
                self.check_refused(function, what)
        # Logging concerns the program only.
        self.warm(lambda x: (log.debug("a"), logging.getLogger("b").debug("c"), x * 2)[2])

    def test_a_function_that_reads_files_is_refused(self):
        path = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()), "scale")
        path.write_text("2")
        name = str(path)

        def configured(x):
            parser = configparser.ConfigParser()
            parser.read(name)
            return x * len(parser.sections())

        def unpacked(x):
            with gzip.open(name) as file:
                return x * (file is None)

        for function, what in [
            (lambda x: x * float(pathlib.Path(name).read_text()), "pathlib.Path"),
            (lambda x: x * float(Path(name).read_text()), "pathlib.Path"),
            (lambda x: x * float(numpy.loadtxt(name)), "numpy.loadtxt"),
            (lambda x: x * numpy.fromfile(name, dtype=numpy.uint8)[0], "numpy.fromfile"),
            (configured, "configparser.ConfigParser"),
            (lambda x: x * float(subprocess.check_output(["cat", name])), "subprocess.check_output"),
            (lambda x: x * len(glob.glob(name)), "glob.glob"),
            (lambda x: x * len(linecache.getlines(name)), "linecache.getlines"),
            (unpacked, "gzip.open"),
        ]:
            with self.subTest(what):
                compiled = djinn.compile(function)
                # They do not read what exists there.
                with contextlib.suppress(gzip.BadGzipFile, configparser.Error):
                    compiled(torch.randn(4).to(self.device))
                self.assertIn(f"it uses {what}", compiled.statistics()["refusal"])
        # Functions that only transform paths cause no refusal, and neither does
        # a module of the program that has a library's name.
        self.warm(lambda x: x * len(os.path.join("a", "b")))
        mine = types.ModuleType("glob")
        exec("def glob():\n    return 2.0", mine.__dict__)
        function = mine.glob
        self.warm(lambda x: x * function())

    def test_paths_that_are_kept_and_not_asked_about_files(self):
        class Options:
            folder = Path("somewhere")
            clip = 2.0

        options = Options()
        self.check(lambda x: x * options.clip, lambda: setattr(options, "clip", 3.0))
        self.check(
            lambda x: x * len(options.folder.name),
            lambda: setattr(options, "folder", Path("elsewhere/a")),
        )
        self.check_refused(
            lambda x: x * (2 if options.folder.exists() else 3), "it refers to a path, and uses exists"
        )

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
        handler = logging.NullHandler()
        self.addCleanup(parent.removeHandler, handler)
        self.addCleanup(setattr, log, "propagate", True)
        self.check(lambda x: x * (1 + len(parent.handlers)), lambda: parent.addHandler(handler))
        self.check(
            lambda x: x * (2 if log.propagate else 3), lambda: setattr(log, "propagate", False)
        )
        enabled = lambda x: x * (2 if log.isEnabledFor(logging.DEBUG) else 3)  # noqa: E731
        self.check(enabled, lambda: logging.disable(logging.DEBUG))
