"""Each family of metrics is moved by what it counts: in one live cluster, or in a named test.

A step of the test does something to the cluster. What a family's samples add up to, over all
processes, then differs from what it was before the step.
"""

import contextlib
import glob
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest

from tests.operating.cluster import PATIENCE, eventually, start_cluster
from tests.operating.trace_test import Collector

_ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))
_ROW = re.compile(r"^\| `(\w+)(?:\{[\w,]*\})?` \| (\w+) \|", re.MULTILINE)
_ENDED = "grpc_server_call_duration_seconds"

# Maps a step to the families that it moves, each with a part of the sample's labels.
_MOVED = {
    "start": {
        "djinn_build_info": "",
        "djinn_config_last_reload_success_timestamp_seconds": "",
        "djinn_config_last_reload_successful": "",
        "djinn_content_disk_writable": "",
        "djinn_coordinator_leader": "",
        "djinn_coordinator_leader_transitions_total": "",
        "djinn_coordinator_term": "",
        "djinn_ready": 'check="serving"',
        "djinn_store_write_duration_seconds": "",
        "djinn_store_writes_total": 'result="ok"',
        "djinn_tenant_quota_borrow_limit": 'tenant="borrower"',
        "djinn_tenant_quota_lend_limit": 'tenant="lender"',
        "djinn_tenant_quota_nominal": 'tenant="lender"',
        "djinn_worker_device_available_bytes": 'worker="w0"',
        "djinn_worker_device_memory_bytes": 'residency="free"',
        "djinn_worker_housekeeping_seconds_total": "",
        "djinn_worker_report_age_seconds": 'worker="w0"',
        "djinn_worker_state": 'state="active"',
        "grpc_server_call_started_total": "WorkerRegistry/Synchronize",
        "process_cpu_seconds_total": "",
        "process_open_fds": "",
        "process_resident_memory_bytes": "",
        "process_start_time_seconds": "",
    },
    "call": {
        "grpc_server_call_rcvd_total_compressed_message_size_bytes": "Session/Attach",
        "grpc_server_call_sent_total_compressed_message_size_bytes": "Admin/ListWorkers",
        _ENDED: 'Session/Attach",grpc_status="UNAUTHENTICATED"',
        "djinn_rejections_total": 'reason="TOKEN_UNKNOWN"',
    },
    "generate": {
        "djinn_cache_bytes": 'cache="plan"',
        "djinn_cache_requests_total": 'cache="plan"',
        "djinn_graph_store_bytes": "",
        "djinn_graphs": "",
        "djinn_inter_result_seconds": "",
        "djinn_queue_wait_seconds": "",
        "djinn_request_duration_seconds": "",
        "djinn_requests_total": 'tenant="dev",phase="llm_decode",code="OK"',
        "djinn_scale_demand_devices": 'phase="llm_decode"',
        "djinn_scale_desired_workers": 'phase="llm_decode"',
        "djinn_scheduling_attempts_total": 'result="placed"',
        "djinn_scheduling_decision_seconds": "",
        "djinn_start_prediction_error_seconds": "",
        "djinn_tenant_bytes_total": 'tenant="dev"',
        "djinn_tenant_device_seconds_total": 'tenant="dev",phase="llm_decode"',
        "djinn_tenant_usage": 'tenant="dev",resource="cache_bytes"',
        "djinn_time_to_first_result_seconds": "",
        "djinn_trace_spans_total": 'result="exported"',
        "djinn_transfer_bytes_total": 'path="client_to_worker",kind="message"',
        "djinn_worker_connections": "",
        "djinn_worker_device_busy_seconds_total": 'phase="llm_decode"',
        "djinn_worker_executor_seconds_total": "",
        "djinn_worker_kv_bytes": 'tenant="dev"',
        "djinn_worker_kv_sessions": 'tenant="dev"',
        "djinn_worker_nodes_total": 'result="ok"',
        "djinn_worker_runs_total": "",
        "djinn_worker_sessions": 'tenant="dev",state="attached"',
        "djinn_worker_step_seconds": "",
        "djinn_worker_tenant_memory_bytes": 'tenant="dev"',
    },
    "the streams end": {_ENDED: "Execution/Control"},
    "overwrite": {
        "djinn_worker_write_copies_total": "",
        _ENDED: "Execution/Bulk",
    },
    "register": {"djinn_worker_models": 'tenant="dev"', "djinn_worker_model_bytes": 'tenant="dev"'},
    "register too many": {"djinn_worker_refused_models": 'tenant="dev"'},
    "share": {
        "djinn_content_challenges_total": 'result="proven"',
        "djinn_worker_proof_seconds_total": "",
    },
    "fill": {
        "djinn_trace_export_failures_total": "",
        "djinn_worker_memory_pressure": 'worker="small"',
    },
    "evict": {
        "djinn_cache_evictions_total": 'cache="content"',
        "djinn_state_idle_before_evict_seconds": "",
    },
    "be late": {"djinn_run_deadlines_total": 'tenant="full"'},
    "stop a queue": {
        "djinn_queue_stopped": 'tenant="blue"',
        "djinn_pending_leases": 'tenant="blue",reason="queue_stopped"',
        "djinn_oldest_pending_age_seconds": 'tenant="blue"',
    },
    "checkpoint": {
        "djinn_checkpoints_total": 'tenant="dev"',
        "djinn_checkpoint_bytes_total": 'tenant="dev"',
        "djinn_checkpoint_duration_seconds": "",
    },
    "drain": {
        "djinn_migrations_total": 'reason="drain"',
        "djinn_migration_pause_seconds": "",
        "djinn_worker_channel_events_total": 'event="created"',
    },
    "lose a worker": {
        "djinn_recoveries_total": 'kind="device_rebound"',
        "djinn_recovery_duration_seconds": 'kind="device_rebound",stage="total"',
        "djinn_replayed_nodes_total": 'tenant="dev"',
    },
    "borrow": {"djinn_tenant_weighted_share_ratio": 'tenant="borrower"'},
    "take back": {
        "djinn_preemptions_total": 'victim_tenant="borrower"',
        "djinn_preemption_lost_device_seconds_total": "",
    },
    "walls": {
        "djinn_worker_executors": "",
        "djinn_worker_device_handovers_total": "",
        "djinn_worker_content_adoptions_total": "",
        "djinn_worker_kept_content_bytes": 'use="lent"',
    },
    "hog": {"djinn_worker_overdue_turns_total": ""},
    "kill an executor": {
        "djinn_worker_executor_deaths_total": 'tenant="red"',
        "djinn_worker_executor_ends_total": 'reason="EXECUTOR_LOST"',
    },
}

