"""A program goes on when its tenant's executor process on a worker is killed."""

import glob
import os
import signal
import unittest

import djinn
from tests.chaos.recovery_programs import train
from tests.operating.cluster import PATIENCE, start_cluster
from tests.python.remote_case import assert_equal


def _children(pid):
    """The ids of the process's children."""
    found = []
    for path in glob.glob(f"/proc/{pid}/task/*/children"):
        with open(path) as file:
            found += map(int, file.read().split())
    return found


class LostExecutorTest(unittest.TestCase):
    def test_training_goes_on_in_another_executor(self):
        cluster = start_cluster(
            self, ("walled",), worker_extra="isolation: {mode: process, executors: 2}\n")

        def run(at_step):
            djinn.connect(
                cluster.coordinator, token_file=cluster.path("dev.token"), recovery="replay",
                connect_timeout=PATIENCE)
            try:
                return (train(djinn.device(), at_step),
                        djinn.statistics()["recoveries"])
            finally:
                djinn.close()

        def kill(step):
            if step == 7:
                # One of them is the spare executor, which has no tenant.
                for pid in _children(cluster.process("walled").pid):
                    os.kill(pid, signal.SIGKILL)

        expected, _ = run(lambda step: None)
        results, recoveries = run(kill)
        self.assertGreater(recoveries, 0)
        assert_equal(self, results, expected)
