"""A worker that is to use a GPU which is not there says what is missing, and ends."""

import os
import subprocess
import tempfile
import unittest

from tests.operating.cluster import PATIENCE


class CudaWorkerTest(unittest.TestCase):

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        with open(os.path.join(self.folder, "join.token"), "w") as file:
            file.write("join-0123456789abcdef")
        os.chmod(os.path.join(self.folder, "join.token"), 0o600)

    def start(self, device):
        """Exit status and log of a worker with this device."""
        config = os.path.join(self.folder, "w0.yaml")
        with open(config, "w") as file:
            file.write("worker_id: w0\ncoordinator: 127.0.0.1:1\n"
                       "join_token_file: join.token\ndevice: %s\n" % device)
        # Without this variable the worker would execute itself a second time to
        # set its threads. Setting it saves a process.
        done = subprocess.run(
            ["gpu_worker/djinn-worker", "--config=" + config], timeout=PATIENCE,
            env=dict(os.environ, OMP_WAIT_POLICY="passive"), stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, universal_newlines=True)
        return done.returncode, done.stdout

    def test_a_device_that_no_machine_has(self):
        status, log = self.start("{kind: cuda:127}")
        self.assertEqual(status, 1, log)
        self.assertIn("cannot start", log)
        self.assertIn("cuda:127 cannot be used: ", log)

    def test_a_plug_in_that_is_not_there(self):
        status, log = self.start("{kind: cuda:0, plugin: nowhere.so}")
        self.assertEqual(status, 1, log)
        self.assertIn("cuda:0 cannot be used: ", log)


if __name__ == "__main__":
    unittest.main()
