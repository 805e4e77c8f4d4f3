"""Loads, other builds and lost peers make their alerts fire in a real Prometheus in time.

With ALERTS_HURRY, the rules' own times (each `for`, and each range) are so many times shorter;
no threshold changes. The faults are the same.
"""

import concurrent.futures
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from tests.operating import other_build
from tests.operating.cluster import PATIENCE, Cluster, eventually
from tests.operating.prometheus import Faults, Prometheus

_HURRY = int(os.environ.get("ALERTS_HURRY", "1"))
# Each of these tenants has a worker of its name, which no other tenant uses.
_TENANTS = ("slow", "late", "full", "thrash", "doomed")
# Programs of one tenant use the quota of the other, whose programs take it back.
_COHORT = """
cohorts: [{name: lab}]
tenants:
  - name: borrower
    token_file: borrower.token
    placement: {required: [lent]}
    cohort: lab
    limits: {memory: 256MiB}
    quota: {memory_bytes: {nominalQuota: 1MiB}}
  - name: lender
    token_file: lender.token
    placement: {required: [lent]}
    cohort: lab
    limits: {memory: 256MiB}
    quota: {memory_bytes: {nominalQuota: 256MiB}}
"""
# Leases whose use a worker keeps until they are billed, and one more.
_LEASES = 65536 + 1
_MONITORING = "monitoring: {listen: '127.0.0.1:0'}\n"


