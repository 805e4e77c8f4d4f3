"""djinn.compile() beforehand: warming up, forgetting, and models under a name."""

import torch
import torch.nn.functional as F

import djinn
from tests.python.callables.registered_case import RegisteredCase


def masked(x, mask):
    return x + 1 if mask.all() else x - 1


class WarmUpTest(RegisteredCase):
    def trainer(self, device):
        torch.manual_seed(1)
        net = torch.nn.Linear(5, 3).to(device)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

        def step(x, y):
            optimizer.zero_grad()
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            return loss.detach()

        return net, step

    def test_calls_of_a_warm_up_train_the_model(self):
        x, y = torch.randn(4, 5), torch.randint(3, (4,))
        net, step = self.trainer(self.device)
        local, local_step = self.trainer("cpu")
        compiled = djinn.compile(step)
        statistics = compiled.warm_up(x.to(self.device), y.to(self.device))
        self.assertEqual(statistics["replays"], 1)
        self.assertEqual(statistics["refusal"], "")
        # The first call creates the optimizer's state, so it cannot be
        # repeated.
        self.assertEqual(statistics["captures"], 3)
        for _ in range(4):
            local_step(x, y)
        self.assert_same(net.weight.detach(), local.weight.detach())
        self.assert_same(compiled(x.to(self.device), y=y.to(self.device)), local_step(x, y))

    def test_a_warm_function_needs_one_call(self):
        compiled = djinn.compile(lambda x: x @ x)
        for _ in range(2):
            compiled.warm_up(self.on(3, 3))
        before = compiled.statistics()
        after = compiled.warm_up(self.on(3, 3))
        self.assertEqual(after["captures"], before["captures"])
        self.assertEqual(after["replays"], before["replays"] + 1)

    def test_warm_up_says_why_a_function_cannot_be_registered(self):
        numbers = iter(range(100))
        for function, why in (
            (lambda x: x * x.sum().item(), "it reads a value from the device: aten::item, called at"),
            (lambda x: x * next(numbers), "a range_iterator"),
            (lambda x: 3, "calls nothing on the device"),
        ):
            compiled = djinn.compile(function)
            with self.assertRaises(djinn.Error) as raised:
                compiled.warm_up(self.on(4))
            self.assertEqual(raised.exception.reason, "NOT_REGISTRABLE")
            self.assertEqual(raised.exception.code, "FAILED_PRECONDITION")
            self.assertIn(why, str(raised.exception))
            self.assertLessEqual(compiled.statistics()["captures"], 8)
        # Its side effect happened, and once.
        self.assertEqual(next(numbers), 1)

    def test_an_exception_of_the_function_reaches_the_caller(self):
        with self.assertRaisesRegex(RuntimeError, "shapes cannot be multiplied"):
            djinn.compile(lambda x: x @ x).warm_up(self.on(2, 3))

    def test_reads_of_masks(self):
        compiled = djinn.compile(masked)
        mask = torch.ones(3).long().to(self.device)
        compiled.warm_up(self.on(3), mask)
        x = self.on(3)
        self.assert_same(compiled(x, mask), x.cpu() + 1)
        self.assert_same(compiled(x, mask * 0), x.cpu() - 1)

    def test_a_forgotten_function_is_captured_again(self):
        for compiled, given in (
            (djinn.compile(lambda x: x.tanh()), (self.on(3),)),
            (djinn.compile(masked), (self.on(3), torch.ones(3).long().to(self.device))),
        ):
            compiled.warm_up(*given)
            expected = compiled(*given)
            before = compiled.statistics()
            compiled.forget()
            self.assert_same(compiled(*given), expected.cpu())
            after = compiled.statistics()
            self.assertEqual(after["replays"], before["replays"])
            self.assertEqual(after["captures"], before["captures"] + 1)
            compiled.warm_up(*given)
            self.assert_same(compiled(*given), expected.cpu())

    def test_refusals_are_forgotten(self):
        compiled = djinn.compile(lambda x: x * x.sum().item())
        for _ in range(8):
            compiled(self.on(3))
        captures = compiled.statistics()["captures"]
        compiled(self.on(3))
        self.assertEqual(compiled.statistics()["captures"], captures)
        compiled.forget()
        self.assertEqual(compiled.statistics()["refusal"], "")
        compiled(self.on(3))
        self.assertEqual(compiled.statistics()["captures"], captures + 1)

    def test_a_model_under_a_name(self):
        net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU()).to(self.device)
        for model in (djinn.register_model(net, "layers"), djinn.register_model(net)):
            with torch.no_grad():
                x = self.on(2, 4)
                self.assertEqual(model.warm_up(x)["replays"], 1)
                self.assert_same(model(x), net(x).cpu())
        with self.assertRaisesRegex(TypeError, "needs a torch.nn.Module"):
            djinn.register_model(masked, "layers")