# Maps a reason to the families that no step moves, each with the test that moves it.
_CHANCE = "it takes runs that meet, or a moment that no scrape hits"
_GPU = "only GPUs have it"
_ELSEWHERE = {
    _CHANCE: {
        "djinn_batch_rows": "gpu_worker/executor/batch_test.cc",
        "djinn_batch_runs": "gpu_worker/executor/batch_test.cc",
        "djinn_batch_tenants": "gpu_worker/executor/batch_test.cc",
        "djinn_batch_wait_seconds": "gpu_worker/executor/batching_window_test.cc",
        "djinn_pending_runs": "tests/batching/batching_test.py",
        "djinn_preemption_duration_seconds": "gpu_worker/executor/preemption_test.cc",
        "djinn_recomputed_nodes_total": "gpu_worker/streams/resume_test.cc",
        "djinn_worker_offers": "gpu_worker/core/worker_metrics_test.cc",
        "djinn_worker_unreached_tenants": "coordinator/cluster/rebind_test.cc",
    },
    "it takes 65,536 leases": {
        "djinn_worker_unbilled_leases_total": "gpu_worker/leases/credits_test.cc",
    },
    "it takes TLS": {
        "djinn_certificate_expiry_timestamp_seconds":
            "common/net/monitoring/certificate_metrics_test.cc",
    },
    "it takes a disk that fails": {
        "djinn_content_disk_failures_total": "gpu_worker/store/disk_store_test.cc",
    },
    "it takes a client that gives leases back": {
        "djinn_returned_leases_total": "coordinator/cluster/members_test.cc",
    },
    "it takes an attack": {
        "djinn_worker_refused_system_calls_total": "tests/security/escapes_test.cc",
    },
    "no kernel of PyTorch returns its operand, or lacks memory, on a CPU": {
        "djinn_worker_alias_copies_total": "gpu_worker/core/worker_metrics_test.cc",
        "djinn_worker_retried_nodes_total": "gpu_worker/core/worker_metrics_test.cc",
    },
    _GPU: {
        "djinn_worker_device_events_total": "gpu_worker/core/worker_metrics_test.cc",
        "djinn_worker_executor_context_bytes": "gpu_worker/supervisor/supervisor_test.cc",
        "djinn_worker_gpu_monitored": "tests/operating/gpu_health_test.py",
        "djinn_worker_gpu_process_running": "gpu_worker/gpus/gpu_supervisor_test.cc",
        "djinn_worker_gpu_process_starts_total": "gpu_worker/gpus/gpu_supervisor_test.cc",
        "djinn_worker_gpu_temperature_celsius": "gpu_worker/nvml/nvml_test.cc",
        "djinn_worker_gpu_uncorrected_ecc_errors": "tests/operating/gpu_health_test.py",
        "djinn_worker_gpu_xid_events_total": "tests/operating/gpu_health_test.py",
    },
}

