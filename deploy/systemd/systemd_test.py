"""The units are valid, hardened, and name what the other files of this folder make."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

FOLDER = pathlib.Path(os.path.dirname(os.path.realpath(__file__)))
UNITS = ("djinn-coordinator.service", "djinn-worker@.service")
_TARGETS = ("basic", "multi-user", "network-online", "shutdown", "sysinit")


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=False)


@unittest.skipUnless(shutil.which("systemd-analyze"), "systemd is not installed")
class SystemdTest(unittest.TestCase):

    def setUp(self):
        temporary = tempfile.TemporaryDirectory()
        self.addCleanup(temporary.cleanup)
        self.root = pathlib.Path(temporary.name)
        self.units = self.root / "usr/lib/systemd/system"
        self.units.mkdir(parents=True)
        for unit in UNITS:
            shutil.copy(FOLDER / unit, self.units)
        for target in _TARGETS:
            (self.units / f"{target}.target").write_text(f"[Unit]\nDescription={target}\n",
                                                         encoding="utf-8")
        for program in ("usr/bin/djinn-coordinator", "usr/bin/djinn-worker", "bin/sh"):
            path = self.root / program
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("#!/bin/sh\n", encoding="utf-8")
            path.chmod(0o755)

    def verify(self):
        done = run("systemd-analyze", "verify", f"--root={self.root}",
                   "djinn-coordinator.service", "djinn-worker@w0.service")
        return done.returncode, done.stdout + done.stderr

    def test_units_are_valid(self):
        self.assertEqual(self.verify(), (0, ""))

    def test_verification_finds_an_unknown_key(self):
        unit = self.units / UNITS[0]
        unit.write_text(unit.read_text(encoding="utf-8").replace("UMask=", "Umask="),
                        encoding="utf-8")
        self.assertIn("Umask", self.verify()[1])

    def test_units_are_hardened(self):
        for unit, limit in (("djinn-coordinator.service", 1.5), ("djinn-worker@w0.service", 2.5)):
            done = run("systemd-analyze", "security", "--offline=true", f"--root={self.root}", unit)
            level = re.search(r"Overall exposure level.*: ([\d.]+)", done.stdout)
            self.assertLessEqual(float(level.group(1)), limit, done.stdout)

    def test_user_and_folders_are_those_of_the_units(self):
        (self.root / "etc").mkdir()
        done = run("systemd-sysusers", f"--root={self.root}", FOLDER / "djinn.sysusers")
        self.assertEqual(done.returncode, 0, done.stderr)
        users = (self.root / "etc/passwd").read_text(encoding="utf-8")
        for unit in UNITS:
            text = (FOLDER / unit).read_text(encoding="utf-8")
            user = re.search(r"(?m)^User=(.*)$", text).group(1)
            self.assertRegex(users, f"(?m)^{user}:")
            config = re.search(r"--config=(\S+)", text).group(1)
            folders = (FOLDER / "djinn.tmpfiles").read_text(encoding="utf-8")
            self.assertRegex(folders, rf"(?m)^d +{os.path.dirname(config)} ")

    def test_units_leave_the_programs_their_20_seconds(self):
        for unit in UNITS:
            text = (FOLDER / unit).read_text(encoding="utf-8")
            self.assertGreater(int(re.search(r"TimeoutStopSec=(\d+)", text).group(1)), 20)


if __name__ == "__main__":
    unittest.main()
