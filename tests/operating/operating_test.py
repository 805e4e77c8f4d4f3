"""The recipes of docs/operator/observe.md hold, and djinnctl shows what is there.

Runs the cluster of `./djinn up`: a coordinator and two CPU workers on loopback. The
recipes are run as they stand in the document: first on a cluster that nobody has used
yet, then with a program that holds a session open. Those for TLS are run on a cluster
with the document's own certificates.
"""

import json
import os
import subprocess
import tempfile
import unittest

from tests.operating import recipes
from tests.operating.cluster import PATIENCE, Cluster, eventually

_SECTIONS = ("With grpcurl", "With grpcurl and TLS")
# Variables that recipes set from an earlier answer.
_FROM_ANSWERS = ("SESSION", "LEASE", "GRAPH")


def _grpcurl():
    runfiles = os.path.dirname(os.getcwd())
    path = os.path.join(runfiles, "grpcurl", "grpcurl")
    if not os.path.exists(path):
        raise AssertionError(
            "grpcurl is missing: `./djinn test //tests/operating/...` builds it")
    return path


class ClusterTest(unittest.TestCase):
    """A cluster, and an environment to type the document's commands in."""

    section = None
    worker_ids = ()
    tls = False

    @classmethod
    def setUpClass(cls):
        with open("docs/operator/observe.md") as file:
            cls.document = file.read()
        cls.recipes = recipes.recipes(recipes.section(cls.document, cls.section))
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        bin_folder = os.path.join(cls.folder.name, "bin")
        os.mkdir(bin_folder)
        os.symlink(_grpcurl(), os.path.join(bin_folder, "grpcurl"))
        cls.environment = dict(
            os.environ, PATH=bin_folder + ":" + os.environ["PATH"])
        if cls.tls:
            cls.make_certificates()
        cls.cluster = Cluster(cls.folder.name, cls.worker_ids, cls.tls)
        cls.addClassCleanup(cls.cluster.stop)
        cls.environment.update(
            DJINN_COORDINATOR=cls.cluster.coordinator,
            DJINN_TOKEN_FILE=cls.cluster.path("dev.token"),
            DJINN_ADMIN_TOKEN_FILE=cls.cluster.path("admin.token"),
            WORKER=cls.cluster.workers[0])
        eventually(
            lambda: [w["state"] for w in cls.get("workers")["workers"]]
            == ["ACTIVE"] * len(cls.worker_ids), "the workers join")

    @classmethod
    def make_certificates(cls):
        with open("docs/operator/secure.md") as file:
            section = recipes.section(file.read(), "Encryption")
        commands = section.split("```sh\n")[1].split("```\n")[0]
        subprocess.run(
            ["bash", "-euo", "pipefail", "-c", commands], cwd=cls.folder.name, check=True,
            stderr=subprocess.DEVNULL, timeout=PATIENCE)
        for name, file in (("CA", "ca.crt"), ("CERTIFICATE", "operator.crt"),
                           ("PRIVATE_KEY", "operator.key")):
            cls.environment["DJINN_TLS_%s_FILE" % name] = os.path.join(
                cls.folder.name, file)
        cls.environment["DJINN_TLS_WORKER_SERVER_NAME"] = "djinn-worker"

    @classmethod
    def run_command(cls, command):
        # The output is that of a terminal.
        return subprocess.run(
            ["bash", "-euo", "pipefail", "-c", command], env=cls.environment,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=PATIENCE,
            universal_newlines=True)

    @classmethod
    def ctl(cls, *arguments):
        return subprocess.run(
            ["coordinator/ctl/djinnctl", *arguments], env=cls.environment,
            stdout=subprocess.PIPE, check=True, timeout=PATIENCE,
            universal_newlines=True).stdout

    @classmethod
    def get(cls, *arguments):
        return json.loads(cls.ctl("get", *arguments, "-o", "json"))

    def check(self, recipe):
        with self.subTest(recipe.command):
            # Health follows what it tells a moment later.
            if "Health/Check" in recipe.command:
                eventually(
                    lambda: recipes.matches(recipe.output,
                                            self.run_command(recipe.command).stdout),
                    "health")
            done = self.run_command(recipe.command)
            self.assertEqual(done.returncode, 0, done.stdout)
            self.assertTrue(
                recipes.matches(recipe.output, done.stdout),
                "shown:\n%s\nreal:\n%s" % (recipe.output, done.stdout))


