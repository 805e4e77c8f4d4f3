"""Registered callables: arguments, gradients and modes change, and no answer is stale."""

import math

import torch
from torch.nn.utils import parametrize

import djinn
from tests.python.callables.stale_answers_case import StaleAnswersCase


class StaleArgumentsTest(StaleAnswersCase):
    # Kinds of arguments -----------------------------------------------------------

    def check_arguments(self, function, first, second):
        """Warms the function with one argument and calls it with another."""
        with torch.no_grad():
            compiled = djinn.compile(function)
            for _ in range(5):
                result = compiled(first)
            self.assertGreater(compiled.statistics()["replays"], 0, compiled.statistics())
            expected = function(second)
            self.assertFalse(torch.equal(result.cpu(), expected.cpu()), "nothing is different")
            torch.testing.assert_close(compiled(second).cpu(), expected.cpu())
        return compiled

    def test_properties_of_argument_tensors_are_seen(self):
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
        compiled = djinn.compile(
            lambda x: x.rename(None) * (2 if x.names[0] == "a" else 3))
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
        # Either may be the one whose memory is named when the call is executed.
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
            # The gradient shares the memory again, as a second tensor.
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

    def test_graphs_that_were_there_before(self):
        def step_of(device):
            weight = torch.ones(4).to(device).requires_grad_()
            weight.grad = torch.zeros_like(weight)
            kept = weight * 3

            def step(x):
                weight.grad.zero_()
                (kept * 1).sum().backward(retain_graph=True)
                return (weight.grad * x).detach()

            return step, kept

        (local, kept), (function, remote) = step_of("cpu"), step_of(self.device)
        compiled, x = djinn.compile(function), torch.randn(4)
        for _ in range(2):
            for _ in range(4):
                torch.testing.assert_close(compiled(x.to(self.device)).cpu(), local(x))
            kept.mul_(5)
            remote.mul_(5)
        self.assertEqual(compiled.statistics()["replays"], 0)
        self.assertIn("has a graph behind it", compiled.statistics()["refusal"])

        # Without gradients the decorator has no effect.
        @torch.enable_grad()
        def add():
            remote.add_(1)

        with torch.no_grad():
            made = lambda x: x * (2 if remote.grad_fn.name() == "MulBackward0" else 3)  # noqa: E731
            self.check(made, add)

    def test_hooks_of_nodes(self):
        for late in (False, True):
            weight = torch.ones(4, device=self.device, requires_grad=True)
            node = weight.view_as(weight).grad_fn.next_functions[0][0]
            factor = 2.0

            def hook(*_):
                weight.grad.mul_(factor)

            def step(x):
                weight.grad = None
                (weight * x).sum().backward()
                return weight.grad.detach().clone()

            compiled, ones = djinn.compile(step), torch.ones(4, device=self.device)
            if not late:
                node.register_hook(hook)
            for _ in range(5):
                compiled(ones)
            self.assertEqual(compiled.statistics()["replays"] > 0, late)
            if late:
                node.register_hook(hook)
            self.assertEqual(compiled(ones).tolist(), [2] * 4)
            factor = 3.0
            self.assertEqual(compiled(ones).tolist(), [3] * 4)
            self.assertIn("has hooks", compiled.statistics()["refusal"])

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
        # A tensor that is passed as an argument is the same one.
        weight = torch.nn.Parameter(x, requires_grad=False)
        compiled = djinn.compile(lambda x: x.add_(1))
        for _ in range(5):
            self.assertIs(compiled(weight), weight)
        self.assertGreater(compiled.statistics()["replays"], 0)

    def test_anomaly_mode_and_saved_tensor_hooks_see_every_call(self):
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

    @torch.no_grad()
    def test_parametrizations_that_are_cached(self):
        class Doubled(torch.nn.Module):
            def forward(self, weight):
                return weight * 2

        net = torch.nn.Linear(4, 4).to(self.device)
        parametrize.register_parametrization(net, "weight", Doubled())
        compiled = self.warm(net)
        before = compiled.statistics()["replays"]
        x = torch.randn(4).to(self.device)
        with parametrize.cached():
            first = compiled(x).cpu()
            net.parametrizations.weight.original.add_(1)
            # The result equals that of the first computation.
            torch.testing.assert_close(compiled(x).cpu(), first)
        self.assertEqual(compiled.statistics()["replays"], before)
        self.assertFalse(torch.equal(compiled(x).cpu(), first))

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
