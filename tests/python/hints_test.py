"""Phases and urgency: what a program says that changes no result."""

import threading

import torch

import djinn
from tests.python.remote_case import RemoteCase


class PhasesTest(RemoteCase):
    def test_phases_nest_and_are_the_threads(self):
        with djinn.phase("llm_prefill"):
            with djinn.phase("llm_decode"):
                self.assertEqual(djinn.signal_phase("training"), "llm_decode")
            other = []
            thread = threading.Thread(target=lambda: other.append(djinn.signal_phase("forward")))
            thread.start()
            thread.join()
            self.assertEqual(other, ["unknown"])
            self.assertEqual(djinn.signal_phase("llm_prefill"), "llm_prefill")
        self.assertEqual(djinn.signal_phase("unknown"), "unknown")

    def test_unknown_phases_are_refused(self):
        with self.assertRaisesRegex(ValueError, "must be one of unknown, forward, llm_prefill"):
            djinn.signal_phase("lunch")

    def test_no_result_changes(self):
        x = torch.randn(4, 4)
        remote = x.to(self.device)
        with djinn.phase("llm_decode"):
            self.assert_same(remote @ remote + 1, x @ x + 1)


class UrgencyTest(RemoteCase):
    def test_urgencies_nest(self):
        usual = djinn.Urgency("default", None)
        with djinn.urgency("batch", run_deadline=60.0):
            self.assertEqual(djinn.set_urgency("realtime"), djinn.Urgency("batch", 60.0))
        self.assertEqual(djinn.set_urgency(), usual)
        x = torch.randn(4, 4)
        with djinn.urgency("batch"):
            self.assert_same(x.to(self.device) @ x.to(self.device), x @ x)

    def test_invalid_urgencies_are_refused_and_change_nothing(self):
        with self.assertRaisesRegex(ValueError, "must be one of default, batch, "
                                    "interactive, realtime"):
            djinn.set_urgency("soon")
        with self.assertRaisesRegex(djinn.Error, "run_deadline must be positive, got -1s"):
            djinn.set_urgency("batch", -1.0)
        self.assertEqual(djinn.set_urgency(), djinn.Urgency())

    def test_a_run_that_begins_too_late_fails_by_name(self):
        where = dict(coordinator=self.cluster.coordinator, token_file=self.cluster.token_file)
        djinn.close()
        try:
            # No run can begin within a nanosecond.
            djinn.connect(**where, priority="realtime", run_deadline=1e-9)
            late = torch.ones(4).to(self.device) + 1
            with self.assertRaises(djinn.Error) as raised:
                late.cpu()
            self.assertEqual(raised.exception.code, "DEADLINE_EXCEEDED")
            self.assertEqual(raised.exception.reason, "RUN_DEADLINE_EXCEEDED")
        finally:
            try:
                djinn.close()
            except djinn.Error:
                pass  # says so again
            djinn.connect(**where)

