"""Every panel of the dashboards shows a number in a real Prometheus.

Programs generate, decode, train and encode, while workers are drained and killed, quota is taken back and
a queue is stopped. Exceptions are what only a GPU has, and what takes runs that meet.
"""

import collections
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from tests.operating.cluster import PATIENCE, Cluster, eventually
from tests.operating.prometheus import Prometheus
from tests.operating.rolling_programs import PROGRAMS, RunningPrograms

# Programs of one tenant use the quota of the other, whose programs take it back.
_TENANTS = """
cohorts: [{name: lab}]
tenants:
  - {name: dev, token_file: dev.token}
  - {name: stopped, token_file: stopped.token}
  - name: borrower
    token_file: borrower.token
    cohort: lab
    limits: {memory: 256MiB}
    quota: {memory_bytes: {nominalQuota: 1MiB}}
  - name: lender
    token_file: lender.token
    cohort: lab
    limits: {memory: 256MiB}
    quota: {memory_bytes: {nominalQuota: 256MiB}}
"""
_WORKERS = ("w0", "w1", "w2")
# Metrics of panels that only a GPU moves.
_OF_GPUS = {"djinn_worker_device_events_total"}
# Metrics that move only if runs of several sessions meet. metrics_move_test names the tests that
# move them.
_BY_CHANCE = {"djinn_batch_runs_bucket", "djinn_batch_wait_seconds_bucket",
              "djinn_preemption_duration_seconds_bucket"}
# Uploads of 10 MiB that fill a worker's 1 GiB, and more.
_UPLOADS = 120


class PanelsTest(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.log = self.enterContext(open(os.path.join(
            os.environ.get("TEST_UNDECLARED_OUTPUTS_DIR", self.folder), "log"), "w",
            encoding="utf-8"))
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ed25519", "-noenc", "-days", "30",
             "-subj", "/CN=encrypted", "-keyout", "encrypted.key", "-out", "encrypted.crt"],
            cwd=self.folder, check=True, capture_output=True)
        extra_of = {name: f"content_disk: {{directory: {name}.contents, limit: 64MiB}}\n"
                    for name in _WORKERS}
        extra_of["encrypted"] = (
            "tls: {certificate_file: encrypted.crt, private_key_file: encrypted.key}\n")
        self.cluster = Cluster(
            self.folder, (*_WORKERS, "encrypted"), tenants=_TENANTS, log=self.log,
            tokens=("stopped", "borrower", "lender", "wrong"),
            extra="monitoring: {listen: '127.0.0.1:0'}\n",
            coordinator_extra="state_file: state.db\nlease_request_timeout: 10m\n",
            extra_of=extra_of)
        self.addCleanup(self.cluster.stop)
        for name in (*_WORKERS, "encrypted"):
            eventually(lambda: self.cluster.http(name, "readyz")[0] == 200, name + " is ready")
        # Programs do not reach it without its authority.
        self.cluster.said("cordon", "worker", "encrypted")

    def count(self, metric, labels):
        """The coordinator's counter with these labels."""
        return sum(float(value) for value in re.findall(
            rf"(?m)^{metric}\{{.*{labels}.*\}} (\S+)$",
            self.cluster.http("coordinator", "metrics")[1]))

    def busiest(self):
        """The worker with the most leases."""
        leases = self.cluster.json("get", "leases")["leases"]
        return collections.Counter(one["worker_id"] for one in leases).most_common(1)[0][0]

    def step(self, name, steps=1):
        """Runs a program of fault_programs for some steps; it stays."""
        program = self.cluster.program(
            self, sys.executable, "-m", "tests.operating.fault_programs", name)
        for _ in range(steps):
            program.stdin.write("\n")
            program.stdin.flush()
            self.assertEqual(program.stdout.readline(), "done\n", name)

    def disturb(self, programs):
        """Drains a worker, and kills another one, which starts again."""
        drained = self.busiest()
        done = 'reason="drain",result="done"'
        before = self.count("djinn_migrations_total", done)
        self.cluster.said("drain", "worker", drained)
        eventually(lambda: self.count("djinn_migrations_total", done) > before,
                   "a virtual device leaves the drained worker")
        programs.await_steps(1)
        self.cluster.said("uncordon", "worker", drained)
        killed = self.busiest()
        done = 'kind="device_rebound",result="done"'
        before = self.count("djinn_recoveries_total", done)
        self.cluster.end(killed, signal.SIGKILL)
        eventually(lambda: self.count("djinn_recoveries_total", done) > before,
                   "a virtual device recovers")
        programs.await_steps(1)
        self.cluster.start(killed)

    def generate(self):
        """Starts a program that answers prompts; returns a function that has it answer one."""
        program = self.cluster.program(
            self, sys.executable, "-m", "tests.operating.metric_programs")
        self.assertEqual(program.stdout.readline(), "ready\n")

        def tell(command):
            program.stdin.write(command + "\n")
            program.stdin.flush()
            self.assertEqual(program.stdout.readline(), "done\n", command)

        tell("generate")
        return lambda: tell("step")

    def hold(self, tenant):
        program = self.cluster.program(self, "tests/operating/hold_session", tenant=tenant)
        self.assertEqual(program.stdout.readline(), "ready\n", tenant)

    def test_every_panel_shows_a_number(self):
        prometheus = Prometheus(self.folder, self.cluster.monitoring.values())
        self.addCleanup(prometheus.stop)
        programs = RunningPrograms(self, self.cluster, self.log)
        missing = set(prometheus.empty_panels())

        def look():
            """Drops panels that show a number now; an event is shown for a minute."""
            missing.intersection_update(
                query for query in prometheus.empty_panels()
                if not set(re.findall(r"djinn_\w+", query)) & (_OF_GPUS | _BY_CHANCE))

        for name in PROGRAMS:
            programs.start(name, name)
        answer = self.generate()
        programs.await_steps(3)
        look()
        self.step("be_late")
        self.step("save")
        self.hold("borrower")
        self.hold("lender")
        refused = subprocess.run(
            ["tests/operating/hold_session"], stdin=subprocess.DEVNULL, capture_output=True,
            timeout=PATIENCE, check=False, env=self.cluster.environment("wrong"))
        self.assertNotEqual(refused.returncode, 0)
        self.cluster.said("stop", "queue", "stopped")
        self.cluster.program(self, "tests/operating/hold_session", "600", tenant="stopped")
        look()
        self.step("thrash", _UPLOADS)
        look()
        # A rate takes two samples, and some series begin with the first event.
        for _ in range(2):
            self.disturb(programs)
            # Demand is known ten seconds after the coordinator began.
            end = time.monotonic() + 20
            while missing and time.monotonic() < end:
                answer()
                time.sleep(1)
                look()
        self.maxDiff = None
        self.assertEqual(sorted(missing), [])
