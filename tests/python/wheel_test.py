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
            "False\n",
        )

    def test_the_device_is_available_if_a_session_is_configured(self):
        self.assertEqual(
            self.run_installed(
                "import torch; print(torch.accelerator.is_available())",
                DJINN_COORDINATOR="127.0.0.1:1",
            ),
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

    def test_parts_of_others_have_their_licences_inside(self):
        with zipfile.ZipFile(self.wheel) as wheel:
            (name,) = [one for one in wheel.namelist() if one.endswith("licenses/NOTICES")]
            text = wheel.read(name).decode()
            bundled = {one.split("/")[1].split("-")[0].split(".")[0] for one in wheel.namelist()
                       if one.startswith("djinn.libs/")}
        # auditwheel bundles some of the libraries; others are compiled in.
        self.assertIn("libgrpc", bundled)
        for part in ("libgrpc29", "libprotobuf32", "libabsl-dev", "libcli11-dev", "pybind11"):
            self.assertTrue(part in text, part)
        self.assertTrue("END OF TERMS AND CONDITIONS" in text)

    def test_nothing_of_the_build_machine_is_inside(self):
        with zipfile.ZipFile(self.wheel) as wheel:
            for name in wheel.namelist():
                if not name.startswith("djinn.libs/"):
                    self.assertNotIn(str(ROOT).encode(), wheel.read(name), name)
            self.assertIn("djinn/libdjinn_client.so", wheel.namelist())
