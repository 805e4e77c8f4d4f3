"""Calls that the CPU refuses for their sizes, dtypes, dimensions, or a matrix's values."""

import torch

from tests.python.remote_case import RemoteCase

LINALG = torch.linalg


def ones(*sizes, dtype=torch.float32):
    return torch.ones(sizes, dtype=dtype)


class CallErrorsTest(RemoteCase):
    def assert_same_error(self, call, *operands):
        """Both calls raise the same at once; the remote operands keep their values."""
        with self.assertRaises(Exception) as local:
            call(*operands)
        remote = [operand.to(self.device) for operand in operands]
        with self.assertRaises(type(local.exception)) as found:
            call(*remote)
        self.assertIs(type(found.exception), type(local.exception))
        self.assertEqual(str(found.exception), str(local.exception))
        for one, other in zip(remote, operands):
            torch.testing.assert_close(one.cpu(), other, rtol=0, atol=0, equal_nan=True)

    def test_masks_select_as_many_as_there_are_values(self):
        operators = (
            torch.ops.aten.index_put_, torch.ops.aten.index_put, torch.ops.aten._index_put_impl_,
            torch.ops.aten._unsafe_index_put, lambda x, i, v, _: x.__setitem__(i[0], v) or x,
            lambda x, i, v, _: x.masked_scatter(i[0], v),
        )
        for count in (0, 1, 5, 11, 12):
            mask = torch.arange(12) < count
            for operator in operators:
                for accumulate in (False, True):
                    x, values = torch.ones(12), torch.randn(count)
                    there = [mask.to(self.device)], values.to(self.device)
                    actual = operator(x.to(self.device), *there, accumulate)
                    self.assert_same(actual, operator(x, [mask], values, accumulate))

    def test_wrong_indices_and_values_leave_the_tensor_as_it_is(self):
        index = torch.tensor([0, 2])
        cases = {
            "value": (ones(3, 4), ones(5), index),
            "values": (ones(3, 4), ones(2, 5), index),
            "rank": (ones(3, 4), ones(2, 4, 1), index),
            "float index": (ones(3, 4), ones(1), index.float()),
            "short index": (ones(3, 4), ones(1), index.short()),
            "empty float index": (ones(3, 4), ones(1), ones(0)),
            "indices": (ones(3, 4), ones(1), index, torch.arange(3)),
            "too many": (ones(3, 4), ones(1), index, index, index),
            "nothing": (ones(0, 4), ones(1), index),
            "mask and float": (ones(3, 4), ones(1), ones(3).bool(), index.float()),
            "large": (ones(300, 40), ones(41), index),
            "large indices": (ones(300, 40), ones(1), index, torch.arange(3)),
        }
        for name, (x, value, *indices) in cases.items():
            def put(x, value, *indices):
                x[indices] = value

            with self.subTest(name):
                # A call that fits is not the reason to accept one that does not.
                fine = torch.zeros(3, 4, device=self.device)
                fine[index.to(self.device)] = 1
                self.assert_same_error(put, x, value, *indices)
        self.assert_same_error(lambda x, i, v: x.index_put_((None, i), v), ones(3, 4), index, ones(3, 3))
        with self.assertRaises(RuntimeError):
            ones(3, 4).to(self.device).index_put_((index.to(self.device),), ones(5).to(self.device))

    def test_dimensions_and_sizes(self):
        functional = torch.nn.functional
        labels = torch.zeros(5, dtype=torch.int64)
        image, kernel = ones(1, 2, 5, 5), ones(2, 2, 3, 3)
        torch.cummax(ones(3).to(self.device), 0)
        functional.max_pool3d(ones(1, 2, 2, 2, 2).to(self.device), 1)
        for call, operands in (
            (lambda x: torch.cummax(x, 4), (ones(3),)),
            (lambda x: torch.cummax(x, 4), (ones(90, 90),)),
            (lambda x: torch.cummin(x, -3), (ones(2, 2),)),
            (lambda x, a, b: x.addr_(a, b), (ones(2, 5, 10), ones(5), ones(10))),
            (lambda x, a, b: x.addr_(a, b), (ones(3, 5), ones(5), ones(10))),
            (lambda x, y, w: functional.multi_margin_loss(x, y, weight=w), (ones(5, 4), labels, ones(5))),
            (lambda x: functional.max_pool3d(x, 1), (ones(0, 1, 2, 10),)),
            (lambda x: functional.max_pool3d(x, 0), (ones(1, 2, 2, 2, 2),)),
            (lambda x: functional.gelu(x, approximate="some"), (ones(2),)),
            (lambda x, w: functional.conv_transpose1d(x, w, output_padding=1), (image[0], kernel[0])),
            (lambda x, w: functional.conv_transpose2d(x, w, output_padding=1), (image, kernel)),
            (lambda x, w: functional.conv_transpose2d(x, w, output_padding=(0, 1)), (ones(8, 2, 50, 50), kernel)),
            (lambda x, w: functional.conv_transpose3d(x, w, output_padding=2),
             (ones(1, 2, 3, 3, 3), ones(2, 2, 2, 2, 2))),
            (lambda x, w: functional.conv_transpose3d(x, w, output_padding=2),
             (ones(9, 2, 9, 9, 9), ones(2, 2, 2, 2, 2))),
            (lambda a, b: LINALG.lstsq(a, b), (ones(3, 2), ones(4, 1))),
        ):
            with self.subTest(line=call.__code__.co_firstlineno):
                self.assert_same_error(call, *operands)
        self.assert_same(
            functional.conv_transpose2d(image.to(self.device), kernel.to(self.device), output_padding=1, dilation=2),
            functional.conv_transpose2d(image, kernel, output_padding=1, dilation=2))
        for make in (torch.linspace, torch.logspace):
            with self.assertRaises(NotImplementedError):
                make(0, 1, 5, dtype=torch.bool, device=self.device)

    def test_decompositions_that_fail(self):
        unknown, singular = torch.full((3, 3), float("nan")), torch.zeros(3, 3)
        batch = unknown.expand(2, 3, 3)
        for call, operand in (
            (LINALG.eigh, unknown),
            (LINALG.eigh, batch),
            (LINALG.eigvalsh, unknown),
            (LINALG.svd, unknown),
            (LINALG.svdvals, unknown),
            (LINALG.matrix_rank, unknown),
            (LINALG.pinv, unknown),
            (lambda x: LINALG.pinv(x, hermitian=True), unknown),
            (lambda x: LINALG.matrix_norm(x, 2), unknown),
            (torch.cholesky_inverse, singular),
            (torch.cholesky, -torch.eye(3)),
            (LINALG.cholesky, -torch.eye(3)),
            (lambda x: LINALG.cholesky_ex(x, check_errors=True), -torch.eye(3)),
            (LINALG.inv, singular),
            (lambda x: LINALG.inv_ex(x, check_errors=True), singular),
            (lambda x: LINALG.solve_ex(x, x, check_errors=True), singular),
            (lambda x: LINALG.lstsq(x, x, driver="gels"), ones(3, 3)),
            (lambda x: LINALG.eigvalsh(x, out=x[0].clone()), unknown),
            (lambda x: torch.cholesky_inverse(x, out=x.clone()), singular),
        ):
            with self.subTest(call=getattr(call, "__name__", call)):
                with self.assertRaises(LINALG.LinAlgError):
                    call(operand)
                self.assert_same_error(call, operand)
        # These errors have other types.
        self.assert_same_error(LINALG.eig, unknown)
        for call in (LINALG.lu_factor_ex, LINALG.ldl_factor_ex):
            self.assert_same_error(lambda x: call(x, check_errors=True), singular)
        for call in (LINALG.cholesky_ex, LINALG.inv_ex):
            self.assertGreater(call(-singular.to(self.device)).info.item(), 0)

    def test_decompositions_that_succeed(self):
        matrix = torch.tensor([[2.0, 1.0], [1.0, 3.0]])
        for call in (LINALG.eigvalsh, LINALG.svdvals, LINALG.eigvals, torch.cholesky_inverse,
                     lambda x: LINALG.eigh(x)[0], lambda x: LINALG.inv_ex(x, check_errors=True)[0]):
            self.assert_same(call(matrix.to(self.device)), call(matrix))
        leaf = matrix.to(self.device).requires_grad_()
        LINALG.eigh(leaf).eigenvalues.sum().backward()
        torch.testing.assert_close(leaf.grad.cpu(), torch.eye(2))

    def test_least_squares_of_nothing(self):
        for a, b in (
            (ones(0, 3), ones(0, 2)), (ones(0, 0), ones(0, 2)), (ones(0, 3), ones(0, 0)),
            (ones(2, 0, 3), ones(2, 0, 2)), (ones(3, 0), ones(3, 2)),
        ):
            for driver in ("gelsd", "gels", "gelsy", "gelss"):
                with self.subTest(a=a.shape, b=b.shape, driver=driver):
                    local = LINALG.lstsq(a, b, driver=driver)
                    remote = LINALG.lstsq(a.to(self.device), b.to(self.device), driver=driver)
                    for one, other in zip(remote, local):
                        self.assert_same(one, other)

    def test_equal_promotes(self):
        x, y = torch.tensor([1.0, 2.0]), torch.tensor([1, 2])
        for one, other in (
            (x, y), (x, y + 1), (x, x.double()), (x, x + 0j), (y, ones(2, dtype=torch.bool)),
            (x, ones(3, dtype=torch.int64)), (ones(0), ones(0, dtype=torch.int64)),
            (torch.tensor([2.0**24]), torch.tensor([2**24 + 1])), (x * float("nan"), x * float("nan")),
        ):
            with self.subTest(one=one, other=other):
                found = torch.equal(one.to(self.device), other.to(self.device))
                self.assertIs(found, torch.equal(one, other))

    def test_a_generator_of_another_device(self):
        generator = torch.Generator(self.device)
        before = generator.get_state()
        x = torch.full((3,), 0.5)
        for call in (
            lambda: torch.rand(3, generator=generator),
            lambda: torch.randn(3, generator=generator),
            lambda: torch.randint(9, (3,), generator=generator),
            lambda: torch.randperm(3, generator=generator),
            lambda: torch.normal(0.0, 1.0, (3,), generator=generator),
            lambda: torch.normal(x, 1.0, generator=generator),
            lambda: torch.bernoulli(x, generator=generator),
            lambda: torch.multinomial(x, 2, generator=generator),
            lambda: torch.poisson(x, generator=generator),
            lambda: x.uniform_(generator=generator),
            lambda: x[0].uniform_(generator=generator),
            lambda: torch.utils.data.random_split(range(8), [4, 4], generator=generator),
        ):
            with self.subTest(line=call.__code__.co_firstlineno):
                with self.assertRaisesRegex(
                    RuntimeError, "Expected a 'cpu' device type for generator but found 'remote_accelerator'"
                ):
                    call()
        self.assertEqual(x.tolist(), [0.5] * 3)
        torch.testing.assert_close(generator.get_state(), before)
        self.assertEqual(torch.rand(2, device=self.device, generator=generator).shape, (2,))
        self.assertEqual(torch.rand(2, device=self.device).cpu().shape, (2,))
