"""Tests which integers on the device this process knows without asking the worker."""

import random
import threading

import torch

import djinn
from tests.python.remote_case import RemoteCase


class HostValuesTest(RemoteCase):
    def asked(self, read):
        """Returns the value of the read, and whether the worker was asked."""
        before = djinn.statistics()
        value = read()
        after = djinn.statistics()
        self.assertEqual(after["reads"] - before["reads"], 1)
        return value, after["reads_answered_here"] == before["reads_answered_here"]

    def assert_known(self, read, value):
        self.assertEqual(self.asked(read), (value, False))

    def assert_asked(self, read, value):
        self.assertEqual(self.asked(read), (value, True))

    def mask(self):
        return torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1]]).to(self.device)

    def test_questions_about_masks_are_answered_here(self):
        mask = self.mask()
        self.assert_known(lambda: bool(mask.all()), False)
        self.assert_known(lambda: bool(mask.to(torch.bool)[1].all()), True)
        self.assert_known(lambda: bool(torch.all(mask == 1)), False)
        self.assert_known(lambda: bool((mask[:, -1] == 0).any()), True)
        self.assert_known(lambda: int(mask.sum()), 7)
        self.assert_known(lambda: mask.sum(-1).max().item(), 4)
        self.assert_known(lambda: bool(torch.ones_like(mask).all()), True)
        self.assert_known(lambda: torch.arange(5, device=self.device).sum().item(), 10)

    def test_other_reads_ask_the_worker(self):
        mask = self.mask()
        self.assert_asked(lambda: mask.cpu().tolist(), [[1, 1, 1, 0], [1, 1, 1, 1]])
        self.assert_asked(lambda: mask[0, 3].item(), 0)
        self.assert_asked(lambda: (mask + 1).cpu().tolist(), [[2, 2, 2, 1], [2, 2, 2, 2]])
        self.assert_asked(lambda: bool((mask.float() > 0).all()), False)
        self.assert_asked(lambda: bool((mask == 1.0).all()), False)
        self.assert_asked(lambda: (mask * 2.0).sum().item(), 14.0)
        large = torch.ones(3000, dtype=torch.int64).to(self.device)
        self.assert_asked(lambda: int(large.sum()), 3000)

    def test_long_computations_are_read_from_the_worker(self):
        one = torch.tensor([3]).to(self.device)
        self.assert_asked(lambda: int(one.expand(5000).sum()), 15000)
        self.assert_known(lambda: int(one.expand(50).sum()), 150)
        total = one
        for _ in range(40):
            total = total + 1
        self.assert_asked(lambda: total.item(), 43)

    def test_views_larger_than_their_storage(self):
        large = torch.tensor([5, 6, 7, 8]).to(self.device)
        small = large[:1]
        large.untyped_storage().resize_(8)
        small.fill_(3)
        self.assert_known(lambda: int(small.sum()), 3)
        with self.assertRaises(RuntimeError):
            large.sum().item()

    def test_a_known_result_ignores_later_writes(self):
        mask = self.mask()
        before, ones = mask.sum(), mask == 1
        mask.fill_(9)
        self.assert_known(lambda: int(before), 7)
        self.assert_known(lambda: bool(ones.all()), False)
        del mask
        self.assert_known(lambda: int(ones.sum()), 7)

    def test_a_written_mask_is_read_again(self):
        def setitem(mask):
            mask[0, 0] = 5

        def out(mask):
            torch.add(mask, 1, out=mask)

        def through_a_view(mask):
            mask.view(-1)[3:].mul_(7)

        def through_data(mask):
            mask.data.add_(1)

        def another_tensor(mask):
            mask[1].copy_(torch.tensor([4, 5, 6, 7]).to(self.device))

        def other_storage(mask):
            mask.set_(torch.tensor([[3, 3, 3, 3], [3, 3, 3, 4]]).to(self.device) * 1)

        def by_index(mask):
            mask.index_fill_(0, torch.tensor([1]).to(self.device), 9)

        def randomly(mask):
            torch.manual_seed(3)
            mask.random_(0, 50)

        def resized(mask):
            mask.resize_(2, 2)

        def by_a_thread(mask):
            thread = threading.Thread(target=mask.add_, args=(3,))
            thread.start()
            thread.join()

        for write in (
            setitem, out, through_a_view, through_data, another_tensor, other_storage, by_index,
            randomly, resized, by_a_thread,
        ):  # fmt: skip
            with self.subTest(write.__name__):
                mask = self.mask()
                total = mask.sum()
                self.assert_known(total.item, 7)
                write(mask)
                value = mask.cpu()
                self.assertNotEqual(value.tolist(), [[1, 1, 1, 0], [1, 1, 1, 1]])
                self.assertEqual(int(mask.sum()), int(value.sum()))
                self.assertEqual(bool((mask == 1).all()), bool((value == 1).all()))
                self.assertEqual(mask[0, 0].item(), value[0, 0].item())
                total.add_(1)
                self.assertEqual(int(total), 8)

    def test_a_fully_overwritten_mask_is_known_again(self):
        mask = self.mask()
        mask[0, 0] = 5
        self.assert_asked(lambda: int(mask.sum()), 11)
        mask.fill_(3)
        self.assert_known(lambda: int(mask.sum()), 24)
        mask.zero_()
        self.assert_known(lambda: bool(mask.any()), False)
        mask.copy_(torch.tensor([[2] * 4] * 2))
        self.assert_known(lambda: int(mask.sum()), 16)

    def test_registered_callables_write_what_is_known(self):
        total = torch.zeros(4, dtype=torch.int64, device=self.device)

        @djinn.compile
        def count(values):
            total.add_(values)
            return values * 2

        ones = torch.ones(4, dtype=torch.int64).to(self.device)
        for i in range(1, 8):
            before = int(ones.sum())
            doubled = count(ones)
            self.assertEqual(int(total.sum()), 4 * i)
            self.assertEqual(int(doubled.sum()), 2 * before)
            ones.add_(0)
        self.assertGreater(count.statistics()["replays"], 0)

    def test_a_branch_follows_each_call_s_mask(self):
        def mean(values, mask):
            if mask.all():
                return values.mean()
            return (values * mask).sum() / mask.sum()

        registered = djinn.compile(mean)
        generator = random.Random(4)
        for _ in range(24):
            mask = torch.tensor([generator.random() < 0.9 for _ in range(4)] + [True])
            values = torch.rand(5)
            remote = registered(values.to(self.device), mask.to(self.device)).cpu()
            torch.testing.assert_close(remote, mean(values, mask))

    def test_random_programs_read_what_the_cpu_has(self):
        answered = djinn.statistics()["reads_answered_here"]
        for seed in range(150):
            self.compare_program(random.Random(seed), seed)
        self.assertGreater(djinn.statistics()["reads_answered_here"] - answered, 300)

    def compare_program(self, choose, seed):
        types = (torch.int64, torch.int32, torch.bool, torch.uint8, torch.int8)

        def fresh():
            rows, columns = choose.choice(((1, 4), (3, 4), (3, 1)))
            host = torch.tensor([[choose.randrange(-3, 4) for _ in range(columns)]
                                 for _ in range(rows)]).to(choose.choice(types))  # fmt: skip
            return host, host.to(self.device)

        pairs = [fresh() for _ in range(3)]
        for step in range(30):
            kind = choose.randrange(6)
            a, b = choose.choice(pairs), choose.choice(pairs)
            axis, low = choose.randrange(2), choose.randrange(-2, 3)
            operator = choose.choice((
                lambda x, y: x + y, lambda x, y: x * y, lambda x, y: x == y, lambda x, y: x < y,
                lambda x, y: x.all(axis, keepdim=True), lambda x, y: x.sum(axis, keepdim=True),
                lambda x, y: x >= low, lambda x, y: x.logical_not(), lambda x, y: x.to(y.dtype),
                lambda x, y: torch.cat([x, x], axis), lambda x, y: x.cumsum(axis),
                lambda x, y: x.amax(axis, keepdim=True), lambda x, y: torch.full_like(x, 1),
                lambda x, y: x.t(), lambda x, y: x[:1], lambda x, y: x.expand(3, -1) if len(x) == 1 else x,
                lambda x, y: x.clone(),
            ))  # fmt: skip
            write = choose.choice((
                lambda x, y: x[:1].zero_(), lambda x, y: x.fill_(1), lambda x, y: x.t().copy_(x[0, 0]),
                lambda x, y: x.logical_not_(), lambda x, y: x[:, :1].fill_(1), lambda x, y: x.copy_(y),
                lambda x, y: x.__ior__(y == y),
            ))  # fmt: skip
            read = choose.choice((
                lambda x: x.sum().item(), lambda x: bool(x.all()), lambda x: x.max().item(),
                lambda x: int(x.count_nonzero()), lambda x: bool((x == low).any()), lambda x: x[0, 0].item(),
            ))  # fmt: skip
            where = f"seed {seed}, step {step}"
            if kind < 3:
                results = self.both(operator, a, b, where)
                if results is not None and results[0].numel() <= 64:
                    pairs[choose.randrange(3)] = results
            elif kind < 4:
                self.both(write, a, b, where)
            else:
                expected = read(a[0])
                self.assertEqual(read(a[1]), expected, where)
                self.assertIs(type(read(a[1])), type(expected), where)

    def both(self, function, a, b, where):
        try:
            host = function(a[0], b[0])
        except RuntimeError:
            with self.assertRaises(RuntimeError, msg=where):
                function(a[1], b[1]).cpu()
            return None
        return host, function(a[1], b[1])
