"""Derivatives in forward mode, compared with the CPU's."""

import torch
import torch.autograd.forward_ad as forward
import torch.nn.functional as F

from tests.python.remote_case import RemoteCase, WORKER_DEVICE


def _tensor(*sizes, seed=0):
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(seed))


class ForwardModeTest(RemoteCase):
    def assert_same_tangents(self, function, *inputs):
        """Compares tangents by the first argument; the others are constants."""
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
        for remote, local in zip(found[1], found[0], strict=True):
            self.assert_same_bits(remote, local)
        # A lost tangent would fail the test.
        self.assertGreater(found[0][1].abs().max().item(), 0)

    def assert_same_bits(self, remote, local):
        """Signs of zeros included. A GPU sums in another order."""
        self.assertEqual((remote.dtype, remote.shape), (local.dtype, local.shape))
        if WORKER_DEVICE == "cpu":
            torch.testing.assert_close(remote, local, rtol=0, atol=0, equal_nan=True)
            parts = [torch.view_as_real(t) if t.is_complex() else t for t in (remote, local)]
            self.assertTrue(torch.equal(parts[0].signbit(), parts[1].signbit()))
        else:
            torch.testing.assert_close(remote, local, rtol=1e-4, atol=1e-5, equal_nan=True)

    def test_zeros_are_left_out_of_products(self):
        inf, nan = float("inf"), float("nan")
        values = torch.tensor([inf, -inf, nan, 0.0, -0.0, 2.0, -3.0])
        other = torch.tensor([1.0, -2.0, 3.0, -4.0, 5.0, -6.0, inf])
        for name, function in {
            "mul": lambda x, c: x * c,
            "mul by a number": lambda x, c: x * 3.0,
            "div": lambda x, c: x / c,
            "div of a constant": lambda x, c: c / x,
            "add": lambda x, c: x + c,
            "sub": lambda x, c: c - x,
            "pow": lambda x, c: x ** 2,
            "dot": lambda x, c: torch.dot(x, c),
            "addcmul": lambda x, c: torch.addcmul(x, c, c),
            "where": lambda x, c: torch.where(c > 0, x, c),
            "cat": lambda x, c: torch.cat([x, c]),
            "stack": lambda x, c: torch.stack([c, x]),
            "lerp": lambda x, c: torch.lerp(x, c, 0.5),
            "matmul": lambda x, c: x.view(1, 7) @ c.view(7, 1),
            "prod": lambda x, c: (x * c).prod(),
            "std": lambda x, c: x.std(),
            "softmax": lambda x, c: torch.softmax(x, 0),
            "norm": lambda x, c: torch.linalg.norm(x),
            "complex": lambda x, c: torch.complex(x, c).abs(),
            "clone": lambda x, c: (c * 1.0).clone() * x,
            "index_put": lambda x, c: c.clone().index_put((torch.tensor([1], device=c.device),),
                                                          x[:1]),
            "cross": lambda x, c: torch.linalg.cross(x[:3], c[:3]),
            "in place": lambda x, c: x.clone().mul_(c).add_(c),
            "half of it": lambda x, c: x[:3] * c[2:5] + x[3:6],
        }.items():
            for inputs in ((values, other), (other, values)):
                with self.subTest(function=name):
                    found = []
                    for device in ("cpu", self.device):
                        x, c = (tensor.to(device) for tensor in inputs)
                        tangent = torch.tensor([0.5, -1.0, 2.0, inf, 0.0, -0.0, nan])
                        out = torch.func.jvp(
                            lambda y: function(y, c), (x,), (tangent.to(device),))
                        with forward.dual_level():
                            dual = forward.make_dual(x, tangent.to(device))
                            out += tuple(forward.unpack_dual(function(dual, c)))
                        found.append([part.cpu() for part in out])
                    for remote, local in zip(found[1], found[0], strict=True):
                        self.assert_same_bits(remote, local)

    def test_symbolic_zeros_behave_as_tensors(self):
        for use in (
            lambda z: z * float("inf"),
            lambda z: z + 1,
            lambda z: z.add(2.0).mul(3.0),
            lambda z: z.clone(),
            lambda z: torch.zeros_like(z),
            lambda z: torch.full_like(z, 7.0),
            lambda z: torch.dot(z[0], torch.full((3,), float("inf"), device=z.device)),
            lambda z: torch.vdot(torch.full((3,), float("nan"), device=z.device), z[0]),
            lambda z: z.T.unsqueeze(0).expand(2, 3, 2) * 2,
            lambda z: z.sum(),
            lambda z: torch.ones(2, 3, device=z.device).copy_(z),
            lambda z: z.view(6).exp(),
            lambda z: torch.stack([z, z]),
            lambda z: z.to(torch.float64),
            lambda z: z @ torch.ones(3, 2, device=z.device),
        ):
            local = use(torch._efficientzerotensor((2, 3)))
            remote = use(torch._efficientzerotensor((2, 3), device=self.device))
            self.assertEqual(remote._is_zerotensor(), local._is_zerotensor())
            self.assertEqual(remote.device.type, self.device.type)
            self.assert_same_bits(remote.cpu(), local)
        zero = torch._efficientzerotensor((2, 3), device=self.device)
        self.assertEqual(zero.tolist(), [[0.0] * 3] * 2)
        with self.assertRaisesRegex(RuntimeError, "ZeroTensors are immutable"):
            zero.add_(1)

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
                self.assert_same_tangents(function, *inputs)
                with torch.no_grad():
                    self.assert_same_tangents(function, *inputs)

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
                self.assert_same_tangents(function, square)

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
                self.assert_same_tangents(function, _tensor(2, 3, 4), *values)

    def test_jacobians_and_hessians_have_the_cpus_bits(self):
        weight = _tensor(3, 4, seed=1)
        x = _tensor(4)
        remote = weight.to(self.device)
        self.assert_same_bits(
            torch.func.jacfwd(lambda y: F.linear(y, remote))(x.to(self.device)).cpu(),
            torch.func.jacfwd(lambda y: F.linear(y, weight))(x),
        )
        self.assert_same_bits(
            torch.func.hessian(lambda y: F.linear(y, remote).square().sum())(
                x.to(self.device)
            ).cpu(),
            torch.func.hessian(lambda y: F.linear(y, weight).square().sum())(x),
        )
