"""systemd starts, reloads, restarts and stops the units, with all that they forbid.

The root is this machine's, under an overlay that ends with the test. Needs root and systemd.
"""

import os
import pathlib
import re
import shutil
import socket
import subprocess
import tempfile
import time
import unittest

from deploy.testing import programs
from deploy.testing.isolation import isolate
from deploy.testing.systemd import Booted
from deploy.testing.tools import ROOT

_FOLDER = pathlib.Path(os.path.dirname(os.path.realpath(__file__)))
_PATIENCE = 60
_COORDINATOR = """
listen: 127.0.0.1:PORT
state_file: /var/lib/djinn/state.db
join_token_file: join.token
admin_token_file: admin.token
tenants:
  - {name: research, token_file: research.token}
"""
_WORKER = """
worker_id: NAME
listen: 127.0.0.1:0
coordinator: 127.0.0.1:PORT
join_token_file: /etc/djinn/join.token
device: {kind: cpu, memory: 2GiB}
isolation: {mode: MODE}
"""


def page(mark):
    """The commands of the page for systemd that come after `mark`."""
    text = pathlib.Path(ROOT, "docs/operator/deploy.md").read_text(encoding="utf-8")
    return re.search(r"```sh\n(.*?)```", text.split(mark)[1], re.DOTALL)[1]


