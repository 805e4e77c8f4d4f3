"""torch.compile(backend="djinn"): what is replayed, and that no answer is stale."""

import copy
import functools
import warnings

import torch

import djinn
from djinn._dynamo.traced import TracedCalls
from tests.python.callables.registered_case import RegisteredCase
from tests.python.remote_case import in_threads, run_program

SCALE = 2.0
_plain_custom_calls = []


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(8, 8)
        self.norm = torch.nn.BatchNorm1d(8)
        self.second = torch.nn.Linear(8, 8)
        self.scale = 1.5

    def forward(self, x, n=1):
        x = torch.relu(self.norm(self.first(x))) * self.scale
        return self.second(x) * n


class Recurrent(torch.nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.network = kind(8, 6, 2, batch_first=True, bidirectional=True)
        self.head = torch.nn.Linear(12, 3)

    def forward(self, x):
        return self.head(self.network(x)[0][:, -1])


def _tensors(result):
    return (result,) if torch.is_tensor(result) else result


@torch.library.custom_op("djinn_backend_test::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    _plain_custom_calls.append(1)
    return x * 2


@twice.register_fake
def _(x):
    return torch.empty_like(x)


class _Counted(TracedCalls):
    """Counts what the graphs of a torch.compile'd function do."""

    def __init__(self, function, **options):
        super().__init__("test")
        self._function = torch.compile(function, backend="djinn", **options)

    def _compiled_for(self, function, args, kwargs):
        return self._function

    def __call__(self, *args, **kwargs):
        # The callable calls its first argument with the others.
        first, *rest = args
        return self.call(first, rest, kwargs)


class BackendTest(RegisteredCase):
    def setUp(self):
        super().setUp()
        torch._dynamo.reset()

    def check(self, compiled, function, make, times=4, replays=2):
        """Calls both with equal arguments, and compares results and written arguments."""
        before = compiled.statistics()["replays"]
        for _ in range(times):
            args = make()
            here = [copy.deepcopy(arg) for arg in args]
            there = [arg.to(self.device) if torch.is_tensor(arg) else arg for arg in args]
            expected, actual = function(*here), compiled(*there)
            if torch.is_tensor(expected):
                expected, actual = [expected], [actual]
            for one, other in zip([*actual, *there], [*expected, *here], strict=True):
                if torch.is_tensor(other):
                    self.assert_same(one, other)
                else:
                    self.assertEqual(one, other)
        self.assertGreaterEqual(
            compiled.statistics()["replays"] - before, replays, compiled.statistics()
        )

    @torch.no_grad()
    def test_a_module_is_replayed_from_its_second_call_on(self):
        local = Block().eval()
        remote = copy.deepcopy(local).to(self.device)
        self.check(_Counted(remote), local, lambda: [torch.randn(4, 8)], times=3, replays=2)

    def test_a_call_by_the_backends_name_is_one_message(self):
        model = Block().eval().to(self.device)
        compiled = torch.compile(model, backend="djinn")
        x = self.on(4, 8)
        with torch.no_grad():
            for _ in range(3):
                expected = compiled(x).cpu()
            runs = djinn.statistics()["runs"]
            result = compiled(x).cpu()
            self.assertEqual(djinn.statistics()["runs"], runs + 1)
            self.assertTrue(torch.equal(result, expected))

    def test_a_call_of_a_recurrent_network_is_one_message(self):
        for kind in (torch.nn.GRU, torch.nn.LSTM, torch.nn.RNN):
            with self.subTest(kind.__name__), torch.no_grad():
                local = Recurrent(kind).eval()
                remote = copy.deepcopy(local).to(self.device)
                compiled = torch.compile(remote, backend="djinn")
                x = torch.randn(2, 5, 8)
                for _ in range(3):
                    self.assert_same(compiled(x.to(self.device)), local(x))
                there = x.to(self.device)
                djinn.synchronize()
                runs = djinn.statistics()["runs"]
                self.assert_same(compiled(there), local(x))
                self.assertEqual(djinn.statistics()["runs"], runs + 1)
                for model in (local, remote):
                    model.network.weight_hh_l1.fill_(0.25)
                self.assert_same(compiled(there), local(x))

    def test_recurrent_cells(self):
        for kind in (torch.nn.GRUCell, torch.nn.LSTMCell, torch.nn.RNNCell):
            for bias in (True, False):
                with self.subTest(kind.__name__, bias=bias), torch.no_grad():
                    local = kind(8, 6, bias)
                    remote = copy.deepcopy(local).to(self.device)
                    compiled = _Counted(remote, fullgraph=True)
                    self.check(compiled, local, lambda: [torch.randn(4, 8)])
                    x = torch.randn(4, 8)
                    exported = torch.export.export(remote, (x.to(self.device),))
                    for program in (exported, exported.run_decompositions()):
                        found = _tensors(program.module()(x.to(self.device)))
                        for one, other in zip(found, _tensors(local(x)), strict=True):
                            self.assert_same(one, other)

    def test_gradients_of_a_recurrent_network(self):
        local = Recurrent(torch.nn.GRU)
        remote = copy.deepcopy(local).to(self.device)
        compiled = _Counted(remote)
        for _ in range(3):
            x = torch.randn(2, 5, 8)
            for model, call, device in ((local, local, "cpu"), (remote, compiled, self.device)):
                model.zero_grad()
                call(x.to(device)).square().mean().backward()
            for one, other in zip(remote.parameters(), local.parameters()):
                self.assert_same(one.grad, other.grad)
        self.assertGreaterEqual(compiled.statistics()["replays"], 1, compiled.statistics())

    @torch.no_grad()
    def test_a_change_to_the_module_between_calls_is_seen(self):
        local = Block().eval()
        remote = copy.deepcopy(local).to(self.device)
        compiled = _Counted(remote)

        def change(how):
            how(local, "cpu")
            how(remote, self.device)
            self.check(compiled, local, lambda: [torch.randn(4, 8)], times=3, replays=0)

        self.check(compiled, local, lambda: [torch.randn(4, 8)])
        new = torch.randn(8, 8)
        weights = torch.nn.Linear(8, 8).state_dict()
        change(lambda m, d: m.first.weight.fill_(0.5))
        change(lambda m, d: setattr(m.first, "weight", torch.nn.Parameter(new.clone().to(d))))
        change(lambda m, d: setattr(m.second.weight, "data", new.clone().to(d)))
        change(lambda m, d: m.norm.running_mean.add_(1))
        change(lambda m, d: setattr(m.norm, "running_var", torch.full((8,), 4.0).to(d)))
        change(lambda m, d: setattr(m, "scale", -2.0))
        change(lambda m, d: m.second.load_state_dict(weights))
        change(lambda m, d: m.norm.train())
        change(lambda m, d: m.norm.eval())
        change(lambda m, d: setattr(m, "second", torch.nn.Identity()))
        change(lambda m, d: m.first.register_forward_hook(lambda module, args, out: out + 1))
        change(lambda m, d: m.second.register_forward_hook(
            lambda module, args, kwargs, out: out * 2, with_kwargs=True))
        change(lambda m, d: m.second.register_forward_pre_hook(
            lambda module, args, kwargs: ((args[0] * 3,), kwargs), with_kwargs=True))
        change(lambda m, d: setattr(m, "norm", torch.nn.LayerNorm(8).to(d)))

    @torch.no_grad()
    def test_views_of_parameters_without_gradients(self):
        def model(x, weight):
            return x @ weight.expand(3, 2, 4), weight.view(4, 2)

        def write(x, weight):
            weight.view(8).mul_(2)
            return (weight.div_(4) + x.sum(),)

        weight = torch.nn.Parameter(torch.rand(2, 4))
        remote = torch.nn.Parameter(weight.detach().to(self.device))
        x = torch.rand(3, 5, 2)
        for function in (model, write):
            compiled = _Counted(function)
            for _ in range(4):
                expected, actual = function(x, weight), compiled(x.to(self.device), remote)
                for one, other in zip([*actual, remote], [*expected, weight], strict=True):
                    self.assert_same(one.detach(), other.detach())
                    self.assertEqual(one.requires_grad, other.requires_grad)
            self.assertEqual(compiled.statistics()["refusal"], "")
            self.assertGreaterEqual(compiled.statistics()["replays"], 2)

    @torch.no_grad()
    def test_globals_and_closures_are_seen(self):
        global SCALE
        offset = 1.0

        def function(x):
            return x * SCALE + offset

        compiled = _Counted(function)
        self.addCleanup(globals().__setitem__, "SCALE", SCALE)
        for SCALE, offset in ((2.0, 1.0), (3.0, 1.0), (3.0, 5.0), (2.0, 1.0)):
            self.check(compiled, function, lambda: [torch.randn(4)], replays=0)

    @torch.no_grad()
    def test_modes_and_settings_are_seen(self):
        def function(x, y):
            return x @ y

        compiled = _Counted(function)
        make = lambda: [torch.randn(4, 4), torch.randn(4, 4)]
        self.check(compiled, function, make)
        with torch.inference_mode():
            self.check(compiled, function, make)
        with torch.autocast("remote_accelerator", torch.bfloat16):
            self.assertEqual(compiled(self.on(4, 4), self.on(4, 4)).dtype, torch.bfloat16)
        self.check(compiled, function, make, replays=4)

    @torch.no_grad()
    def test_arguments_are_written_and_results_are_views_of_them(self):
        def function(x, n):
            x.add_(n)
            return x.t(), x[0], x * n, x, x.size(0) + 1

        self.check(_Counted(function), function, lambda: [torch.randn(3, 2), 2])
        for number in (3, 3.5, 4.5):
            self.check(
                _Counted(function), function, lambda: [torch.randn(3, 2), number], replays=0)

    @torch.no_grad()
    def test_a_result_that_is_a_view_is_written_through(self):
        compiled = _Counted(lambda x: (x * 2, x[1:]))
        for _ in range(4):
            x = self.on(3, 2)
            _, rest = compiled(x)
            version = x._version
            rest.zero_()
            self.assertEqual(x[1:].cpu().tolist(), [[0, 0], [0, 0]])
            self.assertGreater(x._version, version)

    @torch.no_grad()
    def test_arguments_that_share_memory(self):
        def function(x, y):
            x.mul_(2)
            return x + y

        compiled = _Counted(function)
        for shared in (False, True, True, False, True):
            x = torch.randn(4)
            here = x.clone(), x.clone()
            there = x.to(self.device), x.to(self.device)
            if shared:
                here, there = (here[0], here[0]), (there[0], there[0])
            self.assert_same(compiled(*there), function(*here))

    @torch.no_grad()
    def test_sizes_that_change(self):
        def function(x):
            return x.sum(0) * x.size(0), x.size(0) + 1

        compiled = _Counted(function)
        sizes = [2, 3, 4, 5, 6, 4, 5, 6]
        for size in sizes:
            self.check(compiled, function, lambda: [torch.randn(size, 3)], times=1, replays=0)
        self.check(compiled, function, lambda: [torch.randn(4, 3)], times=2, replays=2)

    @torch.no_grad()
    def test_tensors_of_this_process_are_used_anew_in_each_call(self):
        device = self.device

        def function(x, y):
            return x + (y * 2).to(x.device), y + 1

        self.check(_Counted(function), function, lambda: [torch.randn(3)] * 2, replays=0)
        compiled = _Counted(lambda x, y: (x + (y * 2).to(device), y + 1))
        for _ in range(4):
            x, y = torch.randn(3), torch.randn(3)
            a, b = compiled(x.to(device), y)
            self.assert_same(a, x + y * 2)
            self.assertTrue(torch.equal(b, y + 1))
        self.assertGreaterEqual(compiled.statistics()["replays"], 2, compiled.statistics())

    @torch.no_grad()
    def test_values_that_are_read_are_read_anew(self):
        def function(x):
            y = x * 2
            return (y.cpu() + 1, y * y) if y.sum() > 0 else (y.cpu() - 1, y)

        compiled = _Counted(function)
        for _ in range(8):
            x = torch.randn(3)
            for one, other in zip(compiled(x.to(self.device)), function(x)):
                self.assertTrue(torch.equal(one.cpu(), other))

    def test_gradients(self):
        local = Block()
        remote = copy.deepcopy(local).to(self.device)
        compiled = _Counted(remote)
        optimizers = [torch.optim.SGD(m.parameters(), 0.1, momentum=0.9) for m in (local, remote)]
        for step in range(6):
            x = torch.randn(4, 8)
            for optimizer in optimizers:
                optimizer.zero_grad(set_to_none=step % 2 == 0)
            expected, actual = local(x).square().mean(), compiled(x.to(self.device)).square().mean()
            expected.backward()
            actual.backward()
            self.assert_same(actual.detach(), expected.detach())
            for one, other in zip(remote.parameters(), local.parameters()):
                self.assert_same(one.grad, other.grad)
            for optimizer in optimizers:
                optimizer.step()
            for one, other in zip(remote.buffers(), local.buffers()):
                self.assert_same(one, other)
        self.assertGreaterEqual(compiled.statistics()["replays"], 2, compiled.statistics())

    def test_gradients_of_arguments(self):
        compiled = _Counted(lambda x, y: (x * y).tanh())
        for _ in range(5):
            here = [torch.randn(4, requires_grad=True) for _ in range(2)]
            there = [x.detach().to(self.device).requires_grad_() for x in here]
            (here[0] * here[1]).tanh().sum().backward()
            compiled(*there).sum().backward()
            for one, other in zip(there, here):
                self.assert_same(one.grad, other.grad)

    def test_a_parameter_written_before_the_backward_pass_is_an_error(self):
        linear = torch.nn.Linear(4, 4).to(self.device)
        compiled = _Counted(torch.nn.Sequential(linear, linear))
        for _ in range(4):
            result = compiled(self.on(2, 4)).sum()
            with torch.no_grad():
                linear.weight.add_(1)
            with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
                result.backward()

    @torch.no_grad()
    def test_the_step_of_an_optimizer(self):
        for kind, options in (
            (torch.optim.Adam, {}),
            (torch.optim.AdamW, {"amsgrad": True}),
            (torch.optim.SGD, {"momentum": 0.9, "nesterov": True}),
            (torch.optim.RMSprop, {"momentum": 0.9}),
        ):
            with self.subTest(kind.__name__):
                torch._dynamo.reset()
                local = [torch.nn.Parameter(torch.randn(*size)) for size in ((5, 7), (3,))]
                remote = [torch.nn.Parameter(one.detach().to(self.device)) for one in local]
                step = torch.compile(kind(local, 0.01, **options).step, backend="eager")
                optimizer = kind(remote, 0.01, **options)
                compiled = _Counted(lambda x: (optimizer.step(), x * 2)[1])
                for _ in range(6):
                    for here, there in zip(local, remote):
                        here.grad = torch.randn(here.shape)
                        there.grad = here.grad.to(self.device)
                    step()
                    compiled(self.on(2))
                    for here, there in zip(local, remote):
                        self.assert_same(there.detach(), here.detach())
                self.assertEqual(compiled.statistics()["refusal"], "")
                self.assertGreaterEqual(compiled.statistics()["replays"], 2)

    def test_random_numbers_are_drawn_anew(self):
        compiled = _Counted(lambda x: torch.nn.functional.dropout(x, 0.5, True) + torch.rand_like(x))
        x = self.on(64)
        results = [compiled(x).cpu() for _ in range(5)]
        for one, other in zip(results, results[1:]):
            self.assertFalse(torch.equal(one, other))
        torch.manual_seed(5)
        seeded = compiled(x).cpu()
        torch.manual_seed(5)
        self.assertTrue(torch.equal(compiled(x).cpu(), seeded))

    @torch.no_grad()
    def test_a_seed_before_each_call(self):
        def function(x):
            return torch.nn.functional.scaled_dot_product_attention(x, x, x) + torch.rand_like(x)

        compiled, step = _Counted(function), djinn.compile(function)
        x = self.on(1, 2, 4, 8)
        for seed in (1, 2, 3, 3, 2, 1, 1):
            torch.manual_seed(seed)
            expected = function(x).cpu()
            for one in (compiled, step):
                torch.manual_seed(seed)
                self.assertTrue(torch.equal(one(x).cpu(), expected))
        for one in (compiled, step):
            self.assertGreaterEqual(one.statistics()["replays"], 3, one.statistics())

    @torch.no_grad()
    def test_constants_of_the_code_are_sent_and_the_rest_is_replayed(self):
        def by_list(x):
            return x[..., [-2, 0], :] + x[:, [True, False, True]]

        def by_nested_list(x):
            return x[:, [[0, 1], [2, 0]]]

        def by_empty_list(x):
            return x[:, []]

        def written_by_list(x):
            y = x * 2
            y[:, [0, 2]] = 1.0
            return y

        def tensor_there(x):
            weights = torch.tensor([1.0, 2.0, 3.0, 4.0], device=x.device)
            weights[0] = 5
            return x * weights, weights

        def tensor_here(x):
            return x * torch.tensor([1.0, 2.0, 3.0, 4.0]).to(x.device)

        def counted_here(x):
            return x + torch.arange(4).to(x.device)

        def empty(x):
            return torch.cat([torch.tensor([], device=x.device), x.flatten()])

        def in_autocast(x):
            with torch.autocast(x.device.type, torch.bfloat16, enabled=False):
                return x[:, [0, 1]].float() @ x.transpose(1, 2)

        functions = (
            by_list, by_nested_list, by_empty_list, written_by_list, tensor_there, tensor_here,
            counted_here, empty, in_autocast,
        )
        for function in functions:
            with self.subTest(function.__name__):
                self.check(_Counted(function), function, lambda: [torch.randn(2, 3, 4)])

    @torch.no_grad()
    def test_constants_whose_sizes_vary_are_not_replayed(self):
        def by_size(x):
            return x[[0, x.shape[0] - 1]] * 2

        def counted(x):
            y = torch.cat([x, x])
            return y * torch.arange(y.size(0)).to(x.device)[:, None] + 1

        for function in (by_size, counted):
            with self.subTest(function.__name__):
                compiled = _Counted(function)
                for rows in (3, 4, 5, 5, 5):
                    self.check(compiled, function, lambda: [torch.randn(rows, 2)], replays=0)

    @torch.no_grad()
    def test_arguments_without_elements_or_contents(self):
        for compiled in (_Counted(lambda x: x * 2), djinn.compile(lambda x: x * 2)):
            self.check(compiled, lambda x: x * 2, lambda: [torch.zeros(0, 3)])
            for _ in range(4):
                compiled(torch.empty(3, device=self.device))
            self.assertGreaterEqual(compiled.statistics()["replays"], 4)

    @torch.no_grad()
    def test_a_list_of_lists_is_an_index_as_pytorch_takes_it(self):
        function = lambda x: x[[[0, 1], [1, 0]]]
        self.check(_Counted(function), function, lambda: [torch.randn(3, 4)], replays=0)

    def test_constants_of_the_code_in_a_graph_with_gradients(self):
        def function(x, weight):
            scale = torch.tensor([0.5, 2.0], device=x.device)
            return (x[:, [2, 0]] * weight * scale).sum()

        compiled = _Counted(function)
        for _ in range(4):
            x, weight = torch.randn(3, 4), torch.randn(2)
            there = weight.to(self.device).requires_grad_()
            weight.requires_grad_()
            expected, actual = function(x, weight), compiled(x.to(self.device), there)
            expected.backward()
            actual.backward()
            self.assert_same(actual.detach(), expected.detach())
            self.assert_same(there.grad, weight.grad)
        self.assertGreaterEqual(compiled.statistics()["replays"], 2, compiled.statistics())

    @torch.no_grad()
    def test_a_list_that_changes_between_calls_is_seen(self):
        rows = [0, 1]
        function = lambda x: x[rows]
        compiled = _Counted(function)
        self.check(compiled, function, lambda: [torch.randn(4, 2)])
        rows[0] = 3
        self.check(compiled, function, lambda: [torch.randn(4, 2)])

    @torch.no_grad()
    def test_an_operator_with_a_kernel_in_python_is_called_in_each_call(self):
        compiled = _Counted(lambda x: twice(x) + 1)
        _plain_custom_calls.clear()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(4):
                x = torch.randn(3)
                self.assert_same(compiled(x.to(self.device)), x * 2 + 1)
        self.assertEqual(len(_plain_custom_calls), 4)
        (warning,) = [str(one.message) for one in caught if "djinn" in str(one.message)]
        self.assertIn("kernel in Python", warning)
        self.assertIn(__file__, warning)

    @torch.no_grad()
    def test_pytorchs_own_kernels_in_python_that_only_call_operators(self):
        import torch.ao.quantization.fx._decomposed  # noqa: F401

        operators = torch.ops.quantized_decomposed
        scales, zeros = torch.tensor([0.1, 0.2]), torch.tensor([0, 1])

        def quantized(x, scales, zeros):
            bounds = (-128, 127, torch.int8)
            y = operators.quantize_per_tensor(x, 0.1, 0, *bounds)
            y = operators.dequantize_per_tensor(y, 0.1, 0, *bounds).relu()
            z = operators.quantize_per_channel(y, scales, zeros, 0, *bounds)
            return operators.dequantize_per_channel(z, scales, zeros, 0, *bounds) + 1

        for compiled in (_Counted(quantized), djinn.compile(quantized)):
            self.check(compiled, quantized, lambda: [torch.randn(2, 8), scales, zeros], times=5)
            self.assertEqual(compiled.statistics()["refusal"], "")

    @torch.no_grad()
    def test_an_error_is_the_programs_and_later_calls_are_replayed(self):
        def multiply(x, y):
            return x @ y

        traced = TracedCalls("multiply")
        compiled = functools.partial(traced.call, multiply)
        for _ in range(2):
            with self.assertRaisesRegex(RuntimeError, "mat1 and mat2|must have same reduction"):
                compiled((self.on(2, 3), self.on(4, 5)), {})
            for _ in range(4):
                x, y = torch.randn(2, 3), torch.randn(3, 2)
                self.assert_same(compiled((x.to(self.device), y.to(self.device)), {}), x @ y)
        self.assertGreaterEqual(traced.statistics()["replays"], 4)

    @torch.no_grad()
    def test_threads_share_a_graph(self):
        local = Block().eval()
        compiled = torch.compile(copy.deepcopy(local).to(self.device), backend="djinn")
        compiled(self.on(4, 8))

        def call(seed):
            generator = torch.Generator().manual_seed(seed)
            with torch.no_grad():
                for _ in range(20):
                    x = torch.randn(4, 8, generator=generator)
                    self.assertTrue(torch.equal(compiled(x.to(self.device)).cpu(), local(x)))

        in_threads(call, 4)

    @torch.no_grad()
    def test_a_graph_of_this_process_runs_as_without_the_backend(self):
        compiled = torch.compile(lambda x: x * 2, backend="djinn")
        x = torch.randn(3)
        self.assertTrue(torch.equal(compiled(x), x * 2))

    @torch.no_grad()
    def test_modes_of_other_compilers_have_no_effect(self):
        local = Block().eval()
        for mode in ("reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"):
            with self.subTest(mode):
                compiled = _Counted(copy.deepcopy(local).to(self.device), mode=mode)
                self.check(compiled, local, lambda: [torch.randn(4, 8)])

    def test_options_are_refused(self):
        compiled = torch.compile(lambda x: x + 1, backend="djinn", options={"no_such": 1})
        with self.assertRaisesRegex(Exception, "takes no options, got options"):
            compiled(self.on(2))

    def test_inductor_names_the_backend(self):
        compiled = torch.compile(lambda x: x + 1)
        with self.assertRaisesRegex(Exception, 'backend="djinn"'):
            compiled(self.on(2))
        # The device occurs in the graph alone.
        factories = {
            "ones": lambda x: torch.ones(3, device=self.device) * 2,
            "tensor": lambda x: torch.tensor([1.0, 2.0], device=self.device).sum(),
            "to": lambda x: x.to(self.device) + 1,
            "part": lambda x: (x + torch.arange(2, device=self.device).cpu(), x),
        }
        for name, factory in factories.items():
            with self.subTest(name), self.assertRaisesRegex(Exception, 'backend="djinn"'):
                torch.compile(factory)(torch.ones(2))

    @torch.no_grad()
    def test_the_configuration_of_other_backends_stays_as_it_is(self):
        config = torch._dynamo.config
        names = ("allow_rnn", "allow_unspec_int_on_nn_module", "skip_nnmodule_hook_guards",
                 "suppress_errors")
        before = [getattr(config, name) for name in names]
        during = []

        @torch.compiler.disable
        def look(x):
            during.append([getattr(config, name) for name in names])
            return x

        class Looking(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.network = torch.nn.GRU(4, 3)

            def forward(self, x):
                return look(self.network(x)[0] * 2) + 1

        for compile in (djinn.compile, lambda model: torch.compile(model, backend="djinn")):
            compiled = compile(Looking().to(self.device))
            for _ in range(3):
                compiled(self.on(2, 5, 4))
        self.assertEqual(during, [before] * 6)
        network = torch.compile(torch.nn.GRU(4, 3), backend="eager", fullgraph=True)
        with self.assertRaisesRegex(Exception, "allow_rnn"):
            network(torch.randn(2, 5, 4))

    @torch.no_grad()
    def test_a_function_that_is_not_to_be_traced_is_called_as_it_is(self):
        @torch.compiler.disable(recursive=False)
        def untraced(x):
            return x * (2 if torch.compiler.is_compiling() else 3)

        compiled = _Counted(lambda x: untraced(x + 1) + 1)
        for _ in range(3):
            self.assert_same(compiled(torch.ones(3).to(self.device)), torch.full((3,), 7.0))

    def test_the_backend_is_known_before_djinn_is_imported(self):
        listed = run_program("import torch._dynamo; print(torch._dynamo.list_backends())")
        self.assertIn("'djinn'", listed.stdout)


if __name__ == "__main__":
    import unittest

    unittest.main()
