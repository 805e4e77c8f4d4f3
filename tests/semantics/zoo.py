"""Programs of many kinds, each small and with seeded random weights.

A program runs once on a device. Which module makes a call, and which phase it is in,
is said beside the call by `labels.Labels`; the analysis that is tested never sees it.
The models are transformers' own, unchanged, and a few written here for kinds that it
does not have.
"""

from dataclasses import dataclass
from typing import Callable

import torch
import transformers

from tests.hugging_face import models
from tests.semantics.labels import label_generating, label_part, label_phase


@dataclass(frozen=True)
class Program:
    """`run(device)` makes the model, moves it there and uses it."""

    family: str
    use: str
    run: Callable[[torch.device], None]
    # Held out of all tuning.
    held_out: bool = False

    @property
    def name(self):
        return f"{self.family}_{self.use}"


def _to(inputs, device):
    return {name: value.to(device) for name, value in inputs.items()}


def _made(make, device):
    torch.manual_seed(0)
    return make().eval().to(device)


def _touch(output):
    """Reads the first tensor of a model's output."""
    if torch.is_tensor(output):
        return output.cpu()
    parts = list(output.values()) if isinstance(output, dict) else output
    return _touch(next(part for part in parts if part is not None))


def forward(make, inputs):
    def run(device):
        model = _made(make, device)
        with torch.no_grad():
            for _ in range(2):
                _touch(model(**_to(inputs(), device)))

    return run


def _say_phase(_, arguments, named):
    cache = named.get("past_key_values")
    begun = cache is not None and int(cache.get_seq_length()) > 0
    label_generating("llm_decode" if begun else "llm_prefill")


def generate(make, prompt, **options):
    def run(device):
        model = _made(make, device)
        model.register_forward_pre_hook(_say_phase, with_kwargs=True)
        with torch.no_grad():
            model.generate(
                **_to(prompt(), device), do_sample=False, max_new_tokens=4,
                eos_token_id=None, **options)

    return run


def train(make, inputs, loss, optimizer=torch.optim.AdamW):
    def run(device):
        model = _made(make, device).train()
        if hasattr(model, "loss_function"):
            inner = model.loss_function

            def labelled(*args, **kwargs):
                with label_part("Loss"):
                    return inner(*args, **kwargs)

            model.loss_function = labelled
        steps = optimizer(model.parameters(), lr=1e-3)
        batch = _to(inputs(), device)
        with label_phase("training"):
            for _ in range(2):
                steps.zero_grad()
                output = model(**batch)
                with label_part("Loss"):
                    value = loss(output)
                value.backward()
                with label_part("Optimizer"):
                    steps.step()
                value.item()

    return run


def _sgd(parameters, lr):
    return torch.optim.SGD(parameters, lr=lr, momentum=0.9)


def _classify(output):
    scores = output if torch.is_tensor(output) else output[0]
    scores = scores.flatten(1)
    labels = torch.arange(scores.shape[0], device=scores.device) % scores.shape[1]
    return torch.nn.functional.cross_entropy(scores, labels)


def _own_loss(output):
    return output.loss


def _square(output):
    return torch.nn.functional.mse_loss(output, torch.zeros_like(output))


def _with_labels(inputs):
    def make():
        batch = inputs()
        return {**batch, "labels": batch["input_ids"]}

    return make


SIZES = {
    "vocab_size": 96, "hidden_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "intermediate_size": 96, "max_position_embeddings": 64,
}
TOKENS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}


def _made_from(model, config, *, attention=None, experts=None, **sizes):
    def make():
        settings = getattr(transformers, config)(**sizes)
        if attention is not None:
            settings._attn_implementation = attention
        if experts is not None:
            settings._experts_implementation = experts
        return getattr(transformers, model)(settings)

    return make


def _llama(attention=None):
    return _made_from("LlamaForCausalLM", "LlamaConfig", attention=attention,
                      num_key_value_heads=2, **SIZES, **TOKENS)


def _mixtral():
    return _made_from("MixtralForCausalLM", "MixtralConfig", num_key_value_heads=2,
                      num_local_experts=4, num_experts_per_tok=2, experts="eager",
                      **SIZES, **TOKENS)


def _bert_classifier():
    return _made_from("BertForSequenceClassification", "BertConfig", num_labels=3, **SIZES)


def _vit_classifier():
    return _made_from(
        "ViTForImageClassification", "ViTConfig", hidden_size=48, num_hidden_layers=2,
        num_attention_heads=4, intermediate_size=96, image_size=32, patch_size=8)


def _resnet_classifier():
    return _made_from(
        "ResNetForImageClassification", "ResNetConfig", embedding_size=16,
        hidden_sizes=[16, 32, 48], depths=[1, 2, 1], num_labels=5)


def _segformer():
    return _made_from(
        "SegformerForSemanticSegmentation", "SegformerConfig", hidden_sizes=[16, 32, 48, 64],
        depths=[1, 1, 1, 1], num_attention_heads=[1, 2, 4, 8], decoder_hidden_size=32,
        num_labels=5)


def _vilt():
    return _made_from(
        "ViltModel", "ViltConfig", image_size=32, patch_size=8, **SIZES)


def _neox():
    return _made_from("GPTNeoXForCausalLM", "GPTNeoXConfig", **SIZES, **TOKENS)


def _layout():
    return _made_from(
        "LayoutLMv3Model", "LayoutLMv3Config", input_size=32, patch_size=8,
        coordinate_size=8, shape_size=8, max_2d_position_embeddings=64,
        pad_token_id=1, bos_token_id=0, eos_token_id=2, **SIZES)


