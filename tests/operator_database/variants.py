"""The ways in which a sample of an operator is run."""

import functools

import torch
from torch.utils._pytree import tree_flatten, tree_map

from tests.operator_database.mirror import Mirror

# The results of these operators are uninitialised memory, so the test does not
# compare values.
_UNINITIALISED = {
    "empty",
    "empty_like",
    "empty_permuted",
    "empty_strided",
    "new_empty",
    "new_empty_strided",
}

# On every device, tensors among the arguments of these operators stay on the
# CPU.
_READS_ON_CPU = {"tensor_split"}


def has_values(op):
    return op.name not in _UNINITIALISED


def variants_of(op, dtype):
    """The names of the variants that an operator has for a dtype."""
    names = ["forward"]
    if dtype in op.supported_backward_dtypes("cpu"):
        names.append("backward")
    if op.inplace_variant is not None:
        names.append("inplace")
    if op.supports_out:
        # Outputs of the right size, and empty ones that are resized.
        names += ["out", "out_resized"]
    return names


class Case:
    """An operator with one of its samples."""

    def __init__(self, op, sample):
        self.op = op
        self.sample = sample

    def run(self, variant, mirror):
        """Runs a mirrored copy; returns everything that it computed or wrote.

        A ValueError says that the variant does not apply to the sample.
        """
        torch.manual_seed(0)
        return _RUNNERS[variant](self, mirror)

    def arguments(self, mirror):
        sample = self.sample
        if self.op.name in _READS_ON_CPU:
            return mirror(sample.input), sample.args, sample.kwargs
        return mirror((sample.input, sample.args, sample.kwargs))

    @functools.cached_property
    def cpu_result(self):
        """Returns the CPU's result, which the caller must not write."""
        return self.run("forward", Mirror("cpu"))


def _forward(case, mirror):
    value, args, kwargs = case.arguments(mirror)
    with torch.no_grad():
        return case.op(value, *args, **kwargs)


def _inplace(case, mirror):
    if case.sample.broadcasts_input:
        raise ValueError("the result is larger than the input")
    value, args, kwargs = case.arguments(mirror)
    with torch.no_grad():
        result = case.op.inplace_variant(value, *args, **kwargs)
    return result, value


def differentiate(case, mirror):
    """Returns the sample's result and the gradients of its inputs."""
    arguments = case.arguments(mirror)
    value, args, kwargs = arguments
    result = case.op(value, *args, **kwargs)
    processed = case.sample.output_process_fn_grad(result)
    inputs = [leaf for leaf in tensors(arguments) if leaf.requires_grad]
    outputs = [leaf for leaf in tensors(processed) if leaf.requires_grad]
    if not inputs or not outputs:
        raise ValueError("nothing is differentiable")
    gradients = torch.autograd.grad(
        outputs,
        inputs,
        [_direction(output) for output in outputs],
        allow_unused=True,
    )
    return result, gradients


def _direction(output):
    """A gradient that differs from element to element, the same everywhere."""
    count = torch.arange(output.numel(), dtype=torch.float64)
    values = (1 + 0.25 * torch.sin(count)).reshape(output.shape)
    return values.to(output.dtype).to(output.device)


def _out(case, mirror):
    return _write_out(case, mirror, _like)


def _out_resized(case, mirror):
    return _write_out(case, mirror, _empty)


def _write_out(case, mirror, make):
    # No gradients are recorded, even if a result has no floating-point type.
    with torch.no_grad():
        expected = case.cpu_result
        if not tensors(expected):
            raise ValueError("there is no tensor to write")
        out = tree_map(lambda leaf: make(leaf, mirror.device), expected)
        if isinstance(out, (tuple, list)):
            out = tuple(out)
        value, args, kwargs = case.arguments(mirror)
        result = case.op(value, *args, **kwargs, out=out)
    return result, out


def _like(tensor, device):
    out = torch.empty_strided(
        tensor.size(), tensor.stride(), dtype=tensor.dtype, device=device
    )
    return out.zero_()


def _empty(tensor, device):
    return torch.empty(0, dtype=tensor.dtype, device=device)


def tensors(value):
    return [leaf for leaf in tree_flatten(value)[0] if isinstance(leaf, torch.Tensor)]


_RUNNERS = {
    "forward": _forward,
    "backward": differentiate,
    "inplace": _inplace,
    "out": _out,
    "out_resized": _out_resized,
}
