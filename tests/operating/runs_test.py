"""Operators ask what became of a session's runs, with real processes."""

import signal
import subprocess
import time
import unittest

from tests.operating.cluster import PATIENCE, eventually, start_cluster


class RunsTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        # With this time-out, a worker that is suspended for a while is not
        # lost.
        cls.cluster = start_cluster(cls, ("w0",), coordinator_extra="worker_timeout: 20s\n")
        eventually(lambda: cls.cluster.json("get", "workers")["workers"], "the worker joins")
        cls.program = subprocess.Popen(
            ["tests/operating/hold_session"], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True, env=cls.cluster.environment())
        cls.addClassCleanup(cls.program.stdout.close)
        cls.addClassCleanup(cls.program.wait, PATIENCE)
        cls.addClassCleanup(cls.program.stdin.close)
        assert cls.program.stdout.readline() == "ready\n"
        cls.session = cls.cluster.json("get", "sessions")["sessions"][-1]["session_id"]

    def test_runs_are_listed_and_explained(self):
        runs = self.cluster.json("get", "runs", self.session)["runs"]
        self.assertTrue(runs)
        for run in runs:
            self.assertEqual(run["record"]["state"], "COMPLETED")
            self.assertEqual(run["worker_id"], "w0")
            self.assertEqual(run["tenant"], "dev")
        graphs = {g["fingerprint"] for g in self.cluster.json("get", "graphs")["graphs"]}
        self.assertIn(runs[-1]["record"]["fingerprint"], graphs)
        name = runs[-1]["run"]
        explanation = self.cluster.json("explain", "run", self.session + "/" + name)
        self.assertEqual(explanation["run"]["run"], name)
        self.assertEqual(explanation["device"]["lease_id"], explanation["run"]["lease_id"])
        self.assertEqual(explanation["device"]["decision"]["worker_id"], "w0")
        record = explanation["run"]["record"]
        waited = sum(float(w["time"].rstrip("s")) for w in record["waits"])
        self.assertAlmostEqual(waited, float(record["waited"].rstrip("s")), places=6)
        self.assertGreater(float(record["device_time"].rstrip("s")), 0)
        # The number alone suffices, and "run" stands for "runs".
        number = name.split(":")[1]
        text = self.cluster.ctl("explain", "run", self.session + "/" + number).stdout
        self.assertIn("run          %s/%s\n" % (self.session, name), text)
        self.assertIn("\nvirtual device 0: lease ", text)
        self.assertIn("w0 *", text)
        table = self.cluster.ctl("get", "run", self.session).stdout.splitlines()
        self.assertEqual(table[0].split()[:3], ["RUN", "WORKER", "GRAPH"])
        self.assertEqual(len(table), 1 + len(runs))

    def test_a_missing_run_is_named_and_bad_usage_exits_with_2(self):
        for arguments, said in (
                (("get", "runs", "00000000"), "00000000"),
                (("explain", "run", "00000000/1"), "00000000"),
                (("explain", "run", self.session + "/0:99999"), "has no run 0:99999"),
                (("explain", "run", self.session + "/5:1"), "has no lease"),
                (("explain", "run", self.session + "/last"), "names no run")):
            done = self.cluster.ctl(*arguments)
            self.assertEqual(done.returncode, 1, done.stderr)
            self.assertIn(said, done.stderr)
        for arguments in (("get", "runs"), ("explain", "run"), ("explain", "run", "17"),
                          ("get", "runs", self.session, "-o", "dot")):
            self.assertEqual(self.cluster.ctl(*arguments).returncode, 2, arguments)

    def test_tenants_may_not_ask(self):
        done = self.cluster.ctl("get", "runs", self.session,
                            DJINN_ADMIN_TOKEN_FILE=self.cluster.path("dev.token"))
        self.assertEqual(done.returncode, 1)
        self.assertIn("not the admin token", done.stderr)

    def test_a_suspended_worker_is_named(self):
        worker = self.cluster.process("w0")
        worker.send_signal(signal.SIGSTOP)
        self.addCleanup(worker.send_signal, signal.SIGCONT)
        begin = time.monotonic()
        done = self.cluster.ctl("get", "runs", self.session)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("worker w0 was asked and has not answered", done.stderr)
        self.assertGreater(time.monotonic() - begin, 2)
        # Other requests are served meanwhile, and the worker answers again
        # later.
        self.assertTrue(self.cluster.json("get", "sessions")["sessions"])
        worker.send_signal(signal.SIGCONT)
        self.assertTrue(self.cluster.json("get", "runs", self.session)["runs"])


if __name__ == "__main__":
    unittest.main()
