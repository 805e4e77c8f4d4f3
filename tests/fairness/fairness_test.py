"""Two tenants share a worker: real processes, device time as the worker measured it.

Whatever the machine does meanwhile, nothing here depends on it: all work waits at the
worker before any of it begins, and times are compared by the bound that
docs/design/scheduling.md gives, with the longest turn that there was.

FAIRNESS_WORKER holds further lines of the worker's configuration. A worker with a process for
each tenant shows metrics that are seconds old, and what its processes report was so
FAIRNESS_SKEW seconds apart.
"""

import os
import re
import unittest
import urllib.request

from tests.operating.cluster import PATIENCE, eventually, start_cluster

_TENANT = """
  - name: %s
    token_file: %s.token
    limits: {max_outstanding: 1024}
    %s
"""
# Without credit, all runs wait.
_HELD = "credits: {device_time: 0s}"


def _tenants(greedy, modest):
    return ("\ntenants:" + _TENANT % ("greedy", "greedy", greedy) +
            _TENANT % ("modest", "modest", modest))


def _seconds(duration):
    return float(duration.rstrip("s"))


_SKEW = float(os.environ.get("FAIRNESS_SKEW", "0"))


class FairnessTest(unittest.TestCase):

    def start(self, tenants):
        self.cluster = start_cluster(
            self, ("w0",), tenants=tenants, tokens=("greedy", "modest"),
            worker_extra=os.environ.get("FAIRNESS_WORKER", ""),
            extra="monitoring: {listen: '127.0.0.1:0'}\n")

    def tenants(self):
        listed = self.cluster.json("get", "tenants")["tenants"]
        return {tenant["tenant"]: tenant for tenant in listed}

    def configure(self, tenants):
        self.cluster.configure("127.0.0.1:0", tenants)
        self.cluster.said("reload")

    def issue(self, tenant, rounds, *more):
        """A program with so much work; what it said first."""
        return self.cluster.program(
            self, "tests/fairness/issue_work", str(rounds), *more, tenant=tenant,
            OMP_NUM_THREADS="1")

    def have_both_worked(self, tenant):
        """Whether both leases are billed, and one clearly for more work."""
        listed = self.cluster.json("get", "leases")["leases"]
        used = sorted(_seconds(lease.get("lease_use", {}).get("device_time", "0s"))
                      for lease in listed if lease["tenant"] == tenant)
        return used[0] > 0 and used[-1] > 2 * used[0]

    def queued(self, tenant):
        return self.tenants()[tenant]["use"]["queued_runs"]

    def used_and_queued(self):
        """Device-seconds and waiting runs of both, as of one report."""
        tenants = self.tenants()
        used = {name: _seconds(tenants[name]["credits"]["used"].get("device_time", "0s"))
                for name in ("greedy", "modest")}
        return used, min(tenants[name]["use"]["queued_runs"] for name in used)

    def turns(self):
        """Returns, for each bound in order, how many turns took no longer than it."""
        url = "http://%s/metrics" % self.cluster.monitoring["w0"]
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
            return [(float(bound), int(count)) for bound, count in re.findall(
                r'djinn_worker_step_seconds_bucket\{le="(.*)"\} (\d+)',
                answer.read().decode())]

    def longest_turn_since(self, before):
        """Returns the least bound that no turn since `before` exceeded."""
        since = [(bound, count - earlier)
                 for (bound, count), (_, earlier) in zip(self.turns(), before)]
        return next(bound for bound, count in since if count == since[-1][1])

    def metric(self, process, name):
        """Returns the sum of a metric's lines."""
        url = "http://%s/metrics" % self.cluster.monitoring[process]
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
            lines = re.findall(r"^%s(?:\{.*\})? (\S+)$" % name, answer.read().decode(),
                               re.MULTILINE)
        return sum(float(line) for line in lines)

    def compare(self, weights):
        """Lets 16 sessions of one tenant and one of the other begin at once.

        False where a turn took so long that what each got can tell nothing.
        """
        self.start(_tenants(_HELD, _HELD))
        programs = [self.issue("greedy", 40) for _ in range(16)]
        programs.append(self.issue("modest", 300))
        for program in programs:
            self.assertEqual(program.stdout.readline(), "issued\n")
        # The last segment of each program is still open, because nothing has
        # sealed it.
        eventually(lambda: self.queued("greedy") >= 16 * 39, "all that is greedy waits")
        eventually(lambda: self.queued("modest") >= 299, "all that is modest waits")
        turns = eventually(self.turns, "the worker's metrics")
        self.configure(_tenants(*("fairSharing: {weight: %d}" % weight for weight in weights)))
        eventually(lambda: min(self.used_and_queued()[0].values()) > 0, "both have begun")
        samples = []

        def sample():
            used, queued = self.used_and_queued()
            # Neither program has executed all of its runs.
            if queued > 0:
                samples.append(used)
            return queued <= 30

        eventually(sample, "most of the work of one is done")
        if not samples:
            return False
        eventually(
            lambda: self.metric("w0", "djinn_worker_device_busy_seconds_total")
            >= sum(samples[-1].values()), "the metrics cover what was used")
        # A tenant that had a long turn waits until the other tenant had as much
        # device time, so the bound includes turns before the interval.
        longest = self.longest_turn_since(turns)
        telling = False
        for i, before in enumerate(samples):
            for after in samples[i + 1:]:
                gained = [(after[name] - before[name]) / weight
                          for name, weight in zip(("greedy", "modest"), weights)]
                # A turn may end during the worker's report, which adds one turn
                # for each tenant. So may work between the reports of two processes.
                bound = sum((2 * longest + _SKEW) / weight for weight in weights)
                self.assertLessEqual(abs(gained[0] - gained[1]), bound, (longest, samples))
                telling = telling or min(gained) > bound
        return telling

    def compare_until_telling(self, weights):
        """On a machine that stands still now and then."""
        for _ in range(5):
            if self.compare(weights):
                return
            self.doCleanups()
        self.fail("a turn took too long to compare by, every time")

    def test_sixteen_sessions_get_no_more_than_one(self):
        self.compare_until_telling((1, 1))

    def test_weights_are_honoured(self):
        self.compare_until_telling((1, 3))

    def test_bills_equal_the_execution_time_of_the_worker(self):
        self.start(_tenants("fairSharing: {weight: 3}", ""))
        programs = [self.issue(tenant, 40, "read")
                    for tenant in ("greedy", "modest") for _ in range(3)]
        for program in programs:
            self.assertEqual(program.stdout.readline(), "issued\n")
        # The bills of sessions that end are kept.
        for program in programs[::3]:
            program.kill()
        for _ in range(2):
            for program in programs[1:3] + programs[4:]:
                program.stdin.write("\n")
                program.stdin.flush()
            for program in programs[1:3] + programs[4:]:
                self.assertEqual(program.stdout.readline(), "issued\n")

        def bills():
            return self.metric("coordinator", "djinn_tenant_device_seconds_total")

        def work():
            return self.metric("w0", "djinn_worker_executor_seconds_total")

        def told():
            billed = self.metric("w0", "djinn_worker_device_busy_seconds_total")
            return abs(bills() - billed) < 1e-6 * billed

        eventually(told, "the coordinator has heard of all")
        eventually(lambda: abs(bills() / work() - 1) < 1e-3, "the work is what was billed")
        before = work()
        # The bill equals the time, by the clock, of everything that the
        # worker's thread did from one wait to the next.
        self.assertAlmostEqual(bills() / before, 1, delta=1e-3)
        self.assertEqual(work(), before)  # it was over
        nobody = self.metric("w0", "djinn_worker_housekeeping_seconds_total")
        self.assertAlmostEqual((bills() + nobody) / before, 1, delta=1e-6)

    def test_breaches_are_refused_and_what_is_borrowed_is_reclaimed(self):
        quota = ("{limits: {memory: 256MiB}, cohort: lab, "
                 "quota: {memory_bytes: {nominalQuota: 256MiB}}}")
        tenants = "\ntenants:" + "".join(
            "\n  - {name: %s, token_file: %s.token, %s" % (name, name, quota[1:])
            for name in ("greedy", "modest"))
        self.start(tenants)
        own = self.issue("greedy", 40, "read")
        self.assertEqual(own.stdout.readline(), "issued\n")
        borrowing = self.issue("greedy", 1, "read")
        self.assertEqual(borrowing.stdout.readline(), "issued\n")
        eventually(lambda: self.have_both_worked("greedy"), "the worker's reports")
        greedy = self.tenants()["greedy"]
        self.assertEqual(greedy["quotas"][0]["borrowed"], 256 << 20)
        self.assertGreater(greedy["weighted_share"], 0)
        self.assertIn("tenant greedy may have 536870912 memory_bytes, has 536870912 and "
                      "asks for 268435456 more",
                      self.issue("greedy", 1, "read").stdout.readline())
        lender = self.issue("modest", 1, "read")
        self.assertEqual(lender.stdout.readline(), "issued\n")
        # The session that had used less lost its lease, and that session's
        # error gives the reason. The other session continues.
        borrowing.stdin.write("\n")
        borrowing.stdin.flush()
        self.assertIn("QUOTA_RECLAIMED", borrowing.stdout.readline())
        own.stdin.write("\n")
        own.stdin.flush()
        self.assertEqual(own.stdout.readline(), "issued\n")
        tenants = self.tenants()
        self.assertEqual(tenants["greedy"]["quotas"][0]["used"], 256 << 20)
        self.assertEqual(tenants["greedy"]["quotas"][0]["borrowed"], 0)
        self.assertEqual(tenants["modest"]["quotas"][0]["lent"], 0)


if __name__ == "__main__":
    unittest.main()
