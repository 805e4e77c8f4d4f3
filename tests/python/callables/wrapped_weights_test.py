"""Weights that are tensor subclasses, as quantization libraries make them, in traced models."""

import copy

import torch
from torch.utils._pytree import tree_map_only

import djinn
from tests.python.callables.registered_case import RegisteredCase


class Quantized(torch.Tensor):
    """A matrix of 8-bit integers with one scale for each row."""

    @staticmethod
    def __new__(cls, integers, scales):
        return torch.Tensor._make_wrapper_subclass(
            cls, integers.shape, dtype=scales.dtype, device=integers.device
        )

    def __init__(self, integers, scales):
        self.integers = integers
        self.scales = scales

    def __repr__(self):
        return "Quantized()"

    def __tensor_flatten__(self):
        return ["integers", "scales"], None

    @staticmethod
    def __tensor_unflatten__(inner, meta, size, stride):
        return Quantized(inner["integers"], inner["scales"])

    def each(self, function):
        return Quantized(function(self.integers), function(self.scales))

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        if function in (torch.ops.aten.detach.default, torch.ops.aten.clone.default):
            return args[0].each(function)
        if function is torch.ops.aten._to_copy.default:
            return args[0].each(lambda inner: inner.to(kwargs["device"]))
        args, kwargs = tree_map_only(
            Quantized, lambda one: one.integers.to(one.scales.dtype) * one.scales, (args, kwargs or {})
        )
        return function(*args, **kwargs)


def quantize(layer):
    weight = layer.weight.detach()
    scales = weight.abs().amax(1, keepdim=True) / 127
    integers = (weight / scales).round().to(torch.int8)
    layer.weight = torch.nn.Parameter(Quantized(integers, scales), requires_grad=False)


class WrappedWeightsTest(RegisteredCase):
    def setUp(self):
        super().setUp()
        torch._dynamo.reset()
        self.local = torch.nn.Sequential(torch.nn.Linear(8, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
        for layer in (self.local[0], self.local[2]):
            quantize(layer)
        self.remote = copy.deepcopy(self.local).to(self.device)

    def test_a_model_is_replayed(self):
        for mode in (torch.no_grad, torch.inference_mode, torch.enable_grad):
            with self.subTest(mode.__name__), mode():
                compiled = djinn.compile(self.remote)
                for _ in range(4):
                    x = torch.randn(3, 8)
                    self.assert_same(compiled(x.to(self.device)).detach(), self.local(x).detach())
                statistics = compiled.statistics()
                self.assertEqual((statistics["replays"], statistics["refusal"]), (3, ""))

    @torch.no_grad()
    def test_another_weight_is_seen(self):
        compiled = torch.compile(self.remote, backend="djinn")
        x = torch.randn(3, 8)
        for _ in range(3):
            compiled(x.to(self.device))
        for model in (self.local, self.remote):
            model[0].weight.scales.mul_(2)
            model[2].weight = torch.nn.Parameter(model[2].weight.each(torch.clone), requires_grad=False)
            model[2].weight.integers.neg_()
        for _ in range(3):
            self.assert_same(compiled(x.to(self.device)), self.local(x))
