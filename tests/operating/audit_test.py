"""Each change that operators make has an audit line, and so has each attempt that is refused.

A viewer changes nothing. The calls are made with grpcurl, as the coordinator's reflection
describes them, at real processes.
"""

import collections
import datetime
import json
import os
import re
import subprocess
import tempfile
import unittest
import unittest.mock

from tests.operating.cluster import PATIENCE, eventually, start_cluster

_TENANTS = """
operators:
  - {name: vera, role: viewer, token_file: vera.token}
  - {name: olga, role: operator, token_file: olga.token}
tenants:
  - {name: idle, token_file: idle.token}
  - name: dev
    token_file: dev.token
    limits: {memory: 100MiB}
    quota: {memory_bytes: {nominalQuota: 300MiB}}
"""
_SESSION, _OTHER = "the session's id", "the other worker's id"
# An RPC, its request, the role that it needs, and what the audit line says of it. `wrong` is a
# request that fails for everyone, with this reason.
Change = collections.namedtuple(
    "Change", "method, request, role, object, before, after, wrong, reason")
_QUOTA = {"memory_bytes": {"nominal": 400 << 20}}
_CHANGES = (
    Change("SetQuota", {"tenant": "dev", "quotas": _QUOTA}, "operator", "dev",
           "memory_bytes=314572800", "memory_bytes=419430400",
           {"tenant": "nobody", "quotas": _QUOTA}, "TENANT_UNKNOWN"),
    Change("UnsetQuota", {"tenant": "dev"}, "operator", "dev", "memory_bytes=419430400",
           "memory_bytes=314572800", {"tenant": "nobody"}, "TENANT_UNKNOWN"),
    Change("StopQueue", {"tenant": "dev"}, "operator", "dev", "open", "stopped",
           {"tenant": "nobody"}, "TENANT_UNKNOWN"),
    Change("ResumeQueue", {"tenant": "dev"}, "operator", "dev", "stopped", "open",
           {"tenant": "nobody"}, "TENANT_UNKNOWN"),
    Change("CordonWorker", {"worker_id": "w0", "cordoned": True}, "operator", "w0",
           "takes leases", "cordoned", {"worker_id": "w9", "cordoned": True}, "WORKER_UNKNOWN"),
    Change("CordonWorker", {"worker_id": "w0"}, "operator", "w0", "cordoned", "takes leases",
           {"worker_id": "w9"}, "WORKER_UNKNOWN"),
    # `drain worker` and `stop queue --drain` send these. Neither ends the session's lease here.
    Change("CordonWorker", {"worker_id": _OTHER, "cordoned": True, "drain": True}, "operator",
           _OTHER, "takes leases", "drained",
           {"worker_id": "w9", "cordoned": True, "drain": True}, "WORKER_UNKNOWN"),
    Change("CordonWorker", {"worker_id": _OTHER}, "operator", _OTHER, "drained", "takes leases",
           {"worker_id": "w0", "drain": True}, "DRAIN_NEEDS_CORDON"),
    Change("StopQueue", {"tenant": "idle", "drain": True}, "operator", "idle", "open", "drained",
           {"tenant": "nobody", "drain": True}, "TENANT_UNKNOWN"),
    Change("ResumeQueue", {"tenant": "idle"}, "operator", "idle", "drained", "open",
           {"tenant": "nobody"}, "TENANT_UNKNOWN"),
    Change("MigrateSession", {"session_id": _SESSION, "to_worker_id": _OTHER}, "operator",
           _SESSION, "-", "device 0 from {worker} to {other}",
           {"session_id": _SESSION, "to_worker_id": "w9"}, "WORKER_UNKNOWN"),
    Change("ReloadConfig", {}, "admin", "", "the configuration in force",
           "changed: tenant dev", None, "BAD_CONFIG"),
)
# The operator who has the role, and those who do not have it.
_WHO = {"operator": "olga", "admin": "admin"}
_NOT = {"operator": ("vera",), "admin": ("vera", "olga")}
_ROLES = {"vera": "viewer", "olga": "operator", "admin": "admin"}
# RPCs that are called so change nothing.
_READS = re.compile("List|Get|Explain|Try")


