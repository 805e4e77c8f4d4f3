"""KEDA's own generated client gets its answers from a coordinator."""

import json
import os
import subprocess
import tempfile
import unittest

from tests.operating.cluster import PATIENCE, Cluster, eventually

_TENANTS = """
lease_request_timeout: 60s
tenants:
  - name: dev
    token_file: dev.token
"""


def _client():
    path = os.path.join(os.path.dirname(os.getcwd()), "keda_client", "keda_client")
    if not os.path.exists(path):
        raise AssertionError(
            "KEDA's client is missing: `./djinn test //tests/scaler/...` builds it")
    return path


class ScalerTest(unittest.TestCase):

    def start(self, settings):
        """A cluster without workers whose scaler listens on a socket."""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        socket = "unix:" + os.path.join(folder.name, "scaler.sock")
        cluster = Cluster(folder.name, (), tenants=_TENANTS, coordinator_extra=settings +
                          "scaler: {listen: '%s', target_utilisation: 0.7}\n" % socket)
        self.addCleanup(cluster.stop)
        self.scaler = socket
        return cluster

    def ask(self, rpc, *metadata):
        """The answer, or what the client printed of a failure."""
        with subprocess.Popen([_client(), self.scaler, rpc] + list(metadata),
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True) as client:
            # A stream ends when its input ends, or earlier if it is refused.
            failed = client.wait(PATIENCE)
            return client.stderr.read() if failed else json.loads(client.stdout.read())

    def hold(self, cluster):
        """A program that wants a worker, and stays."""
        process = subprocess.Popen(
            ["tests/operating/hold_session"], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True,
            env=dict(os.environ, DJINN_COORDINATOR=cluster.coordinator,
                     DJINN_TOKEN_FILE=cluster.path("dev.token")))
        self.addCleanup(self.end, process)
        return process

    @staticmethod
    def end(process):
        process.stdin.close()
        process.wait(PATIENCE)
        process.stdout.close()

    def test_a_scaler_without_full_knowledge_answers_unavailable(self):
        # While workers may still come back, all of them count.
        self.start("worker_timeout: 10m\nlease_valid_for: 20m\n")
        for rpc in ("IsActive", "GetMetrics"):
            answer = self.ask(rpc)
            self.assertIn("Unavailable", answer)
            self.assertIn("does not know every worker yet", answer)
        self.assertEqual(self.ask("GetMetricSpec"),
                         {"metricName": "djinn-demand-devices", "targetSizeFloat": 0.7})
        for rpc in ("IsActive", "GetMetricSpec", "GetMetrics", "StreamIsActive"):
            answer = self.ask(rpc, "phase=decode")
            self.assertIn("InvalidArgument", answer)
            self.assertIn('there is no phase "decode"', answer)

    def test_demand_brings_a_worker_and_state_keeps_it(self):
        cluster = self.start("worker_timeout: 1s\n")
        eventually(lambda: self.ask("IsActive") == {"result": False}, "nobody wants a worker")
        self.assertEqual(self.ask("GetMetrics"),
                         {"metricName": "djinn-demand-devices", "metricValueFloat": 0})
        stream = subprocess.Popen([_client(), self.scaler, "StreamIsActive"],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(self.end, stream)
        self.assertEqual(json.loads(stream.stdout.readline()), {"result": False})

        program = self.hold(cluster)
        # The demand rises from zero: no worker could serve it.
        self.assertEqual(json.loads(stream.stdout.readline()), {"result": True})
        self.assertEqual(self.ask("GetMetrics"),
                         {"metricName": "djinn-demand-devices", "metricValueFloat": 1})
        self.assertEqual(self.ask("IsActive", "phase=training"), {"result": False})

        cluster.write("w0.yaml", """
worker_id: w0
listen: 127.0.0.1:0
coordinator: %s
join_token_file: join.token
heartbeat_interval: 100ms
device: {memory: 1GiB, threads: 1}
""" % cluster.coordinator)
        cluster.start("w0")
        self.assertEqual(program.stdout.readline(), "ready\n")

        # The session is idle, but its storages need at least one worker.
        def kept():
            answer = self.ask("GetMetrics", "targetUtilisation=0.5")
            return isinstance(answer, dict) and answer["metricValueFloat"]
        self.assertGreaterEqual(eventually(kept, "the worker reports"), 0.5)
        self.assertEqual(
            eventually(lambda: self.ask("IsActive"), "an answer"), {"result": True})


if __name__ == "__main__":
    unittest.main()
