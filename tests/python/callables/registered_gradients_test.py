"""djinn.compile(): steps that add to gradients which were there before."""

import copy

import torch

import djinn
from tests.python.callables.registered_case import RegisteredCase


class Trainer:
    """Micro-batches, of which every fourth is followed by the optimizer."""

    def __init__(self, net, compiled):
        self.net = net
        self.optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        self.add = djinn.compile(self._add) if compiled else self._add

    def _add(self, x):
        loss = self.net(x).square().mean()
        loss.backward()
        return loss.detach()

    def state(self):
        tensors = list(self.net.parameters())
        tensors += [tensor.grad for tensor in tensors if tensor.grad is not None]
        return [(tensor.detach().cpu().tolist(), tensor._version) for tensor in tensors]


class RegisteredGradientsTest(RegisteredCase):
    def trainers(self):
        torch.manual_seed(4)
        net = torch.nn.Sequential(torch.nn.Linear(4, 5), torch.nn.Tanh(), torch.nn.Linear(5, 2))
        return [Trainer(copy.deepcopy(net).to(self.device), compiled) for compiled in (True, False)]

    def run_alike(self, trainers, between, steps=40):
        """`between` is called with a trainer and the number of the micro-batch before it."""
        for i in range(steps):
            x = self.on(3, 4)
            losses = []
            for trainer in trainers:
                losses.append(trainer.add(x).item())
                between(trainer, i)
            self.assertEqual(*losses)
            self.assertEqual(trainers[0].state(), trainers[1].state(), i)
        return trainers[0].add.statistics()

    def test_micro_batches(self):
        for set_to_none in (True, False):

            def between(trainer, i, set_to_none=set_to_none):
                if i % 4 == 3:
                    trainer.optimizer.step()
                    trainer.optimizer.zero_grad(set_to_none=set_to_none)

            statistics = self.run_alike(self.trainers(), between)
            self.assertLess(statistics["captures"], 9, statistics)
            self.assertEqual(statistics["replays"] + statistics["captures"], 40)

    def test_gradients_that_are_replaced_each_time(self):
        def between(trainer, i):
            for parameter in trainer.net.parameters():
                parameter.grad = parameter.grad.clone()

        statistics = self.run_alike(self.trainers(), between)
        self.assertLess(statistics["captures"], 9, statistics)

    def test_gradients_that_are_written_and_swapped(self):
        def between(trainer, i):
            first, _, last, _ = trainer.net.parameters()
            if i % 3 == 0:
                first.grad.mul_(0.5)
            if i % 5 == 0:
                first.grad, trainer.kept = getattr(trainer, "kept", first.grad), first.grad
            if i % 7 == 0:
                last.grad = last.grad.t().contiguous().t()
            if i % 11 == 0:
                last.grad = None

        self.run_alike(self.trainers(), between, 80)

    def test_gradients_that_share_memory(self):
        """Gradients share memory with each other or with a parameter."""

        def in_one_buffer(trainer, i):
            if i % 4 == 0:
                parameters = list(trainer.net.parameters())
                flat = torch.zeros(sum(p.numel() for p in parameters), device=self.device)
                for p, part in zip(parameters, flat.split([p.numel() for p in parameters])):
                    p.grad = part.view_as(p)

        def one_for_two(trainer, i):
            if i % 4 == 0:
                first, _ = trainer.net[0].parameters()
                other = trainer.net[2].weight
                first.grad = torch.zeros(5, 4, device=self.device)
                other.grad = first.grad.flatten()[:10].view(2, 5)

        def of_a_parameter(trainer, i):
            if i % 4 == 0:
                first, _ = trainer.net[0].parameters()
                first.grad = first.detach() if i % 8 == 0 else first.detach().clone()

        for between in (in_one_buffer, one_for_two, of_a_parameter):
            with self.subTest(between.__name__):
                self.run_alike(self.trainers(), between)

    def test_gradients_that_the_function_knows_by_another_name(self):
        for is_known in (True, False):
            weights = [torch.ones(3, device=self.device, requires_grad=True) for _ in range(2)]
            known = [[None], [None]]

            def step(weight, held, x):
                (weight * x).sum().backward()
                return held[0] * 1

            steps = [
                djinn.compile(lambda x: step(weights[0], known[0], x)),
                lambda x: step(weights[1], known[1], x),
            ]
            for i in range(24):
                x = self.on(3)
                for weight, held in zip(weights, known):
                    if i % 3 == 0:
                        weight.grad = torch.full((3,), float(i), device=self.device)
                        held[0] = weight.grad if is_known else weight.grad.clone()
                one, other = [each(x).tolist() for each in steps]
                self.assertEqual(one, other)
                self.assertEqual(weights[0].grad.tolist(), weights[1].grad.tolist())

    def test_gradients_that_are_given_other_memory(self):
        def of_gradients(net, x):
            loss = net(x).square().mean()
            parameters = list(net.parameters())
            for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters)):
                parameter.grad.data = gradient
            return loss.detach()

        def of_what_it_made(net, x):
            net.weight.grad.data = x * 2
            return x + 1

        def of_an_argument(net, x):
            net.weight.grad.data = x
            return x + 1

        def of_what_it_drops(net, x):
            net.weight.grad.data = x * 2
            net.weight.grad = None
            return x + 1

        def without_a_gradient(net, x):
            net.weight.grad.requires_grad_(not net.weight.grad.requires_grad)
            return x + 1

        for function in (
            of_gradients, of_what_it_made, of_an_argument, of_what_it_drops, without_a_gradient
        ):  # fmt: skip
            with self.subTest(function.__name__):
                nets = [torch.nn.Linear(3, 3).to(self.device)]
                nets.append(copy.deepcopy(nets[0]))
                compiled = djinn.compile(lambda x, function=function, net=nets[0]: function(net, x))
                for _ in range(8):
                    for net in nets:
                        if net.weight.grad is None:
                            for parameter in net.parameters():
                                parameter.grad = torch.zeros_like(parameter)
                    x = self.on(3, 3)
                    self.assertEqual(compiled(x).tolist(), function(nets[1], x).tolist())
                    for one, other in zip(nets[0].parameters(), nets[1].parameters()):
                        self.assertEqual(one.grad is None, other.grad is None)
                        if one.grad is not None:
                            self.assertEqual(one.grad.tolist(), other.grad.tolist())
                            self.assertEqual(one.grad.requires_grad, other.grad.requires_grad)
                self.assertEqual(compiled.statistics()["replays"], 0)
                self.assertIn("a gradient", compiled.statistics()["refusal"])

    def test_a_gradient_that_is_an_argument_is_counted_once(self):
        def function(gradient, x):
            gradient.add_(x)
            return x + 1

        weights = [torch.ones(3, device=self.device, requires_grad=True) for _ in range(2)]
        compiled = djinn.compile(lambda g, x: (weights[0].grad, function(g, x))[1])
        for weight in weights:
            weight.grad = torch.zeros(3, device=self.device)
        for _ in range(6):
            x = self.on(3)
            self.assertEqual(
                compiled(weights[0].grad, x).tolist(), function(weights[1].grad, x).tolist()
            )
            self.assertEqual(weights[0].grad.tolist(), weights[1].grad.tolist())
            self.assertEqual(weights[0].grad._version, weights[1].grad._version)
        self.assertGreater(compiled.statistics()["replays"], 0)

    def test_gradients_that_are_not_used_are_ignored(self):
        net, other = (torch.nn.Linear(4, 2).to(self.device) for _ in range(2))
        here = torch.nn.Linear(4, 2)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        other(self.on(3, 4)).sum().backward()
        here(torch.ones(3, 4)).sum().backward()

        def add(x):
            loss = net(x).square().mean()
            loss.backward()
            return loss.detach()

        def step(x):
            assert net is not other is not here
            loss = add(x)
            optimizer.step()
            optimizer.zero_grad()
            return loss

        compiled = djinn.compile(step)
        for _ in range(20):
            add(self.on(3, 4))
            compiled(self.on(3, 4))
        self.assertGreater(compiled.statistics()["replays"], 10, compiled.statistics())

    def test_complete_steps_and_accumulating_steps_may_alternate(self):
        trainers = self.trainers()
        for trainer in trainers:

            def whole(x, trainer=trainer):
                loss = trainer._add(x)
                trainer.optimizer.step()
                trainer.optimizer.zero_grad()
                return loss

            trainer.whole = djinn.compile(whole) if trainer is trainers[0] else whole
        for i in range(30):
            x = self.on(3, 4)
            name = "whole" if i % 3 == 2 else "add"
            losses = [getattr(trainer, name)(x).item() for trainer in trainers]
            self.assertEqual(*losses)
            self.assertEqual(trainers[0].state(), trainers[1].state(), i)
