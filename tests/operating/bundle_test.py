"""A bundle of a live cluster holds what it says, and no token."""

import json
import tarfile
import unittest

from tests.operating.cluster import eventually, start_cluster


class BundleTest(unittest.TestCase):

    def setUp(self):
        self.cluster = start_cluster(
            self, ("w0",), extra="monitoring: {listen: '127.0.0.1:0'}\n", tokens=("vera",),
            coordinator_extra="operators: [{name: vera, role: viewer, token_file: vera.token}]\n")

    def test_a_bundle_holds_state_configuration_and_redacted_logs(self):
        eventually(lambda: "ACTIVE" in self.cluster.said("get", "workers"), "the worker joins")
        tokens = []
        for name in ("join", "admin", "dev", "vera"):
            with open(self.cluster.path(name + ".token")) as file:
                tokens.append(file.read().strip())
        self.cluster.write("w0.log", "a line\nwith %s, %s and %s\n" % (
            tokens[0], tokens[2], tokens[3]))
        path = self.cluster.path("report.tar")
        said = self.cluster.said(
            "bundle", path, "--config=" + self.cluster.path("coordinator.yaml"),
            "--config=" + self.cluster.path("w0.yaml"), "--log=" + self.cluster.path("w0.log"),
            *["--monitoring=" + address for address in self.cluster.monitoring.values()])
        self.assertNotIn("missing", said)
        with open(path, "rb") as file:
            archive = file.read()
        for token in tokens:
            self.assertNotIn(token.encode(), archive)
        with tarfile.open(path) as tar:
            files = {one.name: tar.extractfile(one).read().decode() for one in tar}
        self.assertEqual(sorted(files), sorted(said.split()))
        for kind in ("workers", "sessions", "tenants", "queues", "leases", "graphs"):
            self.assertIsInstance(json.loads(files["state/%s.json" % kind]), dict)
        self.assertIn('"w0"', files["state/workers.json"])
        one = [files[name] for name in files if name.endswith("coordinator.yaml")][0]
        self.assertIn("# default", one)
        one = [files[name] for name in files if name.endswith("w0.yaml")][0]
        self.assertIn("worker_id: w0", one)
        metrics = [text for name, text in files.items() if name.endswith("metrics.txt")]
        self.assertEqual(len(metrics), 2)
        for text in metrics:
            self.assertIn("djinn_build_info", text)
        log = [text for name, text in files.items() if name.startswith("logs/")][0]
        self.assertEqual(log, "a line\nwith [removed], [removed] and [removed]\n")


if __name__ == "__main__":
    unittest.main()
