"""A GPU that fails makes its worker not ready, wherever one looks, and gets no new work.

The GPU is a line in a file, which a library in place of NVIDIA's reads.
"""

import json
import os
import subprocess
import unittest

from tests.operating.cluster import PATIENCE, eventually, start_cluster

_LIBRARY = os.path.abspath("gpu_worker/nvml/libfake_nvml.so")
_HEALTHY = "GPU-aaaa 0000:01:00.0 41 0 -"


class GpuHealthTest(unittest.TestCase):

    isolation = "{mode: shared}"

    def setUp(self):
        self.cluster = start_cluster(self, (), extra="monitoring: {listen: '127.0.0.1:0'}\n")
        self.gpus = self.cluster.path("gpus")
        os.environ["DJINN_FAKE_NVML"] = self.gpus
        self.describe(_HEALTHY)

    def describe(self, line):
        with open(self.gpus + ".draft", "w") as file:
            file.write(line + "\n")
        os.rename(self.gpus + ".draft", self.gpus)

    def start(self, library):
        self.cluster.write("w0.yaml", """
worker_id: w0
coordinator: %s
join_token_file: join.token
heartbeat_interval: 100ms
monitoring: {listen: '127.0.0.1:0'}
device: {kind: fake, memory: 1GiB, nvml_library: %s}
isolation: %s
""" % (self.cluster.coordinator, library, self.isolation))
        self.address = self.cluster.start("w0")

    def worker(self):
        [worker] = self.cluster.json("get", "workers")["workers"]
        return worker

    def http(self, path):
        return self.cluster.http("w0", path)

    def grpc_health(self):
        grpcurl = os.path.join(os.path.dirname(os.getcwd()), "grpcurl", "grpcurl")
        done = subprocess.run(
            [grpcurl, "-plaintext", "-d", '{"service": "djinn.v1.Execution"}', self.address,
             "grpc.health.v1.Health/Check"], capture_output=True, timeout=PATIENCE, text=True)
        return json.loads(done.stdout)["status"] if done.returncode == 0 else done.stderr

    def fails(self, line, why):
        """A worker on a healthy GPU hears of what the line says."""
        self.start(_LIBRARY)
        eventually(lambda: self.grpc_health() == "SERVING", "the worker is ready")
        self.describe(line)
        eventually(lambda: self.grpc_health() == "NOT_SERVING", "gRPC health says so")
        status, text = self.http("readyz")
        self.assertEqual(status, 503)
        self.assertEqual(text, "[-]gpu failed: %s; NVML, driver 580.0\nnot ready\n" % why)
        eventually(lambda: self.worker()["gpu_health"]["failure"] == why, "the coordinator knows")
        [head, row] = self.cluster.said("get", "workers").splitlines()
        self.assertEqual(row.split()[head.split().index("STATE")], "GPU-FAILS")
        self.assertIn("fails: " + why, self.cluster.said("get", "workers", "-o", "wide"))
        self.assertIn("none: its GPU fails", self.cluster.said("get", "worker", "w0"))
        self.assertIn("has a failing device: " + why,
                      self.cluster.said("explain", "placement", "dev"))
        self.assertIn('djinn_ready{check="gpu"} 0', self.http("metrics")[1])
        # It stays alive: a restart would not repair the GPU.
        self.assertEqual(self.http("livez")[0], 200)

    def test_an_xid(self):
        self.fails("GPU-aaaa 0000:01:00.0 41 0 79", "Xid 79")
        self.assertIn('djinn_worker_gpu_xid_events_total{worker="w0",xid="79"} 1',
                      self.http("metrics")[1])

    def test_an_uncorrected_ecc_error(self):
        self.fails("GPU-aaaa 0000:01:00.0 41 1 -",
                   "1 uncorrected ECC errors since the driver was loaded")
        self.assertIn('djinn_worker_gpu_uncorrected_ecc_errors{worker="w0"} 1',
                      self.http("metrics")[1])

    def test_a_program_fault_is_counted_and_no_failure(self):
        self.start(_LIBRARY)
        self.describe("GPU-aaaa 0000:01:00.0 63 0 31")
        eventually(lambda: 'xid="31"} 1' in self.http("metrics")[1], "the Xid is counted")
        eventually(lambda: self.http("readyz") == (200, "ok\n"), "the worker is ready")
        eventually(lambda: self.worker()["gpu_health"].get("last_xid") == 31,
                   "the coordinator knows")
        self.assertEqual(self.worker()["gpu_health"]["temperature_celsius"], 63)

    def test_without_the_library(self):
        self.start("libnone-nvml.so.1")
        eventually(lambda: self.http("readyz") == (200, "ok\n"), "the worker is ready")
        source = eventually(lambda: self.worker().get("gpu_health", {}).get("source"),
                            "the coordinator knows")
        self.assertRegex(source, "^unavailable: .*libnone-nvml.so.1")
        self.assertIn(source, self.cluster.said("get", "worker", "w0"))
        self.assertIn("unavailable: ", self.http("readyz?verbose")[1])
        self.assertIn('djinn_worker_gpu_monitored{worker="w0"} 0', self.http("metrics")[1])


class WalledGpuHealthTest(GpuHealthTest):
    """The same of a worker whose tenants have processes: its supervisor asks the library."""

    isolation = "{mode: process, executors: 1}"


if __name__ == "__main__":
    unittest.main()
