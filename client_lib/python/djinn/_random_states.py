"""Saves and restores the states of remote devices' default generators without reading them.

torch.manual_seed() seeds these generators, too. So code that restores the state of the CPU's after a
while, such as torch.random.fork_rng(), must restore theirs: a program then draws there what it would
draw on the CPU. A checkpointed layer repeats its draws in the backward pass.
"""

import contextlib
import functools

import torch

from djinn import _djinn

_NAME = torch._C._get_privateuse1_backend_name()


class SavedStates:
    """What the default generators of some devices continue from; restore() lets them do so.

    A state that only a worker knows stays there. So neither waits, and both may be captured.
    """

    def __init__(self, indices):
        self._indices = list(indices)
        self._saved = torch.ops.djinn_random.save(self._indices)

    def restore(self):
        torch.ops.djinn_random.restore(self._saved, self._indices)


@contextlib.contextmanager
def forked():
    """Restores the default generators of all devices at the end of the block."""
    saved = SavedStates(range(_djinn.device_count()))
    try:
        yield
    finally:
        saved.restore()


def teach_forks():
    """Replaces torch.random.fork_rng()."""
    original = torch.random.fork_rng

    @contextlib.contextmanager
    @functools.wraps(original)
    def fork_rng(devices=None, enabled=True, *args, device_type="cuda", **kwargs):
        if torch.device(device_type).type == _NAME:
            # All of these are restored, whichever the program names.
            devices, device_type = [], "cpu"
        others = original(devices, enabled, *args, device_type=device_type, **kwargs)
        with forked() if enabled else contextlib.nullcontext(), others:
            yield

    torch.random.fork_rng = fork_rng


def teach_checkpoint(module):
    """Changes `torch.utils.checkpoint`, which restores these states by set_rng_state() alone."""
    original = module.get_device_states

    @functools.wraps(original)
    def get_device_states(*args):
        if module._infer_device_type(*args) != _NAME:
            return original(*args)
        leaves = torch.utils._pytree.tree_leaves(args)
        indices = sorted({
            leaf.device.index
            for leaf in leaves
            if isinstance(leaf, torch.Tensor) and leaf.device.type == _NAME
        })
        return indices, [SavedStates([index]) for index in indices]

    module.get_device_states = get_device_states
