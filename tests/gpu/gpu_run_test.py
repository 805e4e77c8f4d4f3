"""The GPU run, on the CPU and as small as it gets."""

import json
import os
import unittest

from tests.gpu import main, walls


class GpuRunTest(unittest.TestCase):
    def test_everything_passes_on_the_cpu(self):
        path = os.path.join(os.environ["TEST_TMPDIR"], "gpu.json")
        status = main.main(["--device=cpu", "--small", "--rounds=2", "--random=25",
                            f"--json={path}"])
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
        self.assertEqual(report["wrong_checks"], [])
        self.assertEqual([row["error"] for row in report["results"]], [""] * 9)
        self.assertTrue(all(row["djinn"] and row["eager"] for row in report["results"]))
        self.assertTrue(all(row["graph"] is None for row in report["results"]))
        self.assertGreater(report["checks"], 40)
        self.assertEqual(status, 0)

    def test_walls_hold_on_the_cpu(self):
        path = os.path.join(os.environ["TEST_TMPDIR"], "walls.json")
        status = walls.main(["--device=cpu", "--memory=512MiB", "--mebibytes=4", "--rounds=1",
                             f"--json={path}"])
        with open(path, encoding="utf-8") as file:
            report = json.load(file)
        self.assertEqual([check for check in report["checks"] if check["error"]], [])
        self.assertEqual(len(report["checks"]), 8)
        self.assertEqual([row["work"] for row in report["results"]],
                         ["request", "training_step", "decode"])
        self.assertEqual(status, 0)
