"""What tests in Python share: one embedded cluster, and programs of their own."""

import os
import subprocess
import sys
import textwrap
import unittest

import torch

import djinn


class RemoteCase(unittest.TestCase):
    """Each class has a cluster and a session of its own."""

    @classmethod
    def setUpClass(cls):
        cls.cluster = djinn.local(workers=1, worker_threads=1)
        cls.enterClassContext(cls.cluster)
        # Bits are those of PyTorch with as many threads.
        cls.addClassCleanup(torch.set_num_threads, torch.get_num_threads())
        torch.set_num_threads(1)
        cls.device = djinn.device()

    def assert_same(self, remote, local):
        """Value, dtype, shape, strides and where each is."""
        self.assertEqual(remote.device.type, self.device.type)
        self.assertEqual(remote.stride(), local.stride())
        torch.testing.assert_close(remote.cpu(), local, rtol=0, atol=0)


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
