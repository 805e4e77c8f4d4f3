"""The pause of a program whose worker is killed: from the kill to the next token.

A program in a process of its own decodes with a cache that grows in place, and reads each
token. Again and again, the worker that serves it is killed at a random moment and started
anew once another one has taken over. The tokens must be those of the same requests before
the first kill.

The columns "Djinn" and "local" hold the pause, and the device time that the next worker
spent from the kill until the next token, which is that of the replay.
"""

import json
import math
import random
import re
import signal
import subprocess
import sys
import tempfile
import time

import torch

import djinn
from tests.bench.python.report import Row, seconds
from tests.operating.cluster import Cluster, eventually

# With fewer, a program would wait for the start of the killed worker.
_WORKERS = ("w0", "w1", "w2")
_KILLS_PER_ROUND = 12
_SEED = 41
# A request: a prompt, and the tokens decoded behind it.
_PROMPT, _TOKENS, _PROMPTS = 64, 256, 4
_LAYERS, _WIDTH, _WORDS = 4, 384, 1000
# A kill comes up to this long after the token before it, which is about the time of a token.
_LATEST = 0.004

# Name and options of djinn.connect().
_MODES = (
    ("checkpoints", {"recovery": "checkpoint", "replay_time": 0.25}),
    ("replay alone", {"recovery": "replay"}),
)
# Seconds: the aims for checkpoints, and for replay alone beside the replayed device time.
_AIM_P50, _AIM_P99 = 0.3, 1.0
_AIM_RATIO, _AIM_ADDED = 1.2, 0.5


class _Decoder:
    """Four layers of a transformer with caches of keys and values."""

    def __init__(self, device):
        torch.manual_seed(31)
        self._device = device
        self._embedding = self._weight(_WORDS, _WIDTH)
        self._head = self._weight(_WIDTH, _WORDS)
        self._layers = [
            [self._weight(_WIDTH, _WIDTH) for _ in range(4)]
            + [self._weight(_WIDTH, 4 * _WIDTH), self._weight(4 * _WIDTH, _WIDTH)]
            for _ in range(_LAYERS)
        ]

    def _weight(self, rows, columns):
        return (torch.randn(rows, columns) / rows**0.5).to(self._device)

    def tokens(self, prompt):
        """Yields the tokens behind a prompt, one by one."""
        generator = torch.Generator().manual_seed(prompt)
        token = torch.randint(_WORDS, (_PROMPT,), generator=generator).to(self._device)
        caches = [
            torch.zeros(2, _PROMPT + _TOKENS, _WIDTH, device=self._device)
            for _ in self._layers
        ]
        end = 0
        for _ in range(_TOKENS):
            begin, end = end, end + len(token)
            token = self._step(token, caches, begin, end)
            yield token.item()

    def _step(self, token, caches, begin, end):
        x = self._embedding[token]
        mask = torch.ones(end - begin, end).tril(begin).log().to(self._device)
        for weights, cache in zip(self._layers, caches):
            queries, keys, values, out, up, down = weights
            normal = torch.nn.functional.layer_norm(x, (_WIDTH,))
            cache[0, begin:end] = normal @ keys
            cache[1, begin:end] = normal @ values
            scores = normal @ queries @ cache[0, :end].T / _WIDTH**0.5 + mask
            x = x + scores.softmax(-1) @ cache[1, :end] @ out
            x = x + torch.relu(torch.nn.functional.layer_norm(x, (_WIDTH,)) @ up) @ down
        return (x[-1:] @ self._head).argmax(-1)


def _serve(coordinator, token_file, options):
    """Decodes one request after the other until its input ends.

    Writes a line for each token. After a recovery, it waits for a line of input.
    """
    torch.set_num_threads(1)
    djinn.connect(coordinator, token_file=token_file, **options)
    decoder = _Decoder(djinn.device())
    recoveries, request = 0, 0
    while True:
        prompt = request % _PROMPTS
        for position, token in enumerate(decoder.tokens(prompt)):
            now = time.monotonic()
            before, recoveries = recoveries, djinn.statistics()["recoveries"]
            print(json.dumps([now, request, position, token, recoveries,
                              djinn.where_is(0).worker_id]), flush=True)
            if recoveries > before and not sys.stdin.readline():
                djinn.close()
                return
        request += 1


