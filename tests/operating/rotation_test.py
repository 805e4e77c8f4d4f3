"""Certificates and tokens are replaced while processes run, and nothing restarts.

New connections use the new files, a program that runs goes on, and files that are unfit leave
those before them in use.
"""

import os
import re
import signal
import subprocess
import tempfile
import unittest
import unittest.mock

from tests.operating.cluster import PATIENCE, Cluster, eventually
from tests.operating.rolling_programs import RunningPrograms

_NAMES = {"coordinator": "DNS:localhost,IP:127.0.0.1", "worker": "DNS:localhost,IP:127.0.0.1",
          "program": "DNS:program"}


class RotationTest(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.openssl("req", "-x509", "-newkey", "ed25519", "-noenc", "-keyout", "ca.key",
                     "-out", "ca.crt", "-days", "2", "-subj", "/CN=CA")
        for name in _NAMES:
            self.issue(name)
        self.log = self.enterContext(open(os.path.join(self.folder, "log"), "w",
                                          encoding="utf-8"))

    def start_cluster(self, **options):
        """Starts a cluster, of which the environment tells programs the files."""
        self.cluster = Cluster(self.folder, ("w0",), tls=True, log=self.log,
                               coordinator_extra="state_file: state.db\n", **options)
        self.addCleanup(self.cluster.stop)
        for name, file in (("CA", "ca.crt"), ("CERTIFICATE", "program.crt"),
                           ("PRIVATE_KEY", "program.key")):
            self.enterContext(unittest.mock.patch.dict(
                os.environ, {f"DJINN_TLS_{name}_FILE": self.cluster.path(file)}))

    def openssl(self, *arguments, text=b""):
        return subprocess.run(["openssl", *arguments], cwd=self.folder, input=text, check=True,
                              capture_output=True, timeout=PATIENCE).stdout

    def issue(self, name, days="2", serial="1"):
        """Writes a key and a certificate in place of those of the name."""
        request = self.openssl(
            "req", "-newkey", "ed25519", "-noenc", "-keyout", "new.key", "-subj", "/CN=" + name,
            "-addext", "subjectAltName=" + _NAMES[name])
        self.openssl("x509", "-req", "-CA", "ca.crt", "-CAkey", "ca.key", "-set_serial", serial,
                     "-days", days, "-copy_extensions", "copy", "-out", "new.crt", text=request)
        for kind in ("key", "crt"):
            os.chmod(os.path.join(self.folder, "new." + kind), 0o600)
            os.replace(os.path.join(self.folder, "new." + kind),
                       os.path.join(self.folder, f"{name}.{kind}"))

    def serial(self, address):
        """The serial number of the certificate that a new connection is shown."""
        shown = self.openssl(
            "s_client", "-connect", address, "-CAfile", "ca.crt", "-cert", "program.crt",
            "-key", "program.key", "-verify_return_error", "-alpn", "h2")
        return self.openssl("x509", "-noout", "-serial", text=shown).decode().strip()

    def logged(self):
        with open(self.log.name, encoding="utf-8") as file:
            return file.read()

    def executors(self):
        """The processes and addresses of all executors, in the order of their starts."""
        return [(int(pid), address) for pid, address in re.findall(
            r'msg="executor started" number=\d+ pid=(\d+) address=(\S+)', self.logged())]

    def visit(self, **more):
        """Runs a short program with connections of its own; returns its status."""
        return subprocess.run(
            ["tests/operating/hold_session"], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=PATIENCE, check=False,
            env=self.cluster.environment(**more)).returncode

    def start_program(self):
        programs = RunningPrograms(self, self.cluster, self.log)
        programs.start("train", "train")
        programs.await_steps(3)
        return programs

    def test_certificates(self):
        self.start_cluster()
        servers = {"coordinator": self.cluster.coordinator, "worker": self.cluster.workers[0]}
        programs = self.start_program()
        for address in servers.values():
            self.assertEqual(self.serial(address), "serial=01")
        for name in _NAMES:
            self.issue(name, serial="2")
        for name, address in servers.items():
            eventually(lambda: self.serial(address) == "serial=02", name + " shows the new one")
        self.assertEqual(self.visit(), 0)
        programs.await_steps(3)

        # A certificate that has expired, one that is none, and a key without its certificate.
        self.issue("coordinator", days="-1", serial="3")
        with open(self.cluster.path("worker.crt"), "w", encoding="utf-8") as file:
            file.write("hello\n")
        self.openssl("genpkey", "-algorithm", "ed25519", "-out", "program.key")
        for why in ("certificate in {}/coordinator.crt expired at",
                    "{}/worker.crt holds no certificate",
                    # The library of the running program says so.
                    "private key in {}/program.key is not that of"):
            said = re.compile("level=error .*new TLS files are unfit.*" +
                              why.format(re.escape(self.folder)))
            eventually(lambda: said.search(self.logged()), why)
        self.issue("program", serial="3")
        for name, address in servers.items():
            self.assertEqual(self.serial(address), "serial=02", name)
        self.assertEqual(self.visit(), 0)
        programs.await_steps(3)

        for name in _NAMES:
            self.issue(name, serial="4")
        for name, address in servers.items():
            eventually(lambda: self.serial(address) == "serial=04", name + " recovers")
        self.assertEqual(self.visit(), 0)
        programs.finish()

    def test_certificates_of_executors(self):
        self.start_cluster(
            worker_extra="isolation: {mode: process, executors: 2}\n", tokens=("blue",), tenants="""
tenants:
  - {name: dev, token_file: dev.token}
  - {name: blue, token_file: blue.token}
""")
        programs = self.start_program()
        (_, first), (pid, second) = eventually(
            lambda: self.executors()[1:] and self.executors(), "a spare one has started")
        self.assertEqual(self.serial(first), "serial=01")
        self.issue("worker", serial="2")
        eventually(lambda: self.serial(first) == "serial=02", "it shows the new one")
        programs.await_steps(3)

        # The next tenant's executor has the certificate that was fit last, and so has one that
        # starts now.
        with open(self.cluster.path("worker.crt"), "w", encoding="utf-8") as file:
            file.write("hello\n")
        eventually(lambda: "worker.crt holds no certificate" in self.logged(), "it is unfit")
        self.assertEqual(self.visit(tenant="blue"), 0)
        self.assertEqual(self.serial(second), "serial=02")
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: len(self.executors()) > 2, "another one starts")
        self.assertEqual(self.visit(tenant="blue"), 0)
        _, third = self.executors()[2]
        self.assertEqual(self.serial(third), "serial=02")

        self.issue("worker", serial="4")
        for address in (first, third):
            eventually(lambda: self.serial(address) == "serial=04", address + " recovers")
        self.assertEqual(self.visit(tenant="blue"), 0)
        programs.finish()

    def test_tokens(self):
        self.start_cluster()
        programs = self.start_program()
        for name in ("join", "admin", "dev"):
            os.rename(self.cluster.path(name + ".token"), self.cluster.path(f"old-{name}.token"))
            self.cluster.write(name + ".token", f"new-{name}-0123456789abcdef")
        old_admin = {"DJINN_ADMIN_TOKEN_FILE": self.cluster.path("old-admin.token")}
        old_dev = {"DJINN_TOKEN_FILE": self.cluster.path("old-dev.token")}

        # A file that is unfit changes nothing, and is named.
        self.cluster.write("dev.token", "two words")
        done = self.cluster.ctl("reload", **old_admin)
        self.assertEqual(done.returncode, 1)
        self.assertIn(self.cluster.path("dev.token"), done.stderr)
        self.assertEqual(self.visit(**old_dev), 0)
        self.cluster.write("dev.token", "new-dev-0123456789abcdef")
        self.assertNotEqual(self.visit(), 0)

        done = self.cluster.ctl("reload", **old_admin)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("UNAUTHENTICATED", self.cluster.ctl("get", "workers", **old_admin).stderr)
        self.assertEqual(len(self.cluster.json("get", "workers")["workers"]), 1)
        self.assertNotEqual(self.visit(**old_dev), 0)
        self.assertEqual(self.visit(), 0)
        programs.await_steps(3)
        programs.finish()

        # The worker reads its token when it is told, and can then join again.
        self.cluster.process("w0").send_signal(signal.SIGHUP)
        eventually(lambda: "msg=audit who=SIGHUP what=ReloadConfig" in self.logged(),
                   "the worker has read its files")
        address = self.cluster.coordinator
        self.cluster.end("coordinator", signal.SIGTERM)
        with open(self.cluster.path("coordinator.yaml"), encoding="utf-8") as file:
            text = file.read()
        self.cluster.write("coordinator.yaml", text.replace(
            "listen: 127.0.0.1:0", "listen: " + address))
        self.cluster.start("coordinator")
        eventually(lambda: [one["state"] for one in self.cluster.json(
            "get", "workers")["workers"]] == ["ACTIVE"], "the worker joins again")


if __name__ == "__main__":
    unittest.main()
