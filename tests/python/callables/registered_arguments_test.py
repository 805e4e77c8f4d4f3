"""djinn.compile(): which arguments tell calls apart."""

import functools
import traceback

import numpy
import torch

import djinn
from tests.python.callables.registered_case import RegisteredCase


class Trainer:
    def __init__(self, device):
        self.layer = torch.nn.Linear(3, 3).to(device)

    def step(self, x, batch_index, *, epoch=0):
        return self.layer(x)

    @torch.no_grad()
    def evaluate(self, x, batch_index):
        return self.layer(x)


def unread(x, count, *more, epoch=0, **others):
    return x + 1


def written(x, count):
    count = 2  # noqa: F841
    return x * 2


def _keeping_arguments(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs) * len(args)

    return wrapper


class RegisteredArgumentsTest(RegisteredCase):
    def assert_tells_apart(self, function):
        """Checks that another number as the second argument is no replay."""
        compiled = djinn.compile(function)
        x = self.on(3)
        for _ in range(4):
            compiled(x.clone(), 1)
        self.assert_replays(compiled, x, 1)
        result = self.assert_no_replay(compiled, x, 2)
        torch.testing.assert_close(result.cpu(), function(x, 2).cpu())

    def assert_is_alike(self, function, *calls):
        compiled = djinn.compile(function)
        for args, kwargs in calls[:4]:
            compiled(*args, **kwargs)
        for args, kwargs in calls[4:]:
            before = compiled.statistics()["replays"]
            result = compiled(*args, **kwargs)
            self.assertEqual(compiled.statistics()["replays"], before + 1, compiled.statistics())
            torch.testing.assert_close(result.cpu(), function(*args, **kwargs).cpu())

    def test_unread_numbers_cause_no_capture(self):
        self.assert_is_alike(unread, *[((self.on(3), i), {}) for i in range(10)])
        self.assert_is_alike(written, *[((self.on(3), i), {}) for i in range(10)])
        self.assert_is_alike(unread, *[((self.on(3),), {"count": i}) for i in range(10)])
        self.assert_is_alike(unread, *[((self.on(3), "a"), {"epoch": i}) for i in range(10)])

    def test_unread_numbers_of_a_method_cause_no_capture(self):
        trainer = Trainer(self.device)
        calls = [((self.on(2, 3), i), {"epoch": -i}) for i in range(10)]
        with torch.no_grad():
            self.assert_is_alike(trainer.step, *calls)

    def test_variadic_arguments_tell_calls_apart(self):
        self.assert_tells_apart(lambda x, *counts: x + 1)
        self.assert_tells_apart(_keeping_arguments(unread))
        compiled = djinn.compile(unread)
        x = self.on(3)
        for i in range(4):
            compiled(x.clone(), 1, 5, another=6)
        before = compiled.statistics()["replays"]
        compiled(x, 2, 5, another=6)
        self.assertEqual(compiled.statistics()["replays"], before + 1)
        compiled(x, 1, 6, another=6)
        compiled(x, 1, 5, another=7)
        self.assertEqual(compiled.statistics()["replays"], before + 1)

    def test_numbers_that_are_read_tell_calls_apart(self):
        def in_a_loop(x, count):
            for _ in range(count):
                x = x + 1
            return x

        def inside(x, count):
            return (lambda: x + count)()

        def among_all(x, count):
            return x + locals()["count"]

        def evaluated(x, count):
            return x + (lambda names: names["count"])(locals())

        def enlarged(x, count):
            count += 1
            return x * count

        def branched(x, count):
            if count > 1:
                return x + 1
            return x - 1

        def returned(x, count):
            return x + sum([count for _ in range(2)])

        for function in (
            in_a_loop, inside, among_all, evaluated, enlarged, branched, returned
        ):  # fmt: skip
            with self.subTest(function.__name__):
                self.assert_tells_apart(function)

    def test_arguments_read_through_frames_tell_calls_apart(self):
        look = locals

        def by_another_name(x, count):
            return x + look()["count"]

        class Catching:
            def __enter__(self):
                return self

            def __exit__(self, kind, error, trace):
                for frame, _ in traceback.walk_tb(trace):
                    self.count = frame.f_locals["count"]
                    return True

        def by_a_trace(x, count):
            catching = Catching()
            with catching:
                raise ValueError
            return x + catching.count

        def by_its_name(x, count):
            # NumPy looks for the name in its caller's frame.
            return x * int(numpy.bmat("count").sum())

        self.assert_tells_apart(by_another_name)
        self.assert_tells_apart(by_a_trace)
        compiled = djinn.compile(by_its_name)
        x = self.on(3)
        for count in (range(2), range(2), range(2), range(3)):
            result = compiled(x, count)
            torch.testing.assert_close(result.cpu(), x.cpu() * sum(count))

    def test_super_reads_the_first_argument(self):
        __class__ = bool

        def function(count, x):
            return x * super().__add__(1)

        compiled = djinn.compile(function)
        x = self.on(3)
        for count in (True, True, True, False):
            torch.testing.assert_close(compiled(count, x).cpu(), function(count, x.cpu()))

    def test_a_keyword_may_have_the_name_of_a_positional_argument(self):
        def function(x, count, /, **others):
            return x * others["count"]

        compiled = djinn.compile(function)
        x = self.on(3)
        for i in (1, 1, 1, 2, 3):
            result = compiled(x, 0, count=i)
            torch.testing.assert_close(result.cpu(), x.cpu() * i)
        result = compiled(x, 0, count=2, self=2)
        torch.testing.assert_close(result.cpu(), x.cpu() * 2)

    def test_forwarding_decorators_are_looked_through(self):
        trainer = Trainer(self.device)
        calls = [((self.on(2, 3), i), {}) for i in range(10)]
        self.assert_is_alike(torch.no_grad()(trainer.step), *calls)
        self.assert_is_alike(trainer.evaluate, *calls)
        with_numbers = torch.autocast("cpu")(torch.inference_mode()(lambda x, count: x * count))
        self.assert_tells_apart(with_numbers)

    def test_unread_objects_cause_no_capture(self):
        calls = [
            ((self.on(3), {"path": f"{i}.png", "sizes": [i, (i, None)]}), {}) for i in range(10)
        ]
        self.assert_is_alike(unread, *calls)
        self.assert_is_alike(unread, *[((self.on(3), object()), {}) for i in range(10)])
        self.assert_is_alike(unread, *[((self.on(3), numpy.int64(i)), {}) for i in range(10)])

    def test_another_code_may_read_it(self):
        def function(x, count):
            return x + 1

        def other(x, count):
            return x + count

        compiled = djinn.compile(function)
        x = self.on(3)
        for i in range(6):
            compiled(x.clone(), i)
        self.assertGreater(compiled.statistics()["replays"], 0)
        function.__code__ = other.__code__
        for i in range(6):
            result = compiled(x, i)
            torch.testing.assert_close(result.cpu(), x.cpu() + i)

    def test_tensors_that_are_not_read_are_given_all_the_same(self):
        compiled = djinn.compile(lambda x, other: x + 1)
        x = self.on(3)
        for _ in range(4):
            compiled(x.clone(), self.on(2))
        self.assert_replays(compiled, x, self.on(2))
        # An argument on the CPU prevents a replay.
        self.assert_no_replay(compiled, x, torch.ones(2))

    def test_calls_that_are_never_alike_are_soon_left_alone(self):
        compiled = djinn.compile(lambda x, count: x + count)
        x = self.on(3)
        for i in range(80):
            compiled(x, i)
        looked_at = []
        surroundings = compiled._surroundings
        compiled._surroundings = lambda: (looked_at.append(1), surroundings())[1]
        for i in range(80, 300):
            result = compiled(x, i)
        torch.testing.assert_close(result.cpu(), x.cpu() + 299)
        self.assertLess(len(looked_at), 40)
        self.assertEqual(compiled.statistics()["refusal"], "no call equals an earlier one")
        # warm_up() examines the call in any case.
        self.assertGreater(compiled.warm_up(x, 1000)["replays"], 0)
        # One in some hundreds of calls is examined fully, even while the other
        # calls are skipped.
        before = compiled.statistics()["replays"]
        for _ in range(330):
            compiled(x, 0)
        self.assertGreater(compiled.statistics()["replays"], before)
