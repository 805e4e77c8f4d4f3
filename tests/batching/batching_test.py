"""Programs of two tenants whose runs share products: real processes.

All work waits at the worker for credit before any of it begins, so that runs meet,
whatever the machine does.
"""

import re
import time
import unittest
import urllib.request

from tests.operating.cluster import PATIENCE, eventually, start_cluster

_NAMES = ("red", "blue")
_TENANT = """
  - name: %s
    token_file: %s.token
    limits: {max_outstanding: 1024}
    share_contents: true
    batch_with_others: %s
    %s
"""
# Without credit, all runs wait.
_HELD = "credits: {device_time: 0s}"
_ROUNDS = 60


def _tenants(others, more=""):
    return "\ntenants:" + "".join(_TENANT % (name, name, others, more) for name in _NAMES)


class BatchingTest(unittest.TestCase):

    def start(self, others):
        self.cluster = start_cluster(
            self, ("w0",), tenants=_tenants(others), tokens=_NAMES,
            extra="monitoring: {listen: '127.0.0.1:0'}\n")

    def configure(self, tenants):
        self.cluster.configure("127.0.0.1:0", tenants)
        self.cluster.said("reload")

    def program(self, tenant, number):
        return self.cluster.program(
            self, "tests/batching/multiply_rows", str(number), tenant=tenant,
            OMP_NUM_THREADS="1")

    def tell(self, program, what, answer):
        program.stdin.write(what + "\n")
        program.stdin.flush()
        self.assertEqual(program.stdout.readline(), answer + "\n")

    def metric(self, process, name, labels=""):
        """Returns the sum of a metric's lines with these labels."""
        url = "http://%s/metrics" % self.cluster.monitoring[process]
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
            lines = re.findall(r"^%s(?:\{.*%s.*\})? (\S+)$" % (name, labels),
                               answer.read().decode(), re.MULTILINE)
        return sum(float(line) for line in lines)

    def times(self):
        """Returns the device's busy seconds, and the seconds billed to tenants."""
        return (self.metric("w0", "djinn_worker_device_busy_seconds_total"),
                self.metric("coordinator", "djinn_tenant_device_seconds_total"))

    def await_reports(self, count):
        """Waits until the worker has reported `count` times to the coordinator."""
        for _ in range(count):
            begin = time.monotonic()

            def heard():
                since = time.monotonic() - begin
                return self.metric("coordinator", "djinn_worker_report_age_seconds") < since

            eventually(heard, "the worker reports")

    def settled_times(self):
        """The same once neither grows, over several heartbeats."""
        before = self.times()
        self.await_reports(3)
        return before if self.times() == before else None

    def held(self):
        return self.metric("w0", "djinn_pending_runs", 'reason="out_of_credit"')

    def hold(self, program):
        """Has it issue until its runs wait for credit."""
        before = self.held()

        def holds():
            self.tell(program, "issue", "issued")
            return self.held() > before

        eventually(holds, "a session is out of credit")

    def execute(self):
        """Has two programs of each tenant issue their work, which then begins at once."""
        programs = []
        for number in range(4):
            programs.append(self.program(_NAMES[number % 2], number))
            self.assertEqual(programs[-1].stdout.readline(), "loaded\n")
        self.configure(_tenants(self.others, _HELD))
        for program in programs:
            self.hold(program)
        for program in programs:
            for _ in range(_ROUNDS):
                self.tell(program, "issue", "issued")
        eventually(lambda: self.held() >= 4 * (_ROUNDS - 1), "all that was issued waits")
        # Proofs of contents were billed before. They take no device time.
        held = eventually(self.settled_times, "what was used is told")
        self.configure(_tenants(self.others))
        for program in programs:
            self.tell(program, "read", "right")

        def adds_up():
            busy, billed = (now - before for now, before in zip(self.times(), held))
            return busy > 0 and abs(billed / busy - 1) < 1e-3

        eventually(adds_up, "what tenants are billed is what the device was busy")
        # The executor thread measures its own busy time. Some of this time is
        # charged to no tenant, such as the time in which the thread finds that
        # all sessions wait for credit.
        busy, _ = eventually(self.settled_times, "all is quiet")
        nobody = self.metric("w0", "djinn_worker_housekeeping_seconds_total")
        worked = self.metric("w0", "djinn_worker_executor_seconds_total")
        self.assertAlmostEqual((busy + nobody) / worked, 1, delta=1e-3)

    def test_products_of_both_tenants_are_shared(self):
        self.others = "true"
        self.start(self.others)
        self.execute()
        shared = self.metric("w0", "djinn_batch_tenants_count")
        self.assertGreater(shared, 0)
        self.assertGreater(self.metric("w0", "djinn_batch_tenants_sum"), shared)

    def test_no_tenant_shares_with_others_eager(self):
        self.others = "false"
        self.start(self.others)
        self.execute()
        shared = self.metric("w0", "djinn_batch_tenants_count")
        self.assertGreater(shared, 0)
        self.assertEqual(self.metric("w0", "djinn_batch_tenants_sum"), shared)


if __name__ == "__main__":
    unittest.main()
