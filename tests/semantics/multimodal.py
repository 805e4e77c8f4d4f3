"""As families, for models of several modalities."""

import transformers

from tests.semantics import families


def vilt():
    return families.made_from(
        "ViltModel", "ViltConfig", image_size=32, patch_size=8, **families.SIZES)


def layout():
    return families.made_from(
        "LayoutLMv3Model", "LayoutLMv3Config", input_size=32, patch_size=8,
        coordinate_size=8, shape_size=8, max_2d_position_embeddings=64,
        pad_token_id=1, bos_token_id=0, eos_token_id=2, **families.SIZES)


def internvl():
    def make():
        text = transformers.Qwen2Config(
            num_key_value_heads=2, **families.SIZES, **families.TOKENS)
        vision = transformers.InternVLVisionConfig(
            hidden_size=48, intermediate_size=96, num_hidden_layers=1,
            num_attention_heads=4, image_size=32, patch_size=8)
        return transformers.InternVLForConditionalGeneration(transformers.InternVLConfig(
            text_config=text, vision_config=vision, image_token_id=95,
            image_seq_length=4))

    return make


def audio_llm():
    def make():
        text = transformers.Qwen2Config(
            num_key_value_heads=2, **families.SIZES, **families.TOKENS)
        audio = transformers.Qwen2AudioEncoderConfig(
            num_mel_bins=16, d_model=48, encoder_layers=1, encoder_attention_heads=4,
            encoder_ffn_dim=96, max_source_positions=20)
        return transformers.Qwen2AudioForConditionalGeneration(
            transformers.Qwen2AudioConfig(
                text_config=text, audio_config=audio, audio_token_index=95))

    return make


def siglip():
    def make():
        sizes = {"hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 1,
                 "num_attention_heads": 4}
        return transformers.SiglipModel(transformers.SiglipConfig(
            text_config={**sizes, "vocab_size": 96, "max_position_embeddings": 32,
                         "projection_size": 48, **families.TOKENS},
            vision_config={**sizes, "image_size": 32, "patch_size": 8}))

    return make


def flava():
    def make():
        sizes = {"hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 1,
                 "num_attention_heads": 4}
        return transformers.FlavaModel(transformers.FlavaConfig(
            text_config={**sizes, "vocab_size": 96, "max_position_embeddings": 32},
            image_config={**sizes, "image_size": 32, "patch_size": 8},
            multimodal_config=sizes, hidden_size=48, projection_dim=32))

    return make


def aya_vision():
    def make():
        text = transformers.Cohere2Config(
            num_key_value_heads=2, **families.SIZES, **families.TOKENS)
        vision = transformers.SiglipVisionConfig(
            hidden_size=48, intermediate_size=96, num_hidden_layers=1,
            num_attention_heads=4, image_size=32, patch_size=8)
        return transformers.AyaVisionForConditionalGeneration(
            transformers.AyaVisionConfig(
                text_config=text, vision_config=vision, image_token_index=95))

    return make


def paligemma():
    def make():
        text = transformers.GemmaConfig(
            num_key_value_heads=2, head_dim=12, **families.SIZES, **families.TOKENS)
        vision = transformers.SiglipVisionConfig(
            hidden_size=40, intermediate_size=80, num_hidden_layers=1,
            num_attention_heads=4, image_size=32, patch_size=8, projection_dim=48)
        return transformers.PaliGemmaForConditionalGeneration(
            transformers.PaliGemmaConfig(
                text_config=text, vision_config=vision, image_token_index=95,
                projection_dim=48, hidden_size=48, pad_token_id=0))

    return make


def vipllava():
    def make():
        text = transformers.LlamaConfig(
            num_key_value_heads=2, **families.SIZES, **families.TOKENS)
        vision = transformers.CLIPVisionConfig(
            hidden_size=48, intermediate_size=96, num_hidden_layers=2,
            num_attention_heads=4, image_size=32, patch_size=8)
        return transformers.VipLlavaForConditionalGeneration(transformers.VipLlavaConfig(
            text_config=text, vision_config=vision, image_token_index=95,
            vision_feature_layer=[-2, -1], image_seq_length=16))

    return make


def gemma3():
    def make():
        text = transformers.Gemma3TextConfig(
            num_key_value_heads=2, head_dim=12, sliding_window=32,
            **families.SIZES, **families.TOKENS)
        vision = transformers.SiglipVisionConfig(
            hidden_size=40, intermediate_size=80, num_hidden_layers=1,
            num_attention_heads=4, image_size=32, patch_size=8)
        return transformers.Gemma3ForConditionalGeneration(transformers.Gemma3Config(
            text_config=text, vision_config=vision, image_token_index=95,
            mm_tokens_per_image=4))

    return make


