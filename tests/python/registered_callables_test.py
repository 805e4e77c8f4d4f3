"""djinn.compile(): what is carried out again, what is refused, and that no answer is stale."""

import builtins
import collections
import random
import sys
import threading
import types

import torch
import torch.nn.functional as F
import torch.utils.flop_counter
import transformers
from transformers.models.wav2vec2 import modeling_wav2vec2

import djinn
from tests.python.remote_case import RemoteCase


class RegisteredCallablesTest(RemoteCase):
    def setUp(self):
        torch.manual_seed(3)

    def on(self, *sizes):
        return torch.randn(*sizes).to(self.device)

    def warm(self, compiled, *args, times=4):
        """Calls it often enough, with tensors that are not always the same ones."""
        for _ in range(times):
            compiled(*[arg.detach().clone() for arg in args])
        return compiled(*args)

    def assert_replays(self, compiled, *args):
        before = compiled.statistics()["replays"]
        result = compiled(*args)
        self.assertEqual(compiled.statistics()["replays"], before + 1, compiled.statistics())
        return result

    def assert_no_replay(self, compiled, *args):
        before = compiled.statistics()["replays"]
        result = compiled(*args)
        self.assertEqual(compiled.statistics()["replays"], before)
        return result

    def refusal(self, function, *args):
        compiled = djinn.compile(function)
        for _ in range(3):
            compiled(*args)
        self.assertEqual(compiled.statistics()["replays"], 0)
        return compiled.statistics()["refusal"]

    # What is carried out again ---------------------------------------------------

    def test_a_function_with_new_arguments_each_time(self):
        w = self.on(8, 8)

        def function(x, y):
            return (x @ w).relu(), {"sum": x + y, "name": "z"}

        compiled = djinn.compile(function)
        for _ in range(6):
            x, y = self.on(4, 8), self.on(4, 8)
            first, rest = compiled(x, y)
            self.assert_same(first, (x.cpu() @ w.cpu()).relu())
            self.assert_same(rest["sum"], x.cpu() + y.cpu())
            self.assertEqual(rest["name"], "z")
        self.assertEqual(compiled.statistics()["replays"], 4)

    def test_training_steps_give_the_same_losses(self):
        def build(device):
            torch.manual_seed(1)
            net = torch.nn.Sequential(
                torch.nn.Linear(12, 16), torch.nn.Dropout(0.3), torch.nn.ReLU(), torch.nn.Linear(16, 4)
            ).to(device)
            return net, torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

        def step_of(net, optimizer):
            def step(x, y):
                optimizer.zero_grad()
                loss = F.cross_entropy(net(x), y)
                loss.backward()
                torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
                optimizer.step()
                return loss.detach()

            return step

        batches = [(torch.randn(8, 12), torch.randint(4, (8,))) for _ in range(12)]
        local_net, local_optimizer = build("cpu")
        local_step = step_of(local_net, local_optimizer)
        torch.manual_seed(9)
        local = [local_step(x, y).item() for x, y in batches]
        net, optimizer = build(self.device)
        step = djinn.compile(step_of(net, optimizer))
        torch.manual_seed(9)
        remote = [step(x.to(self.device), y.to(self.device)).item() for x, y in batches]
        torch.testing.assert_close(remote, local)
        self.assertGreater(step.statistics()["replays"], 5, step.statistics())
        for ours, theirs in zip(net.parameters(), local_net.parameters()):
            torch.testing.assert_close(ours.detach().cpu(), theirs.detach())
            torch.testing.assert_close(ours.grad.cpu(), theirs.grad)

    def test_a_module_and_its_modes(self):
        net = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.Dropout(0.5)).to(self.device)
        compiled = djinn.compile(net)
        with torch.no_grad():
            for _ in range(4):
                x = self.on(3, 6)
                result = compiled(x)
            self.assertGreater(compiled.statistics()["replays"], 0, compiled.statistics())
            net.eval()
            for _ in range(4):
                x = self.on(3, 6)
                self.assert_same(compiled(x), net(x).cpu())
            self.assert_replays(compiled, x)
            net.train()
            torch.manual_seed(4)
            result = self.assert_replays(compiled, x)
            torch.manual_seed(4)
            self.assert_same(result, net(x).cpu())

    def test_draws_go_on_where_the_generator_is(self):
        def function(x):
            return x + torch.rand_like(x)

        compiled = djinn.compile(function)
        x = self.on(5)
        self.warm(compiled, x)
        torch.manual_seed(21)
        ours = [self.assert_replays(compiled, x), x * torch.rand_like(x), compiled(x)]
        torch.manual_seed(21)
        theirs = [function(x), x * torch.rand_like(x), function(x)]
        for one, other in zip(ours, theirs):
            self.assert_same(one, other.cpu())

    def test_arguments_written_in_place(self):
        def function(x):
            x.add_(1)
            return x

        compiled = djinn.compile(function)
        x = torch.zeros(3, device=self.device)
        for _ in range(5):
            self.assertIs(compiled(x), x)
        self.assertEqual(x.tolist(), [5, 5, 5])
        self.assertGreater(compiled.statistics()["replays"], 0, compiled.statistics())
        version = x._version
        self.assert_replays(compiled, x)
        self.assertGreater(x._version, version)

    def test_a_failure_poisons_the_outputs_and_no_more(self):
        table = self.on(4, 2)

        def function(index):
            return table[index], table * 2

        compiled = djinn.compile(function)
        good = torch.tensor([1, 2]).to(self.device)
        self.warm(compiled, good)
        bad, fine = self.assert_replays(compiled, torch.tensor([1, 9]).to(self.device))
        with self.assertRaisesRegex(djinn.Error, "index 9 is out of bounds"):
            bad.cpu()
        self.assert_same(fine, table.cpu() * 2)
        self.assert_same(self.assert_replays(compiled, good)[0], table.cpu()[[1, 2]])

    def test_several_threads(self):
        w = self.on(6, 6)
        compiled = djinn.compile(lambda x: (x @ w).tanh())
        failures = []

        def work(seed):
            generator = torch.Generator().manual_seed(seed)
            for _ in range(30):
                x = torch.randn(2, 6, generator=generator)
                if not torch.equal(compiled(x.to(self.device)).cpu(), (x @ w_local).tanh()):
                    failures.append(seed)

        w_local = w.cpu()
        threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])
        self.assertGreater(compiled.statistics()["replays"], 60)

    # No stale answers ------------------------------------------------------------

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

    def test_what_a_function_leaves_in_python_is_seen(self):
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

    def test_what_cannot_be_watched_is_refused(self):
        turns = iter(range(100))
        compiled = djinn.compile(lambda x: x + next(turns))
        x = torch.zeros(1, device=self.device)
        self.assertEqual([compiled(x).item() for _ in range(6)], [0, 1, 2, 3, 4, 5])
        self.assertIn("a range_iterator, which cannot be watched", compiled.statistics()["refusal"])
        numbers = collections.deque([1.0])
        self.assertIn("a deque", self.refusal(lambda x: x * numbers[0], x))
        self.assertIn("changes what it refers to", self.refusal(lambda x: x * random.random(), x))
        # Within a library's code.
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
                # It is used as ever, and every call has one of its own.
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
            # The first time there is none yet.
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

    # What is refused -------------------------------------------------------------

    def test_refusals_say_why(self):
        x = self.on(4)
        here, device = torch.ones(4), self.device
        self.assertIn("reads a value", self.refusal(lambda x: x * x.sum().item(), x))
        self.assertIn("depends on data", self.refusal(lambda x: x.nonzero(), x))
        self.assertIn(
            "aten::to.dtype_layout reads a tensor of this process",
            self.refusal(lambda x: x + here.to(device), x),
        )
        self.assertIn("writes a tensor of this process", self.refusal(lambda x: (here.add_(1), x + 1)[1], x))
        self.assertIn("random numbers in this process", self.refusal(lambda x: (torch.rand(2), x + 1)[1], x))
        weight = torch.nn.Parameter(self.on(4))
        self.assertIn("autograd may still need", self.refusal(lambda x: x + weight, x))
        self.assertIn("calls nothing", self.refusal(lambda x: 3, x))
        self.assertIn("did not make itself", self.refusal(lambda x: x.add_(1)[1:], x))
        kept = []
        self.assertIn("changes what it refers to", self.refusal(lambda x: kept.append(x + 1), x))
        generator = torch.Generator(self.device)
        generator.manual_seed(3)
        self.assertIn(
            "a tensor, or a generator, that is neither",
            self.refusal(lambda x: x + torch.rand(4, generator=generator, device=device), x),
        )
        self.assertIn("tensor of this process", self.refusal(lambda x: x + 1, here))
        self.assertIn("argument is a object", self.refusal(lambda x, y: x + 1, x, object()))
        self.assertIn("the metadata of a tensor", self.refusal(lambda x: x.t_(), self.on(2, 3)))

    def test_refusals_say_which_operator_and_line(self):
        here = torch.ones(4)

        def reads(x):
            return x * x.sum().item()

        def chooses(x):
            return torch.nn.functional.relu(x)[x > 0]

        def writes(x):
            here.add_(1)
            return x + 1

        for function, line, what in (
            (reads, 1, "it reads a value from the device: aten::item"),
            (chooses, 1, "the shape of a result depends on data: aten::index.Tensor"),
            (writes, 1, "aten::add_.Tensor writes a tensor of this process"),
        ):
            code = function.__code__
            self.assertEqual(
                self.refusal(function, self.on(4)),
                f"{what}, called at {code.co_filename}:{code.co_firstlineno + line} in {code.co_qualname}",
            )

    def test_a_step_counter_in_this_process_is_refused(self):
        net = torch.nn.Linear(2, 2).to(self.device)
        optimizer = torch.optim.AdamW(net.parameters())

        def step(x):
            optimizer.zero_grad()
            net(x).sum().backward()
            optimizer.step()

        self.assertIn("tensor of this process", self.refusal(step, self.on(1, 2)))

    def test_adam_with_its_state_on_the_device(self):
        def build(device):
            torch.manual_seed(1)
            net = torch.nn.Linear(5, 3).to(device)
            return net, torch.optim.AdamW(net.parameters(), lr=0.01, capturable=device != "cpu")

        def step_of(net, optimizer):
            def step(x):
                optimizer.zero_grad()
                loss = net(x).square().mean()
                loss.backward()
                optimizer.step()
                return loss.detach()

            return step

        batches = [torch.randn(4, 5) for _ in range(10)]
        local = [step_of(*local_parts)(x).item() for local_parts in [build("cpu")] for x in batches]
        step = djinn.compile(step_of(*build(self.device)))
        remote = [step(x.to(self.device)).item() for x in batches]
        torch.testing.assert_close(remote, local, rtol=1e-5, atol=1e-6)
        self.assertGreater(step.statistics()["replays"], 3, step.statistics())

    def test_exceptions_pass_and_leave_nothing_behind(self):
        compiled = djinn.compile(lambda x: x @ x)
        with self.assertRaisesRegex(RuntimeError, "shapes cannot be multiplied"):
            compiled(self.on(2, 3))
        x = self.on(3, 3)
        self.warm(compiled, x)
        self.assert_same(self.assert_replays(compiled, x), x.cpu() @ x.cpu())

    def test_compiled_functions_within_one_another(self):
        inner = djinn.compile(lambda x: x * 2)
        outer = djinn.compile(lambda x: inner(x) + 1)
        x = self.on(3)
        self.warm(inner, x)
        self.warm(outer, x)
        self.assert_same(self.assert_replays(outer, x), x.cpu() * 2 + 1)
        self.assert_same(self.assert_replays(inner, x), x.cpu() * 2)

    def test_what_is_not_callable(self):
        with self.assertRaisesRegex(TypeError, "takes something callable"):
            djinn.compile(3)

    def test_one_message_per_call(self):
        net = torch.nn.Sequential(*[torch.nn.Linear(8, 8) for _ in range(20)]).to(self.device)
        compiled = djinn.compile(net)
        with torch.no_grad():
            x = self.on(2, 8)
            self.warm(compiled, x, times=6)
            djinn.synchronize()
            before = djinn.statistics()
            for _ in range(10):
                compiled(x)
            djinn.synchronize()
            after = djinn.statistics()
        self.assertEqual(after["runs"] - before["runs"], 10)
        self.assertLess(after["bytes_up"] - before["bytes_up"], 10 * 200)

