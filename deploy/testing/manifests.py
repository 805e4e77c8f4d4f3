"""Answers questions of tests about Kubernetes objects: parts of pods, validity, security."""

import json
import os
import shutil
import subprocess
import tempfile

from deploy.testing import tools
from deploy.testing.tools import yaml

CHART = tools.ROOT + "/deploy/helm/djinn"
VERSIONS = ("1.31", "1.32", "1.33", "1.34", "1.35", "1.36")
# Kinds of operators; kubernetes-validate has no schema of theirs.
_FOREIGN = ("keda.sh/", "cert-manager.io/", "monitoring.coreos.com/")
_VOLUMES = {"configMap", "emptyDir", "secret", "projected", "downwardAPI",
            "persistentVolumeClaim", "ephemeral", "csi"}


class RenderError(Exception):
    """helm refused the values; the text is its own."""


def render(values=None, files=(), release="djinn", namespace="lab", chart=CHART):
    """Returns the objects that the chart makes of these values."""
    command = [tools.helm(), "template", release, chart, "--namespace", namespace, "-f", "-"]
    for file in files:
        command += ["-f", file]
    done = subprocess.run(command, input=json.dumps(values or {}), capture_output=True, text=True,
                          check=False)
    if done.returncode:
        raise RenderError(done.stderr)
    return [one for one in yaml.safe_load_all(done.stdout) if one]


def notes(values):
    """Returns the notes of an installation, which `helm template` leaves out."""
    with tempfile.TemporaryDirectory() as folder:
        chart = shutil.copytree(CHART, os.path.join(folder, "chart"))
        os.rename(chart + "/templates/NOTES.txt", chart + "/files/notes")
        with open(chart + "/templates/notes.yaml", "w", encoding="utf-8") as file:
            file.write('{apiVersion: v1, kind: ConfigMap, metadata: {name: notes}, '
                       'data: {text: {{ tpl (.Files.Get "files/notes") . | quote }}}}')
        return named(render(values, chart=chart), "ConfigMap", "notes")["data"]["text"]


def read(path):
    with open(path, encoding="utf-8") as file:
        return [one for one in yaml.safe_load_all(file) if one]


def named(objects, kind, name):
    (found,) = [one for one in objects
                if one["kind"] == kind and one["metadata"]["name"] == name]
    return found


def pod_of(an_object):
    """The specification of the pod in an object, or None."""
    if an_object["kind"] == "Pod":
        return an_object["spec"]
    return an_object.get("spec", {}).get("template", {}).get("spec")


def container(an_object, name):
    pod = pod_of(an_object)
    (found,) = [one for one in pod["containers"] + pod.get("initContainers", [])
                if one["name"] == name]
    return found


def configuration(objects, name, key):
    return yaml.safe_load(named(objects, "ConfigMap", name)["data"][key])


def errors(objects, version):
    """Returns what the strict schemas of a Kubernetes version refuse, as lines."""
    import kubernetes_validate  # pylint: disable=import-outside-toplevel
    found = []
    for one in objects:
        if one["apiVersion"].startswith(_FOREIGN):
            continue
        try:
            kubernetes_validate.validate(one, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            found.append(f"{one['kind']} {one['metadata']['name']}: {error.message}")
    return found


def insecurities(pod):
    """Returns what the pod security standard `restricted` refuses, as lines."""
    found = []
    security = pod.get("securityContext", {})
    for key in ("hostNetwork", "hostPID", "hostIPC"):
        if pod.get(key):
            found.append(key)
    for volume in pod.get("volumes", []):
        (kind,) = set(volume) - {"name"}
        if kind not in _VOLUMES:
            found.append(f"volume {volume['name']} is {kind}")
    for one in pod["containers"] + pod.get("initContainers", []):
        own = one.get("securityContext", {})

        def either(key):
            return own.get(key, security.get(key))  # pylint: disable=cell-var-from-loop

        if either("runAsNonRoot") is not True or not either("runAsUser"):
            found.append(f"{one['name']} may be root")
        if own.get("allowPrivilegeEscalation") is not False or own.get("privileged"):
            found.append(f"{one['name']} may gain privileges")
        if own.get("capabilities") != {"drop": ["ALL"]}:
            found.append(f"{one['name']} has capabilities")
        if (either("seccompProfile") or {}).get("type") not in ("RuntimeDefault", "Localhost"):
            found.append(f"{one['name']} has no seccomp profile")
        if any("hostPort" in port for port in one.get("ports", [])):
            found.append(f"{one['name']} has a host port")
    return found


def ranges(rules):
    """The first and the last port of everything that a policy's rules name."""
    return [(port["port"], port.get("endPort", port["port"]))
            for rule in rules for port in rule["ports"]]


def outside(ports, named):
    """The ports that lie in none of the ranges."""
    return sorted(one for one in ports
                  if not any(first <= one <= last for first, last in named))
