"""Programs that make alerts fire, and panels of dashboards show something.

    python -m tests.operating.fault_programs NAME

runs the program NAME on the cluster of the environment. It makes a step for each line of its
standard input, and prints "done" after it.

The alert of mispredicted starts looks at the runs of all programs, so only the program that
is meant for it repeats a run before the worker forgets how long that takes.
"""

import itertools
import sys
import threading
import time

import torch

import djinn

# Seconds that a run of `block` takes. It is beyond the ten seconds of the alert.
_BLOCK = 18


def _values(size):
    return torch.full((size, size), 1 / size, device=djinn.device())


def fill():
    """Fills 96 % of a device of 64 MiB."""
    held = [torch.zeros(1 << 17, device=djinn.device()) for _ in range(123)]
    held[-1][:1].cpu()
    while True:
        yield


def thrash():
    """Uploads 10 MiB of new values to a device of 64 MiB, and drops them."""
    while True:
        torch.rand(10 << 18).to(djinn.device())[:1].cpu()
        yield


def be_late():
    """Makes a run that takes longer than its deadline."""
    values = _values(1500)
    djinn.set_urgency(run_deadline=0.01)
    while True:
        try:
            (values @ values)[0, 0].item()
        except djinn.Error as error:
            # The worker was busy with something else.
            if error.reason != "RUN_DEADLINE_EXCEEDED":
                raise
        yield


def block():
    """Begins a run of 18 seconds in one operator, whose length the worker cannot know."""
    def longer(values, took):
        """Values whose product takes as long as it should, by how long theirs took."""
        return _values(int(len(values) * (_BLOCK / took) ** (1 / 3)))

    def multiply(count):
        nonlocal took
        began = time.monotonic()
        value = (values @ values)[0, 0]
        # Each step is another graph.
        for _ in range(count):
            value = value.neg()
        value.item()
        took = time.monotonic() - began

    values, took = _values(1500), 0
    multiply(0)
    multiply(0)
    values = longer(values, took)
    for count in itertools.count(1):
        yield
        run = threading.Thread(target=multiply, args=(count,))
        run.start()
        yield
        run.join()
        # Other processes had the processor when it was measured.
        if not 0.8 < took / _BLOCK < 1.5:
            values = longer(values, took)


def wait_behind():
    """Makes runs whose length is known then, and in the next step waits with another one."""
    values = _values(8)

    def make():
        (values @ values).sum().item()

    for _ in range(3):
        make()
    while True:
        yield
        make()
        yield
        make()
        make()


def lose():
    """Has values that it cannot compute again; in its second step it has lost them."""
    djinn.connect(
        program="lose",
        recovery="replay",
        replay_memory=1 << 10,
        replay_disk=0,
        checkpoint_memory=0,
        resume_timeout=1.0,
    )
    values = torch.rand(1000, 1000).to(djinn.device())
    values = values @ values
    values[:1].cpu()
    yield
    try:
        (values + 1).cpu()
        raise AssertionError("the values were not lost")
    except djinn.Error:
        yield


def save():
    """Makes a checkpoint in each step."""
    djinn.connect(program="save", recovery="checkpoint")
    values = _values(100)
    # A checkpoint does not read back a value that a single message makes.
    values[:1].cpu()
    while True:
        values = values @ values
        djinn.checkpoint()
        yield


def come_and_go():
    """Works for seconds in a session of its own, and in the next step leaves."""
    while True:
        djinn.connect(program="come_and_go")
        values = _values(2500)
        product = values
        for _ in range(12):
            product = product @ values
        product[:1].cpu()
        yield
        del values, product
        try:
            djinn.close(5.0)
        except djinn.Error:
            # Its quota was taken back.
            pass
        yield


PROGRAMS = {program.__name__: program for program in (
    fill, thrash, be_late, block, wait_behind, lose, save, come_and_go)}


def main(name):
    torch.set_num_threads(1)
    steps = PROGRAMS[name]()
    for _ in sys.stdin:
        next(steps)
        print("done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
