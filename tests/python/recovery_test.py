"""Kills a worker while a program runs, which ends with the same bytes."""

import os
import signal
import unittest

import torch
from torch import nn

import djinn
from tests.chaos.recovery_programs import decode_sampled, train
from tests.python.remote_case import assert_equal


def encode(device, at_step):
    """Encodes batches, reads them at the end, and uploads weights by hash."""
    torch.manual_seed(13)
    layer = nn.TransformerEncoderLayer(256, 4, 512, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval().to(device)
    large = torch.randn(1200, 600).to(device)
    results = []
    with torch.no_grad():
        for step in range(12):
            at_step(step)
            results.append(encoder(torch.randn(2, 7, 256).to(device)))
    return *(result.cpu() for result in results), large.sum(0).cpu()


class RecoveryTest(unittest.TestCase):
    def setUp(self):
        os.environ["DJINN_RECOVERY"] = "replay"
        self.addCleanup(os.environ.pop, "DJINN_RECOVERY", None)

    def _results(self, program, kill_at, checkpoint_at=()):
        """Runs the program on a cluster of its own, and kills its worker before a step.

        Makes a checkpoint before the steps of `checkpoint_at`.
        """
        with djinn.local(workers=2, worker_threads=1) as cluster:

            def at_step(step):
                if step in checkpoint_at:
                    djinn.checkpoint()
                if step in kill_at:
                    name = djinn.where_is(0).worker_id
                    os.kill(cluster.worker_pids[int(name.rpartition("-")[2])], signal.SIGKILL)

            results = program(djinn.device(), at_step)
            self.assertEqual(djinn.statistics()["recoveries"], len(kill_at))
            self.assertEqual(djinn.statistics()["root_errors"], 0)
            self.assertEqual(djinn.statistics()["checkpoints"], len(checkpoint_at))
            self.replayed = djinn.statistics()["messages_replayed"]
        return results

    def _check_checkpoint(self, program, moment):
        """Compares runs without a loss, with one, and with one soon after a checkpoint.

        Returns the numbers of messages that the last one and the second one sent again.
        """
        os.environ["DJINN_RECOVERY"] = "checkpoint"
        expected = self._results(program, ())
        self._results(program, (moment,))
        without = self.replayed
        results = self._results(program, (moment,), checkpoint_at=(2, moment - 1))
        assert_equal(self, results, expected)
        return self.replayed, without

    def _check(self, program, *moments):
        expected = self._results(program, ())
        for moment in moments:
            with self.subTest(program=program.__name__, killed_at=moment):
                assert_equal(self, self._results(program, (moment,)), expected)

    def test_decoding_goes_on(self):
        self._check(decode_sampled, 1, 13)

    def test_training_goes_on(self):
        self._check(train, 2, 11)

    def test_encoding_goes_on(self):
        self._check(encode, 5, 11)

    def test_decoding_goes_on_from_a_checkpoint(self):
        self._check_checkpoint(decode_sampled, 13)

    def test_training_goes_on_from_a_checkpoint(self):
        replayed, without = self._check_checkpoint(train, 15)
        self.assertLess(replayed, without)

    def test_encoding_goes_on_from_a_checkpoint(self):
        self._check_checkpoint(encode, 11)

    def test_without_checkpoints_the_error_names_the_option(self):
        os.environ["DJINN_RECOVERY"] = "off"
        with djinn.local(worker_threads=1):
            with self.assertRaises(djinn.Error) as raised:
                djinn.checkpoint()
            self.assertEqual(raised.exception.reason, "CHECKPOINTS_OFF")
            self.assertIn("recovery", str(raised.exception))

    def test_without_recovery_the_loss_is_an_error(self):
        os.environ["DJINN_RECOVERY"] = "off"
        with self.assertRaises(djinn.Error) as raised:
            self._results(encode, (5,))
        self.assertEqual(raised.exception.reason, "WORKER_LOST")

    def test_the_device_computes_new_tensors_after_a_lost_worker(self):
        os.environ["DJINN_RECOVERY"] = "off"
        double = djinn.compile(lambda x: x * 2 + 1)
        with djinn.local(workers=2, worker_threads=1) as cluster:
            device = djinn.device()
            torch.manual_seed(5)
            drawn = torch.rand(3, device=device).cpu()
            x = torch.ones(3, device=device)
            for _ in range(4):
                self.assertEqual(double(x).tolist(), [3, 3, 3])
            name = djinn.where_is(0).worker_id
            os.kill(cluster.worker_pids[int(name.rpartition("-")[2])], signal.SIGKILL)
            self._assert_lost(lambda: (x + 1).cpu())
            # Work goes on with new tensors.
            y = torch.arange(3.0, device=device)
            for _ in range(4):
                self.assertEqual(double(y).tolist(), [1, 3, 5])
            self.assertNotEqual(djinn.where_is(0).worker_id, name)
            for old in (lambda: x.cpu(), lambda: double(x), lambda: (y + x).cpu(),
                        lambda: y.add_(x), lambda: x.copy_(torch.zeros(3))):
                self._assert_lost(old)
            self.assertEqual(y.tolist(), [0, 1, 2])
            # The generator begins with the seed that the program set last.
            self.assertEqual(torch.rand(3, device=device).tolist(), drawn.tolist())
            djinn.close()

    def _assert_lost(self, call):
        with self.assertRaises(djinn.Error) as raised:
            call()
        self.assertEqual(raised.exception.reason, "WORKER_LOST")

    def test_an_unknown_recovery_is_refused(self):
        with djinn.local(worker_threads=1) as cluster:
            djinn.close()
            with self.assertRaises(djinn.Error) as raised:
                djinn.connect(
                    cluster.coordinator, token_file=cluster.token_file, recovery="perhaps"
                )
            self.assertEqual(raised.exception.reason, "BAD_RECOVERY")
            self.assertIn("perhaps", str(raised.exception))
