"""The bindings without a cluster: arguments, errors and their fields."""

import os
import pickle
import tempfile
import unittest

import torch

import djinn


class BindingsTest(unittest.TestCase):
    def assert_error(self, reason, code, function, *args, **kwargs):
        with self.assertRaises(djinn.Error) as raised:
            function(*args, **kwargs)
        self.assertEqual(raised.exception.reason, reason)
        self.assertEqual(raised.exception.code, code)
        return raised.exception

    def test_connect_without_a_coordinator_has_the_errors_fields(self):
        error = self.assert_error("NO_SESSION", "FAILED_PRECONDITION", djinn.connect)
        self.assertIn("djinn.connect()", str(error))
        self.assertEqual(error.error_id, "")
        self.assertIsNone(error.retry_after)
        copy = pickle.loads(pickle.dumps(error))
        self.assertEqual((str(copy), copy.reason, copy.code), (str(error), error.reason, error.code))

    def test_connect_without_a_token(self):
        self.assert_error("NO_TOKEN", "FAILED_PRECONDITION", djinn.connect, "unix:/coordinator")

    def test_connect_with_a_missing_token_file_names_it(self):
        error = self.assert_error(
            "SECRET_FILE", "FAILED_PRECONDITION", djinn.connect, "unix:/coordinator",
            token_file="/no-such-token")
        self.assertIn("/no-such-token", str(error))

    def test_connect_to_a_malformed_address(self):
        self.assert_error(
            "MALFORMED_ADDRESS", "INVALID_ARGUMENT", djinn.connect, "coordinator", token="token")

    def test_connect_gives_up_after_its_timeout(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assert_error(
                "COORDINATOR_UNREACHABLE", "UNAVAILABLE", djinn.connect,
                "unix:" + os.path.join(folder, "socket"), token="token", connect_timeout=0.0)
        self.assertFalse(djinn.is_connected())

    def test_options_have_types_names_and_ranges(self):
        with self.assertRaisesRegex(ValueError, "urgent"):
            djinn.connect("unix:/coordinator", token="token", priority="urgent")
        with self.assertRaises(TypeError):
            djinn.connect("unix:/coordinator", tokens="token")
        with self.assertRaisesRegex(TypeError, "no option tokens"):
            djinn._djinn.connect(tokens="token")
        with self.assertRaises(RuntimeError):
            djinn._djinn.connect(coordinator=7)
        self.assert_error(
            "BAD_DEVICE_WORKERS", "INVALID_ARGUMENT", djinn.connect, "unix:/coordinator",
            token="token", device_workers={0: 99})
        self.assert_error("BAD_URGENCY", "INVALID_ARGUMENT", djinn.set_urgency, "batch", -1.0)

    def test_without_a_session_calls_raise_and_counters_are_zero(self):
        for call in (djinn.synchronize, djinn.where_is, lambda: djinn.export_graph(lambda: None),
                     djinn.set_urgency, lambda: torch.ones(2, device=djinn.device())):
            self.assert_error("NO_SESSION", "FAILED_PRECONDITION", call)
        self.assertEqual(set(djinn.statistics().values()), {0})
        self.assertEqual(djinn.root_errors(), [])
        djinn.close()

    def test_a_read_needs_a_remote_tensor(self):
        error = self.assert_error(
            "NOT_REMOTE", "INVALID_ARGUMENT", djinn.read_async, torch.ones(2))
        self.assertIn("cpu", str(error))

    def test_names_that_do_not_exist(self):
        with self.assertRaisesRegex(ValueError, "quick"):
            djinn.set_execution_mode("quick")
        with self.assertRaises(ValueError):
            djinn.set_debug_level("everything")
        with self.assertRaises(ValueError):
            djinn.signal_phase("dreaming")
        with self.assertRaisesRegex(TypeError, "needs a callable"):
            djinn.compile(7)
        with self.assertRaisesRegex(TypeError, "torch.nn.Module"):
            djinn.register_model(len)

    def test_modes_and_phases_return_what_was_set(self):
        djinn.set_execution_mode("fast")
        self.assertEqual(djinn.execution_mode(), "fast")
        djinn.set_execution_mode("strict")
        self.assertEqual(djinn.signal_phase("training"), "unknown")
        with djinn.phase("llm_decode"):
            self.assertEqual(djinn.signal_phase("llm_decode"), "llm_decode")
        self.assertEqual(djinn.signal_phase("unknown"), "training")

    def test_costs_and_profiles_before_their_block(self):
        with self.assertRaisesRegex(RuntimeError, "enter the block"):
            djinn.cost().runs
        with self.assertRaisesRegex(RuntimeError, "leave the block"):
            djinn.profile().operators
        with djinn.profile() as profile:
            self.assert_error("PROFILE_RUNNING", "FAILED_PRECONDITION", djinn.profile().__enter__)
        self.assertEqual(profile.operators, [])

    def test_devices_beyond_the_last_one(self):
        self.assertEqual(torch.remote_accelerator.device_count(), 16)
        with self.assertRaisesRegex(ValueError, "there is no device .*:16"):
            torch.remote_accelerator.get_rng_state(16)
        with self.assertRaisesRegex(RuntimeError, "no device .*:99"):
            torch.remote_accelerator.set_device(99)


if __name__ == "__main__":
    unittest.main()
