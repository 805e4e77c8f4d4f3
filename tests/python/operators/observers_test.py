"""Observers and fake quantisation of torch.ao.quantization: the CPU's bits and state."""

import copy
import warnings

import torch
from torch.ao import quantization

from tests.python.remote_case import RemoteCase

warnings.simplefilter("ignore")


def batches(count=3, size=(4, 6)):
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(*size, generator=generator) * (each + 1) for each in range(count)]


class ObserversTest(RemoteCase):
    def assert_same_state(self, remote, local):
        for (name, one), (_, other) in zip(
                remote.state_dict().items(), local.state_dict().items(), strict=True):
            with self.subTest(state=name):
                if isinstance(other, torch.Tensor):
                    self.assert_same(one, other)

    def check(self, module, size=(4, 6)):
        local, remote = module, copy.deepcopy(module).to(self.device)
        for batch in batches(size=size):
            self.assert_same(remote(batch.to(self.device)), local(batch))
            self.assert_same_state(remote, local)
        if hasattr(local, "calculate_qparams"):
            for one, other in zip(remote.calculate_qparams(), local.calculate_qparams(), strict=True):
                self.assert_same(one, other)

    def test_observers(self):
        for kind in (quantization.MinMaxObserver, quantization.MovingAverageMinMaxObserver,
                     quantization.PerChannelMinMaxObserver,
                     quantization.MovingAveragePerChannelMinMaxObserver):
            with self.subTest(kind.__name__):
                self.check(kind())

    def test_a_histogram(self):
        self.check(quantization.HistogramObserver(bins=16))

    def test_fake_quantisation(self):
        per_channel = {
            "observer": quantization.MovingAveragePerChannelMinMaxObserver, "dtype": torch.qint8,
            "quant_min": -128, "quant_max": 127, "qscheme": torch.per_channel_symmetric}
        for kind in (quantization.FakeQuantize, quantization.FusedMovingAvgObsFakeQuantize):
            # PyTorch's fused operator takes axis 0 only.
            axes = (0,) if kind is quantization.FusedMovingAvgObsFakeQuantize else (0, 1)
            for options in ({}, *({**per_channel, "ch_axis": axis} for axis in axes)):
                for size in ((4, 6), (4, 6, 3, 3)):
                    with self.subTest(kind.__name__, size=size, **options):
                        self.check(kind(**options), size)

    def test_an_observer_that_is_off_keeps_its_state(self):
        module = quantization.FusedMovingAvgObsFakeQuantize()
        module.disable_observer()
        self.check(module)

    def test_the_operator_gives_state_without_elements_its_sizes(self):
        for size in ((4, 6), (2, 5, 3)):
            for on in (1, 0):
                with self.subTest(size=size, on=on):
                    one, other = (self.observe(device, size, 0, on) for device in (self.device, "cpu"))
                    # PyTorch leaves scales and zero points unwritten while it does not quantise.
                    for left, right in list(zip(one, other, strict=True))[:3]:
                        self.assert_same(left, right)
                    self.assertEqual([each.shape for each in one], [each.shape for each in other])

    def test_the_operator_refuses_other_axes(self):
        for device in ("cpu", self.device):
            with self.assertRaisesRegex(RuntimeError, "only supported on axis == 0"):
                self.observe(device, (4, 6), 1, 1)[0].cpu()

    def observe(self, device, size, axis, on):
        """The operator's result and the state that it wrote."""
        state = [
            torch.tensor([], device=device), torch.tensor([], device=device),
            torch.ones(1, device=device), torch.zeros(1, dtype=torch.int32, device=device)]
        switches = [torch.tensor([each], device=device) for each in (on, 0)]
        result = torch.fused_moving_avg_obs_fake_quant(
            batches(size=size)[0].to(device), *switches, *state, 0.1, -128, 127, axis, True, False)
        return [result, *state]

    def test_quantisation_aware_training(self):
        torch.manual_seed(0)
        model = torch.nn.Sequential(
            torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(64, 5))
        model.qconfig = quantization.get_default_qat_qconfig("fbgemm")
        local = quantization.prepare_qat(model.train())
        remote = copy.deepcopy(local).to(self.device)
        for batch in batches(size=(2, 3, 6, 6)):
            gradients = []
            for each, device in ((local, "cpu"), (remote, self.device)):
                each.zero_grad()
                each(batch.to(device)).square().sum().backward()
                gradients.append([weight.grad for weight in each.parameters()])
                with torch.no_grad():
                    for weight in each.parameters():
                        weight -= 0.001 * weight.grad
            for one, other in zip(gradients[1], gradients[0], strict=True):
                self.assert_same(one, other)
        self.assert_same_state(remote, local)
