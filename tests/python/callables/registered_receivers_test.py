"""djinn.compile() of a method: which attributes of its object are watched."""

import abc
import copy
import time

import torch

import djinn
from djinn._registered import environment
from tests.python.callables.registered_case import RegisteredCase


class Trainer:
    """Has a log and a clock, which its step does not use."""

    factor = 2.0

    def __init__(self, device):
        self.layer = torch.nn.Linear(4, 4).to(device)
        self.rate = 0.5
        self.log = []

    def step(self, x):
        return self.scaled(x) * self.rate

    def scaled(self, x):
        return self.layer(x) * self.factor

    def run(self, x):
        begin = time.perf_counter()
        self.log.append(self.step(x))
        return time.perf_counter() - begin


class OneTrainer(Trainer):
    pass


def scale_of(trainer, x):
    return x * trainer.rate


class Revealing(Trainer):
    def given_away(self, x):
        return scale_of(self, x)

    def through_a_method(self, x):
        return self.step.__self__.step(x)

    def by_its_class(self, x):
        return x * self.__class__.factor

    def by_a_name(self, x, name="factor"):
        return x * getattr(self, name)

    def among_local_variables(self, x):
        return x * locals()["self"].rate

    def as_another_variable(self, x):
        other = self
        return x * other.rate

    def as_a_methods(self, x):
        return copy.deepcopy(self.step)(x)

    def as_a_formatted_methods(self, x):
        return x * len(f"{self.step}")

    def by_what_every_object_has(self, x):
        return x * self.__getstate__()["rate"]

    def given_away_by_an_inner_function(self, x):
        return [scale_of(self, x) for _ in range(1)][0]


class Doubling:
    def scaled(self, x):
        return super().scaled(x) * 2


class Regularised(abc.ABC):
    weights = (1.0, 2.0)

    @abc.abstractmethod
    def scaled(self, x):
        """Returns the scaled input."""

    @torch.no_grad()
    def regularised(self, x):
        return sum(weight * self.scaled(x) for weight in self.weights)


class Mixed(Doubling, Trainer, Regularised):
    def step(self, x):
        self.steps = getattr(self, "steps", 1)
        result = self.regularised(x) * (self.rate if hasattr(self, "rate") else 1.0)
        result += super().step(x)
        return result


