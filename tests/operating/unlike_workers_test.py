"""Sessions go to the one of two unlike workers that their work is done sooner on."""

import subprocess
import unittest

from tests.operating.cluster import PATIENCE, eventually, start_cluster

# The workers differ: one computes a thousand times as fast, and its link is a
# hundred times as slow.
_WORKERS = {
    "quick": ("{flops_per_second: 1e12, bytes_per_second: 1e11, seconds_per_call: 1us}",
              "100MB"),
    "near": ("{flops_per_second: 1e9, bytes_per_second: 1e9, seconds_per_call: 1us}",
             "10GB"),
}


class UnlikeWorkersTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls):
        cls.cluster = start_cluster(cls, ())
        for name, (speed, link) in _WORKERS.items():
            cls.cluster.write(name + ".yaml", """
worker_id: %s
listen: 127.0.0.1:0
coordinator: %s
join_token_file: join.token
heartbeat_interval: 100ms
link_bandwidth: %s
device: {memory: 1GiB, threads: 1, speed: %s}
""" % (name, cls.cluster.coordinator, link, speed))
            cls.cluster.start(name)
        eventually(lambda: cls.cluster.said("get", "workers").count("127.0.0.1") == 2,
                   "both join")

    @classmethod
    def run_program(cls, *arguments):
        done = subprocess.run(arguments, env=cls.cluster.environment(), capture_output=True,
                              text=True, timeout=PATIENCE)
        if done.returncode:
            raise AssertionError(done.stderr)
        return done.stdout

    def work(self, kind, seed):
        """The worker that did it. Its answer is what this machine gives, too."""
        worker, answer = self.run_program(
            "tests/operating/place_work", kind, str(seed)).split()
        self.assertEqual(answer, "equal")
        return worker

    def test_each_kind_of_work_finds_its_worker(self):
        # Nothing is known of a program's work before its first session.
        for kind in "compute", "transfer":
            self.work(kind, 1)
        # The numbers differ each time, so that no worker holds them already.
        for seed in 2, 3:
            self.assertEqual(self.work("compute", seed), "quick")
            self.assertEqual(self.work("transfer", seed), "near")


if __name__ == "__main__":
    unittest.main()
