"""PyTorch's own transformer layers, which choose their way by device and mode."""

import copy

import torch

from tests.python.remote_case import RemoteCase


class TransformerLayersTest(RemoteCase):
    def setUp(self):
        torch.manual_seed(1)
        self.x = torch.randn(3, 5, 8)
        self.lengths = torch.arange(5)[None, :] >= torch.tensor([5, 3, 4])[:, None]

    def test_an_encoder_with_a_padding_mask(self):
        layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
        for mode in (torch.nn.Module.train, torch.nn.Module.eval):
            local = mode(torch.nn.TransformerEncoder(layer, 2))
            remote = copy.deepcopy(local).to(self.device)
            for gradients in (True, False):
                with self.subTest(mode=mode.__name__, gradients=gradients):
                    with torch.set_grad_enabled(gradients):
                        expected = local(self.x, src_key_padding_mask=self.lengths)
                        found = remote(
                            self.x.to(self.device),
                            src_key_padding_mask=self.lengths.to(self.device),
                        )
                    self.assert_same(found.detach(), expected.detach())
                    if mode is torch.nn.Module.eval and not gradients:
                        self.assertEqual(found[self.lengths.to(self.device)].count_nonzero().item(), 0)

    def test_batches_without_their_padding(self):
        layer = torch.nn.TransformerEncoderLayer
        encoders = {
            "gelu": torch.nn.TransformerEncoder(layer(12, 4, 16, batch_first=True, activation="gelu"), 1),
            "norm": torch.nn.TransformerEncoder(
                layer(12, 4, 16, batch_first=True), 2, norm=torch.nn.LayerNorm(12)),
            "unchecked": torch.nn.TransformerEncoder(
                layer(12, 4, 16, batch_first=True), 2, mask_check=False),
            "double": torch.nn.TransformerEncoder(layer(12, 4, 16, batch_first=True), 2).double(),
            "bfloat16": torch.nn.TransformerEncoder(layer(12, 4, 16, batch_first=True), 2).bfloat16(),
        }
        places = torch.arange(9)[None, :]
        masks = {
            "all": places.repeat(3, 1) < 0,
            "one whole": places >= torch.tensor([9, 2, 5])[:, None],
            "none whole": places >= torch.tensor([4, 1, 7])[:, None],
            "an empty one": places >= torch.tensor([4, 0, 9])[:, None],
            "on the left": places.repeat(3, 1) < 2,
        }
        for name, encoder in encoders.items():
            local = encoder.eval()
            remote = copy.deepcopy(local).to(self.device)
            x = torch.randn(3, 9, 12).to(next(local.parameters()).dtype)
            for said, mask in masks.items():
                with self.subTest(encoder=name, mask=said), torch.no_grad():
                    found = remote(x.to(self.device), src_key_padding_mask=mask.to(self.device))
                    self.assert_same(found, local(x, src_key_padding_mask=mask))

    def test_other_operators_on_nested_tensors_are_refused_in_a_sentence(self):
        x, mask = self.x.to(self.device), ~self.lengths.to(self.device)
        nested = torch._nested_tensor_from_mask(x, mask)
        self.assert_same(nested.to_padded_tensor(0), torch._nested_tensor_from_mask(
            self.x, ~self.lengths).to_padded_tensor(0))
        with self.assertRaisesRegex(NotImplementedError, "aten::sin: nested tensors"):
            nested.sin()

    def test_attention_lies_in_memory_as_on_a_cpu(self):
        local = torch.nn.MultiheadAttention(8, 2, batch_first=True)
        remote = copy.deepcopy(local).to(self.device)
        for training in (True, False):
            for gradients in (True, False):
                with self.subTest(training=training, gradients=gradients):
                    y = self.x.to(self.device)
                    with torch.set_grad_enabled(gradients):
                        expected = local.train(training)(self.x, self.x, self.x)
                        found = remote.train(training)(y, y, y)
                    for one, other in zip(found, expected):
                        self.assertEqual(one.stride(), other.stride())
                        torch.testing.assert_close(one.detach().cpu(), other.detach())
