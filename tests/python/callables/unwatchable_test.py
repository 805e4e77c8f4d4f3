"""Functions that refer to what cannot be inspected are traced, unless they are steps."""

import torch

import djinn
from tests.python.remote_case import RemoteCase


class _Kind:
    """Has the hash of its identity, not of its contents."""


class UnwatchableTest(RemoteCase):
    def setUp(self):
        torch.manual_seed(1)
        self.here = torch.nn.Linear(4, 3)
        self.there = torch.nn.Linear(4, 3).to(self.device)
        self.there.load_state_dict(self.here.state_dict())
        # A set of objects has no order that could be compared.
        for model in (self.here, self.there):
            model.kinds = {_Kind(), _Kind()}

    def check(self, function, count=6):
        compiled = djinn.compile(lambda x: function(self_there, x))
        self_there = self.there
        for number in range(count):
            x = torch.randn(2, 4, generator=torch.Generator().manual_seed(number))
            self.assert_same(compiled(x.to(self.device)).detach(), function(self.here, x).detach())
        return compiled

    def test_a_function_around_a_model_is_replayed(self):
        with torch.no_grad():
            compiled = self.check(lambda model, x: model(x).softmax(-1))
        self.assertGreaterEqual(compiled.statistics()["replays"], 3)
        self.assertEqual(compiled.statistics()["refusal"], "")

    def test_changes_are_seen(self):
        scale = [2.0]
        model = self.there
        compiled = djinn.compile(lambda x: model(x).mul(scale[0]))
        with torch.no_grad():
            for number in range(12):
                x = torch.randn(2, 4)
                self.assert_same(compiled(x.to(self.device)), self.here(x).mul(scale[0]))
                if number == 4:
                    scale[0] = 3.0
                if number == 7:
                    for one in (self.here, self.there):
                        one.weight.mul_(2)
                if number == 9:
                    for one in (self.here, self.there):
                        one.weight = torch.nn.Parameter(one.weight * 2)
        self.assertGreaterEqual(compiled.statistics()["replays"], 4)

    def test_a_step_is_called_as_it_is(self):
        model = self.there

        def step(x):
            model.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            return loss.detach()

        compiled = djinn.compile(step)
        for _ in range(4):
            x = torch.randn(2, 4)
            self.here.zero_grad()
            expected = self.here(x).square().mean()
            expected.backward()
            self.assert_same(compiled(x.to(self.device)), expected.detach())
            self.assert_same(model.weight.grad, self.here.weight.grad)
        self.assertEqual(compiled.statistics()["replays"], 0)
        self.assertIn("set", compiled.statistics()["refusal"])

    def test_a_forgotten_function_is_replayed_again(self):
        with torch.no_grad():
            compiled = self.check(lambda model, x: model(x).relu())
            before = compiled.statistics()["captures"]
            compiled.forget()
            x = torch.ones(2, 4)
            for _ in range(4):
                self.assert_same(compiled(x.to(self.device)), self.here(x).relu())
        self.assertGreater(before, 0)
        self.assertGreaterEqual(compiled.statistics()["replays"], 1)
