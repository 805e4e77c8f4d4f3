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
