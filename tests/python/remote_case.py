"""Gives tests in Python an embedded cluster, and runs programs of their own.

Workers compute on the CPU, or on the device that DJINN_TEST_WORKER_DEVICE names, "cuda:0".
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

    workers = 1
    # Workers and PyTorch compute the same bits with the same number of threads.
    threads = 1

    @classmethod
    def setUpClass(cls):
        cls.cluster = djinn.local(
            workers=cls.workers, worker_threads=cls.threads, worker_device=WORKER_DEVICE
        )
        cls.enterClassContext(cls.cluster)
        cls.addClassCleanup(torch.set_num_threads, torch.get_num_threads())
        torch.set_num_threads(cls.threads)
        cls.device = djinn.device()

    def assert_same(self, remote, local):
        """Compares values, dtypes, shapes, strides and the kind of device.

        A GPU computes sums in another order.
        """
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
    """Calls work(0), work(1), ... at once, each in a thread, and raises the first error."""
    barrier = threading.Barrier(count)

    def begin(number):
        barrier.wait()
        work(number)

    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        for done in [pool.submit(begin, number) for number in range(count)]:
            done.result()


def run_program(source, *, check=True, timeout=120, **environment):
    """Runs Python source in an interpreter of its own, and returns the completed process."""
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
