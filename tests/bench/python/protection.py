"""The cost of protection: walls between tenants, and recovery from lost workers.

Each row sets one kind of protection beside the same program without it. Both run in
processes of their own, on workers of their own with one thread, and take turns. The columns
"Djinn" and "local" hold the protected and the unprotected program.
"""

import json
import subprocess
import sys
import tempfile
import time

import torch
from torch import nn

import djinn
from tests.bench.python.report import Row
from tests.operating.cluster import Cluster

# Calls in a turn. The shortest one is the turn's figure.
_CALLS = 8
# Turns before the measured ones: plans are compiled, memory is allocated.
_SETTLING_TURNS = 3
# More turns than other benchmarks have rounds, because small differences are asked for.
_TURNS_PER_ROUND = 12


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


_PROGRAMS = {
    "product of 64 x 64, read": _request,
    "training step 256-512-10, batch 32, loss read": _training_step,
    "decode, 6 layers of 384, 64 tokens, token read": _decode,
}

# Name, with protection, without it. Each side has configuration of the worker and options of
# djinn.connect().
_PAIRS = (
    ("walls", ("isolation: {mode: process}\n", {}), ("isolation: {mode: shared}\n", {})),
    ("replay", ("", {"recovery": "replay"}), ("", {"recovery": "off"})),
    ("checkpoint", ("", {"recovery": "checkpoint"}), ("", {"recovery": "off"})),
)


def _serve(coordinator, token_file, options):
    """Measures what its input asks for, line by line."""
    torch.set_num_threads(1)
    djinn.connect(coordinator, token_file=token_file, **options)
    programs = {}
    for line in sys.stdin:
        name = line.strip()
        if name not in programs:
            torch.manual_seed(31)
            programs[name] = _PROGRAMS[name](djinn.device())
        times = []
        for _ in range(_CALLS):
            begin = time.perf_counter()
            result = programs[name]()
            times.append(time.perf_counter() - begin)
        print(json.dumps([min(times), result.flatten().tolist()]), flush=True)
    djinn.close()


class _Side:
    """One of two programs that take turns, with a cluster of its own."""

    def __init__(self, worker_extra, options):
        self._folder = tempfile.TemporaryDirectory()
        self._cluster = Cluster(
            self._folder.name, ("worker",), worker_extra=worker_extra, programs="bazel-bin",
            log=subprocess.DEVNULL)
        self._program = subprocess.Popen(
            [sys.executable, "-m", "tests.bench.python.protection", self._cluster.coordinator,
             self._cluster.path("dev.token"), json.dumps(options)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def turn(self, name):
        """Returns the seconds of the shortest call, and the last result."""
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


def measure(device, local_device, rounds):
    if local_device != "cpu":
        raise NotImplementedError("the workers of this benchmark have CPUs")
    rows = []
    for pair, *configurations in _PAIRS:
        sides = [_Side(*configuration) for configuration in configurations]
        try:
            for name in _PROGRAMS:
                rows.append(_measure(f"{pair}: {name}", name, sides, rounds))
        finally:
            for side in sides:
                side.stop()
    return rows


def _measure(variant, name, sides, rounds):
    row = Row("python_protection", variant)
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


if __name__ == "__main__":
    _serve(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))
