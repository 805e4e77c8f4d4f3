"""The images for tests: those in $DJINN_IMAGES, or built from the programs of this build."""

import os
import pathlib

from deploy.images import build_images
from deploy.testing import programs

_PROGRAMS = ("coordinator/djinn-coordinator", "coordinator/ctl/djinnctl",
             "gpu_worker/djinn-worker")
_PLUG_IN = "gpu_worker/device/cuda/libdjinn_cuda.so"


def build(output, *images):
    """Builds these images, or all for CPUs, into a folder."""
    wanted = _PROGRAMS + ((_PLUG_IN,) if "worker-cuda" in images else ())
    folders = [os.path.dirname(programs.path(one)) for one in wanted]
    build_images.main(["--output", str(output), "--programs", *folders, "--", *images])


def archives(folder):
    """{image: archive}, built into `folder` unless there are some."""
    given = os.environ.get("DJINN_IMAGES")
    if not given:
        build(folder)
    return {image: pathlib.Path(given or folder, f"{image}.oci.tar")
            for image in ("coordinator", "worker", "tools")}
