"""djinn.compile(): what changes between calls, and that no answer is stale."""

import builtins
import collections
import random
import sys
import types

import torch
import torch.utils.flop_counter
import transformers
from transformers.models.wav2vec2 import modeling_wav2vec2

import djinn
from tests.python.callables.registered_case import RegisteredCase


class RegisteredChangesTest(RegisteredCase):
    def test_weights_updated_in_place_and_replaced(self):
        net = torch.nn.Linear(4, 4).to(self.device)
        compiled = djinn.compile(net)
        with torch.no_grad():
            self.warm(compiled, self.on(2, 4))
            x = self.on(2, 4)
            net.weight.mul_(3)
            self.assert_same(self.assert_replays(compiled, x), net(x).cpu())
            net.weight.data = self.on(4, 4)
            self.assert_same(self.assert_no_replay(compiled, x), net(x).cpu())
            net.weight = torch.nn.Parameter(self.on(4, 4))
            self.assert_same(self.assert_no_replay(compiled, x), net(x).cpu())
            net.load_state_dict({"weight": torch.ones(4, 4), "bias": torch.ones(4)})
            self.assert_same(compiled(x), net(x).cpu())
            net.register_forward_hook(lambda module, args, output: output + 1)
            self.assert_same(compiled(x), net(x).cpu())

    def test_plain_values_around_the_function(self):
        scale = 2.0
        settings = {"shift": 1}

        def function(x):
            return x * scale + settings["shift"]

        compiled = djinn.compile(function)
        x = self.on(3)
        self.warm(compiled, x)
        self.assert_replays(compiled, x)
        scale = 3.0
        self.assert_same(self.assert_no_replay(compiled, x), x.cpu() * 3.0 + 1)
        settings["shift"] = 1.0
        self.assert_same(compiled(x), x.cpu() * 3.0 + 1.0)
        settings["more"] = 5
        self.assert_same(compiled(x), x.cpu() * 3.0 + 1.0)
        scale = 2.0
        settings["shift"] = 7
        self.assert_same(compiled(x), x.cpu() * 2.0 + 7)

    def test_another_learning_rate(self):
        weight = torch.nn.Parameter(torch.ones(3, device=self.device))
        optimizer = torch.optim.SGD([weight], lr=1.0)

        @djinn.compile
        def step(x):
            optimizer.zero_grad()
            (weight * x).sum().backward()
            optimizer.step()
            return weight.detach() * 1

        x = torch.ones(3, device=self.device)
        expected = 1.0
        for rate in (1.0, 1.0, 1.0, 1.0, 0.5, 0.5, 0.5, 1.0, 0.25):
            optimizer.param_groups[0]["lr"] = rate
            expected -= rate
            self.assertEqual(step(x).tolist(), [expected] * 3)
        self.assertGreater(step.statistics()["replays"], 1, step.statistics())

    def test_gradients_set_to_none_replaced_or_kept(self):
        weight = torch.nn.Parameter(torch.ones(2, device=self.device))

        @djinn.compile
        def step(x):
            (weight * x).sum().backward()

        x = torch.ones(2, device=self.device)
        for i in range(1, 7):
            step(x)
            self.assertEqual(weight.grad.tolist(), [i, i])
        weight.grad = None
        step(x)
        self.assertEqual(weight.grad.tolist(), [1, 1])
        held = weight.grad
        weight.grad = torch.full((2,), 10.0, device=self.device)
        step(x)
        self.assertEqual(weight.grad.tolist(), [11, 11])
        self.assertEqual(held.tolist(), [1, 1])

    def test_other_metadata_is_another_call(self):
        compiled = djinn.compile(lambda x: x.t() + 1)
        x = self.on(3, 3)
        self.warm(compiled, x)
        for other in (x.t(), x.double(), x[:2], x[1:], x.clone().as_strided((3, 3), (1, 3))):
            self.assert_same(compiled(other), other.cpu().t() + 1)
        self.assert_replays(compiled, x)

    def test_arguments_that_share_memory(self):
        def function(x, y):
            x.add_(1)
            return x + y

        compiled = djinn.compile(function)
        self.warm(compiled, self.on(4), self.on(4))
        z = torch.zeros(4, device=self.device)
        self.assertEqual(compiled(z, z).tolist(), [2] * 4)
        self.assertEqual(compiled(z[:2], z[2:]).tolist(), [3] * 2)
        self.assertEqual(compiled(z[:2], z[1:3]).tolist(), [6, 4])

    def test_an_argument_that_is_also_a_weight(self):
        w = torch.ones(3, device=self.device)
        compiled = djinn.compile(lambda x: x * 2 + w)
        for _ in range(4):
            self.assertEqual(compiled(w).tolist(), [3] * 3)
        self.assertEqual(compiled(w * 5).tolist(), [11] * 3)
        self.assertEqual(compiled(w * 6).tolist(), [13] * 3)
        self.assertEqual(compiled(w * 7).tolist(), [15] * 3)
        self.assertEqual(compiled(w).tolist(), [3] * 3)

    def test_modes_of_the_thread(self):
        net = torch.nn.Linear(4, 4).to(self.device)
        compiled = djinn.compile(lambda x: net(x).detach())
        x = self.on(2, 4)
        self.warm(compiled, x)
        self.assertFalse(compiled(x).is_inference())
        with torch.inference_mode():
            self.assertTrue(compiled(x).is_inference())
            self.assertTrue(self.warm(compiled, x).is_inference())
        with torch.autocast(self.device.type, dtype=torch.bfloat16):
            self.assertEqual(self.warm(compiled, x).dtype, torch.bfloat16)
        self.assertEqual(self.assert_replays(compiled, x).dtype, torch.float32)

    def test_autocast_around_calls_keeps_no_casts(self):
        net = torch.nn.Linear(4, 4).to(self.device)
        compiled = djinn.compile(lambda x: net(x).detach())
        x = self.on(2, 4)
        with torch.autocast(self.device.type, dtype=torch.bfloat16), torch.no_grad():
            # Autocast keeps its casts of the parameters until the block ends.
            expected = net(x)
            self.warm(compiled, x)
            self.assertTrue(torch.equal(self.assert_replays(compiled, x).cpu(), expected.cpu()))
            net.weight.mul_(2)
            changed = self.assert_replays(compiled, x).cpu()
        with torch.autocast(self.device.type, dtype=torch.bfloat16), torch.no_grad():
            self.assertTrue(torch.equal(changed, net(x).cpu()))

    def test_an_argument_that_is_the_gradient_of_another_is_seen(self):
        compiled = djinn.compile(lambda x, g: x.grad * 2 if x.grad is g else x.grad * 3)
        x = torch.zeros(3, device=self.device)

        def call(value):
            g = torch.full((3,), value, device=self.device)
            x.grad = g
            return compiled(x, g).tolist()

        for value in (1.0, 2.0, 3.0, 4.0):
            self.assertEqual(call(value), [2 * value] * 3)
        x.grad = torch.full((3,), 5.0, device=self.device)
        for value in (6.0, 7.0, 8.0):
            other = torch.full((3,), value, device=self.device)
            self.assertEqual(compiled(x, other).tolist(), [15.0] * 3)

    def test_memory_that_was_freed(self):
        holder = {"w": torch.ones(3, device=self.device)}
        compiled = djinn.compile(lambda x: x + holder["w"])
        x = torch.zeros(3, device=self.device)
        self.warm(compiled, x)
        for value in (2.0, 3.0, 4.0):
            holder["w"] = torch.full((3,), value, device=self.device)
            self.assertEqual(compiled(x).tolist(), [value] * 3)

    def test_calls_in_between_keep_their_order(self):
        w = torch.zeros(2, device=self.device)

        @djinn.compile
        def add(x):
            w.add_(x)
            return w * 1

        x = torch.ones(2, device=self.device)
        total = 0
        for i in range(8):
            w.mul_(2)
            result = add(x)
            total = total * 2 + 1
            w.add_(1)
            total += 1
            self.assertEqual(result.tolist(), [total - 1] * 2)
        self.assertGreater(add.statistics()["replays"], 3)

    def test_state_that_a_function_changes_is_seen(self):
        class Counter:
            def __init__(self):
                self.count = 0
                self.seen = []

            def by_value(self, x):
                self.count += 1
                return x + self.count

            def by_list(self, x):
                self.seen.append(None)
                return x + len(self.seen)

        x = torch.zeros(1, device=self.device)
        for name in ("by_value", "by_list"):
            compiled = djinn.compile(getattr(Counter(), name))
            self.assertEqual([compiled(x).item() for _ in range(8)], list(range(1, 9)))
            self.assertEqual(compiled.statistics()["replays"], 0)

    def test_unwatchable_references_are_refused(self):
        turns = iter(range(100))
        compiled = djinn.compile(lambda x: x + next(turns))
        x = torch.zeros(1, device=self.device)
        self.assertEqual([compiled(x).item() for _ in range(6)], [0, 1, 2, 3, 4, 5])
        self.assertIn("a range_iterator, which cannot be watched", compiled.statistics()["refusal"])
        numbers = collections.deque([1.0])
        self.assertIn("a deque", self.refusal(lambda x: x * numbers[0], x))
        self.assertIn("changes what it refers to", self.refusal(lambda x: x * random.random(), x))
        # The name is within a library's code.
        draw = modeling_wav2vec2._compute_mask_indices
        self.assertIn(
            "changes what it refers to",
            self.refusal(lambda x: x * int(draw((1, 8), 0.5, 2).sum()), x),
        )

    def test_other_code_is_another_call(self):
        class Layer:
            factor = 2
            act = staticmethod(torch.relu)

            def __call__(self, x):
                return self.act(x) * self.factor

        layer = Layer()
        compiled = djinn.compile(lambda x: layer(x))
        x = self.on(5)
        self.warm(compiled, x)
        self.assert_replays(compiled, x)
        Layer.factor = 3
        self.assert_same(compiled(x), torch.relu(x.cpu()) * 3)
        layer.act = torch.tanh
        self.assert_same(compiled(x), torch.tanh(x.cpu()) * 3)
        Layer.__call__ = lambda self, x: x + 1
        self.assert_same(compiled(x), x.cpu() + 1)
        self.warm(compiled, x)
        self.assert_replays(compiled, x)

    def test_a_deep_module_and_weights_kept_elsewhere(self):
        net = torch.nn.Linear(3, 3)
        for _ in range(20):
            net = torch.nn.Sequential(net)
        net = net.to(self.device)
        compiled = djinn.compile(net)
        inner = next(net.parameters())
        with torch.no_grad():
            x = self.on(2, 3)
            self.warm(compiled, x)
            self.assert_replays(compiled, x)
            old = inner.data
            inner.data = old * 2
            self.assert_same(compiled(x), net(x).cpu())
            self.assertIsNotNone(old)

    def test_an_argument_that_holds_nothing_yet(self):
        compiled = djinn.compile(lambda x: x.fill_(3) + 1)
        for _ in range(5):
            result = compiled(torch.empty(4, device=self.device))
        self.assertEqual(result.tolist(), [4] * 4)
        full = torch.ones(4, device=self.device)
        self.warm(compiled, full)
        self.assertEqual(compiled(torch.empty(4, device=self.device)).tolist(), [4] * 4)

    def test_attributes_of_tensors_and_outputs_that_are_one(self):
        weight = self.on(3)
        weight.scale = 2.0
        compiled = djinn.compile(lambda x: [x * weight.scale + weight] * 2)
        x = self.on(3)
        self.warm(compiled, x)
        first, second = self.assert_replays(compiled, x)
        self.assertIs(first, second)
        weight.scale = 5.0
        self.assert_same(compiled(x)[0], x.cpu() * 5.0 + weight.cpu())
        x.scale = 1
        self.assert_no_replay(compiled, x)

    def test_a_step_of_an_object_that_holds_it(self):
        class Trainer:
            def __init__(self, device):
                self.weight = torch.ones(3, device=device)
                self.step = djinn.compile(self.work)

            def work(self, x):
                loss = x * self.weight
                return loss

        trainer = Trainer(self.device)
        x = self.on(3)
        self.warm(trainer.step, x)
        self.assert_replays(trainer.step, x)

    def test_outputs_of_transformers_with_their_caches(self):
        config = transformers.GPT2Config(n_embd=32, n_layer=2, n_head=2, vocab_size=50)
        local = transformers.GPT2Model(config).eval()
        remote = transformers.GPT2Model(config).eval()
        remote.load_state_dict(local.state_dict())
        compiled = djinn.compile(remote.to(self.device))
        caches = set()
        with torch.no_grad():
            for _ in range(5):
                ids = torch.randint(0, 50, (2, 8))
                result, expected = compiled(ids.to(self.device)), local(ids)
                self.assertIs(type(result), type(expected))
                self.assert_same(result.last_hidden_state, expected.last_hidden_state)
                ours, theirs = result.past_key_values, expected.past_key_values
                self.assertIs(type(ours), type(theirs))
                self.assertEqual(len(ours.layers), 2)
                for layer, other in zip(ours.layers, theirs.layers):
                    self.assert_same(layer.keys, other.keys)
                    self.assert_same(layer.values, other.values)
                # The cache remains usable, and every call has one of its own.
                more = torch.randint(0, 50, (2, 1))
                again = remote(more.to(self.device), past_key_values=ours).last_hidden_state
                self.assert_same(again, local(more, past_key_values=theirs).last_hidden_state)
                caches.add(ours)
        self.assertEqual(len(caches), 5)
        self.assertGreater(compiled.statistics()["replays"], 1, compiled.statistics())
        kept = transformers.DynamicCache()
        self.assertIn("that it did not make", self.refusal(lambda x: (x + 1, kept), self.on(3)))
        self.assertIn("a object, something", self.refusal(lambda x: (x + 1, object()), self.on(3)))

    def test_names_of_attributes_are_no_globals(self):
        global loss
        loss = 0.0

        class Holder:
            pass

        holder = Holder()
        holder.loss = self.on(2)
        compiled = djinn.compile(lambda x: x + holder.loss)
        x = self.on(2)
        for _ in range(6):
            loss = compiled(x).sum().item()
        self.assertGreater(compiled.statistics()["replays"], 2, compiled.statistics())

    def test_modules_that_the_code_brings_in(self):
        names = ("djinn_app", "djinn_app.config", "djinn_app.late")
        self.addCleanup(lambda: [sys.modules.pop(name, None) for name in names])
        global djinn_app
        djinn_app, config, late = map(types.ModuleType, names)
        djinn_app.config = config
        sys.modules.update(zip(names[:2], (djinn_app, config)))

        def whole(x):
            import djinn_app.config as config

            return x * config.SCALE

        def member(x):
            from djinn_app.config import SCALE

            return x * SCALE

        def relative(x):
            from .config import SCALE

            return x * SCALE

        def nested(x):
            return x * djinn_app.config.SCALE

        def inside(x):
            def scale():
                from djinn_app import config

                return config.SCALE

            return x * scale()

        inside_the_package = {"__builtins__": builtins, "__name__": "djinn_app.x", "__package__": "djinn_app"}
        relative = types.FunctionType(relative.__code__, inside_the_package)
        x = self.on(4)
        for function in (whole, member, relative, nested, inside):
            config.SCALE = 2.0
            compiled = djinn.compile(function)
            self.warm(compiled, x)
            self.assert_same(self.assert_replays(compiled, x), x.cpu() * 2)
            config.SCALE = 3.0
            self.assert_same(compiled(x), x.cpu() * 3)
            self.warm(compiled, x)
            config.SCALE = self.on(4)
            self.assert_same(compiled(x), x.cpu() * config.SCALE.cpu())

        def absent(x):
            try:
                import djinn_app.late
            except ImportError:
                return x + 1
            return x + djinn_app.late.more

        compiled = djinn.compile(absent)
        self.warm(compiled, x)
        self.assert_same(self.assert_replays(compiled, x), x.cpu() + 1)
        late.more = 5
        djinn_app.late = sys.modules[names[2]] = late
        self.assert_same(compiled(x), x.cpu() + 5)

    def test_globals_that_the_code_assigns(self):
        global assigned, module_assigned_to
        module_assigned_to = types.ModuleType("module_assigned_to")

        def to_global(x):
            global assigned
            assigned = x + 1
            return assigned

        def to_module(x):
            module_assigned_to.value = x + 1
            return module_assigned_to.value

        x = self.on(4)
        for function in (to_global, to_module):
            # The attribute does not exist in the first call.
            self.assertIn("changes what it refers to", self.refusal(function, x))
            self.assertIn("changes what it refers to", self.refusal(function, x))

    def test_a_gradient_of_an_argument(self):
        compiled = djinn.compile(lambda x: (x * 2).sum().backward())
        x = torch.ones(2, device=self.device, requires_grad=True)
        for i in range(1, 6):
            compiled(x)
            self.assertEqual(x.grad.tolist(), [2 * i] * 2)
        x.grad = None
        compiled(x)
        self.assertEqual(x.grad.tolist(), [2, 2])

    def test_hooks_of_a_tensor(self):
        weight = torch.nn.Parameter(torch.ones(2, device=self.device))

        @djinn.compile
        def step(x):
            weight.grad = None
            (weight * x).sum().backward()

        x = torch.ones(2, device=self.device)
        self.warm(step, x)
        handle = weight.register_hook(lambda gradient: gradient * 5)
        step(x)
        self.assertEqual(weight.grad.tolist(), [5, 5])
        handle.remove()
        step(x)
        self.assertEqual(weight.grad.tolist(), [1, 1])

    def test_transforms_and_modes_see_every_call(self):
        compiled = djinn.compile(lambda x: (x * 2).sum())
        x = self.on(3, 4)
        self.warm(compiled, x)
        self.warm(compiled, x[0])
        self.assert_same(torch.vmap(compiled)(x), (x.cpu() * 2).sum(1))
        gradient = torch.func.grad(compiled)(x)
        self.assertEqual(gradient.tolist(), [[2] * 4] * 3)
        with torch.utils.flop_counter.FlopCounterMode(display=False):
            self.assert_no_replay(compiled, x)
        filling = djinn.compile(lambda y: torch.ones(3).sum() + y.sum())
        with torch.device(self.device):
            self.warm(filling, x)
            self.assertEqual(filling(x).device.type, self.device.type)
