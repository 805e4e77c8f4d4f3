"""Connections to workers outlive the sessions that made them."""

import os
import unittest.mock

import torch

import djinn
from tests.python.remote_case import RemoteCase


@unittest.mock.patch.dict(os.environ, DJINN_SHARED_MEMORY="0")
class ConnectionsTest(RemoteCase):
    def session(self):
        """The counters of one that moves more than fits into messages."""
        djinn.close()
        djinn.connect(self.cluster.coordinator, token_file=self.cluster.token_file)
        x = torch.arange(1 << 20, dtype=torch.float32)
        self.assert_same(x.to(self.device), x)
        return {
            event: djinn.statistics()["connections_" + event]
            for event in ("created", "reused", "closed", "failed")
        }

    def test_the_next_session_reuses_connections(self):
        # One connection for Control, and two for Bulk.
        self.assertEqual(
            self.session(), {"created": 3, "reused": 0, "closed": 0, "failed": 0}
        )
        self.assertEqual(
            self.session(), {"created": 0, "reused": 3, "closed": 0, "failed": 0}
        )
