"""Checks that registered callables notice a change of something that they refer to."""

import unittest.mock

import torch

import djinn
from tests.python.callables.registered_case import RegisteredCase


class StaleAnswersCase(RegisteredCase):
    def warm(self, function, *args):
        """Registers `function`, whose first argument is a tensor, and has calls replayed."""
        compiled = djinn.compile(function)
        for _ in range(4):
            compiled(torch.randn(4).to(self.device), *args)
        self.assertGreater(compiled.statistics()["replays"], 0, compiled.statistics())
        return compiled

    def check(self, function, change, *args):
        """Checks that calls after `change` return what the function itself does."""
        compiled = self.warm(function, *args)
        x = torch.randn(4)
        before = function(x, *args)
        change()
        expected = function(x, *args)
        self.assertFalse(torch.equal(before, expected), "the change changes nothing")
        for _ in range(3):
            torch.testing.assert_close(compiled(x.to(self.device), *args).cpu(), expected)

    def check_refused(self, function, why, *args):
        self.assertIn(why, self.refusal(function, self.on(4), *args))

    def patch(self, owner, name, thing):
        patched = unittest.mock.patch.object(owner, name, thing, create=True)
        self.addCleanup(patched.stop)
        return patched.start
