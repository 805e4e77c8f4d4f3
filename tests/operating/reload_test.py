"""A running coordinator takes over tenants and quotas from its configuration."""

import signal
import unittest

from tests.operating.cluster import eventually, start_cluster

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
        self.cluster = start_cluster(
            self, ("w0",), tenants=_DEV,
            coordinator_extra="monitoring: {listen: '127.0.0.1:0'}\n")
        self.cluster.write("other.token", "other-0123456789abcdef")

    def ctl(self, *arguments):
        done = self.cluster.ctl(*arguments)
        return done.returncode, done.stdout, done.stderr

    def get(self, kind):
        return self.cluster.json("get", kind)[kind]

    def metric(self, name):
        for line in self.cluster.http("coordinator", "metrics")[1].splitlines():
            if line.startswith(name + " "):
                return float(line.split()[1])
        raise AssertionError("no " + name)

    def hold(self, token):
        program = self.cluster.program(
            self, "tests/operating/hold_session",
            DJINN_TOKEN_FILE=self.cluster.path(token))
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

    def test_a_reload_names_settings_that_need_a_restart(self):
        self.cluster.configure("127.0.0.1:0", "session_timeout: 77s\n" + _DEV)
        status, out, _ = self.ctl("reload")
        self.assertEqual((status, out), (
            0, "TENANT  CHANGE\n\nnot reloaded; takes effect when the coordinator restarts: "
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
