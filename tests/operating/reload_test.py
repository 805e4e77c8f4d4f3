"""A running coordinator takes over tenants and quotas from its configuration."""

import json
import os
import signal
import subprocess
import tempfile
import unittest
import urllib.request

from tests.operating.cluster import PATIENCE, Cluster, eventually

_DEV = """
tenants:
  - name: dev
    token_file: dev.token
"""
_OTHER = """
tenants:
  - name: other
    token_file: other.token
"""


class ReloadTest(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.cluster = Cluster(
            folder.name, ("w0",), tenants=_DEV,
            coordinator_extra="monitoring: {listen: '127.0.0.1:0'}\n")
        self.addCleanup(self.cluster.stop)
        self.cluster.write("other.token", "other-0123456789abcdef")
        self.environment = dict(
            os.environ, DJINN_COORDINATOR=self.cluster.coordinator,
            DJINN_TOKEN_FILE=self.cluster.path("dev.token"),
            DJINN_ADMIN_TOKEN_FILE=self.cluster.path("admin.token"))

    def ctl(self, *arguments):
        done = subprocess.run(
            ["coordinator/ctl/djinnctl", *arguments], env=self.environment,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=PATIENCE,
            universal_newlines=True)
        return done.returncode, done.stdout, done.stderr

    def get(self, kind):
        return json.loads(self.ctl("get", kind, "-o", "json")[1])[kind]

    def metric(self, name):
        url = "http://%s/metrics" % self.cluster.monitoring["coordinator"]
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
            for line in answer.read().decode().splitlines():
                if line.startswith(name + " "):
                    return float(line.split()[1])
        raise AssertionError("no " + name)

    def hold(self, token):
        program = subprocess.Popen(
            ["tests/operating/hold_session"], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, universal_newlines=True,
            env=dict(self.environment, DJINN_TOKEN_FILE=self.cluster.path(token)))
        self.addCleanup(program.stdin.close)
        self.addCleanup(program.stdout.close)
        self.addCleanup(program.wait, PATIENCE)
        self.addCleanup(program.kill)
        return program, program.stdout.readline()

    def test_a_wrong_file_changes_nothing(self):
        self.cluster.configure("127.0.0.1:0", _DEV + "    max_session: 7\n")
        status, out, error = self.ctl("reload")
        self.assertEqual((status, out), (1, ""))
        self.assertIn("max_session: unknown key", error)
        self.assertEqual(self.metric("djinn_config_last_reload_successful"), 0)
        self.assertEqual([t["tenant"] for t in self.get("tenants")], ["dev"])
        self.assertEqual(self.get("tenants")[0]["max_sessions"], 64)
        _, said = self.hold("dev.token")
        self.assertEqual(said, "ready\n")
        self.cluster.configure("127.0.0.1:0", _DEV + "    max_sessions: 7\n")
        self.assertEqual(self.ctl("reload")[:2], (0, "TENANT  CHANGE\ndev     changed\n"))
        self.assertEqual(self.metric("djinn_config_last_reload_successful"), 1)
        self.assertEqual(self.get("tenants")[0]["max_sessions"], 7)

    def test_what_needs_a_restart_is_said(self):
        self.cluster.configure("127.0.0.1:0", "session_timeout: 77s\n" + _DEV)
        status, out, _ = self.ctl("reload")
        self.assertEqual((status, out), (
            0, "TENANT  CHANGE\n\nnot reloaded, counts when the coordinator starts again: "
               "session_timeout\n"))
        # The answer is the same at every reload.
        self.assertIn("session_timeout", self.ctl("reload")[1])

    def test_sighup_reloads_and_running_sessions_have_the_new_quota(self):
        _, said = self.hold("dev.token")
        self.assertEqual(said, "ready\n")
        eventually(lambda: self.get("leases"), "a lease")
        before = self.metric("djinn_config_last_reload_success_timestamp_seconds")
        self.cluster.configure(
            "127.0.0.1:0", _DEV + "    limits: {memory: 5GiB}\n    credits: {bytes: 1GiB}\n")
        self.cluster.process("coordinator").send_signal(signal.SIGHUP)
        eventually(lambda: self.get("leases")[0]["limits"]["memory_bytes"] == str(5 << 30),
                   "the new limit")
        self.assertIn("bytes", self.get("leases")[0]["credits"])
        self.assertGreater(
            self.metric("djinn_config_last_reload_success_timestamp_seconds"), before)

    def test_a_removed_tenant_is_refused_and_a_new_one_let_in(self):
        _, said = self.hold("dev.token")
        self.assertEqual(said, "ready\n")
        eventually(lambda: self.get("leases"), "a lease")
        self.cluster.configure("127.0.0.1:0", _OTHER)
        self.assertEqual(self.ctl("reload")[:2],
                         (0, "TENANT  CHANGE\nother   added\ndev     removed\n"))
        eventually(lambda: not self.get("sessions"), "its session ends")
        eventually(lambda: self.get("workers")[0]["session_count"] == 0,
                   "its worker forgets it")
        self.assertEqual(self.hold("dev.token")[1], "")
        self.assertEqual(self.hold("other.token")[1], "ready\n")


if __name__ == "__main__":
    unittest.main()
