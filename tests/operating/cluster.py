"""A coordinator and workers as processes on loopback, for tests to operate."""

import json
import os
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

PATIENCE = 120


def eventually(condition, what):
    """The first true result of `condition`, called again and again."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        result = condition()
        if result:
            return result
        time.sleep(0.05)
    raise AssertionError("in vain: " + what)


# The end of every token.
_TOKEN = "-0123456789abcdef"
# TLS settings in the configuration, by role.
_TLS = {
    "coordinator": """
tls: {certificate_file: coordinator.crt, private_key_file: coordinator.key,
      client_ca_file: ca.crt}
""",
    "worker": """
tls: {certificate_file: worker.crt, private_key_file: worker.key, client_ca_file: ca.crt}
coordinator_tls: {ca_file: ca.crt, certificate_file: worker.crt,
                  private_key_file: worker.key}
""",
}
_TENANTS = """
tenants:
  - name: dev
    token_file: dev.token
"""
_PROGRAMS = {
    "coordinator": "coordinator/djinn-coordinator",
    "worker": "gpu_worker/djinn-worker",
}


class Cluster:
    """A coordinator and workers, and a folder with their tokens.

    With `tls`, the folder holds the certificates that the document makes. `extra` goes
    into the configurations of all processes, `coordinator_extra` into the coordinator's,
    `worker_extra` into the workers', and `extra_of` into those of single workers, by name. `log`
    is the file to which they log; without it, they log to the test's own log. `programs` is the
    folder that has the folders of their programs. `tokens` names further tokens to write.

    `coordinators` names several coordinators, which need a store in `coordinator_extra`. Each
    listens at a Unix socket, which the next process of its name finds free.
    """

    def __init__(self, folder, worker_ids, tls=False, extra="", coordinator_extra="",
                 worker_extra="", extra_of=None, tenants=_TENANTS, log=None, programs="",
                 coordinators=("coordinator",), tokens=()):
        self._folder = folder
        self._coordinators = coordinators
        self._programs = programs
        self._log = log
        # The file may have no name, and be closed before the processes end.
        self._logged = None if log is None else os.dup(log.fileno())
        self._processes = {}
        self.monitoring = {}
        for name in ("join", "admin", "dev", *tokens):
            self.write(name + ".token", name + _TOKEN)
        self._coordinator_text = """
join_token_file: join.token
admin_token_file: admin.token
heartbeat_interval: 100ms
""" + coordinator_extra + extra + (_TLS["coordinator"] if tls else "")
        for name in coordinators:
            self.configure("127.0.0.1:0" if len(coordinators) == 1 else
                           "unix:" + self.path(name + ".sock"), tenants, name)
        self.coordinator = ",".join([self.start(name) for name in coordinators])
        self.workers = []
        for name in worker_ids:
            self.write(name + ".yaml", """
worker_id: %s
listen: 127.0.0.1:0
coordinator: %s
join_token_file: join.token
admin_token_file: admin.token
heartbeat_interval: 100ms
device: {memory: 1GiB, threads: 1}
""" % (name, self.coordinator) + worker_extra + (extra_of or {}).get(name, "") + extra + (_TLS["worker"] if tls else ""))
            self.workers.append(self.start(name))

    def path(self, name):
        return os.path.join(self._folder, name)

    def write(self, name, text):
        with open(self.path(name), "w", opener=lambda p, f: os.open(p, f, 0o600)) as file:
            file.write(text)

    def configure(self, listen, tenants, name="coordinator"):
        """Writes a coordinator's configuration."""
        self.write(name + ".yaml",
                   "listen: " + listen + "\n" + self._coordinator_text + tenants)

    def start(self, name, program=None, **more):
        """Starts a coordinator or a worker, with `more` in its environment; returns its address.

        `program` is the path of another build.
        """
        role = "coordinator" if name in self._coordinators else "worker"
        address, monitoring = (self.path(name + suffix)
                               for suffix in (".address", ".monitoring"))
        for file in (address, monitoring):
            if os.path.exists(file):
                os.remove(file)
        process = subprocess.Popen([
            program or os.path.join(self._programs, _PROGRAMS[role]),
            "--config=" + self.path(name + ".yaml"), "--address_file=" + address,
            "--monitoring_address_file=" + monitoring],
            stderr=self._log, env={**os.environ, **more})
        self._processes[name] = process

        def read():
            if process.poll() is not None:
                raise AssertionError(name + " ended")
            return _read(address)

        found = eventually(read, name + " serves")
        self.monitoring[name] = _read(monitoring)
        return found

    def environment(self, tenant="dev", **more):
        """Variables with which programs of the tenant, and djinnctl, find the cluster."""
        return {**os.environ, "DJINN_COORDINATOR": self.coordinator,
                "DJINN_TOKEN_FILE": self.path(tenant + ".token"),
                "DJINN_ADMIN_TOKEN_FILE": self.path("admin.token"), **more}

    def ctl(self, *arguments, **more):
        """Runs djinnctl, with `more` in its environment; returns its status and output."""
        return subprocess.run(
            ["coordinator/ctl/djinnctl", *arguments], env=self.environment(**more),
            capture_output=True, timeout=PATIENCE, text=True)

    def said(self, *arguments):
        """The output of djinnctl, which must succeed."""
        done = self.ctl(*arguments)
        if done.returncode:
            raise AssertionError(done.stderr)
        return done.stdout

    def json(self, *arguments):
        return json.loads(self.said(*arguments, "-o", "json"))

    def http(self, name, path):
        """Status and text of a page of a process's monitoring port."""
        url = "http://%s/%s" % (self.monitoring[name], path)
        try:
            with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def program(self, case, *arguments, tenant="dev", **more):
        """Starts a program of the tenant, which is killed when the test case is over."""
        program = subprocess.Popen(
            arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True, env=self.environment(tenant, **more))
        case.addCleanup(program.stdin.close)
        case.addCleanup(program.stdout.close)
        case.addCleanup(program.wait, PATIENCE)
        case.addCleanup(program.kill)
        return program

    def leader(self):
        """The one of several coordinators that leads, or an empty name."""
        for name in self._coordinators:
            done = self.ctl("version", "--coordinator=unix:" + self.path(name + ".sock"))
            if "leads " in done.stdout:
                return name
        return ""

    def process(self, name):
        return self._processes[name]

    def end(self, name, signal):
        """Sends a signal that ends the process."""
        process = self._processes.pop(name)
        process.send_signal(signal)
        process.wait(PATIENCE)

    def stop(self):
        """Ends all processes, without a drain: no worker waits for a coordinator.

        None of them may have logged a token.
        """
        for process in self._processes.values():
            process.send_signal(signal.SIGINT)
        for process in self._processes.values():
            process.wait(PATIENCE)
        if self._logged is None:
            return
        with open(f"/proc/self/fd/{self._logged}", encoding="utf-8", errors="replace") as file:
            os.close(self._logged)
            self._logged = None
            for line in file:
                if _TOKEN in line:
                    raise AssertionError("a log has a token: " + line)


def start_cluster(case, *arguments, **options):
    """Starts a Cluster in a folder of its own. Both end with the test case, or with the class."""
    add_cleanup = case.addClassCleanup if isinstance(case, type) else case.addCleanup
    folder = tempfile.TemporaryDirectory()
    add_cleanup(folder.cleanup)
    cluster = Cluster(folder.name, *arguments, **options)
    add_cleanup(cluster.stop)
    return cluster


def _read(path):
    if not os.path.exists(path):
        return ""
    with open(path) as file:
        return file.read().strip()
