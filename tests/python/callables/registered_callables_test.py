"""djinn.compile(): what is executed again."""

import copy
import pickle

import torch
import torch.nn.functional as F

import djinn
from tests.python.callables.registered_case import RegisteredCase
from tests.python.remote_case import in_threads


class RegisteredCallablesTest(RegisteredCase):
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

    def test_a_module_stays_usable_as_one(self):
        module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.9)).to(self.device)
        compiled = djinn.compile(module)
        self.assertIs(compiled.eval(), compiled)
        self.assertFalse(module.training)
        self.assertEqual(list(compiled.parameters()), list(module.parameters()))
        self.assertEqual(list(compiled.state_dict()), ["0.weight", "0.bias"])
        x = self.on(2, 4)
        with torch.no_grad():
            for _ in range(3):
                compiled(x)
            compiled.scale = 3
            self.assertEqual(module.scale, 3)
            compiled.get_parameter("0.weight").zero_()
            self.assertTrue(torch.equal(compiled(x), module(x)))
            for other in (copy.deepcopy(compiled), pickle.loads(pickle.dumps(compiled))):
                other.get_parameter("0.bias").fill_(2)
                self.assertEqual(other(x).tolist(), [[2.0] * 4] * 2)
            self.assertTrue(torch.equal(self.warm(compiled, x), module(x)))
            self.assertTrue(torch.equal(self.assert_replays(compiled, x), module(x)))
        with self.assertRaisesRegex(AttributeError, "missing"):
            compiled.missing

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

    def test_sizes_in_results_stay_sizes(self):
        compiled = djinn.compile(lambda x: (x * 2, {"all": x.shape, "some": [x.shape[1:]]}))
        self.warm(compiled, self.on(2, 3))
        _, sizes = self.assert_replays(compiled, self.on(2, 3))
        self.assertEqual(sizes, {"all": (2, 3), "some": [(3,)]})
        for size in (sizes["all"], sizes["some"][0]):
            self.assertIs(type(size), torch.Size)

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
        w_local = w.cpu()

        def work(seed):
            generator = torch.Generator().manual_seed(seed)
            for _ in range(30):
                x = torch.randn(2, 6, generator=generator)
                self.assertTrue(
                    torch.equal(compiled(x.to(self.device)).cpu(), (x @ w_local).tanh()))

        in_threads(work, 4)
        self.assertGreater(compiled.statistics()["replays"], 60)
