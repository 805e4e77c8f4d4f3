"""Programs that run until they are told to stop, and then say what they computed.

    python -m tests.operating.rolling_programs NAME STEPS_FILE

runs the program NAME on the cluster of the environment. It writes the number of its steps
into STEPS_FILE. At the end of its standard input it stops, computes as many steps again in a
session of its own, and prints a JSON object: the number of steps, digests of the bytes of
both runs, and what the library counted in the first one. RunningPrograms starts them.
"""

import contextlib
import hashlib
import itertools
import json
import os
import signal
import subprocess
import sys
import threading

import torch
from torch import nn

import djinn
from tests.operating.cluster import PATIENCE, eventually

# Between two steps, in seconds: three programs and their workers share few cores.
_PAUSE = 0.03


def likeliest(logits):
    return logits.argmax(-1)


def decode(device, choose=likeliest):
    """Decodes tokens; the cache of keys and values is written in place, in a ring."""
    torch.manual_seed(21)
    width, most, words = 48, 64, 97
    embedding = torch.randn(words, width).to(device)
    projections = [torch.randn(width, width).to(device) / width**0.5 for _ in range(4)]
    head = torch.randn(width, words).to(device)
    keys = torch.zeros(most, width, device=device)
    values = torch.zeros(most, width, device=device)
    token = torch.tensor([3], device=device)
    for step in itertools.count():
        place = step % most
        filled = min(step + 1, most)
        x = embedding[token]
        query, key, value = (x @ weight for weight in projections[:3])
        keys[place : place + 1] = key
        values[place : place + 1] = value
        scores = (query @ keys[:filled].T / width**0.5).softmax(-1)
        x = x + (scores @ values[:filled]) @ projections[3]
        token = choose(x @ head)
        yield token.cpu(), x.cpu()


def training(device):
    """Returns a model with dropout, a function that gives a batch by its number, and one that
    trains the model on it by AdamW and returns the loss.
    """
    torch.manual_seed(23)
    model = nn.Sequential(
        nn.Linear(24, 48), nn.GELU(), nn.Dropout(0.2), nn.LayerNorm(48), nn.Linear(48, 5)
    ).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    inputs = torch.randn(8, 16, 24)
    labels = torch.randint(5, (8, 16))

    def batch(number):
        return inputs[number % 8].to(device), labels[number % 8].to(device)

    def step(batch_inputs, batch_labels):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(batch_inputs), batch_labels)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return model, batch, step


def train(device):
    """Trains, and reads each loss and a weight."""
    model, batch, step = training(device)
    for number in itertools.count():
        yield step(*batch(number)).cpu(), model[0].weight[0].detach().cpu()


def encoder(device):
    """Returns an encoder of two layers."""
    torch.manual_seed(22)
    layer = nn.TransformerEncoderLayer(128, 4, 256, batch_first=True)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval().to(device)


def encode(device):
    """Encodes batches, each of which is uploaded and read."""
    model = encoder(device)
    with torch.no_grad():
        while True:
            yield (model(torch.randn(2, 7, 128).to(device)).cpu(),)


PROGRAMS = {program.__name__: program for program in (decode, train, encode)}


class RunningPrograms:
    """Programs in processes of their own, on a cluster, while a test case disturbs them."""

    def __init__(self, case, cluster, log):
        self._case = case
        self._cluster = cluster
        self._log = log
        self._processes = {}

    def start(self, name, program, tenant="dev"):
        """Starts the program under a name, for the tenant."""
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.operating.rolling_programs", program,
             self._cluster.path(name + ".steps")],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True,
            env=self._cluster.environment(tenant))
        self._processes[name] = process
        self._case.addCleanup(process.stdout.close)
        self._case.addCleanup(process.wait, PATIENCE)
        self._case.addCleanup(process.kill)

    def await_steps(self, count):
        """Returns when each program has made so many more steps."""
        begun = {name: self._steps(name) for name in self._processes}
        for name, steps in begun.items():
            eventually(
                lambda name=name, steps=steps: self._steps(name) >= steps + count,
                name + " goes on")

    @contextlib.contextmanager
    def paused(self):
        """Suspends the programs' processes, at whatever step they are."""
        for process in self._processes.values():
            process.send_signal(signal.SIGSTOP)
        try:
            yield
        finally:
            for process in self._processes.values():
                process.send_signal(signal.SIGCONT)

    def finish(self, timeout=PATIENCE):
        """Stops the programs; returns what each of them says."""
        for process in self._processes.values():
            process.stdin.close()
            process.stdin = None
        found = {}
        for name, process in self._processes.items():
            output, _ = process.communicate(timeout=timeout)
            self._case.assertEqual(process.returncode, 0, name)
            found[name] = json.loads(output)
        print(json.dumps(found), flush=True)
        for name, result in found.items():
            self._case.assertEqual(result["root_errors"], 0, name)
            self._case.assertEqual(result["digest"], result["undisturbed"], name)
        return found

    def _steps(self, name):
        self._case.assertIsNone(self._processes[name].poll(), name + " ended")
        try:
            with open(self._cluster.path(name + ".steps")) as file:
                return int(file.read() or 0)
        except FileNotFoundError:
            return 0


@contextlib.contextmanager
def _session(program):
    djinn.connect(connect_timeout=100.0, program=program)
    try:
        yield
    finally:
        djinn.close()


def _run(program, ended, note):
    """Runs steps until `ended(count)`; returns their number and the digest of their bytes."""
    digest = hashlib.sha256()
    for count, results in enumerate(program(djinn.device()), 1):
        for result in results:
            digest.update(result.contiguous().numpy().tobytes())
        note(count)
        if ended(count):
            return count, digest.hexdigest()


def main(name, path):
    torch.set_num_threads(1)
    stop = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), stop.set()), daemon=True).start()
    steps = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)

    def note(count):
        os.pwrite(steps, b"%d" % count, 0)

    with _session(name):
        count, digest = _run(PROGRAMS[name], lambda _: stop.wait(_PAUSE), note)
        statistics = djinn.statistics()
    with _session(name + " undisturbed"):
        _, undisturbed = _run(PROGRAMS[name], lambda done: done == count, lambda _: None)
    print(json.dumps({
        "steps": count, "digest": digest, "undisturbed": undisturbed,
        "root_errors": statistics["root_errors"], "recoveries": statistics["recoveries"]}))


if __name__ == "__main__":
    main(*sys.argv[1:])