_TENANTS = """
cohorts: [{name: lab}]
tenants:
  - name: dev
    token_file: dev.token
    share_contents: true
    totals: {max_models: 1}
    placement: {required: [general]}
  - {name: blue, token_file: blue.token, share_contents: true, placement: {required: [general]}}
  - {name: full, token_file: full.token, placement: {required: [small]}}
  - {name: red, token_file: red.token, share_contents: true, placement: {required: [walled]}}
  - {name: green, token_file: green.token, share_contents: true, placement: {required: [walled]}}
  - name: borrower
    token_file: borrower.token
    placement: {required: [general]}
    cohort: lab
    limits: {memory: 256MiB}
    quota: {memory_bytes: {nominalQuota: 1MiB, borrowingLimit: 255MiB}}
  - name: lender
    token_file: lender.token
    placement: {required: [general]}
    cohort: lab
    limits: {memory: 256MiB}
    quota: {memory_bytes: {nominalQuota: 256MiB, lendingLimit: 256MiB}}
"""
_NAMES = ("blue", "full", "red", "green", "borrower", "lender")
_EVERYWHERE = "monitoring: {listen: '127.0.0.1:0'}\n"
# Maps a worker to its capability, memory and further configuration. Only w0 finds
# the collector of traces.
_WORKERS = {
    "w0": ("general", "1GiB", "content_disk: {directory: contents, limit: 64MiB}\n"
           "tracing: {endpoint: '%(collector)s'}\n"),
    "w1": ("general", "1GiB", ""),
    "small": ("small", "64MiB", "tracing: {endpoint: '127.0.0.1:1'}\n"),
    "walled": ("walled", "2GiB",
               "isolation: {mode: process, executors: 3, content_memory: 64MiB}\n"),
}


def _documented():
    """{name: type} of the reference."""
    with open("docs/reference/metrics.md", encoding="utf-8") as file:
        return dict(_ROW.findall(file.read()))


def _children(pid):
    """The ids of the process's children."""
    found = []
    for path in glob.glob(f"/proc/{pid}/task/*/children"):
        with open(path, encoding="utf-8") as file:
            found += map(int, file.read().split())
    return found


