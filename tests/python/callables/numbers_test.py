"""Steps whose optimizers calculate with other numbers at each call: replayed, and equal."""

import copy
import math
import unittest
import warnings

import torch

import djinn
from djinn._registered.numbers import Program, _bits_of
from djinn._registered.tape import Tape
from tests.python.remote_case import RemoteCase


def _model():
    torch.manual_seed(2)
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))


def _step(model, *optimizers):
    def step(x):
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        return loss.detach()

    return step


_OPTIMIZERS = {
    "SGD": lambda params: torch.optim.SGD(params, lr=0.1),
    "SGD with momentum": lambda params: torch.optim.SGD(
        params, lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01
    ),
    "Adam": lambda params: torch.optim.Adam(params, lr=0.01),
    "Adam, amsgrad, one by one": lambda params: torch.optim.Adam(
        params, lr=0.01, amsgrad=True, weight_decay=0.1, foreach=False
    ),
    "AdamW": lambda params: torch.optim.AdamW(params, lr=0.01),
    "AdamW, one by one": lambda params: torch.optim.AdamW(params, lr=0.01, foreach=False),
    "Adamax": lambda params: torch.optim.Adamax(params, lr=0.01),
    "Adadelta": lambda params: torch.optim.Adadelta(params, lr=0.5),
    "Adagrad": lambda params: torch.optim.Adagrad(params, lr=0.05, lr_decay=0.01),
    "NAdam": lambda params: torch.optim.NAdam(params, lr=0.01, momentum_decay=0.02),
    "NAdam, as lists": lambda params: torch.optim.NAdam(
        params, lr=0.01, weight_decay=0.1, decoupled_weight_decay=True, foreach=True
    ),
    "RAdam": lambda params: torch.optim.RAdam(params, lr=0.01),
    "RMSprop": lambda params: torch.optim.RMSprop(params, lr=0.01, momentum=0.5, centered=True),
}


