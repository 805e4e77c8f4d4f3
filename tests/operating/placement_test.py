"""Operators decide where sessions go, see why, and play what would be."""

import json
import subprocess
import unittest

from tests.operating.cluster import PATIENCE, eventually, start_cluster

_TENANT = """
tenants:
  - name: dev
    token_file: dev.token
"""


class PlacementTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.cluster = start_cluster(cls, (), tenants=_TENANT)
        for name, price, words in (("cheap", 1, "[]"), ("dear", 5, "[big]")):
            cls.cluster.write(name + ".yaml", """
worker_id: %s
listen: 127.0.0.1:0
coordinator: %s
join_token_file: join.token
heartbeat_interval: 100ms
price_per_hour: %s
capabilities: %s
device: {memory: 1GiB, threads: 1}
""" % (name, cls.cluster.coordinator, price, words))
            cls.cluster.start(name)
        eventually(lambda: len(cls.cluster.json("get", "workers")["workers"]) == 2, "both join")

    def place(self, *flags):
        return self.cluster.json("explain", "placement", "dev", *flags)

    def configure(self, placement):
        self.cluster.configure("127.0.0.1:0", _TENANT + "    placement: " + placement + "\n")
        return self.cluster.ctl("reload")

    def hold(self, **environment):
        program = subprocess.Popen(
            ["tests/operating/hold_session"], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True, env=self.cluster.environment(**environment))
        self.addCleanup(program.stdout.close)
        self.addCleanup(program.wait, PATIENCE)
        self.addCleanup(program.stdin.close)
        self.assertEqual(program.stdout.readline(), "ready\n")

    def test_workers_say_what_they_are(self):
        worker = self.cluster.json("get", "workers", "dear")
        self.assertEqual(worker["price_per_hour"], 5)
        self.assertEqual(worker["capabilities"], ["big"])
        self.assertGreater(worker["speed"]["flops_per_second"], 1e7)

    def test_tenants_policies_are_reloaded(self):
        self.addCleanup(self.configure, "{}")
        self.assertEqual(self.place()["decision"]["policy_source"], "cluster")
        self.assertEqual(self.configure("{policy: minimize_cost}").returncode, 0)
        decision = self.place()["decision"]
        self.assertEqual((decision["policy"], decision["policy_source"]),
                         ("minimize_cost", "tenant"))
        self.assertEqual(decision["worker_id"], "cheap")
        self.assertEqual(self.configure("{required: [big]}").returncode, 0)
        decision = self.place()["decision"]
        self.assertEqual(decision["worker_id"], "dear")
        self.assertEqual(decision["candidates"][1]["drop_reason"], "lacks big")
        refused = self.configure("{policy: best}")
        self.assertEqual(refused.returncode, 1)
        self.assertIn('there is no placement policy "best"', refused.stderr)
        self.assertEqual(self.place()["decision"]["worker_id"], "dear")

    def test_a_session_is_explained(self):
        self.hold(DJINN_PLACEMENT_POLICY="minimize_cost")
        session = self.cluster.json("get", "sessions")["sessions"][-1]["session_id"]
        explanation = self.cluster.json("explain", "session", session)
        self.assertEqual((explanation["policy"], explanation["policy_source"]),
                         ("minimize_cost", "session"))
        decision = explanation["devices"][0]["decision"]
        self.assertEqual(decision["worker_id"], "cheap")
        costs = {c["worker_id"]: c["terms"]["cost"] for c in decision["candidates"]}
        self.assertLess(costs["cheap"], costs["dear"])
        text = self.cluster.ctl("explain", "session", session).stdout
        self.assertIn("chosen   cheap: ", text)
        tenant = self.cluster.json("explain", "tenant", "dev")
        self.assertEqual(tenant["standings"][0]["lease_count"], 1)

    def test_an_unknown_policy_of_a_session_is_refused(self):
        done = subprocess.run(
            ["tests/operating/hold_session"], stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=PATIENCE,
            env=self.cluster.environment(DJINN_PLACEMENT_POLICY="best"))
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("expected load_balance, maximize_throughput", done.stderr)

    def test_cordoned_workers_are_left_alone(self):
        for worker in ("cheap", "dear"):
            self.addCleanup(self.cluster.ctl, "uncordon", "worker", worker)
            self.assertIn("none: cordoned", self.cluster.ctl("cordon", "worker", worker).stdout)
        answer = self.place("--size=1MB")
        self.assertEqual(answer["gate"]["reason"], "NO_SUITABLE_WORKER")
        self.assertEqual(answer["gate"]["unblocked_by"], "uncordoning a worker")
        self.assertEqual(self.cluster.ctl("uncordon", "worker", "dear").returncode, 0)
        self.assertEqual(self.place("--size=1MB")["decision"]["worker_id"], "dear")
        self.assertEqual(self.cluster.ctl("cordon", "worker", "nobody").returncode, 1)

    def test_a_dry_run_says_why_not(self):
        answer = self.place("--size=2GB", "--policy=load_balance")
        self.assertEqual(answer["gate"]["reason"], "TOO_LARGE")
        self.assertEqual(answer["decision"]["policy"], "load_balance")
        for flag in ("--size=much", "--phase=decode"):
            self.assertEqual(
                self.cluster.ctl("explain", "placement", "dev", flag).returncode, 2, flag)
        self.assertEqual(
            self.cluster.ctl("explain", "placement", "dev", "--policy=best").returncode, 1)
        self.assertEqual(self.cluster.ctl("explain", "placement").returncode, 2)

    def test_simulations_need_no_cluster(self):
        trace = "scheduler/simulator/mixed_trace.yaml"
        done = subprocess.run(
            ["coordinator/ctl/djinnctl", "simulate", trace, "-o", "json"],
            capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(done.returncode, 0, done.stderr)
        cost = {result["policy"]: result["cost"] for result in json.loads(done.stdout)}
        self.assertEqual(min(cost, key=cost.get), "minimize_cost")
        one = self.cluster.ctl("simulate", trace, "--policy=load_balance").stdout.splitlines()
        # The output has one line for the policy, and one for each of the
        # policy's classes of jobs.
        self.assertEqual([line.split()[0] for line in one if line],
                         ["POLICY", "load_balance"] + ["POLICY"] + 2 * ["load_balance"])
        for arguments in (("simulate", "nowhere.yaml"),
                          ("simulate", trace, "--policy=best")):
            self.assertEqual(self.cluster.ctl(*arguments).returncode, 2)


if __name__ == "__main__":
    unittest.main()
