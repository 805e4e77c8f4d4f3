"""A program whose kernel ends its worker loses that value alone, and others lose nothing.

The others are other tenants' at shared workers, and the tenant's own sessions at a worker that
has a process for each tenant.
"""

import contextlib
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
    isolation = "{mode: shared}"
    workers = _WORKERS

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
            folder.name, self.workers, tenants=tenants, log=self.log,
            worker_extra="isolation: %s\noperator_libraries: [{path: %s}]\n" % (
                self.isolation, _LIBRARY))
        self.addCleanup(self.cluster.stop)

    def tenant_of(self, other):
        return other

    def between(self, others):
        """Pauses the other programs, so that none has a run on its way to both workers.

        Every run on its way to a lost shared worker is a suspect, and one that was on its way to
        both is given up (docs/operator/recover.md).
        """
        return others.paused()

    def check_two_ended(self):
        statuses = [self.cluster.process(name).poll() for name in self.workers]
        self.assertEqual([status for status in statuses if status is not None],
                         [-signal.SIGABRT] * 2)

    def test_two_processes_end_and_that_value_alone_is_lost(self):
        try:
            self.poison()
        except BaseException:
            with open(self.log.name) as file:
                print("".join(file.readlines()[-200:]), file=sys.stderr)
            raise

    def poison(self):
        others = RunningPrograms(self, self.cluster, self.log)
        for tenant, name in zip(_OTHERS, itertools.cycle(PROGRAMS)):
            others.start(tenant, name, self.tenant_of(tenant))
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
        with self.between(others), self.assertRaises(djinn.Error) as raised:
            lost = torch.ops.example.die(before)
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
        self.check_two_ended()
        others.await_steps(_STEPS)
        found = others.finish()
        # Their programs ran in the processes that ended.
        self.assertGreater(sum(result["recoveries"] for result in found.values()), 0)
        self.check_two_ended()


class PoisonInAProcessOfATenantTest(PoisonTest):
    isolation = "{mode: process, executors: 2}"
    workers = _WORKERS[:1]

    def tenant_of(self, other):
        return "dev"

    def between(self, others):
        return contextlib.nullcontext()

    def check_two_ended(self):
        with open(self.log.name) as file:
            ends = [line for line in file if 'msg="executor ended"' in line]
        self.assertEqual(len(ends), 2, ends)
        for end in ends:
            self.assertIn("how=\"signal 6", end)
            self.assertIn("in_turn=1", end)


if __name__ == "__main__":
    unittest.main()
