"""The cost of traces: a share of the requests, or all, beside the same program without.

Client, coordinator and worker send their spans to a collector on this machine, which takes
its part of the cores. The columns "Djinn" and "local" hold the traced and the untraced
program. Where one request in a hundred is traced, the mean of all is compared, because the
shortest one is not traced.
"""

import os
import subprocess
import tempfile

from tests.bench.python.sides import Setting, Turn, compare

# Name, share of the requests that is traced, and what a turn is. A turn of the first kind has
# two traced requests in the mean.
_SHARES = (
    ("1 % of requests", 0.01, Turn(calls=200, figure="mean")),
    ("all requests", 1.0, Turn(calls=8, figure="shortest")),
)


class _Collector:
    """A collector process, which writes what it receives into a file."""

    def __enter__(self):
        self._folder = tempfile.TemporaryDirectory()
        self._path = os.path.join(self._folder.name, "spans")
        self._process = subprocess.Popen(
            ["bazel-bin/tests/operating/otlp_collector", self._path], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True)
        self.address = self._process.stdout.readline().strip()
        return self

    def __exit__(self, *_):
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()
        self._folder.cleanup()

    def services(self):
        """Names of the programs that sent something."""
        with open(self._path, encoding="utf-8") as file:
            text = file.read()
        return {name for name in ("djinn-client", "djinn-coordinator", "djinn-worker")
                if f'"stringValue":"{name}"' in text}


def measure(device, local_device, rounds):
    if local_device != "cpu":
        raise NotImplementedError("the workers of this benchmark have CPUs")
    rows = []
    for name, share, turn in _SHARES:
        with _Collector() as collector:
            traced = Setting(
                extra="tracing: {endpoint: '%s'}\n" % collector.address,
                environment={"DJINN_TRACING_ENDPOINT": collector.address,
                             "DJINN_TRACING_SAMPLE_RATIO": str(share)})
            found = compare("python_tracing", name, (traced, Setting()), turn, rounds)
            missing = {"djinn-client", "djinn-worker"} - collector.services()
            for row in found:
                if missing:
                    row.error = "no span of " + " and ".join(sorted(missing))
            rows += found
    return rows