def _phi():
    return _made_from("PhiForCausalLM", "PhiConfig", **SIZES, **TOKENS)


def _mpnet():
    return _made_from("MPNetModel", "MPNetConfig", pad_token_id=1, bos_token_id=0,
                      eos_token_id=2, **SIZES)


def _efficientnet():
    return _made_from(
        "EfficientNetForImageClassification", "EfficientNetConfig", image_size=64,
        width_coefficient=0.05, depth_coefficient=1.0, in_channels=[32, 480, 640],
        out_channels=[480, 640, 960], kernel_sizes=[3, 5, 3], strides=[1, 2, 2],
        num_block_repeats=[1, 2, 1], expand_ratios=[1, 4, 4], depthwise_padding=[],
        hidden_dim=64, num_labels=5)


def _albert():
    return _made_from("AlbertModel", "AlbertConfig", embedding_size=24, **SIZES)


def _bart():
    return _made_from(
        "BartForConditionalGeneration", "BartConfig", vocab_size=96, d_model=48,
        encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=96, decoder_ffn_dim=96,
        max_position_embeddings=64, decoder_start_token_id=2, forced_eos_token_id=None,
        **TOKENS)


def _swin():
    return _made_from(
        "SwinForImageClassification", "SwinConfig", image_size=32, patch_size=4,
        embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4, num_labels=5)


def _falcon():
    return _made_from(
        "FalconForCausalLM", "FalconConfig", vocab_size=96, hidden_size=48,
        num_hidden_layers=2, num_attention_heads=4, ffn_hidden_size=96,
        max_position_embeddings=64, **TOKENS)


def _bloom():
    return _made_from("BloomForCausalLM", "BloomConfig", vocab_size=96, hidden_size=48,
                      n_layer=2, n_head=4, **TOKENS)


def _gemma():
    return _made_from("Gemma2ForCausalLM", "Gemma2Config", num_key_value_heads=2,
                      head_dim=12, sliding_window=32, **SIZES, **TOKENS)


def _olmoe():
    return _made_from("OlmoeForCausalLM", "OlmoeConfig", num_experts=4,
                      num_experts_per_tok=2, experts="eager", **SIZES, **TOKENS)


def _gptj():
    return _made_from("GPTJForCausalLM", "GPTJConfig", vocab_size=96, n_embd=48, n_layer=2,
                      n_head=4, n_inner=96, n_positions=64, rotary_dim=8, **TOKENS)


def _pegasus():
    return _made_from(
        "PegasusForConditionalGeneration", "PegasusConfig", vocab_size=96, d_model=48,
        encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=96, decoder_ffn_dim=96,
        max_position_embeddings=64, scale_embedding=True, decoder_start_token_id=0,
        forced_eos_token_id=None, **TOKENS)


def _electra():
    return _made_from("ElectraForSequenceClassification", "ElectraConfig",
                      embedding_size=24, num_labels=3, **SIZES)


def _depth():
    def make():
        backbone = transformers.Dinov2Config(
            hidden_size=48, num_hidden_layers=2, num_attention_heads=4, mlp_ratio=2,
            image_size=32, patch_size=8, out_indices=[1, 2], reshape_hidden_states=False)
        return transformers.DepthAnythingForDepthEstimation(
            transformers.DepthAnythingConfig(
                backbone_config=backbone, patch_size=8, reassemble_hidden_size=48,
                reassemble_factors=[2, 1], neck_hidden_sizes=[16, 32],
                fusion_hidden_size=16, head_hidden_size=8))

    return make


def _mobilenet_v1():
    return _made_from(
        "MobileNetV1ForImageClassification", "MobileNetV1Config", depth_multiplier=0.25,
        num_labels=5)


def _poolformer():
    return _made_from(
        "PoolFormerForImageClassification", "PoolFormerConfig",
        hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 1, 1], mlp_ratio=2.0, num_labels=5)


def _hubert():
    return _made_from(
        "HubertModel", "HubertConfig", vocab_size=32, hidden_size=48, num_hidden_layers=2,
        num_attention_heads=4, intermediate_size=96, conv_dim=[16, 16, 16],
        conv_stride=[5, 2, 2], conv_kernel=[10, 3, 3], num_conv_pos_embeddings=8,
        num_conv_pos_embedding_groups=4)


def _waves():
    generator = torch.Generator().manual_seed(7)
    return {"input_values": torch.randn(2, 800, generator=generator)}


def _internvl():
    def make():
        text = transformers.Qwen2Config(num_key_value_heads=2, **SIZES, **TOKENS)
        vision = transformers.InternVLVisionConfig(
            hidden_size=48, intermediate_size=96, num_hidden_layers=1,
            num_attention_heads=4, image_size=32, patch_size=8)
        return transformers.InternVLForConditionalGeneration(transformers.InternVLConfig(
            text_config=text, vision_config=vision, image_token_id=95,
            image_seq_length=4))

    return make


def _audio_llm():
    def make():
        text = transformers.Qwen2Config(num_key_value_heads=2, **SIZES, **TOKENS)
        audio = transformers.Qwen2AudioEncoderConfig(
            num_mel_bins=16, d_model=48, encoder_layers=1, encoder_attention_heads=4,
            encoder_ffn_dim=96, max_source_positions=20)
        return transformers.Qwen2AudioForConditionalGeneration(
            transformers.Qwen2AudioConfig(
                text_config=text, audio_config=audio, audio_token_index=95))

    return make


