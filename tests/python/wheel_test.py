"""The wheel, installed into a fresh virtual environment, runs the README's script."""

import os
import pathlib
import re
import subprocess
import sys
import sysconfig
import tempfile
import unittest
import venv
import zipfile

_ROOT = pathlib.Path.cwd()


def _readme_script():
    (script,) = re.findall(r"```python\n(.*?)```", (_ROOT / "README.md").read_text(), re.S)
    return script


class WheelTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        subprocess.run(
            [
                sys.executable,
                str(_ROOT / "deploy/python/build_wheel.py"),
                f"--package={_ROOT / 'client_lib/python/package/djinn'}",
                "--programs",
                f"{os.environ['DJINN_BIN_DIR']}/djinn-coordinator",
                f"{os.environ['DJINN_BIN_DIR']}/djinn-worker",
                f"--output={cls.folder}",
            ],
            check=True,
        )
        (cls.wheel,) = cls.folder.glob("*.whl")
        cls.python = cls._install()

    @classmethod
    def _install(cls):
        """Makes the environment; returns its interpreter."""
        home = cls.folder / "environment"
        venv.create(home, with_pip=True)
        site = home / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
        # Links the packages that pip would otherwise download again (6 GB).
        for entry in pathlib.Path(sysconfig.get_path("purelib")).iterdir():
            if not (site / entry.name).exists():
                (site / entry.name).symlink_to(entry)
        python = str(home / "bin" / "python")
        subprocess.run(
            [python, "-m", "pip", "install", "--quiet", "--no-index",
             "--disable-pip-version-check", str(cls.wheel)],
            check=True,
        )
        return python

    def run_installed(self, source, *arguments, **environment):
        """In an environment that knows nothing of the build."""
        program = subprocess.run(
            [self.python, "-c", source, *arguments],
            cwd=self.folder,
            env={"PATH": "/usr/bin:/bin", "HOME": str(self.folder), **environment},
            capture_output=True,
            text=True,
            timeout=300,
        )
        self.assertEqual(program.returncode, 0, program.stderr)
        return program.stdout

    def test_the_readmes_script(self):
        script = _readme_script()
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
                    self.assertNotIn(str(_ROOT).encode(), wheel.read(name), name)
            self.assertIn("djinn/libdjinn_client.so", wheel.namelist())
