"""The manifests are valid, secure, and start the programs that they name."""

import unittest

from deploy.kubernetes import render
from deploy.testing import manifests
from deploy.testing import programs


class ManifestsTest(unittest.TestCase):

    def each(self):
        for name in render.NAMES:
            with self.subTest(name):
                yield name, manifests.read(render.path(name))

    def test_manifests_are_valid_on_every_version(self):
        for _, objects in self.each():
            for version in manifests.VERSIONS:
                self.assertEqual(manifests.errors(objects, version), [], version)

    def test_validation_finds_an_unknown_field(self):
        objects = manifests.read(render.path("cpu"))
        manifests.named(objects, "StatefulSet", "djinn-coordinator")["spec"]["replica"] = 1
        self.assertIn("replica", "".join(manifests.errors(objects, "1.31")))

    def test_pods_pass_the_restricted_standard(self):
        for _, objects in self.each():
            self.assertEqual(objects[0]["metadata"]["labels"]
                             ["pod-security.kubernetes.io/enforce"], "restricted")
            for one in objects:
                if manifests.pod_of(one):
                    self.assertEqual(manifests.insecurities(manifests.pod_of(one)), [])

    def test_the_checker_finds_violations_of_the_standard(self):
        pod = manifests.pod_of(manifests.named(manifests.read(render.path("cpu")), "StatefulSet",
                                               "djinn-worker-cpu"))
        pod["volumes"].append({"name": "x", "hostPath": {"path": "/"}})
        pod["containers"][0]["securityContext"] = {"runAsUser": 0}
        pod["hostNetwork"] = True
        self.assertGreaterEqual(len(manifests.insecurities(pod)), 5)

    def test_programs_take_their_configurations(self):
        for _, objects in self.each():
            self.assertEqual(programs.refusals(objects), {})

    def test_programs_refuse_others(self):
        objects = manifests.read(render.path("cpu"))
        text = manifests.named(objects, "ConfigMap", "djinn-coordinator")["data"][
            "coordinator.yaml"]
        self.assertIn("lissen", programs.refusal("coordinator", text.replace("listen:", "lissen:", 1)))

    def test_manifests_contain_no_secret(self):
        for _, objects in self.each():
            self.assertNotIn("Secret", [one["kind"] for one in objects])

    def test_nothing_of_helm_is_left(self):
        for name, _ in self.each():
            with open(render.path(name), encoding="utf-8") as file:
                self.assertNotRegex(file.read(), r"helm\.sh|\{\{|<no value>")


if __name__ == "__main__":
    unittest.main()
