"""Processes are killed and suspended, and links cut and frozen, while programs run.

The programs end with the bytes of an undisturbed run, and leave nothing behind.
"""

import signal
import threading
import unittest

from tests.chaos.chaos_case import WORKERS, ChaosCase, Effect
from tests.chaos.links import DOWN, UP, Links
from tests.operating.cluster import eventually
from tests.operating.etcd import Etcd

# The longest freeze of a worker or link, in seconds.
_LONGEST = 20


def _after(seconds, function):
    """Calls the function once: then, or when the result is called before."""
    over = threading.Event()

    def wait():
        over.wait(seconds)
        function()

    thread = threading.Thread(target=wait)
    thread.start()

    def end():
        over.set()
        thread.join()

    return end


class WorkerChaosTest(ChaosCase):
    def _kill(self, worker, _):
        name = worker()
        self.cluster.end(name, signal.SIGKILL)
        return Effect(lambda: self.cluster.start(name), "recoveries")

    def _kill_successor_too(self, worker, draw):
        """Kills the worker, and then the one that took over."""
        first = worker()
        self.cluster.end(first, signal.SIGKILL)
        killed = [first]
        ended = threading.Event()

        def kill_next():
            while not ended.is_set():
                others = {lease["worker_id"] for lease in self.get("lease")} - {first}
                if others:
                    ended.wait(draw.uniform(0, 0.1))
                    killed.append(others.pop())
                    self.cluster.end(killed[-1], signal.SIGKILL)
                    return

        thread = threading.Thread(target=kill_next)
        thread.start()

        def undo():
            ended.set()
            thread.join()
            for name in killed:
                self.cluster.start(name)

        return Effect(undo, "recoveries")

    def _suspend(self, worker, draw):
        """Suspends the worker, which returns before it is given up."""
        process = self.cluster.process(worker())
        process.send_signal(signal.SIGSTOP)
        end = _after(
            draw.uniform(0.05, 0.5), lambda: process.send_signal(signal.SIGCONT))
        return Effect(end)

    def _suspend_long(self, worker, draw):
        """Suspends the worker for longer than it may be silent, or not quite."""
        process = self.cluster.process(worker())
        process.send_signal(signal.SIGSTOP)
        long = draw.random() < 0.8
        end = _after(_LONGEST if long else draw.uniform(0.5, 6),
                     lambda: process.send_signal(signal.SIGCONT))
        return Effect(end, "recoveries" if long else "")

    def test_killed_worker(self):
        self.disturb_all(
            self._kill,
            ("train", "cnn", "two_devices", "stages", "generate_beams", "encoder_service"))

    def test_killed_workers(self):
        self.disturb_all(self._kill_successor_too, ("decode_sampled", "compiled_step"))

    def test_suspended_worker(self):
        self.disturb_all(self._suspend, ("decode_greedily", "download", "decode_drained"))

    def test_long_suspended_worker(self):
        self.disturb_all(self._suspend_long, ("generate_sampled_static",))


class LinkChaosTest(ChaosCase):
    # Shared memory goes past the links.
    shared_memory = False

    @classmethod
    def start(cls, extra_of=None):
        cls.links = Links(WORKERS)
        cls.addClassCleanup(cls.links.close)
        super().start({
            name: "advertise: %s\n" % address for name, address in cls.links.address.items()})
        for name, address in zip(WORKERS, cls.cluster.workers):
            cls.links.lead(name, address)

    def _cut(self, worker, draw):
        name = worker()
        self.links.cut(name)
        # Some cuts end before the client gives the worker up.
        return Effect(_after(draw.choice((0.1, 4)), lambda: self.links.heal(name)),
                      "resumes recoveries")

    def _half_open(self, worker, draw):
        """Lets the link forward nothing, in one direction or both, and say nothing."""
        name = worker()
        directions = draw.choice(((UP, DOWN), (UP,), (DOWN,)))
        self.links.freeze(name, *directions)
        long = draw.random() < 0.8
        return Effect(
            _after(_LONGEST if long else draw.uniform(0.5, 6), lambda: self.links.heal(name)),
            "recoveries" if long else "")

    def test_cut_link(self):
        self.disturb_all(self._cut, ("encode", "prefill", "stages"))

    def test_half_open_link(self):
        self.disturb_all(self._half_open, ("upload",))


class CoordinatorChaosTest(ChaosCase):
    """Two coordinators share etcd."""

    coordinators = ("c0", "c1")

    @classmethod
    def start(cls, extra_of=None):
        cls.etcd = Etcd(cls.folder)
        cls.addClassCleanup(cls.etcd.kill)
        cls.coordinator_extra = (
            "etcd: {endpoints: ['%s'], lease: 2s}\nsession_timeout: 10s\n" % cls.etcd.address)
        super().start()
        eventually(cls.cluster.leader, "a coordinator leads")

    def _with_worker(self, worker, draw, undo):
        """Kills the worker, too, in half of the moments: its successor needs a leader."""
        if draw.random() < 0.5:
            return Effect(undo)
        name = worker()
        self.cluster.end(name, signal.SIGKILL)

        def undo_both():
            undo()
            self.cluster.start(name)

        return Effect(undo_both, "recoveries")

    def _kill_leader(self, worker, draw):
        leader = eventually(self.cluster.leader, "a coordinator leads")
        self.cluster.end(leader, signal.SIGKILL)

        def undo():
            self.cluster.start(leader)
            eventually(self.cluster.leader, "a coordinator leads")

        return self._with_worker(worker, draw, undo)

    def _kill_etcd(self, worker, draw):
        self.etcd.kill()
        end = _after(draw.uniform(0.2, 4), self.etcd.start)

        def undo():
            end()
            eventually(self.cluster.leader, "a coordinator leads")

        return self._with_worker(worker, draw, undo)

    def test_killed_leader(self):
        self.disturb_all(self._kill_leader, ("compiled_model", "generate_greedily"))

    def test_killed_etcd(self):
        self.disturb_all(self._kill_etcd, ("decode_sampled",))


class ClientChaosTest(ChaosCase):
    """The memory of a client that was killed comes back."""

    coordinator_extra = "session_timeout: 3s\n"
    worker_extra = "resume_timeout: 2s\n"
    in_children = True

    def _kill_client(self, client, _):
        client.kill()
        return Effect()

    def test_killed_client(self):
        self.disturb_all(self._kill_client, ("train", "encoder_service"))


if __name__ == "__main__":
    unittest.main()
