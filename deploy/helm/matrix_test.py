"""The chart lints, and is valid, secure and startable for each device, encryption and kind."""

import functools
import itertools
import json
import subprocess
import unittest

from deploy.testing import manifests
from deploy.testing import programs
from deploy.testing import tools

_DEVICES = {"cpu": {}, "device plugin": {"device": "cuda"},
            "dra": {"device": "cuda", "gpu": {"resourceClaimTemplateName": "h100"}}}
_TLS = {"none": {}, "secrets": {"mode": "secrets", "secrets": {
    "coordinator": "c", "worker": "w", "operator": "o"}},
        "one-sided": {"mode": "secrets", "mutual": False, "secrets": {
            "coordinator": "c", "worker": "w", "operator": "o"}},
        "certManager": {"mode": "certManager"}}
_KINDS = {"plain": {}, "scaled": {"autoscaling": {"enabled": True}},
          "kept": {"contentDisk": {"enabled": True}},
          "daemon": {"kind": "DaemonSet", "contentDisk": {"enabled": True}}}


@functools.lru_cache(maxsize=None)
def _errors(text, version):
    return manifests.errors([json.loads(text)], version)


_COORDINATORS = {"one": {}, "three": {"replicas": 3, "etcd": {
    "endpoints": ["etcd-0.etcd:2379"], "tls": {"secret": "e"}}}}


@functools.lru_cache(maxsize=None)
def _rendered(text):
    return manifests.render(json.loads(text))


def rendered(values):
    return _rendered(json.dumps(values, sort_keys=True))


class MatrixTest(unittest.TestCase):

    def each(self):
        for device, tls, kind, count in itertools.product(_DEVICES, _TLS, _KINDS, _COORDINATORS):
            with self.subTest(f"{device}, {tls}, {kind}, {count}"):
                yield {"tls": _TLS[tls], "coordinator": _COORDINATORS[count], "monitoring": {
                    "enabled": True, "alerts": {"enabled": True},
                    "dashboards": {"enabled": True}},
                       "networkPolicy": {"etcd": [{"podSelector": {}}]},
                       "workerGroups": {"cpu": {**_DEVICES[device], **_KINDS[kind]}}}

    def test_objects_are_valid_on_every_version(self):
        for values in self.each():
            for one in rendered(values):
                for version in manifests.VERSIONS:
                    self.assertEqual(_errors(json.dumps(one, sort_keys=True), version), [], version)

    def test_pods_pass_the_restricted_standard(self):
        for values in self.each():
            for one in rendered(values):
                if manifests.pod_of(one):
                    self.assertEqual(manifests.insecurities(manifests.pod_of(one)), [])

    def test_programs_take_their_configurations(self):
        taken = set()
        for values in self.each():
            self.assertEqual(programs.refusals(rendered(values), taken), {})

    def test_chart_lints(self):
        for values in self.each():
            done = subprocess.run([tools.helm(), "lint", "--strict", manifests.CHART, "-f", "-"],
                                  input=json.dumps(values), capture_output=True, text=True,
                                  check=False)
            self.assertEqual(done.returncode, 0, done.stdout)


if __name__ == "__main__":
    unittest.main()
