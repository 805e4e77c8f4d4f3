"""Helpers of the unit tests of the chart: cached rendering, and questions to objects."""

import functools
import json
import unittest

from deploy.testing import manifests

COORDINATOR = "djinn-coordinator"
INTERNAL = "djinn-coordinator-internal"
WORKER = "djinn-worker-cpu"
# Values for encryption with certificates from Secrets.
SECRETS = {"mode": "secrets", "secrets": {"coordinator": "c", "worker": "w", "operator": "o"}}

# Values for three coordinators.
SEVERAL = {"coordinator": {"replicas": 3, "etcd": {
    "endpoints": ["etcd-0.etcd:2379", "etcd-1.etcd:2479"], "tls": {"secret": "e"}}},
           "networkPolicy": {"etcd": [{"podSelector": {"matchLabels": {"app": "etcd"}}}]}}


@functools.lru_cache(maxsize=None)
def _rendered(text):
    return manifests.render(json.loads(text))


def render(**values):
    return _rendered(json.dumps(values, sort_keys=True))


def worker(**values):
    """Renders the chart with one group of these values."""
    return render(workerGroups={"cpu": values})


def kinds(objects):
    return sorted({one["kind"] for one in objects})


class Case(unittest.TestCase):

    def refuses(self, pattern, **values):
        with self.assertRaises(manifests.RenderError) as caught:
            render(**values)
        self.assertRegex(str(caught.exception), pattern)

    def pod(self, objects, name=WORKER, kind="StatefulSet"):
        return manifests.pod_of(manifests.named(objects, kind, name))
