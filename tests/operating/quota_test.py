"""An operator sets a quota: it counts at once, after a reload, and after a crash."""

import json
import os
import signal
import tempfile
import unittest

from tests.operating.cluster import eventually, start_cluster

_TENANTS = """
operators:
  - {name: vera, role: viewer, token_file: vera.token}
  - {name: olga, role: operator, token_file: olga.token}
tenants:
  - name: dev
    token_file: dev.token
    limits: {memory: 100MiB}
    quota: {memory_bytes: {nominalQuota: 100MiB}}
"""


class QuotaTest(unittest.TestCase):

    def setUp(self):
        self.log = self.enterContext(tempfile.TemporaryFile("w+"))
        self.cluster = start_cluster(
            self, ("w0",), tenants=_TENANTS, tokens=("vera", "olga"),
            coordinator_extra="state_file: state.db\n", log=self.log)

    def ctl(self, *arguments, who="olga"):
        return self.cluster.ctl(
            *arguments, DJINN_ADMIN_TOKEN_FILE=self.cluster.path(who + ".token"))

    def tenant(self):
        done = self.ctl("get", "tenant", "dev", "-o", "json", who="vera")
        return json.loads(done.stdout) if done.returncode == 0 else None

    def quota(self):
        [quota] = self.tenant()["quotas"]
        return quota

    def hold(self):
        program = self.cluster.program(self, "tests/operating/hold_session")
        return program.stdout.readline()

    def audit(self):
        """The audit lines of quotas."""
        # The processes write where this file description is, so it must not be moved.
        text = os.pread(self.log.fileno(), os.fstat(self.log.fileno()).st_size, 0).decode()
        return [line for line in text.splitlines() if "msg=audit" in line and "etQuota" in line]

    def test_a_quota_that_is_set_counts(self):
        self.assertEqual(self.hold(), "ready\n")
        # The tenant has what it may have.
        self.assertEqual(self.hold(), "")
        done = self.ctl("quota", "set", "dev", "memory_bytes=200MiB")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("; set by olga since ", done.stdout)
        self.assertNotIn("until the coordinator restarts", done.stdout)
        self.assertEqual(self.hold(), "ready\n")
        self.assertEqual(self.hold(), "")
        self.assertIn("set by olga", self.ctl("explain", "tenant", "dev").stdout)
        [head, row] = self.ctl("get", "tenants").stdout.splitlines()
        self.assertEqual(row.split()[head.split().index("QUOTA")], "set")

        line = self.audit()[-1]
        for part in ("who=olga", "role=operator", "what=SetQuota", "object=dev",
                     "before=\"memory_bytes=104857600\"", "after=\"memory_bytes=209715200\"",
                     "result=OK"):
            self.assertIn(part, line)

        self.assertEqual(self.ctl("quota", "unset", "dev").returncode, 0)
        self.assertEqual(self.quota()["nominal"], 100 << 20)
        self.assertIn("what=UnsetQuota", self.audit()[-1])
        # Leases that are held stay.
        self.assertEqual(self.tenant()["lease_count"], 2)

    def test_a_quota_outlives_a_reload_and_a_crash(self):
        done = self.ctl("quota", "set", "dev", "memory_bytes=300MiB")
        self.assertEqual(done.returncode, 0, done.stderr)
        # The answer promises that the store has it: no time is given.
        self.cluster.end("coordinator", signal.SIGKILL)
        self.cluster.configure(
            self.cluster.coordinator, _TENANTS.replace("nominalQuota: 100", "nominalQuota: 50"))
        self.cluster.start("coordinator")
        eventually(self.tenant, "the coordinator is back")
        self.assertEqual(self.quota()["nominal"], 300 << 20)
        self.assertEqual(self.quota()["override"]["set_by"], "olga")
        self.assertEqual(self.quota()["override"]["configured"]["nominal"], 50 << 20)
        self.assertEqual(self.ctl("reload", who="admin").returncode, 0)
        self.assertEqual(self.quota()["nominal"], 300 << 20)
        self.assertEqual(self.ctl("quota", "unset", "dev", "memory_bytes").returncode, 0)
        self.assertEqual(self.quota()["nominal"], 50 << 20)
        self.assertNotIn("override", self.quota())

    def test_refused_changes_and_dry_runs_leave_the_quota(self):
        for arguments, who, status, reason in (
                (("memory_bytes=1GiB",), "vera", 1, "vera is viewer; this needs operator"),
                (("memory=1",), "olga", 1, "there is no resource \"memory\""),
                (("memory_bytes.lendingLimit=1",), "olga", 1, "has no cohort"),
                (("memory_bytes=much",), "olga", 2, "\"memory_bytes=much\""),
                (("memory_bytes=1GiB", "--dry-run"), "vera", 0, "")):
            with self.subTest(arguments):
                done = self.ctl("quota", "set", "dev", *arguments, who=who)
                self.assertEqual(done.returncode, status, done.stderr)
                self.assertIn(reason, done.stderr)
                self.assertEqual(self.quota()["nominal"], 100 << 20)
                self.assertNotIn("override", self.quota())
        self.assertIn("what=SetQuota object=dev before=- after=- result=ROLE_REQUIRED",
                      self.audit()[0])


if __name__ == "__main__":
    unittest.main()
