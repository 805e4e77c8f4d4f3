"""djinn.compile(): what is refused, and what is left of a call that fails."""

import warnings
import weakref

import torch

import djinn
from tests.python.callables.registered_case import RegisteredCase


class RegisteredRefusalsTest(RegisteredCase):
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
            "a tensor or a generator that is neither",
            self.refusal(lambda x: x + torch.rand(4, generator=generator, device=device), x),
        )
        self.assertIn("tensor of this process", self.refusal(lambda x: x + 1, here))
        self.assertIn("argument is a object", self.refusal(lambda x, y: (y, x + 1)[1], x, object()))
        self.assertIn("the metadata of a tensor", self.refusal(lambda x: x.t_(), self.on(2, 3)))

    def test_sparse_tensors(self):
        x, ids = self.on(4, 4), torch.tensor([1, 2, 2], device=self.device)
        self.assertIn("depends on data", self.refusal(lambda x: x.to_sparse(), x))
        places = x.to_sparse().indices()
        sparse = lambda x: torch.sparse_coo_tensor(places, x.flatten(), (4, 4))  # noqa: E731
        self.assertIn("sparse", self.refusal(sparse, x))
        rows = torch.eye(3, device=self.device).to_sparse_csr()
        self.assertNotEqual(self.refusal(lambda x: x.to_sparse_csr(), x), "")
        self.assertNotEqual(self.refusal(lambda x: rows @ x, self.on(3)), "")
        local = torch.nn.Embedding(5, 4, sparse=True)
        remote = torch.nn.Embedding(5, 4, sparse=True).to(self.device)
        remote.load_state_dict(local.state_dict())
        for keep in (False, True):

            def step(model, ids, keep=keep):
                if not keep:
                    model.zero_grad()
                loss = model(ids).square().sum()
                loss.backward()
                with torch.no_grad():
                    model.weight.sub_(model.weight.grad.to_dense(), alpha=0.1)
                return loss.detach()

            compiled = djinn.compile(lambda ids: step(remote, ids))  # noqa: B023
            for _ in range(4):
                self.assert_same(compiled(ids), step(local, ids.cpu()))
                self.assert_same(remote.weight.detach(), local.weight.detach())
                self.assert_same(remote.weight.grad.to_dense(), local.weight.grad.to_dense())
            self.assertIn("sparse", compiled.statistics()["refusal"])

    def test_a_sparse_gradient_that_is_dropped(self):
        weight = torch.nn.Parameter(self.on(4))

        def step(x):
            weight.grad = None
            (weight * x).sum().backward()
            return weight.grad * 2

        compiled = djinn.compile(step)
        for _ in range(5):
            weight.grad = self.on(4).to_sparse()
            x = self.on(4)
            self.assertTrue(torch.equal(compiled(x), x * 2))

    def test_a_sparse_buffer_before_all_other_tensors(self):
        class Layer(torch.nn.Module):
            def __init__(self, device):
                super().__init__()
                self.register_buffer("edges", torch.eye(3).to_sparse().to(device))
                self.register_buffer("x", torch.ones(3, 2, device=device))

            def forward(self, factor):
                return self.edges @ self.x * factor

        layer = Layer(self.device)
        for compiled in (djinn.compile(layer), djinn.compile(lambda factor: layer(factor))):
            for _ in range(4):
                with torch.no_grad():
                    self.assertEqual(compiled(2.0).tolist(), [[2.0, 2.0]] * 3)

    def test_an_object_with_a_false_class_is_refused(self):
        class Disguised:
            __class__ = property(lambda self: torch.Tensor)

        x = self.on(4)
        weight, disguised = self.on(4), Disguised()
        for thing in (weakref.proxy(weight), disguised):
            why = self.refusal(lambda x: x if thing is None else x + 1, x)
            self.assertIn("that says it is a Tensor", why)

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

    def test_changes_without_an_operator_are_refused(self):
        x = self.on(4)
        here, own = torch.Generator(), torch.Generator(self.device)

        def seeds_then_draws(x):
            torch.manual_seed(3)
            return x + torch.rand(4, device=x.device)

        def draws_then_seeds(x):
            y = x + torch.rand(4, device=x.device)
            torch.manual_seed(3)
            return y

        for function, why in (
            (lambda x: (torch.manual_seed(3), x + 1)[1], "seeds a generator"),
            (lambda x: (torch.set_rng_state(here.get_state()), x + 1)[1], "torch.set_rng_state"),
            (lambda x: (own.manual_seed(3), x + 1)[1], "seeds a generator"),
            (lambda x: (here.manual_seed(3), x + 1)[1], "uses manual_seed"),
            (draws_then_seeds, "seeds a generator"),
            (lambda x: (setattr(x, "data", x + 1), x * 2)[1], "gives an argument other memory"),
            (lambda x: (setattr(x, "grad", x + 1), x * 2)[1], "gives an argument another gradient"),
            (lambda x: (setattr(x, "grad", x.detach()), x * 2)[1], "gives an argument another gradient"),
        ):
            with self.subTest(why, line=function.__code__.co_firstlineno):
                here.manual_seed(0)
                own.manual_seed(0)
                self.assertIn(why, self.refusal(function, x.clone()))
        self.assertIn("generator", self.refusal(seeds_then_draws, x))
        y = self.on(4).requires_grad_()
        with torch.no_grad():
            hooks = lambda y: (y.register_hook(lambda gradient: None), y * 2)[1]  # noqa: E731
            compiled = djinn.compile(hooks)
            for _ in range(4):
                compiled(self.on(4).requires_grad_())
            self.assertEqual(compiled.statistics()["replays"], 0)

    def test_numbers_behind_a_call_that_seeds(self):
        x = self.on(4)

        @djinn.compile
        def evaluate(x):
            torch.manual_seed(7)
            return x * 2

        drawn = []
        for _ in range(6):
            evaluate(x)
            drawn.append((torch.rand(2, device=self.device).tolist(), torch.rand(2).tolist()))
        self.assertEqual(drawn, drawn[:1] * 6)

    def test_memory_and_gradients_that_an_argument_is_given(self):
        @djinn.compile
        def refill(x, y):
            x.data = y + 1
            return y * 2

        @djinn.compile
        def keep(p, g):
            p.grad = g.detach()
            return g * 2

        p = torch.zeros(4, device=self.device)
        p.grad = torch.zeros(4, device=self.device)
        for i in range(6):
            x = torch.zeros(4, device=self.device)
            y = torch.full((4,), float(i), device=self.device)
            self.assertEqual(refill(x, y).tolist(), [2.0 * i] * 4)
            self.assertEqual(x.tolist(), [i + 1.0] * 4)
            self.assertEqual(keep(p, y).tolist(), [2.0 * i] * 4)
            self.assertEqual(p.grad.tolist(), [float(i)] * 4)

    def test_a_decorated_method_says_what_to_do(self):
        class Doubling(torch.nn.Module):
            @djinn.compile
            def forward(self, x):
                return x * 2

        with self.assertRaisesRegex(TypeError, "forward, a method of Doubling: compile the object"):
            Doubling()(self.on(2))
        self.assertEqual(Doubling.forward.statistics()["captures"], 0)

    def test_a_compiled_function_may_be_an_attribute_of_a_class(self):
        def double(x):
            return x * 2

        class Holder:
            doubled = djinn.compile(double)

        Holder.added_later = djinn.compile(lambda x: x * 3)
        x = self.on(2)
        self.assertTrue(torch.equal(Holder().doubled(x).cpu(), x.cpu() * 2))
        self.assertTrue(torch.equal(Holder().added_later(x).cpu(), x.cpu() * 3))

    def test_a_step_counter_in_this_process_is_refused(self):
        class Own(torch.optim.NAdam):
            """An optimizer of the program's, which may do anything with its counts."""

        net = torch.nn.Linear(2, 2).to(self.device)
        optimizer = Own(net.parameters())

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

    def test_an_object_that_is_not_callable_is_refused(self):
        with self.assertRaisesRegex(TypeError, "needs a callable"):
            djinn.compile(3)

    @torch.no_grad()
    def test_calls_that_are_never_alike_say_what_differs(self):
        rows = torch.randn(1600, 4).to(self.device)
        layer = torch.nn.Linear(4, 4).to(self.device)

        def function(x, scale):
            # A slice that is written is not copied.
            return layer(x.add_(1)).detach() * scale

        module = torch.nn.Module()
        module.forward = function
        calls = {
            "other sizes.* Pad the sizes": lambda i: (self.on(i + 1, 4), 1),
            "other plain values.* as tensors": lambda i: (rows[:4], i / 8),
            "another place of its memory.* clone": lambda i: (rows[i : i + 4], 1),
        }
        for words, arguments in calls.items():
            for compiled in (djinn.compile(function), djinn.compile(module)):
                with self.subTest(words, kind=type(compiled).__name__):
                    with warnings.catch_warnings(record=True) as caught:
                        warnings.simplefilter("always")
                        for i in range(100):
                            compiled(*arguments(i))
                    (said,) = [str(one.message) for one in caught if "djinn" in str(one.message)]
                    self.assertRegex(said, f"no call equals an earlier one: .*{words}")

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
