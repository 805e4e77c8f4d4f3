"""The pods of deploy/kubernetes run from the built images: start, reach each other, drain.

Needs root. Images are taken from $DJINN_IMAGES if it is set, and built otherwise.
"""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

from deploy.images import built
from deploy.kubernetes import render
from deploy.pods import credentials
from deploy.pods import pods
from deploy.testing import manifests
from deploy.testing import programs
from deploy.testing.tools import ROOT, yaml

_SERVICE = "djinn-coordinator.djinn.svc"


def setUpModule():  # pylint: disable=invalid-name
    global temporary, node  # pylint: disable=global-variable-undefined
    temporary = pathlib.Path(tempfile.mkdtemp())
    unittest.addModuleCleanup(shutil.rmtree, temporary, ignore_errors=True)
    node = pods.Node(temporary / "node", built.archives(temporary / "archives"))


def on_the_page(pattern):
    """The part of docs/operator/kubernetes.md that the pattern's group matches."""
    page = pathlib.Path(ROOT, "docs/operator/kubernetes.md").read_text(encoding="utf-8")
    return re.search(pattern, page, re.DOTALL).group(1)


class Case(unittest.TestCase):

    @classmethod
    def pod(cls, name, of):
        template = manifests.named(node.objects, "StatefulSet", of)["spec"]["template"]
        made = pods.Pod(node, name, template, cls.hosts)
        cls.addClassCleanup(made.remove)
        return made

    @classmethod
    def start(cls, workers):
        """Starts a coordinator and workers."""
        cls.hosts = {}
        cls.coordinator = cls.pod("djinn-coordinator-0", "djinn-coordinator")
        cls.coordinator.add_claim("state", node.folder / "state" / cls.__name__)
        cls.hosts[_SERVICE] = cls.coordinator.address
        cls.workers = [cls.pod(f"djinn-worker-cpu-{index}", "djinn-worker-cpu")
                       for index in range(workers)]
        # Workers start first: the order must not matter.
        for one in (*cls.workers, cls.coordinator):
            one.start()
        for one in (cls.coordinator, *cls.workers):
            one.await_ready()

    def await_program(self, process):
        """Awaits that a program which just started holds its session."""
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.kill)
        self.assertEqual(process.stdout.readline(), "ready\n")
        return process


class PlainTest(Case):
    """Runs pods without encryption, which is the chart's default."""

    def test_program_connects_with_what_the_page_gives_it(self):
        spec = yaml.safe_load(on_the_page(r"\n## Programs\n.*?```yaml\n(.*?)```"))
        node.objects = manifests.read(render.path("cpu")) + [
            credentials.secret("djinn-tokens", credentials.TOKENS),
            credentials.secret("djinn-tenant-default",
                               {"token": credentials.TOKENS["tenant-default"]})]
        self.start(workers=1)
        program = pods.Pod(node, "program", {"spec": {"volumes": spec["volumes"]}}, self.hosts)
        self.addCleanup(program.remove)
        environment = {one["name"]: one["value"] for one in spec["env"]}
        (mount,) = spec["volumeMounts"]
        environment["DJINN_TOKEN_FILE"] = environment["DJINN_TOKEN_FILE"].replace(
            mount["mountPath"], str(program.volume(mount["name"])))
        process = self.await_program(program.start_here(
            [programs.path("tests/operating/hold_session")], {**os.environ, **environment}))
        process.communicate("")
        self.assertEqual(process.returncode, 0)


