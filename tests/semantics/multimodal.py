"""Makes small models of several modalities, as families.py does of languages."""

import transformers

from tests.semantics import families

# Sizes of one modality's encoder.
SIDE = {"hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 1,
        "num_attention_heads": 4}
IMAGE = {"image_size": 32, "patch_size": 8}
LANGUAGE = {"vocab_size": 96, "max_position_embeddings": 32}
SOUND = {"num_mel_bins": 16, "max_source_positions": 20}


def _joined(name, text, other, **settings):
    """A language model that reads what an encoder makes of images or sounds. `text` and
    `other` are the names of their configurations and settings of these; `other`'s kind
    is the name's of the parameter that takes it."""
    def make():
        text_name, text_settings = text
        kind, other_name, other_settings = other
        configs = {
            "text_config": getattr(transformers, text_name)(**{
                "num_key_value_heads": 2, **families.SIZES, **families.TOKENS,
                **text_settings}),
            kind: getattr(transformers, other_name)(**other_settings)}
        return getattr(transformers, f"{name}ForConditionalGeneration")(
            getattr(transformers, f"{name}Config")(**configs, **settings))

    return make


def _sees(config, side=SIDE, **settings):
    return "vision_config", config, {**side, **IMAGE, **settings}


def _hears(config, **settings):
    return "audio_config", config, {**SOUND, **settings}


NARROW = {**SIDE, "hidden_size": 40, "intermediate_size": 80}
LLAMA, QWEN2 = ("LlamaConfig", {}), ("Qwen2Config", {})
SIGLIP = _sees("SiglipVisionConfig")
# Some models read the last layer but one.
CLIP = _sees("CLIPVisionConfig", num_hidden_layers=2)


def vilt():
    return families.made_from("ViltModel", "ViltConfig", **IMAGE, **families.SIZES)


def layout():
    return families.made_from(
        "LayoutLMv3Model", "LayoutLMv3Config", input_size=32, patch_size=8,
        coordinate_size=8, shape_size=8, max_2d_position_embeddings=64,
        pad_token_id=1, bos_token_id=0, eos_token_id=2, **families.SIZES)


def internvl():
    return _joined("InternVL", QWEN2, _sees("InternVLVisionConfig"), image_token_id=95,
                   image_seq_length=4)


def audio_llm():
    return _joined(
        "Qwen2Audio", QWEN2,
        _hears("Qwen2AudioEncoderConfig", d_model=48, encoder_layers=1,
               encoder_attention_heads=4, encoder_ffn_dim=96),
        audio_token_index=95)


def siglip():
    return two_sided("SiglipModel", "SiglipConfig", {"projection_size": 48}, {})


def flava():
    def make():
        return transformers.FlavaModel(transformers.FlavaConfig(
            text_config={**SIDE, **LANGUAGE}, image_config={**SIDE, **IMAGE},
            multimodal_config=SIDE, hidden_size=48, projection_dim=32))

    return make


def aya_vision():
    return _joined("AyaVision", ("Cohere2Config", {}), SIGLIP, image_token_index=95)


def paligemma():
    return _joined(
        "PaliGemma", ("GemmaConfig", {"head_dim": 12}),
        _sees("SiglipVisionConfig", NARROW, projection_dim=48), image_token_index=95,
        projection_dim=48, hidden_size=48, pad_token_id=0)


def vipllava():
    return _joined("VipLlava", LLAMA, CLIP, image_token_index=95,
                   vision_feature_layer=[-2, -1], image_seq_length=16)


def gemma3():
    return _joined(
        "Gemma3", ("Gemma3TextConfig", {"head_dim": 12, "sliding_window": 32}),
        _sees("SiglipVisionConfig", NARROW), image_token_index=95, mm_tokens_per_image=4)


def voxtral():
    return _joined("Voxtral", LLAMA, _hears("VoxtralEncoderConfig", **SIDE),
                   audio_token_id=95)


def idefics3():
    return _joined("Idefics3", LLAMA, _sees("Idefics3VisionConfig", NARROW),
                   image_token_id=95, scale_factor=2)


def mistral3():
    return _joined("Mistral3", ("MistralConfig", {}), _sees("PixtralVisionConfig"),
                   image_token_index=95, spatial_merge_size=2, vision_feature_layer=-1)


