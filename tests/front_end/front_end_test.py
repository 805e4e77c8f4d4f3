"""A program that knows nothing but the .proto files runs a graph."""

import json
import subprocess
import unittest

from tests.operating.cluster import PATIENCE, eventually, start_cluster

X = [[1, 2, 3], [4, 5, 6]]
W = [[1, 0, 0, -1], [0, 1, 0, -1], [0, 0, 1, -1]]
B = [1, 0, -1, 0]


class FrontEndTest(unittest.TestCase):
    def setUp(self):
        self.cluster = start_cluster(self, ["w0"])

    def _run(self, *arguments):
        program = subprocess.run(
            ["tests/front_end/layer", *arguments], capture_output=True, text=True,
            timeout=PATIENCE)
        return program.returncode, program.stdout, program.stderr

    def _token(self, name):
        with open(self.cluster.path(name + ".token")) as file:
            return file.read().strip()

    def _graphs(self, *words):
        return json.loads(subprocess.run(
            ["coordinator/ctl/djinnctl", f"--coordinator={self.cluster.coordinator}",
             f"--token_file={self.cluster.path('admin.token')}", "-o", "json", "get",
             *words],
            check=True, capture_output=True, text=True, timeout=PATIENCE).stdout)

    def test_a_layer(self):
        status, out, err = self._run(self.cluster.coordinator, self._token("dev"))
        self.assertEqual((status, err), (0, ""))
        expected = [
            [max(0, B[j] + sum(X[i][k] * W[k][j] for k in range(3))) for j in range(4)]
            for i in range(2)]
        self.assertEqual([[float(v) for v in line.split()] for line in out.splitlines()],
                         expected)
        # The coordinator analysed the graph like any other.
        [listed] = eventually(lambda: self._graphs("graphs")["graphs"], "no graph")
        graph = self._graphs("graph", listed["fingerprint"])
        self.assertEqual([node["role"] for node in graph["meaning"]["nodes"]],
                         ["mlp.up", "mlp.activation"])
        self.assertEqual(graph["meaning"]["nodes"][0]["cost"]["flops"],
                         str(2 * 2 * 3 * 4))

    def test_a_wrong_token(self):
        status, out, err = self._run(self.cluster.coordinator, "someone-else")
        self.assertEqual((status, out), (1, ""))
        self.assertIn("token", err)


if __name__ == "__main__":
    unittest.main()
