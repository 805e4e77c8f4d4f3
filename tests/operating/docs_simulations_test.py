"""The simulations in docs/design/simulator.md print what it says."""
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

PATIENCE = 120


def commands(text):
    """Each command of a block that simulates, with what it prints."""
    for block in re.findall(r"^```\n(\$ .*?)^```$", text, re.M | re.S):
        if "djinnctl simulate" not in block:
            continue
        for part in re.split(r"^\$ ", block, flags=re.M)[1:]:
            command, _, printed = part.partition("\n")
            yield command, printed


class DocsSimulationsTest(unittest.TestCase):
    def test_simulations_print_what_the_page_says(self):
        here = pathlib.Path.cwd()
        path = f"{here}/coordinator/ctl:{os.environ['PATH']}"
        shown = list(commands(pathlib.Path("docs/design/simulator.md").read_text()))
        self.assertGreater(len(shown), 5)
        with tempfile.TemporaryDirectory() as directory:
            os.symlink(here / "scheduler", pathlib.Path(directory) / "scheduler")
            for command, printed in shown:
                with self.subTest(command):
                    done = subprocess.run(
                        ["bash", "-o", "pipefail", "-c", command], cwd=directory,
                        env={**os.environ, "PATH": path}, capture_output=True,
                        text=True, timeout=PATIENCE)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    self.assertEqual(done.stdout, printed)


if __name__ == "__main__":
    unittest.main()
