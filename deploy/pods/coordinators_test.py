"""Several coordinators run from the built images: one leads, and another one takes over.

One etcd, on the node, stands for the three that the manifests name. Needs root. Images are
taken from $DJINN_IMAGES if it is set, and built otherwise.
"""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest
import urllib.request

from deploy.images import built
from deploy.kubernetes import render
from deploy.pods import credentials
from deploy.pods import pods
from deploy.testing import manifests
from deploy.testing import programs
from deploy.testing import tools

_COUNT = 3
_SERVICE = "djinn-coordinator.djinn.svc"
_NODE = "10.88.0.1"
_ETCD = [f"etcd-{index}.etcd.etcd.svc" for index in range(_COUNT)]


def _metrics(pod):
    """Returns a pod's metrics; an empty string while the pod changes its role."""
    # No proxy of the environment is meant for pods.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://{pod.address}:7080/metrics", timeout=30) as answer:
            return answer.read().decode()
    except OSError:
        return ""


class CoordinatorsTest(unittest.TestCase):

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.node = pods.Node(self.folder / "node", built.archives(self.folder / "archives"))
        authority = credentials.Authority(self.folder)
        names = ",".join("DNS:" + one for one in (_SERVICE, "*." + _SERVICE))
        self.node.objects = manifests.read(render.path("etcd")) + [
            credentials.secret("djinn-tokens", credentials.TOKENS),
            credentials.secret("djinn-coordinator-tls", authority.issue("coordinator", names)),
            credentials.secret("djinn-worker-tls", authority.issue("worker", "DNS:djinn-worker")),
            credentials.secret("djinn-operator-tls", authority.issue("operator", "DNS:operator")),
            credentials.secret("djinn-etcd-tls", authority.issue("etcd", ",".join(
                [f"IP:{_NODE}", *("DNS:" + one for one in _ETCD)])))]
        authority.issue("program", "DNS:program")
        (self.folder / "token").write_bytes(credentials.TOKENS["tenant-default"])
        (self.folder / "token").chmod(0o600)
        self.hosts = {name: _NODE for name in _ETCD}
        self.start_etcd()
        self.coordinators = [self.pod("djinn-coordinator", index) for index in range(_COUNT)]
        for one in self.coordinators:
            self.hosts[f"{one.name}.{_SERVICE}"] = one.address
        self.workers = [self.pod("djinn-worker-cpu", index) for index in range(2)]
        for one in (*self.workers, *self.coordinators):
            one.start()

    def start_etcd(self):
        log = open(self.folder / "etcd.log", "wb")
        self.addCleanup(log.close)
        server = subprocess.Popen(
            [tools.etcd(), f"--data-dir={self.folder}/etcd",
             f"--listen-client-urls=https://{_NODE}:2379",
             f"--advertise-client-urls=https://{_NODE}:2379",
             "--listen-peer-urls=http://127.0.0.1:0", "--client-cert-auth",
             f"--trusted-ca-file={self.folder}/ca.crt", f"--cert-file={self.folder}/etcd.crt",
             f"--key-file={self.folder}/etcd.key"], stdout=log, stderr=log)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)

    def pod(self, of, index):
        template = manifests.named(self.node.objects, "StatefulSet", of)["spec"]["template"]
        made = pods.Pod(self.node, f"{of}-{index}", template, self.hosts)
        self.addCleanup(made.remove)
        return made

    def leaders(self, among):
        return [one for one in among if "djinn_coordinator_leader 1\n" in _metrics(one)]

    def ctl(self, *arguments):
        return self.workers[0].execute("drain", ["/usr/bin/djinnctl", *arguments])

    def active(self):
        """Returns the number of workers that the leading coordinator knows."""
        return self.ctl("get", "workers").stdout.count("ACTIVE")

    def test_another_one_leads_when_the_leader_stops(self):
        # Followers are ready, too.
        for one in (*self.coordinators, *self.workers):
            one.await_ready()
        (leader,) = pods.eventually(lambda: self.leaders(self.coordinators), "one leads")
        policy = manifests.named(self.node.objects, "NetworkPolicy", "djinn-coordinator")["spec"]
        for one in self.coordinators:
            self.assertEqual(one.connected(), {2379})
            self.assertEqual(manifests.outside(one.connected(),
                                               manifests.ranges(policy["egress"])), [])
        pods.eventually(lambda: self.active() == 2, "the workers join")
        environment = {
            **os.environ, "DJINN_COORDINATOR": ",".join(
                f"{one.address}:7070" for one in self.coordinators),
            "DJINN_TLS_SERVER_NAME": _SERVICE, "DJINN_TLS_CA_FILE": "ca.crt",
            "DJINN_TLS_CERTIFICATE_FILE": "program.crt",
            "DJINN_TLS_PRIVATE_KEY_FILE": "program.key", "DJINN_TOKEN_FILE": "token",
            "DJINN_TLS_WORKER_SERVER_NAME": "djinn-worker"}
        program = subprocess.Popen(
            [programs.path("tests/operating/hold_session")], cwd=self.folder, env=environment,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(program.stdout.close)
        self.addCleanup(program.wait)
        self.addCleanup(program.kill)
        self.assertEqual(program.stdout.readline(), "ready\n")
        leases = self.ctl("get", "leases", "-o", "json").stdout
        self.assertIn("IN_USE", leases)

        took, statuses = leader.stop()
        self.assertEqual(statuses, {"coordinator": 0}, leader.log("coordinator")[-2000:])
        left = [one for one in self.coordinators if one is not leader]
        pods.eventually(lambda: len(self.leaders(left)) == 1, "another one leads")
        pods.eventually(lambda: self.active() == 2, "the workers join the other one")
        pods.eventually(lambda: "IN_USE" in self.ctl("get", "leases", "-o", "json").stdout,
                        "the lease is known")
        self.assertIsNone(program.poll())
        # The next pod of this name is at another address, and follows.
        again = self.pod("djinn-coordinator", self.coordinators.index(leader))
        again.start()
        again.await_ready()
        self.assertEqual(self.leaders([again]), [])
        program.communicate("")
        self.assertEqual(program.returncode, 0)
        self.assertLess(took, 120)


if __name__ == "__main__":
    pods.isolate()
    unittest.main()
