"""Sparse tensors on a remote device: the CPU's bits, layouts and errors."""

import copy
import itertools

import torch
import torch.nn.functional as F

import djinn
from tests.python.remote_case import RemoteCase


def parts_of(tensor):
    """The strided tensors of which a tensor consists, and how it is put together."""
    head = (tensor.layout, tensor.dtype, tuple(tensor.shape))
    if tensor.layout == torch.strided:
        return head, [tensor]
    if tensor.layout == torch.sparse_coo:
        return (*head, tensor.is_coalesced()), [tensor._indices(), tensor._values()]
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return head, [tensor.crow_indices(), tensor.col_indices(), tensor.values()]
    return head, [tensor.ccol_indices(), tensor.row_indices(), tensor.values()]


def describe(value):
    """Everything of a result that a program can see."""
    if isinstance(value, (tuple, list)):
        return [describe(entry) for entry in value]
    if not isinstance(value, torch.Tensor):
        return value
    head, parts = parts_of(value.detach())
    return head, [(part.dtype, tuple(part.shape), str(part.cpu().tolist())) for part in parts]


def coo(*size, seed=0, repeated=False, dtype=torch.float32, dense=()):
    """Returns a sparse tensor; `repeated` gives it unsorted, repeated indices."""
    generator = torch.Generator().manual_seed(seed)
    count = 7
    indices = torch.stack([torch.randint(0, n, (count,), generator=generator) for n in size])
    values = torch.randn(count, *dense, generator=generator).to(dtype)
    sparse = torch.sparse_coo_tensor(indices, values, (*size, *dense))
    return sparse if repeated else sparse.coalesce()


def randn(*size, seed=1):
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed))


_UNARY = (
    "abs", "neg", "sqrt", "sin", "tan", "tanh", "asin", "asinh", "atan", "atanh", "sinh", "ceil",
    "floor", "trunc", "round", "frac", "erf", "erfinv", "expm1", "log1p", "sign", "sgn", "relu",
    "deg2rad", "rad2deg", "isnan", "isinf", "isposinf", "isneginf", "signbit", "isreal",
)