def _siglip():
    def make():
        sizes = {"hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 1,
                 "num_attention_heads": 4}
        return transformers.SiglipModel(transformers.SiglipConfig(
            text_config={**sizes, "vocab_size": 96, "max_position_embeddings": 32,
                         "projection_size": 48, **TOKENS},
            vision_config={**sizes, "image_size": 32, "patch_size": 8}))

    return make


def _flava():
    def make():
        sizes = {"hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 1,
                 "num_attention_heads": 4}
        return transformers.FlavaModel(transformers.FlavaConfig(
            text_config={**sizes, "vocab_size": 96, "max_position_embeddings": 32},
            image_config={**sizes, "image_size": 32, "patch_size": 8},
            multimodal_config=sizes, hidden_size=48, projection_dim=32))

    return make


def _aya_vision():
    def make():
        text = transformers.Cohere2Config(num_key_value_heads=2, **SIZES, **TOKENS)
        vision = transformers.SiglipVisionConfig(
            hidden_size=48, intermediate_size=96, num_hidden_layers=1,
            num_attention_heads=4, image_size=32, patch_size=8)
        return transformers.AyaVisionForConditionalGeneration(
            transformers.AyaVisionConfig(
                text_config=text, vision_config=vision, image_token_index=95))

    return make


def _paligemma():
    def make():
        text = transformers.GemmaConfig(
            num_key_value_heads=2, head_dim=12, **SIZES, **TOKENS)
        vision = transformers.SiglipVisionConfig(
            hidden_size=40, intermediate_size=80, num_hidden_layers=1,
            num_attention_heads=4, image_size=32, patch_size=8, projection_dim=48)
        return transformers.PaliGemmaForConditionalGeneration(
            transformers.PaliGemmaConfig(
                text_config=text, vision_config=vision, image_token_index=95,
                projection_dim=48, hidden_size=48, pad_token_id=0))

    return make


def _nemotron():
    return _made_from("NemotronForCausalLM", "NemotronConfig", num_key_value_heads=2,
                      **SIZES, **TOKENS)


def _codegen():
    return _made_from("CodeGenForCausalLM", "CodeGenConfig", vocab_size=96, n_embd=48,
                      n_layer=2, n_head=4, n_inner=96, n_positions=64, n_ctx=64,
                      rotary_dim=8, **TOKENS)


def _t5gemma():
    def make():
        side = {**SIZES, **TOKENS, "num_key_value_heads": 2, "head_dim": 12,
                "sliding_window": 32}
        return transformers.T5GemmaForConditionalGeneration(transformers.T5GemmaConfig(
            encoder=side, decoder=side, vocab_size=96, decoder_start_token_id=1, **TOKENS))

    return make


def _glm():
    return _made_from("GlmForCausalLM", "GlmConfig", num_key_value_heads=2, head_dim=12,
                      **SIZES, **TOKENS)


def _olmo2():
    return _made_from("Olmo2ForCausalLM", "Olmo2Config", num_key_value_heads=2, **SIZES,
                      **TOKENS)


def _gpt_neo():
    return _made_from("GPTNeoForCausalLM", "GPTNeoConfig", vocab_size=96, hidden_size=48,
                      num_layers=2, num_heads=4, intermediate_size=96, window_size=4,
                      attention_types=[[["global", "local"], 1]],
                      max_position_embeddings=64, **TOKENS)


def _vipllava():
    def make():
        text = transformers.LlamaConfig(num_key_value_heads=2, **SIZES, **TOKENS)
        vision = transformers.CLIPVisionConfig(
            hidden_size=48, intermediate_size=96, num_hidden_layers=2,
            num_attention_heads=4, image_size=32, patch_size=8)
        return transformers.VipLlavaForConditionalGeneration(transformers.VipLlavaConfig(
            text_config=text, vision_config=vision, image_token_index=95,
            vision_feature_layer=[-2, -1], image_seq_length=16))

    return make


def _gemma3():
    def make():
        text = transformers.Gemma3TextConfig(
            num_key_value_heads=2, head_dim=12, sliding_window=32, **SIZES, **TOKENS)
        vision = transformers.SiglipVisionConfig(
            hidden_size=40, intermediate_size=80, num_hidden_layers=1,
            num_attention_heads=4, image_size=32, patch_size=8)
        return transformers.Gemma3ForConditionalGeneration(transformers.Gemma3Config(
            text_config=text, vision_config=vision, image_token_index=95,
            mm_tokens_per_image=4))

    return make


def _voxtral():
    def make():
        text = transformers.LlamaConfig(num_key_value_heads=2, **SIZES, **TOKENS)
        audio = transformers.VoxtralEncoderConfig(
            num_mel_bins=16, hidden_size=48, num_hidden_layers=1, num_attention_heads=4,
            intermediate_size=96, max_source_positions=20)
        return transformers.VoxtralForConditionalGeneration(transformers.VoxtralConfig(
            text_config=text, audio_config=audio, audio_token_id=95))

    return make


def _idefics3():
    def make():
        text = transformers.LlamaConfig(num_key_value_heads=2, **SIZES, **TOKENS)
        vision = transformers.Idefics3VisionConfig(
            hidden_size=40, intermediate_size=80, num_hidden_layers=1,
            num_attention_heads=4, image_size=32, patch_size=8)
        return transformers.Idefics3ForConditionalGeneration(transformers.Idefics3Config(
            text_config=text, vision_config=vision, image_token_id=95, scale_factor=2))

    return make