class UnitsTest(unittest.TestCase):

    def setUp(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.mount("-t", "tmpfs", "tmpfs", folder)
        for name in ("upper", "work", "root"):
            (folder / name).mkdir()
        self.root = folder / "root"
        self.mount("-t", "overlay", "overlay", "-o",
                   f"lowerdir=/,upperdir={folder}/upper,workdir={folder}/work", self.root)
        for name, path in (("djinn-coordinator", "coordinator/djinn-coordinator"),
                           ("djinn-worker", "gpu_worker/djinn-worker"),
                           ("djinnctl", "coordinator/ctl/djinnctl"),
                           ("hold_session", "tests/operating/hold_session")):
            shutil.copy(programs.path(path), self.root / "usr/bin" / name)
        # The units hide /home and /root, where the checkout may lie.
        libraries = self.root / "usr/lib/djinn"
        libraries.mkdir(exist_ok=True)
        self.mount("--bind", f"{ROOT}/.deps/site", self.make("usr/lib/djinn/site"))
        shutil.copy(programs.path("client_lib/libdjinn_client.so"), libraries)
        self.environment = {"LD_LIBRARY_PATH": "/usr/lib/djinn:/usr/lib/djinn/site/torch/lib"}
        drop_in = self.make("etc/systemd/system.control/service.d") / "libraries.conf"
        drop_in.write_text("".join(f"[Service]\nEnvironment={name}={value}\n"
                                   for name, value in self.environment.items()), encoding="utf-8")
        for name, place in (("djinn-coordinator.service", "usr/lib/systemd/system"),
                            ("djinn-worker@.service", "usr/lib/systemd/system"),
                            ("djinn.sysusers", "usr/lib/sysusers.d/djinn.conf"),
                            ("djinn.tmpfiles", "usr/lib/tmpfiles.d/djinn.conf")):
            target = self.root / place
            shutil.copy(_FOLDER / name, target)
        self.systemd = Booted(self.root)
        self.addCleanup(self.systemd.close)

    def mount(self, *arguments):
        subprocess.run(["mount", *arguments], check=True)
        self.addCleanup(subprocess.run, ["umount", "--lazy", arguments[-1]], check=True)

    def make(self, name):
        path = self.root / name
        path.mkdir(parents=True)
        return path

    def run_inside(self, script, **environment):
        done = self.systemd.run(script, **self.environment, **environment)
        if done.returncode:
            self.fail(f"{script}\n{done.stdout}{done.stderr}" + self.systemd.run(
                "journalctl --no-pager --lines=60 --output=cat").stdout)
        return done.stdout

    def await_output(self, script, pattern, **environment):
        deadline = time.monotonic() + _PATIENCE
        while not re.search(pattern, output := self.run_inside(script, **environment)):
            if time.monotonic() > deadline:
                self.fail(f"{script} gives {output}" + self.systemd.run(
                    "journalctl --no-pager --lines=60 --output=cat").stdout)
            time.sleep(0.1)
        return output

    def state(self, unit):
        shown = self.run_inside(f"systemctl show {unit} -p ActiveState,Result,NRestarts,MainPID")
        return dict(line.split("=") for line in shown.split())

    def test_units_run_as_the_page_says(self):
        self.run_inside("systemd-sysusers djinn.conf && systemd-tmpfiles --create djinn.conf")
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = str(free.getsockname()[1])
        for name, text in (
                ("coordinator", _COORDINATOR),
                ("workers/w0", _WORKER.replace("NAME", "w0").replace("MODE", "shared")),
                ("workers/w1", _WORKER.replace("NAME", "w1").replace("MODE", "process"))):
            (self.root / f"etc/djinn/{name}.yaml").write_text(
                text.replace("PORT", port), encoding="utf-8")
        environment = {"DJINN_COORDINATOR": f"127.0.0.1:{port}",
                       "DJINN_TOKEN_FILE": "/etc/djinn/research.token",
                       "DJINN_ADMIN_TOKEN_FILE": "/etc/djinn/admin.token"}
        commands = page("Tokens belong to the user:")
        self.assertIn("systemctl enable --now djinn-coordinator djinn-worker@w0", commands)
        self.run_inside(commands)
        self.run_inside("systemctl start djinn-worker@w1")
        for name in ("w0", "w1"):
            with self.subTest(name):
                self.await_output("djinnctl get workers", rf"{name}\b.*\bACTIVE\b", **environment)
        # One after the other serves a program; w1 in an executor of the tenant's own.
        for stopped, serving in (("w1", "w0"), ("w0", "w1")):
            self.run_inside(f"systemctl start djinn-worker@{serving}; "
                            f"systemctl stop djinn-worker@{stopped}")
            self.assertEqual(self.state(f"djinn-worker@{stopped}")["Result"], "success")
            self.await_output("djinnctl get workers", rf"{serving}\b.*\bACTIVE\b", **environment)
            self.assertEqual(self.run_inside("hold_session </dev/null", **environment), "ready\n")
        before = self.state("djinn-worker@w1")
        self.assertEqual(before["NRestarts"], "0")
        self.run_inside("systemctl reload djinn-worker@w1 djinn-coordinator")
        self.assertEqual(self.state("djinn-worker@w1"), before)
        self.run_inside("systemctl kill --kill-whom=main --signal=SIGKILL djinn-worker@w1")
        self.await_output("systemctl show djinn-worker@w1 -p NRestarts", "NRestarts=1")
        self.await_output("djinnctl get workers", r"w1\b.*\bACTIVE\b", **environment)
        self.assertEqual(self.run_inside("hold_session </dev/null", **environment), "ready\n")
        self.run_inside("systemctl stop djinn-worker@w1 djinn-coordinator")
        for unit in ("djinn-worker@w1", "djinn-coordinator"):
            self.assertEqual(self.state(unit)["Result"], "success")

    def test_a_wrong_configuration_is_not_started_again(self):
        self.run_inside("systemd-sysusers djinn.conf && systemd-tmpfiles --create djinn.conf")
        (self.root / "etc/djinn/coordinator.yaml").write_text("lisen: 1\n", encoding="utf-8")
        self.run_inside("systemctl start djinn-coordinator || true")
        self.await_output("systemctl show djinn-coordinator -p ActiveState", "failed")
        self.assertEqual(self.state("djinn-coordinator")["NRestarts"], "0")


if __name__ == "__main__":
    isolate("it boots systemd in a root of its own", "--mount")
    unittest.main()
