"""Hugging Face's models under torch.compile(backend="djinn"): replayed on the third call, and equal."""

import copy
import unittest

import torch
import transformers

import djinn
from tests.hugging_face import models
from tests.python.remote_case import RemoteCase

transformers.logging.set_verbosity_error()

_SIZES = {
    "vocab_size": 96, "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "intermediate_size": 96, "max_position_embeddings": 64, "num_key_value_heads": 2,
    "d_model": 48, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 96, "decoder_ffn_dim": 96,
    "ffn_dim": 96, "word_embed_proj_dim": 48, "dim": 48, "hidden_dim": 96, "n_heads": 4,
    "n_layers": 2, "num_layers": 2, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "image_size": 32, "patch_size": 8,
}


def _by_type(name):
    """Makes the model of a type, with small sizes for those that its configuration has."""
    config = transformers.AutoConfig.for_model(name)
    known = config.to_dict().keys() | getattr(config, "attribute_map", {}).keys()
    sizes = {size: value for size, value in _SIZES.items() if size in known}
    return transformers.AutoModel.from_config(transformers.AutoConfig.for_model(name, **sizes))


def _encoder_and_decoder():
    return {"input_ids": models._tokens(2, 7), "decoder_input_ids": models._tokens(2, 5, seed=3)}


def _family(name, inputs):
    return models.Family(name, lambda: _by_type(name), inputs)


FAMILIES = models.FAMILIES + [
    *(_family(name, models._text) for name in ("roberta", "distilbert", "mistral", "qwen2", "opt")),
    _family("bart", _encoder_and_decoder),
    *(_family(name, lambda: {"pixel_values": models._pixels(2, 32)}) for name in ("deit", "dinov2")),
]


class CompiledModelsTest(RemoteCase):
    @torch.no_grad()
    def test_the_third_call_is_replayed_and_every_answer_is_the_models(self):
        for family in FAMILIES:
            with self.subTest(family.name):
                local = models.build(family)
                remote = djinn.compile(copy.deepcopy(local).to(self.device))
                for call in range(1, 5):
                    if call == 4:
                        # Each parameter is read where it is.
                        for module in (local, remote._function):
                            next(module.parameters()).mul_(2)
                    inputs = {
                        name: value.roll(call, 0) if value.is_floating_point() else value
                        for name, value in family.inputs().items()
                    }
                    expected = models.tensors(local(**inputs))
                    before = remote.statistics()["replays"]
                    actual = models.tensors(
                        remote(**{name: value.to(self.device) for name, value in inputs.items()})
                    )
                    self.assertGreater(len(expected), 0)
                    self.assertEqual(len(actual), len(expected))
                    for one, other in zip(actual, expected):
                        self.assert_same(one, other)
                    if call == 3:
                        self.assertEqual(
                            remote.statistics()["replays"], before + 1, remote.statistics()
                        )
        self.assertEqual(djinn.root_errors(), [])


if __name__ == "__main__":
    unittest.main()