def _mistral3():
    def make():
        text = transformers.MistralConfig(num_key_value_heads=2, **SIZES, **TOKENS)
        vision = transformers.PixtralVisionConfig(
            hidden_size=48, intermediate_size=96, num_hidden_layers=1,
            num_attention_heads=4, image_size=32, patch_size=8)
        return transformers.Mistral3ForConditionalGeneration(transformers.Mistral3Config(
            text_config=text, vision_config=vision, image_token_index=95,
            spatial_merge_size=2, vision_feature_layer=-1))

    return make


def _chinese_clip():
    def make():
        sizes = {"hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 1,
                 "num_attention_heads": 4}
        return transformers.ChineseCLIPModel(transformers.ChineseCLIPConfig(
            text_config={**sizes, "vocab_size": 96, "max_position_embeddings": 32},
            vision_config={**sizes, "image_size": 32, "patch_size": 8},
            projection_dim=32))

    return make


def _glpn():
    return _made_from(
        "GLPNForDepthEstimation", "GLPNConfig", hidden_sizes=[16, 32, 48, 64],
        depths=[1, 1, 1, 1], num_attention_heads=[1, 2, 4, 8], decoder_hidden_size=32)


def _deit():
    return _made_from(
        "DeiTForImageClassification", "DeiTConfig", hidden_size=48, num_hidden_layers=2,
        num_attention_heads=4, intermediate_size=96, image_size=32, patch_size=8,
        num_labels=5)


def _two_sided(model, config, text, vision, **sizes):
    """A text's vectors and an image's are compared."""
    def make():
        sides = {"hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 1,
                 "num_attention_heads": 4}
        return getattr(transformers, model)(getattr(transformers, config)(
            text_config={**sides, "vocab_size": 96, "max_position_embeddings": 32,
                         **TOKENS, **text},
            vision_config={**sides, "image_size": 32, "patch_size": 8, **vision},
            **sizes))

    return make


def _altclip():
    return _two_sided("AltCLIPModel", "AltCLIPConfig", {"project_dim": 48}, {},
                      projection_dim=32)


def _metaclip2():
    return _two_sided("MetaClip2Model", "MetaClip2Config", {}, {}, projection_dim=32)


def _blip():
    return _two_sided(
        "BlipModel", "BlipConfig",
        {"encoder_hidden_size": 48, "is_decoder": False, "sep_token_id": 2}, {},
        projection_dim=32, image_text_hidden_size=32)


def _align():
    def make():
        return transformers.AlignModel(transformers.AlignConfig(
            text_config={"hidden_size": 48, "intermediate_size": 96,
                         "num_hidden_layers": 1, "num_attention_heads": 4,
                         "vocab_size": 96, "max_position_embeddings": 32},
            vision_config={
                "image_size": 64, "width_coefficient": 0.05, "depth_coefficient": 1.0,
                "in_channels": [32, 480, 640], "out_channels": [480, 640, 960],
                "kernel_sizes": [3, 5, 3], "strides": [1, 2, 2],
                "num_block_repeats": [1, 2, 1], "expand_ratios": [1, 4, 4],
                "depthwise_padding": [], "hidden_dim": 48},
            projection_dim=48))

    return make


def _siglip_side():
    return transformers.SiglipVisionConfig(
        hidden_size=48, intermediate_size=96, num_hidden_layers=1,
        num_attention_heads=4, image_size=32, patch_size=8)


def _cohere2_vision():
    def make():
        text = transformers.Cohere2Config(num_key_value_heads=2, **SIZES, **TOKENS)
        return transformers.Cohere2VisionForConditionalGeneration(
            transformers.Cohere2VisionConfig(
                text_config=text, vision_config=_siglip_side(), image_token_id=95,
                alignment_intermediate_size=96))

    return make


def _got_ocr2():
    def make():
        text = transformers.Qwen2Config(num_key_value_heads=2, **SIZES, **TOKENS)
        vision = transformers.GotOcr2VisionConfig(
            hidden_size=48, output_channels=16, num_hidden_layers=2,
            num_attention_heads=4, image_size=64, patch_size=8, window_size=4,
            global_attn_indexes=[1], mlp_dim=96)
        return transformers.GotOcr2ForConditionalGeneration(transformers.GotOcr2Config(
            text_config=text, vision_config=vision, image_token_index=95,
            image_seq_length=4))

    return make


def _deepseek_vl():
    def make():
        text = transformers.LlamaConfig(num_key_value_heads=2, **SIZES, **TOKENS)
        return transformers.DeepseekVLForConditionalGeneration(
            transformers.DeepseekVLConfig(
                text_config=text, vision_config=_siglip_side(), image_token_id=95))

    return make


def _llava_onevision():
    def make():
        text = transformers.Qwen2Config(num_key_value_heads=2, **SIZES, **TOKENS)
        return transformers.LlavaOnevisionForConditionalGeneration(
            transformers.LlavaOnevisionConfig(
                text_config=text, vision_config=_siglip_side(), image_token_index=95,
                image_grid_pinpoints=[[32, 32]], vision_feature_layer=-1,
                vision_feature_select_strategy="full"))

    return make


