"""Memory of a device that is full: what a program drops makes room for its next call."""

import unittest

import torch

import djinn

_MEBIBYTE = 1 << 20


class MemoryTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.enterClassContext(
            djinn.local(workers=1, worker_threads=1, worker_memory_bytes=48 * _MEBIBYTE)
        )
        cls.device = djinn.device()

    def fill(self, count):
        """Returns tensors of 4 MiB, whose bytes are there."""
        tensors = []
        for _ in range(count):
            tensors.append(torch.ones(_MEBIBYTE, device=self.device))
            tensors[-1][0].item()
        return tensors

    def test_a_program_that_drops_everything_can_use_everything(self):
        for _ in range(5):
            tensors = []
            with self.assertRaises(torch.OutOfMemoryError):
                for _ in range(20):
                    tensors += self.fill(1)
            count = len(tensors)
            self.assertGreaterEqual(count, 9)
            tensors.clear()
            self.assertEqual(len(self.fill(count)), count)

    def test_a_smaller_batch_fits_after_a_larger_one_failed(self):
        def step(rows):
            x = torch.ones(rows, 1024, device=self.device)
            return (x * 2).exp().sum().item()

        # Each of the three tensors has 4 KiB in a row.
        fitting = []
        for rows in (32 << 10, 8 << 10, 3 << 10, 3 << 10):
            try:
                step(rows)
                fitting.append(rows)
            except torch.OutOfMemoryError:
                pass
        self.assertEqual(fitting, [3 << 10] * 2)

    def test_parameters_are_kept_if_the_failure_is_raised_before_the_step(self):
        layer = torch.nn.Linear(64, 64).to(self.device)
        optimizer = torch.optim.SGD(layer.parameters(), 0.1)

        def step(rows):
            layer(torch.ones(rows, 64, device=self.device)).square().mean().backward()
            djinn.synchronize()
            optimizer.step()

        with self.assertRaises(torch.OutOfMemoryError):
            step(1 << 18)
        optimizer.zero_grad()
        step(16)
        self.assertTrue(torch.isfinite(layer.weight).all())
