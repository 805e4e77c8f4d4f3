"""Makes the checkpoints of libraries contain the states of the devices' random generators.

accelerate, and transformers' Trainer, store the generators of the CPU and of devices that they know
by name. Without those of remote devices, a training that goes on from a checkpoint would draw other
numbers than one that was never interrupted.
"""

import functools
import os
import sys

import torch

from djinn import _device_module

_NAME = torch._C._get_privateuse1_backend_name()


def teach_trainer(module):
    """Changes `transformers.trainer`."""
    kind = module.Trainer
    save, load = kind._save_rng_state, kind._load_rng_state

    @functools.wraps(save)
    def _save_rng_state(self, output_dir):
        save(self, output_dir)
        _save(output_dir, self.args.device)

    @functools.wraps(load)
    def _load_rng_state(self, checkpoint):
        load(self, checkpoint)
        _load(checkpoint, self.args.device)

    kind._save_rng_state, kind._load_rng_state = _save_rng_state, _load_rng_state


def teach_accelerate(module):
    """Changes `accelerate.checkpointing`."""
    save, load = module.save_accelerator_state, module.load_accelerator_state

    @functools.wraps(save)
    def save_accelerator_state(output_dir, *args, **kwargs):
        result = save(output_dir, *args, **kwargs)
        _save(output_dir, _device_of_accelerate())
        return result

    @functools.wraps(load)
    def load_accelerator_state(input_dir, *args, **kwargs):
        result = load(input_dir, *args, **kwargs)
        _load(input_dir, _device_of_accelerate())
        return result

    # A program may have imported accelerate, and with it these names, before djinn.
    for one in filter(None, (module, sys.modules.get("accelerate.accelerator"))):
        one.save_accelerator_state = save_accelerator_state
        one.load_accelerator_state = load_accelerator_state


def _device_of_accelerate():
    return sys.modules["accelerate.state"].PartialState._shared_state.get("device")


def _file():
    # The libraries' own files of generators have the number of the process, too.
    return f"{_NAME}_rng_state_{os.environ.get('RANK', '0')}.pth"


def _save(folder, device):
    if device is not None and device.type == _NAME:
        torch.save(_device_module.get_rng_state_all(), os.path.join(folder, _file()))


def _load(folder, device):
    path = folder and os.path.join(folder, _file())
    # Older checkpoints, and those of other devices, have no such file.
    if path and device is not None and device.type == _NAME and os.path.isfile(path):
        states = torch.load(path, weights_only=True)
        _device_module.set_rng_state_all(states[: _device_module.device_count()])
