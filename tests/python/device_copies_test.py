"""Copies between virtual devices, from worker to worker."""

import os
import signal
import unittest

import torch

import djinn
from tests.python.remote_case import RemoteCase


def moved(before):
    """Returns the changes of the counters that changed since `before`."""
    now = djinn.statistics()
    return {name: now[name] - before[name] for name in now if now[name] != before[name]}


class DeviceCopiesTest(RemoteCase):
    workers = 2
    here, there = djinn.device(0), djinn.device(1)

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        assert djinn.where_is(0).worker_id != djinn.where_is(1).worker_id

    def test_bytes_do_not_cross_the_client(self):
        value = torch.randn(1024, 1000)
        source = value.to(self.here)
        djinn.synchronize(0)
        before = djinn.statistics()
        copy = source.to(self.there)
        djinn.synchronize(1)
        change = moved(before)
        self.assertEqual(change["device_copies"], 1)
        self.assertNotIn("reads", change)
        self.assertLess(change["bytes_up"] + change["bytes_down"], 1000)
        self.assertTrue(torch.equal(copy.cpu(), value))

    def test_the_copy_is_what_the_source_was(self):
        value = torch.arange(100_000.0)
        source = value.to(self.here)
        copies = []
        for _ in range(5):
            copies.append(source.to(self.there))
            source.add_(1)
        del source
        for i, copy in enumerate(copies):
            self.assertTrue(torch.equal(copy.cpu(), value + i))

    def test_a_tensor_copied_back_and_forth_keeps_its_bytes(self):
        value = torch.randn(300, 300)
        x = value.to(self.here)
        for _ in range(10):
            x = x.to(self.there).t().to(self.here)
        self.assertTrue(torch.equal(x.cpu(), value))
        # Each side writes, and the other side does not see it.
        y = x.to(self.there)
        y.mul_(2)
        x.zero_()
        self.assertTrue(torch.equal(y.cpu(), value * 2))
        self.assertEqual(x.count_nonzero().item(), 0)

    def test_shapes_and_types(self):
        base = torch.randn(6, 8)
        for source in (
            base,
            base.t(),
            base[1:5, ::3],
            base[2, 3],
            base.to(torch.bool),
            base.to(torch.complex64).conj(),
            base[0].expand(5, 8),
            base[:0],
        ):
            remote = source.to(self.here)
            for view in (remote, remote.detach().clone()):
                for dtype in (source.dtype, torch.complex128):
                    copy = view.to(self.there, dtype, non_blocking=True)
                    self.assertEqual(copy.device, self.there)
                    self.assertTrue(torch.equal(copy.cpu(), source.to(dtype)))
            into = torch.zeros(3, *source.shape, dtype=torch.complex64, device=self.there)
            into[1].copy_(remote)
            into[2] = remote
            expected = torch.zeros(3, *source.shape, dtype=torch.complex64)
            expected[1:] = source
            self.assertTrue(torch.equal(into.cpu(), expected))
        never_written = torch.empty(7, device=self.here).to(self.there)
        self.assertEqual(never_written.cpu().shape, (7,))
        row = base[0].to(self.here)
        into = torch.zeros(4, 8, device=self.there)
        into.copy_(row)  # grows on the way, after it
        self.assertTrue(torch.equal(into.cpu(), base[:1].expand(4, 8)))

    def test_a_root_error_comes_along(self):
        bad = torch.ones(3, device=self.here)[torch.tensor([7]).to(self.here)]
        copy = bad.to(self.there)
        with self.assertRaises(djinn.Error) as there:
            copy.cpu()
        with self.assertRaises(djinn.Error) as here:
            bad.cpu()
        self.assertEqual(there.exception.error_id, here.exception.error_id)
        self.assertIn("index", str(there.exception))
        # The other device continues.
        self.assertEqual(torch.ones(2, device=self.there).sum().item(), 2)

    def test_many_in_flight(self):
        values = [torch.full((1000,), float(i)) for i in range(300)]
        sources = [value.to(self.here) for value in values]
        copies = [source.to(self.there) for source in sources]
        sources.clear()
        back = [copy.to(self.here) for copy in copies]
        for value, copy in zip(values, back):
            self.assertTrue(torch.equal(copy.cpu(), value))


