"""Two clusters on which the same program runs in turn, with a setting and without it.

The program of each side runs in a process of its own, on a worker of its own with one thread.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field

import torch
from torch import nn

import djinn
from tests.bench.python.report import Row
from tests.operating.cluster import Cluster

# Turns before the measured ones: plans are compiled, memory is allocated.
_SETTLING_TURNS = 3
# More turns than other benchmarks have rounds, because small differences are asked for.
_TURNS_PER_ROUND = 12
_FIGURES = {"shortest": min, "mean": statistics.fmean}


def _request(device):
    """Multiplies two matrices of 64 x 64 and reads the product."""
    left = torch.randn(64, 64).to(device)
    right = torch.randn(64, 64).to(device)
    return lambda: (left @ right).cpu()


def _training_step(device):
    """Trains 256-512-10 on 32 examples by SGD and reads the loss."""
    model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10)).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs = torch.randn(32, 256).to(device)
    labels = torch.randint(10, (32,)).to(device)

    def step():
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        return loss.detach().cpu()

    return step


def _encode(device):
    """Encodes a batch of 2 x 32 by 4 layers of width 256, and reads it."""
    layer = nn.TransformerEncoderLayer(256, 4, 512, batch_first=True)
    model = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False).eval().to(device)
    inputs = torch.randn(2, 32, 256)

    @torch.no_grad()
    def step():
        return model(inputs.to(device)).mean(1).cpu()

    return step


def _decode(device):
    """Decodes a token behind 64 others by 6 layers of width 384, and reads it."""
    width, length, layers, words = 384, 64, 6, 1000
    embedding = torch.randn(words, width).to(device)
    head = torch.randn(width, words).to(device)
    stack = [
        [(torch.randn(width, width) / width**0.5).to(device) for _ in range(4)]
        + [torch.randn(length, width).to(device) for _ in range(2)]
        for _ in range(layers)
    ]
    token = torch.tensor([3]).to(device)

    def step():
        nonlocal token
        x = embedding[token]
        for queries, keys, values, out, key_cache, value_cache in stack:
            key_cache[-1:] = x @ keys
            value_cache[-1:] = x @ values
            scores = ((x @ queries) @ key_cache.T / width**0.5).softmax(-1)
            x = nn.functional.layer_norm(x + scores @ value_cache @ out, (width,))
        token = (x @ head).argmax(-1)
        return token.cpu()

    return step


PROGRAMS = {
    "product of 64 x 64, read": _request,
    "training step 256-512-10, batch 32, loss read": _training_step,
    "decode, 6 layers of 384, 64 tokens, token read": _decode,
    "encoder, 4 layers of 256, batch of 2 x 32 uploaded, read": _encode,
}

@dataclass
class Setting:
    """The settings of a side that differ."""

    # Configuration of the worker, and of all processes of the cluster.
    worker_extra: str = ""
    extra: str = ""
    # Options of djinn.connect(), and variables of the program's environment.
    options: dict = field(default_factory=dict)
    environment: dict = field(default_factory=dict)


@dataclass
class Turn:
    """The number of calls in a turn, and the figure that stands for their times."""

    calls: int
    figure: str


class Side:
    """One of two programs that take turns, with a cluster of its own."""

    def __init__(self, setting, turn):
        self._folder = tempfile.TemporaryDirectory()
        self._cluster = Cluster(
            self._folder.name, ("worker",), extra=setting.extra,
            worker_extra=setting.worker_extra, programs="bazel-bin", log=subprocess.DEVNULL)
        self._program = subprocess.Popen(
            [sys.executable, "-m", "tests.bench.python.sides", self._cluster.coordinator,
             self._cluster.path("dev.token"), json.dumps(setting.options), str(turn.calls),
             turn.figure],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, **setting.environment})

    def turn(self, name):
        """Returns the seconds of a call, and the last result."""
        print(name, file=self._program.stdin, flush=True)
        answer = self._program.stdout.readline()
        if not answer:
            raise RuntimeError(f"the measured program ended with {self._program.wait()}")
        return json.loads(answer)

    def stop(self):
        self._program.stdin.close()
        self._program.stdout.close()
        self._program.wait()
        self._cluster.stop()
        self._folder.cleanup()


def compare(benchmark, pair, settings, turn, rounds):
    """Returns a row for each program, of the first setting beside the second one."""
    sides = []
    try:
        for setting in settings:
            sides.append(Side(setting, turn))
        return [_compare(Row(benchmark, f"{pair}: {name}"), name, sides, rounds)
                for name in PROGRAMS]
    finally:
        for side in sides:
            side.stop()


def _compare(row, name, sides, rounds):
    for turn in range(-_SETTLING_TURNS, rounds * _TURNS_PER_ROUND):
        # The order changes, so that neither side always follows the other.
        order = sides if turn % 2 else sides[::-1]
        answers = {side: side.turn(name) for side in order}
        times, results = zip(*(answers[side] for side in sides))
        if results[0] != results[1]:
            row.error = "results differ"
        if turn >= 0:
            row.djinn.append(times[0])
            row.local.append(times[1])
    row.checked = "results equal"
    return row


def _serve(coordinator, token_file, options, calls, figure):
    """Measures what its input asks for, line by line."""
    torch.set_num_threads(1)
    djinn.connect(coordinator, token_file=token_file, **json.loads(options))
    programs = {}
    for line in sys.stdin:
        name = line.strip()
        if name not in programs:
            torch.manual_seed(31)
            programs[name] = PROGRAMS[name](djinn.device())
        times = []
        for _ in range(int(calls)):
            begin = time.perf_counter()
            result = programs[name]()
            times.append(time.perf_counter() - begin)
        print(json.dumps([_FIGURES[figure](times), result.flatten().tolist()]), flush=True)
    djinn.close()


if __name__ == "__main__":
    _serve(*sys.argv[1:])
