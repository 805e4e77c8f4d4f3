"""Tests automatic registration: modules are replayed, and keep their side effects."""

import contextlib
import enum
import functools
import gc
import io
import logging
import random
import sys
import time
import types
import weakref

import torch

import djinn
from tests.python.remote_case import RemoteCase, run_program

log = logging.getLogger("test")
calls = []


class Silent(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(8, 8) for _ in range(3)])
        self.scale = 2.0

    def forward(self, x, *, negative=False, unused=None):
        for layer in self.layers:
            x = torch.relu(layer(x)) * self.scale
        return -x if negative else x


class Negates(Silent):
    def forward(self, x):
        return -super().forward(x)


class TakesContainers(Silent):
    def forward(self, batch, more=()):
        (x,) = batch["inputs"]
        return super().forward(x + sum(more))


class Scale(enum.Enum):
    TWO = 2

    def twice(self):
        return self.value * 2


class TakesAnEnum(Silent):
    def forward(self, x, scale):
        return super().forward(x) * scale.twice()


class Prints(Silent):
    def forward(self, x):
        print("called")
        return super().forward(x)


class Logs(Silent):
    def forward(self, x):
        log.info("called")
        return super().forward(x)


class Draws(Silent):
    def forward(self, x):
        return super().forward(x) * random.random()


class Keeps(Silent):
    def __init__(self):
        super().__init__()
        self.time = time

    def forward(self, x):
        self.time.sleep(0)
        return super().forward(x)


def logs_within():
    import logging as logs

    class Within(Silent):
        def forward(self, x):
            logs.info("called")
            return super().forward(x)

    return Within()


class Counts(Silent):
    count = 0

    def forward(self, x):
        self.count += 1
        return super().forward(x)


class Appends(Silent):
    def forward(self, x):
        calls.append(1)
        return super().forward(x)


class Imports(Silent):
    def forward(self, x):
        from djinn_test_app import metrics

        metrics.count()
        return super().forward(x)


class ImportsInside(Silent):
    def forward(self, x):
        def inner():
            import djinn_test_app.config as config

            return config.SCALE

        return super().forward(x) * inner()


class Assigns(Silent):
    def forward(self, x):
        global last
        last = super().forward(x)
        return last


class AssignsToModules(Silent):
    def forward(self, x):
        app.last = super().forward(x)
        return app.last


class CallsModulesOfModules(Silent):
    def forward(self, x):
        app.metrics.count()
        return super().forward(x)


class HoldsItself(Silent):
    def __init__(self, hold):
        super().__init__()
        self.act = hold(self)

    def double(self, x):
        return x * 2

    def forward(self, x):
        return super().forward(x) * self.scale


class Reads(Silent):
    def forward(self, x, *, read=False):
        x = super().forward(x)
        if read:
            x.sum().item()
        return x


class Configured(Silent):
    """Equals other modules of the same configuration."""

    def __eq__(self, other):
        return type(self) is type(other) and self.scale == other.scale

    def __hash__(self):
        return hash(self.scale)


class Unhashable(Configured):
    __hash__ = None


# A program's package, with a state of its own.
app = types.ModuleType("djinn_test_app")
app.metrics = types.ModuleType("djinn_test_app.metrics")
app.config = types.ModuleType("djinn_test_app.config")
app.config.SCALE = 1.0
app.metrics.counted = []
app.metrics.count = lambda: app.metrics.counted.append(1)
for one in (app, app.metrics, app.config):
    sys.modules[one.__name__] = one


