"""Runs programs and disturbs each of them at many moments.

A cell is a program and a fault. The seed decides every moment: the step before which a fault
happens, how long after that, and how the session recovers. Variables of the environment:

    CHAOS_MOMENTS   number of moments of each cell; without it, a few cells have one each
    CHAOS_SEED      another seed than 1
    CHAOS_PROGRAMS  names of the only programs to disturb, divided by spaces
    CHAOS_MOMENT    number of the only moment, to repeat a failure

A Bazel target for all cells has CHAOS_TARGET_MOMENTS, which CHAOS_MOMENTS overrides.
"""

import collections
import json
import concurrent.futures
import dataclasses
import faulthandler
import glob
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from typing import Callable

import djinn
from tests.chaos import recovery_programs
from tests.chaos.recovery_programs import STEPS
from tests.operating.cluster import PATIENCE, Cluster, eventually

WORKERS = ("w0", "w1", "w2")
# A fault happens up to this long after its step began, in seconds; during a move, within the
# time that a move takes.
_LATEST, _LATEST_OF_MOVE = 0.02, 0.15
# No run takes longer.
_HANGS = 150
# Files that a cluster leaves in its folder, besides those of etcd.
_KNOWN = (".yaml", ".token", ".address", ".monitoring", ".sock", ".shm", ".pull", "log")

_MOMENTS = int(
    os.environ.get("CHAOS_MOMENTS") or os.environ.get("CHAOS_TARGET_MOMENTS") or 0)
_SEED = int(os.environ.get("CHAOS_SEED", "1"))

# Programs besides those in Python: the encoder service, and decoders that are moved.
_SERVICE = "encoder_service"
_MOVED = {"decode_migrated": "migrate", "decode_drained": "drain"}
_ALL = (*recovery_programs.PROGRAMS, _SERVICE, *_MOVED)


def _shared_memory():
    return {name for name in os.listdir("/dev/shm") if "djinn" in name}


@dataclasses.dataclass
class Effect:
    """Undoes a fault, and names the count that the fault must increase."""

    # Undoes it.
    undo: Callable[[], None] = lambda: None
    # The name of the count that must have grown if the program needed what failed.
    must_count: str = ""


class _Run:
    """One run of a program, during which something may happen before a step."""

    def __init__(self, before_step=lambda step, worker, child: None):
        self.before_step = before_step
        self.digest = None
        self.counts = {}

    def here(self, program, **options):
        """Runs the program in this process."""
        recovery_programs.connect(program, **options)
        try:
            results = recovery_programs.PROGRAMS[program](
                djinn.device(),
                lambda step: self.before_step(step, lambda: self._worker(step), None))
            self.counts = djinn.statistics()
        finally:
            djinn.close()
        self.digest = recovery_programs.digest(results)
        return self

    def in_child(self, program, environment):
        """Runs the program in another process, which may be killed."""
        command = [sys.executable, "-m", "tests.chaos.recovery_programs", program]
        if program == _SERVICE:
            command = ["tests/chaos/encoder_service"]
        self.child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        with self.child:
            for line in self.child.stdout:
                kind, *rest = line.split()
                if kind == "step":
                    number, worker = rest
                    self.before_step(int(number), lambda worker=worker: worker, self.child)
                    self._go_on()
                elif kind == "end":
                    self.digest, *counts = rest
                    self.counts = dict(
                        zip(("root_errors", "recoveries", "resumes"), map(int, counts)))
            self.child.stdin.close()
            status = self.child.wait(PATIENCE)
        if status not in (0, -signal.SIGKILL):
            raise AssertionError("%s ended with %d" % (program, status))
        return self

    def _go_on(self):
        try:
            print(file=self.child.stdin, flush=True)
        except BrokenPipeError:
            pass  # it was killed

    @staticmethod
    def _worker(step):
        """The device's worker, or one of them."""
        workers = djinn.where_is(0).worker_id.split("+")
        return workers[step % len(workers)]