def _audioflamingo3():
    def make():
        text = transformers.Qwen2Config(num_key_value_heads=2, **SIZES, **TOKENS)
        audio = transformers.AudioFlamingo3EncoderConfig(
            num_mel_bins=16, hidden_size=48, num_hidden_layers=1, num_attention_heads=4,
            intermediate_size=96, max_source_positions=20)
        return transformers.AudioFlamingo3ForConditionalGeneration(
            transformers.AudioFlamingo3Config(
                text_config=text, audio_config=audio, audio_token_id=95))

    return make


def _qwen3():
    return _made_from("Qwen3ForCausalLM", "Qwen3Config", num_key_value_heads=2,
                      head_dim=12, **SIZES, **TOKENS)


def _starcoder2():
    return _made_from("Starcoder2ForCausalLM", "Starcoder2Config", num_key_value_heads=2,
                      **SIZES, **TOKENS)


def _stablelm():
    rope = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}
    return _made_from("StableLmForCausalLM", "StableLmConfig", num_key_value_heads=2,
                      rope_parameters=rope, **SIZES, **TOKENS)


def _biogpt():
    return _made_from("BioGptForCausalLM", "BioGptConfig", **SIZES, **TOKENS)


def _wav2vec2():
    return _made_from(
        "Wav2Vec2Model", "Wav2Vec2Config", vocab_size=32, hidden_size=48,
        num_hidden_layers=2, num_attention_heads=4, intermediate_size=96,
        conv_dim=[16, 16, 16], conv_stride=[5, 2, 2], conv_kernel=[10, 3, 3],
        num_conv_pos_embeddings=8, num_conv_pos_embedding_groups=4)


def _megatron_bert():
    return _made_from("MegatronBertForSequenceClassification", "MegatronBertConfig",
                      num_labels=3, **SIZES)


def _beit():
    return _made_from(
        "BeitForImageClassification", "BeitConfig", hidden_size=48, num_hidden_layers=2,
        num_attention_heads=4, intermediate_size=96, image_size=32, patch_size=8,
        use_relative_position_bias=True, num_labels=5)


def _llava_next():
    def make():
        text = transformers.MistralConfig(num_key_value_heads=2, **SIZES, **TOKENS)
        vision = transformers.CLIPVisionConfig(
            hidden_size=48, intermediate_size=96, num_hidden_layers=2,
            num_attention_heads=4, image_size=32, patch_size=8)
        return transformers.LlavaNextForConditionalGeneration(transformers.LlavaNextConfig(
            text_config=text, vision_config=vision, image_token_index=95,
            image_grid_pinpoints=[[32, 32]]))

    return make


def _smolvlm():
    def make():
        text = transformers.LlamaConfig(num_key_value_heads=2, **SIZES, **TOKENS)
        vision = transformers.SmolVLMVisionConfig(
            hidden_size=40, intermediate_size=80, num_hidden_layers=1,
            num_attention_heads=4, image_size=32, patch_size=8)
        return transformers.SmolVLMForConditionalGeneration(transformers.SmolVLMConfig(
            text_config=text, vision_config=vision, image_token_id=95, scale_factor=2))

    return make


def _glmasr():
    def make():
        text = transformers.LlamaConfig(num_key_value_heads=2, **SIZES, **TOKENS)
        audio = transformers.GlmAsrEncoderConfig(
            num_mel_bins=16, hidden_size=48, num_hidden_layers=1, num_attention_heads=4,
            intermediate_size=192, max_position_embeddings=20)
        return transformers.GlmAsrForConditionalGeneration(transformers.GlmAsrConfig(
            text_config=text, audio_config=audio, audio_token_id=95))

    return make


def _lighton_ocr():
    def make():
        text = transformers.Qwen3Config(
            num_key_value_heads=2, head_dim=12, **SIZES, **TOKENS)
        vision = transformers.PixtralVisionConfig(
            hidden_size=48, intermediate_size=96, num_hidden_layers=1,
            num_attention_heads=4, image_size=32, patch_size=8)
        return transformers.LightOnOcrForConditionalGeneration(
            transformers.LightOnOcrConfig(
                text_config=text, vision_config=vision, image_token_id=95,
                spatial_merge_size=2))

    return make


def _owlvit():
    return _two_sided("OwlViTModel", "OwlViTConfig", {}, {}, projection_dim=32)


def _clipseg():
    return _two_sided("CLIPSegModel", "CLIPSegConfig", {}, {}, projection_dim=32)


def _dual():
    def make():
        vision = transformers.ViTConfig(
            hidden_size=48, num_hidden_layers=1, num_attention_heads=4,
            intermediate_size=96, image_size=32, patch_size=8)
        text = transformers.BertConfig(**{**SIZES, "num_hidden_layers": 1})
        return transformers.VisionTextDualEncoderModel(
            transformers.VisionTextDualEncoderConfig.from_vision_text_configs(
                vision, text, projection_dim=32))

    return make


def _aimv2():
    return _two_sided(
        "Aimv2Model", "Aimv2Config", {}, {"use_head": True}, projection_dim=32)


def _video_llava():
    def make():
        text = transformers.LlamaConfig(num_key_value_heads=2, **SIZES, **TOKENS)
        vision = transformers.CLIPVisionConfig(
            hidden_size=48, intermediate_size=96, num_hidden_layers=2,
            num_attention_heads=4, image_size=32, patch_size=8)
        return transformers.VideoLlavaForConditionalGeneration(
            transformers.VideoLlavaConfig(
                text_config=text, vision_config=vision, image_token_index=95,
                video_token_index=94, image_seq_length=16))

    return make