def voxtral():
    def make():
        text = transformers.LlamaConfig(
            num_key_value_heads=2, **families.SIZES, **families.TOKENS)
        audio = transformers.VoxtralEncoderConfig(
            num_mel_bins=16, hidden_size=48, num_hidden_layers=1, num_attention_heads=4,
            intermediate_size=96, max_source_positions=20)
        return transformers.VoxtralForConditionalGeneration(transformers.VoxtralConfig(
            text_config=text, audio_config=audio, audio_token_id=95))

    return make


def idefics3():
    def make():
        text = transformers.LlamaConfig(
            num_key_value_heads=2, **families.SIZES, **families.TOKENS)
        vision = transformers.Idefics3VisionConfig(
            hidden_size=40, intermediate_size=80, num_hidden_layers=1,
            num_attention_heads=4, image_size=32, patch_size=8)
        return transformers.Idefics3ForConditionalGeneration(transformers.Idefics3Config(
            text_config=text, vision_config=vision, image_token_id=95, scale_factor=2))

    return make


def mistral3():
    def make():
        text = transformers.MistralConfig(
            num_key_value_heads=2, **families.SIZES, **families.TOKENS)
        vision = transformers.PixtralVisionConfig(
            hidden_size=48, intermediate_size=96, num_hidden_layers=1,
            num_attention_heads=4, image_size=32, patch_size=8)
        return transformers.Mistral3ForConditionalGeneration(transformers.Mistral3Config(
            text_config=text, vision_config=vision, image_token_index=95,
            spatial_merge_size=2, vision_feature_layer=-1))

    return make


def chinese_clip():
    def make():
        sizes = {"hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 1,
                 "num_attention_heads": 4}
        return transformers.ChineseCLIPModel(transformers.ChineseCLIPConfig(
            text_config={**sizes, "vocab_size": 96, "max_position_embeddings": 32},
            vision_config={**sizes, "image_size": 32, "patch_size": 8},
            projection_dim=32))

    return make


def two_sided(model, config, text, vision, **sizes):
    """A text's vectors and an image's are compared."""
    def make():
        sides = {"hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 1,
                 "num_attention_heads": 4}
        return getattr(transformers, model)(getattr(transformers, config)(
            text_config={**sides, "vocab_size": 96, "max_position_embeddings": 32,
                         **families.TOKENS, **text},
            vision_config={**sides, "image_size": 32, "patch_size": 8, **vision},
            **sizes))

    return make


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


def siglip_side():
    return transformers.SiglipVisionConfig(
        hidden_size=48, intermediate_size=96, num_hidden_layers=1,
        num_attention_heads=4, image_size=32, patch_size=8)


def cohere2_vision():
    def make():
        text = transformers.Cohere2Config(
            num_key_value_heads=2, **families.SIZES, **families.TOKENS)
        return transformers.Cohere2VisionForConditionalGeneration(
            transformers.Cohere2VisionConfig(
                text_config=text, vision_config=siglip_side(), image_token_id=95,
                alignment_intermediate_size=96))

    return make


def got_ocr2():
    def make():
        text = transformers.Qwen2Config(
            num_key_value_heads=2, **families.SIZES, **families.TOKENS)
        vision = transformers.GotOcr2VisionConfig(
            hidden_size=48, output_channels=16, num_hidden_layers=2,
            num_attention_heads=4, image_size=64, patch_size=8, window_size=4,
            global_attn_indexes=[1], mlp_dim=96)
        return transformers.GotOcr2ForConditionalGeneration(transformers.GotOcr2Config(
            text_config=text, vision_config=vision, image_token_index=95,
            image_seq_length=4))

    return make


def deepseek_vl():
    def make():
        text = transformers.LlamaConfig(
            num_key_value_heads=2, **families.SIZES, **families.TOKENS)
        return transformers.DeepseekVLForConditionalGeneration(
            transformers.DeepseekVLConfig(
                text_config=text, vision_config=siglip_side(), image_token_id=95))

    return make


