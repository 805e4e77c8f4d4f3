"""Bits that follow from requires_grad, from strides, or from a question for the CPU.

PyTorch's composites and derivatives choose what they compute by these three. Each test varies them
over one kind of operator and wants the CPU's bits and strides. `tests/operator_database/
choices_test.py` does so for the operators of PyTorch's database.
"""

import copy
import itertools

import torch
import torch.nn.functional as F

from tests.python.remote_case import RemoteCase

_MODES = {
    "enable_grad": torch.enable_grad,
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
}


def _rows():
    """Operands (..., 64) of products, by the name of their layout."""
    torch.manual_seed(0)
    h = torch.randn(2, 3, 64)
    ones = torch.randn(2, 64, 1).transpose(1, 2)
    return {
        "dense": h,
        "last row": h[:, -1:],
        "every second row": torch.randn(2, 5, 64)[:, ::2],
        "rows swapped": torch.randn(3, 2, 64).transpose(0, 1),
        "a size of one": ones,
        "two sizes of one": torch.randn(64, 1, 1).permute(1, 2, 0),
        "one batch, rows apart": torch.randn(1, 4, 64)[:, ::2],
        "columns apart": torch.randn(2, 3, 128)[..., ::2],
        "repeated": torch.randn(3, 64).expand(2, 3, 64),
        "four dimensions": torch.randn(2, 2, 3, 64).transpose(1, 2),
        "matrix": torch.randn(3, 64),
        "empty": torch.randn(2, 0, 64),
    }


