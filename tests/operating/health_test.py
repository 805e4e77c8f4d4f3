"""Health is true: gRPC and HTTP say the same, and SIGTERM leaves nothing behind."""

import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import unittest

from tests.operating.cluster import PATIENCE, eventually, start_cluster


def _grpcurl():
    path = os.path.join(os.path.dirname(os.getcwd()), "grpcurl", "grpcurl")
    if not os.path.exists(path):
        raise AssertionError("grpcurl is missing: `./djinn test` builds it")
    return path


class HealthTest(unittest.TestCase):

    isolation = "{mode: shared}"

    def start(self, workers, worker_extra="", log=None):
        self.cluster = start_cluster(
            self, workers, extra="monitoring: {listen: '127.0.0.1:0'}\n", log=log,
            worker_extra="isolation: %s\n" % self.isolation + worker_extra)
        self.addresses = {"coordinator": self.cluster.coordinator,
                          **dict(zip(workers, self.cluster.workers))}

    def health(self, name, service=""):
        """Returns the status that grpc.health.v1 answers, or the printed error."""
        done = subprocess.run(
            [_grpcurl(), "-plaintext", "-d", json.dumps({"service": service}),
             self.addresses[name], "grpc.health.v1.Health/Check"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True,
            timeout=PATIENCE)
        return json.loads(done.stdout)["status"] if done.returncode == 0 else done.stdout

    def readiness(self, name):
        return self.cluster.http(name, "readyz")

    def becomes(self, name, status):
        services = {"coordinator": ("", "djinn.v1.Session", "djinn.v1.WorkerRegistry",
                                    "djinn.v1.WorkerDeparture", "djinn.v1.Admin")}
        for service in services.get(name, ("", "djinn.v1.Execution")):
            eventually(lambda: self.health(name, service) == status,
                       "%s of %s is %s" % (service or "the whole", name, status))

    def hold(self):
        """A program with state on a worker."""
        program = self.cluster.program(self, "tests/operating/hold_session")
        self.assertEqual(program.stdout.readline(), "ready\n")
        return program

    def test_a_worker_is_as_ready_as_its_coordinator_is_there(self):
        self.start(("w0",))
        self.becomes("coordinator", "SERVING")
        self.becomes("w0", "SERVING")
        self.assertEqual(self.readiness("w0"), (200, "ok\n"))
        self.assertIn("NotFound", self.health("w0", "model/" + "0" * 64))
        watch = subprocess.Popen(
            [_grpcurl(), "-plaintext", "-d", '{"service": "djinn.v1.Execution"}',
             self.addresses["w0"], "grpc.health.v1.Health/Watch"],
            stdout=subprocess.PIPE, universal_newlines=True)
        self.addCleanup(watch.stdout.close)
        self.addCleanup(watch.wait, PATIENCE)
        self.addCleanup(watch.kill)

        def heard():
            while True:
                line = watch.stdout.readline()
                self.assertTrue(line, "the watch ended")
                status = re.search(r'"status": "(\w+)"', line)
                if status:
                    return status.group(1)

        self.assertEqual(heard(), "SERVING")
        self.cluster.end("coordinator", signal.SIGKILL)
        self.assertEqual(heard(), "NOT_SERVING")
        self.becomes("w0", "NOT_SERVING")
        self.assertEqual(
            self.readiness("w0"),
            (503, "[-]coordinator failed: it does not answer, or not yet\nnot ready\n"))

    def test_a_device_with_too_little_memory_is_not_ready(self):
        self.start(("w0",))
        with open(self.cluster.path("w0.yaml")) as file:
            first = file.read()

        def text_of(min_free):
            return first.replace("w0", "w1").replace(
                "threads: 1", "threads: 1, min_free: " + min_free)

        self.cluster.write("w1.yaml", text_of("900TiB"))
        self.addresses["w1"] = self.cluster.start("w1")
        self.becomes("w1", "NOT_SERVING")
        eventually(lambda: "coordinator" not in self.readiness("w1")[1], "w1 joins")
        status, text = self.readiness("w1")
        self.assertEqual(status, 503)
        self.assertRegex(text, r"^\[-\]device failed: it has [\d.]+ GiB of memory available, and "
                               r"device.min_free is 921600.0 GiB; \d+ bytes available\nnot ready\n$")
        self.assertRegex(self.cluster.http("w1", "metrics")[1],
                         r'\ndjinn_worker_device_available_bytes\{worker="w1"\} [1-9]')
        # The limit may change.
        self.cluster.write("w1.yaml", text_of("1MiB"))
        self.cluster.process("w1").send_signal(signal.SIGHUP)
        self.becomes("w1", "SERVING")
        self.assertRegex(self.cluster.http("w1", "readyz?verbose")[1],
                         r"\n\[\+\]device ok; \d+ bytes available\n")

    def test_a_busy_monitoring_port_stops_nothing(self):
        self.start(("w0",))
        with socket.create_server(("127.0.0.1", 0)) as busy:
            address = "127.0.0.1:%d" % busy.getsockname()[1]
            with open(self.cluster.path("w0.yaml")) as file:
                text = file.read()
            self.cluster.write("w1.yaml", text.replace("w0", "w1").replace(
                "monitoring: {listen: '127.0.0.1:0'}", "monitoring: {listen: '%s'}" % address))
            self.addresses["w1"] = self.cluster.start("w1")
            self.becomes("w1", "SERVING")
            self.assertEqual(self.cluster.monitoring["w1"], "")
        self.cluster.monitoring["w1"] = address

        def answers():
            try:
                return self.readiness("w1")[0] == 200
            except OSError:
                return False

        eventually(answers, "the port serves once it is free")

    def test_sigterm_moves_what_a_worker_holds(self):
        self.start(("w0", "w1"))
        for name in ("w0", "w1"):
            self.becomes(name, "SERVING")
        program = self.hold()
        lease = self.cluster.json("get", "leases")["leases"][0]
        first = lease["worker_id"]
        other = {"w0": "w1", "w1": "w0"}[first]
        process = self.cluster.process(first)
        self.cluster.end(first, signal.SIGTERM)
        self.assertEqual(process.returncode, 0)
        leases = self.cluster.json("get", "leases")["leases"]
        self.assertEqual([one["worker_id"] for one in leases], [other])
        # The program did not notice.
        program.stdin.close()
        self.assertEqual(program.wait(PATIENCE), 0)
        # The next process of this name takes leases again.
        self.addresses[first] = self.cluster.start(first)
        self.becomes(first, "SERVING")
        worker = eventually(
            lambda: next((one for one in self.cluster.json("get", "workers")["workers"]
                          if one["worker_id"] == first and one["state"] == "ACTIVE"), None),
            "it joins again")
        self.assertFalse(worker.get("cordoned") or worker.get("draining"), worker)

    def test_sigterm_of_the_only_worker_does_not_wait(self):
        self.start(("w0",), worker_extra="drain_timeout: 10m\n")
        self.becomes("w0", "SERVING")
        self.hold()
        process = self.cluster.process("w0")
        self.cluster.end("w0", signal.SIGTERM)
        self.assertEqual(process.returncode, 0)


class WalledHealthTest(HealthTest):
    """The same of workers whose tenants have processes."""

    isolation = "{mode: process, executors: 1}"

    def test_an_executors_port_reports_the_health_of_its_worker(self):
        with tempfile.TemporaryFile("w+") as log:
            self.start(("w0",), log=log)
            self.becomes("w0", "SERVING")
            self.hold()
            log.seek(0)
            [self.addresses["executor"]] = re.findall(
                r'msg="executor started" .*address=(\S+)', log.read())
        self.becomes("executor", "SERVING")
        with open(self.cluster.path("w0.yaml")) as file:
            text = file.read()

        def reload(text):
            self.cluster.write("w0.yaml", text)
            self.cluster.process("w0").send_signal(signal.SIGHUP)

        reload(text.replace("threads: 1", "threads: 1, min_free: 900TiB"))
        for name in ("w0", "executor"):
            self.becomes(name, "NOT_SERVING")
        reload(text)
        for name in ("w0", "executor"):
            self.becomes(name, "SERVING")
        self.cluster.end("coordinator", signal.SIGKILL)
        for name in ("w0", "executor"):
            self.becomes(name, "NOT_SERVING")


if __name__ == "__main__":
    unittest.main()