def llava_onevision():
    def make():
        text = transformers.Qwen2Config(
            num_key_value_heads=2, **families.SIZES, **families.TOKENS)
        return transformers.LlavaOnevisionForConditionalGeneration(
            transformers.LlavaOnevisionConfig(
                text_config=text, vision_config=siglip_side(), image_token_index=95,
                image_grid_pinpoints=[[32, 32]], vision_feature_layer=-1,
                vision_feature_select_strategy="full"))

    return make


def audioflamingo3():
    def make():
        text = transformers.Qwen2Config(
            num_key_value_heads=2, **families.SIZES, **families.TOKENS)
        audio = transformers.AudioFlamingo3EncoderConfig(
            num_mel_bins=16, hidden_size=48, num_hidden_layers=1, num_attention_heads=4,
            intermediate_size=96, max_source_positions=20)
        return transformers.AudioFlamingo3ForConditionalGeneration(
            transformers.AudioFlamingo3Config(
                text_config=text, audio_config=audio, audio_token_id=95))

    return make


def llava_next():
    def make():
        text = transformers.MistralConfig(
            num_key_value_heads=2, **families.SIZES, **families.TOKENS)
        vision = transformers.CLIPVisionConfig(
            hidden_size=48, intermediate_size=96, num_hidden_layers=2,
            num_attention_heads=4, image_size=32, patch_size=8)
        return transformers.LlavaNextForConditionalGeneration(transformers.LlavaNextConfig(
            text_config=text, vision_config=vision, image_token_index=95,
            image_grid_pinpoints=[[32, 32]]))

    return make


def smolvlm():
    def make():
        text = transformers.LlamaConfig(
            num_key_value_heads=2, **families.SIZES, **families.TOKENS)
        vision = transformers.SmolVLMVisionConfig(
            hidden_size=40, intermediate_size=80, num_hidden_layers=1,
            num_attention_heads=4, image_size=32, patch_size=8)
        return transformers.SmolVLMForConditionalGeneration(transformers.SmolVLMConfig(
            text_config=text, vision_config=vision, image_token_id=95, scale_factor=2))

    return make


def glmasr():
    def make():
        text = transformers.LlamaConfig(
            num_key_value_heads=2, **families.SIZES, **families.TOKENS)
        audio = transformers.GlmAsrEncoderConfig(
            num_mel_bins=16, hidden_size=48, num_hidden_layers=1, num_attention_heads=4,
            intermediate_size=192, max_position_embeddings=20)
        return transformers.GlmAsrForConditionalGeneration(transformers.GlmAsrConfig(
            text_config=text, audio_config=audio, audio_token_id=95))

    return make


def lighton_ocr():
    def make():
        text = transformers.Qwen3Config(
            num_key_value_heads=2, head_dim=12, **families.SIZES, **families.TOKENS)
        vision = transformers.PixtralVisionConfig(
            hidden_size=48, intermediate_size=96, num_hidden_layers=1,
            num_attention_heads=4, image_size=32, patch_size=8)
        return transformers.LightOnOcrForConditionalGeneration(
            transformers.LightOnOcrConfig(
                text_config=text, vision_config=vision, image_token_id=95,
                spatial_merge_size=2))

    return make


def owlvit():
    return two_sided("OwlViTModel", "OwlViTConfig", {}, {}, projection_dim=32)


def clipseg():
    return two_sided("CLIPSegModel", "CLIPSegConfig", {}, {}, projection_dim=32)


def aimv2():
    return two_sided(
        "Aimv2Model", "Aimv2Config", {}, {"use_head": True}, projection_dim=32)


def video_llava():
    def make():
        text = transformers.LlamaConfig(
            num_key_value_heads=2, **families.SIZES, **families.TOKENS)
        vision = transformers.CLIPVisionConfig(
            hidden_size=48, intermediate_size=96, num_hidden_layers=2,
            num_attention_heads=4, image_size=32, patch_size=8)
        return transformers.VideoLlavaForConditionalGeneration(
            transformers.VideoLlavaConfig(
                text_config=text, vision_config=vision, image_token_index=95,
                video_token_index=94, image_seq_length=16))

    return make


def llava():
    def make():
        text = transformers.LlamaConfig(
            num_key_value_heads=2, **families.SIZES, **families.TOKENS)
        vision = transformers.CLIPVisionConfig(
            hidden_size=48, intermediate_size=96, num_hidden_layers=2,
            num_attention_heads=4, image_size=32, patch_size=8)
        return transformers.LlavaForConditionalGeneration(transformers.LlavaConfig(
            text_config=text, vision_config=vision, image_token_id=95, pad_token_id=0))

    return make
