"""More families than models.py has, made from their configurations alone with small sizes."""

import torch
import transformers

from tests.hugging_face import models

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


def _pixels(side):
    return lambda: {"pixel_values": models._pixels(2, side)}


def _sound():
    generator = torch.Generator().manual_seed(4)
    return {"input_values": torch.randn(2, 1600, generator=generator)}


# The types of transformers, by what their models take.
_TYPES = {
    models._text: (
        "albert bert-generation big_bird biogpt bloom camembert cohere convbert data2vec-text "
        "deberta deberta-v2 distilbert electra ernie esm falcon fnet gemma gemma2 gemma3_text glm "
        "gpt_bigcode gpt_neox granite ibert layoutlm lilt luke mamba markuplm megatron-bert "
        "mistral mobilebert mpnet mpt nemotron nystromformer olmo olmo2 opt persimmon phi phi3 "
        "qwen2 qwen2_moe qwen3 rembert roberta roberta-prelayernorm roc_bert roformer rwkv "
        "smollm3 starcoder2 xglm xlm xlm-roberta yoso"
    ),
    _encoder_and_decoder: (
        "bart bigbird_pegasus blenderbot blenderbot-small m2m_100 marian mbart mt5 pegasus plbart "
        "umt5"
    ),
    _pixels(32): "beit data2vec-vision deit dinov2 dinov2_with_registers ijepa vit_mae vit_msn",
    _pixels(64): (
        "bit cvt focalnet mobilenet_v1 mobilenet_v2 mobilevit poolformer regnet swiftformer"
    ),
    _sound: "data2vec-audio hubert sew unispeech wav2vec2 wavlm",
}


def _family(name, inputs):
    return models.Family(name, lambda: _by_type(name), inputs)


FAMILIES = models.FAMILIES + [
    _family(name, inputs) for inputs, names in _TYPES.items() for name in names.split()
]
