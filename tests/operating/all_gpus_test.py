"""One configuration serves all GPUs: a worker for each, restarted when it ends.

The GPUs are lines in a file, which a library in place of NVIDIA's reads; the devices are
plain memory.
"""

import os
import signal
import socket
import subprocess
import unittest

from tests.operating.cluster import PATIENCE, eventually, start_cluster

_LIBRARY = os.path.abspath("gpu_worker/nvml/libfake_nvml.so")
_GPUS = ["GPU-aaaa 0000:01:00.0 41 0 -", "GPU-bbbb 0000:02:00.0 42 0 -",
         "GPU-cccc 0000:03:00.0 43 0 -"]


class _Port:
    """A port that is taken until close()."""

    def __init__(self, port=0):
        self._socket = socket.create_server(("127.0.0.1", port))
        self.port = self._socket.getsockname()[1]
        self.close = self._socket.close


def _adjacent_ports(count):
    """Takes `count` ports with adjacent numbers, and returns them."""

    def take():
        taken = [_Port()]
        try:
            for _ in range(count - 1):
                taken.append(_Port(taken[-1].port + 1))
            return taken
        except (OSError, OverflowError):
            for one in taken:
                one.close()
            return None

    return eventually(take, "adjacent ports are free")


class AllGpusTest(unittest.TestCase):

    def setUp(self):
        self.cluster = start_cluster(self, ())
        self.gpus = self.cluster.path("gpus")
        os.environ["DJINN_FAKE_NVML"] = self.gpus
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)
        self.addCleanup(os.environ.pop, "CUDA_VISIBLE_DEVICES", None)
        self.describe(_GPUS)

    def describe(self, lines):
        with open(self.gpus + ".draft", "w") as file:
            file.write("\n".join(lines) + "\n")
        os.rename(self.gpus + ".draft", self.gpus)

    def configure(self, library=_LIBRARY, extra="", port=0):
        self.cluster.write("w0.yaml", """
worker_id: w0
coordinator: %s
join_token_file: join.token
heartbeat_interval: 100ms
monitoring: {listen: '127.0.0.1:%d'}
device: {kind: 'fake:all', memory: 1GiB, nvml_library: %s}
""" % (self.cluster.coordinator, port, library) + extra)

    def start(self):
        self.configure()
        return self.cluster.start("w0").split()

    def workers(self):
        """The coordinator's workers, by id."""
        return {one["worker_id"]: one
                for one in self.cluster.json("get", "workers").get("workers", [])}

    def active(self):
        return sorted(name for name, one in self.workers().items() if one["state"] == "ACTIVE")

    def readiness(self):
        return self.cluster.http("w0", "readyz?verbose")

    def processes(self):
        """The process of each GPU's worker, by UUID."""
        found = {}
        parent = self.cluster.process("w0").pid
        with open("/proc/%d/task/%d/children" % (parent, parent)) as file:
            pids = file.read().split()
        for task in os.listdir("/proc/%d/task" % parent):
            with open("/proc/%d/task/%s/children" % (parent, task)) as file:
                pids += file.read().split()
        for pid in set(pids):
            try:
                with open("/proc/%s/environ" % pid, "rb") as file:
                    variables = file.read().split(b"\0")
            except OSError:
                continue
            for one in variables:
                if one.startswith(b"CUDA_VISIBLE_DEVICES="):
                    found[one.split(b"=", 1)[1].decode()] = int(pid)
        return found

    def test_each_gpu_has_a_worker_and_health_of_its_own(self):
        addresses = self.start()
        self.assertEqual(len(set(addresses)), 3)
        names = ["w0-gpu0", "w0-gpu1", "w0-gpu2"]
        eventually(lambda: self.active() == names, "all join")
        workers = self.workers()
        self.assertEqual([workers[name]["address"] for name in names], addresses)
        self.assertEqual([workers[name]["gpu_health"]["temperature_celsius"] for name in names],
                         [41, 42, 43])
        eventually(lambda: self.readiness()[0] == 200, "all are ready")
        self.describe([_GPUS[0], "GPU-bbbb 0000:02:00.0 42 0 79", _GPUS[2]])
        eventually(lambda: self.readiness()[0] == 503, "one is not")
        text = self.readiness()[1]
        self.assertIn("[+]gpu0 ok; GPU-aaaa\n", text)
        self.assertRegex(text, r"\[-\]gpu1 failed: .*Xid 79.*GPU-bbbb\n")
        eventually(lambda: self.workers()["w0-gpu1"]["gpu_health"]["failure"] == "Xid 79",
                   "the coordinator knows")
        self.assertEqual(self.workers()["w0-gpu2"]["gpu_health"]["failure"], "")

    def test_tenants_may_have_processes_of_their_own(self):
        self.configure(extra="isolation: {mode: process, executors: 2}")
        self.cluster.start("w0")
        eventually(lambda: len(self.active()) == 3, "all join")
        eventually(lambda: self.readiness()[0] == 200, "all have an executor")

    def test_a_worker_that_is_killed_is_started_again(self):
        self.start()
        eventually(lambda: len(self.active()) == 3, "all join")
        before = self.processes()
        self.assertEqual(sorted(before), ["GPU-aaaa", "GPU-bbbb", "GPU-cccc"])
        incarnation = self.workers()["w0-gpu1"]["incarnation"]
        os.kill(before["GPU-bbbb"], signal.SIGKILL)
        eventually(lambda: self.workers()["w0-gpu1"]["incarnation"] != incarnation,
                   "another process joins under its name")
        after = self.processes()
        self.assertNotEqual(after["GPU-bbbb"], before["GPU-bbbb"])
        self.assertEqual(after["GPU-aaaa"], before["GPU-aaaa"])
        eventually(lambda: self.readiness()[0] == 200, "all are ready again")

    def test_the_variable_of_cuda_chooses(self):
        os.environ["CUDA_VISIBLE_DEVICES"] = "GPU-c,0"
        self.start()
        eventually(lambda: self.active() == ["w0-gpu0", "w0-gpu1"], "two join")
        self.assertEqual(
            self.workers()["w0-gpu0"]["gpu_health"]["temperature_celsius"], 43)

    def test_a_busy_monitoring_port_of_a_worker_stops_nothing(self):
        # The first port is the process's own, and the next ones are the workers'.
        own, *others = _adjacent_ports(1 + len(_GPUS))
        self.addCleanup(others[0].close)
        for one in (own, *others[1:]):
            one.close()
        self.configure(port=own.port)
        self.cluster.start("w0")
        eventually(lambda: len(self.active()) == 3, "all join")
        eventually(lambda: self.readiness()[0] == 200, "all are ready")
        self.describe(["GPU-aaaa 0000:01:00.0 41 0 79", *_GPUS[1:]])
        eventually(lambda: "[-]gpu0 failed" in self.readiness()[1], "the health is true")
        others[0].close()
        self.cluster.monitoring["w0-gpu0"] = "127.0.0.1:%d" % others[0].port

        def scraped():
            try:
                return "djinn_worker" in self.cluster.http("w0-gpu0", "metrics")[1]
            except OSError:
                return False

        eventually(scraped, "the port serves once it is free")
        self.assertIn("[-]gpu0 failed", self.readiness()[1])

    def test_sigterm_ends_them_all(self):
        self.start()
        pids = list(self.processes().values())
        process = self.cluster.process("w0")
        self.cluster.end("w0", signal.SIGTERM)
        self.assertEqual(process.returncode, 0)
        for pid in pids:
            self.assertFalse(os.path.exists("/proc/%d" % pid))

    def test_none_outlives_its_supervisor(self):
        self.start()
        pids = list(self.processes().values())
        self.assertEqual(len(pids), 3)
        self.cluster.end("w0", signal.SIGKILL)

        def gone(pid):
            try:
                with open("/proc/%d/stat" % pid) as file:
                    return file.read().rsplit(")", 1)[1].split()[0] == "Z"
            except OSError:
                return True

        eventually(lambda: all(gone(pid) for pid in pids), "they end")

    def refused(self, *parts):
        done = subprocess.run(
            ["gpu_worker/djinn-worker", "--config=" + self.cluster.path("w0.yaml")],
            capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(done.returncode, 1, done.stderr)
        for part in parts:
            self.assertIn(part, done.stderr)

    def test_a_supervisor_without_a_usable_gpu_says_why(self):
        self.configure(library="libnone-nvml.so.1")
        self.refused("cannot start", "libnone-nvml.so.1")
        self.configure()
        self.describe([])
        self.refused("this machine has no GPU")
        self.describe(_GPUS)
        os.environ["CUDA_VISIBLE_DEVICES"] = "7"
        self.refused("is no number of 3 GPUs")
        del os.environ["CUDA_VISIBLE_DEVICES"]
        # Each worker ends at its start, and says why.
        self.cluster.write("not_a_folder", "")
        self.configure(extra="content_disk: {directory: not_a_folder/x, limit: 1GiB}\n")
        self.refused("no worker of a GPU serves", "gpu2 (GPU-cccc): it ended: exit status 1")


if __name__ == "__main__":
    unittest.main()
