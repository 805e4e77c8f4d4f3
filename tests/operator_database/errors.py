"""Runs the wrong calls of PyTorch's operator database, here and remotely.

  errors.py [--operators REGEX] [--results FILE]

Wrong are the database's error inputs, and a sample of each operator in every dtype
that the CPU has no kernel for. A remote call must raise what the CPU's raises: the
same type with the same text, at the call. Fails unless enough of them do.
"""

import argparse
import collections
import json
import pathlib
import re
import sys

import torch
from torch.testing._internal import common_methods_invocations

import djinn
from tests.operator_database import variants
from tests.operator_database.mirror import Mirror
from tests.operator_database.runner import name_of

_DTYPES = (
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.uint8,
    torch.bool,
    torch.complex64,
)
# Required share of wrong calls that raise the CPU's error at the call.
_NEEDED = 0.94


def wrong_calls(op):
    """(name, case) of calls that the CPU may refuse."""
    if op.error_inputs_func is not None:
        for index, wrong in enumerate(op.error_inputs("cpu")):
            yield f"error input {index}", variants.Case(op, wrong.sample_input)
    for dtype in _DTYPES:
        if dtype in op.supported_dtypes("cpu"):
            continue
        try:
            sample = next(iter(op.sample_inputs("cpu", dtype)), None)
        except Exception:  # pylint: disable=broad-except
            continue  # the database makes none
        if sample is not None:
            yield str(dtype), variants.Case(op, sample)


def outcome_of(case, device):
    """None where the CPU does not refuse the call; how the device takes it."""
    try:
        case.run("forward", Mirror("cpu"))
        return None
    except Exception as error:  # pylint: disable=broad-except
        expected = error
    try:
        result = case.run("forward", Mirror(device))
    except Exception as error:  # pylint: disable=broad-except
        if type(error) is not type(expected):
            return "type", f"{error!r} instead of {expected!r}"
        if _text(error) != _text(expected):
            return "text", f"{error!r} instead of {expected!r}"
        return "same", ""
    try:
        for tensor in variants.tensors(result):
            tensor.cpu()
    except Exception as error:  # pylint: disable=broad-except
        return "late", f"{error!r} instead of {expected!r}"
    return "accepted", f"instead of {expected!r}"


def _text(error):
    """Returns the error's text without the device's name."""
    return re.sub(r"remote_accelerator(:\d+)?|PrivateUse1", "cpu", str(error))


def run(pattern, on_record):
    counts = collections.Counter()
    device = "remote_accelerator:0"
    for op in common_methods_invocations.op_db:
        if not pattern.fullmatch(name_of(op)):
            continue
        for name, case in wrong_calls(op):
            outcome = outcome_of(case, device)
            if outcome is None:
                continue
            counts[outcome[0]] += 1
            on_record(
                {
                    "operator": name_of(op),
                    "call": name,
                    "outcome": outcome[0],
                    "message": outcome[1][:600],
                }
            )
    return counts


def main(arguments):
    parser = argparse.ArgumentParser()
    parser.add_argument("--operators", type=re.compile, default=re.compile(".*"))
    parser.add_argument("--results", type=pathlib.Path)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    records = []
    with djinn.local(worker_threads=1):
        counts = run(options.operators, records.append)
        try:
            djinn.close()
        except djinn.Error:
            pass  # a late error that nobody read
    if options.results:
        options.results.write_text("".join(json.dumps(r) + "\n" for r in records))
    total = sum(counts.values())
    share = counts["same"] / total if total else 1
    print(f"{counts['same']} of {total} wrong calls raise the same ({share:.1%})")
    print(", ".join(f"{kind}: {count}" for kind, count in counts.most_common()))
    return 0 if share >= _NEEDED else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
