"""Workers are killed, suspended and cut off while programs run, which end with equal bytes.

Each cell of the matrix is a program and a fault. The seed decides every moment: the step
before which a fault happens, and how long after that. Without CHAOS_MOMENTS, each program
meets one fault once; with it, each meets each fault so many times. CHAOS_SEED repeats a run.
"""

import json
import os
import random
import selectors
import signal
import socket
import subprocess
import tempfile
import threading
import unittest

import torch

import djinn
from tests.chaos import recovery_programs
from tests.operating.cluster import Cluster, eventually

_WORKERS = ("w0", "w1", "w2")
# 0 stands for the sample.
_MOMENTS = int(os.environ.get("CHAOS_MOMENTS", "0"))
_SEED = int(os.environ.get("CHAOS_SEED", "1"))
# A fault happens up to this long after its step began.
_LATEST = 0.02


class _Link:
    """A network before a worker: forwards connections, and cuts them."""

    def __init__(self):
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self._listener.getsockname()[1]
        self.target = None
        self._lock = threading.Lock()
        self._open = set()
        self._cut = False
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        with client:
            with self._lock:
                if self._cut:
                    return
                host, port = self.target.rsplit(":", 1)
            try:
                server = socket.create_connection((host, int(port)))
            except OSError:
                return
            pair = {client, server}
            with server:
                with self._lock:
                    if self._cut:
                        return
                    self._open |= pair
                try:
                    self._forward(client, server)
                except OSError:
                    pass
                with self._lock:
                    self._open -= pair

    @staticmethod
    def _forward(client, server):
        with selectors.DefaultSelector() as both:
            both.register(client, selectors.EVENT_READ, server)
            both.register(server, selectors.EVENT_READ, client)
            while True:
                for key, _ in both.select():
                    data = key.fileobj.recv(1 << 16)
                    if not data:
                        return
                    key.data.sendall(data)

    def cut(self):
        """Ends all connections, and refuses new ones until heal()."""
        with self._lock:
            self._cut = True
            for end in self._open:
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    def heal(self):
        with self._lock:
            self._cut = False

    def close(self):
        self.cut()
        self._listener.close()


class RecoveryChaosTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.links = {name: _Link() for name in _WORKERS}
        for link in cls.links.values():
            cls.addClassCleanup(link.close)
        cls.cluster = Cluster(
            cls.folder.name,
            _WORKERS,
            coordinator_extra="session_timeout: 10s\n",
            extra_of={
                name: "advertise: %s\n" % link.address for name, link in cls.links.items()
            },
        )
        cls.addClassCleanup(cls.cluster.stop)
        for name, address in zip(_WORKERS, cls.cluster.workers):
            cls.links[name].target = address
        cls.expected = {}
        print("seed", _SEED, "moments of each cell", _MOMENTS or "the sample", flush=True)

    def _run(self, program, at_step=lambda step: None, resume_timeout=10.0):
        """Runs the program in a session of its own."""
        djinn.connect(
            self.cluster.coordinator,
            token_file=self.cluster.path("dev.token"),
            recovery="replay",
            resume_timeout=resume_timeout,
            connect_timeout=60.0,
        )
        try:
            results = program(djinn.device(), at_step)
            self.assertEqual(djinn.statistics()["root_errors"], 0)
            return results, djinn.statistics()["recoveries"]
        finally:
            djinn.close()

    def _get(self, kind):
        text = subprocess.run(
            ["coordinator/ctl/djinnctl", "get", kind, "-o", "json",
             "--coordinator=" + self.cluster.coordinator,
             "--token-file=" + self.cluster.path("admin.token")],
            check=True, capture_output=True).stdout
        return json.loads(text).get(kind + "s", [])

    # --- Faults. Each takes the worker's name and a random source, and returns a function
    # that undoes the fault.

    def _kill(self, name, _):
        self.cluster.end(name, signal.SIGKILL)

        def restart():
            # The sample kills fewer workers than there are, and a start takes long.
            if _MOMENTS:
                self.links[name].target = self.cluster.start(name)

        return restart

    def _freeze(self, name, draw):
        process = self.cluster.process(name)
        process.send_signal(signal.SIGSTOP)
        waker = threading.Timer(
            draw.uniform(0.05, 0.5), lambda: process.send_signal(signal.SIGCONT))
        waker.start()
        return waker.join

    def _cut(self, name, draw):
        self.links[name].cut()
        # Some cuts end before the client gives the worker up.
        healer = threading.Timer(draw.choice((0.1, 4)), self.links[name].heal)
        healer.start()
        return healer.join

    def _disturb(self, program, fault, moment, at_once=False):
        """Runs the program once with the fault, at the moment of this number.

        With `at_once`, the fault happens before the step, which needs the worker.
        """
        draw = random.Random("%d %s %s %d" % (
            _SEED, program.__name__, fault.__name__, moment))
        at = draw.randrange(recovery_programs.STEPS)
        delay = draw.uniform(0, _LATEST)
        undo = []
        timers = []

        def at_step(step):
            if step != at:
                return
            name = djinn.where_is(0).worker_id
            if at_once:
                undo.append(fault(name, draw))
                return
            timers.append(threading.Timer(delay, lambda: undo.append(fault(name, draw))))
            timers[-1].start()

        with self.subTest(program=program.__name__, fault=fault.__name__, moment=moment,
                          step=at, seed=_SEED):
            try:
                results, recoveries = self._run(program, at_step, resume_timeout=2.0)
            finally:
                for timer in timers:
                    timer.join()
                for function in undo:
                    function()
            expected = self.expected[program]
            self.assertEqual(len(results), len(expected))
            for result, other in zip(results, expected):
                self.assertTrue(torch.equal(result, other))
            self.assertEqual(len(undo), 1)
            return recoveries

    def _cells(self, fault, sample, at_once=()):
        """Disturbs the programs by the fault; returns the number of recoveries.

        The fault happens at once in the first moment of programs in `at_once`.
        """
        recoveries = 0
        for program in recovery_programs.PROGRAMS if _MOMENTS else sample:
            if program not in self.expected:
                self.expected[program], _ = self._run(program)
            for moment in range(_MOMENTS or 1):
                recoveries += self._disturb(
                    program, fault, moment, moment == 0 and program in at_once) or 0
        # Nothing is left.
        eventually(lambda: not self._get("session"), "no session is left")
        return recoveries

    def test_killed_worker(self):
        # A worker that dies after the program's last message is not missed, so one dies
        # before a step of a program that reads a result in each.
        sample = (recovery_programs.train, recovery_programs.upload)
        self.assertGreater(
            self._cells(self._kill, sample, at_once=(recovery_programs.train,)), 0)

    def test_suspended_worker(self):
        # The worker returns before it is given up.
        self._cells(
            self._freeze, (recovery_programs.decode_greedily, recovery_programs.download))

    def test_cut_link(self):
        self._cells(self._cut, (recovery_programs.decode_sampled, recovery_programs.encode))
