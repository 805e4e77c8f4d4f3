"""Varies what a CPU chooses its kernels by, over the operators of PyTorch's database.

Composites and derivatives choose what they compute by three things that a remote device could get
wrong: whether operands require a gradient (in each gradient mode), how operands lie in memory,
dimensions of size 1 included, and whether they are on the CPU. Each sample is run in all
combinations, on the CPU and on the device, and must have the same bits and strides.
"""

import itertools
import math
import time
import warnings

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_flatten, tree_map

import djinn
from tests.operator_database import variants
from tests.operator_database.mirror import Mirror


def _in_mode(mode):
    def run(case, mirror):
        value, args, kwargs = case.arguments(mirror)
        with mode():
            return case.op(value, *args, **kwargs)

    return run


# Maps a mode to whether operands require gradients, and to the function that runs.
_MODES = {
    "gradients": (True, variants.differentiate),
    "no_grad with parameters": (True, _in_mode(torch.no_grad)),
    "inference with parameters": (True, _in_mode(torch.inference_mode)),
    "no gradients": (False, _in_mode(torch.no_grad)),
}


def _same(tensor):
    return tensor


def _last(tensor):
    """Channels last."""
    if tensor.dim() == 4:
        return tensor.contiguous(memory_format=torch.channels_last)
    if tensor.dim() == 5:
        return tensor.contiguous(memory_format=torch.channels_last_3d)
    return tensor


def _odd_ones(tensor):
    """Dimensions of size 1 get strides that a contiguous tensor does not have."""
    if 1 not in tensor.shape or not tensor.is_contiguous():
        return tensor
    strides = [1 if size == 1 else stride for size, stride in zip(tensor.shape, tensor.stride())]
    return tensor.as_strided(tensor.shape, strides)


def _columns(tensor):
    """The last dimension is the slowest."""
    order = tuple(reversed(range(tensor.dim())))
    return tensor.permute(order).contiguous().permute(order)


_LAYOUTS = {"same": _same, "last": _last, "ones": _odd_ones, "columns": _columns}


def _lay_out(sample, layout, requires_grad):
    """The sample's operands in another layout; None if no operand changes."""
    changed = False

    def change(value):
        nonlocal changed
        if not isinstance(value, torch.Tensor) or value.layout != torch.strided:
            return value
        plain = value.detach()
        result = layout(plain)
        changed = changed or result.stride() != plain.stride()
        return result.requires_grad_(requires_grad and value.requires_grad)

    operands = tree_map(change, (sample.input, sample.args, sample.kwargs))
    return operands if changed or layout is _same else None


class _Sample:
    """Gives variants.Case what it reads of a sample."""

    def __init__(self, sample, operands):
        self.input, self.args, self.kwargs = operands
        self.output_process_fn_grad = sample.output_process_fn_grad
        self.broadcasts_input = sample.broadcasts_input


def difference(expected, actual):
    """Says how two results differ; None if they have the same bits and strides."""
    ours, theirs = tree_flatten(expected)[0], tree_flatten(actual)[0]
    if len(ours) != len(theirs):
        return "number of results"
    for index, (one, other) in enumerate(zip(ours, theirs)):
        if not isinstance(one, torch.Tensor):
            continue
        one, other = one.detach(), other.detach()
        if one.layout != torch.strided:
            continue
        if one.dtype != other.dtype or one.shape != other.shape:
            return f"result {index}: type or sizes"
        if one.stride() != other.stride():
            return f"result {index}: strides {other.stride()} instead of {one.stride()}"
        one, other = (t.cpu().resolve_conj().resolve_neg() for t in (one, other))
        if one.dtype == torch.complex32:  # nan_to_num() lacks it
            one, other = torch.view_as_real(one), torch.view_as_real(other)
        if not torch.equal(torch.nan_to_num(one), torch.nan_to_num(other)):
            return f"result {index}: bits"
    return None


def operators():
    """Returns the operators that can be compared, in the database's order."""
    return [op for op in op_db if torch.float32 in op.dtypes and variants.has_values(op)]


def compare(ops, samples, seconds=math.inf):
    """Compares the first samples of each operator, in a session of its own, with one thread.

    Begins no operator after so many seconds, and says how many it has left out then. Returns how
    many combinations were compared, and the differences by combination.
    """
    compared, differences = 0, {}
    end = time.monotonic() + seconds
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with djinn.local(worker_threads=1), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for index, op in enumerate(ops):
                if time.monotonic() > end:
                    print(f"left out {len(ops) - index} of {len(ops)} operators", flush=True)
                    break
                for name, found in _compare_operator(op, samples):
                    compared += 1
                    if found:
                        differences[name] = found
    finally:
        torch.set_num_threads(threads)
    return compared, differences


def _compare_operator(op, count):
    """Yields the name of each combination that the CPU runs, and what differs, "" if nothing."""
    torch.manual_seed(0)
    samples = op.sample_inputs("cpu", torch.float32, requires_grad=op.supports_autograd)
    for index, sample in enumerate(itertools.islice(samples, count)):
        for layout, mode in itertools.product(_LAYOUTS, _MODES):
            found = _compare_sample(op, sample, layout, mode)
            if found is not None:
                yield f"{op.full_name}, {layout}, {mode}, sample {index}", found


def _compare_sample(op, sample, layout, mode):
    """Returns a difference, "" if there is none, or None if the CPU cannot run it."""
    requires_grad, run = _MODES[mode]
    if requires_grad and not op.supports_autograd:
        return None
    operands = _lay_out(sample, _LAYOUTS[layout], requires_grad)
    if operands is None:
        return None
    case = variants.Case(op, _Sample(sample, operands))
    state = torch.get_rng_state()
    results = []
    try:
        for _ in range(2):
            torch.manual_seed(0)
            results.append(run(case, Mirror("cpu")))
    except Exception:  # pylint: disable=broad-except
        return None
    if difference(*results) is not None:
        return None  # the CPU does not repeat itself
    try:
        torch.manual_seed(0)
        return difference(results[0], run(case, Mirror(djinn.device()))) or ""
    except Exception as error:  # pylint: disable=broad-except
        return f"{type(error).__name__}: {str(error)[:200]}"
    finally:
        torch.set_rng_state(state)
