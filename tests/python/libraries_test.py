"""Libraries that choose the CPU, as packages of a few lines: the real ones are large."""

import pathlib
import tempfile
import unittest

from tests.python.remote_case import run_program

_FILES = {
    "stable_baselines3/__init__.py": "",
    "stable_baselines3/common/__init__.py": "",
    "stable_baselines3/common/utils.py": """
import torch
def get_device(device="auto"):
    return torch.device("cpu" if device == "auto" else device)
""",
    "stable_baselines3/common/base_class.py": """
from stable_baselines3.common.utils import get_device
class BaseAlgorithm:
    def __init__(self, device="auto"): self.device = get_device(device)
""",
    "flair/__init__.py": """
import torch
device = torch.device("cpu")
""",
}
_FILES |= {
    f"lightning/{name}": text
    for name, text in {
        "__init__.py": "",
        "pytorch/__init__.py": "",
        "pytorch/utilities/__init__.py": "",
        "pytorch/utilities/seed.py": """
import contextlib, torch
@contextlib.contextmanager
def isolate_rng(include_cuda=True):
    state = torch.get_rng_state()
    yield
    torch.set_rng_state(state)
""",
    }.items()
}
_ISOLATED = """
from lightning.pytorch.utilities.seed import isolate_rng
found = []
for device in ("cpu", "remote_accelerator:0"):
    torch.manual_seed(0)
    torch.rand(3, device=device)
    with isolate_rng():
        torch.rand(3, device=device)
    found.append(torch.rand(3, device=device).cpu())
print(torch.equal(*found))
"""
_BASELINES = """
from stable_baselines3.common.base_class import BaseAlgorithm
print(BaseAlgorithm().device, BaseAlgorithm().device, BaseAlgorithm("remote_accelerator:0").device)
"""
_FLAIR = "import flair; print(flair.device)"
_CONNECT = "import torch, djinn; cluster = djinn.local(worker_threads=1)"


class LibrariesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        for name, text in _FILES.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        cls.find = f"import sys; sys.path.insert(0, {str(folder)!r})"

    def warnings_of(self, *parts, prints):
        program = run_program("\n".join((self.find, *parts)))
        self.assertEqual(program.stdout.strip(), prints, program.stderr)
        return [line for line in program.stderr.splitlines() if ": djinn: " in line]

    def test_a_library_that_takes_the_cpu_warns_once(self):
        for name, source, prints, what in (
            ("stable_baselines3", _BASELINES, "cpu cpu remote_accelerator:0",
             "stable-baselines3 takes the CPU"),
            ("flair", _FLAIR, "cpu", "flair takes the CPU"),
        ):
            with self.subTest(name):
                (said,) = self.warnings_of(_CONNECT, source, prints=prints)
                self.assertIn(what, said)
                self.assertIn("remote_accelerator:0", said)

    def test_a_library_that_was_imported_first_warns(self):
        first = "import stable_baselines3.common.base_class"
        (said,) = self.warnings_of(
            first, _CONNECT, _BASELINES, prints="cpu cpu remote_accelerator:0")
        self.assertIn("stable-baselines3", said)

    def test_lightning_isolates_the_generators_of_remote_devices(self):
        self.assertEqual(self.warnings_of(_CONNECT, _ISOLATED, prints="True"), [])

    def test_nothing_warns_without_a_session(self):
        self.assertEqual(self.warnings_of("import torch, djinn", _FLAIR, prints="cpu"), [])


if __name__ == "__main__":
    unittest.main()