class ChaosCase(unittest.TestCase):
    # Further configuration.
    coordinators = ("coordinator",)
    coordinator_extra = "session_timeout: 10s\n"
    worker_extra = "resume_timeout: 3s\n"
    # Whether clients may use shared memory.
    shared_memory = True
    # Whether programs run in processes of their own, which faults get instead of the worker,
    # and which need not end.
    in_children = False

    @classmethod
    def setUpClass(cls):
        # The paths of Unix sockets must be short.
        folder = tempfile.TemporaryDirectory(dir="/tmp", prefix="djinn-chaos-")
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        # The library's temporary files.
        cls.spill = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.spill.cleanup)
        os.environ["TMPDIR"] = cls.spill.name
        # The least value that connect() accepts.
        os.environ["DJINN_WORKER_SILENCE"] = "2s"
        cls.shared_before = _shared_memory()
        cls.log = open(os.path.join(cls.folder, "log"), "ab+")
        cls.addClassCleanup(cls.log.close)
        cls.expected = {}
        cls.pool = concurrent.futures.ThreadPoolExecutor()
        cls.addClassCleanup(cls.pool.shutdown)
        cls.addClassCleanup(cls.check_nothing_remains)
        cls.start()
        cls.addClassCleanup(cls.cluster.stop)
        if path := os.environ.get("TEST_SHARD_STATUS_FILE"):
            with open(path, "w"):
                pass
        print("seed", _SEED, "moments of each cell", _MOMENTS or "the sample", flush=True)

    @classmethod
    def start(cls, extra_of=None):
        extra_of = extra_of or {
            name: "shared_memory_socket: %s.shm\n" % name for name in WORKERS}
        cls.cluster = Cluster(
            cls.folder, WORKERS, log=cls.log, coordinators=cls.coordinators,
            coordinator_extra=cls.coordinator_extra, worker_extra=cls.worker_extra,
            extra_of=extra_of)
        os.environ["DJINN_COORDINATOR"] = cls.cluster.coordinator
        os.environ["DJINN_TOKEN_FILE"] = cls.cluster.path("dev.token")

    @classmethod
    def check_nothing_remains(cls):
        """Raises if the processes, which have ended, left another process or a file."""
        left = [pid for path in glob.glob("/proc/self/task/*/children")
                for pid in open(path).read().split()]
        files = [name for name in os.listdir(cls.folder)
                 if not name.endswith(_KNOWN) and not name.startswith("etcd")]
        # PyTorch keeps a folder of its own there.
        files += [name for name in os.listdir(cls.spill.name) if "torchinductor" not in name]
        files += _shared_memory() - cls.shared_before
        if left or files:
            raise AssertionError("processes are left: %s, files: %s" % (left, files))

    # --- Cells.

    def disturb_all(self, fault, sample):
        """Disturbs programs by the fault: all if there is a number of moments.

        `fault` takes a function that returns the name of the program's worker, or the program's
        process if it has one of its own, and a random source. It returns an Effect.
        """
        programs = os.environ.get("CHAOS_PROGRAMS", "").split()
        programs = programs or (_ALL if _MOMENTS else sample)
        cells = [(program, moment) for program in programs for moment in range(_MOMENTS or 1)
                 if not (self.in_children and program in _MOVED)]
        if only := os.environ.get("CHAOS_MOMENT"):
            cells = [(program, int(only)) for program in dict(cells)]
        shards = int(os.environ.get("TEST_TOTAL_SHARDS", "1"))
        cells = cells[int(os.environ.get("TEST_SHARD_INDEX", "0"))::shards]
        begun = time.monotonic()
        sums = collections.defaultdict(collections.Counter)
        for program, moment in cells:
            if program not in self.expected and not self.in_children:
                self.expected[program] = self._undisturbed(program)
                self.check_nothing_left()
            counts = {}
            with self.subTest(
                    repeat="CHAOS_SEED=%d CHAOS_PROGRAMS=%s CHAOS_MOMENT=%d" % (
                        _SEED, program, moment)):
                counts = self._disturb(program, fault, moment)
            sums[program].update(runs=1, right=bool(counts), **{
                name: counts.get(name, 0)
                for name in ("recoveries", "resumes", "checkpoints", "killed")})
            self.check_nothing_left()
        for program, sum_ in sums.items():
            print(fault.__name__, program, dict(sum_), flush=True)
        print(fault.__name__, "took %.0f s" % (time.monotonic() - begun), flush=True)

    def _undisturbed(self, program):
        """The digest of the program's results; one that is moved must move."""
        moves = []
        begun = time.monotonic()

        def before_step(step, worker, child):  # pylint: disable=unused-argument
            if step == STEPS // 2 and program in _MOVED:
                moves.append(worker())
                allow = self._move(_MOVED[program], moves[0])
                eventually(lambda: worker() != moves[0], "the session moves")
                allow()

        run = self._execute(program, before_step)
        print("%s takes %.2f s" % (program, time.monotonic() - begun), flush=True)
        self.assertEqual(run.counts["root_errors"], 0)
        if program in _MOVED:
            self.assertEqual(run.digest, self._execute("decode_greedily").digest)
        return run.digest

    def _execute(self, program, before_step=lambda step, worker, child: None, **options):
        faulthandler.dump_traceback_later(_HANGS, exit=True)
        try:
            run = _Run(before_step)
            if self.in_children or program == _SERVICE:
                recovery = options.get("recovery", "replay")
                return run.in_child(program, {**os.environ, "DJINN_RECOVERY": recovery})
            return run.here("decode_greedily" if program in _MOVED else program, **options)
        finally:
            faulthandler.cancel_dump_traceback_later()

    def _move(self, verb, worker):
        """Moves the session away from the worker; returns a function that allows others back."""
        if verb == "drain":
            self.cluster.ctl("drain", "worker", worker)
            return lambda: self.cluster.said("uncordon", "worker", worker)
        for session in self.get("session"):
            self.cluster.ctl("migrate", "session", session["session_id"])
        return lambda: None

    def _disturb(self, program, fault, moment):
        """Runs the program once with the fault, at the moment of this number."""
        draw = random.Random("%d %s %s %d" % (_SEED, program, fault.__name__, moment))
        os.environ["DJINN_SHARED_MEMORY"] = str(int(self.shared_memory and moment % 3 != 1))
        verb = _MOVED.get(program)
        # The next step needs what fails at once.
        at_once = moment % 4 < 2 and not verb
        at = draw.randrange(STEPS)
        delay = draw.uniform(0, _LATEST_OF_MOVE if verb else _LATEST)
        undo, effects = [], []

        def later(seconds, function):
            def wait():
                threading.Event().wait(seconds)
                return function()

            return self.pool.submit(wait)

        def before_step(step, worker, child):
            if step != at:
                return
            if at_once:
                effects.append(fault(child if self.in_children else worker, draw))
                return
            if self.in_children:
                effects.append(later(delay, lambda: fault(child, draw)))
                return
            name = worker()
            if verb:
                undo.append(self.pool.submit(self._move, verb, name))
            effects.append(later(delay, lambda: fault(lambda: name, draw)))

        try:
            run = self._execute(
                program, before_step, recovery=("replay", "checkpoint")[moment % 2])
        finally:
            if not at_once:
                effects = [effect.result(PATIENCE) for effect in effects]
            for effect in effects:
                effect.undo()
            for moved in undo:
                moved.result(PATIENCE)()
        self.assertEqual(len(effects), 1)
        if self.in_children and run.digest is None:
            return {"killed": 1}
        self.assertEqual(run.counts["root_errors"], 0)
        if not self.in_children:
            self.assertEqual(run.digest, self.expected[program])
        if at_once and effects[0].must_count:
            self.assertGreater(
                sum(run.counts[name] for name in effects[0].must_count.split()), 0)
        return run.counts

    # --- The cluster.

    def get(self, kind):
        return self.cluster.json("get", kind).get(kind + "s", [])

    def check_nothing_left(self):
        eventually(self._has_no_session, "no session is left")
        for name in WORKERS:
            eventually(lambda name=name: self._is_free(name), name + " is free")

    def _has_no_session(self):
        done = self.cluster.ctl("get", "sessions", "-o", "json")
        if done.returncode:
            return False  # The coordinator that was asked may have lost the leadership.
        return not json.loads(done.stdout).get("sessions")

    def _is_free(self, name):
        done = self.cluster.ctl("get", "worker", name, "-o", "json")
        if done.returncode:
            return False  # A new leader does not know the worker yet.
        worker = json.loads(done.stdout)
        memory = collections.defaultdict(int, worker.get("memory", {}))
        return worker["state"] == "ACTIVE" and not worker.get("lease_count") and not (
            int(memory["storage_bytes"]) or int(memory["transfer_bytes"])
            or int(memory["content_bytes"]) - int(memory["idle_content_bytes"]))
