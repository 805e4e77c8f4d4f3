"""djinn.compile() of libraries' models: the third call is replayed, and a changed weight is seen."""

import copy
import pathlib
import tempfile
import unittest

import diffusers
import einops
import lightning
import peft
import sentence_transformers
import timm
import torch
import torch_geometric
import torchvision
import transformers
import whisper

import djinn
from tests.python.remote_case import RemoteCase

_EDGES = torch.tensor([[0, 1, 2, 3, 1], [1, 2, 3, 0, 3]])


class _Rearranged(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(6, 6)

    def forward(self, x):
        x = einops.rearrange(self.layer(x), "a (b c) -> b (a c)", b=2)
        return einops.reduce(einops.repeat(x, "a b -> a b 2"), "a b c -> a c", "mean")


class _Lightning(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)

    def forward(self, x):
        return self.layer(x).relu()


def _peft():
    config = transformers.GPT2Config(vocab_size=32, n_embd=16, n_layer=1, n_head=2)
    return peft.get_peft_model(
        transformers.GPT2LMHeadModel(config),
        peft.LoraConfig(task_type="CAUSAL_LM", r=2, fan_in_fan_out=True, init_lora_weights=False))


def _unet():
    return diffusers.UNet2DModel(
        sample_size=16, block_out_channels=(16, 32), layers_per_block=1, norm_num_groups=4,
        attention_head_dim=4, down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"))


def _sentences():
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "cat"]
    config = transformers.BertConfig(
        vocab_size=len(words), hidden_size=16, num_hidden_layers=1, num_attention_heads=2,
        intermediate_size=16)
    with tempfile.TemporaryDirectory() as folder:
        transformers.BertModel(config).save_pretrained(folder)
        (pathlib.Path(folder) / "vocab.txt").write_text("\n".join(words))
        transformers.BertTokenizerFast(f"{folder}/vocab.txt").save_pretrained(folder)
        return sentence_transformers.SentenceTransformer(folder, device="cpu")


def _whisper():
    return whisper.model.Whisper(whisper.model.ModelDimensions(
        n_mels=8, n_audio_ctx=10, n_audio_state=16, n_audio_head=2, n_audio_layer=1, n_vocab=32,
        n_text_ctx=8, n_text_state=16, n_text_head=2, n_text_layer=1))


# Each has a function that makes a model, and one that makes its arguments.
_MODELS = {
    "timm, convolutions": (
        lambda: timm.create_model("resnet10t", num_classes=3), lambda: [torch.rand(1, 3, 64, 64)]),
    "timm, a transformer": (
        lambda: timm.create_model("vit_tiny_patch16_224", img_size=32, num_classes=3),
        lambda: [torch.rand(1, 3, 32, 32)]),
    "torchvision": (
        lambda: torchvision.models.mobilenet_v3_small(num_classes=3),
        lambda: [torch.rand(1, 3, 64, 64)]),
    "diffusers": (_unet, lambda: [torch.randn(1, 3, 16, 16), torch.tensor(5)]),
    "peft": (_peft, lambda: [torch.tensor([[1, 2, 3]])]),
    "einops": (_Rearranged, lambda: [torch.randn(4, 6)]),
    "lightning": (_Lightning, lambda: [torch.randn(3, 4)]),
    "sentence-transformers": (
        _sentences,
        lambda: [{"input_ids": torch.tensor([[2, 5, 6, 3]]), "attention_mask": torch.ones(1, 4).long()}]),
    "whisper": (_whisper, lambda: [torch.randn(1, 8, 20), torch.tensor([[1, 2, 3]])]),
    **{
        f"torch_geometric, {name}": (
            lambda name=name: getattr(torch_geometric.nn, name)(8, 2),
            lambda: [torch.randn(4, 8), _EDGES])
        for name in ("GCNConv", "GATConv", "SAGEConv", "GraphConv", "TransformerConv")
    },
}


def _placed(thing, device):
    if isinstance(thing, dict):
        return {name: _placed(one, device) for name, one in thing.items()}
    return thing.to(device)


def _result(made):
    """Returns the first tensor that a model has made."""
    if isinstance(made, dict):
        return made.get("sentence_embedding", next(iter(made.values())))
    return made if isinstance(made, torch.Tensor) else made[0]


class CompiledTest(RemoteCase):
    @torch.no_grad()
    def assert_replayed(self, make, arguments):
        torch._dynamo.reset()
        torch.manual_seed(0)
        local = make().eval()
        remote = copy.deepcopy(local).to(self.device)
        compiled = djinn.compile(remote)
        for call in range(5):
            if call == 3:
                for model in (local, remote):
                    for parameter in model.parameters():
                        parameter.mul_(1.5)
            given = arguments()
            before = compiled.statistics()["replays"]
            expected = _result(local(*[_placed(one, "cpu") for one in given]))
            found = _result(compiled(*[_placed(one, self.device) for one in given]))
            self.assert_same(found, expected)
            if call >= 2:
                statistics = compiled.statistics()
                self.assertEqual(statistics["replays"], before + 1, statistics)


def _test_of(make, arguments):
    return lambda self: self.assert_replayed(make, arguments)


for _name, _case in _MODELS.items():
    _words = "".join(c if c.isalnum() else "_" for c in _name).replace("__", "_")
    setattr(CompiledTest, f"test_{_words}", _test_of(*_case))


if __name__ == "__main__":
    unittest.main()