class _Choices(RemoteCase):
    def vary(self, function, operands, requires=None):
        """Compares `function` of the operands, each of which requires a gradient or does not.

        `requires` lists tuples that say which floating operands require a gradient; None
        stands for all combinations.
        """
        floating = [i for i, t in enumerate(operands) if t is not None and t.is_floating_point()]
        choices = requires or list(itertools.product((False, True), repeat=len(floating)))
        for mode, choice in itertools.product(_MODES, choices):
            found = []
            for device in ("cpu", self.device):
                copies = [None if t is None else self.place(t, device) for t in operands]
                for i, wanted in zip(floating, choice):
                    copies[i].requires_grad_(wanted)
                with _MODES[mode]():
                    result = function(*copies)
                results = [result] if isinstance(result, torch.Tensor) else list(result)
                differentiable = [r for r in results if r.requires_grad and r.grad_fn is not None]
                leaves = [copies[i] for i in floating if copies[i].requires_grad]
                if mode == "enable_grad" and differentiable and leaves:
                    results += [
                        g for g in torch.autograd.grad(
                            differentiable, leaves, [torch.cos(r.detach()) for r in differentiable],
                            allow_unused=True)
                        if g is not None
                    ]
                found.append(results)
            with self.subTest(mode=mode, requires_grad=choice):
                self.assertEqual(len(found[0]), len(found[1]))
                for local, remote in zip(*found):
                    self.assert_same(remote.detach(), local.detach())

    @staticmethod
    def place(tensor, device):
        """A leaf of the same sizes and strides."""
        whole = torch.as_strided(
            tensor, (tensor.untyped_storage().nbytes() // tensor.element_size(),), (1,), 0)
        return whole.clone().to(device).as_strided(
            tensor.size(), tensor.stride(), tensor.storage_offset()).detach()


class ProductsTest(_Choices):
    def test_linear(self):
        weight, bias = torch.randn(10, 64), torch.randn(10)
        for layout, x in _rows().items():
            with self.subTest(layout=layout):
                self.vary(F.linear, [x, weight, bias])
                self.vary(F.linear, [x, weight])

    def test_matmul(self):
        weight = torch.randn(64, 10)
        for layout, x in _rows().items():
            with self.subTest(layout=layout):
                self.vary(torch.matmul, [x, weight])
                self.vary(torch.matmul, [x, weight.t().contiguous().t()])
                self.vary(torch.matmul, [x, torch.randn(64)])
                self.vary(lambda a, b: torch.matmul(a, b.mT), [torch.randn(10, 64), x])
                self.vary(lambda a, b: torch.matmul(a, b.mT), [torch.randn(64), x])

    def test_other_products(self):
        for layout, x in _rows().items():
            with self.subTest(layout=layout):
                if x.dim() == 3:
                    self.vary(lambda a, b: torch.einsum("bik,ok->bio", a, b),
                              [x, torch.randn(10, 64)])
                self.vary(lambda a, b: torch.tensordot(a, b, dims=1), [x, torch.randn(64, 10)])
                self.vary(torch.inner, [x, torch.randn(10, 64)])

    def test_a_projection_of_a_decoder(self):
        layer = torch.nn.Linear(64, 36, bias=False)
        remote = copy.deepcopy(layer).to(self.device)
        for layout, x in _rows().items():
            for mode in _MODES:
                with self.subTest(layout=layout, mode=mode), _MODES[mode]():
                    self.assert_same(remote(self.place(x, self.device)).detach(),
                                     layer(x).detach())


    def test_a_copy_made_in_inference_mode(self):
        """Its transposed weight requires no gradient, so the CPU has other bits than for the original."""
        layer = torch.nn.Linear(64, 36, bias=False)
        for layout, x in _rows().items():
            with self.subTest(layout=layout), torch.inference_mode():
                local, remote = copy.deepcopy(layer), copy.deepcopy(layer).to(self.device)
                self.assert_same(remote(self.place(x, self.device)), local(x))


class RecurrentTest(_Choices):
    def test_networks(self):
        kinds = {
            "gru": (torch.nn.GRU, {}),
            "tanh": (torch.nn.RNN, {"nonlinearity": "tanh"}),
            "relu": (torch.nn.RNN, {"nonlinearity": "relu"}),
            "projected lstm": (torch.nn.LSTM, {"proj_size": 3}),
            "lstm": (torch.nn.LSTM, {}),
        }
        for kind, (make, options) in kinds.items():
            for first, both, bias in itertools.product((False, True), repeat=3):
                torch.manual_seed(0)
                net = make(32, 8, 2, batch_first=first, bidirectional=both, bias=bias, **options)
                for frozen, mode in itertools.product((False, True), _MODES):
                    if kind == "lstm" and mode == "enable_grad":
                        continue  # oneDNN trains it on the CPU: see Limits
                    with self.subTest(kind=kind, batch_first=first, bidirectional=both, bias=bias,
                                      frozen=frozen, mode=mode):
                        self._compare(net.requires_grad_(not frozen), _MODES[mode])

    def _compare(self, local, mode):
        remote = copy.deepcopy(local).to(self.device)
        for x in (torch.randn(2, 7, 32), torch.randn(1, 7, 32), torch.randn(7, 1, 32),
                  torch.randn(2, 32, 5).transpose(1, 2)):
            with mode():
                expected, found = local(x), remote(self.place(x, self.device))
            self.assert_same(found[0].detach(), expected[0].detach())
            if not expected[0].requires_grad:
                continue
            local.zero_grad()
            remote.zero_grad()
            expected[0].square().sum().backward()
            found[0].square().sum().backward()
            for one, other in zip(remote.parameters(), local.parameters()):
                self.assert_same(one.grad, other.grad)

    def test_cells(self):
        for make in (torch.nn.GRUCell, torch.nn.LSTMCell, torch.nn.RNNCell):
            for bias, mode in itertools.product((False, True), _MODES):
                torch.manual_seed(0)
                local = make(32, 8, bias=bias)
                remote = copy.deepcopy(local).to(self.device)
                x = torch.randn(3, 32)
                with self.subTest(cell=make.__name__, bias=bias, mode=mode), _MODES[mode]():
                    expected, found = local(x), remote(x.to(self.device))
                    expected, found = (
                        v[0] if isinstance(v, tuple) else v for v in (expected, found))
                    self.assert_same(found.detach(), expected.detach())


class DerivativesTest(_Choices):
    """Formulas of autograd over images whose channels come last, or have sizes of one."""

    def images(self):
        torch.manual_seed(0)
        last = torch.channels_last
        yield torch.randn(2, 8, 4, 4)
        yield torch.randn(2, 8, 4, 4).to(memory_format=last)
        yield torch.randn(2, 8, 1, 4).to(memory_format=last)
        yield torch.randn(1, 8, 4, 4).to(memory_format=last)
        yield torch.randn(2, 8, 4, 4).as_strided((2, 8, 4, 4), (128, 16, 1, 4))

    def vary_images(self, function, *parameters, requires=None):
        for image in self.images():
            with self.subTest(sizes=tuple(image.shape), strides=image.stride()):
                self.vary(function, [image, *parameters], requires)

    def test_group_norm(self):
        # PyTorch crashes on the CPU for parameters alone, over channels-last images.
        for image in self.images():
            with self.subTest(sizes=tuple(image.shape), strides=image.stride()):
                self.vary(lambda x: F.group_norm(x, 4), [image])
                # The CPU has no gradient of a bias without a weight.
                self.vary(lambda x, b: F.group_norm(x, 4, None, b), [image, torch.randn(8)],
                          [(False, False), (True, False)])
                self.vary(lambda x, w, b: F.group_norm(x, 4, w, b),
                          [image, torch.randn(8), torch.randn(8)],
                          [(False,) * 3, (True, False, False), (True, True, False), (True,) * 3])

    def test_gradients_of_parameters_alone(self):
        image = torch.randn(2, 8, 4, 4).to(memory_format=torch.channels_last)
        gradients = []
        for device, wants_image in (("cpu", True), (self.device, False)):
            x = image.to(device).detach().requires_grad_(wants_image)
            w = torch.ones(8, device=device, requires_grad=True)
            y = F.group_norm(x, 4, w).square().sum()
            gradients.append(torch.autograd.grad(y, (w, x) if wants_image else w)[0])
        self.assert_same(gradients[1], gradients[0])

    def test_group_norm_twice(self):
        def twice(device, x, w):
            x, w = (t.to(device).requires_grad_() for t in (x, w))
            y = F.group_norm(x, 4, w).square().sum()
            (g,) = torch.autograd.grad(y, x, create_graph=True)
            return [g.detach(), *torch.autograd.grad(g.sin().sum(), (x, w))]

        image, weight = torch.randn(2, 8, 4, 4).to(memory_format=torch.channels_last), torch.randn(8)
        for local, remote in zip(twice("cpu", image, weight), twice(self.device, image, weight)):
            torch.testing.assert_close(remote.cpu(), local)

    def test_group_norm_after_a_function_transform(self):
        torch.vmap(lambda x: x * 2)(torch.ones(2, 2, device=self.device))
        self.test_group_norm()

    def test_group_norm_with_function_transforms(self):
        image = torch.randn(2, 8, 4, 4).to(memory_format=torch.channels_last)

        def loss(x):
            return F.group_norm(x, 4).square().sum()

        torch.testing.assert_close(torch.func.grad(loss)(image.to(self.device)).cpu(),
                                   torch.func.grad(loss)(image))
        # PyTorch's tangent of group_norm views its operands, which channels-last ones refuse.
        image, direction = image.contiguous(), torch.randn(2, 8, 4, 4)
        found = torch.func.jvp(loss, (image.to(self.device),), (direction.to(self.device),))
        expected = torch.func.jvp(loss, (image,), (direction,))
        torch.testing.assert_close(found[1].cpu(), expected[1])

    def test_other_norms(self):
        self.vary_images(lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True),
                         torch.randn(8), torch.randn(8))
        self.vary_images(F.instance_norm)
        self.vary_images(lambda x: F.layer_norm(x, x.shape[-2:]))
        self.vary_images(lambda x: F.rms_norm(x, x.shape[-1:]))
        self.vary_images(lambda x: F.local_response_norm(x, 2))

    def test_padding(self):
        for mode in ("constant", "reflect", "replicate", "circular"):
            for sizes in ((1, 1), (1, 0, 0, 1), (2, 1, 0, 0)):
                if mode != "constant" and len(sizes) == 2:
                    continue
                with self.subTest(padding=mode, sizes=sizes):
                    for image in self.images():
                        if image.shape[2] == 1 and mode in ("reflect", "circular"):
                            continue  # too small
                        self.vary(lambda x, m=mode, s=sizes: F.pad(x, s, m), [image])

    def test_convolution_and_pooling(self):
        # In the gradient of a 1 x 1 kernel, the strides of sizes of one depend on the worker's threads.
        self.vary_images(F.conv2d, torch.randn(4, 8, 1, 3), torch.randn(4),
                         requires=[(False,) * 3, (True,) * 3, (False, True, True),
                                   (False, True, False), (True, False, False)])
        # With the bias's gradient alone, oneDNN computes the weight's, too.
        self.vary_images(F.conv2d, torch.randn(4, 8, 1, 3), torch.randn(4),
                         requires=[(False, False, True), (True, False, True)])
        self.vary_images(lambda x, w, b: F.conv_transpose2d(x, w, b, padding=1),
                         torch.randn(8, 4, 3, 3), torch.randn(4), requires=[(False, False, True)])
        self.vary_images(lambda x, w: F.conv2d(x, w, padding=1), torch.randn(4, 8, 3, 3))
        self.vary_images(lambda x: F.avg_pool2d(x, (1, 2)))
        self.vary_images(lambda x: F.max_pool2d(x, (1, 2)))
        self.vary_images(lambda x: F.adaptive_avg_pool2d(x, 1))
        self.vary_images(lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"))
        self.vary_images(lambda x: F.interpolate(x, scale_factor=2.0))
        self.vary_images(lambda x: F.pixel_unshuffle(x[..., :1, :].expand(-1, -1, 2, -1), 2))


class AttentionTest(_Choices):
    def test_masks_and_layouts(self):
        torch.manual_seed(0)
        split = torch.randn(2, 5, 2, 8).transpose(1, 2)
        dense = torch.randn(2, 2, 5, 8)
        mask = torch.randn(5, 5)
        all_of_three = [(False,) * 3, (True,) * 3]
        for q in (split, dense, split[:, :, -1:]):
            self.vary(F.scaled_dot_product_attention, [q, split, split], all_of_three)
            self.vary(lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
                      [q, split, split], all_of_three)
        self.vary(F.scaled_dot_product_attention, [dense, split, split, mask],
                  [(False,) * 4, (True,) * 3 + (False,), (False,) * 3 + (True,)])


class ThreadsTest(_Choices):
    """Two threads share a product by its columns, so joined projections have other bits."""

    threads = 2

    def test_native_attention(self):
        for embedding, heads in ((16, 2), (48, 4)):
            torch.manual_seed(0)
            local = torch.nn.MultiheadAttention(embedding, heads, batch_first=True).eval()
            remote = copy.deepcopy(local).to(self.device)
            x, y = torch.randn(2, 5, embedding), torch.randn(2, 5, embedding)
            a, b = x.to(self.device), y.to(self.device)
            for mode in ("no_grad", "inference_mode"):
                with self.subTest(embedding=embedding, mode=mode), _MODES[mode]():
                    self.assert_same(remote(a, a, a)[0], local(x, x, x)[0])
                    self.assert_same(remote(a, b, b)[0], local(x, y, y)[0])
