"""djinn.compile(): what is refused, and what is left of a call that fails."""

import torch

import djinn
from tests.python.registered_case import RegisteredCase


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
