"""The image worker-cuda, unpacked: it lacks nothing for a GPU but the driver.

Needs root, some minutes, and 12 GB of disk for a while.
"""

import json
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

from deploy.images import build_images
from deploy.images import built
from deploy.images import oci

_SITE = "usr/lib/djinn"
_CONFIG = """\
worker_id: w0
listen: 127.0.0.1:0
coordinator: 127.0.0.1:1
join_token_file: join.token
device: {kind: "cuda:0"}
"""


def setUpModule():  # pylint: disable=invalid-name
    if os.getuid():
        raise AssertionError("run this as root: programs run in a changed root")
    global root, sbom  # pylint: disable=global-variable-undefined
    temporary = tempfile.TemporaryDirectory()
    unittest.addModuleCleanup(temporary.cleanup)
    built.build(temporary.name, "worker-cuda")
    archive = pathlib.Path(temporary.name, "worker-cuda.oci.tar")
    with open(archive.with_name("worker-cuda.spdx.json"), encoding="utf-8") as file:
        sbom = json.load(file)
    root = pathlib.Path(temporary.name, "root")
    root.mkdir()
    oci.unpack(archive, root)
    archive.unlink()


def run(*command):
    """Runs a program of the image as the image's user, in the unpacked root."""
    return subprocess.run(
        ["/usr/sbin/chroot", f"--userspec={build_images.USER}:{build_images.USER}", root,
         "/usr/bin/busybox", "env", "-i", "PATH=/usr/bin", *command],
        capture_output=True, text=True, check=False, timeout=120)


class CudaRootTest(unittest.TestCase):

    def test_programs_and_plug_in_miss_no_library_but_the_drivers(self):
        for name in ("djinn-worker", "libdjinn_cuda.so", "torch/lib/libtorch_cuda.so"):
            listed = run("/lib64/ld-linux-x86-64.so.2", "--list", f"/{_SITE}/{name}").stdout
            self.assertIn("libc.so.6 =>", listed, name)
            self.assertLessEqual(set(re.findall(r"(\S+) => not found", listed)), {"libcuda.so.1"},
                                 name)

    def test_libraries_that_pytorch_opens_by_name_are_there(self):
        for pattern in ("nvidia/cu13/lib/libnvrtc.so.13", "nvidia/cu13/lib/libnvrtc-builtins.so.*",
                        "nvidia/cudnn/lib/libcudnn_graph.so.9", "torch/lib/libcaffe2_nvrtc.so"):
            self.assertTrue(list((root / _SITE).glob(pattern)), pattern)

    def test_worker_on_a_machine_without_a_driver_says_so_and_ends(self):
        (root / "etc/djinn/join.token").write_text("0" * 48, encoding="utf-8")
        os.chown(root / "etc/djinn/join.token", build_images.USER, build_images.USER)
        (root / "etc/djinn/join.token").chmod(0o600)
        (root / "etc/djinn/worker.yaml").write_text(_CONFIG, encoding="utf-8")
        done = run("/usr/bin/djinn-worker", "--config=/etc/djinn/worker.yaml")
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertRegex(done.stderr, "cuda:0 cannot be used: .*driver")

    def test_sbom_names_pytorch_and_the_libraries_of_nvidia(self):
        names = {package["name"] for package in sbom["packages"]}
        self.assertLessEqual({"torch", "nvidia-cublas", "nvidia-cudnn-cu13", "nvidia-nccl-cu13",
                              "libdjinn_cuda.so", "djinn-worker"}, names)


if __name__ == "__main__":
    unittest.main()
