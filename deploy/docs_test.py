"""The commands and examples of docs/operator/deploy.md and kubernetes.md work as they stand.

Commands that change a machine run over a copy of /etc that ends with the test. What starts a
cluster elsewhere (docker, kubectl, skopeo, systemctl) is a stand-in that notes how it is called.
Needs root.
"""

import grp
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import tempfile
import unittest

from deploy.pods import pods
from deploy.testing import manifests
from deploy.testing import programs
from deploy.testing import tools
from deploy.testing.tools import ROOT, yaml

_MARK = "<!-- Run by deploy/docs_test. -->\n"
_STAND_INS = ("docker", "kubectl", "skopeo", "systemctl")


def page(name):
    return pathlib.Path(ROOT, "docs/operator", name).read_text(encoding="utf-8")


def blocks(text, language):
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def section(text, title):
    return re.split(r"(?m)^## ", text.split(f"\n## {title}\n")[1])[0]


class DocsTest(unittest.TestCase):

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.folder = pathlib.Path(temporary.name)
        shutil.copytree(os.path.join(ROOT, "deploy"), self.folder / "deploy")
        for name in _STAND_INS:
            path = self.folder / "bin" / name
            path.parent.mkdir(exist_ok=True)
            path.write_text(f'#!/bin/sh\necho "{name} $* ($PWD $DJINN_USER)" '
                            f'>>{self.folder}/calls\n', encoding="utf-8")
            path.chmod(0o755)

    def run_marked(self, text):
        """Runs the marked commands of a page; returns the calls of the stand-ins."""
        marked = "".join(blocks(text, "sh")[0] for text in text.split(_MARK)[1:])
        self.assertTrue(marked)
        done = subprocess.run(
            ["bash", "-euc", marked], cwd=self.folder, capture_output=True, text=True, check=False,
            env={**os.environ, "PATH": f"{self.folder}/bin:{os.environ['PATH']}"})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return (self.folder / "calls").read_text(encoding="utf-8").splitlines()

    def overlay_etc(self):
        layers = self.folder / "layers"
        layers.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "tmpfs", layers], check=True)
        self.addCleanup(subprocess.run, ["umount", "--lazy", layers], check=True)
        for name in ("upper", "work"):
            (layers / name).mkdir()
        subprocess.run(["mount", "-t", "overlay", "overlay", "-o", f"lowerdir=/etc,upperdir="
                        f"{layers}/upper,workdir={layers}/work", "/etc"], check=True)
        self.addCleanup(subprocess.run, ["umount", "--lazy", "/etc"], check=True)

    def test_systemd_is_set_up_as_the_page_says(self):
        self.overlay_etc()
        # A package does this.
        for command in (["systemd-sysusers", "djinn.sysusers"],
                        ["systemd-tmpfiles", "--create", "djinn.tmpfiles"]):
            command[-1] = str(self.folder / "deploy/systemd" / command[-1])
            subprocess.run(command, check=True)
        calls = self.run_marked(section(page("deploy.md"), "systemd"))
        self.assertEqual([call.split(" (")[0] for call in calls], [
            "systemctl daemon-reload",
            "systemctl enable --now djinn-coordinator djinn-worker@w0",
            "systemctl reload djinn-coordinator"])
        group = grp.getgrnam("djinn").gr_gid
        for name in ("join", "admin", "research"):
            path = pathlib.Path("/etc/djinn", name + ".token")
            self.assertEqual((path.stat().st_mode & 0o777, path.stat().st_gid), (0o640, group))
            self.assertRegex(path.read_text(encoding="utf-8"), "^[0-9a-f]{48}$")
        # The user of the units reads what it needs.
        config = blocks(section(page("deploy.md"), "systemd"), "yaml")[0]
        pathlib.Path("/etc/djinn/coordinator.yaml").write_text(config, encoding="utf-8")
        os.chown("/etc/djinn/coordinator.yaml", 0, group)
        coordinator = self.folder / "djinn-coordinator"
        shutil.copy(programs.path("coordinator/djinn-coordinator"), coordinator)
        self.folder.chmod(0o755)
        done = subprocess.run(
            ["setpriv", f"--reuid=djinn", "--regid=djinn", "--clear-groups", coordinator,
             "--config=/etc/djinn/coordinator.yaml", "--validate"],
            capture_output=True, text=True, check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_compose_finds_what_the_page_makes(self):
        calls = self.run_marked(section(page("deploy.md"), "Compose"))
        started = calls.index("docker compose up --detach --wait "
                              f"({self.folder}/deploy/compose 0:0)")
        services = yaml.safe_load((self.folder / "deploy/compose/compose.yaml").read_text(
            encoding="utf-8"))["services"]
        loaded = [call.split()[2:4] for call in calls[:started] if call.startswith("skopeo copy")]
        for service in services.values():
            image = service["image"].removeprefix("localhost/djinn/").split(":")[0]
            self.assertIn([f"oci-archive:.deps/images/{image}.oci.tar",
                           "docker-daemon:" + service["image"]], loaded)
            for volume in service["volumes"]:
                self.assertTrue((self.folder / "deploy/compose" / volume.split(":")[0]).exists())

    def test_tokens_become_the_keys_of_a_secret(self):
        call, of_tenant = self.run_marked(page("kubernetes.md"))
        self.assertIn("create secret generic djinn-tokens", call)
        self.assertIn("create secret generic djinn-tenant-default", of_tenant)
        self.assertIn("--from-file=token=tenant-default", of_tenant)
        keys = re.findall(r"--from-file=(\S+)", call)
        self.assertEqual(sorted(keys), ["admin", "join", "tenant-default"])
        for key in keys:
            self.assertTrue((self.folder / key).exists())

    def test_installation_renders(self):
        for block in blocks(page("kubernetes.md"), "sh"):
            for command in block.replace("\\\n", " ").splitlines():
                if command.startswith("helm upgrade"):
                    words = shlex.split(command)
                    self.assertEqual(words[:3], ["helm", "upgrade", "--install"])
                    done = subprocess.run([tools.helm(), "template", *words[3:]], cwd=self.folder,
                                          capture_output=True, text=True, check=False)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    self.assertIn("registry.example/djinn/worker", done.stdout)
                    return
        self.fail("the page installs nothing")

    def test_examples_of_values_render_and_start(self):
        names = set(yaml.safe_load((self.folder / "deploy/helm/djinn/values.yaml").read_text(
            encoding="utf-8")))
        seen = 0
        for block in blocks(page("kubernetes.md"), "yaml"):
            values = yaml.safe_load(block)
            if not set(values) <= names:
                continue
            seen += 1
            self.assertEqual(programs.refusals(manifests.render(values)), {})
        self.assertGreaterEqual(seen, 5)

    def test_example_of_a_program_fits_a_pod(self):
        (block,) = [one for one in blocks(section(page("kubernetes.md"), "Programs"), "yaml")]
        parts = yaml.safe_load(block)
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {
            "containers": [{"name": "p", "image": "p", "env": parts["env"],
                            "volumeMounts": parts["volumeMounts"]}],
            "volumes": parts["volumes"]}}
        for version in manifests.VERSIONS:
            self.assertEqual(manifests.errors([pod], version), [])

    def test_smallest_configurations_start(self):
        first, second = blocks(page("deploy.md"), "yaml")[:2]
        self.assertEqual(programs.refusal("coordinator", first), "")
        self.assertEqual(programs.refusal("worker", second), "")

    def test_ports_of_the_policies_are_those_of_the_page(self):
        objects = manifests.render()
        table = section(page("kubernetes.md"), "Network policies")
        for name, to in (("djinn-coordinator", "coordinator"), ("djinn-workers", "workers")):
            policy = manifests.named(objects, "NetworkPolicy", name)
            port = policy["spec"]["ingress"][0]["ports"][0]["port"]
            self.assertRegex(table, rf"(?m)^\|[^|]*\| {to} \| {port}")

    def test_every_command_of_kubectl_exec_names_a_container(self):
        objects = manifests.render()
        for kind, name, container in re.findall(r"kubectl exec \S+ \S+ (\w+)/(\S+) -c (\S+)",
                                                page("kubernetes.md")):
            one = manifests.named(objects, {"statefulset": "StatefulSet"}[kind], name)
            manifests.container(one, container)

    def test_command_of_kubectl_exec_without_a_container_reaches_a_server(self):
        (labels,) = re.findall(r"kubectl get pods -n djinn -l 'app.kubernetes.io/component in "
                               r"\((.*)\)' -o name", page("kubernetes.md"))
        found = set()
        for one in manifests.render():
            pod = manifests.pod_of(one)
            if one["kind"] in ("StatefulSet", "DaemonSet"):
                component = one["spec"]["template"]["metadata"]["labels"][
                    "app.kubernetes.io/component"]
                # kubectl takes the first one.
                self.assertEqual(pod["containers"][0]["name"], component)
                found.add(component)
        self.assertEqual(set(labels.split(", ")), found)

    def test_every_command_of_kubectl_port_forward_names_a_port(self):
        objects = manifests.render()
        found = re.findall(r"kubectl port-forward \S+ \S+ service/(\S+) \d+:(\d+)",
                           page("kubernetes.md"))
        self.assertTrue(found)
        for name, port in found:
            ports = manifests.named(objects, "Service", name)["spec"]["ports"]
            self.assertIn(int(port), [one["port"] for one in ports])
        for name, key in re.findall(r"kubectl get secret \S+ \S+ (\S+) -o jsonpath='{.data.(\w+)}'",
                                    page("kubernetes.md")):
            self.assertIn(key, manifests.named(objects, "Secret", name)["data"])


if __name__ == "__main__":
    pods.isolate()
    unittest.main()
