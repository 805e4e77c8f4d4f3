"""Each fault makes its alert fire in a real Prometheus in time, and a sound cluster none.

The rules are those that the chart ships, with their own times, so this takes minutes. The
alerts whose faults are loads are in load_alerts_fire_test. Needs root.
"""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import unittest
import urllib.error

from tests.operating.cluster import PATIENCE, Cluster, eventually
from tests.operating.prometheus import Faults, Prometheus, get

_ISOLATED = "DJINN_TEST_ISOLATED"
# The default.
_WORKER_TIMEOUT = 10
_TENANTS = """
cohorts: [{name: lab}]
tenants:
  - name: dev
    token_file: dev.token
    cohort: lab
    limits: {memory: 200MiB}
    quota: {memory_bytes: {nominalQuota: 110MiB, borrowingLimit: 190MiB}}
  - name: blue
    token_file: blue.token
    cohort: lab
    limits: {memory: 200MiB}
    quota: {memory_bytes: {nominalQuota: 300MiB}}
"""
# Longer than this test, so that what waits goes on waiting.
_PATIENT = """
state_file: state/state.db
lease_valid_for: 10m
lease_request_timeout: 30m
line_patience: 40m
"""
# The rule's expression holds so many seconds after the fault, by the alert's name.
_FIRST = {"DjinnWorkerLost": _WORKER_TIMEOUT, "DjinnWorkWaits": 300,
          # More than ten programs are refused.
          "DjinnRequestsRejected": 40}


def _isolate():
    """Starts this program again with mounts of its own."""
    if os.getuid():
        sys.exit("run this as root: it mounts small disks")
    if _ISOLATED not in os.environ:
        os.environ[_ISOLATED] = "yes"
        os.execvp("unshare", ["unshare", "--mount", "--propagation", "private", sys.executable,
                              *sys.argv])


class AlertsFireTest(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        for name, size in (("state", "3900k"), ("contents", "1m")):
            disk = os.path.join(self.folder, name)
            os.mkdir(disk)
            subprocess.run(["mount", "-t", "tmpfs", "-o", f"mode=700,size={size}", "tmpfs", disk],
                           check=True)
            self.addCleanup(subprocess.run, ["umount", "--lazy", disk], check=True)
        self.write("blue.token", "blue-0123456789abcdef")
        self.write("wrong.token", "wrong-0123456789abcdef")
        log = open(os.path.join(os.environ.get("TEST_UNDECLARED_OUTPUTS_DIR", self.folder), "log"),
                   "w", encoding="utf-8")
        self.addCleanup(log.close)
        self.cluster = Cluster(
            self.folder, ("w0", "w1"), extra="monitoring: {listen: '127.0.0.1:0'}\n",
            coordinator_extra=_PATIENT, tenants=_TENANTS, log=log,
            extra_of={"w0": "content_disk: {directory: contents, limit: 64MiB}\n"})
        self.addCleanup(self.cluster.stop)

    def write(self, name, text):
        with open(os.path.join(self.folder, name), "w",
                  opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write(text)

    def ctl(self, *arguments):
        subprocess.run(
            ["coordinator/ctl/djinnctl", *arguments], check=True, timeout=PATIENCE,
            stdout=subprocess.DEVNULL,
            env=dict(os.environ, DJINN_COORDINATOR=self.cluster.coordinator,
                     DJINN_ADMIN_TOKEN_FILE=self.cluster.path("admin.token")))

    def program(self, token, *arguments):
        """Starts a program of the tenant with this token."""
        program = subprocess.Popen(
            ["tests/operating/hold_session", *arguments], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env=dict(os.environ, DJINN_COORDINATOR=self.cluster.coordinator,
                     DJINN_TOKEN_FILE=self.cluster.path(token + ".token")))
        self.addCleanup(program.stdout.close)
        self.addCleanup(program.stdin.close)
        self.addCleanup(program.wait, PATIENCE)
        self.addCleanup(program.kill)
        return program

    def ready(self, name):
        try:
            get(f"http://{self.cluster.monitoring[name]}/readyz")
            return True
        except urllib.error.HTTPError:
            return False

    def refuse_programs(self, stop):
        """Starts programs with a wrong token until `stop` is set."""
        while not stop.wait(1):
            subprocess.run(
                ["tests/operating/hold_session"], stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=PATIENCE,
                check=False,
                env=dict(os.environ, DJINN_COORDINATOR=self.cluster.coordinator,
                         DJINN_TOKEN_FILE=self.cluster.path("wrong.token")))

    def test_faults_fire_their_alerts(self):
        eventually(lambda: self.ready("w0") and self.ready("w1"), "the workers join")
        self.prometheus = Prometheus(self.folder, self.cluster.monitoring.values())
        self.addCleanup(self.prometheus.stop)
        eventually(lambda: len(self.prometheus.ask("query", query="djinn_build_info")["result"])
                   == len(self.cluster.monitoring), "all are scraped")
        faults = Faults(self, self.prometheus)
        faults.assert_silent(15)

        # The disk of the state is smaller than the log of changes, so that what is written
        # next needs room.
        with open(os.path.join(self.folder, "state", "full"), "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError:
                pass

        # The disk of contents is smaller than the content. The program borrows of blue, whose second
        # program then waits: it wants more than the rest of blue's quota, and takes nothing back.
        self.ctl("cordon", "worker", "w1")
        for tenant in ("dev", "blue"):
            self.assertEqual(self.program(tenant).stdout.readline(), "ready\n")
        faults.begin("DjinnContentDiskFails", "DjinnStateNotWritten")
        self.program("blue", "1800")
        eventually(lambda: [one for one in self.prometheus.ask("query", query=(
            'djinn_pending_leases{tenant="blue",reason="quota_exceeded"} > 0'))["result"]],
                   "a program waits for quota")
        faults.begin("DjinnQuotaUnsatisfied", "DjinnWorkWaits")

        stop = threading.Event()
        refused = threading.Thread(target=self.refuse_programs, args=(stop,))
        refused.start()
        self.addCleanup(refused.join)
        self.addCleanup(stop.set)
        faults.begin("DjinnRequestsRejected")

        # A GPU of that size does not exist, nor a host.
        with open(self.cluster.path("w0.yaml"), encoding="utf-8") as file:
            text = file.read()
        self.cluster.write("w0.yaml", text.replace(
            "device: {", "device: {min_free: 4000GiB, "))
        self.cluster.process("w0").send_signal(signal.SIGHUP)
        faults.begin("DjinnNotReady")

        self.cluster.process("w1").send_signal(signal.SIGSTOP)
        self.addCleanup(self.cluster.process("w1").send_signal, signal.SIGCONT)
        faults.begin("DjinnWorkerLost")

        self.cluster.write("coordinator.yaml", "lissen: here\n")
        self.cluster.process("coordinator").send_signal(signal.SIGHUP)
        faults.begin("DjinnConfigReloadFailed")

        faults.expect("DjinnNotReady", "DjinnConfigReloadFailed", "DjinnWorkerLost",
                      "DjinnStateNotWritten", "DjinnQuotaUnsatisfied", first=_FIRST)
        faults.expect("DjinnContentDiskFails", "DjinnRequestsRejected", "DjinnWorkWaits",
                      first=_FIRST)
        faults.assert_no_others()
        self.cluster.end("coordinator", signal.SIGKILL)
        faults.begin("DjinnCoordinatorAbsent")
        faults.expect("DjinnCoordinatorAbsent")
        faults.assert_no_others()


if __name__ == "__main__":
    _isolate()
    unittest.main()
