"""Calls every operator that has a sparse kernel on the CPU, and compares the device with it.

The dispatcher lists the operators, so the test also finds those that a new PyTorch adds. Each is
called with each combination of sparse and strided operands that the CPU accepts, without
gradients and, where the CPU has a gradient, with them.
"""

import itertools
import warnings

import torch

from tests.python.operators.sparse_test import coo, describe, randn
from tests.python.remote_case import RemoteCase

# Operators that take no tensor with elements, that change how a tensor is put together without
# checking it, or that trust the sizes of outputs. Calls in sparse_test.py lead to all of them.
_NOT_CALLED = {
    "aten::_coalesced_", "aten::_pin_memory", "aten::_sparse_coo_tensor_with_dims",
    "aten::_sparse_coo_tensor_with_dims_and_tensors", "aten::_sparse_mm_reduce_impl_backward",
    "aten::empty.memory_format", "aten::is_pinned", "aten::normal_", "aten::resize_",
    "aten::sparse_resize_", "aten::sparse_resize_and_clear_",
    "aten::triangular_solve.X", "aten::zeros.out",
}
# Calls whose gradient ends the process on the CPU.
_FATAL_GRADIENTS = {("aten::addmm", ("csc", "csc", "csc", 1, 1))}
# Calls that write the parts of one layout into a tensor of another on the CPU, and that the device
# refuses.
_REFUSED = [("aten::add", (layout, layout, 1, "csr")) for layout in ("csc", "bsr")]
# Operators whose results are not initialised.
_WITHOUT_VALUES = {"aten::empty_like"}

# Values of arguments by name; else by type, where there is no default.
_BY_NAME = {
    "reduce": ("sum", "mean", "amax", "amin", "max", "min"),
    "rounding_mode": ("floor", "trunc"),
    "blocksize": ([2, 2], None),
    "dims": ([1, 0],),
    "keepdim": (False, True),
    "size": ([4, 4],),
    "sparse_dim": (1, 2),
}
_BY_TYPE = {
    "bool": (False, True),
    "float": (0.5,),
    "int": (0, 1),
    "List[int]": ([0], [0, 1]),
    "number": (2,),
    "Optional[int]": (None,),
    "Optional[List[int]]": (None, [1]),
    "Optional[number]": (2,),
}


def _operands():
    """Tensors of each layout. Matrices are square, so that most of them fit one another."""
    matrix = coo(4, 4)
    triangle = torch.triu(randn(4, 4, seed=5)) + 4 * torch.eye(4)
    return {
        "coo": matrix,
        "repeating coo": coo(4, 4, seed=3, repeated=True),
        "coo of three dimensions": torch.stack([matrix, 2 * matrix]).coalesce(),
        "csr": triangle.to_sparse_csr(),
        "csc": matrix.to_sparse_csc(),
        "bsr": triangle.to_sparse_bsr((2, 2)),
        "hybrid coo": coo(4, dense=(4,)),
        "coo of pairs": coo(4, dense=(2,)),
        "complex coo": coo(4, 4, dtype=torch.complex64),
        "bool coo": coo(4, 4).bool(),
        "bool csr": triangle.bool().to_sparse_csr(),
        "matrix": randn(4, 4),
        "vector": randn(4),
        "number": torch.tensor(2.0),
        "matrices": randn(2, 4, 4),
        "indices": torch.tensor([1, 3]),
    }


_STRIDED = ("matrix", "vector", "number", "matrices", "indices")
# The operands of operators that take several, and outputs.
_OF_SEVERAL = ("coo", "repeating coo", "coo of three dimensions", "csr", "csc", "bsr", *_STRIDED)
_OUTPUTS = ("coo", "csr", "bool coo", "bool csr", "matrix")


def _is_tensor(argument):
    return str(argument.type) in ("Tensor", "List[Tensor]")


def _values(argument):
    """The values of an argument that is not a tensor."""
    if argument.name in _BY_NAME:
        return _BY_NAME[argument.name]
    if argument.has_default_value():
        return (argument.default_value,)
    if argument.name == "dtype":
        return (torch.float32,)
    return _BY_TYPE[str(argument.type)]


def _combinations(op):
    """Yields arguments for the operator, of which at least one is sparse: tensors by name."""
    tensors = [a for a in op._schema.arguments if _is_tensor(a)]
    names = _OF_SEVERAL if len(tensors) - sum(a.is_out for a in tensors) > 1 else _operands()
    choices = [
        _OUTPUTS if a.is_out else names if _is_tensor(a) else _values(a)
        for a in op._schema.arguments
    ]
    for values in itertools.product(*choices):
        used = [v for a, v in zip(op._schema.arguments, values) if _is_tensor(a) and not a.is_out]
        if not all(name in _STRIDED for name in used):
            yield values


