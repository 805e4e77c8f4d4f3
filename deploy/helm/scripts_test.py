"""The scripts of the chart, with a stand-in for djinnctl."""

import json
import os
import pathlib
import subprocess
import tempfile
import time
import unittest

_FILES = pathlib.Path(os.path.dirname(os.path.realpath(__file__)), "djinn/files")


class ScriptsTest(unittest.TestCase):

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        self.marks = self.folder / "marks"
        self.marks.mkdir()
        self.answer(0, '"draining": false, "lease_count": 0,')

    def answer(self, status, text, program="djinnctl"):
        """Makes a program that notes its arguments, prints the text and exits with the status."""
        path = self.folder / program
        calls = self.folder / (program + ".calls")
        path.write_text(f"#!/bin/sh\necho \"$*\" >>{calls}\necho '{text}'\nexit {status}\n",
                        encoding="utf-8")
        path.chmod(0o755)

    def calls(self, program="djinnctl"):
        path = self.folder / (program + ".calls")
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []

    def start(self, command, timeout=1):
        return subprocess.Popen(
            ["sh", _FILES / "drain.sh", command, self.marks],
            env={"PATH": f"{self.folder}:/usr/bin:/bin", "WORKER_ID": "w0",
                 "DRAIN_TIMEOUT": str(timeout)})

    def run_script(self, command, timeout=1):
        self.assertEqual(self.start(command, timeout).wait(30), 0)

    def marked(self, name):
        return (self.marks / name).exists()

    def rejoin(self, until):
        """Runs `rejoin` until the condition is true, and stops it."""
        process = self.start("rejoin")
        deadline = time.monotonic() + 30
        while not until():
            self.assertLess(time.monotonic(), deadline)
            self.assertIsNone(process.poll())
            time.sleep(0.02)
        process.terminate()
        self.assertEqual(process.wait(30), 0)

    def test_drain_ends_with_the_last_lease(self):
        self.run_script("drain", timeout=1000)
        self.assertEqual(self.calls(), ["drain worker w0",
                                        "get worker w0 -o json"])
        self.assertTrue(self.marked("drained"))

    def test_drain_ends_with_its_time(self):
        self.answer(0, '"lease_count": 2,')
        self.run_script("drain", timeout=1)
        self.assertTrue(self.marked("drained"))

    def test_drain_ends_when_the_coordinator_is_away(self):
        self.answer(3, "")
        self.run_script("drain", timeout=1000)
        self.assertEqual(self.calls(), ["drain worker w0"])
        self.assertTrue(self.marked("drained"))

    def test_wait_ends_with_the_drain(self):
        (self.marks / "drained").touch()
        self.run_script("wait", timeout=1000)

    def test_wait_ends_with_its_time(self):
        self.run_script("wait", timeout=1)
        self.assertEqual(self.calls(), [])

    def test_wait_lasts_until_the_drain(self):
        process = self.start("wait", timeout=1000)
        with self.assertRaises(subprocess.TimeoutExpired):
            process.wait(0.2)
        (self.marks / "drained").touch()
        self.assertEqual(process.wait(30), 0)

    def test_rejoin_lifts_a_drain(self):
        self.answer(0, '"cordoned": true, "draining": true,')
        self.rejoin(lambda: self.marked("rejoined"))
        self.assertEqual(self.calls(), ["get worker w0 -o json",
                                        "uncordon worker w0"])

    def test_rejoin_leaves_a_cordon(self):
        self.answer(0, '"cordoned": true, "draining": false,')
        self.rejoin(lambda: self.marked("rejoined"))
        self.assertEqual(self.calls(), ["get worker w0 -o json"])

    def test_rejoin_waits_for_the_coordinator(self):
        self.answer(3, "")
        self.rejoin(self.calls)
        self.assertFalse(self.marked("rejoined"))

    def test_rejoin_happens_once_per_pod(self):
        (self.marks / "rejoined").touch()
        process = self.start("rejoin")
        with self.assertRaises(subprocess.TimeoutExpired):
            process.wait(0.2)
        process.terminate()
        self.assertEqual(process.wait(30), 0)
        self.assertEqual(self.calls(), [])

    def run_helm_test(self, workers, **environment):
        """Runs the script of `helm test` while these workers, pairs of state and address, are in the cluster."""
        self.answer(0, json.dumps({"workers": [
            {"worker_id": "w%d" % number, "state": state, "incarnation": "1", "address": address,
             "device": "cpu"} for number, (state, address) in enumerate(workers)]}, indent=1))
        done = subprocess.run(
            ["sh", _FILES / "tests/workers.sh", "1"], capture_output=True, text=True, check=False,
            env={"PATH": f"{self.folder}:/usr/bin:/bin", **environment})
        return done.returncode, done.stdout

    def test_helm_test_asks_each_worker_that_joined(self):
        self.answer(0, '{"status": "SERVING"}', "grpcurl")
        status, _ = self.run_helm_test([
            ("ACTIVE", "10.0.0.1:7072"), ("LOST", "10.0.0.2:7072"), ("ACTIVE", "[fd00::1]:7072")])
        self.assertEqual(status, 0)
        self.assertEqual(self.calls("grpcurl"), [
            f"-max-time 5 -plaintext {address} grpc.health.v1.Health/Check"
            for address in ("10.0.0.1:7072", "[fd00::1]:7072")])

    def test_helm_test_uses_the_certificates(self):
        self.answer(0, '{"status": "SERVING"}', "grpcurl")
        one_sided = {"DJINN_TLS_CA_FILE": "ca", "DJINN_TLS_WORKER_SERVER_NAME": "w"}
        mutual = {**one_sided, "DJINN_TLS_CERTIFICATE_FILE": "crt",
                  "DJINN_TLS_PRIVATE_KEY_FILE": "key"}
        for environment in (one_sided, mutual):
            self.assertEqual(self.run_helm_test([("ACTIVE", "a:1")], **environment)[0], 0)
        self.assertEqual(self.calls("grpcurl"), [
            "-max-time 5 -cacert ca -authority w a:1 grpc.health.v1.Health/Check",
            "-max-time 5 -cacert ca -authority w -cert crt -key key a:1 "
            "grpc.health.v1.Health/Check"])

    def test_helm_test_names_a_worker_that_does_not_serve(self):
        for answer in ("connection refused", '{"status": "NOT_SERVING"}'):
            self.answer(1, answer, "grpcurl")
            status, said = self.run_helm_test([("ACTIVE", "a:1")])
            self.assertEqual(status, 1)
            self.assertIn("the worker at a:1 does not serve: " + answer, said)

    def test_helm_test_fails_without_workers(self):
        self.answer(0, '{"status": "SERVING"}', "grpcurl")
        for workers in ([], [("LOST", "a:1")]):
            status, said = self.run_helm_test(workers)
            self.assertEqual(status, 1)
            self.assertIn("no worker joined", said)
        self.assertEqual(self.calls("grpcurl"), [])

    def configure(self, address):
        source, made = self.folder / "group", self.folder / "own"
        source.write_text("worker_id: '@WORKER_ID@'\nadvertise: '@HOST@:7072'\n", encoding="utf-8")
        subprocess.run(["sh", _FILES / "configure.sh", source, made], check=True,
                       env={"PATH": "/usr/bin:/bin", "WORKER_ID": "w0", "POD_IP": address})
        return made.read_text(encoding="utf-8")

    def test_configuration_has_the_name_and_the_address(self):
        self.assertEqual(self.configure("10.0.0.1"),
                         "worker_id: 'w0'\nadvertise: '10.0.0.1:7072'\n")

    def test_ipv6_addresses_stand_in_brackets(self):
        self.assertIn("'[fd00::1]:7072'", self.configure("fd00::1"))


if __name__ == "__main__":
    unittest.main()
