"""The wheels for the further versions of Python, each in an environment of its own."""

import unittest
import zipfile

from tests.python.wheel_case import ROOT, WheelCase, readme_script

_VERSIONS = [line.split()[0] for line in (ROOT / "third_party/pythons.txt").read_text().splitlines()
             if not line.startswith("#")]
# Goes through all parts of the extension that depend on the Python.
_PROGRAM = """
import sys
import warnings

import torch
import djinn

with djinn.local(workers=1, worker_threads=1):
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
    x = torch.randn(3, 4)
    expected = model(x)
    expected.sum().backward()
    gradient = model[0].weight.grad.clone()
    model.zero_grad()
    model.to(djinn.device())
    y = model(x.to(djinn.device()))
    y.sum().backward()
    assert torch.equal(y.cpu(), expected)
    assert torch.equal(model[0].weight.grad.cpu(), gradient)
    registered = djinn.compile(model)
    compiled = torch.compile(model, backend="djinn")
    for _ in range(3):
        assert torch.equal(registered(x.to(djinn.device())).cpu(), expected)
        assert torch.equal(compiled(x.to(djinn.device())).cpu(), expected)
    djinn.set_call_sites(True)

    def failing():
        torch.ones(3, device=djinn.device()).take(torch.tensor([9], device=djinn.device())).cpu()

    try:
        failing()
        raise AssertionError("no error")
    except djinn.Error as error:
        assert " in failing" in str(error), error

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Functions are replayed on Python 3.11 alone.
        scaled = djinn.compile(lambda x, k: x * k)
        for _ in range(3):
            for k in (2.0, 3.0):
                y = scaled(torch.ones(2).to(djinn.device()), k)
                assert torch.equal(y.cpu(), torch.full((2,), k))
    assert (scaled.statistics()["replays"] > 0) == (sys.version_info[:2] == (3, 11))
print("computed")
"""


class WheelsTest(unittest.TestCase):

    def test_every_python_of_the_list_has_a_version_of_torch(self):
        self.assertEqual(_VERSIONS, [path.stem for path in
                                     sorted((ROOT / "third_party/pythons").glob("*.txt"))])


class _OnePython(WheelCase):

    def test_the_readmes_script(self):
        self.assertRegex(self.run_installed(readme_script()),
                         r"^tensor\(\[.*\], device='remote_accelerator:0'\)\n$")

    def test_import_torch_is_enough(self):
        self.assertEqual(
            self.run_installed("import sys, torch; print(sys.version_info[:2], "
                               "torch.remote_accelerator.device_count())"),
            f"({self.version.replace('.', ', ')}) 16\n",
        )

    def test_program_trains_compiles_and_fails_as_with_the_other_pythons(self):
        self.assertEqual(self.run_installed(_PROGRAM), "computed\n")

    def test_name_and_metadata_say_for_which_python_it_is(self):
        tag = "cp" + self.version.replace(".", "")
        self.assertIn(f"-{tag}-{tag}-manylinux_", self.wheel.name)
        with zipfile.ZipFile(self.wheel) as wheel:
            (name,) = [one for one in wheel.namelist() if one.endswith("/METADATA")]
            self.assertIn(f"\nRequires-Python: =={self.version}.*\n", wheel.read(name).decode())


for _version in _VERSIONS:
    _name = f"Python{_version.replace('.', '')}Test"
    globals()[_name] = type(_name, (_OnePython,), {"version": _version})
del _OnePython


if __name__ == "__main__":
    unittest.main()
