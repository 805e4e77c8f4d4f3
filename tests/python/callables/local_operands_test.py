"""Compiled modules that use tensors, numbers and random numbers of this process."""

import copy
import warnings

import torch

import djinn
from tests.python.callables.registered_case import RegisteredCase


class Net(torch.nn.Module):
    """Calls a function between two layers."""

    def __init__(self, function):
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
        self.function = function

    def forward(self, x, *args):
        return self.second(self.function(self.first(x), *args))


class LayerDrop(Net):
    def forward(self, x):
        x = self.first(x)
        if torch.rand([]) < 0.3:
            return x
        return self.second(x)


class Counters(Net):
    """Has counters that no tensor on the device follows from."""

    def __init__(self):
        super().__init__(None)
        self.calls, self.decay, self.elements = 0, 1.0, 5

    def forward(self, x):
        self.calls += 1
        # PyTorch traces each value of a float again if there are gradients.
        if not torch.is_grad_enabled():
            self.decay *= 0.9
        self.elements += x.shape[0] * x.shape[1]
        return self.second(self.first(x))


class Annealed(Net):
    def __init__(self):
        super().__init__(None)
        self.calls, self.temperature = 0, 1.0

    def forward(self, x):
        self.calls += 1
        self.temperature *= 0.9
        return self.first(x) * self.temperature + self.calls


def _numbers(seed):
    return [torch.tensor(float(seed)), torch.tensor(seed % 3), torch.tensor(2.5 + seed).double()]


def _indices(seed):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randperm(4, generator=generator)[:3], torch.randint(2, (2,), generator=generator)]


def scaled(x, number, whole, double):
    return x * number + x.sum() * double - whole


def written(x, number, whole, double):
    number.add_(1)
    x = x.mul(number)
    number.mul_(2)
    x.sub_(number)
    return x.clamp_min_(whole), number


def filled(x, number, whole, double):
    x = x.clone()
    x[0] = number
    x[:, 1] = double
    return x.masked_fill(x > 1, whole)


def attention(x, number, whole, double):
    # As WavLM has it, whose parameters are others.
    weight, bias = torch.eye(4, device=x.device), torch.zeros(12, device=x.device)
    return torch.nn.functional.multi_head_attention_forward(
        x, x, x, 4, 2, torch.empty([0]), bias, None, None, False, 0.0, weight, bias[:4],
        use_separate_proj_weight=True, q_proj_weight=weight, k_proj_weight=weight,
        v_proj_weight=weight * number)[0]  # fmt: skip


def by_index(x, columns, rows):
    return x[:, columns.sort().values][..., [0, 0, 1, 2]] + x[rows] * 2


def written_by_index(x, columns, rows):
    x = x.clone()
    x[:, columns] = 1.0
    x[rows] += 1
    x.index_put_((rows,), torch.tensor(2.0), accumulate=True)
    return x


def copied(x, columns, rows):
    x = x.clone()
    x[:, :3].copy_(columns)
    x[0, :2] = rows
    return x + columns.sum().to(x) + rows.sum().type_as(x)


