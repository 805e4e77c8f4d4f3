"""The memory of a client that was killed is there for the next one, over gRPC, too."""

import os
import signal
import sys
import time
import unittest
import unittest.mock

import torch

import djinn
from tests.operating.cluster import PATIENCE, start_cluster

# The worker has 1 GiB, which does not suffice for two of them.
_FLOATS = 160 << 20

_CLIENT = f"""
import sys
import torch
import djinn
djinn.connect()
held = torch.ones({_FLOATS}, device=djinn.device())
assert held[-1].item() == 1
print("holds", flush=True)
sys.stdin.read()
"""


@unittest.mock.patch.dict(os.environ, DJINN_SHARED_MEMORY="0")
class KilledClientTest(unittest.TestCase):
    def test_the_next_program_gets_the_memory_of_a_killed_client(self):
        # Time does not free the memory.
        cluster = start_cluster(
            self, ("w0",), worker_extra="resume_timeout: 1h\n",
            coordinator_extra="session_timeout: 1h\n")
        client = cluster.program(self, sys.executable, "-c", _CLIENT)
        self.assertEqual(client.stdout.readline(), "holds\n")
        djinn.connect(cluster.coordinator, token_file=cluster.path("dev.token"))
        self.addCleanup(djinn.close)
        self.assertEqual(djinn.where_is(0).transport, "gRPC")
        # It must not take the memory of a client that lives.
        self.assertFalse(self._fits())
        client.send_signal(signal.SIGKILL)
        client.wait()
        deadline = time.monotonic() + PATIENCE
        while not self._fits():
            self.assertLess(time.monotonic(), deadline)

    @staticmethod
    def _fits():
        try:
            return torch.ones(_FLOATS, device=djinn.device())[-1].item() == 1
        except djinn.OutOfMemoryError:
            return False