class _Program:
    """A decoding program, with a cluster of its own whose workers can be killed."""

    def __init__(self, options):
        self._folder = tempfile.TemporaryDirectory()
        self.cluster = Cluster(
            self._folder.name, _WORKERS, extra="monitoring: {listen: '127.0.0.1:0'}\n",
            programs="bazel-bin", log=subprocess.DEVNULL)
        self._program = subprocess.Popen(
            [sys.executable, "-m", "tests.bench.python.recovery", self.cluster.coordinator,
             self.cluster.path("dev.token"), json.dumps(options)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        # The tokens of each prompt, as they were before the first kill.
        self._expected = [[] for _ in range(_PROMPTS)]
        self.wrong = 0

    def next(self):
        """Returns moment, request, recoveries and worker of the next token."""
        line = self._program.stdout.readline()
        if not line:
            raise RuntimeError(f"the measured program ended with {self._program.wait()}")
        moment, request, position, token, recoveries, worker = json.loads(line)
        expected = self._expected[request % _PROMPTS]
        if request < _PROMPTS:
            expected.append(token)
        elif expected[position] != token:
            self.wrong += 1
        return moment, request, recoveries, worker

    def go_on(self):
        print(file=self._program.stdin, flush=True)

    def device_time(self, worker):
        """Returns the seconds that the worker's device has computed."""
        return self._sum(worker, "djinn_worker_device_busy_seconds_total")

    def _sum(self, process, family, *labels):
        status, text = self.cluster.http(process, "metrics")
        assert status == 200, text
        return sum(
            float(line.rsplit(" ", 1)[1])
            for line in text.splitlines()
            if re.match(family + r"[ {]", line) and all(label in line for label in labels))

    def stages(self):
        """Returns the mean seconds of the stages of a recovery, as the coordinator has them."""
        family = "djinn_recovery_duration_seconds"
        means = {}
        for stage in ("total", "lease", "connect", "send", "replay"):
            labels = ('kind="device_rebound"', f'stage="{stage}"')
            count = self._sum("coordinator", family + "_count", *labels)
            if count:
                means[stage] = self._sum("coordinator", family + "_sum", *labels) / count
        return means

    def stop(self):
        self._program.stdin.close()
        self._program.kill()
        self._program.stdout.close()
        self._program.wait()
        self.cluster.stop()
        self._folder.cleanup()


def measure(device, local_device, rounds):
    if local_device != "cpu":
        raise NotImplementedError("the workers of this benchmark have CPUs")
    return [_measure(name, options, rounds * _KILLS_PER_ROUND) for name, options in _MODES]


def _measure(mode, options, kills):
    row = Row("recovery", f"{mode}: kill to next token, {_LAYERS} layers of {_WIDTH}")
    draw = random.Random(_SEED)
    program = _Program(options)
    try:
        request = 0
        while request < _PROMPTS:
            _, request, recoveries, _ = program.next()
        if recoveries:
            raise RuntimeError("a worker was lost before the first kill")
        for _ in range(kills):
            pause, device_time = _kill(program, draw)
            row.djinn.append(pause)
            row.local.append(device_time)
        row.notes = _notes(row, mode, program.stages())
    finally:
        program.stop()
    row.checked = f"tokens equal, {kills} kills"
    if program.wrong:
        row.error = f"{program.wrong} tokens differ from those without a kill"
    return row


def _kill(program, draw):
    """Kills the worker at a random moment; returns the pause and the next worker's device time."""
    for _ in range(draw.randrange(10, _TOKENS)):
        _, _, before, worker = program.next()
    idle = {name: program.device_time(name) for name in _WORKERS if name != worker}
    time.sleep(draw.uniform(0, _LATEST))
    killed = time.monotonic()
    program.cluster.end(worker, signal.SIGKILL)
    recoveries = before
    while recoveries == before:
        moment, _, recoveries, successor = program.next()
    if successor == worker or recoveries != before + 1:
        raise RuntimeError(f"after {worker}, {successor} took over by {recoveries - before}")
    spent = program.device_time(successor) - idle[successor]
    program.cluster.start(worker)
    eventually(lambda: program.cluster.http(worker, "readyz")[0] == 200, f"{worker} is ready")
    program.go_on()
    return moment - killed, spent


def _percentile(values, share):
    """The smallest value that is at least as large as this share of them."""
    return sorted(values)[math.ceil(share * len(values)) - 1]


def _notes(row, mode, stages):
    p50, p99 = (_percentile(row.djinn, share) for share in (0.5, 0.99))
    notes = [f"p50 {seconds(p50)}, p99 {seconds(p99)}, longest {seconds(max(row.djinn))}"]
    if mode == "checkpoints":
        notes[0] += f" (aim {_AIM_P50} s, {_AIM_P99} s)"
    else:
        within = sum(pause <= _AIM_RATIO * device_time + _AIM_ADDED
                     for pause, device_time in zip(row.djinn, row.local))
        notes[0] += (f"; {within} of {len(row.djinn)} within {_AIM_RATIO} x device time "
                     f"+ {_AIM_ADDED} s")
    notes.append("means of the coordinator's stages: " + ", ".join(
        f"{stage} {seconds(mean)}" for stage, mean in stages.items()))
    return notes


if __name__ == "__main__":
    _serve(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))
