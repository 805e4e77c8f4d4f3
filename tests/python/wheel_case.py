"""Builds a wheel and installs it into an environment, for the tests of wheels."""

import os
import pathlib
import re
import subprocess
import sys
import sysconfig
import tempfile
import unittest

ROOT = pathlib.Path.cwd()
# Beside the environment of this test.
_DEPS = pathlib.Path(sys.prefix).parent


def readme_script():
    (script,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    return script


class WheelCase(unittest.TestCase):
    """Builds and installs the wheel of a version of Python, or of this test's own."""

    version = None

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.wheel = cls._build()
        cls.python = cls._install()

    @classmethod
    def _build(cls):
        other = []
        if cls.version:
            extension = ROOT / "client_lib/python" / cls.version / "_djinn.so"
            if not extension.exists():
                raise AssertionError(f"{extension} is missing: run ./djinn setup pythons_torch")
            other = [f"--python={cls.version}", f"--extension={extension}"]
        subprocess.run(
            [
                sys.executable,
                str(ROOT / "deploy/python/build_wheel.py"),
                f"--package={ROOT / 'client_lib/python/package/djinn'}",
                "--programs",
                f"{os.environ['DJINN_BIN_DIR']}/djinn-coordinator",
                f"{os.environ['DJINN_BIN_DIR']}/djinn-worker",
                f"--output={cls.folder}",
                *other,
            ],
            check=True,
        )
        (wheel,) = cls.folder.glob("*.whl")
        return wheel

    @classmethod
    def _install(cls):
        """Makes the environment; returns its interpreter."""
        home = cls.folder / "environment"
        packages = [pathlib.Path(sysconfig.get_path("purelib"))]
        base = sys.executable
        if cls.version:
            packages.insert(0, _DEPS / "pythons_torch" / cls.version)
            base = _DEPS / "pythons" / cls.version / f"bin/python{cls.version}"
        subprocess.run([base, "-m", "venv", home], check=True)
        python = str(home / "bin" / "python")
        site = pathlib.Path(subprocess.run(
            [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
            check=True, capture_output=True, text=True).stdout.strip())
        # Links the packages that pip would otherwise download again (6 GB). The first folder
        # has those that depend on the Python, and hides others of the same name.
        taken = {_project(entry.name) for entry in site.iterdir()}
        for folder in packages:
            entries = [entry for entry in folder.iterdir() if _project(entry.name) not in taken]
            for entry in entries:
                (site / entry.name).symlink_to(entry)
            taken |= {_project(entry.name) for entry in entries}
        subprocess.run(
            [python, "-m", "pip", "install", "--quiet", "--no-index",
             "--disable-pip-version-check", str(cls.wheel)],
            check=True,
            # Without PYTHONPATH, which names this test's own packages.
            env={"PATH": "/usr/bin:/bin", "HOME": str(cls.folder)},
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


def _project(name):
    """The project that a file in site-packages tells of, less its version."""
    return name.partition("-")[0] + ("-info" if name.endswith("-info") else "")