class PodsTest(Case):
    """Runs pods with certificates on both sides."""

    @classmethod
    def setUpClass(cls):
        cls.authority = credentials.Authority(temporary)
        authority = cls.authority
        node.objects = manifests.read(render.path("tls")) + [
            credentials.secret("djinn-tokens", credentials.TOKENS),
            credentials.secret("djinn-coordinator-tls",
                               authority.issue("coordinator", f"DNS:{_SERVICE}")),
            credentials.secret("djinn-worker-tls", authority.issue("worker", "DNS:djinn-worker")),
            credentials.secret("djinn-operator-tls", authority.issue("operator", "DNS:operator"))]
        authority.issue("program", "DNS:program")
        (temporary / "token").write_bytes(credentials.TOKENS["tenant-default"])
        (temporary / "token").chmod(0o600)
        cls.start(workers=2)

    def ctl(self, *arguments):
        done = self.workers[0].execute("drain", ["/usr/bin/djinnctl", *arguments])
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def program(self, name):
        environment = {
            **os.environ, "DJINN_COORDINATOR": f"{self.coordinator.address}:7070",
            "DJINN_TLS_SERVER_NAME": _SERVICE, "DJINN_TLS_CA_FILE": "ca.crt",
            "DJINN_TLS_CERTIFICATE_FILE": "program.crt",
            "DJINN_TLS_PRIVATE_KEY_FILE": "program.key", "DJINN_TOKEN_FILE": "token",
            "DJINN_TLS_WORKER_SERVER_NAME": "djinn-worker"}
        return self.await_program(subprocess.Popen(
            [programs.path(f"tests/operating/{name}")], cwd=temporary, env=environment,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))

    def leases(self):
        return {line.split()[0]: line for line in self.ctl("get", "leases").splitlines()[1:]}

    def test_1_listen_where_the_policies_let_others_in(self):
        policies = {"djinn-coordinator": self.coordinator, "djinn-workers": self.workers[0]}
        for name, one in policies.items():
            policy = manifests.named(node.objects, "NetworkPolicy", name)["spec"]
            # The node alone asks the monitoring port, unless Prometheus is let in.
            named = manifests.ranges(policy["ingress"]) + [(7080, 7080)]
            listening = one.listening()
            for first, last in named:
                self.assertTrue(any(first <= port <= last for port in listening), (first, last))
            self.assertEqual(manifests.outside(listening, named), [])

    def test_2_dial_where_the_policies_let_them_out(self):
        policy = manifests.named(node.objects, "NetworkPolicy", "djinn-workers")["spec"]
        named = manifests.ranges(policy["egress"])
        for one in self.workers:
            self.assertTrue(one.connected())
            self.assertEqual(manifests.outside(one.connected(), named), [])
        self.assertEqual(self.coordinator.connected(), set())

    def test_3_worker_sees_no_admin_token_and_no_writable_root(self):
        worker = self.workers[0]
        done = worker.execute("worker", ["/usr/bin/busybox", "ls", "/etc/djinn/tokens"])
        self.assertEqual(done.stdout.split(), ["join"])
        for place in ("/etc/x", "/usr/bin/x", "/var/x", "/etc/djinn/tokens/x"):
            done = worker.execute("worker", ["/usr/bin/busybox", "touch", place])
            self.assertRegex(done.stderr, "Read-only file system|Permission denied")
        done = worker.execute("worker", ["/usr/bin/busybox", "grep", "-E", "Cap|NoNew",
                                         "/proc/self/status"])
        self.assertEqual({line.split()[1] for line in done.stdout.splitlines()},
                         {"0000000000000000", "1"})

    def test_4_tools_reach_the_coordinator(self):
        self.assertIn("djinn-worker-cpu-1", self.ctl("get", "workers"))
        done = self.workers[0].execute("drain", [
            "/usr/bin/grpcurl", "-cacert", "/etc/djinn/tls/ca.crt",
            "-cert", "/etc/djinn/tls/tls.crt", "-key", "/etc/djinn/tls/tls.key",
            f"{_SERVICE}:7070", "grpc.health.v1.Health/Check"])
        self.assertIn("SERVING", done.stdout, done.stderr)

    def test_4_helm_test_reaches_every_worker(self):
        rendered = manifests.render(files=[render.path("tls").replace(".yaml", ".values.yaml")],
                                    namespace=render.NAMESPACE)
        made = pods.Pod(node, "djinn-test", manifests.named(rendered, "Pod", "djinn-test"),
                        self.hosts)
        self.addCleanup(made.remove)
        self.assertEqual(made.run(), [0], made.log("test"))

    def test_4_signal_of_the_page_puts_new_tokens_into_force(self):
        signal = on_the_page(r"kubectl exec -n djinn \"\$pod\" -- sh -c '(.*?)'")
        tokens = {**credentials.TOKENS, "join": b"another-0123456789abcdef"}
        node.find("Secret", "djinn-tokens").update(credentials.secret("djinn-tokens", tokens))
        for pod, name in ((self.coordinator, "coordinator"),
                          *((one, "worker") for one in self.workers)):
            pod.renew("tokens")
            done = pod.execute(name, ["/bin/sh", "-c", signal])
            self.assertEqual(done.returncode, 0, done.stderr)
            pods.eventually(lambda pod=pod, name=name: "ReloadConfig" in pod.log(name),
                            f"{pod.name} reads its configuration again")
        self.assertIn("join token", self.coordinator.log("coordinator"))

    def test_5_worker_that_stops_moves_what_it_holds_first(self):
        program = self.program("hold_session")
        (lease,) = self.leases().values()
        held = next(one for one in self.workers if one.name in lease)
        took, statuses = held.stop()
        self.assertEqual(statuses["worker"], 0, held.log("worker")[-2000:])
        self.assertLess(took, 60)
        self.assertGreaterEqual(held.hook_ends["worker"], held.marks["drained"])
        (moved,) = self.leases_by(self.other(held)).values()
        self.assertNotIn(held.name, moved)
        self.assertIsNone(program.poll())
        # Its successor has the same name, and takes leases again.
        again = self.replace(held)
        pods.eventually(lambda: '"draining": false' in self.ctl(
            "get", "worker", held.name, "-o", "json"), "the worker is free again")
        program.communicate("")
        self.assertEqual(program.returncode, 0)
        self.assertIn("uncordoned", self.coordinator.log("coordinator"))
        self.assertIsNot(again, held)

    def other(self, one):
        return next(each for each in self.workers if each is not one)

    def leases_by(self, one):
        done = one.execute("drain", ["/usr/bin/djinnctl", "get", "leases"])
        self.assertEqual(done.returncode, 0, done.stderr)
        return {line.split()[0]: line for line in done.stdout.splitlines()[1:]}

    def replace(self, old):
        again = self.pod(old.name, "djinn-worker-cpu")
        type(self).workers[self.workers.index(old)] = again
        again.start()
        again.await_ready()
        return again

    def test_6_cordon_of_an_operator_outlives_the_pod(self):
        self.ctl("cordon", "worker", self.workers[1].name)
        old = self.workers[1]
        old.remove()
        self.replace(old)
        pods.eventually(lambda: (self.workers[1].folder / "volumes/run/rejoined").exists(),
                        "the new pod looked")
        self.assertIn('"cordoned": true', self.ctl("get", "worker", old.name, "-o", "json"))
        self.ctl("uncordon", "worker", old.name)

    def test_7_worker_stops_at_once_when_the_coordinator_is_away(self):
        took, statuses = self.coordinator.stop()
        self.assertEqual(statuses, {"coordinator": 0})
        self.assertLess(took, 20)
        for one in self.workers:
            self.assertTrue(one.probe("worker", "liveness"))
        pods.eventually(lambda: not self.workers[0].probe("worker", "readiness"), "not ready")
        took, statuses = self.workers[0].stop()
        self.assertEqual(statuses["worker"], 0)
        self.assertLess(took, 60)
        self.assertIn("drained", self.workers[0].marks)


if __name__ == "__main__":
    pods.isolate()
    unittest.main()
