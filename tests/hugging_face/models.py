"""The model families of the tests, small, with seeded random weights.

The classes and their forward code are transformers' own, unchanged; only the sizes
are small. One model has real weights: MiniLM.
"""

from dataclasses import dataclass
from typing import Callable

import torch
import transformers


@dataclass(frozen=True)
class Family:
    """One model and an input for it."""

    name: str
    make: Callable[[], torch.nn.Module]
    # Arguments of forward(), on the CPU; the same at every call.
    inputs: Callable[[], dict]
    # Arguments of generate(). None for a model that does not generate.
    prompt: Callable[[], dict] | None = None


def _tokens(rows, columns, vocabulary=96, seed=1):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(5, vocabulary, (rows, columns), generator=generator)


def _pixels(rows, side, seed=2):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, 3, side, side, generator=generator)


def _text(rows=2, columns=7):
    ids = _tokens(rows, columns)
    mask = torch.ones_like(ids)
    mask[-1, -3:] = 0
    return {"input_ids": ids, "attention_mask": mask}


def _prompt():
    ids = _tokens(2, 6)
    # The padding is on the left, as generate() expects.
    mask = torch.ones_like(ids)
    mask[-1, :2] = 0
    return {"input_ids": ids, "attention_mask": mask}


def _bert():
    config = transformers.BertConfig(
        vocab_size=96, hidden_size=48, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=96, max_position_embeddings=32)
    return transformers.BertModel(config)


def _gpt2():
    config = transformers.GPT2Config(
        vocab_size=96, n_embd=48, n_layer=2, n_head=4, n_positions=64,
        bos_token_id=1, eos_token_id=2, pad_token_id=0)
    return transformers.GPT2LMHeadModel(config)


def _llama():
    config = transformers.LlamaConfig(
        vocab_size=96, hidden_size=48, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, intermediate_size=96, max_position_embeddings=64,
        bos_token_id=1, eos_token_id=2, pad_token_id=0)
    return transformers.LlamaForCausalLM(config)


def _t5():
    config = transformers.T5Config(
        vocab_size=96, d_model=48, d_kv=12, num_heads=4, d_ff=96, num_layers=2,
        decoder_start_token_id=0, eos_token_id=1, pad_token_id=0)
    return transformers.T5ForConditionalGeneration(config)


def _t5_inputs():
    return {**_text(), "decoder_input_ids": _tokens(2, 5, seed=3)}


def _vit():
    config = transformers.ViTConfig(
        hidden_size=48, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=96, image_size=32, patch_size=8)
    return transformers.ViTModel(config)


def _resnet():
    config = transformers.ResNetConfig(
        embedding_size=16, hidden_sizes=[16, 32, 48], depths=[1, 2, 1])
    return transformers.ResNetModel(config)


def _clip():
    text = {"vocab_size": 96, "hidden_size": 48, "intermediate_size": 96,
            "num_hidden_layers": 2, "num_attention_heads": 4,
            "max_position_embeddings": 32, "eos_token_id": 2}
    vision = {"hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 2,
              "num_attention_heads": 4, "image_size": 32, "patch_size": 8}
    config = transformers.CLIPConfig(
        text_config=text, vision_config=vision, projection_dim=32)
    return transformers.CLIPModel(config)


def _whisper():
    config = transformers.WhisperConfig(
        vocab_size=96, num_mel_bins=16, d_model=48, encoder_layers=2, decoder_layers=2,
        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=96,
        decoder_ffn_dim=96, max_source_positions=20, max_target_positions=32,
        decoder_start_token_id=3, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        suppress_tokens=None, begin_suppress_tokens=None)
    model = transformers.WhisperForConditionalGeneration(config)
    # In the released models this list contains timestamps and languages, which
    # need a tokenizer.
    model.generation_config.suppress_tokens = None
    model.generation_config.begin_suppress_tokens = None
    return model


def _sound():
    generator = torch.Generator().manual_seed(4)
    return torch.randn(2, 16, 40, generator=generator)


FAMILIES = [
    Family("bert", _bert, _text),
    Family("gpt2", _gpt2, _text, _prompt),
    Family("llama", _llama, _text, _prompt),
    Family("t5", _t5, _t5_inputs, _text),
    Family("vit", _vit, lambda: {"pixel_values": _pixels(2, 32)}),
    Family("resnet", _resnet, lambda: {"pixel_values": _pixels(2, 64)}),
    Family("clip", _clip, lambda: {**_text(), "pixel_values": _pixels(2, 32)}),
    Family("whisper", _whisper,
           lambda: {"input_features": _sound(), "decoder_input_ids": _tokens(2, 4)},
           lambda: {"input_features": _sound()}),
]


def build(family):
    """The model in evaluation mode, with the same weights at every call."""
    torch.manual_seed(0)
    return family.make().eval()


def tensors(output):
    """The tensors of a model's output in order, caches left out."""
    if torch.is_tensor(output):
        return [output]
    if isinstance(output, dict):
        output = list(output.values())
    if isinstance(output, (list, tuple)):
        return [tensor for part in output for tensor in tensors(part)]
    return []
