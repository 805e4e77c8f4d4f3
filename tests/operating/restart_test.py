"""A coordinator that is killed knows its tenants, sessions and usage when it is back."""

import json
import signal
import subprocess
import unittest

from tests.operating.cluster import PATIENCE, eventually, start_cluster

_TENANTS = """
tenants:
  - name: dev
    token_file: dev.token
    credits: {device_time: 1h}
"""


class RestartTest(unittest.TestCase):

    def setUp(self):
        self.cluster = start_cluster(
            self, ("w0",), coordinator_extra="state_file: state.db\n",
            tenants=_TENANTS)

    def get(self, kind):
        done = self.cluster.ctl("get", kind, "-o", "json")
        return json.loads(done.stdout)[kind] if done.returncode == 0 else []

    def used(self):
        tenant = self.get("tenants")[0]
        return float(tenant["credits"]["used"]["device_time"].rstrip("s"))

    def written(self, key):
        """Whether the key stands in the store's file or its log."""
        text = b""
        for suffix in ("", "-wal"):
            with open(self.cluster.path("state.db" + suffix), "rb") as file:
                text += file.read()
        return key.encode() in text

    def test_killed_and_back(self):
        holder = self.cluster.program(self, "tests/operating/hold_session")
        self.assertEqual(holder.stdout.readline(), "ready\n")
        eventually(lambda: self.used() > 0, "usage is billed")
        lease = eventually(
            lambda: [l for l in self.get("leases") if l["state"] == "IN_USE"], "a lease")[0]
        session = self.get("sessions")[0]
        used = self.used()
        eventually(lambda: self.written("session/" + session["session_id"])
                   and self.written("account/" + lease["lease_id"]), "the state is written")
        self.cluster.end("coordinator", signal.SIGKILL)
        self.cluster.configure(self.cluster.coordinator, _TENANTS)
        self.cluster.start("coordinator")
        # This is before its worker and its client are back, or just after.
        again = eventually(lambda: self.get("sessions"), "the session is known")[0]
        for field in ("session_id", "tenant", "program", "session_epoch"):
            self.assertEqual(again[field], session[field])
        eventually(lambda: self.used() >= used, "usage is known")
        eventually(lambda: self.get("sessions")[0]["state"] == "ATTACHED",
                   "the client attaches again")
        back = eventually(
            lambda: [l for l in self.get("leases") if l["state"] == "IN_USE"], "the lease")[0]
        for field in ("lease_id", "worker_id", "placement_reason"):
            self.assertEqual(back[field], lease[field])
        # Nothing is billed twice.
        self.assertLess(self.used(), used + 1)
        # The program ends without an error, because it has read its last value
        # and its storages still exist.
        holder.stdin.close()
        self.assertEqual(holder.wait(PATIENCE), 0)
        eventually(lambda: not self.get("sessions"), "the session ends")

    def test_two_coordinators_do_not_share_a_file(self):
        self.cluster.configure("127.0.0.1:0", _TENANTS)
        second = subprocess.run(
            ["coordinator/djinn-coordinator", "--config=" + self.cluster.path(
                "coordinator.yaml")], stderr=subprocess.PIPE, timeout=PATIENCE,
            universal_newlines=True)
        self.assertEqual(second.returncode, 1)
        self.assertIn("state.db: database is locked", second.stderr)


if __name__ == "__main__":
    unittest.main()