class NumbersTest(RemoteCase):
    def pair(self, make):
        """Returns (model, optimizer, step) here and on the device, the latter compiled."""
        here, there = _model(), _model().to(self.device)
        parts = []
        for model in (here, there):
            optimizer = make(model.parameters())
            parts.append([model, optimizer, _step(model, optimizer)])
        parts[1][2] = djinn.compile(parts[1][2])
        return parts

    def check(self, pair, count, between=lambda optimizer, number: None):
        """Makes steps of both and compares them. Returns the number of replays."""
        (here, optimizer, step), (there, remote_optimizer, remote_step) = pair
        before = remote_step.statistics()["replays"]
        generator = torch.Generator().manual_seed(4)
        for number in range(count):
            x = torch.randn(5, 6, generator=generator)
            expected, actual = step(x), remote_step(x.to(self.device))
            self.assert_same(actual, expected)
            for one, other in zip(there.parameters(), here.parameters()):
                self.assert_same(one.detach(), other.detach())
            between(optimizer, number)
            between(remote_optimizer, number)
        for one, other in zip(remote_optimizer.state.values(), optimizer.state.values()):
            for key in {"step", "mu_product"} & one.keys():
                self.assertEqual(one[key], other[key])
        return remote_step.statistics()["replays"] - before

    def test_optimizers_that_count(self):
        for name, make in _OPTIMIZERS.items():
            with self.subTest(name):
                self.assertGreaterEqual(self.check(self.pair(make), 16), 7)

    def test_schedules(self):
        schedules = {
            "cosine": lambda one: torch.optim.lr_scheduler.CosineAnnealingLR(one, 30),
            "warm-up": lambda one: torch.optim.lr_scheduler.LambdaLR(one, lambda n: min(1, n / 9)),
            "steps": lambda one: torch.optim.lr_scheduler.StepLR(one, 5),
        }
        for name, make in _OPTIMIZERS.items():
            for kind, schedule in schedules.items():
                with self.subTest(name, schedule=kind):
                    made = {}

                    def advance(optimizer, number):
                        made[id(optimizer)].step()

                    pair = self.pair(make)
                    for _, optimizer, _ in pair:
                        made[id(optimizer)] = schedule(optimizer)
                    self.assertGreaterEqual(self.check(pair, 24, advance), 10)

    def test_products_that_change_between_calls(self):
        def change(optimizer, number):
            if number % 5 == 3:
                for state in optimizer.state.values():
                    state["mu_product"].mul_(0.5)
            if number % 7 == 6:
                first = next(iter(optimizer.state.values()))
                first["mu_product"].data.fill_(0.25)
            if number == 20:
                optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))

        pair = self.pair(lambda params: torch.optim.NAdam(params, lr=0.01))
        self.assertGreaterEqual(self.check(pair, 40, change), 10)

    def test_every_float_of_a_group_may_change(self):
        def make(params):
            first, second, *others = params
            return torch.optim.AdamW(
                [{"params": [first], "lr": 0.1}, {"params": [second]}, {"params": others}], lr=0.01
            )

        def change(optimizer, number):
            groups = optimizer.param_groups
            groups[number % 3]["lr"] = 0.02 / (number + 1)
            groups[(number + 1) % 3]["weight_decay"] = 0.01 * math.sin(number)
            groups[2]["eps"] = 1e-8 * (number + 1)

        self.assertGreaterEqual(self.check(self.pair(make), 30, change), 15)

    def test_a_number_that_equals_others(self):
        # The learning rate takes the values of constants of the step and of other floats.
        values = [1.0, 1e-8, 0.0, -0.0, 0.01, 0.1, 0.9, 0.999, 1.0, 2.0, math.inf, 1e-45, 0.5]

        def change(optimizer, number):
            optimizer.param_groups[0]["lr"] = values[number % len(values)]
            optimizer.param_groups[0]["weight_decay"] = values[(number * 5 + 3) % len(values)]

        pair = self.pair(lambda params: torch.optim.SGD(params, lr=1.0, momentum=0.9))
        (here, optimizer, step), (there, remote_optimizer, remote_step) = pair
        for number in range(40):
            x = torch.randn(5, 6)
            with torch.no_grad():
                # The reset keeps a growing learning rate from making all values nan.
                for model in (here, there):
                    for i, parameter in enumerate(model.parameters()):
                        parameter.copy_(torch.full(parameter.shape, 0.25 * (i + 1)))
            step(x), remote_step(x.to(self.device))
            for one, other in zip(there.parameters(), here.parameters()):
                self.assertTrue(torch.equal(one.cpu().nan_to_num(), other.nan_to_num()))
            change(optimizer, number)
            change(remote_optimizer, number)
        self.assertGreaterEqual(remote_step.statistics()["replays"], 10)

    def test_a_count_that_the_program_sets(self):
        def change(optimizer, number):
            if number in (8, 15, 18):
                for state in optimizer.state.values():
                    # A write through .data does not change the tensor's version.
                    step = state["step"].data if number == 18 else state["step"]
                    step.fill_(number * 100.0)
            elif number == 20:
                optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))

        pair = self.pair(lambda params: torch.optim.AdamW(params, lr=0.01))
        self.assertGreaterEqual(self.check(pair, 30, change), 10)

    def test_parameters_with_other_counts(self):
        # A list of unlike numbers is a part of the graph, so with foreach nothing is replayed.
        for foreach, least in ((False, 4), (True, 0)):
            with self.subTest(foreach=foreach):
                (here, _, _), (there, _, _) = pair = self.pair(
                    lambda params: torch.optim.Adam(params, lr=0.01, foreach=foreach)
                )
                for model in (here, there):
                    model[0].weight.requires_grad_(False)
                self.check(pair, 6)
                for model in (here, there):
                    model[0].weight.requires_grad_(True)
                self.assertGreaterEqual(self.check(pair, 12), least)

    def test_an_eager_step_in_between(self):
        pair = self.pair(lambda params: torch.optim.AdamW(params, lr=0.01))
        self.check(pair, 8)
        for (model, optimizer, _), device in zip(pair, ("cpu", self.device)):
            _step(model, optimizer)(torch.ones(5, 6).to(device))
        self.assertGreaterEqual(self.check(pair, 8), 6)

    def test_a_changed_option_is_seen(self):
        def change(optimizer, number):
            if number == 7:
                optimizer.param_groups[0]["maximize"] = True
            if number == 14:
                optimizer.param_groups[0]["betas"] = (0.8, 0.95)

        pair = self.pair(lambda params: torch.optim.AdamW(params, lr=0.01))
        self.assertGreaterEqual(self.check(pair, 22, change), 9)

    def test_code_that_looks_at_the_groups_is_captured_for_each_value(self):
        def make(device):
            model = _model().to(device)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

            def step(x):
                optimizer.zero_grad()
                # It loses what follows from the learning rate.
                factor = math.floor(optimizer.param_groups[0]["lr"] * 10)
                loss = (model(x) * factor).square().mean()
                loss.backward()
                optimizer.step()
                return loss.detach()

            return model, optimizer, step

        here, there = make("cpu"), make(self.device)
        step = djinn.compile(there[2])
        for number in range(12):
            x = torch.randn(5, 6)
            self.assert_same(step(x.to(self.device)), here[2](x))
            for _, optimizer, _ in (here, there):
                optimizer.param_groups[0]["lr"] = 0.1 * (1 + number // 4)
        self.assertGreaterEqual(step.statistics()["replays"], 2)

    def check_alike(self, make, between=lambda parts, number: None, count=14):
        """Compares the steps of make(device): (step, the argument of `between`)."""
        here, there = make("cpu"), make(self.device)
        step = djinn.compile(there[0])
        for number in range(count):
            x = torch.randn(5, 6)
            self.assert_same(step(x.to(self.device)), here[0](x))
            between(here[1], number)
            between(there[1], number)
        return there[1]

    def test_groups_and_counts_that_the_function_gets_at_otherwise(self):
        def by_group(device):
            model = _model().to(device)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.16)
            (group,) = optimizer.param_groups
            kept = (group, 1)
            take = _step(model, optimizer)
            return lambda x: take(x) * math.sqrt(kept[0]["lr"]), optimizer

        def by_state(device):
            model = _model().to(device)
            optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
            take = _step(model, optimizer)

            def step(x):
                loss = take(x)
                state = optimizer.state[model[0].weight]
                return loss * 2 if state["step"] % 5 == 0 else loss

            return step, optimizer

        def change(optimizer, number):
            optimizer.param_groups[0]["lr"] = 0.16 if number < 6 else 0.04

        self.check_alike(by_group, change)
        self.check_alike(by_state)

    def check_schedule(self, make_optimizer, make_scheduler, more=lambda *parts: None, count=24):
        """Compares steps that step their scheduler. Returns the number of replays."""
        def parts(device):
            model = _model().to(device)
            optimizer = make_optimizer(model.parameters())
            scheduler = make_scheduler(optimizer)
            take = _step(model, optimizer)

            def step(x):
                loss = take(x)
                scheduler.step()
                more(x, model, optimizer, scheduler)
                return loss

            return model, optimizer, scheduler, step

        found = parts("cpu"), parts(self.device)
        (here, optimizer, scheduler, step), (there, remote_optimizer, remote_scheduler, other) = found
        other = djinn.compile(other)
        for number in range(count):
            x = torch.randn(5, 6, generator=torch.Generator().manual_seed(number))
            self.assert_same(other(x.to(self.device)), step(x))
            for one, another in zip(there.parameters(), here.parameters()):
                self.assert_same(one.detach(), another.detach())
            for group, another in zip(remote_optimizer.param_groups, optimizer.param_groups):
                for key in ("lr", "betas", "momentum"):
                    self.assertEqual(group.get(key), another.get(key))
            self.assertEqual(remote_scheduler.get_last_lr(), scheduler.get_last_lr())
            self.assertEqual({type(one) for one in remote_scheduler.get_last_lr()}, {float})
            self.assertEqual(remote_scheduler.state_dict().keys(), scheduler.state_dict().keys())
            self.assertEqual(
                getattr(remote_scheduler, "last_epoch", 0), getattr(scheduler, "last_epoch", 0)
            )
            self.assertNotIn("step", vars(remote_scheduler))
        return other.statistics()["replays"]

    def test_a_scheduler_that_the_function_steps(self):
        schedules = torch.optim.lr_scheduler
        adam = lambda params: torch.optim.AdamW(params, lr=0.01)
        sgd = lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9)
        makers = {
            "cosine": lambda one: schedules.CosineAnnealingLR(one, 30),
            "lambda": lambda one: schedules.LambdaLR(one, lambda n: min(1, n / 9)),
            "restarts": lambda one: schedules.CosineAnnealingWarmRestarts(one, 4),
            "one cycle": lambda one: schedules.OneCycleLR(one, 0.1, total_steps=40),
            "in turn": lambda one: schedules.SequentialLR(
                one, [schedules.LinearLR(one, 0.1, 1.0, 5), schedules.ExponentialLR(one, 0.9)], [5]
            ),
            "together": lambda one: schedules.ChainedScheduler(
                [schedules.ConstantLR(one, 0.5, 4), schedules.ExponentialLR(one, 0.9)]
            ),
        }
        for name, make in makers.items():
            for optimizer in (adam, sgd):
                with self.subTest(name, optimizer=optimizer(_model().parameters())):
                    self.assertGreaterEqual(self.check_schedule(optimizer, make), 10)

    def test_betas_that_a_schedule_changes(self):
        made = {}

        def advance(optimizer, number):
            made[id(optimizer)].step()

        pair = self.pair(lambda params: torch.optim.AdamW(params, lr=0.01))
        for _, optimizer, _ in pair:
            made[id(optimizer)] = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=40)
        self.assertGreaterEqual(self.check(pair, 24, advance), 12)

    def test_code_after_the_scheduler_sees_its_new_numbers(self):
        """A second step in the call has the new learning rate, which no replay may miss."""

        def again(x, model, optimizer, scheduler):
            optimizer.step()

        def look(x, model, optimizer, scheduler):
            if scheduler.last_epoch % 4 == 0:
                optimizer.zero_grad()
                with torch.no_grad():
                    model[0].weight.mul_(0.5)

        def decay(x, model, optimizer, scheduler):
            with torch.no_grad():
                model[0].weight.mul_(1 - optimizer.param_groups[0]["lr"])

        steps = lambda one: torch.optim.lr_scheduler.StepLR(one, 5)
        for more in (again, look, decay):
            for foreach in (False, True):
                with self.subTest(more.__name__, foreach=foreach):
                    self.check_schedule(
                        lambda params: torch.optim.SGD(params, lr=0.1, foreach=foreach), steps, more
                    )

    def test_numbers_of_unknown_origin_are_warned_of(self):
        again = lambda x, model, optimizer, scheduler: optimizer.step()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            replays = self.check_schedule(
                lambda params: torch.optim.SGD(params, lr=0.1),
                lambda one: torch.optim.lr_scheduler.ExponentialLR(one, 0.9), again, count=100,
            )
        self.assertEqual(replays, 0)
        texts = [str(one.message) for one in caught]
        self.assertEqual(len([one for one in texts if "its optimizer's numbers differ" in one]), 1, texts)

    def test_a_scheduler_that_is_stepped_in_another_way(self):
        def by_bound_method(scheduler):
            return scheduler.step

        def by_its_class(scheduler):
            return lambda: torch.optim.lr_scheduler.StepLR.step(scheduler)

        for advance_by in (by_bound_method, by_its_class):
            def make(device):
                model = _model().to(device)
                optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
                scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 8, 0.1)
                take, advance = _step(model, optimizer), advance_by(scheduler)

                def step(x):
                    loss = take(x)
                    advance()
                    return loss if scheduler is not None else None

                return step, None

            with self.subTest(advance_by.__name__):
                self.check_alike(make, count=24)

    def test_a_step_that_the_program_has_replaced_is_called(self):
        def make(device):
            model = _model().to(device)
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 8, 0.1)
            take = _step(model, optimizer)

            def step(x):
                loss = take(x)
                scheduler.step()
                return loss

            return step, scheduler

        calls = []

        def change(scheduler, number):
            if number == 6:
                plain = scheduler.step
                scheduler.step = lambda: (calls.append(1), plain())

        scheduler = self.check_alike(make, change, count=16)
        self.assertEqual(len(calls), 2 * 9)
        self.assertIn("step", vars(scheduler))

    def test_a_float_that_a_scheduler_set_and_one_of_the_call(self):
        def make(device):
            model = _model().to(device)
            optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1, lr_decay=0.5)
            scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)

            def step(x):
                optimizer.zero_grad()
                loss = model(x).square().mean()
                loss.backward()
                scheduler.step()
                optimizer.step()
                return loss.detach()

            return step, None

        self.check_alike(make, count=12)

    def test_two_optimizers_with_schedulers(self):
        def make(device):
            models = [_model().to(device) for _ in range(2)]
            optimizers = [torch.optim.AdamW(model.parameters(), lr=0.01) for model in models]
            schedulers = [torch.optim.lr_scheduler.ExponentialLR(one, 0.9) for one in optimizers]
            steps = [_step(*parts) for parts in zip(models, optimizers)]

            def step(x):
                losses = []
                for take, scheduler in zip(steps, schedulers):
                    losses.append(take(x))
                    scheduler.step()
                return torch.stack(losses)

            return step, schedulers

        self.check_alike(make, count=20)

    def test_a_scheduler_that_the_program_replaces_or_steps_itself(self):
        def make(device):
            model = _model().to(device)
            optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
            held = [torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)]
            take = _step(model, optimizer)

            def step(x):
                loss = take(x)
                held[0].step()
                return loss

            return step, (optimizer, held)

        def change(parts, number):
            optimizer, held = parts
            if number == 7:
                held[0].step()
            if number == 12:
                held[0] = torch.optim.lr_scheduler.StepLR(optimizer, 2)
            if number == 18:
                held[0].load_state_dict({**held[0].state_dict(), "gamma": 0.5})

        self.check_alike(make, change, count=24)

    def test_a_failed_call_leaves_plain_floats(self):
        model = _model().to(self.device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        step = djinn.compile(_step(model, optimizer))
        step(torch.ones(5, 6, device=self.device))
        for _ in range(3):
            with self.assertRaises(RuntimeError):
                step(torch.ones(5, 7, device=self.device))
            self.assertTrue(
                all(type(one) in (float, bool, tuple, list, type(None))
                    for one in optimizer.param_groups[0].values())
            )
        step(torch.ones(5, 6, device=self.device))


class TapeTest(unittest.TestCase):
    def program(self, leaves, function):
        """Returns the Program of a call whose operators get what the function returns."""
        tape = Tape(leaves)
        numbers = function(*[tape.leaf(i) for i in range(len(leaves))])
        return Program(tape, (), list(_bits_of([float.__float__(one) for one in numbers])))

    def learned(self, function, *captures):
        before = self.program(captures[0], function)
        for leaves in captures[1:]:
            program = self.program(leaves, function)
            if not program.is_like(before) or not program.meet(before):
                return None
            before = program
        before.places()
        return before

    def test_numbers_follow_from_the_leaves(self):
        def function(rate, count):
            correction = 1 - 0.9**count
            return [-rate, (rate / correction) * -1, correction**0.5, 1e-8, 1 - rate * 0.01]

        program = self.learned(function, (0.1, 1.0), (0.05, 2.0))
        places = program.places()
        for leaves in ((0.3, 7.0), (0.1, 1.0), (1e-9, 5000.0)):
            values = program.calculate(leaves)
            expected = _bits_of(function(*leaves))
            self.assertEqual([values[place] for place in places if place >= 0],
                             [one for one, place in zip(expected, places) if place >= 0])
        self.assertEqual(places[3], -1)

    def test_a_number_with_two_origins_is_captured_again(self):
        function = lambda rate, decay: [rate * 2, decay]
        program = self.learned(function, (0.1, 0.2), (0.2, 0.4))
        self.assertIsNone(program.calculate((0.3, 0.5)))
        self.assertIsNotNone(program.calculate((0.3, 0.6)))
        program = self.learned(function, (0.1, 0.2), (0.2, 0.4), (0.3, 0.5))
        places = program.places()
        self.assertEqual(
            [program.calculate((1.0, 5.0))[place] for place in places], list(_bits_of([2.0, 5.0]))
        )

    def test_a_leaf_that_did_not_change_is_no_constant(self):
        function = lambda rate, count: [rate, rate / count]
        program = self.learned(function, (0.1, 1.0), (0.1, 2.0))
        self.assertIsNotNone(program.calculate((0.1, 9.0)))
        self.assertIsNone(program.calculate((0.2, 9.0)))
        program = self.learned(function, (0.1, 1.0), (0.1, 2.0), (0.2, 3.0))
        self.assertIsNotNone(program.calculate((0.3, 9.0)))

    def test_a_number_of_unknown_origin_has_no_program(self):
        function = lambda rate: [math.sqrt(rate)]
        self.assertIsNone(self.learned(function, (0.1,), (0.2,)))
        # Equal captures make the number a constant, which holds for this rate only.
        program = self.learned(function, (0.1,), (0.1,))
        self.assertIsNotNone(program.calculate((0.1,)))
        self.assertIsNone(program.calculate((0.2,)))

    def test_a_comparison_must_have_the_same_answer(self):
        function = lambda rate: [rate if rate > 0.5 else rate * 2]
        program = self.learned(function, (0.6,), (0.7,))
        self.assertIsNotNone(program.calculate((0.8,)))
        self.assertIsNone(program.calculate((0.4,)))
        self.assertIsNone(self.learned(function, (0.4,), (0.7,)))

    def test_zeros_with_signs_differ(self):
        program = self.learned(lambda rate: [0.0 * rate, -0.0 + rate], (1.0,), (2.0,))
        # A constant 0.0 and the product differ in sign for a negative rate.
        self.assertIsNone(program.calculate((-3.0,)))
        self.assertIsNotNone(program.calculate((3.0,)))

    def test_an_operation_outside_arithmetic_loses_the_tape(self):
        for function in (int, round, math.floor, str, repr, hash, float, lambda one: one // 2,
                         lambda one: one % 2, lambda one: (0.0 - one) ** 0.5, copy.deepcopy):
            tape = Tape((2.5,))
            function(tape.leaf(0))
            self.assertTrue(tape.is_lost, function)

    def test_errors_are_the_operators_own(self):
        tape = Tape((0.0,))
        with self.assertRaises(ZeroDivisionError):
            1 / tape.leaf(0)
        program = self.learned(lambda rate: [1 / rate], (1.0,), (2.0,))
        self.assertIsNone(program.calculate((0.0,)))
