"""Programs go on when their tenant's executor process on a worker is killed.

KILLS is the number of deaths among programs of several tenants; the seed decides the moments.
CHAOS_SEED repeats a run.
"""

import glob
import os
import random
import re
import signal
import sys
import tempfile
import time
import unittest

import djinn
from tests.chaos import recovery_programs
from tests.operating.cluster import PATIENCE, Cluster, eventually, start_cluster
from tests.python.remote_case import assert_equal

_TENANTS = ("t0", "t1", "t2", "t3")
_KILLS = int(os.environ.get("KILLS", "2"))
_SEED = int(os.environ.get("CHAOS_SEED", "1"))
# Each tenant's executor dies twice: after its second death, the next one starts a second later.
_KILLS_OF_CLUSTER = 2 * len(_TENANTS)
# A kill happens up to this long after its step began.
_LATEST = 0.02

# The programs, in turn.
_KINDS = ("decode_greedily", "decode_sampled", "encode", "train", "upload", "download")


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
                return (recovery_programs.train(djinn.device(), at_step),
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

    def test_eight_programs_of_four_tenants_end_with_equal_bytes(self):
        moments = random.Random(_SEED)
        left = _KILLS
        while left > 0:
            kills = min(left, _KILLS_OF_CLUSTER)
            left -= kills
            with tempfile.TemporaryDirectory() as folder:
                self._kill_in_a_cluster(folder, moments, kills)

    def _kill_in_a_cluster(self, folder, moments, kills):
        tenants = "tenants:\n"
        for tenant in _TENANTS:
            tenants += f"  - {{name: {tenant}, token_file: {tenant}.token}}\n"
            path = os.path.join(folder, tenant + ".token")
            with open(path, "w", opener=lambda p, f: os.open(p, f, 0o600)) as file:
                file.write(tenant + "-0123456789abcdef")
        with open(os.path.join(folder, "log"), "w") as log:
            cluster = Cluster(
                folder, ("walled",), tenants=tenants, log=log,
                worker_extra="isolation: {mode: process, executors: 5}\n")
        try:
            expected = self._run(cluster, {}, 0)
            self.assertTrue(all(recoveries == 0 for _, recoveries in expected))
            steps = moments.sample(range(2, recovery_programs.STEPS - 3), kills)
            order = moments.sample(_TENANTS, len(_TENANTS)) + moments.sample(
                _TENANTS, len(_TENANTS))
            victims = dict(zip(sorted(steps), order))
            print("kills", victims, flush=True)
            results = self._run(cluster, victims, moments.uniform(0, _LATEST))
            for i, ((digest, recoveries), (other, _)) in enumerate(zip(results, expected)):
                tenant = _TENANTS[i % len(_TENANTS)]
                self.assertEqual(digest, other, f"program {i}")
                self.assertEqual(recoveries > 0, tenant in victims.values(), f"program {i}")
        finally:
            cluster.stop()

    def _run(self, cluster, victims, delay):
        """Runs two programs of each tenant, and kills executors of tenants by step."""
        programs = []
        for i in range(2 * len(_TENANTS)):
            programs.append(cluster.program(
                self, sys.executable, "-m", "tests.chaos.recovery_programs",
                _KINDS[i % len(_KINDS)], tenant=_TENANTS[i % len(_TENANTS)]))
        for step in range(recovery_programs.STEPS):
            for program in programs:
                self.assertEqual(program.stdout.readline().split()[:2], ["step", str(step)])
            for program in programs:
                program.stdin.write("\n")
                program.stdin.flush()
            if step in victims:
                time.sleep(delay)
                os.kill(self._executor_of(cluster, victims[step]), signal.SIGKILL)
        results = []
        for program in programs:
            end, digest, root_errors, recoveries, _ = program.stdout.readline().split()
            self.assertEqual((end, root_errors), ("end", "0"))
            results.append((digest, int(recoveries)))
            self.assertEqual(program.wait(PATIENCE), 0)
        return results

    @staticmethod
    def _executor_of(cluster, tenant):
        """The process that serves the tenant. Waits until there is one."""

        def find():
            with open(cluster.path("log")) as file:
                log = file.read()
            numbers = re.findall(
                rf'msg="executor serves a tenant" tenant={tenant} number=(\d+)', log)
            started = re.findall(
                rf'msg="executor started" number={numbers[-1]} pid=(\d+)', log)
            # The last one may have died, and the tenant not asked for another yet.
            alive = started and os.path.exists("/proc/" + started[-1])
            return int(started[-1]) if alive else None

        return eventually(find, "an executor serves " + tenant)


if __name__ == "__main__":
    unittest.main()
