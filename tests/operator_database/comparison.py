"""Compares what a device returned with what the CPU returned."""

import torch
from torch.utils._pytree import tree_flatten


class Mismatch(Exception):
    """The results differ; `kind` says in which respect."""

    def __init__(self, kind, message):
        super().__init__(message)
        self.kind = kind


def compare(expected, actual, *, values=True):
    """Raises Mismatch unless two nested results are equal.

    Types, dtypes, sizes and strides must be the same; values by PyTorch's own
    tolerances, or not at all. Whether a conjugation is lazy is nobody's business.
    """
    expected_leaves, expected_spec = tree_flatten(expected)
    actual_leaves, actual_spec = tree_flatten(actual)
    if expected_spec != actual_spec:
        raise Mismatch("graph", f"{actual_spec} instead of {expected_spec}")
    for index, pair in enumerate(zip(expected_leaves, actual_leaves)):
        _compare_leaf(f"result {index}", *pair, values)


def _compare_leaf(name, expected, actual, values):
    if not isinstance(expected, torch.Tensor):
        _compare_object(name, expected, actual, values)
        return
    if not isinstance(actual, torch.Tensor):
        raise Mismatch("graph", f"{name}: {type(actual)} instead of a tensor")
    compare_metadata(name, expected, actual)
    if values:
        _compare_values(name, expected, actual)


def _compare_object(name, expected, actual, values):
    if type(expected) is not type(actual):
        raise Mismatch("graph", f"{name}: {type(actual)}, not {type(expected)}")
    if not values or isinstance(expected, torch.device):
        return
    if isinstance(expected, (int, float, complex)):
        _assert_close(name, expected, actual)
    elif expected != actual:
        raise Mismatch("value", f"{name}: {actual!r} instead of {expected!r}")


def compare_metadata(name, expected, actual):
    if expected.dtype != actual.dtype:
        raise Mismatch("dtype", f"{name}: {actual.dtype}, not {expected.dtype}")
    if expected.layout != actual.layout:
        raise Mismatch("layout", f"{name}: {actual.layout}, not {expected.layout}")
    if expected.shape != actual.shape:
        raise Mismatch(
            "shape", f"{name}: {tuple(actual.shape)}, not {tuple(expected.shape)}"
        )
    if expected.layout == torch.strided and expected.stride() != actual.stride():
        raise Mismatch(
            "stride",
            f"{name} {tuple(expected.shape)}: {actual.stride()}, not "
            f"{expected.stride()}",
        )


def _compare_values(name, expected, actual):
    expected = expected.detach()
    actual = actual.detach().cpu()
    if expected.layout != torch.strided:
        expected, actual = expected.to_dense(), actual.to_dense()
    expected = expected.resolve_conj().resolve_neg()
    if expected.dtype == torch.complex32:
        expected, actual = (
            value.to(torch.complex64) for value in (expected, actual)
        )
    if torch.equal(expected, actual):
        return
    _assert_close(name, expected, actual)


def _assert_close(name, expected, actual):
    try:
        torch.testing.assert_close(
            actual, expected, equal_nan=True, check_stride=False
        )
    except AssertionError as error:
        raise Mismatch("value", f"{name}: {error}") from None


def compare_aliases(expected, expected_inputs, actual, actual_inputs):
    """Raises Mismatch unless the same results share memory with the same inputs."""
    pairs = zip(tree_flatten(expected)[0], tree_flatten(actual)[0])
    for index, (left, right) in enumerate(pairs):
        if not isinstance(left, torch.Tensor) or not left.numel():
            continue
        # The CPU returns zeros without memory.
        if left.layout != torch.strided or left._is_zerotensor():
            continue
        aliases = _input_of(left, expected_inputs), _input_of(right, actual_inputs)
        if aliases[0] != aliases[1]:
            raise Mismatch(
                "alias",
                f"result {index} shares memory with input {aliases[1]}, not "
                f"{aliases[0]}",
            )


def _input_of(tensor, storages):
    """The index of the storage that a tensor lies in; None for its own."""
    address = tensor.untyped_storage().data_ptr()
    for index, storage in enumerate(storages):
        if storage.data_ptr() == address:
            return index
    return None
