"""The tools of the tests in deploy/: helm, promtool, etcd, kube-apiserver, kubectl, and
Python packages.

Under Bazel they come from external repositories; elsewhere from $DJINN_HELM and
$DJINN_DEPLOY_PYTHON, or .deps of the checkout.
"""

import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))


def _external(*parts):
    """A file of an external repository under Bazel, or None."""
    if "TEST_SRCDIR" in os.environ:
        path = os.path.join(os.environ["TEST_SRCDIR"], *parts)
        if os.path.exists(path):
            return path
    return None


def helm():
    path = _external("helm", "helm") or os.environ.get("DJINN_HELM") or os.path.join(
        ROOT, ".deps/helm/helm")
    if not os.path.exists(path):
        raise AssertionError("helm is missing: `./djinn test --full` builds it")
    return path


def promtool():
    path = _external("promtool", "promtool") or os.path.join(ROOT, ".deps/promtool/promtool")
    if not os.path.exists(path):
        raise AssertionError("promtool is missing: `./djinn test` unpacks it")
    return path


def etcd():
    path = _external("etcd", "etcd") or os.path.join(ROOT, ".deps/etcd/etcd")
    if not os.path.exists(path):
        raise AssertionError("etcd is missing: `./djinn test --full` unpacks it")
    return path


def kube_apiserver():
    path = _external("kube_apiserver", "kube_apiserver") or os.path.join(
        ROOT, ".deps/kube_apiserver/kube_apiserver")
    if not os.path.exists(path):
        raise AssertionError("kube-apiserver is missing: `./djinn test --full` builds it")
    return path


def kubectl():
    path = _external("kubectl", "kubectl") or os.path.join(ROOT, ".deps/kubectl/kubectl")
    if not os.path.exists(path):
        raise AssertionError("kubectl is missing: `./djinn test --full` unpacks it")
    return path


def _packages():
    folder = os.environ.get("DJINN_DEPLOY_PYTHON") or os.path.join(ROOT, ".deps/deploy_python")
    listed = _external("deploy_python", "folder.txt")
    if listed:
        with open(listed, encoding="utf-8") as file:
            folder = file.read().strip() or folder
    path = os.path.join(folder, "lib/python3.11/site-packages")
    if not os.path.isdir(path):
        raise AssertionError("packages are missing: `./djinn setup deploy_python` installs them")
    return path


PACKAGES = _packages()
sys.path.insert(0, PACKAGES)
import yaml  # noqa: E402  pylint: disable=unused-import,wrong-import-position