class OneWorkerTest(unittest.TestCase):
    def test_devices_of_one_worker_share_the_bytes(self):
        with djinn.local(workers=1, worker_threads=1):
            here, there = djinn.device(0), djinn.device(1)
            self.assertEqual(djinn.where_is(0).worker_id, djinn.where_is(1).worker_id)
            value = torch.randn(500, 500)
            source = value.to(here)
            copy = source.to(there)
            source.zero_()
            copy.add_(1)
            self.assertTrue(torch.equal(copy.cpu(), value + 1))
            self.assertEqual(source.count_nonzero().item(), 0)
            self.assertEqual(djinn.statistics()["device_copies"], 1)


class LostWorkerTest(unittest.TestCase):
    def copy_from_killed_worker(self, cluster):
        """Returns the source, its copy, and a value that was on the other device before."""
        here, there = djinn.device(0), djinn.device(1)
        value = torch.ones(1000)
        source = value.to(here)
        there_already = value.to(there)
        djinn.synchronize(0)
        djinn.synchronize(1)
        # The worker is suspended, so that it accepts this offer but does
        # not answer the other worker.
        self.name = djinn.where_is(0).worker_id
        victim = cluster.worker_pids[int(self.name.rpartition("-")[2])]
        os.kill(victim, signal.SIGSTOP)
        copy = source.to(there)
        os.kill(victim, signal.SIGKILL)
        return source, copy, there_already

    def test_copies_survive_the_death_of_their_source(self):
        with djinn.local(workers=2, worker_threads=1) as cluster:
            source, copy, there_already = self.copy_from_killed_worker(cluster)
            for tensor in (copy, there_already, source, source.to(djinn.device(1))):
                self.assertEqual(tensor.sum().item(), 1000)
            self.assertGreaterEqual(djinn.statistics()["recoveries"], 1)

    def test_without_recovery_a_killed_source_is_a_typed_error(self):
        with djinn.local(workers=2, worker_threads=1) as cluster:
            djinn.close()
            djinn.connect(cluster.coordinator, token_file=cluster.token_file, recovery="off")
            source, copy, there_already = self.copy_from_killed_worker(cluster)
            with self.assertRaises(djinn.Error) as raised:
                copy.cpu()
            self.assertEqual(raised.exception.reason, "PULL_FAILED")
            self.assertIn(self.name, str(raised.exception))
            self.assertIn(djinn.where_is(1).worker_id, str(raised.exception))
            self.assertEqual(there_already.sum().item(), 1000)
            with self.assertRaises(djinn.Error) as lost:
                source.cpu()
            self.assertEqual(lost.exception.reason, "WORKER_LOST")
            # Errors of calls since the last read are reported by close().
            with self.assertRaises(djinn.Error):
                djinn.close()


class StrictTest(unittest.TestCase):
    TWO = "Expected all tensors to be on the same device, but found at least two devices, "

    def connect(self, cluster, **options):
        djinn.connect(cluster.coordinator, token_file=cluster.token_file, **options)
        return torch.ones(2, 2, device=djinn.device(0)), torch.ones(2, 2, device=djinn.device(1))

    def test_copies_raise_what_pytorch_says(self):
        name = str(djinn.device())[: -len(":0")]
        with djinn.local(workers=2, worker_threads=1) as cluster:
            djinn.close()
            for strict, behind in ((True, ""), ("Ask ops first.", " Ask ops first.")):
                x, y = self.connect(cluster, strict_devices=strict)
                for call, text in (
                    (lambda: x.to(djinn.device(1)), f"{self.TWO}{name}:0 and {name}:1!"),
                    (lambda: x.copy_(y), f"{self.TWO}{name}:1 and {name}:0!"),
                    (lambda: x + y, f"{self.TWO}{name}:0 and {name}:1!"),
                    (
                        lambda: torch.mm(x, torch.ones(2, 2)),
                        "Expected all tensors to be on the same device, but got mat2 is on cpu, "
                        f"different from other tensors on {name}:0 (when checking argument in "
                        f"method wrapper_{name}_mm)",
                    ),
                ):
                    with self.subTest(text=text), self.assertRaises(RuntimeError) as raised:
                        call()
                    self.assertEqual(str(raised.exception), text + behind)
                # Copies to and from the CPU do not mix devices.
                self.assertEqual(x.cpu().to(djinn.device(1)).sum().item(), 4)
                djinn.close()
            x, y = self.connect(cluster, strict_devices=False)
            self.assertEqual((x.to(djinn.device(1)) + y).sum().item(), 8)
