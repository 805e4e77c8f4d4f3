"""Capture and ship: what issuing an operator costs the issuing thread.

Chains of small operators, each on the result of the one before, and a read of the
last. Counted is the thread's CPU time up to that read, on the device and locally.
"""

import statistics
import time

import torch
from torch.nn import functional

from tests.bench.python.report import Row

STEPS = 2000
ROWS, COLUMNS = 4, 16


class Operands:
    """A few tensors of each kind, used in turn, such that values neither grow nor
    shrink over a chain."""

    def __init__(self, device, requires_grad):
        generator = torch.Generator().manual_seed(11)

        def random(*sizes):
            return torch.rand(sizes, generator=generator)

        def on_device(tensor):
            return tensor.to(device).requires_grad_(requires_grad)

        self.summands = [on_device(random(ROWS, COLUMNS) - 0.5) for _ in range(4)]
        factors = [random(ROWS, COLUMNS) + 0.5 for _ in range(2)]
        self.factors = [on_device(f) for pair in factors for f in (pair, 1 / pair)]
        self.matrices = []
        for _ in range(4):
            normal = random(COLUMNS) - 0.5
            mirror = torch.eye(COLUMNS) - torch.outer(normal, normal) * (
                2 / normal.square().sum())
            self.matrices.append(on_device(mirror))
        self.biases = [on_device((random(COLUMNS) - 0.5) / 50) for _ in range(4)]
        self.ones = on_device(torch.ones(COLUMNS))
        self.zeros = on_device(torch.zeros(COLUMNS))


OPERATORS = {
    "add": lambda x, o, i: torch.add(x, o.summands[i % 4], alpha=1 - 2 * (i % 2)),
    "mul": lambda x, o, i: torch.mul(x, o.factors[i % 4]),
    "mm": lambda x, o, i: torch.mm(x, o.matrices[i % 4]),
    "gelu": lambda x, o, i: functional.gelu(x),
    "linear": lambda x, o, i: functional.linear(x, o.matrices[i % 4], o.biases[i % 4]),
    "layer_norm": lambda x, o, i: functional.layer_norm(x, (COLUMNS,), o.ones, o.zeros),
}


def _chain(operator, operands, start):
    """CPU seconds of this thread for one call, and the last result's values."""
    x = start
    begin = time.thread_time()
    for i in range(STEPS):
        x = operator(x, operands, i)
    spent = time.thread_time() - begin
    return spent / STEPS, x.detach().cpu()


def measure(device, local_device, rounds):
    rows = []
    for mode in ("inference", "grad"):
        of_mode = []
        with torch.inference_mode(mode == "inference"):
            local = Operands(local_device, mode == "grad")
            remote = Operands(device, mode == "grad")
        for name, operator in OPERATORS.items():
            row = Row("python_capture", f"{name}, {mode}")
            with torch.inference_mode(mode == "inference"):
                for number in range(-1, rounds):
                    generator = torch.Generator().manual_seed(1000 + number)
                    start = 5 + 3 * torch.rand(ROWS, COLUMNS, generator=generator)
                    djinn_seconds, actual = _chain(operator, remote, start.to(device))
                    local_seconds, expected = _chain(
                        operator, local, start.to(local_device))
                    if not torch.equal(actual, expected):
                        row.error = f"round {number}: other values than local"
                    if number >= 0:  # the first warms up
                        row.djinn.append(djinn_seconds)
                        row.local.append(local_seconds)
            row.checked = f"{rounds + 1} results, equal bits"
            of_mode.append(row)
        mean = Row("python_capture", f"geometric mean, {mode}")
        for number in range(rounds):
            for series in ("djinn", "local"):
                getattr(mean, series).append(statistics.geometric_mean(
                    getattr(row, series)[number] for row in of_mode))
        mean.checked = "the rows above"
        rows += [*of_mode, mean]
    return rows
