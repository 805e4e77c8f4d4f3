"""Each process of a cluster is restarted in turn under load, and no program notices.

Two coordinators share etcd, and workers hold a decoder, a training and an encoder. Each
process gets SIGTERM and is started again under its name, in the last round with programs of
another version, as a rolling upgrade does it. No program sees an error, and each computes the
bytes of an undisturbed run. ROLLING_ROUNDS says how often all are restarted; with more than
one round, there are three workers, in every second round the leader and a worker are
restarted at the same time, and a further round goes back to the first version.
"""

import concurrent.futures
import json
import os
import re
import signal
import sys
import tempfile
import unittest

from tests.operating import other_build
from tests.operating.cluster import PATIENCE, Cluster, eventually
from tests.operating.etcd import Etcd
from tests.operating.rolling_programs import PROGRAMS, RunningPrograms

_ROUNDS = int(os.environ.get("ROLLING_ROUNDS", "1"))
_COORDINATORS = ("c0", "c1")
_WORKERS = ("w0", "w1", "w2") if _ROUNDS > 1 else ("w0", "w1")
# Steps that each program makes between two restarts.
_STEPS = 5


class RollingRestartTest(unittest.TestCase):

    def setUp(self):
        # The paths of Unix sockets must be short.
        folder = tempfile.TemporaryDirectory(dir="/tmp", prefix="djinn-rolling-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.log = open(os.path.join(self.folder, "log"), "ab+")
        self.addCleanup(self.log.close)
        etcd = Etcd(self.folder)
        self.addCleanup(etcd.kill)
        # On a busy machine a process may stand still for seconds, and is not lost.
        self.cluster = Cluster(
            self.folder, _WORKERS, log=self.log, coordinators=_COORDINATORS,
            coordinator_extra="""
etcd: {endpoints: ['%s'], lease: 10s}
session_timeout: 100s
worker_timeout: 50s
worker_silence: 50s
""" % etcd.address, worker_extra="drain_timeout: 80s\n",
            extra="monitoring: {listen: '127.0.0.1:0'}\n")
        self.addCleanup(self.cluster.stop)
        for name in _WORKERS:
            self.await_active(name)
        # The program and the variables with which each process is started again.
        self.build = {name: (None, {}) for name in _COORDINATORS + _WORKERS}

    def lines(self, pattern):
        """The lines of all processes' log so far that the pattern matches."""
        with open(self.log.name) as file:
            return [line for line in file if re.search(pattern, line)]

    # --- The cluster.

    def worker(self, name):
        """Returns the leader's view of the worker, or {} if nobody answers."""
        done = self.cluster.ctl("get", "worker", name, "-o", "json")
        return json.loads(done.stdout) if done.returncode == 0 else {}

    def await_active(self, name, other_than=None):
        """The worker's incarnation once it takes leases."""
        def active():
            worker = self.worker(name)
            usable = worker.get("state") == "ACTIVE" and not worker.get("draining")
            return usable and worker["incarnation"] != other_than and worker["incarnation"]

        return eventually(active, name + " takes leases")

    def restart(self, name):
        process = self.cluster.process(name)
        self.cluster.end(name, signal.SIGTERM)
        self.assertEqual(process.returncode, 0, name)
        program, environment = self.build[name]
        self.cluster.start(name, program, **environment)

    def upgrade(self):
        """Makes every further start one of another version."""
        for program, names in (("coordinator/djinn-coordinator", _COORDINATORS),
                               ("gpu_worker/djinn-worker", _WORKERS)):
            path = self.cluster.path("other-" + os.path.basename(program))
            build = path, other_build.make(program, path)
            self.build.update({name: build for name in names})

    def version(self, name):
        return re.search(r'djinn_build_info{.*version="(.*)"',
                         self.cluster.http(name, "metrics")[1])[1]

    def restart_coordinator(self, name):
        self.restart(name)
        eventually(self.cluster.leader, "a coordinator leads")
        for worker in _WORKERS:
            self.await_active(worker)

    def restart_worker(self, name):
        before = self.await_active(name)
        self.restart(name)
        self.await_active(name, other_than=before)

    def restart_both(self, coordinator, worker):
        """Restarts a coordinator while a worker drains."""
        before = self.await_active(worker)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            other = pool.submit(self.restart, coordinator)
            self.restart(worker)
            other.result()
        self.await_active(worker, other_than=before)

    def test_programs_run_on_through_a_rolling_restart(self):
        try:
            self.roll()
        except BaseException:
            print("".join(self.lines("")[-200:]), file=sys.stderr)
            raise

    def roll(self):
        programs = RunningPrograms(self, self.cluster, self.log)
        for name in PROGRAMS:
            programs.start(name, name)
        programs.await_steps(_STEPS)
        restarts = 0
        both = 0
        first = dict(self.build)
        versions = {name: self.version(name) for name in first}
        rounds = _ROUNDS + 1 if _ROUNDS > 1 else _ROUNDS
        for round_ in range(rounds):
            if round_ == _ROUNDS - 1:
                self.upgrade()
            elif round_ == _ROUNDS:
                self.build = first
            leader = eventually(self.cluster.leader, "a coordinator leads")
            follower = next(name for name in _COORDINATORS if name != leader)
            coordinators = [follower, leader]
            workers = list(_WORKERS)
            if round_ % 2:
                self.restart_both(coordinators.pop(), workers.pop(0))
                both += 1
                programs.await_steps(_STEPS)
            for name in coordinators:
                self.restart_coordinator(name)
                programs.await_steps(_STEPS)
            for name in workers:
                self.restart_worker(name)
                restarts += 1
                programs.await_steps(_STEPS)
            for name, before in versions.items():
                other = round_ == _ROUNDS - 1
                self.assertEqual(self.version(name), "9" + before[1:] if other else before, name)
        programs.finish(PATIENCE * (1 + rounds))
        # Each worker moved what it held, so that nothing was computed again. Where the leader
        # changed meanwhile, it may not have waited for that; its programs go on by recovery.
        self.assertEqual(len(self.lines("msg=drained end=")), restarts + both)
        self.assertGreaterEqual(
            len(self.lines('msg=drained end="nothing is left"')), restarts)
