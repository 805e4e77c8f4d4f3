"""The servers take every configuration that a page shows.

A block that is a part of a configuration is tried with what every coordinator, or else every
worker, must have.
"""

import glob
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

from deploy.testing import programs
from deploy.testing.tools import ROOT, yaml

# Pages whose blocks are values of the chart: docs_test renders them.
_OTHERS = {"kubernetes.md"}
# First keys of blocks that are for other programs.
_FOREIGN = {"scrape_configs", "triggers"}
_BASES = {
    "coordinator/djinn-coordinator": {
        "listen": "127.0.0.1:0", "join_token_file": "join.token",
        "admin_token_file": "admin.token",
        "tenants": [{"name": "base", "token_file": "base.token"}]},
    "gpu_worker/djinn-worker": {
        "worker_id": "w0", "listen": "127.0.0.1:0",
        "coordinator": "127.0.0.1:7070", "join_token_file": "join.token"},
}


def blocks():
    """Yields the pages' blocks with their places."""
    for path in sorted(glob.glob("docs/**/*.md", root_dir=ROOT, recursive=True)):
        if os.path.basename(path) in _OTHERS:
            continue
        text = pathlib.Path(ROOT, path).read_text(encoding="utf-8")
        for found in re.finditer(r"^```yaml\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
            yield f"{path}:{text[:found.start()].count(chr(10)) + 1}", found[1]


def beside(value, key=""):
    """Returns the configuration with all of its files in its own folder."""
    if isinstance(value, dict):
        return {name: beside(one, name) for name, one in value.items()}
    if isinstance(value, list):
        return [beside(one, key) for one in value]
    return os.path.basename(value) if key.endswith("_file") else value


def files_of(value, key=""):
    """Yields the files that a configuration names, with their keys."""
    if isinstance(value, dict):
        for name, one in value.items():
            yield from files_of(one, name)
    elif isinstance(value, list):
        for one in value:
            yield from files_of(one, key)
    elif key.endswith("_file"):
        yield key, value


class ConfigurationsTest(unittest.TestCase):

    def refusal(self, program, configuration):
        """Returns why the program refuses the configuration; empty if it takes it."""
        with tempfile.TemporaryDirectory() as folder:
            etc = pathlib.Path(folder)
            configuration = beside(configuration)
            subprocess.run(
                ["openssl", "req", "-x509", "-newkey", "ed25519", "-noenc", "-keyout",
                 etc / "private_key_file", "-out", etc / "certificate", "-days", "2", "-subj",
                 "/CN=t"], check=True, capture_output=True)
            for key, name in files_of(configuration):
                if "token" in key:
                    (etc / name).write_text(name.encode().hex()[-40:].rjust(40, "0"))
                else:
                    source = "private_key_file" if key == "private_key_file" else "certificate"
                    (etc / name).write_bytes((etc / source).read_bytes())
                (etc / name).chmod(0o600)
            (etc / "config.yaml").write_text(yaml.safe_dump(configuration), encoding="utf-8")
            done = subprocess.run(
                [programs.path(program), "--config=config.yaml", "--validate"], cwd=etc,
                capture_output=True, text=True, check=False)
            return done.stderr if done.returncode else ""

    def test_every_block_is_taken(self):
        tried = 0
        for place, text in blocks():
            block = yaml.safe_load(text)
            if next(iter(block)) in _FOREIGN:
                continue
            tried += 1
            with self.subTest(place):
                # The page says elsewhere how connections are encrypted.
                more = {} if "tls" in block else {"insecure": True}
                refusals = [self.refusal(program, {**base, **more, **block})
                            for program, base in _BASES.items()]
                if "" not in refusals:
                    self.fail("\n".join(refusals))
        self.assertGreater(tried, 8)

    def test_a_wrong_key_is_refused(self):
        for program, base in _BASES.items():
            self.assertEqual(self.refusal(program, base), "")
            self.assertIn("no_such_key", self.refusal(program, {**base, "no_such_key": 1}))


if __name__ == "__main__":
    unittest.main()
