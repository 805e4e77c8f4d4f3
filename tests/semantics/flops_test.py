"""Operations as the coordinator counts them, beside PyTorch's own counter."""

import unittest

import torch
import transformers
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

import djinn
from tests.hugging_face import models
from tests.semantics.capture import Graphs
from tests.semantics.networks import Autoencoder

transformers.logging.set_verbosity_error()

DJINNCTL = "coordinator/ctl/djinnctl"

# The operators that PyTorch's counter counts.
_COUNTED = ("linear", "mm", "addmm", "bmm", "baddbmm", "matmul", "conv", "_convolution",
            "scaled_dot_product", "_scaled_dot_product")

# PyTorch's counter has the formula for attention, but does not apply the
# formula to the CPU's kernel.
_CPU_ATTENTION = {
    torch.ops.aten._scaled_dot_product_flash_attention_for_cpu:
        lambda q, k, v, *args, **kwargs: sdpa_flop_count(q, k, v),
}


def _is_counted(node):
    name = node["operator_name"].removeprefix("aten::")
    return name.startswith(_COUNTED)


class FlopsTest(unittest.TestCase):
    def setUp(self):
        # A graph is listed once, however often it ran. Each program therefore
        # runs once, in a cluster of its own.
        self.cluster = self.enterContext(djinn.local(workers=1, worker_threads=1))
        self.graphs = Graphs(DJINNCTL, self.cluster)

    def _compare(self, make, use):
        torch.manual_seed(0)
        with FlopCounterMode(display=False, custom_mapping=_CPU_ATTENTION) as counter:
            use(make(), "cpu")
        torch.manual_seed(0)
        use(make().to(djinn.device()), djinn.device())
        djinn.synchronize()
        found = 0
        for fingerprint in self.graphs.fingerprints():
            graph = self.graphs.get(fingerprint)
            self.assertEqual(len(graph["nodes"]), len(graph["meaning"]["nodes"]))
            found += sum(
                int(meaning["cost"]["flops"])
                for node, meaning in zip(graph["nodes"], graph["meaning"]["nodes"])
                if _is_counted(node))
        self.assertGreater(counter.get_total_flops(), 0)
        self.assertEqual(found, counter.get_total_flops())

    def _forward(self, family):
        def use(model, device):
            with torch.no_grad():
                model(**{name: value.to(device) for name, value in family.inputs().items()})

        self._compare(lambda: models.build(family), use)

    def test_transformer(self):
        self._forward(next(f for f in models.FAMILIES if f.name == "bert"))

    def test_convolutions(self):
        self._forward(next(f for f in models.FAMILIES if f.name == "resnet"))

    def test_transposed_convolutions(self):
        def use(model, device):
            with torch.no_grad():
                model(models._pixels(1, 32).to(device)).cpu()

        self._compare(lambda: Autoencoder().eval(), use)

    def test_backward(self):
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.conv = torch.nn.Conv2d(3, 8, 3, padding=1, groups=1)
                self.up = torch.nn.ConvTranspose2d(8, 4, 2, 2)
                self.out = torch.nn.Linear(4, 5)

            def forward(self, x):
                hidden = self.up(torch.relu(self.conv(x)))
                return self.out(hidden.mean((2, 3)))

        def use(model, device):
            x = models._pixels(2, 16).to(device).requires_grad_()
            model(x).sum().backward()
            model.conv.weight.grad.cpu()

        self._compare(Net, use)
