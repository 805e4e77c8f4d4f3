"""No alert is pending or fires while a cluster serves a mixed load.

Programs of two tenants decode, train and encode, and short programs come and go. Of four workers,
two are removed in order. SILENT_SECONDS says how long.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from tests.operating.cluster import PATIENCE, eventually, start_cluster
from tests.operating.prometheus import Prometheus
from tests.operating.rolling_programs import PROGRAMS

_SECONDS = float(os.environ.get("SILENT_SECONDS", "60"))
_WORKERS = ("w0", "w1", "w2", "w3")
_TENANTS = """
tenants:
  - {name: dev, token_file: dev.token}
  - {name: blue, token_file: blue.token}
"""


class AlertsSilentTest(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.cluster = start_cluster(
            self, _WORKERS, tenants=_TENANTS, tokens=("blue",),
            extra="monitoring: {listen: '127.0.0.1:0'}\n")
        for name in _WORKERS:
            eventually(lambda: self.cluster.http(name, "readyz")[0] == 200, name + " is ready")
        self.programs = {}

    def start(self, name, tenant):
        """Starts a program that runs until the test ends."""
        steps = os.path.join(self.folder, f"{name}-{tenant}.steps")
        log = self.enterContext(open(os.path.join(self.folder, f"{name}-{tenant}.log"), "w+"))
        program = subprocess.Popen(
            [sys.executable, "-m", "tests.operating.rolling_programs", name, steps],
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=log, text=True,
            env=self.cluster.environment(tenant))
        self.addCleanup(program.wait, PATIENCE)
        self.addCleanup(program.kill)
        self.addCleanup(program.stdin.close)
        self.programs[name, tenant] = program, steps, log

    def count_steps(self):
        """Returns the number of steps of each program, all of which must run."""
        found = {}
        for (name, tenant), (program, steps, log) in self.programs.items():
            if program.poll() is not None:
                log.seek(0)
                self.fail(f"{name} of {tenant} ended: {log.read()[-2000:]}")
            try:
                with open(steps, encoding="utf-8") as file:
                    found[name, tenant] = int(file.read() or 0)
            except FileNotFoundError:
                found[name, tenant] = 0
        return found

    def visit(self, tenant):
        """Runs a short program."""
        done = subprocess.run(
            ["tests/operating/hold_session"], stdin=subprocess.DEVNULL, capture_output=True,
            text=True, timeout=PATIENCE, env=self.cluster.environment(tenant), check=False)
        self.assertEqual((done.returncode, done.stdout), (0, "ready\n"), done.stderr)

    def remove_workers(self):
        """Stops one worker, and another one that was drained by hand, for good."""
        self.cluster.end("w2", signal.SIGTERM)
        self.cluster.said("drain", "worker", "w3")
        eventually(lambda: not self.cluster.json("get", "worker", "w3").get("lease_count"),
                   "w3 has no leases")
        self.cluster.end("w3", signal.SIGTERM)
        eventually(lambda: {one["worker_id"] for one in self.cluster.json(
            "get", "workers")["workers"]} == {"w0", "w1"}, "the coordinator forgets both")

    def test_no_alert_under_a_mixed_load(self):
        prometheus = Prometheus(self.folder, self.cluster.monitoring.values())
        self.addCleanup(prometheus.stop)
        eventually(lambda: len(prometheus.ask("query", query="djinn_build_info")["result"])
                   == len(self.cluster.monitoring), "all are scraped")
        # The first evaluation may have come before the first scrape.
        eventually(lambda: prometheus.alerts() == set(), "no alert is pending")
        for name in PROGRAMS:
            self.start(name, "dev")
        self.start("decode", "blue")
        eventually(lambda: all(self.count_steps().values()), "all programs work")
        self.remove_workers()
        begun = self.count_steps()
        end = time.monotonic() + _SECONDS
        rounds = 0
        while time.monotonic() < end:
            self.visit(("dev", "blue")[rounds % 2])
            self.assertEqual(prometheus.alerts(), set())
            rounds += 1
            time.sleep(1)
        steps = self.count_steps()
        for name, before in begun.items():
            self.assertGreater(steps[name], before, name)
        print(f"{rounds} short programs in {_SECONDS:.0f} s, steps {steps}", flush=True)
