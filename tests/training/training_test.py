"""Training on the device gives the CPU's loss curve."""

import io

import torch

import djinn
from tests.python.remote_case import RemoteCase
from tests.training import programs

STEPS = 200


class TrainingTest(RemoteCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # As many threads as the worker's, so that sums have the same order.
        torch.set_num_threads(1)

    def test_loss_curves_are_the_cpus(self):
        for make in programs.PROGRAMS:
            with self.subTest(make.__name__):
                expected = programs.train(make("cpu"), STEPS)
                actual = programs.train(make(self.device), STEPS)
                self.assertEqual(actual, expected)
                # The model must have learned something; otherwise equal curves
                # show little.
                first, last = sum(expected[:20]), sum(expected[-20:])
                self.assertLess(last, 0.9 * first)
        self.assertEqual(djinn.root_errors(), [])
        self.assertEqual(djinn.synchronous_calls(), {})

    def test_autocast_trains_as_on_the_cpu(self):
        # The results are not equal bit for bit, because autocast computes other
        # operators in float32 on an accelerator than on a CPU.
        expected = programs.train(programs.ByteTransformer("cpu", autocast=True), STEPS)
        actual = programs.train(
            programs.ByteTransformer(self.device, autocast=True), STEPS)
        plain = programs.train(programs.ByteTransformer(self.device), 1)
        self.assertNotEqual(actual[0], plain[0])
        for start in range(0, STEPS, 20):
            there, here = (sum(losses[start:start + 20]) for losses in (actual, expected))
            self.assertLess(abs(there - here), 0.03 * here, f"from step {start}")

    def test_a_checkpoint_goes_on_where_it_was(self):
        whole = programs.ByteTransformer(self.device)
        losses = programs.train(whole, 30)

        begun = programs.ByteTransformer(self.device)
        programs.train(begun, 15)
        file = io.BytesIO()
        torch.save(
            {"model": begun.model.state_dict(),
             "optimizer": begun.optimizer.state_dict(),
             "schedule": begun.schedule.state_dict(),
             "generator": torch.get_device_module(self.device).get_rng_state()},
            file)
        file.seek(0)

        resumed = programs.ByteTransformer(self.device)
        state = torch.load(file, weights_only=True)
        self.assertEqual(state["model"]["norm.weight"].device, self.device)
        resumed.model.load_state_dict(state["model"])
        resumed.optimizer.load_state_dict(state["optimizer"])
        resumed.schedule.load_state_dict(state["schedule"])
        torch.get_device_module(self.device).set_rng_state(state["generator"])
        self.assertEqual(programs.train(resumed, 15, start=15), losses[15:])

    def test_a_checkpoint_moves_to_the_cpu_and_back(self):
        local = programs.Mlp("cpu")
        programs.train(local, 5)
        file = io.BytesIO()
        torch.save(local.model.state_dict(), file)
        file.seek(0)
        remote = programs.Mlp(self.device)
        remote.model.load_state_dict(torch.load(file, map_location=self.device))
        for name, value in local.model.state_dict().items():
            self.assert_same(remote.model.state_dict()[name], value)
