"""Programs that move metrics.

    python -m tests.operating.metric_programs

runs programs on the cluster of the environment, one after another. A line of its standard input
with a program's name begins a session of that program and makes its first step, "step" makes
the next one, and "end" ends the session. It prints "done" after each.
"""

import sys

import torch
from torch import nn

import djinn
from tests.operating import fault_programs

_PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
_MIB = 1 << 18  # floats


def generate():
    """Reads a prompt and twelve tokens in each step. Keys and values are written into caches."""
    torch.manual_seed(31)
    width, heads, prompt, most = 64, 4, 12, 24
    device = djinn.device()
    weights = [(torch.randn(width, width) / width**0.5).to(device) for _ in range(4)]

    def attend(x, begin, keys, values):
        def split(weight):
            return (x @ weight).view(1, -1, heads, width // heads).transpose(1, 2)

        places = torch.arange(begin, begin + x.shape[1])
        mask = (torch.arange(most) <= places[:, None]).to(device)
        places = places.to(device)
        query, key, value = map(split, weights[:3])
        keys.index_copy_(2, places, key)
        values.index_copy_(2, places, value)
        x = nn.functional.scaled_dot_product_attention(query, keys, values, attn_mask=mask)
        return x.transpose(1, 2).reshape(1, -1, width) @ weights[3]

    while True:
        keys, values = (torch.zeros(1, heads, most, width // heads, device=device)
                        for _ in range(2))
        with djinn.trace(_PARENT), torch.no_grad(), djinn.phase("llm_prefill"):
            x = attend(torch.randn(1, prompt, width).to(device), 0, keys, values)[:, -1:]
            x.cpu()
        with torch.no_grad(), djinn.phase("llm_decode"):
            for place in range(prompt, most):
                x = attend(x, place, keys, values)
                x.cpu()
        yield


def overwrite():
    """Writes into values that it uploaded, whose bytes the worker keeps as well."""
    values = torch.arange(_MIB, dtype=torch.float).to(djinn.device())
    values[:1].cpu()
    values.add_(1)
    values[:1].cpu()
    yield


class _Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, width)

    def forward(self, x):
        return self.layer(x).relu()


def register():
    """Registers a model, and in the second step asks for another one."""
    models = []
    for width in (16, 24):
        models.append(djinn.compile(_Model(width).to(djinn.device())))
        with torch.no_grad():
            for _ in range(6):
                models[-1](torch.randn(3, width).to(djinn.device())).cpu()
        yield


def share():
    """Uploads what another tenant uploads, too."""
    torch.manual_seed(32)
    values = torch.rand(3 * _MIB).to(djinn.device())
    values[:1].cpu()
    yield
    values.sum().item()
    yield


def fill():
    """Fills nine tenths of a device of 64 MiB, and then uploads what is new."""
    held = torch.zeros(58 * _MIB, device=djinn.device())
    # Its spans go to a collector that is not there.
    with djinn.trace(_PARENT):
        held[:1].cpu()
    yield
    del held
    while True:
        torch.rand(10 * _MIB).to(djinn.device())[:1].cpu()
        yield


def recover():
    """Computes with values that it can compute again."""
    values = torch.rand(300, 300).to(djinn.device())
    while True:
        values = values @ values / 300
        values[:1].cpu()
        yield


def keep():
    """Makes a checkpoint in each step."""
    values = torch.rand(300, 300).to(djinn.device())
    while True:
        values = values @ values / 300
        djinn.checkpoint()
        values[:1].cpu()
        yield


def borrow():
    """Works for a fraction of a second or more."""
    values = torch.full((1000, 1000), 1 / 1000, device=djinn.device())
    product = values
    while True:
        for _ in range(12):
            product = product @ values
        product[:1].cpu()
        yield


def hog():
    """Makes a turn of some ten seconds in each step but the first."""
    values = torch.full((1600, 1600), 1 / 1600, device=djinn.device())
    values[:1].cpu()
    yield
    while True:
        product = values
        for _ in range(96):
            product = product @ values
        product[:1].cpu()
        yield


PROGRAMS = {program.__name__: program for program in (
    generate, overwrite, register, share, fill, fault_programs.be_late, recover, keep, borrow,
    hog)}


# Options of their sessions.
_OPTIONS = {
    "recover": {"recovery": "replay", "resume_timeout": 1.0},
    "keep": {"recovery": "checkpoint"},
}


def main():
    torch.set_num_threads(1)
    print("ready", flush=True)
    steps = None
    for line in sys.stdin:
        command = line.strip()
        if command in PROGRAMS:
            djinn.connect(program=command, connect_timeout=100.0, **_OPTIONS.get(command, {}))
            steps = PROGRAMS[command]()
        if command == "end":
            steps.close()
            steps = None
            djinn.close()
        else:
            next(steps)
        print("done", flush=True)


if __name__ == "__main__":
    main()
