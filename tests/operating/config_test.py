"""The configuration is shown with its sources, and workers take over changes."""

import json
import os
import signal
import subprocess
import unittest
import urllib.request

from tests.operating.cluster import PATIENCE, eventually, start_cluster

_PROGRAMS = {"coordinator": "coordinator/djinn-coordinator", "w0": "gpu_worker/djinn-worker"}


class ConfigTest(unittest.TestCase):

    def setUp(self):
        self.cluster = start_cluster(self, ("w0",), extra="monitoring: {listen: '127.0.0.1:0'}\n")

    def program(self, name, *flags):
        return subprocess.run([_PROGRAMS[name], *flags], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=PATIENCE, universal_newlines=True)

    def read(self, name):
        with open(self.cluster.path(name)) as file:
            return file.read()

    def worker(self):
        done = subprocess.run(
            ["coordinator/ctl/djinnctl", "get", "worker", "w0", "-o", "json"],
            stdout=subprocess.PIPE, timeout=PATIENCE, universal_newlines=True,
            env=dict(os.environ, DJINN_COORDINATOR=self.cluster.coordinator,
                     DJINN_ADMIN_TOKEN_FILE=self.cluster.path("admin.token")))
        return json.loads(done.stdout) if done.returncode == 0 else {}

    def metrics(self):
        url = "http://%s/metrics" % self.cluster.monitoring["w0"]
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
            return answer.read().decode()

    def test_the_printed_configuration_is_equivalent_and_has_no_secrets(self):
        for name in _PROGRAMS:
            path = self.cluster.path(name + ".yaml")
            shown = self.program(name, "--config=" + path, "--print-config")
            self.assertEqual((shown.returncode, shown.stderr), (0, ""))
            self.assertIn("join_token_file: join.token  # %s.yaml:" % name, shown.stdout)
            self.assertIn("  # default\n", shown.stdout)
            for token in ("join", "admin", "dev"):
                self.assertNotIn(self.read(token + ".token").strip(), shown.stdout)
            self.cluster.write("shown.yaml", shown.stdout)
            again = self.program(name, "--config=" + self.cluster.path("shown.yaml"),
                                 "--print-config")
            self.assertEqual(again.returncode, 0, again.stderr)

            def values(text):
                return sorted(line.rsplit("  # ", 1)[0] for line in text.splitlines())

            self.assertEqual(values(again.stdout), values(shown.stdout))

    def test_a_wrong_file_is_not_shown(self):
        self.cluster.write("wrong.yaml", self.read("w0.yaml") + "wrong: 1\n")
        done = self.program("w0", "--config=" + self.cluster.path("wrong.yaml"), "--print-config")
        self.assertEqual((done.returncode, done.stdout), (2, ""))
        self.assertIn("wrong: unknown key", done.stderr)

    def test_a_worker_takes_over_changes(self):
        eventually(lambda: self.worker().get("state") == "ACTIVE", "the worker joins")
        text = self.read("w0.yaml")
        self.cluster.write("w0.yaml", text + "price_per_hour: 2.5\ncapabilities: [big]\n")
        self.cluster.process("w0").send_signal(signal.SIGHUP)
        eventually(lambda: self.worker().get("price_per_hour") == 2.5, "the price is known")
        self.assertEqual(self.worker()["capabilities"], ["big"])
        self.assertIn("djinn_config_last_reload_successful 1\n", self.metrics())
        # A file with an error changes nothing.
        self.cluster.write("w0.yaml", text + "price_per_hour: 3\nwrong: 1\n")
        self.cluster.process("w0").send_signal(signal.SIGHUP)
        eventually(lambda: "djinn_config_last_reload_successful 0\n" in self.metrics(),
                   "the error shows")
        self.assertEqual(self.worker()["price_per_hour"], 2.5)

    def test_join_tokens_change_without_a_restart(self):
        eventually(lambda: self.worker().get("state") == "ACTIVE", "the worker joins")
        self.cluster.write("join.token", "another-0123456789abcdef")
        self.cluster.process("coordinator").send_signal(signal.SIGHUP)
        self.cluster.process("w0").send_signal(signal.SIGHUP)
        eventually(lambda: "djinn_ready" in self.metrics(), "the worker is there")
        # A coordinator that starts with the new token lets the worker in again.
        address = self.cluster.coordinator
        text = self.read("coordinator.yaml").replace("listen: 127.0.0.1:0", "listen: " + address)
        self.cluster.write("coordinator.yaml", text)
        self.cluster.end("coordinator", signal.SIGKILL)
        self.cluster.start("coordinator")
        eventually(lambda: self.worker().get("state") == "ACTIVE", "the worker joins again")


if __name__ == "__main__":
    unittest.main()