class RegisteredReceiversTest(RegisteredCase):
    def setUp(self):
        super().setUp()
        self.enterContext(torch.no_grad())

    def test_attributes_that_the_code_does_not_name_are_ignored(self):
        trainer = OneTrainer(self.device)
        compiled = djinn.compile(trainer.step)
        self.warm(compiled, self.on(2, 4))
        for number in range(3):
            trainer.log.append(number)
            x = self.on(2, 4)
            self.assert_same(self.assert_replays(compiled, x), trainer.step(x).cpu())

    def test_attributes_that_the_code_names_are_watched(self):
        trainer = OneTrainer(self.device)
        compiled = djinn.compile(trainer.step)
        x = self.on(2, 4)

        def change(how):
            self.warm(compiled, x)
            self.assert_replays(compiled, x)
            before = compiled(x).cpu()
            how()
            expected = trainer.step(x).cpu()
            self.assertFalse(torch.equal(before, expected))
            self.assert_same(self.assert_no_replay(compiled, x), expected)

        change(lambda: setattr(trainer, "rate", 0.25))
        change(lambda: setattr(trainer, "layer", torch.nn.Linear(4, 4).to(self.device)))
        change(lambda: setattr(Trainer, "factor", 3.0))
        change(lambda: setattr(OneTrainer, "factor", 5.0))
        change(lambda: setattr(trainer, "factor", 7.0))
        change(lambda: delattr(trainer, "factor"))
        change(lambda: setattr(OneTrainer, "scaled", lambda self, x: self.layer(x) - 1))
        change(lambda: setattr(trainer, "scaled", lambda x: x + 1))
        change(lambda: delattr(trainer, "scaled"))
        change(lambda: setattr(OneTrainer, "rate", property(lambda self: 11.0)))
        del OneTrainer.rate
        change(lambda: setattr(trainer, "__dict__", {"layer": trainer.layer, "rate": 13.0}))
        change(lambda: setattr(trainer, "__class__", Revealing))
        self.addCleanup(setattr, Trainer, "factor", 2.0)
        del OneTrainer.factor, OneTrainer.scaled

    def test_mixins_inner_functions_and_super(self):
        for kind, name in ((Trainer, "factor"), (Trainer, "scaled"), (Trainer, "step"),
                           (Doubling, "scaled"), (Regularised, "weights")):
            self.addCleanup(setattr, kind, name, kind.__dict__[name])
        trainer = Mixed(self.device)
        compiled = djinn.compile(trainer.step)
        x = self.on(2, 4)
        for how in (
            lambda: setattr(trainer, "rate", 0.25),
            lambda: setattr(Trainer, "factor", 3.0),
            lambda: setattr(Regularised, "weights", (1.0, 3.0)),
            lambda: setattr(Doubling, "scaled", lambda self, x: x * 3),
            lambda: setattr(Trainer, "scaled", lambda self, x: x * 5),
            lambda: setattr(Trainer, "step", lambda self, x: x * 7),
        ):
            self.warm(compiled, x)
            self.assert_replays(compiled, x)
            how()
            self.assert_same(self.assert_no_replay(compiled, x), trainer.step(x).cpu())

    def test_counters_elsewhere_change_nothing(self):
        trainer = OneTrainer(self.device)
        compiled = djinn.compile(trainer.step)
        self.warm(compiled, self.on(2, 4))
        for number in range(3):
            OneTrainer.calls = number
            setattr(trainer, f"call_{number}", number)
            self.assert_replays(compiled, self.on(2, 4))
        del OneTrainer.calls

    def test_descriptors_of_ones_own(self):
        class Scaled(property):
            factor = 2.0

            def __get__(self, instance, owner=None):
                return super().__get__(instance, owner) * self.factor

        class Owner:
            rate = Scaled(lambda self: 3.0)

            def step(self, x):
                return x * self.rate

        owner = Owner()
        compiled = djinn.compile(owner.step)
        x = self.on(3)
        self.warm(compiled, x)
        self.assert_same(self.assert_replays(compiled, x), x.cpu() * 6)
        Owner.__dict__["rate"].factor = 4.0
        self.assert_same(compiled(x), x.cpu() * 12)

    def test_a_value_that_another_thread_changes_meanwhile(self):
        trainer = OneTrainer(self.device)
        compiled = djinn.compile(trainer.step)
        x = self.on(2, 4)
        registered = compiled._callable

        class Disturbed:
            def __getattr__(self, name):
                return getattr(registered, name)

            def begin(self, *call):
                trainer.rate = 2.0
                return registered.begin(*call)

        compiled._callable = Disturbed()
        for _ in range(3):
            trainer.rate = 1.0
            compiled(x)
        compiled._callable = registered
        trainer.rate = 1.0
        for _ in range(4):
            self.assert_same(compiled(x), trainer.step(x).cpu())

    def test_an_attribute_of_a_later_branch_is_watched(self):
        class Late:
            has_more = False

            def step(self, x):
                return x * self.more if self.has_more else x + 1

        late = Late()
        compiled = djinn.compile(late.step)
        x = self.on(3)
        self.warm(compiled, x)
        late.more = 2.0
        late.has_more = True
        self.warm(compiled, x)
        self.assert_same(self.assert_replays(compiled, x), x.cpu() * 2)
        late.more = 3.0
        self.assert_same(compiled(x), x.cpu() * 3)

    def test_a_receiver_that_escapes_is_examined_whole(self):
        x = self.on(2, 4)
        for name in ("given_away", "through_a_method", "by_its_class", "by_a_name",
                     "among_local_variables", "as_another_variable", "as_a_methods",
                     "as_a_formatted_methods", "by_what_every_object_has",
                     "given_away_by_an_inner_function"):
            with self.subTest(name):
                why = self.refusal(getattr(Revealing(self.device), name), x)
                self.assertIn("perf_counter", why)

    def test_classes_that_say_themselves_what_attributes_there_are(self):
        class Wrapped(Trainer):
            def __getattr__(self, name):
                return 1.0

        self.assertIn("perf_counter", self.refusal(Wrapped(self.device).step, self.on(2, 4)))

    def test_a_function_refused_repeatedly_is_examined_rarely(self):
        looks = []
        look = environment.Environment.__init__

        def count(environment, *args):
            looks.append(environment)
            look(environment, *args)

        environment.Environment.__init__ = count
        self.addCleanup(setattr, environment.Environment, "__init__", look)
        log = []
        grows = [True]

        def timed(x):
            return x + 1 if time.perf_counter() else x

        def counted(x):
            if grows[0]:
                log.append(1)
            return x + 1

        x = self.on(3)
        for function in (timed, counted):
            compiled = djinn.compile(function)
            looks.clear()
            for _ in range(1000):
                compiled(x)
            self.assertLess(len(looks), 40)
            self.assertGreater(len(looks), 12)
        self.assertEqual(len(log), 1000)
        grows[0] = False
        # warm_up() examines the call in any case.
        self.assertGreater(compiled.warm_up(x)["replays"], 0)
        grows[0] = True
        for _ in range(100):
            compiled(x)
        # A function that stopped doing so is captured after a while.
        grows[0] = False
        for _ in range(70):
            compiled(x)
        self.assert_replays(compiled, x)

    def test_threads_that_count_at_the_same_time_make_no_call_wait_for_ever(self):
        compiled = djinn.compile(lambda x: x + 1)
        x = self.on(3)
        self.warm(compiled, x)
        compiled._calls_to_wait = -1
        self.assert_replays(compiled, x)

    def test_a_few_refusals_between_others_make_no_call_wait(self):
        rates = [1.0]

        def function(x, grows=False):
            if grows:
                rates.append(1.0)
            return x * rates[0]

        compiled = djinn.compile(function)
        x = self.on(3)
        for _ in range(5):
            self.warm(compiled, x)
            self.assert_replays(compiled, x)
            compiled(x, grows=True)