def _call(op, values, tensors):
    """Calls the operator. Written operands are copies; sparse outputs are zeros, others empty."""
    args, kwargs = [], {}
    for argument, value in zip(op._schema.arguments, values):
        if _is_tensor(argument):
            value = tensors[value]
            if argument.is_out:
                strided = value.layout == torch.strided
                value = value.new_zeros(0) if strided else torch.zeros_like(value)
            elif argument.alias_info is not None and argument.alias_info.is_write:
                value = value.clone()
            if str(argument.type) == "List[Tensor]":
                value = [value, value]
        if argument.kwarg_only:
            kwargs[argument.name] = value
        else:
            args.append(value)
    return op(*args, **kwargs)


def _operators(key):
    """Yields the operators with a kernel of their own at the dispatch key."""
    for name in sorted(torch._C._dispatch_get_all_op_names()):
        if not name.startswith("aten::") or name in _NOT_CALLED:
            continue
        if torch._C._dispatch_has_kernel_for_dispatch_key(name, key):
            packet, _, overload = name.removeprefix("aten::").partition(".")
            yield getattr(getattr(torch.ops.aten, packet), overload or "default")


def _outcome(op, values, tensors):
    result = _call(op, values, tensors)
    if op._schema.name in _WITHOUT_VALUES:
        result = torch.zeros_like(result)
    return describe(result)


def _gradients(op, values, tensors):
    """Returns the gradients of the operands, or None where the CPU records none."""
    if (op._schema.name, values) in _FATAL_GRADIENTS:
        return None
    used = {v for a, v in zip(op._schema.arguments, values) if _is_tensor(a)}
    leaves = {
        name: tensors[name].detach().clone().requires_grad_()
        for name in sorted(used) if tensors[name].is_floating_point()
    }
    with torch.enable_grad():
        results = _call(op, values, {**tensors, **leaves})
        results = results if isinstance(results, (tuple, list)) else [results]
        results = [r for r in results if isinstance(r, torch.Tensor) and r.requires_grad]
        if not results or not leaves:
            return None
        gradients = torch.autograd.grad(
            results, list(leaves.values()), [torch.ones_like(r) for r in results],
            allow_unused=True)
    return [describe(gradient) for gradient in gradients]


class SparseKernelsTest(RemoteCase):
    """Every operator with a kernel for sparse tensors."""

    def compare(self, run, op, remote):
        """Compares each combination that the CPU accepts; returns how many these are."""
        local, count = _operands(), 0
        for values in _combinations(op):
            try:
                expected = run(op, values, local)
            except Exception:  # pylint: disable=broad-except
                continue
            if expected is None:
                continue
            count += 1
            with self.subTest(f"{op._schema.name}.{op._schema.overload_name}", values=values):
                if (op._schema.name, values) in _REFUSED:
                    with self.assertRaisesRegex(RuntimeError, "cannot be written to a tensor of"):
                        run(op, values, remote)
                    continue
                self.assertEqual(run(op, values, remote), expected)
        return count

    def compare_all(self, run, key, operators=None):
        """Compares all operators of the key; returns the names of those that the CPU never ran."""
        remote = {name: tensor.to(self.device) for name, tensor in _operands().items()}
        never = set()
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")
            for op in operators or _operators(key):
                if not self.compare(run, op, remote):
                    never.add(f"{op._schema.name}.{op._schema.overload_name}".rstrip("."))
        return never

    def test_each_operator_with_a_kernel_for_coordinates(self):
        self.assertEqual(
            self.compare_all(_outcome, "SparseCPU"),
            {"aten::native_norm.ScalarOpt_dim_dtype", "aten::norm.ScalarOpt_dim_dtype"})

    def test_each_operator_with_a_kernel_for_compressed_tensors(self):
        self.assertEqual(self.compare_all(_outcome, "SparseCsrCPU"), {"aten::angle.out"})

    def test_each_gradient_that_the_cpu_has(self):
        operators = {
            op for key in ("SparseCPU", "SparseCsrCPU") for op in _operators(key)
            if not op._schema.is_mutable
        }
        never = self.compare_all(_gradients, "SparseCPU", sorted(operators, key=str))
        with_gradients = {
            "aten::_sparse_mm_reduce_impl", "aten::_to_dense", "aten::add.Tensor", "aten::addmm",
            "aten::bmm", "aten::mm", "aten::mul.Tensor", "aten::mv", "aten::sparse_mask",
            "aten::sum", "aten::sum.dim_IntList", "aten::values",
        }
        self.assertEqual(never & with_gradients, set())
