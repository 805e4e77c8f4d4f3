"""Renders the manifests of this folder, for those without Helm: NAME.values.yaml makes NAME.yaml.

usage: python3 -m deploy.kubernetes.render    in the root of the checkout; ./djinn chart calls it
"""

import glob
import os
import sys

from deploy.testing import manifests
from deploy.testing.tools import yaml

FOLDER = os.path.dirname(os.path.abspath(__file__))
NAMES = sorted(os.path.basename(path).removesuffix(".values.yaml")
               for path in glob.glob(FOLDER + "/*.values.yaml"))
NAMESPACE = "djinn"
# Labels that only Helm uses.
_HELM_LABELS = ("helm.sh/chart", "app.kubernetes.io/managed-by")


def path(name):
    return os.path.join(FOLDER, name + ".yaml")


def _without_helm(value):
    if isinstance(value, dict):
        return {key: _without_helm(one) for key, one in value.items() if key not in _HELM_LABELS}
    if isinstance(value, list):
        return [_without_helm(one) for one in value]
    return value


class _Dumper(yaml.SafeDumper):
    """Writes texts of several lines as blocks, and no anchors."""

    def ignore_aliases(self, data):
        return True


_Dumper.add_representer(str, lambda dumper, text: dumper.represent_scalar(
    "tag:yaml.org,2002:str", text, style="|" if "\n" in text else None))


def text(name):
    """The manifest of these values: a namespace, and what the chart makes without its test."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {
        "name": NAMESPACE,
        "labels": {"pod-security.kubernetes.io/enforce": "restricted",
                   "pod-security.kubernetes.io/warn": "restricted"}}}
    objects = manifests.render(files=[os.path.join(FOLDER, name + ".values.yaml")],
                               namespace=NAMESPACE)
    objects = [one for one in objects
               if "helm.sh/hook" not in one["metadata"].get("annotations", {})]
    return ("# Rendered from deploy/helm/djinn with "
            f"{name}.values.yaml by `./djinn chart`; do not edit.\n"
            + yaml.dump_all([namespace, *_without_helm(objects)], Dumper=_Dumper,
                            sort_keys=False, width=100))


def main():
    for name in NAMES:
        with open(path(name), "w", encoding="utf-8") as file:
            file.write(text(name))
    return 0


if __name__ == "__main__":
    sys.exit(main())
