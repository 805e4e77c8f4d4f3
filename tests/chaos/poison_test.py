"""A program whose kernel ends its worker loses that value alone, and other tenants lose nothing."""

import itertools
import os
import signal
import sys
import tempfile
import unittest

import torch

import djinn
from tests.operating.cluster import PATIENCE, Cluster
from tests.operating.rolling_programs import PROGRAMS, RunningPrograms

_LIBRARY = os.path.abspath("tests/custom_operators/libexample_operators.so")
_WORKERS = ("w0", "w1", "w2")
# Tenants with a program each, besides the one whose program ends workers.
_OTHERS = tuple("other%d" % i for i in range(8))
# Steps that each program of another tenant makes before the first worker ends, and after the
# last one.
_STEPS = 3

torch.ops.load_library(_LIBRARY)


class PoisonTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.log = open(os.path.join(folder.name, "log"), "ab+")
        self.addCleanup(self.log.close)
        tenants = "tenants:\n"
        for name in ("dev", *_OTHERS):
            path = os.path.join(folder.name, name + ".token")
            with open(path, "w", opener=lambda p, f: os.open(p, f, 0o600)) as file:
                file.write(name + "-0123456789abcdef")
            tenants += "  - {name: %s, token_file: %s.token}\n" % (name, name)
        self.cluster = Cluster(
            folder.name, _WORKERS, tenants=tenants, log=self.log,
            worker_extra="isolation: {mode: shared}\noperator_libraries: [{path: %s}]\n" % _LIBRARY)
        self.addCleanup(self.cluster.stop)

    def ended(self):
        """The exit statuses of the workers that ended."""
        statuses = [self.cluster.process(name).poll() for name in _WORKERS]
        return [status for status in statuses if status is not None]

    def test_two_workers_end_and_that_value_alone_is_lost(self):
        try:
            self.poison()
        except BaseException:
            with open(self.log.name) as file:
                print("".join(file.readlines()[-200:]), file=sys.stderr)
            raise

    def poison(self):
        others = RunningPrograms(self, self.cluster, self.log)
        for tenant, name in zip(_OTHERS, itertools.cycle(PROGRAMS)):
            others.start(tenant, name, tenant)
        others.await_steps(_STEPS)
        djinn.set_call_sites(True)
        self.addCleanup(djinn.set_call_sites, False)
        djinn.connect(
            self.cluster.coordinator, token_file=self.cluster.path("dev.token"),
            recovery="replay", connect_timeout=PATIENCE)
        self.addCleanup(djinn.close)
        x = torch.arange(5.0).to(djinn.device())
        before = x * 3
        self.assertEqual(before.sum().item(), 30)
        # The first call of a custom operator asks the worker whether it has it.
        torch.ops.example.die(x[:0])
        lost = torch.ops.example.die(before)
        with self.assertRaises(djinn.Error) as raised:
            lost.cpu()
        self.assertEqual(raised.exception.reason, "RUN_KILLS_WORKERS")
        self.assertIn("example::die", str(raised.exception))
        self.assertIn("poison_test.py", str(raised.exception))
        # The session goes on, with the values that it had. What needs the lost one fails.
        self.assertEqual(before.tolist(), [0, 3, 6, 9, 12])
        self.assertEqual((before + x).sum().item(), 40)
        with self.assertRaises(djinn.Error) as raised:
            (lost + 1).cpu()
        self.assertEqual(raised.exception.reason, "RUN_KILLS_WORKERS")
        self.assertEqual(self.ended(), [-signal.SIGABRT] * 2)
        others.await_steps(_STEPS)
        found = others.finish()
        # Their programs ran on the workers that ended.
        self.assertGreater(sum(result["recoveries"] for result in found.values()), 0)
        self.assertEqual(self.ended(), [-signal.SIGABRT] * 2)


if __name__ == "__main__":
    unittest.main()
