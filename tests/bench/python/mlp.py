"""A training step of a small network, its loss read every time."""

import time
import statistics

import torch
from torch import nn

import djinn
from tests.bench.python.report import Row, worst

STEPS = 50


class Trainer:
    def __init__(self, device, registered=False):
        torch.manual_seed(0)
        self._device = device
        self._model = nn.Sequential(
            nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10)).to(device)
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=0.05)
        self._step = djinn.compile(self._train_on) if registered else self._train_on

    def _train_on(self, inputs, labels):
        loss = nn.functional.cross_entropy(self._model(inputs), labels)
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()
        return loss.detach()

    def replays(self):
        return self._step.statistics()["replays"]

    def refusal(self):
        return self._step.statistics()["refusal"]

    def train(self, number):
        """The median step's seconds, and all losses; other examples in every step."""
        generator = torch.Generator().manual_seed(100 + number)
        spent, losses = [], []
        for _ in range(STEPS):
            inputs = torch.randn(8, 784, generator=generator)
            labels = torch.randint(10, (8,), generator=generator)
            begin = time.perf_counter()
            loss = self._step(inputs.to(self._device), labels.to(self._device))
            losses.append(loss.item())
            spent.append(time.perf_counter() - begin)
        return statistics.median(spent), losses


def measure(device, local_device, rounds):
    if local_device != "cpu":
        raise NotImplementedError("PyTorch takes no gradients on a local GPU in a process "
                                  "that has Djinn's device: docs/user/limits.md")
    rows = []
    for mode in ("strict", "fast"):
        djinn.set_execution_mode(mode)
        for registered in (False, True):
            rows.append(_measure(device, rounds, mode, registered))
    djinn.set_execution_mode("strict")
    return rows


def _measure(device, rounds, mode, registered):
    how = "registered, " if registered else ""
    row = Row("python_mlp_step", f"784-128-10, batch 8, loss read, {how}{mode}")
    local, remote = Trainer("cpu"), Trainer(device, registered)
    largest = 0.0
    for number in range(-1, rounds):
        djinn_seconds, actual = remote.train(number)
        local_seconds, expected = local.train(number)
        largest = worst(largest, *(abs(a - b) for a, b in zip(actual, expected)))
        if number >= 0:
            row.djinn.append(djinn_seconds)
            row.local.append(local_seconds)
    row.checked = f"losses within {largest:.1g}"
    if not largest <= 1e-5:
        row.error = f"losses differ by {largest:.3g}"
    elif registered and not remote.replays():
        row.error = f"not executed again: {remote.refusal()}"
    return row
