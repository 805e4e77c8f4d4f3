"""A real API server takes what the chart makes, in a namespace that demands `restricted`.

The objects are applied by a user with the rights of one namespace alone. The chart has no
service account of its own: its pods have the namespace's, and get no token of it.
"""

import base64
import copy
import itertools
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

from deploy.helm import api_server
from deploy.testing import manifests
from deploy.testing import tools

_DEVICES = {"cpu": {}, "device plugin": {"device": "cuda"},
            "dra": {"device": "cuda", "gpu": {"resourceClaimTemplateName": "h100"}}}
_TLS = {"none": {}, "secrets": {"mode": "secrets", "secrets": {
    "coordinator": "c", "worker": "w", "operator": "o"}}}
_KINDS = {"plain": {}, "kept": {"contentDisk": {"enabled": True}},
          "daemon": {"kind": "DaemonSet", "contentDisk": {"enabled": True}}}
_COORDINATORS = {"one": {}, "three": {"replicas": 3, "etcd": {
    "endpoints": ["etcd-0.etcd:2379"], "tls": {"secret": "e"}}}}
# Kinds of operators whose definitions this server does not have.
_FOREIGN = ("keda.sh/", "cert-manager.io/", "monitoring.coreos.com/")
_DEPLOYER = "deployer-0123456789abcdef"
_VERBS = ["create", "get", "patch"]
_RULES = [
    {"apiGroups": [""], "resources": ["configmaps", "pods", "secrets", "services"],
     "verbs": _VERBS},
    {"apiGroups": ["apps"], "resources": ["daemonsets", "statefulsets"], "verbs": _VERBS},
    {"apiGroups": ["networking.k8s.io"], "resources": ["networkpolicies"], "verbs": _VERBS},
    {"apiGroups": ["policy"], "resources": ["poddisruptionbudgets"], "verbs": _VERBS},
]


def _pod(owner):
    """The pod that a controller makes from the object's template, or None."""
    if owner["kind"] == "Pod":
        return copy.deepcopy(owner)
    template = owner.get("spec", {}).get("template")
    if not template:
        return None
    pod = {"apiVersion": "v1", "kind": "Pod", **copy.deepcopy(template)}
    pod["metadata"] = {**pod.get("metadata", {}), "name": owner["metadata"]["name"] + "-0"}
    for claim in owner["spec"].get("volumeClaimTemplates", []):
        name = claim["metadata"]["name"]
        pod["spec"].setdefault("volumes", []).append(
            {"name": name, "persistentVolumeClaim": {"claimName": name + "-0"}})
    return pod


class ApiServerTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.server = api_server.ApiServer(
            cls.addClassCleanup, folder.name, {"deployer": _DEPLOYER})
        done = cls.server.create({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": "deployer"}, "rules": _RULES})
        assert done.status == 201, done.message

    def namespace(self, name):
        """Makes a namespace that demands `restricted`, for the deployer."""
        levels = {"pod-security.kubernetes.io/" + mode: "restricted"
                  for mode in ("enforce", "warn", "audit")}
        for one in (
                {"apiVersion": "v1", "kind": "Namespace",
                 "metadata": {"name": name, "labels": levels}},
                # In a cluster, a controller makes this account.
                {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}},
                {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding",
                 "metadata": {"name": "deployer"},
                 "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
                             "name": "deployer"},
                 "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User",
                               "name": "deployer"}]}):
            done = self.server.create(one, name)
            self.assertEqual(done.status, 201, done.message)

    def taken(self, done, what):
        self.assertIn(done.status, (200, 201), what + ": " + done.message)
        self.assertEqual(done.warnings, [], what)
        return done.body

    def test_matrix_is_applied_and_its_pods_are_admitted(self):
        pods = 0
        for number, names in enumerate(itertools.product(_DEVICES, _TLS, _KINDS, _COORDINATORS)):
            device, tls, kind, count = names
            namespace = "lab-%d" % number
            with self.subTest(", ".join(names)):
                self.namespace(namespace)
                rendered = manifests.render({
                    "tls": _TLS[tls], "coordinator": _COORDINATORS[count],
                    "networkPolicy": {"etcd": [{"podSelector": {}}]},
                    "workerGroups": {"cpu": {**_DEVICES[device], **_KINDS[kind]}}},
                    namespace=namespace)
                for one in rendered:
                    what = one["kind"] + " " + one["metadata"]["name"]
                    first = self.taken(self.server.apply(one, namespace, _DEPLOYER), what)
                    again = self.taken(self.server.apply(one, namespace, _DEPLOYER), what)
                    # Nothing of it is changed by defaults, so a second time is no change.
                    self.assertEqual(again["metadata"]["resourceVersion"],
                                     first["metadata"]["resourceVersion"], what)
                    pod = _pod(one)
                    if pod is None or one["kind"] == "Pod":
                        continue
                    made = self.taken(
                        self.server.create(pod, namespace, dry=True), "pod of " + what)
                    self.assertNotIn("serviceAccountToken", repr(made["spec"]), what)
                    pods += 1
        # The coordinator has one, and so have the workers.
        self.assertEqual(pods, 2 * (number + 1))

    def test_the_api_server_knows_all_kinds_but_those_of_operators(self):
        rendered = manifests.render({
            "monitoring": {"enabled": True, "alerts": {"enabled": True}},
            "tls": {"mode": "certManager"},
            "workerGroups": {"cpu": {"autoscaling": {"enabled": True}}}})
        unknown = {one["kind"] for one in rendered if one["apiVersion"].startswith(_FOREIGN)}
        self.assertEqual(unknown, {
            "Certificate", "Issuer", "PodMonitor", "PrometheusRule", "ScaledObject",
            "ServiceMonitor", "TriggerAuthentication"})
        for one in rendered:
            if one["kind"] not in unknown:
                api_server.collection(one, "lab")

    def test_pods_that_violate_the_standard_are_refused(self):
        self.namespace("strict")
        owner = manifests.named(
            manifests.render(namespace="strict"), "StatefulSet", "djinn-coordinator")

        def refuse(change, why):
            pod = _pod(owner)
            change(pod["spec"])
            done = self.server.create(pod, "strict", dry=True)
            self.assertEqual(done.status, 403, done.message)
            self.assertIn('violates PodSecurity "restricted', done.message)
            self.assertIn(why, done.message)

        refuse(lambda spec: spec["containers"][0].update(securityContext={"privileged": True}),
               "privileged")
        refuse(lambda spec: spec.update(hostNetwork=True), "host namespaces")
        refuse(lambda spec: spec.update(securityContext={"runAsUser": 0}), "runAsUser=0")
        refuse(lambda spec: spec.setdefault("volumes", []).append(
            {"name": "host", "hostPath": {"path": "/"}}), "hostPath")
        # The pod as it is differs in these alone.
        self.taken(self.server.create(_pod(owner), "strict", dry=True), "the pod itself")

    def test_deployer_has_no_other_rights(self):
        self.namespace("mine")
        secrets = [one for one in manifests.render(namespace="mine") if one["kind"] == "Secret"]
        self.assertTrue(secrets)
        for secret in secrets:
            self.taken(self.server.apply(secret, "mine", _DEPLOYER), secret["metadata"]["name"])
        for path in ("/api/v1/namespaces/kube-system/secrets", "/api/v1/nodes",
                     "/apis/rbac.authorization.k8s.io/v1/clusterroles"):
            self.assertEqual(self.server.request("GET", path, token=_DEPLOYER).status, 403, path)
        self.assertEqual(
            self.server.request("GET", "/api/v1/nodes", token="unknown").status, 401)

    def test_unknown_fields_are_refused(self):
        self.namespace("checked")
        owner = manifests.named(
            manifests.render(namespace="checked"), "StatefulSet", "djinn-coordinator")
        owner["spec"]["replicaz"] = 1
        done = self.server.apply(owner, "checked", _DEPLOYER)
        self.assertGreaterEqual(done.status, 400)
        self.assertIn("replicaz", done.message)