class LoadAlertsFireTest(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        log = self.enterContext(open(os.path.join(
            os.environ.get("TEST_UNDECLARED_OUTPUTS_DIR", self.folder), "log"), "w",
            encoding="utf-8"))
        tenants = _COHORT + "".join(
            f"  - {{name: {name}, token_file: {name}.token, placement: {{required: [{name}]}}}}\n"
            for name in _TENANTS)
        # No worker is lost, and nothing waits for long.
        self.cluster = Cluster(
            self.folder, (), tenants=tenants, tokens=("borrower", "lender", *_TENANTS), log=log,
            coordinator_extra="worker_timeout: 100s\nlease_valid_for: 10m\n" + _MONITORING)
        self.addCleanup(self.cluster.stop)
        for name in ("lent", *_TENANTS):
            self.worker(name, memory="64MiB" if name in ("full", "thrash") else "2GiB")
        self.certify(30)
        self.worker("odd", more="tls: {certificate_file: odd.crt, private_key_file: odd.key}\n")
        self.biller = self.program(
            "slow", "tests/operating/unsettling_coordinator", str(_LEASES))
        # It would report all its ended leases ten times a second.
        self.worker("unbilled", coordinator=self.biller.stdout.readline().strip(),
                    heartbeat="2s")
        for name in self.cluster.monitoring:
            if name != "coordinator":
                eventually(lambda: self.cluster.http(name, "readyz")[0] == 200,
                           name + " is ready")

    def worker(self, name, memory="1GiB", coordinator="", heartbeat="100ms", more=""):
        """Starts a worker that has its name as a capability."""
        self.cluster.write(name + ".yaml", f"""
worker_id: {name}
coordinator: {coordinator or self.cluster.coordinator}
join_token_file: join.token
heartbeat_interval: {heartbeat}
capabilities: [{name}]
device: {{memory: {memory}, threads: 1}}
""" + _MONITORING + more)
        self.cluster.start(name)

    def restart(self, name, signal_number, program=None, **more):
        """Ends a worker, and starts it again with the monitoring port that it had."""
        with open(self.cluster.path(name + ".yaml"), encoding="utf-8") as file:
            text = file.read()
        self.cluster.write(name + ".yaml", text.replace(
            _MONITORING, f"monitoring: {{listen: '{self.cluster.monitoring[name]}'}}\n"))
        self.cluster.end(name, signal_number)
        self.cluster.start(name, program, **more)

    def certify(self, days):
        """Writes a certificate that ends in so many days."""
        self.cluster.write("odd.key", "")
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "ed25519", "-noenc", "-days", str(days),
             "-subj", "/CN=odd", "-keyout", "odd.key", "-out", "odd.crt"],
            cwd=self.folder, check=True, capture_output=True)

    def program(self, tenant, *arguments):
        return self.cluster.program(self, *arguments, tenant=tenant)

    def fault_program(self, name, tenant):
        return self.program(tenant, sys.executable, "-m", "tests.operating.fault_programs", name)

    def step(self, program):
        program.stdin.write("\n")
        program.stdin.flush()
        self.assertEqual(program.stdout.readline(), "done\n")

    def metric(self, name, process, labels=".*"):
        """The sum of a metric's lines with these labels."""
        return sum(float(value) for value in re.findall(
            rf"(?m)^{name}(?:\{{{labels}\}})? (\S+)$", self.cluster.http(process, "metrics")[1]))

    def version(self, process):
        return re.search(r'djinn_build_info{.*version="(.*)"',
                         self.cluster.http(process, "metrics")[1])[1]

    # Loads that go on until `stop` is set. Each says when its fault has begun.

    def mispredict(self, stop, begun):
        """One program waits behind a run whose length nobody knew."""
        blocks = self.fault_program("block", "slow")
        waits = self.fault_program("wait_behind", "slow")
        self.step(blocks)
        self.step(waits)
        while not stop.is_set():
            self.step(blocks)
            eventually(lambda: self.metric("djinn_pending_runs", "slow"), "the run is there")
            began = time.monotonic()
            self.step(waits)
            if time.monotonic() - began > 11:
                begun("DjinnStartsMispredicted")
            self.step(blocks)
            self.step(waits)

    def miss_deadlines(self, stop, begun):
        late = self.fault_program("be_late", "late")
        self.step(late)
        while not stop.wait(15):
            self.step(late)
            begun("DjinnDeadlinesMissed")

    def thrash(self, stop, begun):
        thrashes = self.fault_program("thrash", "thrash")
        while not stop.wait(1):
            self.step(thrashes)
            if self.metric("djinn_state_idle_before_evict_seconds_count", "thrash"):
                begun("DjinnCacheThrashes")

    def take_back(self, stop, begun):
        borrower = self.fault_program("come_and_go", "borrower")
        lender = self.fault_program("come_and_go", "lender")

        def billed():
            return self.metric("djinn_tenant_device_seconds_total", "coordinator",
                               '.*tenant="borrower".*')

        while not stop.wait(5):
            before = billed()
            self.step(borrower)
            # Only billed work can count as lost.
            eventually(lambda: billed() > before + 1, "the work is billed")
            self.step(lender)
            if self.metric("djinn_preemption_lost_device_seconds_total", "coordinator") > 1:
                begun("DjinnDeviceTimeLost")
            for program in (lender, borrower):
                self.step(program)

    def test_faults_fire_their_alerts(self):
        prometheus = Prometheus(self.folder, self.cluster.monitoring.values(), _HURRY)
        self.addCleanup(prometheus.stop)
        eventually(lambda: len(prometheus.ask("query", query="djinn_build_info")["result"])
                   == len(self.cluster.monitoring), "all are scraped")
        faults = Faults(self, prometheus)
        faults.assert_silent(15)

        self.step(self.fault_program("fill", "full"))
        eventually(lambda: self.metric("djinn_worker_memory_pressure", "full") == 2,
                   "the device is full")
        faults.begin("DjinnDeviceFull")
        self.certify(6)
        faults.begin("DjinnCertificateExpires")
        program = self.cluster.path("another-djinn-worker")
        environment = other_build.make(os.path.join("gpu_worker", "djinn-worker"), program)
        self.restart("odd", signal.SIGINT, program, **environment)
        self.assertNotEqual(self.version("odd"), self.version("coordinator"))
        faults.begin("DjinnVersionsDiffer")

        loses = self.fault_program("lose", "doomed")
        self.step(loses)
        self.restart("doomed", signal.SIGKILL)
        self.step(loses)
        eventually(lambda: self.metric("djinn_recoveries_total", "coordinator",
                                       'kind="device_rebound",result="failed"'),
                   "the loss is counted")
        faults.begin("DjinnRecoveriesFail")
        faults.expect("DjinnRecoveriesFail")
        self.assertEqual(self.metric("djinn_worker_unbilled_leases_total", "unbilled"), 0)
        self.biller.stdin.write("\n")
        self.biller.stdin.flush()
        self.assertEqual(self.biller.stdout.readline(), "ended\n")
        eventually(lambda: self.metric("djinn_worker_unbilled_leases_total", "unbilled") == 1,
                   "one lease is not billed")
        faults.begin("DjinnUseNotBilled")
        faults.expect("DjinnUseNotBilled")

        stop = threading.Event()
        loads = concurrent.futures.ThreadPoolExecutor()
        self.addCleanup(loads.shutdown)
        self.addCleanup(stop.set)
        begins = ("DjinnStartsMispredicted", "DjinnDeadlinesMissed", "DjinnCacheThrashes",
                  "DjinnDeviceTimeLost")
        running = [loads.submit(load, stop, faults.begin) for load in (
            self.mispredict, self.miss_deadlines, self.thrash, self.take_back)]

        def all_begun():
            for load in running:
                if load.done():
                    load.result()
            faults.note()
            return set(begins) <= set(faults.at)

        eventually(all_begun, "all loads run")
        alerts = ("DjinnDeviceFull", "DjinnCertificateExpires", "DjinnVersionsDiffer", *begins)
        try:
            faults.expect(*sorted(alerts, key=lambda name: faults.at[name] +
                                  prometheus.waits[name]))
        finally:
            stop.set()
            for load in running:
                load.result(PATIENCE)
        faults.assert_no_others()


if __name__ == "__main__":
    unittest.main()