def _gpt_bigcode():
    return _made_from("GPTBigCodeForCausalLM", "GPTBigCodeConfig", vocab_size=96, n_embd=48,
                      n_layer=2, n_head=4, n_inner=96, n_positions=64, **TOKENS)


def _xglm():
    return _made_from("XGLMForCausalLM", "XGLMConfig", vocab_size=96, d_model=48,
                      num_layers=2, attention_heads=4, ffn_dim=96,
                      max_position_embeddings=64, **TOKENS)


def _ernie():
    return _made_from("ErnieForSequenceClassification", "ErnieConfig", num_labels=3,
                      **SIZES)


def _vit_msn():
    return _made_from(
        "ViTMSNForImageClassification", "ViTMSNConfig", hidden_size=48,
        num_hidden_layers=2, num_attention_heads=4, intermediate_size=96, image_size=32,
        patch_size=8, num_labels=5)


def _patched_prompt(patches):
    """Text around as many tokens as an image, or a sound, becomes."""
    def make():
        text = models._tokens(1, 6, vocabulary=90)
        other = torch.full((1, patches), 95)
        ids = torch.cat([text[:, :2], other, text[:, 2:]], 1)
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}

    return make


def _heard():
    return {**_patched_prompt(10)(), "input_features": models._sound()[:1],
            "feature_attention_mask": torch.ones(1, 40, dtype=torch.long)}


def _seen(patches):
    return lambda: {**_patched_prompt(patches)(), "pixel_values": models._pixels(1, 32)}


def _seen_in_rows(patches):
    """Several images a row may have; each has one."""
    def make():
        seen = _seen(patches)()
        return {**seen, "pixel_values": seen["pixel_values"][:, None]}

    return make


def _seen_with_sizes(patches):
    return lambda: {**_seen(patches)(), "image_sizes": torch.tensor([[32, 32]])}


def _seen_larger(patches):
    return lambda: {**_patched_prompt(patches)(), "pixel_values": models._pixels(1, 64)}


def _seen_in_tiles(patches):
    """An image as a whole and its only tile."""
    def make():
        seen = _patched_prompt(patches)()
        return {**seen, "pixel_values": models._pixels(2, 32)[None],
                "image_sizes": torch.tensor([[32, 32]])}

    return make


def _seen_beside_videos(patches):
    def make():
        seen = _seen(patches)()
        seen["pixel_values_images"] = seen.pop("pixel_values")
        return seen

    return make


def _read_and_seen(side=32):
    return lambda: {**models._text(), "pixel_values": models._pixels(2, side)}


def _heard_with_mask(tokens):
    return lambda: {**_patched_prompt(tokens)(), "input_features": models._sound()[:1],
                    "input_features_mask": torch.ones(1, 40, dtype=torch.long)}


def _heard_whole():
    return {**_patched_prompt(10)(), "input_features": models._sound()[:1]}


def _seen_by_types():
    seen = _seen(16)()
    return {**seen, "token_type_ids": torch.zeros_like(seen["input_ids"])}


def _page():
    """Words, where on the page they stand, and the page."""
    text = models._text()
    rows, columns = text["input_ids"].shape
    corner = models._tokens(rows, columns * 2, vocabulary=30, seed=6).view(rows, columns, 2)
    return {**text, "bbox": torch.cat([corner, corner + 8], -1),
            "pixel_values": models._pixels(rows, 32)}


def _llava():
    def make():
        text = transformers.LlamaConfig(num_key_value_heads=2, **SIZES, **TOKENS)
        vision = transformers.CLIPVisionConfig(
            hidden_size=48, intermediate_size=96, num_hidden_layers=2,
            num_attention_heads=4, image_size=32, patch_size=8)
        return transformers.LlavaForConditionalGeneration(transformers.LlavaConfig(
            text_config=text, vision_config=vision, image_token_id=95, pad_token_id=0))

    return make


def _image_prompt():
    text = models._tokens(1, 6, vocabulary=90)
    image = torch.full((1, 16), 95)
    ids = torch.cat([text[:, :2], image, text[:, 2:]], 1)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids),
            "pixel_values": models._pixels(1, 32)}


def _unpadded():
    return {"input_ids": models._tokens(1, 9)}


def _pixels(rows, side):
    return lambda: {"pixel_values": models._pixels(rows, side)}


