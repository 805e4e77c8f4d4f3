"""Tests the figures of djinn.cost() for blocks of a program."""

import torch

import djinn
from tests.python.remote_case import RemoteCase


class CostTest(RemoteCase):
    def test_a_block_counts_its_own_calls(self):
        x = torch.randn(64, 64).to(self.device)
        (x @ x).cpu()
        with djinn.cost() as one:
            (x @ x).cpu()
        with djinn.cost() as two:
            for _ in range(2):
                (x @ x).cpu()
        self.assertGreater(one.device_seconds, 0)
        self.assertEqual((one.runs, two.runs), (1, 2))
        self.assertGreaterEqual(one.bytes_down, 64 * 64 * 4)
        self.assertLess(one.bytes_up, 1000)

    def test_blocks_nest_and_wait_for_nothing_but_figures(self):
        x = torch.randn(64, 64).to(self.device)
        with djinn.cost() as outer:
            with djinn.cost() as inner:
                y = x + 1
            z = y + 1
        self.assertEqual((inner.runs, outer.runs), (1, 2))
        self.assertEqual(z.cpu().shape, x.shape)

    def test_an_error_of_the_block_is_the_programs(self):
        with self.assertRaises(KeyError):
            with djinn.cost() as cost:
                raise KeyError
        self.assertEqual(cost.runs, 0)

    def test_reading_a_cost_before_its_block_raises(self):
        with self.assertRaisesRegex(RuntimeError, "enter the block first"):
            djinn.cost().runs