class SparseTest(RemoteCase):
    def outcome(self, call, arguments):
        try:
            return describe(call(*arguments))
        except Exception as error:
            if isinstance(error, NotImplementedError):
                return "NotImplementedError"  # its text names the backend
            if isinstance(error, djinn.Error):
                # The worker says where it found PyTorch's error.
                return "RuntimeError", str(error).partition(" [in ")[0]
            return type(error).__name__, str(error)

    def assert_as_cpu(self, call, *arguments):
        local = [argument.clone() for argument in arguments]
        remote = [argument.to(self.device) for argument in arguments]
        expected = self.outcome(call, local)
        self.assertEqual(self.outcome(call, remote), expected)
        return expected

    def assert_all_as_cpu(self, calls, *arguments):
        for call in calls:
            with self.subTest(line=call.__code__.co_firstlineno):
                expected = self.assert_as_cpu(call, *arguments)
                # A case that the CPU refuses shows nothing.
                self.assertFalse(
                    expected == "NotImplementedError" or
                    isinstance(expected, tuple) and isinstance(expected[0], str), expected)

    def test_sparse_tensors_are_made_on_the_device(self):
        indices, values = torch.tensor([[0, 2, 1, 2], [1, 0, 1, 0]]), randn(4)
        self.assert_all_as_cpu((
            lambda i, v: torch.sparse_coo_tensor(i, v, (3, 4)),
            lambda i, v: torch.sparse_coo_tensor(i, v),
            lambda i, v: torch.sparse_coo_tensor(i, v, (3, 4), check_invariants=True),
            lambda i, v: torch.sparse_coo_tensor(i, v, (3, 4)).coalesce(),
            lambda i, v: torch.sparse_coo_tensor(i[:1], v[:, None].expand(4, 2), (3, 2)),
            lambda i, v: torch.sparse_coo_tensor((3, 4), device=v.device),
            lambda i, v: torch.zeros(3, 4, layout=torch.sparse_coo, device=v.device),
            lambda i, v: torch.zeros(3, 4, layout=torch.sparse_csr, device=v.device),
            lambda i, v: torch.sparse_csr_tensor(
                torch.tensor([0, 1, 1, 3], device=v.device), i[0, :3], v[:3], (3, 4)),
            lambda i, v: torch.sparse_csr_tensor(
                torch.tensor([0, 1, 2, 3], device=v.device), i[0, :3], v[:3], (3, 4),
                check_invariants=True),
            lambda i, v: torch.sparse_csc_tensor(
                torch.tensor([0, 1, 1, 3], device=v.device), i[0, :3], v[:3], (3, 3)),
        ), indices, values)

    def test_moved_and_converted(self):
        for sparse in (
            coo(5, 4), coo(5, 4, repeated=True), coo(3, 4, 5), coo(6, dense=(3,)),
            coo(5, 4, dtype=torch.float64), coo(5, 4, dtype=torch.int64),
            coo(5, 4).to_sparse_csr(), coo(5, 4).to_sparse_csc(),
            coo(6, 4).to_dense().to_sparse_bsr((2, 2)),
            torch.sparse_coo_tensor((3, 4)),
        ):
            with self.subTest(sparse.layout, shape=sparse.shape):
                remote = sparse.to(self.device)
                self.assertEqual(remote.device, self.device)
                self.assertEqual(remote.layout, sparse.layout)
                self.assertEqual(describe(remote), describe(sparse))
                self.assertEqual(describe(remote.cpu()), describe(sparse))
                self.assertEqual(remote.cpu().device.type, "cpu")
                self.assertEqual(describe(remote.to_dense()), describe(sparse.to_dense()))
                self.assertEqual(describe(remote.clone()), describe(sparse.clone()))
                self.assertEqual(describe(remote.double()), describe(sparse.double()))
                self.assertEqual(remote._nnz(), sparse._nnz())
                self.assertIn(str(self.device), str(remote))

    def test_conversions_between_layouts(self):
        dense = coo(6, 4).to_dense()
        self.assert_all_as_cpu((
            lambda d, s: d.to_sparse(),
            lambda d, s: d.to_sparse(1),
            lambda d, s: d.to_sparse_csr(),
            lambda d, s: d.to_sparse_csc(),
            lambda d, s: d.to_sparse_bsr((2, 2)),
            lambda d, s: d.to_sparse_csr().to_dense(),
            lambda d, s: d.to_sparse_bsr((3, 2)).to_dense(),
            lambda d, s: s.to_sparse_csr(),
            lambda d, s: s.to_sparse_csc(),
            lambda d, s: s.to_sparse_csr().to_sparse_coo(),
            lambda d, s: s.to_sparse_csr().to_sparse_csc(),
            lambda d, s: torch.stack([d, d]).to_sparse_csr().to_dense(),
            lambda d, s: d.sparse_mask(s),
            lambda d, s: d.sparse_mask(s.to_sparse_csr()),
            lambda d, s: s.sparse_mask((2 * s).coalesce()),
        ), dense, coo(6, 4, seed=3))

    def test_parts_and_coalescing(self):
        for sparse in (coo(3, 2, repeated=True), coo(4, repeated=True, dense=(2,)),
                       coo(2, 2, 2, repeated=True), coo(3, 2)):
            self.assert_all_as_cpu((
                lambda s: s.coalesce(),
                lambda s: s.coalesce().indices(),
                lambda s: s.coalesce().values(),
                lambda s: s._indices(),
                lambda s: s._values(),
                lambda s: (s.sparse_dim(), s.dense_dim(), s._nnz(), s.is_coalesced()),
                lambda s: s.to_dense(),
            ), sparse)

    def test_products(self):
        for sparse in (coo(5, 4), coo(5, 4, repeated=True), coo(5, 4, dtype=torch.float64)):
            dense = randn(4, 3).to(sparse.dtype)
            self.assert_all_as_cpu((
                lambda s, d: torch.sparse.mm(s, d),
                lambda s, d: torch.mm(s, d),
                lambda s, d: s @ d,
                lambda s, d: torch.matmul(s, d),
                lambda s, d: s @ d[:, 0],
                lambda s, d: s.t() @ (s @ d),
                lambda s, d: d.t() @ s.t(),
                lambda s, d: torch.addmm(s @ d, s, d, beta=0.5, alpha=2),
                lambda s, d: torch.sparse.addmm(s @ d, s, d, beta=0.5, alpha=2),
                lambda s, d: (s @ d).addmm_(s, d),
                lambda s, d: torch.sparse.mm(s, s.t().coalesce()),
                lambda s, d: s @ s.t(),
                lambda s, d: torch.hspmm(s, d),
                lambda s, d: torch.sspaddmm(s @ s.t(), s, d @ d.t() @ s.to_dense().t(),
                                            beta=0.5, alpha=2),
                lambda s, d: torch.bmm(torch.stack([s, s]), torch.stack([d, d])),
                lambda s, d: F.linear(d.t().contiguous(), s),
            ), sparse, dense)

    def test_products_of_compressed_ones(self):
        sparse = coo(5, 4).to_sparse_csr()
        self.assert_all_as_cpu((
            lambda s, d: s @ d,
            lambda s, d: torch.sparse.mm(s, d),
            lambda s, d: s @ d[:, 0],
            lambda s, d: torch.addmm(s @ d, s, d, beta=0.5, alpha=2),
            lambda s, d: torch.addmv(d[:, 0] @ s.to_dense().t(), s, d[:, 0]),
            lambda s, d: s.to_sparse_csc() @ d,
            lambda s, d: s @ s.t().to_sparse_csr(),
            lambda s, d: torch.sparse.sampled_addmm(s, s.to_dense(), d @ d.t()),
            lambda s, d: s + s,
            lambda s, d: s * 3,
            lambda s, d: s * s,
            lambda s, d: s.to_dense() + s,
            lambda s, d: s.sum(),
            lambda s, d: s.sum(0, keepdim=True),
            lambda s, d: s.sum(1, keepdim=True),
            lambda s, d: torch.sparse.mm(s, d, "sum"),
            lambda s, d: torch.sparse.mm(s, d, "mean"),
            lambda s, d: torch.sparse.mm(s, d, "amax"),
            lambda s, d: s.t(),
            lambda s, d: s[1],
            lambda s, d: (s.crow_indices(), s.col_indices(), s.values()),
        ), sparse, randn(4, 3))

    def test_products_of_each_compressed_layout_with_strided_tensors(self):
        dense = coo(4, 4).to_dense()
        layouts = (dense.to_sparse_csr(), dense.to_sparse_csc(), dense.to_sparse_bsr((2, 2)),
                   dense.to_sparse_bsc((2, 2)))
        calls = {
            "mm": lambda s, d: torch.mm(s, d),
            "sparse.mm": lambda s, d: torch.sparse.mm(s, d),
            "addmm": lambda s, d: torch.addmm(d.cos(), s, d),
            "mv": lambda s, d: torch.mv(s, d[:, 0]),
            "linear": lambda s, d: F.linear(d.t(), s),
            "from the left": lambda s, d: d.t() @ s,
        }
        accepted = 0
        for sparse, (name, call) in itertools.product(layouts, calls.items()):
            with self.subTest(layout=sparse.layout, call=name):
                accepted += isinstance(self.assert_as_cpu(call, sparse, randn(4, 3))[0], tuple)
        self.assertEqual(accepted, 18)

    def test_compressed_indices_in_any_order(self):
        for columns in ([2, 0, 3, 1], [1, 1, 0, 0]):
            sparse = torch.sparse_csr_tensor(
                torch.tensor([0, 2, 2, 4]), torch.tensor(columns), randn(4), (3, 4))
            self.assert_all_as_cpu(
                (lambda s, d: s @ d, lambda s, d: s.to_dense(), lambda s, d: s @ d[:, 0]),
                sparse, randn(4, 2))
        outside = torch.sparse_csr_tensor(
            torch.tensor([0, 2, 2, 4]), torch.tensor([2, 0, 3, 4]), randn(4), (3, 4))
        with self.assertRaisesRegex(RuntimeError, "col_indices|outside its sizes"):
            (outside.to(self.device) @ randn(4, 2).to(self.device)).cpu()

    def test_large_products_have_the_bits_of_the_cpu(self):
        indices = torch.randint(0, 300, (2, 4000), generator=torch.Generator().manual_seed(5))
        sparse = torch.sparse_coo_tensor(indices, randn(4000), (300, 300))
        for call in (
            lambda s, d: s @ d,
            lambda s, d: s.coalesce().to_sparse_csr() @ d,
            lambda s, d: s.coalesce(),
            lambda s, d: d @ d.t() + s,
        ):
            self.assert_as_cpu(call, sparse, randn(300, 65))

    def test_sums_and_arithmetic(self):
        for sparse in (coo(5, 4), coo(5, 4, repeated=True), coo(5, dense=(4,))):
            self.assert_all_as_cpu((
                lambda s, d: torch.sparse.sum(s),
                lambda s, d: torch.sparse.sum(s, 0),
                lambda s, d: torch.sparse.sum(s, [0, 1]),
                lambda s, d: s.sum(),
                lambda s, d: s.sum(0),
                lambda s, d: s + s,
                lambda s, d: s - s,
                lambda s, d: s + (2 * s).coalesce(),
                lambda s, d: torch.add(s, s, alpha=3),
                lambda s, d: d + s,
                lambda s, d: torch.add(d, s, alpha=-2),
                lambda s, d: d.clone().add_(s, alpha=0.5),
                lambda s, d: d.clone().sub_(s),
                lambda s, d: d.double() + s,
                lambda s, d: s * 2,
                lambda s, d: s / 4,
                lambda s, d: s * s,
                lambda s, d: s * d,
                lambda s, d: s.coalesce().mul_(2),
                lambda s, d: s.clone().add_(s),
                lambda s, d: torch.cat([s, s]),
                lambda s, d: torch.stack([s, s]),
                lambda s, d: s.norm(),
                lambda s, d: s.pow(2),
                lambda s, d: s.index_select(0, torch.tensor([1, 3], device=d.device)),
                lambda s, d: s[2],
                lambda s, d: s.unsqueeze(0),
                lambda s, d: s.narrow_copy(0, 1, 2),
                lambda s, d: s.any(),
                lambda s, d: torch.zeros_like(s),
                lambda s, d: torch.empty(0, layout=torch.sparse_coo, device=d.device)
                .resize_as_sparse_(s),
                lambda s, d: s.clone().zero_(),
                lambda s, d: torch.add(s, s, out=torch.zeros_like(s)),
            ), sparse, randn(5, 4))
        self.assert_all_as_cpu((
            lambda s: torch.sparse.softmax(s, 1),
            lambda s: torch.sparse.log_softmax(s, 1),
            lambda s: s.transpose(0, 1),
            lambda s: s.permute(1, 0),
            lambda s: s.t().coalesce(),
        ), coo(5, 4))

    def test_elementwise_operators(self):
        for name in _UNARY:
            for sparse in (coo(5, 4), coo(5, 4, repeated=True), coo(5, 4).to_sparse_csr()):
                with self.subTest(name, layout=sparse.layout):
                    self.assert_as_cpu(lambda s: getattr(torch, name)(s), sparse)

    def test_mistakes_raise_the_error_of_the_cpu(self):
        sparse, dense = coo(5, 4), randn(4, 3)
        for call in (
            lambda s, d: s @ d.t(),
            lambda s, d: s @ d.double(),
            lambda s, d: s.to_sparse_csr() @ d.t(),
            lambda s, d: d + s,
            lambda s, d: s + d,
            lambda s, d: s + s.t(),
            lambda s, d: s.t().indices(),
            lambda s, d: d.to(torch.int64)[:1].expand(5, 3)[:, :1].expand(5, 4).clone().add_(s),
            lambda s, d: torch.sparse_coo_tensor(s._indices(), d[0], (5, 4)),
            lambda s, d: torch.sparse_coo_tensor(
                s._indices() + 9, s._values(), (5, 4), check_invariants=True),
        ):
            with self.subTest(line=call.__code__.co_firstlineno):
                expected = self.assert_as_cpu(call, sparse, dense)
                self.assertIsInstance(expected, tuple)
                self.assertIn("Error", expected[0])

    def test_an_index_outside_the_tensor_is_reported_and_reads_no_memory(self):
        for sparse in (
            torch.sparse_coo_tensor(torch.tensor([[0, 9], [1, 0]]), randn(2), (3, 4)),
            torch.sparse_csr_tensor(
                torch.tensor([0, 1, 2, 2]), torch.tensor([0, 77]), randn(2), (3, 4)),
        ):
            remote = sparse.to(self.device)
            with self.assertRaises(RuntimeError):
                (remote @ torch.ones(4, 2, device=self.device)).cpu()
            self.assertEqual(torch.ones(2, device=self.device).sum().item(), 2)

    def test_gradients_of_embeddings(self):
        words = torch.tensor([[1, 1, 3], [0, 3, 7]])

        def gradients(device, **options):
            torch.manual_seed(0)
            table = torch.nn.Embedding(8, 4, sparse=True, **options)
            table.to(device)
            grads = []
            for scale in (1.0, 2.0):
                (table(words.to(device)).square().sum() * scale).backward()
                grads.append(describe(table.weight.grad))
                grads.append(describe(table.weight.grad.coalesce()))
            return grads

        for options in ({}, {"padding_idx": 3}):
            self.assertEqual(gradients(self.device, **options), gradients("cpu", **options))

    def test_gradients_of_bags(self):
        def gradient(device, mode):
            torch.manual_seed(0)
            bag = torch.nn.EmbeddingBag(8, 4, mode=mode, sparse=True).to(device)
            bag(torch.tensor([1, 1, 3, 0]).to(device),
                torch.tensor([0, 3]).to(device)).square().sum().backward()
            return describe(bag.weight.grad.coalesce())

        for mode in ("sum", "mean"):
            with self.subTest(mode):
                self.assertEqual(gradient(self.device, mode), gradient("cpu", mode))

    def test_gradients_through_products(self):
        def gradients(device, layout):
            sparse = coo(5, 4).to_sparse_csr() if layout == torch.sparse_csr else coo(5, 4)
            sparse = sparse.to(device).requires_grad_()
            dense = randn(4, 3).to(device).requires_grad_()
            torch.sparse.mm(sparse, dense).square().sum().backward()
            return describe(dense.grad), describe(sparse.grad)

        for layout in (torch.sparse_coo, torch.sparse_csr):
            with self.subTest(layout):
                self.assertEqual(gradients(self.device, layout), gradients("cpu", layout))

    def test_optimizers_of_sparse_gradients(self):
        def train(device, make):
            torch.manual_seed(0)
            model = torch.nn.Embedding(8, 4, sparse=True)
            model.to(device)
            optimizer = make(model.parameters())
            for step in range(4):
                optimizer.zero_grad()
                words = torch.tensor([step, 1, 1 + step]).to(device)
                model(words).square().sum().backward()
                optimizer.step()
            return describe(model.weight)

        for make in (
            lambda p: torch.optim.SparseAdam(p, lr=0.1),
            lambda p: torch.optim.SGD(p, lr=0.1),
            lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
            lambda p: torch.optim.Adagrad(p, lr=0.1),
        ):
            with self.subTest(line=make.__code__.co_firstlineno):
                self.assertEqual(train(self.device, make), train("cpu", make))

    def test_modules_with_sparse_buffers(self):
        class Filters(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.register_buffer("adjacency", coo(5, 5))
                self.layer = torch.nn.Linear(3, 3)

            def forward(self, x):
                return self.adjacency @ self.layer(x)

        torch.manual_seed(0)
        local = Filters()
        remote = copy.deepcopy(local).to(self.device)
        x = randn(5, 3)
        with torch.no_grad():
            self.assertEqual(describe(remote(x.to(self.device))), describe(local(x)))
        self.assertEqual(describe(remote.cpu().adjacency), describe(local.adjacency))

    def test_gradients_of_reduced_products(self):
        def gradients(device, reduce, wanted):
            sparse = coo(5, 4).to_sparse_csr().to(device).requires_grad_(wanted[0])
            dense = randn(4, 3).to(device).requires_grad_(wanted[1])
            product = torch.sparse.mm(sparse, dense, reduce)
            product.square().sum().backward()
            return [describe(tensor) for tensor in (product, sparse.grad, dense.grad)]

        for reduce in ("sum", "mean", "amax", "amin", "max", "min"):
            for wanted in ((True, True), (True, False), (False, True)):
                with self.subTest(reduce, wanted=wanted):
                    self.assertEqual(
                        gradients(self.device, reduce, wanted), gradients("cpu", reduce, wanted))

    def test_diagonals(self):
        for layout in (None, torch.sparse_coo, torch.sparse_csr, torch.sparse_csc):
            self.assert_as_cpu(
                lambda d, o: torch.sparse.spdiags(d, o, (5, 4), layout),
                randn(3, 4), torch.tensor([0, -2, 1]))
        expected = self.assert_as_cpu(
            lambda d, o: torch.sparse.spdiags(d, o, (5, 4)), randn(3, 4), torch.tensor([1, 1, 0]))
        self.assertEqual(expected[0], "RuntimeError")
        # The CPU's own kernel would write outside its results.
        with self.assertRaisesRegex(RuntimeError, "outside the sizes"):
            torch.sparse.spdiags(
                randn(3, 4).to(self.device), torch.tensor([0, -9, 1]).to(self.device), (5, 4))

    def test_triangular_systems(self):
        triangle = torch.triu(randn(4, 4)) + 4 * torch.eye(4)
        for flags in itertools.product((False, True), repeat=3):
            self.assert_all_as_cpu(
                (lambda b, a: torch.triangular_solve(b, a.to_sparse_csr(), *flags),),
                randn(4, 2), triangle)
            # With half of the flags, the CPU refuses blocks.
            self.assert_as_cpu(
                lambda b, a: torch.triangular_solve(b, a.to_sparse_bsr((2, 2)), *flags),
                randn(4, 2), triangle)
        for right in (randn(3, 2), randn(4, 2).double()):
            expected = self.assert_as_cpu(
                lambda b, a: torch.triangular_solve(b, a.to_sparse_csr()), right, triangle)
            self.assertEqual(expected[0], "RuntimeError")

    def test_missing_sparse_operators_are_refused_by_name(self):
        sparse = coo(5, 4).to(self.device)
        with self.assertRaisesRegex(NotImplementedError, "aten::max.*to_dense"):
            sparse.max()
        with self.assertRaisesRegex(NotImplementedError, "one after the other"):
            torch.triangular_solve(
                randn(2, 4, 2).to(self.device), torch.eye(4).to_sparse_csr().to(self.device))