class TlsTest(ClusterTest):

    section = "With grpcurl and TLS"
    worker_ids = ("w0",)
    tls = True

    def test_recipes(self):
        for recipe in self.recipes:
            self.check(recipe)

    def test_without_a_certificate_no_answer_comes(self):
        done = self.run_command(
            'grpcurl -cacert "$DJINN_TLS_CA_FILE" "$DJINN_COORDINATOR" list')
        self.assertNotEqual(done.returncode, 0, done.stdout)
        self.assertNotIn("djinn.v1", done.stdout)


class OperatingTest(ClusterTest):

    section = "With grpcurl"
    worker_ids = ("w0", "w1")
    holder = None

    @classmethod
    def tearDownClass(cls):
        if cls.holder is None:
            return
        cls.holder.stdin.close()
        cls.holder.stdout.close()
        status = cls.holder.wait(PATIENCE)
        if status != 0:
            raise AssertionError("hold_session: exit status %d" % status)

    def only(self, kind):
        items = self.get(kind)[kind]
        self.assertEqual(len(items), 1, items)
        return items[0]

    def test_0_every_grpcurl_of_the_document_is_a_recipe(self):
        uses = self.document.count("grpcurl -")
        in_recipes = sum(
            recipe.command.count("grpcurl -") for name in _SECTIONS
            for recipe in recipes.recipes(recipes.section(self.document, name)))
        self.assertEqual(uses, in_recipes)

    def test_1_cold(self):
        for recipe in self.recipes:
            if any("$" + name in recipe.command for name in _FROM_ANSWERS):
                continue
            with self.subTest(recipe.command):
                done = self.run_command(recipe.command)
                self.assertEqual(done.returncode, 0, done.stdout)
        for kind in ("sessions", "leases", "graphs"):
            with self.subTest(kind):
                listed = self.run_command(
                    "TOKEN=$(cat $DJINN_ADMIN_TOKEN_FILE) grpcurl -plaintext "
                    "-expand-headers -H 'authorization: Bearer ${TOKEN}' "
                    "$DJINN_COORDINATOR djinn.v1.Admin/List" + kind.capitalize())
                self.assertEqual(json.loads(listed.stdout), {})
                self.assertEqual(self.get(kind)[kind], [])

    def test_2_with_a_session(self):
        type(self).holder = subprocess.Popen(
            ["tests/operating/hold_session"], env=self.environment,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, universal_newlines=True)
        self.assertEqual(self.holder.stdout.readline(), "ready\n")
        # The workers' next reports show what the program left there.
        eventually(
            lambda: self.only("leases")["state"] == "IN_USE"
            and int(self.only("leases")["use"]["generators"]["count"]) == 1
            and int(self.only("leases")["use"]["outstanding"]) == 0
            and int(self.only("graphs")["run_count"]) == 1,
            "the worker's report")
        self.environment.update(
            SESSION=self.only("sessions")["session_id"],
            LEASE=self.only("leases")["lease_id"],
            GRAPH=self.only("graphs")["fingerprint"])
        for recipe in self.recipes:
            self.check(recipe)

    def test_3_a_session_by_class(self):
        session = self.only("sessions")
        use = session["use"]
        self.assertEqual(session["state"], "ATTACHED")
        self.assertEqual(session["program"], "hold_session")
        self.assertEqual(use["contents"], {"count": "1", "size_bytes": str(4 << 20)})
        # The storages are `sums`, `noise` and `scaled`.
        self.assertEqual(use["storages"]["count"], "3")
        self.assertEqual(use["generators"]["count"], "1")
        self.assertGreater(int(use["generators"]["size_bytes"]), 0)
        by_class = [int(use[c]["size_bytes"]) for c in ("contents", "storages", "generators")]
        self.assertEqual(sum(by_class), int(session["storage_bytes"]))
        self.assertEqual(int(session["storage_count"]), 5)
        self.assertEqual(use["graph_count"], 1)
        self.assertEqual(use["outstanding"], 0)
        self.assertEqual(session["pending_virtual_devices"], [])
        self.assertGreater(int(session["limits"]["memory_bytes"]), 0)
        tenant = self.only("tenants")
        self.assertEqual(tenant["use"], use)
        self.assertEqual(tenant["session_count"], 1)
        self.assertEqual(tenant["lease_count"], 1)
        self.assertEqual(int(tenant["content_bytes"]), 4 << 20)

    def test_4_a_lease_and_its_worker(self):
        lease = self.only("leases")
        self.assertEqual(lease["virtual_device"], 0)
        self.assertEqual(lease["session_id"], self.only("sessions")["session_id"])
        self.assertIn("0 queued runs", lease["placement_reason"])
        self.assertEqual(lease["use"], self.only("sessions")["use"])
        worker = self.get("workers", lease["worker_id"])
        self.assertEqual(worker["incarnation"], lease["incarnation"])
        self.assertEqual(worker["lease_count"], 1)
        self.assertEqual(worker["session_count"], 1)
        memory = worker["memory"]
        self.assertEqual(int(memory["content_bytes"]), 4 << 20)
        self.assertEqual(memory["idle_content_bytes"], "0")
        self.assertGreater(int(memory["storage_bytes"]), 0)
        self.assertEqual(
            int(worker["free_bytes"]),
            int(worker["memory_bytes"]) - int(memory["content_bytes"])
            - int(memory["storage_bytes"]))
        self.assertEqual(worker["plan_cache"]["entries"], "1")
        self.assertEqual(worker["plan_cache"]["misses"], "1")
        self.assertEqual(worker["content_cache"]["entries"], "1")
        self.assertEqual(worker["executed"]["runs"], "1")
        self.assertEqual(worker["executed"]["failed_nodes"], "0")

    def test_5_a_graph_for_people(self):
        graph = self.only("graphs")
        self.assertEqual(graph["worker_ids"], [self.only("leases")["worker_id"]])
        text = self.ctl("get", "graphs", graph["fingerprint"][:8])
        operators = [line.split()[1] for line in text.split("FLOP\n")[-1].splitlines()]
        self.assertEqual(
            [o for o in operators if o in ("aten::rand", "aten::add_.Tensor", "aten::mul.Tensor")],
            ["aten::rand", "aten::add_.Tensor", "aten::mul.Tensor"])
        self.assertIn("float32[2,3]", text)
        self.assertIn("(draws)", text)

        dot = self.ctl("get", "graph", graph["fingerprint"], "-o", "dot")
        self.assertIn("add_.Tensor", dot)

    def test_6_every_kind_has_a_table_and_a_detail(self):
        for kind, name in (("workers", "w0"), ("sessions", self.environment["SESSION"]),
                           ("tenants", "dev"), ("queues", "dev"), ("leases", self.environment["LEASE"]),
                           ("graphs", self.environment["GRAPH"])):
            with self.subTest(kind):
                self.assertIn(name[:16], self.ctl("get", kind))
                self.assertIn(name, self.ctl("get", kind, name).splitlines()[0])
                self.assertIn(name, self.ctl("describe", kind, name).splitlines()[0])
                self.assertIn(name[:16], self.ctl("get", kind, "-o", "wide"))
                self.assertIn(name[:16], self.ctl("get", kind, name, "-o", "yaml"))

    def test_7_a_queue_is_stopped_and_resumed(self):
        self.addCleanup(self.ctl, "resume", "queue", "dev")
        self.assertIn("stopped since", self.ctl("stop", "queue", "dev"))
        self.assertIn("QUEUE_STOPPED", self.ctl("explain", "placement", "dev"))
        # Existing leases continue.
        self.assertEqual(self.only("leases")["state"], "IN_USE")
        self.assertIn("active", self.ctl("resume", "queue", "dev"))
        self.assertNotIn("QUEUE_STOPPED", self.ctl("explain", "placement", "dev"))

    def test_8_what_is_used_now(self):
        once = self.ctl("watch", "queues", "--count=2", "--interval=100ms").split("\n\n")
        self.assertEqual(len(once), 2)
        self.assertIn("w0", self.ctl("top", "workers"))
        self.assertIn("dev", self.ctl("top", "tenants", "--interval=100ms"))

    def status(self, *arguments, **environment):
        return subprocess.run(
            ["coordinator/ctl/djinnctl", *arguments], env=dict(self.environment, **environment),
            capture_output=True, timeout=PATIENCE).returncode

    def test_9_how_djinnctl_ends(self):
        self.assertEqual(
            self.status("quota", "set", "dev", "memory_bytes=64GiB", "--dry-run"), 0)
        self.assertEqual(self.status("quota", "set", "dev"), 2)
        self.assertEqual(self.status("version"), 0)
        self.assertEqual(self.status("get", "worker", "nobody"), 1)
        self.assertEqual(self.status("get", "workers", "--colour=red"), 2)
        self.assertEqual(self.status("watch", "workers", "--interval=0"), 2)
        nowhere = {"DJINN_COORDINATOR": "unix:" + self.cluster.path("nowhere.sock")}
        self.assertEqual(self.status("get", "workers", **nowhere), 3)
        self.assertEqual(self.status("version", "--client", **nowhere), 0)


if __name__ == "__main__":
    unittest.main()