class LSTMTagger(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(96, 32)
        self.lstm = torch.nn.LSTM(32, 48, num_layers=2, batch_first=True)
        self.head = torch.nn.Linear(48, 7)

    def forward(self, input_ids):
        hidden, _ = self.lstm(self.embedding(input_ids))
        return self.head(hidden[:, -1])


class GRUTagger(torch.nn.Module):
    """Reads both ways; a score for each token."""

    def __init__(self):
        super().__init__()
        self.embedding = torch.nn.Embedding(96, 32)
        self.gru = torch.nn.GRU(32, 24, batch_first=True, bidirectional=True)
        self.head = torch.nn.Linear(48, 7)

    def forward(self, input_ids):
        hidden, _ = self.gru(self.embedding(input_ids))
        return self.head(hidden)


class DotInteraction(torch.nn.Module):
    def forward(self, vectors):
        products = torch.bmm(vectors, vectors.transpose(1, 2))
        rows, columns = torch.tril_indices(
            vectors.shape[1], vectors.shape[1], -1, device=vectors.device)
        return products[:, rows, columns]


class ClickMLP(torch.nn.Module):
    def __init__(self, *sizes):
        super().__init__()
        layers = []
        for before, after in zip(sizes, sizes[1:]):
            layers += [torch.nn.Linear(before, after), torch.nn.ReLU()]
        self.layers = torch.nn.Sequential(*layers[:-1])

    def forward(self, x):
        return self.layers(x)


class ClickModel(torch.nn.Module):
    """A recommender: bags of categories, dense features, their products, a score."""

    def __init__(self):
        super().__init__()
        self.tables = torch.nn.ModuleList(
            torch.nn.EmbeddingBag(200, 16, mode="sum") for _ in range(6))
        self.bottom = ClickMLP(13, 32, 16)
        self.interaction = DotInteraction()
        self.top = ClickMLP(16 + 21, 32, 1)

    def forward(self, dense, categories):
        bottom = self.bottom(dense)
        vectors = [bottom] + [
            table(categories[:, k]) for k, table in enumerate(self.tables)]
        products = self.interaction(torch.stack(vectors, 1))
        return torch.sigmoid(self.top(torch.cat([bottom, products], 1)))


def _clicks():
    generator = torch.Generator().manual_seed(5)
    return {"dense": torch.rand(8, 13, generator=generator),
            "categories": torch.randint(0, 200, (8, 6, 3), generator=generator)}


class PixelEncoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Conv2d(3, 16, 3, 2, 1), torch.nn.GroupNorm(4, 16), torch.nn.SiLU(),
            torch.nn.Conv2d(16, 32, 3, 2, 1), torch.nn.GroupNorm(4, 32), torch.nn.SiLU(),
            torch.nn.Conv2d(32, 4, 3, 1, 1))

    def forward(self, pixels):
        return self.layers(pixels)


class PixelDecoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Conv2d(4, 32, 3, 1, 1)
        self.norm = torch.nn.GroupNorm(4, 32)
        self.second = torch.nn.Conv2d(32, 16, 3, 1, 1)
        self.up = torch.nn.ConvTranspose2d(16, 8, 4, 2, 1)
        self.last = torch.nn.Conv2d(8, 3, 3, 1, 1)

    def forward(self, latent):
        hidden = torch.nn.functional.silu(self.norm(self.first(latent)))
        hidden = torch.nn.functional.interpolate(hidden, scale_factor=2.0)
        hidden = torch.nn.functional.silu(self.second(hidden))
        return torch.tanh(self.last(torch.nn.functional.silu(self.up(hidden))))


class Autoencoder(torch.nn.Module):
    """Pixels to a latent and back, as in image generation."""

    def __init__(self):
        super().__init__()
        self.encoder = PixelEncoder()
        self.decoder = PixelDecoder()

    def forward(self, pixel_values):
        return self.decoder(self.encoder(pixel_values))


_LM_LOSS = _with_labels(models._text)
_HF = {family.name: family for family in models.FAMILIES}

