"""Compiled modules and steps that are called with slices of larger tensors."""

import copy

import torch

import djinn
from tests.python.callables.registered_case import RegisteredCase


class Calls(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
        self.function = function

    def forward(self, *args):
        return self.function(self.layer, *args)


def reads(layer, x, y):
    return layer(x) + y[:, :1]


def writes(layer, x, y):
    x.add_(layer(y))
    return x * 2


def writes_the_other(layer, x, y):
    y.mul_(2)
    return layer(x) * 2


def writes_data(layer, x, y):
    x.data.add_(1)
    return layer(x) + y


def returns_itself(layer, x, y):
    return x, layer(x)


def returns_a_view(layer, x, y):
    return x[1:].view(-1), layer(y)


def reaches_outside(layer, x, y):
    return x.as_strided((2, 4), (4, 1), 0) + layer(y)


def asks_its_place(layer, x, y):
    return layer(x) * x.storage_offset() + y


class SlicesTest(RegisteredCase):
    def setUp(self):
        super().setUp()
        torch._dynamo.reset()

    def check(self, function, cut, replays):
        """Calls a module with slices of one tensor, and writes results and the tensor."""
        local = Calls(function)
        remote = copy.deepcopy(local).to(self.device)
        compiled = djinn.compile(remote)
        here = torch.randn(40, 4)
        there = here.to(self.device)
        for i in range(12):
            if i == 6:
                for one in (here, there):
                    one.add_(1)
            expected, actual = local(*cut(here, i)), compiled(*cut(there, i))
            if torch.is_tensor(expected):
                expected, actual = [expected], [actual]
            for one, other in zip(actual, expected, strict=True):
                self.assert_same(one.detach(), other.detach())
                # The result may share the tensor's memory.
                with torch.no_grad():
                    for result in (one, other):
                        result.mul_(0.5)
            self.assert_same(there, here)
        self.assertGreaterEqual(compiled.statistics()["replays"], replays, compiled.statistics())

    def apart(self, data, i):
        return data[2 * i : 2 * i + 2], data[36:38]

    def together(self, data, i):
        return data[i : i + 2], data[i + 1 : i + 3]

    @torch.no_grad()
    def test_results_and_contents_are_those_of_the_cpu(self):
        functions = {
            reads: 8, writes: 0, writes_the_other: 0, writes_data: 0, returns_itself: 0,
            returns_a_view: 0, reaches_outside: 0, asks_its_place: 0,
        }  # fmt: skip
        for function, replays in functions.items():
            for cut in (self.apart, self.together):
                with self.subTest(function.__name__, cut=cut.__name__):
                    self.check(function, cut, replays)

    def test_gradients(self):
        for function in (reads, returns_itself):
            for cut in (self.apart, self.together):
                with self.subTest(function.__name__, cut=cut.__name__):
                    self.check(function, cut, 0)
        local = Calls(reads)
        remote = copy.deepcopy(local).to(self.device)
        compiled = djinn.compile(remote)
        here = torch.randn(40, 4)
        there = here.to(self.device)
        for i in range(8):
            for call, data in ((local, here), (compiled, there)):
                call(*self.apart(data, i)).square().sum().backward()
            for one, other in zip(remote.parameters(), local.parameters()):
                self.assert_same(one.grad, other.grad)
        self.assertGreaterEqual(compiled.statistics()["replays"], 5, compiled.statistics())

    def check_step(self, function, cut, replays):
        """Compares steps, results and data. Some of the data changes in between."""
        models, steps, seen = [], [], []
        torch.manual_seed(5)
        data = torch.randn(60, 4)
        for device in ("cpu", self.device):
            torch.manual_seed(6)
            model = torch.nn.Linear(4, 4).to(device)
            models.append((model, torch.optim.SGD(model.parameters(), 0.1), data.to(device)))
            steps.append(function(*models[-1][:2]))
        compiled = djinn.compile(steps[1])
        for i in range(18):
            if i in (7, 13):
                for _, _, data in models:
                    data.add_(1)
            expected, actual = steps[0](*cut(models[0][2], i)), compiled(*cut(models[1][2], i))
            self.assert_same(actual, expected)
            for result in (expected, actual):
                # It may share the data's memory.
                result.mul_(0.5)
            self.assert_same(models[1][2], models[0][2])
            self.assert_same(models[1][0].weight.detach(), models[0][0].weight.detach())
        self.assertGreaterEqual(compiled.statistics()["replays"], replays, compiled.statistics())

    def test_steps(self):
        def trains(model, optimizer):
            def step(x, y):
                optimizer.zero_grad()
                loss = (model(x) - y).square().mean()
                loss.backward()
                optimizer.step()
                return loss.detach()

            return step

        def writes(model, optimizer):
            def step(x, y):
                x.add_(1)
                return model(x + y).detach()

            return step

        def writes_the_other(model, optimizer):
            def step(x, y):
                y.mul_(0.5)
                return model(x).detach()

            return step

        def writes_data(model, optimizer):
            def step(x, y):
                x.data.add_(1)
                return model(x + y).detach()

            return step

        def returns_a_view(model, optimizer):
            return lambda x, y: x[1:].view(-1)

        def keeps_a_gradient(model, optimizer):
            def step(x, y):
                model.bias.grad = x[0]
                return model(y).detach()

            return step

        def asks_its_place(model, optimizer):
            def step(x, y):
                return model(x).detach() * x.storage_offset() + y

            return step

        def asks_for_its_base(model, optimizer):
            def step(x, y):
                return model(x).detach() + x._base[:2] + y

            return step

        def branches(model, optimizer):
            def step(x, y):
                return model(x).detach() if x._is_view() else y.clone()

            return step

        functions = {
            trains: 8, writes: 0, writes_the_other: 0, writes_data: 0, returns_a_view: 0,
            keeps_a_gradient: 0, asks_its_place: 0, asks_for_its_base: 0, branches: 0,
        }  # fmt: skip
        for function, replays in functions.items():
            for cut in (self.apart, self.together):
                with self.subTest(function.__name__, cut=cut.__name__):
                    self.check_step(function, cut, replays)

    def test_a_step_that_writes_a_slice_in_some_calls(self):
        weight = torch.ones(4).to(self.device).requires_grad_()

        def by_identity(x, y):
            if x is y:
                x.add_(1)
            return x + y

        def by_flag(x, y):
            if not weight.requires_grad:
                x.add_(1)
            return x + y

        def by_gradient(x, y):
            if weight.grad is not None:
                x.add_(1)
            return x + y

        def by_mode(x, y):
            if not torch.is_grad_enabled():
                x.add_(1)
            return x + y

        for step in (by_identity, by_flag, by_gradient, by_mode):
            compiled = djinn.compile(step)
            for i in range(24):
                is_other = i % 6 == 5
                weight.requires_grad_(not is_other)
                weight.grad = torch.ones(4).to(self.device) if is_other else None
                data = torch.randn(40, 4)
                there = data.to(self.device)
                x, y = there[i : i + 2], there[i + 2 : i + 4]
                if is_other and step is by_identity:
                    y = x
                expected = data.clone()
                expected[i : i + 2] += is_other
                with torch.set_grad_enabled(not is_other):
                    compiled(x, y)
                with self.subTest(step.__name__, call=i):
                    self.assert_same(there, expected)
            self.assertGreaterEqual(compiled.statistics()["replays"], 5)

    @torch.no_grad()
    def test_an_input_that_becomes_a_slice_is_returned_itself(self):
        layer = torch.nn.Linear(4, 4).to(self.device)
        module = Calls(lambda _, x, y: (layer(x), y))
        for compiled in (djinn.compile(module), djinn.compile(lambda x, y: (layer(x).detach(), y))):
            data = self.on(40, 4)
            for i in range(12):
                x, y = data[i : i + 2], self.on(2, 4) if i < 6 else data[30:32]
                expected, (actual, result) = layer(x).cpu(), compiled(x, y)
                self.assert_same(actual, expected)
                result.fill_(i)
                self.assertEqual(y.cpu().tolist(), [[i] * 4] * 2)

    @torch.no_grad()
    def test_an_epoch_is_replayed(self):
        local = torch.nn.Linear(4, 2)
        compiled = djinn.compile(copy.deepcopy(local).to(self.device))
        data = torch.randn(800, 4)
        there = data.to(self.device)
        for i in range(100):
            rows = slice(8 * i, 8 * i + 8)
            self.assert_same(compiled(there[rows]), local(data[rows]))
        self.assertGreaterEqual(compiled.statistics()["replays"], 97, compiled.statistics())
        self.assertLessEqual(compiled.statistics()["captures"], 3)
        djinn.synchronize()
        runs = djinn.statistics()["runs"]
        for i in range(10):
            compiled(there[8 * i : 8 * i + 8])
        djinn.synchronize()
        self.assertLessEqual(djinn.statistics()["runs"] - runs, 21)


if __name__ == "__main__":
    import unittest

    unittest.main()
