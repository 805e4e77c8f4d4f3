"""A program goes on at a worker of its own machine when the cluster has none, and back."""

import signal
import unittest

import torch

import djinn
from tests.chaos.recovery_programs import decode_sampled
from tests.operating.cluster import PATIENCE, eventually, start_cluster
from tests.python.remote_case import assert_equal


class FallbackTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # The cluster's workers have one thread each, and PyTorch has two here.
        torch.set_num_threads(2)
        cls.expected = {}
        for threads in (1, 2):
            with djinn.local(worker_threads=threads):
                cls.expected[threads] = decode_sampled(djinn.device(), lambda step: None)

    def _cluster(self, workers):
        return start_cluster(
            self, workers, coordinator_extra="lease_request_timeout: 1s\n")

    def _connect(self, cluster, **options):
        djinn.connect(
            cluster.coordinator,
            token_file=cluster.path("dev.token"),
            connect_timeout=2 * PATIENCE,
            resume_timeout=1,
            # The coordinator refuses after 1 s. This must not end the first grant sooner on a
            # busy machine.
            **{"fallback_after": 30, **options},
        )
        self.addCleanup(djinn.close)

    def test_without_any_worker_the_program_ends_here(self):
        self._connect(self._cluster(()), fallback="local")
        results = decode_sampled(djinn.device(), lambda step: None)
        # A local worker that takes over from none has as many threads as PyTorch here.
        assert_equal(self, results, self.expected[2])
        place = djinn.where_is(0)
        self.assertEqual(place.worker_id, "local-0")
        self.assertTrue(place.reason.startswith("local fallback: "), place.reason)

    def test_without_a_fallback_it_is_a_typed_error(self):
        self._connect(self._cluster(()))
        with self.assertRaises(djinn.Error) as raised:
            torch.ones(3, device=djinn.device()).cpu()
        self.assertEqual(raised.exception.reason, "NO_WORKER")
        # close() raises the device's failure unless the read above reported it.
        try:
            djinn.close()
        except djinn.Error as error:
            self.assertEqual(error.reason, "NO_WORKER")

    def test_an_unknown_fallback_is_refused(self):
        with self.assertRaises(djinn.Error) as raised:
            djinn.connect("127.0.0.1:1", token="token", fallback="elsewhere")
        self.assertEqual(raised.exception.reason, "BAD_FALLBACK")

    def test_a_lost_worker_without_a_successor_and_back_again(self):
        cluster = self._cluster(("w0",))
        self._connect(cluster, fallback="local")
        places = []

        def at_step(step):
            if step == 8:
                places.append(djinn.where_is(0).worker_id)
                cluster.end("w0", signal.SIGKILL)
            elif step == 12:
                places.append(djinn.where_is(0).worker_id)
                cluster.start("w0")
            elif step == 16:
                # The device goes back while the program holds its cache.
                eventually(lambda: djinn.where_is(0).worker_id == "w0", "the device goes back")
                places.append(djinn.where_is(0).worker_id)

        # The local worker has as many threads as the lost one.
        assert_equal(self, decode_sampled(djinn.device(), at_step), self.expected[1])
        self.assertEqual(places, ["w0", "local-0", "w0"])
        self.assertEqual(djinn.statistics()["recoveries"], 2)

    def test_a_cluster_that_was_away_at_the_start_gets_the_session(self):
        cluster = self._cluster(("w0",))
        cluster.end("coordinator", signal.SIGKILL)
        self._connect(cluster, fallback="local", fallback_after=1)
        value = torch.arange(8.0, device=djinn.device()) * 3
        self.assertEqual(djinn.where_is(0).worker_id, "local-0")
        cluster.write("coordinator.yaml", open(cluster.path("coordinator.yaml")).read().replace(
            "127.0.0.1:0", cluster.coordinator))
        cluster.start("coordinator")
        eventually(lambda: djinn.where_is(0).worker_id == "w0", "the device goes there")
        self.assertEqual((value + 1).tolist(), (torch.arange(8.0) * 3 + 1).tolist())
        shown = eventually(
            lambda: [each for each in cluster.json("get", "sessions")["sessions"]], "a session")
        self.assertEqual(len(shown), 1)
