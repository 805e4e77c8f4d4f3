"""djinn.compile() of a module gives a module: parts of models, methods, copies and attributes."""

import copy
import io
import warnings

import torch
import transformers

import djinn
from tests.python.callables.registered_case import RegisteredCase


class Gated(torch.nn.Module):
    """Has an attribute with the name of a function of compiled modules."""

    def __init__(self):
        super().__init__()
        self.forget = torch.nn.Linear(4, 4)
        self.layer = torch.nn.Linear(4, 4)

    def forward(self, x):
        return self.layer(x) * self.forget(x).sigmoid()

    def encode(self, x):
        return self.forget(self(x))


class Counted(torch.nn.Linear):
    kinds = []

    def __init_subclass__(cls):
        Counted.kinds.append(cls)

    def __del__(self):
        Counted.kinds.append("deleted")

    def both(self, x):
        return self(x) + super().forward(x)


class Ignoring(torch.nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x, _):
        return self.layer(x)


class Scaled(torch.nn.Linear):
    __slots__ = ("kept",)
    scale = 1.0

    @classmethod
    def configure(cls, scale):
        cls.scale = scale

    def forward(self, x):
        return super().forward(x) * self.scale


class CompiledModulesTest(RegisteredCase):
    def setUp(self):
        super().setUp()
        torch._dynamo.reset()

    def check(self, compiled, local, counted=None):
        """Compares calls, and checks that `counted`, a compiled part, is replayed."""
        counted = compiled if counted is None else counted
        before = counted.statistics()["replays"]
        with torch.no_grad():
            for _ in range(4):
                x = torch.randn(2, 4)
                self.assert_same(compiled(x.to(self.device)), local(x))
        self.assertGreaterEqual(counted.statistics()["replays"] - before, 2)

    def linear(self):
        local = torch.nn.Linear(4, 4)
        return local, copy.deepcopy(local).to(self.device)

    def test_a_compiled_part_of_a_model(self):
        local, remote = self.linear()
        model = torch.nn.Sequential(remote, torch.nn.ReLU())
        part = model[0] = djinn.compile(remote)
        self.check(model, torch.nn.Sequential(local, torch.nn.ReLU()), part)
        model.head = djinn.compile(torch.nn.Linear(4, 2).to(self.device))
        names = ["0.weight", "0.bias", "head.weight", "head.bias"]
        self.assertEqual(list(model.state_dict()), names)
        listed = torch.nn.ModuleList([part, djinn.compile(model)])
        self.assertEqual(len(listed[1]), 3)
        self.assertIs(listed[1][0], part)
        model.cpu()
        self.assertEqual(remote.weight.device.type, "cpu")

    def test_a_compiled_part_of_a_compiled_model(self):
        local, remote = self.linear()
        part = djinn.compile(remote)
        functions = (
            djinn.compile(torch.nn.Sequential(part, torch.nn.ReLU())),
            torch.compile(part, backend="djinn", fullgraph=True),
        )
        for function, here in zip(functions, (lambda x: local(x).relu(), local)):
            for _ in range(3):
                with torch.no_grad():
                    x = torch.randn(2, 4)
                    self.assert_same(function(x.to(self.device)), here(x))
        self.assertGreaterEqual(functions[0].statistics()["replays"], 2)
        self.assertEqual(part.statistics()["captures"], 0)

    def test_a_compiled_model_is_compiled_again(self):
        local, remote = self.linear()
        first = djinn.compile(remote)
        second = djinn.register_model(first, "second")
        self.check(second, local)
        self.assertEqual(first.statistics()["captures"], 0)

    def test_modules_of_unusual_classes(self):
        local, remote = self.linear()
        for make in (torch.fx.symbolic_trace, lambda one: torch.compile(one, backend="djinn")):
            self.check(djinn.compile(make(remote)), local)
        normed = torch.nn.utils.parametrizations.weight_norm(copy.deepcopy(local))
        self.check(djinn.compile(copy.deepcopy(normed).to(self.device)), normed)

    def test_functional_calls(self):
        local, remote = self.linear()
        compiled = djinn.compile(remote)
        with torch.no_grad():
            for number in range(4):
                weight, x = torch.full((4, 4), float(number)), torch.randn(2, 4)
                there = {"weight": weight.to(self.device)}
                result = torch.func.functional_call(compiled, there, x.to(self.device))
                self.assert_same(result, torch.func.functional_call(local, {"weight": weight}, x))
        self.check(compiled, local)

    def test_attributes_are_the_modules(self):
        local, remote = self.linear()
        compiled = djinn.compile(remote)
        self.assertIsInstance(compiled, torch.nn.Linear)
        self.assertIs(compiled.weight, remote.weight)
        self.assertEqual(repr(compiled), repr(remote))
        self.check(compiled, local)
        self.assertIs(compiled.eval(), compiled)
        self.assertFalse(remote.training)
        compiled.weight = torch.nn.Parameter(torch.ones(4, 4).to(self.device))
        local.weight = torch.nn.Parameter(torch.ones(4, 4))
        self.check(compiled, local)
        compiled.load_state_dict({"weight": torch.eye(4), "bias": torch.ones(4)})
        local.load_state_dict({"weight": torch.eye(4), "bias": torch.ones(4)})
        self.check(compiled, local)
        calls = []
        with compiled.register_forward_hook(lambda *args: calls.append(1)):
            compiled(self.on(2, 4))
        self.assertEqual(len(calls), 1)
        self.check(compiled, local)

    def test_another_model_of_the_class_is_not_compiled(self):
        _, remote = self.linear()
        self.assertIs(type(type(djinn.compile(remote))(2, 3)), torch.nn.Linear)

    def test_attributes_set_on_the_class_reach_the_model(self):
        local = Scaled(4, 4)
        compiled = djinn.compile(copy.deepcopy(local).to(self.device))
        self.addCleanup(Scaled.configure, 1.0)
        for scale in (1.0, 3.0):
            compiled.configure(scale)
            self.assertEqual(Scaled.scale, scale)
            self.check(compiled, local)
        graph = torch.fx.symbolic_trace(local)
        changed = djinn.compile(torch.fx.symbolic_trace(copy.deepcopy(local).to(self.device)))
        self.check(changed, graph)
        for one in (changed, graph):
            (output,) = one.graph.find_nodes(op="output")
            with one.graph.inserting_before(output):
                output.args = (one.graph.call_function(torch.neg, output.args),)
            one.recompile()
        self.check(changed, graph)

    def test_slots_are_the_modules(self):
        remote = Scaled(4, 4).to(self.device)
        remote.kept = 1
        compiled = djinn.compile(remote)
        self.assertEqual(compiled.kept, 1)
        compiled.kept = 2
        self.assertEqual(remote.kept, 2)
        del compiled.kept
        self.assertFalse(hasattr(remote, "kept"))

    def test_a_replica_is_a_model_of_the_class(self):
        _, remote = self.linear()
        replica = djinn.compile(remote)._replicate_for_data_parallel()
        self.assertIs(type(replica), torch.nn.Linear)

    def test_nested_tensors_of_this_process_may_be_arguments(self):
        local, remote = self.linear()
        compiled = djinn.compile(Ignoring(remote))
        nested = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)])
        with torch.no_grad():
            for _ in range(3):
                x = torch.randn(2, 4)
                self.assert_same(compiled(x.to(self.device), nested), local(x))

    def test_statistics_of_a_normalization_may_be_slices(self):
        def normalize(x, mean, variance):
            return torch.nn.functional.batch_norm(x, mean, variance, training=True)

        step = djinn.compile(normalize)
        x = torch.randn(8, 4)
        here = torch.zeros(10, 4), torch.ones(10, 4)
        there = [one.to(self.device) for one in here]
        for i in range(10):
            expected = normalize(x, here[0][i], here[1][i])
            self.assert_same(step(x.to(self.device), there[0][i], there[1][i]), expected)
        for one, other in zip(there, here):
            self.assert_same(one, other)

    def test_copies_capture_their_own_calls(self):
        local, remote = self.linear()
        compiled = djinn.compile(remote)
        file = io.BytesIO()
        torch.save(compiled, file)
        file.seek(0)
        loaded = torch.load(file, weights_only=False)
        for other in (copy.deepcopy(compiled), loaded):
            self.check(other, local)
            with torch.no_grad():
                other.weight.zero_()
            self.check(compiled, local)
        self.assertIs(copy.copy(compiled).weight, remote.weight)

    def test_a_class_sees_neither_a_subclass_nor_a_deletion(self):
        Counted.kinds.clear()
        remote = Counted(4, 4).to(self.device)
        compiled = djinn.compile(remote)
        local = torch.nn.Linear(4, 4)
        local.load_state_dict(compiled.state_dict())
        self.check(compiled.both, lambda x: local(x) + local(x), compiled)
        del compiled
        self.assertEqual(Counted.kinds, [])

    def test_a_models_own_attributes_win(self):
        local = Gated()
        compiled = djinn.compile(copy.deepcopy(local).to(self.device))
        self.check(compiled, local)
        self.check(compiled.encode, local.encode, compiled)

    def test_a_method_is_traced_by_itself(self):
        local = Gated()
        remote = copy.deepcopy(local).to(self.device)
        compiled = djinn.compile(remote.encode)
        self.check(compiled, local.encode)
        self.check(copy.copy(compiled), local.encode)

    def test_a_compiled_module_in_a_step(self):
        local, remote = self.linear()
        compiled = djinn.compile(remote)
        optimizers = [torch.optim.SGD(one.parameters(), 0.1) for one in (compiled, local)]

        def make_step(model, optimizer):
            def step(x):
                optimizer.zero_grad()
                loss = model(x).square().mean()
                loss.backward()
                optimizer.step()
                return loss.detach()

            return step

        step = djinn.compile(make_step(compiled, optimizers[0]))
        local_step = make_step(local, optimizers[1])
        for number in range(12):
            x = torch.randn(2, 4)
            self.assert_same(step(x.to(self.device)), local_step(x))
            if number == 6:
                for one in (compiled, local):
                    one.bias.data = torch.ones(4).to(one.bias.device)
        self.assert_same(compiled.weight.detach(), local.weight.detach())
        self.assertGreaterEqual(step.statistics()["replays"], 5)

    def test_forwards_of_generate_are_replayed(self):
        config = transformers.GPT2Config(
            vocab_size=32, n_embd=16, n_layer=1, n_head=2, bos_token_id=0, eos_token_id=None)
        local = transformers.GPT2LMHeadModel(config).eval()
        compiled = djinn.compile(copy.deepcopy(local).to(self.device))
        ids = torch.tensor([[1, 2, 3]])
        options = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 0}
        expected = local.generate(ids, **options)
        for _ in range(3):
            self.assert_same(compiled.generate(ids.to(self.device), **options), expected)
        self.assertGreaterEqual(compiled.statistics()["replays"], 6)

    @torch.no_grad()
    def test_a_warning_names_a_model_that_consists_of_pytorchs_modules(self):
        compiled = djinn.compile(torch.nn.Sequential(torch.nn.Linear(2, 2)).to(self.device))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            # Each number of rows is another capture.
            for rows in range(2, 72):
                compiled(torch.ones(rows, 2, device=self.device))
        (warning,) = [str(one.message) for one in caught if "djinn" in str(one.message)]
        self.assertIn("does not replay Sequential (", warning)
        self.assertIn("other sizes", warning)


if __name__ == "__main__":
    import unittest

    unittest.main()
