"""The tools of the tests in deploy/: helm, and the packages of .deps/deploy_python.

Under Bazel they come from external repositories; elsewhere from $DJINN_HELM and
$DJINN_DEPLOY_PYTHON, or .deps of the checkout.
"""

import os
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))


def _found(runfile, variable, *parts):
    external = os.path.join("external", runfile)
    if os.path.exists(external):
        return os.path.abspath(external)
    return os.environ.get(variable) or os.path.join(ROOT, ".deps", *parts)


def helm():
    path = _found("helm/helm", "DJINN_HELM", "helm", "helm")
    if not os.path.exists(path):
        raise AssertionError("helm is missing: `./djinn test --full` builds it")
    return path


def _packages():
    listed = os.path.join("external", "deploy_python", "folder.txt")
    folder = os.environ.get("DJINN_DEPLOY_PYTHON") or os.path.join(ROOT, ".deps", "deploy_python")
    if os.path.exists(listed):
        with open(listed, encoding="utf-8") as file:
            folder = file.read().strip() or folder
    path = os.path.join(folder, "lib/python3.11/site-packages")
    if not os.path.isdir(path):
        raise AssertionError("packages are missing: `./djinn setup deploy_python` installs them")
    return path


sys.path.insert(0, _packages())
import yaml  # noqa: E402  pylint: disable=unused-import,wrong-import-position