class PageTest(unittest.TestCase):
    """Commands of docs/operator/kubernetes.md that need an API server and no node."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.server = api_server.ApiServer(cls.addClassCleanup, folder.name, {})
        cls.place = pathlib.Path(folder.name, "checkout")
        (cls.place / "bin").mkdir(parents=True)
        (cls.place / "deploy").symlink_to(os.path.join(tools.ROOT, "deploy"))
        for name, path in (("helm", tools.helm()), ("kubectl", tools.kubectl())):
            (cls.place / "bin" / name).symlink_to(path)
        cls.server.write_kubeconfig(cls.place / "kubeconfig")
        cls.text = pathlib.Path(tools.ROOT, "docs/operator/kubernetes.md").read_text(
            encoding="utf-8")

    def block(self, language, words):
        """The one block of the page that has these words."""
        (found,) = [one for one in re.findall(rf"```{language}\n(.*?)```", self.text, re.DOTALL)
                    if words in one]
        return found

    def run_commands(self, commands):
        done = subprocess.run(
            ["bash", "-euc", commands], cwd=self.place, capture_output=True, text=True, check=False,
            env={"PATH": f"{self.place}/bin:/usr/bin:/bin", "HOME": str(self.place),
                 "KUBECONFIG": str(self.place / "kubeconfig")})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def get(self, kind, name):
        return self.server.get(kind, name, "djinn")

    def test_commands_do_what_the_page_says(self):
        # `helm test` needs nodes: deploy/pods/pods_test runs its pod.
        install = self.block("sh", "helm upgrade --install").split("\nhelm test")[0]
        self.run_commands(install)
        self.assertEqual(self.get("StatefulSet", "djinn-coordinator").status, 200)
        tokens = self.get("Secret", "djinn-tokens").body["data"]
        self.assertEqual(set(tokens), {"join", "admin", "tenant-default"})
        with self.subTest("an upgrade keeps the tokens"):
            self.run_commands(install + " --set tenants.red.max_sessions=4")
            again = self.get("Secret", "djinn-tokens").body["data"]
            self.assertEqual(set(again), {*tokens, "tenant-red"})
            self.assertLessEqual(tokens.items(), again.items())
            self.assertEqual(self.get("Secret", "djinn-tenant-red").body["data"],
                             {"token": again["tenant-red"]})
        with self.subTest("new tokens"):
            self.run_commands(self.block("sh", "kubectl patch secret"))
            new = self.get("Secret", "djinn-tokens").body["data"]
            self.assertEqual({key for key in again if new[key] != again[key]},
                             {"join", "tenant-default"})
            self.assertEqual(self.get("Secret", "djinn-tenant-default").body["data"],
                             {"token": new["tenant-default"]})
        with self.subTest("a move to etcd"):
            self.run_commands(self.block("sh", "kubectl delete"))
            for kind, name in (("StatefulSet", "djinn-coordinator"),
                               ("Service", "djinn-coordinator"),
                               ("Service", "djinn-coordinator-internal")):
                self.assertEqual(self.get(kind, name).status, 404, name)
            (self.place / "several.yaml").write_text(
                self.block("yaml", "replicas: 3"), encoding="utf-8")
            self.run_commands(install + " --values several.yaml")
            self.assertEqual(
                self.get("StatefulSet", "djinn-coordinator").body["spec"]["replicas"], 3)
            for name in ("djinn-coordinator", "djinn-coordinator-internal"):
                self.assertEqual(self.get("Service", name).body["spec"]["clusterIP"], "None")
        with self.subTest("own tokens"):
            self.run_commands("kubectl delete --namespace djinn secret/djinn-tokens "
                              "secret/djinn-tenant-default")
            self.run_commands(self.block("sh", "kubectl create secret"))
            own = self.get("Secret", "djinn-tokens").body["data"]
            self.assertEqual(set(own), {"join", "admin", "tenant-default"})
            for token in own.values():
                self.assertRegex(base64.b64decode(token).decode(), "^[0-9a-f]{48}$")


if __name__ == "__main__":
    unittest.main()
