"""Jagged nested tensors: attention, and what layers around it call."""

import torch
import torch.nn.functional as F

from tests.python.remote_case import RemoteCase

_OFFSETS = (0, 3, 20, 21, 60)


class NestedTest(RemoteCase):
    def tensors(self, device, count, width=32, grad=False):
        generator = torch.Generator().manual_seed(1)
        return [
            torch.randn(_OFFSETS[-1], width, generator=generator).to(device).requires_grad_(grad)
            for _ in range(count)]

    def jagged(self, values):
        offsets = torch.tensor(_OFFSETS, device=values.device)
        return torch.nested.nested_tensor_from_jagged(values, offsets)

    def attend(self, device, grad=False, **options):
        """The result's values, and the operands' gradients."""
        operands = self.tensors(device, 3, grad=grad)
        heads = [self.jagged(each).unflatten(-1, [4, 8]).transpose(1, 2) for each in operands]
        result = F.scaled_dot_product_attention(*heads, **options)
        values = result.transpose(1, 2).flatten(-2).values()
        if not grad:
            return [values]
        values.square().sum().backward()
        return [values.detach(), *(each.grad for each in operands)]

    def test_attention_without_contiguous(self):
        for options in ({}, {"scale": 0.3}, {"scale": 2}):
            for grad in (False, True):
                with self.subTest(grad=grad, **options):
                    local = self.attend("cpu", grad, **options)
                    remote = self.attend(self.device, grad, **options)
                    self.assertEqual(remote[0].device.type, self.device.type)
                    for one, other in zip(remote, local, strict=True):
                        torch.testing.assert_close(one.cpu(), other)

    def test_attention_is_that_of_each_sequence(self):
        """Attention over parts of one projection works, too, which the CPU wants contiguous."""
        values = self.tensors(self.device, 1, width=96)[0]
        heads = [each.unflatten(-1, [4, 8]).transpose(1, 2)
                 for each in self.jagged(values).chunk(3, -1)]
        result = F.scaled_dot_product_attention(*heads).transpose(1, 2).values().cpu()
        for begin, end in zip(_OFFSETS, _OFFSETS[1:]):
            alone = [each.unflatten(-1, [4, 8]).transpose(0, 1)
                     for each in values.cpu()[begin:end].chunk(3, -1)]
            expected = F.scaled_dot_product_attention(*(each[None] for each in alone))[0]
            torch.testing.assert_close(result[begin:end], expected.transpose(0, 1))

    def test_layers_have_the_cpus_bits(self):
        weight, bias = torch.randn(8, 32), torch.randn(8)
        calls = {
            "linear": lambda x: F.linear(x, weight.to(x.device), bias.to(x.device)),
            "layer_norm": lambda x: F.layer_norm(x, (32,)),
            "softmax": lambda x: x.softmax(-1),
            "softmax of sequences": lambda x: x.softmax(1),
            "gelu": F.gelu,
            "mean": lambda x: x.mean(1),
            "amax": lambda x: x.amax(1),
            "to_padded_tensor": lambda x: x.to_padded_tensor(0.5),
            "unbind": lambda x: torch.cat(x.unbind()),
            "cat": lambda x: torch.cat([x, x], -1),
            "select": lambda x: x[1],
        }
        for name, call in calls.items():
            with self.subTest(name):
                local, remote = (
                    call(self.jagged(self.tensors(device, 1)[0])) for device in ("cpu", self.device))
                plain = (lambda x: x.values() if x.is_nested else x)
                self.assert_same(plain(remote), plain(local))
