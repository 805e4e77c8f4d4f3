"""Calls registered callables, and checks whether calls are replayed."""

import torch

import djinn
from tests.python.remote_case import RemoteCase


class RegisteredCase(RemoteCase):
    def setUp(self):
        torch.manual_seed(3)

    def on(self, *sizes):
        return torch.randn(*sizes).to(self.device)

    def warm(self, compiled, *args, times=4):
        """Calls it often enough to be replayed, with other tensors each time."""
        for _ in range(times):
            compiled(*[arg.detach().clone() for arg in args])
        return compiled(*args)

    def assert_replays(self, compiled, *args):
        before = compiled.statistics()["replays"]
        result = compiled(*args)
        self.assertEqual(compiled.statistics()["replays"], before + 1, compiled.statistics())
        return result

    def assert_no_replay(self, compiled, *args):
        before = compiled.statistics()["replays"]
        result = compiled(*args)
        self.assertEqual(compiled.statistics()["replays"], before)
        return result

    def refusal(self, function, *args):
        """Returns why calls of the function are not replayed."""
        compiled = djinn.compile(function)
        for _ in range(3):
            compiled(*args)
        self.assertEqual(compiled.statistics()["replays"], 0)
        return compiled.statistics()["refusal"]
