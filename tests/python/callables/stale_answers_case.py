"""What tests share that change something a registered callable refers to."""

import unittest.mock

import torch

import djinn
from tests.python.remote_case import RemoteCase


class StaleAnswersCase(RemoteCase):
    def setUp(self):
        torch.manual_seed(3)

    def warm(self, function, *args):
        """Registered and executed again; `function` takes a tensor first."""
        compiled = djinn.compile(function)
        for _ in range(4):
            compiled(torch.randn(4).to(self.device), *args)
        self.assertGreater(compiled.statistics()["replays"], 0, compiled.statistics())
        return compiled

    def check(self, function, change, *args):
        """After `change` it is executed as a call of the function itself would be."""
        compiled = self.warm(function, *args)
        x = torch.randn(4)
        before = function(x, *args)
        change()
        expected = function(x, *args)
        self.assertFalse(torch.equal(before, expected), "the change changes nothing")
        for _ in range(3):
            torch.testing.assert_close(compiled(x.to(self.device), *args).cpu(), expected)

    def check_refused(self, function, why, *args):
        compiled = djinn.compile(function)
        for _ in range(4):
            compiled(torch.randn(4).to(self.device), *args)
        self.assertEqual(compiled.statistics()["replays"], 0)
        self.assertIn(why, compiled.statistics()["refusal"])

    def patch(self, owner, name, thing):
        patched = unittest.mock.patch.object(owner, name, thing, create=True)
        self.addCleanup(patched.stop)
        return patched.start
