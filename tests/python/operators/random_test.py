"""Random numbers: a CPU worker draws what the CPU draws."""

import copy
import pickle

import torch

import djinn
from tests.python.remote_case import RemoteCase, run_program


class RandomTest(RemoteCase):
    def setUp(self):
        self.module = torch.get_device_module(self.device)

    def test_manual_seed_reaches_the_device(self):
        for draw in (
            lambda **k: torch.randn(37, **k),
            lambda **k: torch.rand(5, 3, **k),
            lambda **k: torch.randint(0, 100, (9,), **k),
            lambda **k: torch.randperm(11, **k),
            lambda **k: torch.empty(8, **k).exponential_(),
            lambda **k: torch.nn.functional.dropout(torch.ones(50, **k), 0.3),
            lambda **k: torch.multinomial(torch.full((10,), 0.1, **k), 4),
        ):
            torch.manual_seed(11)
            local = draw()
            torch.manual_seed(11)
            self.assert_same(draw(device=self.device), local)

    def test_bounds_that_no_draw_has_raise_at_the_call(self):
        def empty(place, dtype=torch.float32):
            return torch.empty(3, device=place, dtype=dtype)

        calls = {
            "uniform_": lambda d: empty(d).uniform_(2, 1),
            "normal_": lambda d: empty(d).normal_(0, -1),
            "exponential_": lambda d: empty(d).exponential_(-1),
            "random_": lambda d: empty(d).random_(5, 2),
            "random_ of a type": lambda d: empty(d, torch.uint8).random_(0, 300),
            "geometric_": lambda d: empty(d).geometric_(2),
            "bernoulli_": lambda d: empty(d).bernoulli_(2),
            "bernoulli": lambda d: torch.bernoulli(empty(d), 2.0),
            "cauchy_": lambda d: empty(d).cauchy_(0, -1),
            "log_normal_": lambda d: empty(d).log_normal_(0, -1),
            "randint": lambda d: torch.randint(5, 2, (3,), device=d),
            "randint of a type": lambda d: torch.randint(0, 300, (3,), device=d, dtype=torch.uint8),
            "randint_like": lambda d: torch.randint_like(empty(d), 5, 2),
            "randperm": lambda d: torch.randperm(300, device=d, dtype=torch.uint8),
            "randperm of nothing": lambda d: torch.randperm(-1, device=d),
            "normal": lambda d: torch.normal(0.0, -1.0, (3,), device=d),
            "normal of means": lambda d: torch.normal(empty(d).zero_(), -1.0),
            "multinomial": lambda d: torch.multinomial(torch.ones(3, device=d), 4),
            "multinomial of nothing": lambda d: torch.multinomial(torch.ones(3, device=d), 0),
            "multinomial of a batch": lambda d: torch.multinomial(torch.ones(2, 2, 2, device=d), 1),
            "multinomial of a type": lambda d: torch.multinomial(empty(d, torch.int64), 1),
            "rrelu": lambda d: torch.nn.functional.rrelu(empty(d), 0.5, 0.1, training=True),
            "dropout": lambda d: torch.nn.functional.dropout(empty(d), 2),
        }
        for name, call in calls.items():
            with self.subTest(call=name):
                errors = []
                for place in ("cpu", self.device, self.device):
                    # Sound draws of the kind do not let the wrong one pass.
                    empty(place).uniform_(0, 1).normal_(0, 1)
                    with self.assertRaises(Exception) as raised:
                        call(place)
                    errors.append((type(raised.exception), str(raised.exception)))
                self.assertEqual(errors[1:], errors[:1] * 2)

    def test_generator_of_the_device(self):
        remote = torch.Generator(device=self.device)
        self.assertEqual(remote.device, self.device)
        remote.manual_seed(3)
        self.assertEqual(remote.initial_seed(), 3)
        local = torch.Generator().manual_seed(3)
        self.assert_same(
            torch.randn(8, generator=remote, device=self.device),
            torch.randn(8, generator=local),
        )

    def test_state_is_the_cpu_generators(self):
        remote = torch.Generator(device=self.device).manual_seed(3)
        local = torch.Generator().manual_seed(3)
        torch.rand(5, generator=remote, device=self.device)
        torch.rand(5, generator=local)
        self.assertTrue(torch.equal(remote.get_state(), local.get_state()))
        remote.set_state(torch.Generator().manual_seed(8).get_state())
        local.manual_seed(8)
        self.assert_same(
            torch.rand(5, generator=remote, device=self.device),
            torch.rand(5, generator=local),
        )

    def test_generators_are_copied_with_their_state(self):
        remote = torch.Generator(device=self.device).manual_seed(3)
        torch.rand(5, generator=remote, device=self.device)
        copies = [copy.deepcopy(remote), pickle.loads(pickle.dumps(remote)), remote.clone_state()]
        drawn = torch.rand(5, generator=remote, device=self.device).cpu()
        for other in copies:
            self.assertEqual(other.device, self.device)
            self.assert_same(torch.rand(5, generator=other, device=self.device), drawn)

    def test_a_generator_of_another_device_is_refused(self):
        with self.assertRaisesRegex(RuntimeError, "[Ee]xpected a .* device type"):
            torch.randn(3, device=self.device, generator=torch.Generator())

    def test_state_of_the_default_generator(self):
        torch.manual_seed(1)
        state = self.module.get_rng_state()
        first = torch.rand(4, device=self.device).cpu()
        self.module.set_rng_state(state)
        self.assert_same(torch.rand(4, device=self.device), first)
        states = self.module.get_rng_state_all()
        self.assertEqual(len(states), self.module.device_count())
        second = torch.rand(4, device=self.device).cpu()
        self.module.set_rng_state_all(states)
        self.assert_same(torch.rand(4, device=self.device), second)

    def test_fork_rng(self):
        torch.manual_seed(1)
        with torch.random.fork_rng([0], device_type=self.device.type):
            first = torch.rand(4, device=self.device).cpu()
        self.assert_same(torch.rand(4, device=self.device), first)

    def test_forks_that_name_no_device(self):
        for name, fork in {
            "the defaults": torch.random.fork_rng,
            "the CPU alone": lambda: torch.random.fork_rng(devices=[]),
            "not enabled": lambda: torch.random.fork_rng(enabled=False),
        }.items():
            for seeds in (True, False):
                with self.subTest(name, seeds=seeds):
                    found = []
                    for place in ("cpu", self.device):
                        torch.manual_seed(0)
                        drawn = [torch.rand(3, device=place)]
                        with fork():
                            if seeds:
                                torch.manual_seed(5)
                            drawn.append(torch.rand(3, device=place))
                        drawn.append(torch.rand(3, device=place))
                        found.append(torch.cat(drawn).cpu())
                    self.assertTrue(torch.equal(*found))

    def test_a_fork_restores_the_seed_and_a_state_that_was_set(self):
        torch.manual_seed(3)
        self.module.set_rng_state(torch.Generator().manual_seed(8).get_state())
        with torch.random.fork_rng():
            torch.manual_seed(4)
        self.assertEqual(self.module.initial_seed(), 8)
        expected = torch.rand(3, generator=torch.Generator().manual_seed(8))
        with torch.random.fork_rng():
            self.assert_same(torch.rand(3, device=self.device), expected)
        self.assert_same(torch.rand(3, device=self.device), expected)
        with torch.random.fork_rng():
            torch.manual_seed(4)
            torch.rand(3, device=self.device)
        self.assertEqual(self.module.initial_seed(), 8)

    def test_a_fork_neither_reads_nor_waits(self):
        torch.manual_seed(0)
        torch.rand(3, device=self.device)
        with torch.random.fork_rng():
            pass
        djinn.synchronize()
        before = djinn.statistics()
        with torch.random.fork_rng():
            torch.rand(3, device=self.device)
        after = djinn.statistics()
        for counter in ("reads", "synchronous_calls"):
            self.assertEqual(after[counter], before[counter])

    def test_a_fork_opens_no_session(self):
        printed = run_program(
            """
            import torch, djinn
            with torch.random.fork_rng():
                torch.manual_seed(1)
            with djinn.local(worker_threads=1):
                torch.rand(1, device="remote_accelerator")
            with torch.random.fork_rng():
                torch.manual_seed(1)
            print(djinn.is_connected(), torch.remote_accelerator.initial_seed())
            """, DJINN_COORDINATOR="")
        self.assertEqual(printed.stdout, f"False {torch.Generator().initial_seed()}\n")

    def test_a_state_that_is_none_fails_at_the_worker(self):
        generator = self.module.default_generators[0]
        torch.manual_seed(2)
        wrong = torch.zeros(generator.get_state().numel(), dtype=torch.uint8, device=self.device)
        result = torch.ops.djinn_random.set_state(wrong, generator=generator)
        with self.assertRaises(djinn.Error):
            djinn.synchronize()
        del result
        torch.manual_seed(2)
        self.assert_same(
            torch.rand(3, device=self.device),
            torch.rand(3, generator=torch.Generator().manual_seed(2)))

    def test_seeds_of_the_module(self):
        self.module.manual_seed(21)
        self.assertEqual(self.module.initial_seed(), 21)
        self.assertEqual(self.module.default_generators[0].initial_seed(), 21)
        first = torch.rand(3, device=self.device).cpu()
        self.module.manual_seed_all(21)
        self.assert_same(torch.rand(3, device=self.device), first)
        self.assertEqual(self.module.default_generators[5].initial_seed(), 21)
        self.module.seed()
        self.assertNotEqual(self.module.initial_seed(), 21)
