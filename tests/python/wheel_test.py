"""The wheel, installed into a fresh virtual environment, runs the README's script."""

import unittest
import zipfile

from tests.python.wheel_case import ROOT, WheelCase, readme_script


class WheelTest(WheelCase):

    def test_the_readmes_script(self):
        script = readme_script()
        self.assertLessEqual(len(script.strip().splitlines()), 6)
        self.assertRegex(self.run_installed(script), r"^tensor\(\[.*\], device='remote_accelerator:0'\)\n$")

    def test_import_torch_is_enough(self):
        self.assertEqual(
            self.run_installed("import torch; print(torch.remote_accelerator.device_count())"),
            "16\n",
        )

    def test_import_djinn_first(self):
        self.assertEqual(
            self.run_installed("import djinn, torch; print(torch.remote_accelerator.is_available())"),
            "True\n",
        )

    def test_autoload_can_be_switched_off(self):
        self.assertEqual(
            self.run_installed(
                "import torch; print(hasattr(torch, 'remote_accelerator'))",
                TORCH_DEVICE_BACKEND_AUTOLOAD="0",
            ),
            "False\n",
        )

    def test_nothing_of_the_build_machine_is_inside(self):
        with zipfile.ZipFile(self.wheel) as wheel:
            for name in wheel.namelist():
                if not name.startswith("djinn.libs/"):
                    self.assertNotIn(str(ROOT).encode(), wheel.read(name), name)
            self.assertIn("djinn/libdjinn_client.so", wheel.namelist())