PROGRAMS = [
    Program("bert", "forward", forward(_HF["bert"].make, models._text)),
    Program("bert", "train", train(_bert_classifier(), models._text, _classify)),
    Program("gpt2", "generate", generate(_HF["gpt2"].make, models._prompt)),
    Program("llama", "generate", generate(_llama(), _unpadded)),
    Program("llama", "explicit", generate(_llama("eager"), models._prompt)),
    Program("llama", "static", generate(
        _llama(), models._prompt, cache_implementation="static", disable_compile=True)),
    Program("t5", "generate", generate(_HF["t5"].make, models._text)),
    Program("mixtral", "generate", generate(_mixtral(), models._prompt)),
    Program("vit", "forward", forward(_HF["vit"].make, _pixels(2, 32))),
    Program("vit", "train", train(_vit_classifier(), _pixels(2, 32), _classify)),
    Program("resnet", "train", train(
        _resnet_classifier(), _pixels(2, 64), _classify, _sgd)),
    Program("clip", "forward", forward(_HF["clip"].make, _HF["clip"].inputs)),
    Program("llava", "generate", generate(_llava(), _image_prompt)),
    Program("whisper", "generate", generate(
        _HF["whisper"].make, lambda: {"input_features": models._sound()})),
    Program("lstm", "train", train(
        LSTMTagger, lambda: {"input_ids": models._tokens(2, 9)}, _classify)),
    Program("recommender", "forward", forward(ClickModel, _clicks)),
    Program("segformer", "forward", forward(_segformer(), _pixels(1, 64))),
    Program("autoencoder", "forward", forward(Autoencoder, _pixels(1, 32))),
    Program("vilt", "forward", forward(
        _vilt(), lambda: {**models._text(), "pixel_values": models._pixels(2, 32)})),
    Program("neox", "generate", generate(_neox(), models._prompt)),
    Program("layout", "forward", forward(_layout(), _page)),
    Program("phi", "generate", generate(_phi(), models._prompt)),
    Program("mpnet", "forward", forward(_mpnet(), models._text)),
    Program("efficientnet", "forward", forward(_efficientnet(), _pixels(2, 64))),
    Program("albert", "forward", forward(_albert(), models._text)),
    Program("bart", "generate", generate(_bart(), models._text)),
    Program("swin", "forward", forward(_swin(), _pixels(2, 32))),
    Program("falcon", "generate", generate(_falcon(), models._prompt)),
    Program("bloom", "train", train(_bloom(), _LM_LOSS, _own_loss), held_out=True),
    Program("gemma", "generate", generate(_gemma(), models._prompt)),
    Program("olmoe", "generate", generate(_olmoe(), models._prompt), held_out=True),
    Program("gptj", "generate", generate(_gptj(), models._prompt)),
    Program("pegasus", "generate", generate(_pegasus(), models._text)),
    Program("electra", "train", train(_electra(), models._text, _classify, _sgd),
            held_out=True),
    Program("depth", "forward", forward(_depth(), _pixels(1, 32))),
    Program("mobilenet_v1", "train", train(_mobilenet_v1(), _pixels(2, 64), _classify, _sgd),
            held_out=True),
    Program("poolformer", "forward", forward(_poolformer(), _pixels(2, 64))),
    Program("hubert", "forward", forward(_hubert(), _waves)),
    Program("gru", "train", train(
        GRUTagger, lambda: {"input_ids": models._tokens(2, 9)}, _classify),
            held_out=True),
    Program("internvl", "generate", generate(_internvl(), _seen(4)), held_out=True),
    Program("qwen2_audio", "generate", generate(_audio_llm(), _heard)),
    Program("siglip", "forward", forward(
        _siglip(), lambda: {**models._text(), "pixel_values": models._pixels(2, 32)})),
    Program("flava", "forward", forward(
        _flava(), lambda: {**models._text(), "pixel_values": models._pixels(2, 32)})),
    Program("aya_vision", "generate", generate(_aya_vision(), _seen(4))),
    Program("paligemma", "generate", generate(_paligemma(), _seen_by_types)),
    Program("nemotron", "generate", generate(_nemotron(), models._prompt), held_out=True),
    Program("codegen", "generate", generate(_codegen(), models._prompt)),
    Program("t5gemma", "generate", generate(_t5gemma(), models._text)),
    Program("glm", "generate", generate(_glm(), models._prompt)),
    Program("olmo2", "generate", generate(_olmo2(), models._prompt), held_out=True),
    Program("gpt_neo", "train", train(_gpt_neo(), _LM_LOSS, _own_loss), held_out=True),
    Program("vipllava", "generate", generate(_vipllava(), _seen(16)), held_out=True),
    Program("gemma3", "generate", generate(_gemma3(), _seen(4))),
    Program("voxtral", "generate", generate(_voxtral(), _heard_whole)),
    Program("idefics3", "generate", generate(_idefics3(), _seen_in_rows(4))),
    Program("mistral3", "generate", generate(_mistral3(), _seen_with_sizes(4))),
    Program("chinese_clip", "forward", forward(
        _chinese_clip(), lambda: {**models._text(), "pixel_values": models._pixels(2, 32)})),
    Program("glpn", "forward", forward(_glpn(), _pixels(1, 64))),
    Program("deit", "train", train(_deit(), _pixels(2, 32), _classify), held_out=True),
    Program("altclip", "forward", forward(_altclip(), _read_and_seen())),
    Program("metaclip2", "forward", forward(_metaclip2(), _read_and_seen()),
            held_out=True),
    Program("blip", "forward", forward(_blip(), _read_and_seen())),
    Program("align", "forward", forward(_align(), _read_and_seen(64))),
    Program("cohere2_vision", "generate", generate(_cohere2_vision(), _seen(4))),
    Program("got_ocr2", "generate", generate(_got_ocr2(), _seen_larger(4))),
    Program("deepseek_vl", "generate", generate(_deepseek_vl(), _seen(16))),
    Program("llava_onevision", "generate", generate(
        _llava_onevision(), _seen_in_tiles(36))),
    Program("audioflamingo3", "generate", generate(
        _audioflamingo3(), _heard_with_mask(10))),
    Program("qwen3", "generate", generate(_qwen3(), models._prompt), held_out=True),
    Program("starcoder2", "generate", generate(_starcoder2(), models._prompt),
            held_out=True),
    Program("stablelm", "generate", generate(_stablelm(), models._prompt), held_out=True),
    Program("biogpt", "generate", generate(_biogpt(), models._prompt), held_out=True),
    Program("wav2vec2", "forward", forward(_wav2vec2(), _waves)),
    Program("megatron_bert", "train", train(_megatron_bert(), models._text, _classify),
            held_out=True),
    Program("beit", "train", train(_beit(), _pixels(2, 32), _classify), held_out=True),
    Program("llava_next", "generate", generate(_llava_next(), _seen_in_tiles(36))),
    Program("smolvlm", "generate", generate(_smolvlm(), _seen_in_rows(4)), held_out=True),
    Program("glmasr", "generate", generate(_glmasr(), _heard_with_mask(5))),
    Program("lighton_ocr", "generate", generate(_lighton_ocr(), _seen_with_sizes(4))),
    Program("owlvit", "forward", forward(_owlvit(), _read_and_seen())),
    Program("clipseg", "forward", forward(_clipseg(), _read_and_seen())),
    Program("dual", "forward", forward(_dual(), _read_and_seen())),
    Program("gpt_bigcode", "generate", generate(_gpt_bigcode(), models._prompt),
            held_out=True),
    Program("xglm", "generate", generate(_xglm(), models._prompt)),
    Program("ernie", "train", train(_ernie(), models._text, _classify), held_out=True),
    Program("vit_msn", "forward", forward(_vit_msn(), _pixels(2, 32)), held_out=True),
    Program("aimv2", "forward", forward(_aimv2(), _read_and_seen())),
    Program("video_llava", "generate", generate(_video_llava(), _seen_beside_videos(16)),
            held_out=True),
]
