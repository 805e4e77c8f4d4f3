"""The built programs, and what they say of a configuration.

Under Bazel they are in the runfiles; elsewhere below $DJINN_PROGRAMS, or bazel-bin of the
checkout.
"""

import os
import pathlib
import subprocess
import tempfile

from deploy.testing.tools import ROOT, yaml

_SERVERS = {"coordinator": "coordinator/djinn-coordinator", "worker": "gpu_worker/djinn-worker"}


def path(name):
    """The file of a program, by its place below bazel-bin."""
    for folder in (".", os.environ.get("DJINN_PROGRAMS", os.path.join(ROOT, "bazel-bin"))):
        found = os.path.join(folder, name)
        if os.path.exists(found):
            return os.path.abspath(found)
    raise AssertionError(f"{name} is not built")


def refusals(objects, taken=None):
    """Returns the servers' reasons to refuse configurations in ConfigMaps, by key.

    `taken` is a set of the texts that they took before, which it extends.
    """
    found = {}
    taken = set() if taken is None else taken
    for one in objects:
        for key, text in one.get("data", {}).items() if one["kind"] == "ConfigMap" else ():
            if key.endswith(".yaml") and text not in taken:
                why = refusal("worker" if key == "worker.yaml" else "coordinator", text)
                if why:
                    found[key] = why
                else:
                    taken.add(text)
    return found


def refusal(role, text):
    """Why a server refuses a configuration; empty when it takes it.

    The tokens and certificates that the configuration names are there.
    """
    with tempfile.TemporaryDirectory() as folder:
        etc = pathlib.Path(folder, "etc")

        def place(value, key=""):
            if isinstance(value, dict):
                return {name: place(one, name) for name, one in value.items()}
            if isinstance(value, list):
                return [place(one) for one in value]
            if key.endswith("_file") and key != "state_file":
                file = etc / value.removeprefix("/etc/djinn/")
                file.parent.mkdir(parents=True, exist_ok=True)
                if "tls" not in value:
                    file.write_text(value.encode().hex()[-40:], encoding="utf-8")
                    file.chmod(0o600)
                return str(file)
            return value.replace("@HOST@", "10.0.0.1") if isinstance(value, str) else value

        placed = place(yaml.safe_load(text))
        for tls in etc.glob("*tls"):
            subprocess.run(
                ["openssl", "req", "-x509", "-newkey", "ed25519", "-noenc", "-keyout",
                 tls / "tls.key", "-out", tls / "tls.crt", "-days", "2", "-subj", "/CN=t"],
                check=True, capture_output=True)
            (tls / "ca.crt").write_bytes((tls / "tls.crt").read_bytes())
        file = pathlib.Path(folder, "config.yaml")
        file.write_text(yaml.safe_dump(placed), encoding="utf-8")
        done = subprocess.run([path(_SERVERS[role]), f"--config={file}", "--validate"],
                              capture_output=True, text=True, check=False)
        return done.stderr if done.returncode else ""
