"""Derivatives in forward mode, compared with the CPU's."""

import torch
import torch.autograd.forward_ad as forward
import torch.nn.functional as F

from tests.python.remote_case import RemoteCase


def _tensor(*sizes, seed=0):
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed))


class ForwardModeTest(RemoteCase):
    def assert_tangents_close(self, function, *inputs):
        """Those of a function of its first argument; the others are constants."""
        tangent = _tensor(*inputs[0].shape, seed=9)
        found = []
        for device in ("cpu", self.device):
            x, *others = (tensor.to(device) for tensor in inputs)
            with forward.dual_level():
                dual = forward.make_dual(x, tangent.to(device))
                unpacked = forward.unpack_dual(function(dual, *others))
            self.assertIsNotNone(unpacked.tangent, device)
            found.append([part.cpu() for part in unpacked])
            _, by_transform = torch.func.jvp(
                lambda y: function(y, *others), (x,), (tangent.to(device),)
            )
            found[-1].append(by_transform.cpu())
        torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-5)
        # A lost tangent would fail the test.
        self.assertGreater(found[0][1].abs().max().item(), 0)

    def test_operators_that_are_kept_whole(self):
        x = _tensor(2, 4)
        square = _tensor(4, 4, seed=3)
        positive = square @ square.T + 4 * torch.eye(4)
        images = _tensor(1, 2, 5, 5, seed=4)
        for function, *inputs in (
            (F.linear, x, _tensor(3, 4, seed=1), _tensor(3, seed=2)),
            (torch.matmul, x, _tensor(4, 3, seed=1)),
            (torch.mm, x, _tensor(4, 3, seed=1)),
            (lambda a, b: torch.einsum("ij,jk->ik", a, b), x, _tensor(4, 3, seed=1)),
            (F.conv2d, images, _tensor(3, 2, 3, 3, seed=1)),
            (lambda a: F.softmax(a, 1), x),
            (lambda a: F.log_softmax(a, 1), x),
            (lambda a: F.layer_norm(a, (4,)), x),
            (lambda a: F.group_norm(a, 1), images),
            (lambda a: F.instance_norm(a), images),
            (lambda a: F.rms_norm(a, (4,)), x),
            (lambda a: F.cross_entropy(a, torch.tensor([1, 3]).to(a.device)), x),
            (torch.linalg.cholesky, positive),
            (lambda a: F.dropout(a, 0.5, training=False), x),
        ):
            with self.subTest(function=getattr(function, "__name__", "lambda"), n=len(inputs)):
                self.assert_tangents_close(function, *inputs)
                with torch.no_grad():
                    self.assert_tangents_close(function, *inputs)

    def test_operators_whose_formulas_make_zeros(self):
        square = _tensor(3, 3) + 3 * torch.eye(3)
        for function in (
            torch.linalg.inv,
            torch.linalg.svdvals,
            torch.matrix_exp,
            torch.diag,
            lambda a: torch.linalg.eigvalsh(a + a.mT),
            lambda a: torch.fft.rfft(a).abs(),
        ):
            with self.subTest(function=getattr(function, "__name__", "lambda")):
                self.assert_tangents_close(function, square)

    def test_recurrent_networks(self):
        # The CPU has no formula for LSTM.
        for kind in (torch.nn.GRU, torch.nn.RNN):
            torch.manual_seed(1)
            network = kind(4, 3, batch_first=True)
            names = [name for name, _ in network.named_parameters()]

            def function(a, *values, network=network, names=names):
                parameters = dict(zip(names, values))
                return torch.func.functional_call(network, parameters, (a,))[0]

            values = [value.detach() for value in network.parameters()]
            with self.subTest(kind=kind.__name__):
                self.assert_tangents_close(function, _tensor(2, 3, 4), *values)

    def test_whole_jacobians(self):
        weight = _tensor(3, 4, seed=1)
        x = _tensor(4)
        remote = weight.to(self.device)
        torch.testing.assert_close(
            torch.func.jacfwd(lambda y: F.linear(y, remote))(x.to(self.device)).cpu(),
            torch.func.jacfwd(lambda y: F.linear(y, weight))(x),
        )
        torch.testing.assert_close(
            torch.func.hessian(lambda y: F.linear(y, remote).square().sum())(
                x.to(self.device)
            ).cpu(),
            torch.func.hessian(lambda y: F.linear(y, weight).square().sum())(x),
        )