def two_sided(model, config, text, vision, tokens=families.TOKENS, **sizes):
    """A text's vectors and an image's are compared."""
    def make():
        return getattr(transformers, model)(getattr(transformers, config)(
            text_config={**SIDE, **LANGUAGE, **tokens, **text},
            vision_config={**SIDE, **IMAGE, **vision}, **sizes))

    return make


def chinese_clip():
    return two_sided("ChineseCLIPModel", "ChineseCLIPConfig", {}, {}, tokens={},
                     projection_dim=32)


def altclip():
    return two_sided("AltCLIPModel", "AltCLIPConfig", {"project_dim": 48}, {},
                     projection_dim=32)


def metaclip2():
    return two_sided("MetaClip2Model", "MetaClip2Config", {}, {}, projection_dim=32)


def blip():
    return two_sided(
        "BlipModel", "BlipConfig",
        {"encoder_hidden_size": 48, "is_decoder": False, "sep_token_id": 2}, {},
        projection_dim=32, image_text_hidden_size=32)


def align():
    def make():
        return transformers.AlignModel(transformers.AlignConfig(
            text_config={**SIDE, **LANGUAGE},
            vision_config={
                "image_size": 64, "width_coefficient": 0.05, "depth_coefficient": 1.0,
                "in_channels": [32, 480, 640], "out_channels": [480, 640, 960],
                "kernel_sizes": [3, 5, 3], "strides": [1, 2, 2],
                "num_block_repeats": [1, 2, 1], "expand_ratios": [1, 4, 4],
                "depthwise_padding": [], "hidden_dim": 48},
            projection_dim=48))

    return make


def cohere2_vision():
    return _joined("Cohere2Vision", ("Cohere2Config", {}), SIGLIP, image_token_id=95,
                   alignment_intermediate_size=96)


def got_ocr2():
    return _joined(
        "GotOcr2", QWEN2,
        ("vision_config", "GotOcr2VisionConfig", {
            "hidden_size": 48, "output_channels": 16, "num_hidden_layers": 2,
            "num_attention_heads": 4, "image_size": 64, "patch_size": 8, "window_size": 4,
            "global_attn_indexes": [1], "mlp_dim": 96}),
        image_token_index=95, image_seq_length=4)


def deepseek_vl():
    return _joined("DeepseekVL", LLAMA, SIGLIP, image_token_id=95)


def llava_onevision():
    return _joined(
        "LlavaOnevision", QWEN2, SIGLIP, image_token_index=95,
        image_grid_pinpoints=[[32, 32]], vision_feature_layer=-1,
        vision_feature_select_strategy="full")


def audioflamingo3():
    return _joined("AudioFlamingo3", QWEN2, _hears("AudioFlamingo3EncoderConfig", **SIDE),
                   audio_token_id=95)


def llava_next():
    return _joined("LlavaNext", ("MistralConfig", {}), CLIP, image_token_index=95,
                   image_grid_pinpoints=[[32, 32]])


def smolvlm():
    return _joined("SmolVLM", LLAMA, _sees("SmolVLMVisionConfig", NARROW),
                   image_token_id=95, scale_factor=2)


def glmasr():
    audio = {**SIDE, "intermediate_size": 192, "num_mel_bins": 16,
             "max_position_embeddings": 20}
    return _joined("GlmAsr", LLAMA, ("audio_config", "GlmAsrEncoderConfig", audio),
                   audio_token_id=95)


def lighton_ocr():
    return _joined("LightOnOcr", ("Qwen3Config", {"head_dim": 12}),
                   _sees("PixtralVisionConfig"), image_token_id=95, spatial_merge_size=2)


def owlvit():
    return two_sided("OwlViTModel", "OwlViTConfig", {}, {}, projection_dim=32)


def clipseg():
    return two_sided("CLIPSegModel", "CLIPSegConfig", {}, {}, projection_dim=32)


def aimv2():
    return two_sided(
        "Aimv2Model", "Aimv2Config", {}, {"use_head": True}, projection_dim=32)


def video_llava():
    return _joined("VideoLlava", LLAMA, CLIP, image_token_index=95, video_token_index=94,
                   image_seq_length=16)


def llava():
    return _joined("Llava", LLAMA, CLIP, image_token_id=95, pad_token_id=0)