class AuditTest(unittest.TestCase):

    def setUp(self):
        self.log = self.enterContext(tempfile.TemporaryFile("w+"))
        # No level but `off` loses audit lines.
        self.enterContext(unittest.mock.patch.dict(os.environ, DJINN_LOG_LEVEL="error"))
        self.cluster = start_cluster(
            self, ("w0", "w1"), tenants=_TENANTS, tokens=("vera", "olga", "unknown", "idle"),
            log=self.log)
        program = self.cluster.program(self, "tests/operating/hold_session")
        self.assertEqual(program.stdout.readline(), "ready\n")
        [lease] = eventually(lambda: self.cluster.json("get", "leases")["leases"], "the lease")
        self.session = lease["session_id"]
        self.names = {"worker": lease["worker_id"],
                      "other": {"w0": "w1", "w1": "w0"}[lease["worker_id"]]}

    def grpcurl(self, *arguments, who="admin"):
        with open(self.cluster.path(who + ".token"), encoding="utf-8") as file:
            token = file.read().strip()
        return subprocess.run(
            [os.path.join(os.path.dirname(os.getcwd()), "grpcurl", "grpcurl"), "-plaintext",
             "-expand-headers", "-H", "authorization: Bearer ${TOKEN}", *arguments],
            env=dict(os.environ, TOKEN=token), capture_output=True, text=True, timeout=PATIENCE,
            check=False)

    def call(self, method, request, who):
        """Makes a call; returns what it says, and its audit lines as dictionaries."""
        text = json.dumps(request).replace(_SESSION, self.session).replace(
            _OTHER, self.names["other"])
        # The processes write where this file description is, so it must not be moved.
        end = os.fstat(self.log.fileno()).st_size
        began = datetime.datetime.now(datetime.timezone.utc)
        done = self.grpcurl("-d", text, self.cluster.coordinator, "djinn.v1.Admin/" + method,
                            who=who)
        ended = datetime.datetime.now(datetime.timezone.utc)
        logged = os.pread(self.log.fileno(), os.fstat(self.log.fileno()).st_size - end, end)
        self.assertNotIn(b"-0123456789abcdef", logged)  # no token
        lines = []
        for line in logged.decode().splitlines():
            fields = {key: value.strip('"') for key, value in re.findall(
                r'(\w+)=("(?:[^"\\]|\\.)*"|\S*)', line)}
            if fields.get("msg") != "audit":
                continue
            when = datetime.datetime.fromisoformat(fields.pop("ts"))
            self.assertLessEqual(began - datetime.timedelta(milliseconds=1), when)
            self.assertLessEqual(when, ended)
            lines.append(fields)
        return done.stdout + done.stderr, lines

    def state(self):
        """Returns all state that operators change."""
        return {
            "workers": [(one["worker_id"], one.get("cordoned"), one.get("draining"))
                        for one in self.cluster.json("get", "workers")["workers"]],
            "queues": [(one["tenant"], "stop" in one)
                       for one in self.cluster.json("get", "queues")["queues"]],
            "tenants": [(one["tenant"], one["max_sessions"],
                         [(quota["nominal"], "override" in quota) for quota in one["quotas"]])
                        for one in self.cluster.json("get", "tenants")["tenants"]],
            "leases": {(one["session_id"], one["worker_id"])
                       for one in self.cluster.json("get", "leases")["leases"]}}

    def assert_line(self, lines, change, who, role, result, before="-", after="-"):
        [line] = lines
        self.assertRegex(line.pop("peer"), "^ipv[46]:")
        self.assertEqual(line.pop("error") == "", result == "OK")
        self.assertEqual(line, {
            "level": "info", "role": role, "msg": "audit", "who": who, "what": change.method,
            "object": {_SESSION: self.session[:8], _OTHER: self.names["other"]}.get(
                change.object, change.object),
            "before": before, "after": after, "result": result})

    def configure(self, text):
        self.cluster.configure("127.0.0.1:0", _TENANTS + text)

    def test_each_change_and_each_attempt_has_a_line(self):
        # A reload would change something.
        self.configure("    max_sessions: 7\n")
        for change in _CHANGES:
            with self.subTest(change.method, after=change.after):
                before = self.state()
                for who in _NOT[change.role]:
                    said, lines = self.call(change.method, change.request, who)
                    self.assertIn("Code: PermissionDenied", said)
                    self.assert_line(lines, change, who, _ROLES[who], "ROLE_REQUIRED")
                said, lines = self.call(change.method, change.request, "unknown")
                self.assertIn("Code: Unauthenticated", said)
                self.assert_line(lines, change, "-", "-", "TOKEN_UNKNOWN")
                self.assertEqual(self.state(), before)

                who = _WHO[change.role]
                said, lines = self.call(change.method, change.request, who)
                self.assertNotIn("Code:", said)
                self.assert_line(lines, change, who, _ROLES[who], "OK", change.before,
                                 change.after.format(**self.names))
                # A migration takes a moment, in which there are two leases.
                eventually(lambda: self.state() != before and len(self.state()["leases"]) == 1,
                           "something changes")

    def test_a_change_that_fails_has_a_line(self):
        self.configure("    max_session: 7\n")
        before = self.state()
        for change in _CHANGES:
            with self.subTest(change.method, after=change.after):
                wrong = change._replace(object="")
                request = change.wrong or {}
                if request:
                    wrong = wrong._replace(object=request.get(
                        "tenant", request.get("session_id", request.get("worker_id"))))
                said, lines = self.call(change.method, request, _WHO[change.role])
                self.assertIn("Code:", said)
                [line] = lines
                self.assert_line(lines, wrong, _WHO[change.role], _ROLES[_WHO[change.role]],
                                 change.reason, line["before"])
        self.assertEqual(self.state(), before)

    def test_all_other_calls_change_nothing(self):
        listed = self.grpcurl(self.cluster.coordinator, "list", "djinn.v1.Admin").stdout.split()
        methods = {name.removeprefix("djinn.v1.Admin.") for name in listed}
        changes = {change.method for change in _CHANGES}
        self.assertLess(changes, methods)
        before = self.state()
        for method in sorted(methods - changes):
            with self.subTest(method):
                # A new RPC that changes something belongs into the table.
                self.assertRegex(method, _READS)
                said, lines = self.call(method, {}, "vera")
                self.assertNotIn("PermissionDenied", said)
                self.assertEqual(lines, [])
        self.assertEqual(self.state(), before)


if __name__ == "__main__":
    unittest.main()