class LocalOperandsTest(RegisteredCase):
    def setUp(self):
        super().setUp()
        torch._dynamo.reset()

    def check(self, local, make=lambda seed: [], calls=6, replays=3):
        """Compares calls with arguments of this process, which differ in each call."""
        remote = copy.deepcopy(local).to(self.device)
        compiled = djinn.compile(remote)
        for seed in range(calls):
            x = torch.randn(2, 4)
            here, there = make(seed), make(seed)
            torch.manual_seed(seed)
            expected = local(x, *here)
            torch.manual_seed(seed)
            actual = compiled(x.to(self.device), *there)
            self.assert_equal(actual, expected)
            for one, other in zip(there, here):
                self.assertTrue(torch.equal(one, other))
        self.assertGreaterEqual(compiled.statistics()["replays"], replays, compiled.statistics())
        return remote, compiled

    def assert_equal(self, actual, expected):
        if torch.is_tensor(expected):
            self.assert_same(actual.detach(), expected.detach())
        else:
            for one, other in zip(actual, expected, strict=True):
                self.assert_equal(one, other) if torch.is_tensor(one) else self.assertEqual(one, other)

    def test_operands_are_sent_and_the_rest_is_one_graph(self):
        functions = {
            _numbers: (scaled, filled, attention),
            _indices: (by_index, written_by_index, copied),
        }
        for make, some in functions.items():
            for function in some:
                for grad in (False, True):
                    with self.subTest(function.__name__, grad=grad), torch.set_grad_enabled(grad):
                        remote, compiled = self.check(Net(function), make)
                        self.assertEqual(compiled.statistics()["refusal"], "")
                        if grad:
                            continue
                        args = [self.on(2, 4), *make(9)]
                        djinn.synchronize()
                        runs = djinn.statistics()["runs"]
                        compiled(*args).cpu()
                        self.assertLessEqual(djinn.statistics()["runs"] - runs, 1 + len(args))

    def test_operands_that_are_written_here(self):
        local = Net(None)
        local.forward = lambda x, *args: written(local.first(x), *args)
        remote = copy.deepcopy(local).to(self.device)
        remote.forward = lambda x, *args: written(remote.first(x), *args)
        compiled = djinn.compile(remote)
        with torch.no_grad():
            for seed in range(6):
                x, here, there = torch.randn(2, 4), _numbers(seed), _numbers(seed)
                expected, actual = local(x, *here), compiled(x.to(self.device), *there)
                self.assert_equal(actual[0], expected[0])
                self.assertTrue(torch.equal(actual[1], expected[1]))
                self.assertIs(actual[1], there[0])
        self.assertGreaterEqual(compiled.statistics()["replays"], 3, compiled.statistics())

    def test_types_follow_from_operands_without_dimensions(self):
        numbers = [torch.tensor(2), torch.tensor(2.0), torch.tensor(2.0).double(),
                   torch.tensor(2j), torch.tensor(True), torch.tensor(2.0).half()]  # fmt: skip
        operands = [torch.ones(2), torch.tensor(1.0), torch.tensor([1, 2]), torch.tensor(3),
                    torch.tensor([1.0, 2.0]).bfloat16()]  # fmt: skip
        for operand in operands:
            module = torch.nn.Module()
            module.forward = lambda x, number: x * number + number
            compiled = djinn.compile(module)
            for number in numbers:
                for _ in range(2):
                    actual = compiled(operand.to(self.device), number)
                    self.assert_same(actual, operand * number + number)

    def test_autocast_converts_the_same_with_and_without_compiling(self):
        def function(x, number, whole, double):
            return torch.addcmul(x @ x.t(), x @ x.t(), number) + (x * number).sum()

        module = torch.nn.Module()
        module.forward = function
        compiled = djinn.compile(module)
        with torch.autocast("remote_accelerator", torch.bfloat16), torch.no_grad():
            for seed in range(4):
                x = self.on(2, 4)
                expected = function(x, *_numbers(seed))
                self.assert_same(compiled(x, *_numbers(seed)), expected.cpu())

    def test_numbers_and_indices_that_are_drawn_here(self):
        def permuted(x):
            return x[:, torch.randperm(4)] * torch.rand(()) + torch.rand(1).to(x.device)

        for local in (Net(permuted), LayerDrop(None)):
            for grad in (False, True):
                with self.subTest(type(local).__name__, grad=grad), torch.set_grad_enabled(grad):
                    self.check(local, calls=20, replays=12)

    def test_counters_of_a_module(self):
        for grad in (False, True):
            with self.subTest(grad=grad), torch.set_grad_enabled(grad):
                local = Counters()
                remote, _ = self.check(local, calls=12, replays=8)
                for one in (local, remote):
                    self.assertEqual(one.calls, 12)
                self.assertEqual(remote.decay, local.decay)
                self.assertEqual(remote.elements, local.elements)

    @torch.no_grad()
    def test_a_list_that_grows_is_named(self):
        sizes = []
        local = Net(lambda x: (sizes.append(1), x)[1])
        compiled = djinn.compile(local.to(self.device))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(16):
                compiled(self.on(2, 4))
        self.assertRegex(compiled.statistics()["refusal"], "it traced it 8 times, last because of .*len")
        self.assertEqual(len([one for one in caught if "it traced it" in str(one.message)]), 1)

    @torch.no_grad()
    def test_a_counter_that_is_set_between_calls_is_seen(self):
        local = Counters()
        remote, compiled = self.check(local)
        for calls in (0, 7, -3):
            for one in (local, remote):
                one.calls, one.decay = calls, calls / 2
                compiled(self.on(2, 4)) if one is remote else one(torch.ones(2, 4))
            self.assertEqual((remote.calls, remote.decay), (local.calls, local.decay))

    def test_numbers_that_reach_the_device_are_never_stale(self):
        remote, compiled = self.check(Annealed(), calls=8, replays=0)
        self.assertEqual(remote.calls, 8)

    @torch.no_grad()
    def test_tensors_of_this_process_whose_sizes_follow_from_results(self):
        def weighted(x):
            weights = torch.linspace(0.5, 1, x.shape[0] * 2).to(x.device)
            return x * weights[: x.shape[0], None]

        def counted(x):
            y = torch.cat([x, x])
            return y + torch.arange(y.shape[0]).to(x.device)[:, None]

        for function in (weighted, counted):
            with self.subTest(function.__name__):
                local = Net(function)
                compiled = djinn.compile(copy.deepcopy(local).to(self.device))
                for rows in (2, 3, 4, 5, 5, 5, 4, 4):
                    x = torch.randn(rows, 4)
                    self.assert_same(compiled(x.to(self.device)), local(x))
                self.assertGreaterEqual(compiled.statistics()["replays"], 3, compiled.statistics())

    def test_a_function_that_cannot_be_captured_warns_once(self):
        local = Net(lambda x: x + x.cpu().sum().to(x.device))
        compiled = djinn.compile(copy.deepcopy(local).to(self.device))
        with warnings.catch_warnings(record=True) as caught, torch.no_grad():
            warnings.simplefilter("always")
            for _ in range(4):
                x = torch.randn(2, 4)
                self.assert_same(compiled(x.to(self.device)), local(x))
        (said,) = [str(one.message) for one in caught if "djinn" in str(one.message)]
        for words in ("reads a value from the device: aten::cpu", "<lambda>", __file__):
            self.assertIn(words, said)
        self.assertIn("reads a value", compiled.statistics()["refusal"])
        self.assertEqual(compiled.statistics()["replays"], 0)

    @torch.no_grad()
    def test_a_tensor_of_this_process_that_is_written_from_the_device(self):
        def function(x, rows):
            here = torch.zeros(4, 4)
            here[rows] = x.to("cpu")
            here[rows[0]] = x[0]
            return here, x * 2

        module = torch.nn.Module()
        module.forward = function
        compiled = djinn.compile(module)
        for i in range(5):
            x, rows = torch.randn(2, 4), torch.tensor([i % 3, 3])
            (here, twice), (local, expected) = compiled(x.to(self.device), rows), function(x, rows)
            self.assertTrue(torch.equal(here, local))
            self.assert_same(twice, expected)

    def test_a_read_at_the_end_refuses_nothing(self):
        self.check(Net(lambda x: x).requires_grad_(False))
        local = Net(None)
        local.forward = lambda x: local.first(x).cpu()
        remote = copy.deepcopy(local).to(self.device)
        remote.forward = lambda x: remote.first(x).cpu() + 1
        compiled = djinn.compile(remote)
        with torch.no_grad():
            for _ in range(4):
                x = torch.randn(2, 4)
                self.assertTrue(torch.equal(compiled(x.to(self.device)), local(x) + 1))
        self.assertGreaterEqual(compiled.statistics()["replays"], 2, compiled.statistics())


if __name__ == "__main__":
    import unittest

    unittest.main()
