"""Tests the ways to read from the device: printing, scalars, lists, copies."""

import warnings

import numpy
import torch

import djinn
from tests.python.remote_case import RemoteCase


class ReadingTest(RemoteCase):
    def test_printing(self):
        for local in (
            torch.arange(6.0).view(2, 3) / 7,
            torch.tensor([1e-8, 1e8]),
            torch.tensor([True, False]),
            torch.randn(50, 50),
            torch.tensor(3),
            torch.zeros(0, 3),
            torch.tensor([float("nan"), float("inf")]),
            torch.randn(3, dtype=torch.complex64),
        ):
            text = repr(local.to(self.device))
            self.assertIn("device='remote_accelerator:0'", text)
            # Line breaks may differ because of the device's name.
            stripped = text.replace("device='remote_accelerator:0'", "")
            squeeze = lambda s: "".join(s.split()).replace(",)", ")").replace(",,", ",")
            self.assertEqual(squeeze(stripped), squeeze(repr(local)))

    def test_format(self):
        x = torch.tensor(2.5, device=self.device)
        self.assertEqual(f"{x:.2f}", "2.50")
        self.assertEqual(str(torch.Size(x.shape)), "torch.Size([])")

    def test_a_read_without_waiting_needs_a_strided_tensor(self):
        x = torch.eye(3, device=self.device)
        nested = torch.nested.nested_tensor([x[0], x[1, :2]], layout=torch.jagged)
        for tensor in (x.to_sparse(), x.to_sparse_csr(), nested):
            with self.assertRaisesRegex(djinn.Error, "strided tensor") as raised:
                djinn.read_async(tensor)
            self.assertEqual(raised.exception.reason, "NOT_STRIDED")

    def test_scalars(self):
        x = torch.tensor([1.5, -2.0], device=self.device)
        self.assertEqual(x[0].item(), 1.5)
        self.assertEqual(x.tolist(), [1.5, -2.0])
        self.assertEqual(int(x[1]), -2)
        self.assertEqual(float(x[1]), -2.0)
        self.assertTrue(bool(x[0] > 1))
        self.assertEqual([10, 20, 30][torch.tensor(2, device=self.device)], 30)
        self.assertTrue(torch.equal(x, x.clone()))
        self.assertTrue(torch.allclose(x, x + 1e-9))
        self.assertIn(1.5, x)

    def test_numpy_needs_a_copy(self):
        x = torch.ones(3, device=self.device)
        with self.assertRaisesRegex(TypeError, "can't convert .* device type tensor to numpy"):
            x.numpy()
        with self.assertRaises(TypeError):
            numpy.asarray(x)
        numpy.testing.assert_array_equal(x.cpu().numpy(), numpy.ones(3))

    def test_from_numpy_and_tensors(self):
        self.assert_same(
            torch.as_tensor(numpy.arange(3), device=self.device), torch.arange(3)
        )
        self.assert_same(torch.tensor([[1, 2]], device=self.device), torch.tensor([[1, 2]]))
        self.assert_same(
            torch.tensor([torch.tensor(1, device=self.device), 2], device=self.device),
            torch.tensor([1, 2]),
        )

    def test_non_blocking_copies(self):
        source = torch.arange(1000.0)
        remote = source.to(self.device, non_blocking=True)
        source.zero_()
        self.assertEqual(remote[999].item(), 999)
        local = remote.to("cpu", non_blocking=True)
        torch.accelerator.synchronize()
        self.assertEqual(local[999].item(), 999)
        target = torch.empty(1000)
        target.copy_(remote, non_blocking=True)
        torch.accelerator.synchronize()
        self.assertEqual(target[999].item(), 999)

    def test_copies_convert_and_respect_views(self):
        source = torch.arange(12.0).view(3, 4).t()
        remote = source.to(self.device)
        self.assert_same(remote, source)
        self.assert_same(remote.to(torch.float64), source.to(torch.float64))
        self.assert_same(remote.to("cpu", torch.int32).to(self.device), source.int())
        remote[1:3].copy_(torch.ones(2, 3))
        source[1:3].copy_(torch.ones(2, 3))
        self.assert_same(remote, source)

    def test_pinned_memory(self):
        pinned = torch.ones(4).pin_memory()
        self.assertEqual(pinned.to(self.device, non_blocking=True).sum().item(), 4)
        self.assertEqual(torch.empty(2, pin_memory=True).shape, (2,))
        self.assertFalse(torch.ones(1, device=self.device).is_pinned())

    def test_iteration(self):
        rows = [row.sum().item() for row in torch.ones(3, 2, device=self.device)]
        self.assertEqual(rows, [2, 2, 2])
        a, b = torch.tensor([1, 2], device=self.device)
        self.assertEqual((a + b).item(), 3)

    def test_no_warning_is_raised(self):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            model = torch.nn.Linear(3, 3).to(self.device)
            model(torch.ones(2, 3, device=self.device)).sum().backward()
            print(model.weight.grad.sum().item())


class NeverReadTest(RemoteCase):
    def test_a_tensor_never_read_costs_nothing(self):
        before = djinn.statistics()["reads"]
        x = torch.randn(10**10, device=self.device)
        self.assertEqual(x.shape, (10**10,))
        del x
        self.assertEqual(djinn.statistics()["reads"], before)
        self.assertEqual(torch.ones(2, device=self.device).sum().item(), 2)
        # The worker had no room for it, and no read has reported that.
        with self.assertRaises(djinn.OutOfMemoryError):
            djinn.close()
