"""A worker whose address leads nowhere costs its clients a moment once, and no program."""

import json
import os
import subprocess
import sys
import unittest

from tests.operating.cluster import PATIENCE, eventually, start_cluster

_PROGRAM = """
import torch
import djinn

djinn.connect(connect_timeout=%d)
total = torch.ones(3, device=djinn.device()).sum().item()
print(djinn.where_is(0).worker_id, total)
djinn.close()
""" % (2 * PATIENCE)


class UnreachableWorkerTest(unittest.TestCase):
    def test_the_second_program_avoids_an_unreachable_worker(self):
        # Nothing listens there.
        cluster = start_cluster(
            self, ("w0",), extra_of={"w0": "advertise: 127.0.0.1:1\n"})

        def begin():
            environment = dict(
                os.environ,
                DJINN_COORDINATOR=cluster.coordinator,
                DJINN_TOKEN_FILE=cluster.path("dev.token"))
            return subprocess.Popen(
                [sys.executable, "-c", _PROGRAM], env=environment,
                stdout=subprocess.PIPE, universal_newlines=True)

        def unreached():
            text = subprocess.run(
                ["coordinator/ctl/djinnctl", "get", "worker", "w0", "-o", "json",
                 "--coordinator=" + cluster.coordinator,
                 "--token-file=" + cluster.path("admin.token")],
                check=True, stdout=subprocess.PIPE).stdout
            return int(json.loads(text).get("unreached_sessions", 0))

        first = begin()
        self.addCleanup(first.kill)
        eventually(unreached, "the coordinator hears that the worker is not reached")
        with open(cluster.path("w0.yaml")) as file:
            text = file.read()
        text = text.replace("w0", "w1").replace("advertise: 127.0.0.1:1\n", "")
        cluster.write("w1.yaml", text)
        cluster.start("w1")
        self.assertEqual(first.communicate(timeout=2 * PATIENCE)[0], "w1 3.0\n")
        second = begin()
        self.addCleanup(second.kill)
        self.assertEqual(second.communicate(timeout=2 * PATIENCE)[0], "w1 3.0\n")
        # Only the first program has tried the worker.
        self.assertEqual(unreached(), 1)
