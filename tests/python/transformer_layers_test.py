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
            local = mode(torch.nn.TransformerEncoder(layer, 2, enable_nested_tensor=False))
            remote = mode(torch.nn.TransformerEncoder(copy.deepcopy(layer), 2)).to(self.device)
            remote.load_state_dict(local.state_dict())
            for gradients in (True, False):
                with self.subTest(mode=mode.__name__, gradients=gradients):
                    with torch.set_grad_enabled(gradients):
                        expected = local(self.x, src_key_padding_mask=self.lengths)
                        found = remote(
                            self.x.to(self.device),
                            src_key_padding_mask=self.lengths.to(self.device),
                        )
                    keep = ~self.lengths
                    torch.testing.assert_close(
                        found.detach().cpu()[keep], expected.detach()[keep]
                    )

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