class AutomaticRegistrationTest(RemoteCase):
    def setUp(self):
        torch.manual_seed(3)
        djinn.set_automatic_registration(True)
        self.addCleanup(djinn.set_automatic_registration, False)

    def statistics(self, module):
        for other, statistics in djinn.registered_modules():
            if other is module:
                return statistics
        return None

    def check_calls(self, module, times, **kwargs):
        """Calls it with other inputs each time; results are those of a local copy."""
        local = Silent()
        local.load_state_dict({name: x.cpu() for name, x in module.state_dict().items()})
        for _ in range(times):
            x = torch.randn(4, 8)
            self.assert_same(module(x.to(self.device), **kwargs), local(x, **kwargs))

    @torch.no_grad()
    def test_tensors_in_containers(self):
        module = TakesContainers().to(self.device)
        local = Silent()
        local.load_state_dict({name: x.cpu() for name, x in module.state_dict().items()})
        for _ in range(6):
            x = torch.randn(4, 8)
            batch = {"name": "a", "inputs": [x.to(self.device)]}
            self.assert_same(module(batch, more=(1.0,)), local(x + 1))
        self.assertGreaterEqual(self.statistics(module)["replays"], 2)

    @torch.no_grad()
    def test_a_module_that_repeats(self):
        module = Silent().to(self.device)
        self.check_calls(module, 10)
        self.assertGreaterEqual(self.statistics(module)["replays"], 4)
        self.assertEqual(self.statistics(module)["refusal"], "")
        # Its parts are not registered separately.
        self.assertIsNone(self.statistics(module.layers[0]))
        # Another argument makes another call.
        self.check_calls(module, 10, negative=True)

    @torch.no_grad()
    def test_a_class_that_an_argument_brings_along(self):
        module = TakesAnEnum().to(self.device)
        for _ in range(8):
            module(torch.randn(4, 8).to(self.device), Scale.TWO)
        self.assertGreater(self.statistics(module)["replays"], 0, self.statistics(module))

    @torch.no_grad()
    def test_a_changed_attribute_weight_or_layer_is_seen(self):
        module = Silent().to(self.device)
        x = torch.randn(4, 8).to(self.device)
        for _ in range(8):
            module(x)
        module.scale = 0.0
        self.assertEqual(module(x).cpu().tolist(), torch.zeros(4, 8).tolist())
        module.scale = 3.0
        for _ in range(8):
            module(x)
        module.layers[0].weight.zero_()
        module.layers[0].bias.zero_()
        module.layers[1].bias.zero_()
        module.layers[2].bias.fill_(1)
        self.assertEqual(module(x).cpu().tolist(), torch.full((4, 8), 3.0).tolist())
        module.layers[2] = torch.nn.Identity()
        self.assertEqual(module(x).cpu().tolist(), torch.zeros(4, 8).tolist())

    @torch.no_grad()
    def test_another_class(self):
        module = Silent().to(self.device)
        x = torch.randn(4, 8).to(self.device)
        for _ in range(8):
            result = module(x)
        self.assertGreater(self.statistics(module)["replays"], 0)
        module.__class__ = Negates
        for _ in range(3):
            self.assertTrue(torch.equal(module(x).cpu(), -result.cpu()))

    @torch.no_grad()
    def test_side_effects_of_the_code_happen_in_each_call(self):
        x = torch.randn(4, 8).to(self.device)
        calls.clear()
        for kind in (Prints, Logs, Draws, Keeps, logs_within, Counts, Appends):
            module = kind().to(self.device)
            output = io.StringIO()
            random.seed(5)
            with contextlib.redirect_stdout(output), self.assertLogs(level="INFO") as logs:
                log.info("beginning")
                results = [module(x).cpu() for _ in range(10)]
            random.seed(5)
            scales = [random.random() if kind is Draws else 1.0 for _ in range(10)]
            expected = Silent.forward(module, x).cpu()
            for result, scale in zip(results, scales):
                self.assertTrue(torch.equal(result, expected * scale), kind)
            self.assertEqual(output.getvalue().count("called"), 10 if kind is Prints else 0)
            self.assertEqual(len(logs.output) - 1, 10 if kind in (Logs, logs_within) else 0)
            if kind is Counts:
                self.assertEqual(module.count, 10)
        self.assertEqual(len(calls), 10)

    @torch.no_grad()
    def test_imports_and_assignments_happen_in_each_call(self):
        for kind in (Imports, ImportsInside, Assigns, AssignsToModules, CallsModulesOfModules):
            module = kind().to(self.device)
            app.metrics.counted.clear()
            for _ in range(10):
                result = module(torch.randn(4, 8).to(self.device))
            if kind is Assigns:
                self.assertIs(last, result)
            if kind is AssignsToModules:
                self.assertIs(app.last, result)
            if kind in (Imports, CallsModulesOfModules):
                self.assertEqual(len(app.metrics.counted), 10)
            if kind is ImportsInside:
                app.config.SCALE = 0.0
                self.assertEqual(module(torch.randn(4, 8).to(self.device)).abs().sum().item(), 0)
                app.config.SCALE = 1.0

    @torch.no_grad()
    def test_an_argument_that_the_code_does_not_use(self):
        module = Silent().to(self.device)
        self.check_calls(module, 6)
        module(torch.randn(4, 8).to(self.device), unused=object())
        before = self.statistics(module)["replays"]
        self.check_calls(module, 10)
        self.assertEqual(self.statistics(module)["replays"], before + 10)

    @torch.no_grad()
    def test_a_value_that_is_read_in_some_calls(self):
        module = Reads().to(self.device)
        x = torch.randn(4, 8).to(self.device)
        expected = module(x).cpu()
        for read in (False, False, False, True, True, False, True, False):
            self.assertTrue(torch.equal(module(x, read=read).cpu(), expected))
        self.assertGreater(self.statistics(module)["replays"], 0)

    @torch.no_grad()
    def test_modules_that_are_equal_are_not_the_same(self):
        for kind in (Configured, Unhashable):
            one, other = kind().to(self.device), kind().to(self.device)
            for _ in range(6):
                self.check_calls(one, 1)
                self.check_calls(other, 1)
            # Dynamo does not trace modules that cannot be keys.
            for module in (one, other) if kind is Configured else ():
                self.assertGreater(self.statistics(module)["replays"], 0)

    def test_a_module_with_gradients_is_not_registered(self):
        module = Silent().to(self.device)
        for _ in range(6):
            module(torch.randn(4, 8).to(self.device)).sum().backward()
        self.assertIsNone(self.statistics(module))

    @torch.no_grad()
    def test_a_local_module_is_left_alone(self):
        module = Silent()
        self.check_calls_locally(module)
        self.assertIsNone(self.statistics(module))

    def check_calls_locally(self, module):
        for _ in range(6):
            self.assertEqual(module(torch.randn(4, 8)).device.type, "cpu")

    @torch.no_grad()
    def test_modules_are_free_to_go(self):
        module = Silent().to(self.device)
        for _ in range(8):
            module(torch.randn(4, 8).to(self.device))
        self.assertGreater(self.statistics(module)["replays"], 0)
        weight = weakref.ref(module.layers[0].weight)
        gc.disable()
        self.addCleanup(gc.enable)
        number = len(djinn.registered_modules())
        del module
        self.assertIsNone(weight())
        self.assertEqual(len(djinn.registered_modules()), number - 1)

    @torch.no_grad()
    def test_modules_that_hold_themselves_are_free_to_go(self):
        for hold in (
            lambda module: module.double,
            lambda module: functools.partial(HoldsItself.double, module),
            lambda module: lambda x: module.double(x),
            lambda module: [module],
        ):
            module = HoldsItself(hold).to(self.device)
            for _ in range(8):
                module(torch.randn(4, 8).to(self.device))
            self.assertGreater(self.statistics(module)["replays"], 0)
            weight = weakref.ref(module.layers[0].weight)
            del module
            gc.collect()
            self.assertIsNone(weight())

    @torch.no_grad()
    def test_modules_that_hold_themselves_later_are_free_to_go(self):
        module = HoldsItself(lambda module: None).to(self.device)
        x = torch.randn(4, 8).to(self.device)
        for _ in range(8):
            module(x)
        self.assertGreater(self.statistics(module)["replays"], 0)
        module.act = module.double
        module(x)
        weight = weakref.ref(module.layers[0].weight)
        del module
        gc.collect()
        self.assertIsNone(weight())

    @torch.no_grad()
    def test_an_error_is_the_modules(self):
        module = Silent().to(self.device)
        self.check_calls(module, 6)
        with self.assertRaises(RuntimeError):
            module(torch.randn(4, 9).to(self.device))
        self.check_calls(module, 2)

    def test_an_environment_variable_switches_registration_on(self):
        source = """
            import torch, djinn
            print(torch.nn.Module.__call__.__module__)
        """
        self.assertEqual(run_program(source).stdout.strip(), "torch.nn.modules.module")
        on = run_program(source, DJINN_AUTOMATIC_REGISTRATION="1")
        self.assertEqual(on.stdout.strip(), "djinn._dynamo.automatic")
        wrong = run_program(source, check=False, DJINN_AUTOMATIC_REGISTRATION="yes")
        self.assertIn("DJINN_AUTOMATIC_REGISTRATION is 'yes'", wrong.stderr)
