"""Runs each call of djinnctl in docs/operator/*.md and docs/user/*.md on a cluster.

Names in capitals stand for what the cluster has. A call without the names that it needs, as in
"`djinnctl explain tenant` says so", gets them. Brackets hold what may be left out: such a call
is run with it and without.
"""

import glob
import os
import re
import shlex
import unittest

from tests.operating.cluster import eventually, start_cluster

# As configure.md has them.
_TENANTS = """
cohorts: [{name: research}]
tenants:
  - name: vision
    token_file: dev.token
    cohort: research
    quota: {memory_bytes: {nominalQuota: 64GiB}}
"""
_EXTRA = "monitoring: {listen: '127.0.0.1:0'}\n"
# The arguments of calls that a page names without them.
_ARGUMENTS = {
    "--insecure": "version", "explain placement": "TENANT", "explain tenant": "TENANT",
    "get worker": "WORKER", "lineage session": "SESSION", "resume queue": "TENANT",
    "quota set": "TENANT memory_bytes=96GiB"}
# The calls that end the effects of others.
_UNDO = {"cordon worker": "uncordon worker WORKER", "drain worker": "uncordon worker WORKER",
         "stop queue": "resume queue TENANT", "quota set": None}
# The calls that must precede others.
_FIRST = {"quota unset": "quota set vision memory_bytes=96GiB"}
# tests/console/console_test runs it: it does not end by itself.
_ELSEWHERE = ("console",)


def _variants(call):
    """The call with what is in brackets and without, and with the first of several words."""
    found = {re.sub(r" *\[[^\]]*\]", "", call), call.replace("[", "").replace("]", "")}
    return {re.sub(r"(\w+)(\|\w+)+", r"\1", one) for one in found}


def calls(text):
    """Returns the arguments of each call of `djinnctl` in a page's blocks and prose."""
    found = set()
    for block in re.findall(r"^```\w*\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        for line in block.replace("\\\n", " ").splitlines():
            match = re.match(r"(?:\$ )?djinnctl (.*)", line)
            if match:
                found |= _variants(match[1].split(" #")[0])
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    for code in re.findall(r"`djinnctl\s([^`]+)`", prose):
        found |= _variants(code)
    return {" ".join(call.split()) for call in found}


def pages():
    """{path: text} of all pages for operators and users."""
    found = {}
    for path in glob.glob("docs/operator/*.md") + glob.glob("docs/user/*.md"):
        with open(path, encoding="utf-8") as file:
            found[path] = file.read()
    return found


class CallsTest(unittest.TestCase):

    def test_calls_are_found_in_blocks_and_in_prose(self):
        self.assertEqual(calls(
            "`djinnctl get\nKIND [NAME] [-o table|wide]` and `djinnctl` and `djinn up`\n"
            "```sh\ndjinnctl drain worker w0  # moves\ndjinnctl a \\\n  --b=c\n```\n"
            "```\n$ djinnctl top workers\nit says: djinnctl\n```\n"),
            {"get KIND", "get KIND NAME -o table", "drain worker w0", "a --b=c", "top workers"})


class DocsCommandsTest(unittest.TestCase):

    def setUp(self):
        self.cluster = start_cluster(
            self, ("w0", "w1"), tenants=_TENANTS, extra=_EXTRA,
            coordinator_extra="recorded_jobs: 100\n")
        # A job that has ended, for the trace of jobs.
        program = self.cluster.program(self, "tests/operating/hold_session")
        self.assertEqual(program.stdout.readline(), "ready\n")
        program.stdin.close()
        program.wait()
        eventually(lambda: not self.cluster.json("get", "sessions")["sessions"], "it has ended")
        program = self.cluster.program(self, "tests/operating/hold_session")
        self.assertEqual(program.stdout.readline(), "ready\n")
        for name in ("coordinator", "w0"):
            self.cluster.write(name + ".log", "ts=2026-01-31T12:00:00.000Z level=info msg=hello\n")

    def only_lease(self):
        """The session's lease, once there is no other that it moves to."""
        def find():
            leases = self.cluster.json("get", "leases")["leases"]
            return leases[0] if len(leases) == 1 else None

        return eventually(find, "one lease")

    def fill(self, call):
        """The words of a call, with the cluster's names."""
        lease = self.only_lease()
        session = lease["session_id"]
        names = {"SESSION": session, "TENANT": "vision", "KIND": "worker", "COMMAND": "get",
                 "LEASE": lease["lease_id"], "ADDRESS": self.cluster.coordinator, "NAME": "w0",
                 # Only another worker can be moved to.
                 "WORKER": {"w0": "w1", "w1": "w0"}[lease["worker_id"]],
                 "N": "0"}
        if "NUMBER" in call:
            [device] = self.cluster.json("lineage", "session", session)["devices"]
            names["NUMBER"] = device["values"][0]["storage"]
        words = []
        for word in shlex.split(call):
            word = re.sub(r"\b[A-Z]+\b", lambda name: names[name[0]], word)
            if re.fullmatch(r"[0-9a-f]{8}/0:\d+", word):
                # A run of some other cluster.
                run = self.cluster.json("get", "runs", session)["runs"][0]["run"]
                word = f"{session}/{run}"
            word = re.sub(r"--monitoring=127.0.0.1:946(\d)", lambda port: "--monitoring=" +
                          self.cluster.monitoring["w0" if port[1] == "5" else "coordinator"],
                          word)
            # The port to which a page forwards the coordinator's.
            word = word.replace("--coordinator=127.0.0.1:7070",
                                "--coordinator=" + self.cluster.coordinator)
            if word.endswith((".tar", ".yaml", ".log", ".token")):
                flag, _, name = word.rpartition("=")
                word = flag + ("=" if flag else "") + self.cluster.path(name)
            words.append(word)
        return words

    def run_call(self, call):
        verb = " ".join(call.split()[:2])
        if verb in _FIRST:
            self.cluster.said(*self.fill(_FIRST[verb]))
        given = _ARGUMENTS.get(call)
        words = self.fill(call + " " + given if given else call)
        done = self.cluster.ctl(*words)
        self.assertEqual(done.returncode, 0, (words, done.stderr))
        self.assertTrue(done.stdout or done.stderr)
        undo = _UNDO.get(verb)
        if undo:
            self.cluster.said(*self.fill(undo.replace("WORKER", words[-1])))

    def test_each_call_is_answered(self):
        by_call = {}
        for path, text in pages().items():
            for call in calls(text):
                if call.split()[0] not in _ELSEWHERE:
                    by_call.setdefault(call, []).append(path)
        self.assertGreater(len(by_call), 30)
        # A worker to which the session moved has not run anything for it yet.
        for call, paths in sorted(by_call.items(), key=lambda item: (
                item[0].split()[0] in ("drain", "migrate"), item)):
            with self.subTest(call, pages=paths):
                self.run_call(call)
        print(f"{len(by_call)} calls", flush=True)


if __name__ == "__main__":
    unittest.main()
