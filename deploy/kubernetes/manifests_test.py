"""The manifests are valid, secure, and start the programs that they name."""

import os
import pathlib
import subprocess
import tempfile
import unittest

from deploy.kubernetes import render
from deploy.testing import manifests
from deploy.testing.tools import ROOT, yaml

_NAMES = {"coordinator": "coordinator/djinn-coordinator", "worker": "gpu_worker/djinn-worker"}


def program(role):
    for folder in (".", os.environ.get("DJINN_PROGRAMS", os.path.join(ROOT, "bazel-bin"))):
        path = os.path.join(folder, _NAMES[role])
        if os.path.exists(path):
            return os.path.abspath(path)
    raise AssertionError(f"{_NAMES[role]} is not built")


def refusal(role, text):
    """Why a program refuses a configuration; empty when it takes it.

    The files that it names are there: tokens and certificates, in this test's own folder.
    """
    with tempfile.TemporaryDirectory() as folder:
        etc = pathlib.Path(folder, "etc")
        config = yaml.safe_load(text)

        def place(value, key=""):
            if isinstance(value, dict):
                return {name: place(one, name) for name, one in value.items()}
            if isinstance(value, list):
                return [place(one) for one in value]
            if key.endswith("_file") and key != "state_file":
                file = etc / value.removeprefix("/etc/djinn/")
                file.parent.mkdir(parents=True, exist_ok=True)
                if "tls" not in value:
                    file.write_text(value.encode().hex()[-40:], encoding="utf-8")
                    file.chmod(0o600)
                return str(file)
            return value.replace("@HOST@", "10.0.0.1") if isinstance(value, str) else value

        placed = place(config)
        tls = etc / "tls"
        if tls.exists():
            subprocess.run(
                ["openssl", "req", "-x509", "-newkey", "ed25519", "-noenc", "-keyout",
                 tls / "tls.key", "-out", tls / "tls.crt", "-days", "2", "-subj", "/CN=t"],
                check=True, capture_output=True)
            (tls / "ca.crt").write_bytes((tls / "tls.crt").read_bytes())
        file = pathlib.Path(folder, "config.yaml")
        file.write_text(yaml.safe_dump(placed), encoding="utf-8")
        done = subprocess.run([program(role), f"--config={file}", "--validate"],
                              capture_output=True, text=True, check=False)
        return done.stderr if done.returncode else ""


class ManifestsTest(unittest.TestCase):

    def each(self):
        for name in render.NAMES:
            with self.subTest(name):
                yield name, manifests.read(render.path(name))

    def test_are_valid_on_every_version(self):
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

    def test_standard_finds_what_it_refuses(self):
        pod = manifests.pod_of(manifests.named(manifests.read(render.path("cpu")), "StatefulSet",
                                               "djinn-worker-cpu"))
        pod["volumes"].append({"name": "x", "hostPath": {"path": "/"}})
        pod["containers"][0]["securityContext"] = {"runAsUser": 0}
        pod["hostNetwork"] = True
        self.assertGreaterEqual(len(manifests.insecurities(pod)), 5)

    def test_programs_take_their_configurations(self):
        for _, objects in self.each():
            for one in objects:
                for key, text in one.get("data", {}).items() if one["kind"] == "ConfigMap" else ():
                    if key.endswith(".yaml"):
                        self.assertEqual(refusal(key.removesuffix(".yaml"), text), "")

    def test_programs_refuse_others(self):
        objects = manifests.read(render.path("cpu"))
        text = manifests.named(objects, "ConfigMap", "djinn-coordinator")["data"][
            "coordinator.yaml"]
        self.assertIn("lissen", refusal("coordinator", text.replace("listen:", "lissen:", 1)))

    def test_no_secret_is_in_them(self):
        for _, objects in self.each():
            self.assertNotIn("Secret", [one["kind"] for one in objects])

    def test_nothing_of_helm_is_left(self):
        for name, _ in self.each():
            with open(render.path(name), encoding="utf-8") as file:
                self.assertNotRegex(file.read(), r"helm\.sh|\{\{|<no value>")


if __name__ == "__main__":
    unittest.main()