class TableTest(unittest.TestCase):

    def test_each_family_of_the_reference_is_in_one_table(self):
        moved = {name for families in _MOVED.values() for name in families}
        elsewhere = [name for families in _ELSEWHERE.values() for name in families]
        self.assertEqual(len(set(elsewhere)), len(elsewhere))
        self.assertEqual(moved & set(elsewhere), set())
        self.maxDiff = None
        self.assertEqual(sorted(moved | set(elsewhere)), sorted(_documented()))

    def test_each_named_test_mentions_its_family(self):
        for families in _ELSEWHERE.values():
            for name, path in families.items():
                with self.subTest(name):
                    with open(os.path.join(_ROOT, path), encoding="utf-8") as file:
                        self.assertTrue(name in file.read(), path)


class MetricsMoveTest(unittest.TestCase):

    def setUp(self):
        outputs = os.environ.get("TEST_UNDECLARED_OUTPUTS_DIR")
        log = self.enterContext(open(
            os.path.join(outputs, "log") if outputs else os.devnull, "w", encoding="utf-8"))
        self.types = _documented()
        self.cluster = start_cluster(
            self, (), tenants=_TENANTS, tokens=_NAMES, log=log, extra=_EVERYWHERE,
            coordinator_extra="worker_timeout: 20s\n")
        folder = self.enterContext(tempfile.TemporaryDirectory())
        collector = Collector(self, folder)
        for name, (capability, memory, more) in _WORKERS.items():
            self.cluster.write(name + ".yaml", f"""
worker_id: {name}
coordinator: {self.cluster.coordinator}
join_token_file: join.token
heartbeat_interval: 100ms
capabilities: [{capability}]
device: {{memory: {memory}, threads: 1}}
""" + more % {"collector": collector.address} + _EVERYWHERE)
            self.cluster.start(name)
        eventually(lambda: len(self.cluster.json("get", "workers")["workers"]) == len(_WORKERS),
                   "the workers join")
        self.processes = {tenant: self.cluster.program(
            self, sys.executable, "-m", "tests.operating.metric_programs", tenant=tenant)
            for tenant in ("dev", *_NAMES)}
        for process in self.processes.values():
            self.assertEqual(process.stdout.readline(), "ready\n")
        self.done = []

    def scrape(self):
        """[(sample, labels, value)] of all processes."""
        found = []
        for name in self.cluster.monitoring:
            status, text = self.cluster.http(name, "metrics")
            self.assertEqual(status, 200, text)
            found += [(sample, labels, float(value)) for sample, labels, value in re.findall(
                r"(?m)^(\w+)(?:\{(.*)\})? (\S+)$", text)]
        return found

    def total(self, samples, name, part):
        """Returns the sum of the family's samples whose labels contain this part."""
        if self.types[name] == "histogram":
            name += "_count"
        return sum(value for sample, labels, value in samples
                   if sample == name and part in labels)

    def expect(self, step, act, before=None, again=None):
        """Does a step, and `again` and again; returns once it has moved its families."""
        before = self.scrape() if before is None else before
        act()
        still = {}

        def moved():
            after = self.scrape()
            still.clear()
            still.update({name: part for name, part in _MOVED[step].items()
                          if self.total(after, name, part) == self.total(before, name, part)})
            if still and again is not None:
                again()
            return not still

        try:
            eventually(moved, step)
        except AssertionError:
            self.fail(f"{step} does not move {still}")
        self.done.append(step)

    def tell(self, tenant, what):
        """Has the tenant's process do something; returns when it is done."""
        process = self.processes[tenant]
        process.stdin.write(what + "\n")
        process.stdin.flush()
        self.assertEqual(process.stdout.readline(), "done\n", what)

    def run_program(self, tenant, name, steps=1):
        """Begins a program and has it make steps."""
        self.tell(tenant, name)
        self.step(tenant, steps - 1)

    def step(self, tenant, steps=1):
        for _ in range(steps):
            self.tell(tenant, "step")

    def end(self, tenant):
        self.tell(tenant, "end")

    def workers_of(self, tenant):
        """The workers of the tenant's leases, which are two while it migrates."""
        return {lease["worker_id"] for lease in self.cluster.json("get", "leases")["leases"]
                if lease["tenant"] == tenant}

    def refuse(self):
        """Operators ask, and a program with a wrong token is refused."""
        self.cluster.said("get", "workers")
        with subprocess.Popen(
                ["tests/operating/hold_session"], stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                env=self.cluster.environment("join")) as program:
            program.wait(PATIENCE)

    def lose(self):
        """Kills the program's worker and starts it again; the program goes on."""
        [worker] = self.workers_of("dev")
        self.cluster.end(worker, signal.SIGKILL)
        self.cluster.start(worker)
        self.step("dev")

    def drain(self):
        """Drains the program's worker; the program goes on at the other one."""
        [worker] = self.workers_of("dev")
        self.cluster.said("drain", "worker", worker)
        eventually(lambda: worker not in self.workers_of("dev"), "it migrates")
        self.step("dev")
        self.cluster.said("uncordon", "worker", worker)

    def hog(self):
        """Makes one tenant's turn long while the other tenant has work."""
        self.processes["red"].stdin.write("step\n")
        self.processes["red"].stdin.flush()
        self.step("green", 3)
        self.assertEqual(self.processes["red"].stdout.readline(), "done\n")

    def kill_executors(self):
        for pid in _children(self.cluster.process("walled").pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def test_each_step_moves_its_families(self):
        self.expect("start", lambda: None, before=[])
        self.expect("call", self.refuse)
        # Tenants that share contents share a worker.
        self.cluster.said("cordon", "worker", "w1")
        # The coordinator looks for caches while the program goes on.
        self.expect("generate", lambda: self.run_program("dev", "generate"),
                    again=lambda: self.step("dev"))
        self.expect("the streams end", lambda: self.end("dev"))
        self.expect("overwrite", self.overwrite)
        self.expect("register", lambda: self.run_program("dev", "register"))
        self.expect("register too many", lambda: self.step("dev"))
        self.end("dev")
        self.run_program("dev", "share")
        self.expect("share", lambda: self.run_program("blue", "share"))
        self.end("blue")
        self.end("dev")
        self.expect("fill", lambda: self.run_program("full", "fill"))
        self.expect("evict", lambda: self.step("full", 6))
        self.end("full")
        self.expect("be late", lambda: self.run_program("full", "be_late", 3))
        self.end("full")
        self.expect("stop a queue", self.wait_in_a_stopped_queue)
        self.cluster.said("resume", "queue", "blue")
        self.waiting.kill()
        self.expect("checkpoint", lambda: self.run_program("dev", "keep", 2))
        self.end("dev")
        self.cluster.said("uncordon", "worker", "w1")
        self.run_program("dev", "recover", 2)
        self.expect("drain", self.drain)
        self.expect("lose a worker", self.lose)
        self.end("dev")
        self.expect("borrow", lambda: self.run_program("borrower", "borrow"))
        self.expect("take back", lambda: self.run_program("lender", "borrow"))
        self.end("lender")
        self.expect("walls", self.share_behind_walls)
        self.end("red")
        self.end("green")
        self.run_program("red", "hog")
        self.run_program("green", "generate")
        # Both tenants have to have work at the same moment.
        self.expect("hog", self.hog, again=self.hog)
        self.expect("kill an executor", self.kill_executors)
        self.assertEqual(self.done, list(_MOVED))

    def overwrite(self):
        self.run_program("dev", "overwrite")
        self.end("dev")

    def wait_in_a_stopped_queue(self):
        self.cluster.said("stop", "queue", "blue")
        self.waiting = self.cluster.program(
            self, "tests/operating/hold_session", str(PATIENCE), tenant="blue")

    def share_behind_walls(self):
        """Makes the supervisor lend the second tenant contents of the first."""
        self.run_program("red", "share", 2)
        eventually(lambda: self.total(self.scrape(), "djinn_worker_kept_content_bytes", ""),
                   "the supervisor has the content")
        self.run_program("green", "share", 2)


if __name__ == "__main__":
    unittest.main()
