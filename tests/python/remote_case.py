"""What tests in Python share: one embedded cluster, and programs of their own.

Its worker computes on the CPU, or on what DJINN_TEST_WORKER_DEVICE says: "cuda:0".
"""

import concurrent.futures
import os
import subprocess
import sys
import textwrap
import threading
import unittest

import torch

import djinn

WORKER_DEVICE = os.environ.get("DJINN_TEST_WORKER_DEVICE", "cpu")


class RemoteCase(unittest.TestCase):
    """Each class has a cluster and a session of its own."""

    @classmethod
    def setUpClass(cls):
        cls.cluster = djinn.local(workers=1, worker_threads=1, worker_device=WORKER_DEVICE)
        cls.enterClassContext(cls.cluster)
        # PyTorch computes the same bits with as many threads.
        cls.addClassCleanup(torch.set_num_threads, torch.get_num_threads())
        torch.set_num_threads(1)
        cls.device = djinn.device()

    def assert_same(self, remote, local):
        """Value, dtype, shape, strides and where each is. A GPU sums in another order."""
        self.assertEqual(remote.device.type, self.device.type)
        self.assertEqual(remote.stride(), local.stride())
        tolerance = 0 if WORKER_DEVICE == "cpu" else 2e-2 if local.element_size() < 4 else 1e-3
        torch.testing.assert_close(remote.cpu(), local, rtol=tolerance, atol=tolerance)


def assert_equal(case, results, expected):
    """Checks that two runs of a program returned tensors with the same bytes."""
    case.assertEqual(len(results), len(expected))
    for result, other in zip(results, expected):
        case.assertTrue(torch.equal(result, other))


def in_threads(work, count):
    """Calls work(0), work(1), ... at once, each in a thread; raises what one of them raises."""
    barrier = threading.Barrier(count)

    def begin(number):
        barrier.wait()
        work(number)

    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        for done in [pool.submit(begin, number) for number in range(count)]:
            done.result()


def run_program(source, *, check=True, timeout=120, **environment):
    """Runs Python source in an interpreter of its own; returns how it ended."""
    program = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(source)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=timeout,
    )
    if check and program.returncode:
        raise AssertionError(f"exit {program.returncode}:\n{program.stdout}{program.stderr}")
    return program
