"""Runs each example of docs/user/libraries.md in a process of its own."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

_PAGE = pathlib.Path("docs/user/libraries.md").read_text()
_FIRST, *_BLOCKS = re.findall(r"^```python\n(.*?)^```", _PAGE, re.MULTILINE | re.DOTALL)


def _run(program):
    """Runs the program in an empty folder. A library's warning of this device is an error."""
    with tempfile.TemporaryDirectory() as folder:
        return subprocess.run(
            [sys.executable, "-W", "error:djinn", "-c", program],
            cwd=folder, capture_output=True, text=True, timeout=300, env=os.environ)


class PageTest(unittest.TestCase):
    """Has a test for each block."""


def _test_of(block):
    def test(self):
        ended = _run(_FIRST + block)
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)

    return test


for _index, _block in enumerate(_BLOCKS):
    _name = re.search(r"^(?:import|from) (\w+)", _block, re.MULTILINE)[1]
    setattr(PageTest, f"test_{_index}_{_name}", _test_of(_block))
