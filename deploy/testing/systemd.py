"""Boots systemd in a root file system, without a machine or a container engine.

Needs root, util-linux and a cgroup2 file system, which may lack controllers.
"""

import pathlib
import subprocess
import tempfile
import time

# Runs in namespaces of its own, so that all mounts end with systemd.
_BOOT = """
PATH=/usr/sbin:/usr/bin:/sbin:/bin
mount --make-rprivate /
mount --rbind "$1" "$1"
mount -t proc proc "$1/proc"
mountpoint -q "$1/sys" || mount -t sysfs sysfs "$1/sys"
mount -t cgroup2 cgroup2 "$1/sys/fs/cgroup"
mount -t tmpfs tmpfs "$1/run"
for name in null zero full random urandom tty; do
  touch "$1/dev/$name"
  mount --bind "/dev/$name" "$1/dev/$name"
done
mkdir -p "$1/dev/shm"
mount -t tmpfs tmpfs "$1/dev/shm"
# Linux refuses user namespaces (PrivateUsers=) in a changed root.
cd "$1"
pivot_root . .
umount --lazy .
export container=djinn-test
exec /lib/systemd/systemd --unit=basic.target
"""
_PATIENCE = 60


class Booted:
    """systemd in `root`, until close()."""

    def __init__(self, root):
        self._group = pathlib.Path(
            tempfile.mkdtemp(prefix="djinn-test-", dir=self._find_cgroup2()))
        # A process sees the group that it is in as the root of its cgroup namespace.
        self._unshare = subprocess.Popen(
            ["/bin/sh", "-c", f'echo $$ >{self._group}/cgroup.procs && exec unshare --mount --pid '
             '--fork --kill-child --cgroup --ipc /bin/sh -euc "$0" sh "$1"', _BOOT, str(root)],
            stdin=subprocess.DEVNULL)
        try:
            self._await(self._find_init, "systemd does not start")
            self._await(lambda: self.run("systemctl is-system-running").stdout in
                        ("running\n", "degraded\n"), "systemd is not ready")
        except BaseException:
            self.close()
            raise

    @staticmethod
    def _find_cgroup2():
        for line in pathlib.Path("/proc/mounts").read_text(encoding="utf-8").splitlines():
            _, place, kind, *_ = line.split()
            if kind == "cgroup2":
                return place
        raise AssertionError("no cgroup2 file system is mounted")

    def _find_init(self):
        found = pathlib.Path(
            f"/proc/{self._unshare.pid}/task/{self._unshare.pid}/children").read_text().split()
        self._init = int(found[0]) if found else None
        return self._init and pathlib.Path(
            f"/proc/{self._init}/comm").read_text(encoding="utf-8") == "systemd\n"

    def _await(self, condition, problem):
        deadline = time.monotonic() + _PATIENCE
        while not condition():
            if self._unshare.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(problem)
            time.sleep(0.05)

    def run(self, script, **environment):
        """Runs a script beside systemd, as root; returns the finished process."""
        return subprocess.run(
            ["nsenter", f"--target={self._init}", "--mount", "--pid", "--ipc", "--cgroup", "--root",
             "--wdns=/", "/bin/bash", "-euc", script],
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LC_ALL": "C.UTF-8",
                 **environment},
            capture_output=True, text=True, check=False)

    def close(self):
        self._unshare.kill()
        self._unshare.wait()
        deadline = time.monotonic() + _PATIENCE
        groups = [self._group, *self._group.rglob("*")]
        for group in sorted((one for one in groups if one.is_dir()), reverse=True):
            while True:
                try:
                    group.rmdir()
                    break
                except OSError:  # Its processes are ending.
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.05)
