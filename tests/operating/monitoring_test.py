"""The metrics of real processes are well-formed, and are those of the reference."""

import os
import re
import signal
import subprocess
import tempfile
import unittest

from tests.operating.cluster import PATIENCE, Cluster, eventually

_TYPE = re.compile(r"^# TYPE (\w+) (\w+)$", re.MULTILINE)
_ROW = re.compile(r"^\| `(\w+)(?:\{([\w,]*)\})?` \| (\w+) \| ([\w, ]+) \|", re.MULTILINE)
_SAMPLE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$", re.MULTILINE)
# Metrics whose labels nothing in this test increments. metrics_move_test moves
# each of them, or names the test that does.
_NOT_CAUSED = {
    # The workers of this test have CPUs.
    "djinn_worker_executor_context_bytes", "djinn_worker_gpu_monitored",
    "djinn_worker_gpu_process_running", "djinn_worker_gpu_process_starts_total",
    "djinn_worker_gpu_temperature_celsius",
    "djinn_worker_gpu_uncorrected_ecc_errors", "djinn_worker_gpu_xid_events_total",
    # A worker without processes per tenant has none of these.
    "djinn_worker_device_handovers_total", "djinn_worker_executor_deaths_total",
    "djinn_worker_executor_ends_total", "djinn_worker_executors", "djinn_worker_overdue_turns_total",
    "djinn_worker_refused_system_calls_total", "djinn_worker_content_adoptions_total",
    "djinn_worker_kept_content_bytes",
    # No traces are configured.
    "djinn_trace_export_failures_total", "djinn_trace_spans_total",
    # No client makes a checkpoint, and none loses its worker.
    "djinn_checkpoint_bytes_total", "djinn_checkpoints_total", "djinn_replayed_nodes_total",
    "djinn_certificate_expiry_timestamp_seconds", "djinn_migrations_total",
    "djinn_pending_leases", "djinn_preemptions_total", "djinn_returned_leases_total",
    "djinn_run_deadlines_total", "djinn_worker_device_events_total"}
_HISTOGRAM_PARTS = ("_bucket", "_sum", "_count")


def _promtool():
    path = os.path.join(os.path.dirname(os.getcwd()), "promtool", "promtool")
    if not os.path.exists(path):
        raise AssertionError(
            "promtool is missing: `./djinn test //tests/operating/...` unpacks it")
    return path


# The tenants have every part of a quota that metrics show.
_TENANTS = """
tenants:
  - name: dev
    token_file: dev.token
    cohort: lab
    quota:
      memory_bytes: {nominalQuota: 64GiB, borrowingLimit: 1GiB, lendingLimit: 2GiB}
      device_seconds_per_second: {nominalQuota: 8}
      bytes_per_second: {nominalQuota: 1GB}
"""


class MonitoringTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.cluster = Cluster(
            folder.name, ("w0",), extra="monitoring: {listen: '127.0.0.1:0'}\n",
            worker_extra="content_disk: {directory: %s/contents, limit: 64MiB}\n" % folder.name,
            tenants=_TENANTS)
        cls.addClassCleanup(cls.cluster.stop)
        eventually(lambda: cls.ready("w0"), "the worker joins")
        cls.hold("join.token", expect=None)
        holder = cls.hold("dev.token", expect="ready\n")
        # The coordinator counts a worker that restarts.
        cls.cluster.end("w0", signal.SIGKILL)
        cls.cluster.start("w0")
        eventually(lambda: 'kind="worker_restarted"' in cls.scrape("coordinator"),
                   "the restart is noticed")
        cls.end(holder)
        holder = cls.hold("dev.token", expect="ready\n")
        cls.addClassCleanup(cls.end, holder)
        eventually(lambda: 'state="attached"' in cls.scrape("w0"), "the session is there")
        cls.cluster.said("get", "workers")
        # The metric appears when the coordinator can know every worker.
        eventually(lambda: "djinn_scale_demand_devices" in cls.scrape("coordinator"),
                   "the demand is known")
        cls.texts = {name: cls.scrape(name) for name in ("coordinator", "w0")}

    @classmethod
    def hold(cls, token, expect):
        """A program with this token; what it says first is as expected."""
        program = subprocess.Popen(
            ["tests/operating/hold_session"], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, universal_newlines=True,
            # The first program ends with its worker, so that the numbers are of one.
            env=cls.cluster.environment(
                DJINN_TOKEN_FILE=cls.cluster.path(token), DJINN_RECOVERY="off"))
        if program.stdout.readline() != (expect or ""):
            raise AssertionError("hold_session with " + token)
        if expect is None:
            cls.end(program)
        return program

    @staticmethod
    def end(program):
        program.kill()
        program.communicate(timeout=PATIENCE)

    @classmethod
    def scrape(cls, name):
        status, text = cls.cluster.http(name, "metrics")
        if status != 200:
            raise AssertionError(text)
        return text

    @classmethod
    def ready(cls, name):
        return cls.cluster.http(name, "readyz")[0] == 200

    def documented(self):
        """name -> (labels, type, roles)"""
        with open("docs/reference/metrics.md") as file:
            text = file.read()
        return {name: (set(filter(None, (labels or "").split(","))), kind,
                       set(roles.split(", ")))
                for name, labels, kind, roles in _ROW.findall(text)}

    def test_promtool_has_no_objection(self):
        for name, text in self.texts.items():
            done = subprocess.run(
                [_promtool(), "check", "metrics"], input=text, timeout=PATIENCE,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True)
            self.assertEqual((done.returncode, done.stdout), (0, ""), name)

    def test_the_document_lists_them_all_and_no_others(self):
        found = {}
        for name, text in self.texts.items():
            role = "coordinator" if name == "coordinator" else "worker"
            for metric, kind in _TYPE.findall(text):
                found.setdefault(metric, (kind, set()))[1].add(role)
        listed = {name: (kind, roles) for name, (_, kind, roles) in self.documented().items()}
        self.maxDiff = None
        self.assertLessEqual(_NOT_CAUSED, set(listed))
        self.assertEqual({name: kind for name, (kind, _) in found.items()},
                         {name: kind for name, (kind, _) in listed.items()
                          if name in found or name not in _NOT_CAUSED})
        # A process does not export a counter that it never incremented.
        for name, (_, roles) in found.items():
            self.assertLessEqual(roles, listed[name][1], name)

    def test_labels_are_those_of_the_document(self):
        documented = self.documented()
        for text in self.texts.values():
            for name, labels, value in _SAMPLE.findall(text):
                float(value)
                for part in _HISTOGRAM_PARTS:
                    if name.endswith(part) and name[:-len(part)] in documented:
                        name = name[:-len(part)]
                keys = set(re.findall(r'(\w+)="', labels)) - {"le"}
                self.assertEqual(keys, documented[name][0], name)

    def test_metrics_count_the_events_of_the_program(self):
        coordinator, worker = self.texts["coordinator"], self.texts["w0"]
        self.assertIn('djinn_rejections_total{tenant="",reason="TOKEN_UNKNOWN"} 1\n',
                      coordinator)
        self.assertIn('djinn_worker_state{worker="w0",state="active"} 1\n', coordinator)
        self.assertIn('djinn_tenant_usage{tenant="dev",resource="memory_bytes"} 17179869184\n',
                      coordinator)
        self.assertIn('djinn_tenant_weighted_share_ratio{tenant="dev",cohort="lab"} 0\n', coordinator)
        self.assertIn('djinn_scheduling_attempts_total{result="placed"}', coordinator)
        for check in ("serving", "coordinator", "device"):
            self.assertIn('djinn_ready{check="%s"} 1\n' % check, worker)
        self.assertIn('djinn_ready{check="store"} 1\n', coordinator)
        self.assertRegex(worker, r'djinn_worker_device_available_bytes\{worker="w0"\} [1-9]')
        self.assertIn("djinn_worker_runs_total 1\n", worker)
        self.assertRegex(worker, r'djinn_requests_total\{tenant="dev",phase="\w+",code="OK"\} 1\n')
        self.assertIn("djinn_request_duration_seconds_count 1\n", worker)
        self.assertIn('djinn_oldest_pending_age_seconds{tenant="dev"} 0\n', coordinator)
        self.assertIn('djinn_worker_sessions{tenant="dev",state="attached"} 1\n', worker)
        # The weights of hold_session have 4 MiB.
        self.assertRegex(
            worker, r'djinn_transfer_bytes_total\{path="client_to_worker",kind="bulk"\} 4194304\n')
        self.assertNotRegex(worker, r"djinn_worker_device_busy_seconds_total\{.*\} 0\n")
        self.assertNotIn("djinn_queue_wait_seconds_count 0\n", worker)

    def test_health(self):
        for name in ("coordinator", "w0"):
            self.assertEqual(self.cluster.http(name, "livez"), (200, "ok\n"))
            self.assertEqual(self.cluster.http(name, "readyz")[0], 200)
        status, text = self.cluster.http("w0", "readyz?verbose")
        self.assertEqual(status, 200)
        self.assertRegex(text, r"^\[\+\]serving ok\n\[\+\]coordinator ok\n"
                               r"\[\+\]device ok; \d+ bytes available\nok\n$")


class LonelyWorkerTest(unittest.TestCase):

    def test_a_worker_without_its_coordinator_lives_and_is_not_ready(self):
        with tempfile.TemporaryDirectory() as folder:
            cluster = Cluster(folder, ("w0",), extra="monitoring: {listen: '127.0.0.1:0'}\n")
            self.addCleanup(cluster.stop)
            MonitoringTest.cluster = cluster
            eventually(lambda: MonitoringTest.ready("w0"), "the worker joins")
            cluster.end("coordinator", signal.SIGKILL)
            eventually(lambda: not MonitoringTest.ready("w0"), "the worker notices")
            self.assertEqual(
                cluster.http("w0", "readyz"),
                (503, "[-]coordinator failed: it does not answer, or not yet\nnot ready\n"))
            self.assertEqual(cluster.http("w0", "livez")[0], 200)


if __name__ == "__main__":
    unittest.main()
