"""How each family's model is made: transformers' own, small, from its configuration."""

import transformers


SIZES = {
    "vocab_size": 96, "hidden_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "intermediate_size": 96, "max_position_embeddings": 64,
}
TOKENS = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}


def made_from(model, config, *, attention=None, experts=None, **sizes):
    def make():
        settings = getattr(transformers, config)(**sizes)
        if attention is not None:
            settings._attn_implementation = attention
        if experts is not None:
            settings._experts_implementation = experts
        return getattr(transformers, model)(settings)

    return make


def llama(attention=None):
    return made_from("LlamaForCausalLM", "LlamaConfig", attention=attention,
                      num_key_value_heads=2, **SIZES, **TOKENS)


def mixtral():
    return made_from("MixtralForCausalLM", "MixtralConfig", num_key_value_heads=2,
                      num_local_experts=4, num_experts_per_tok=2, experts="eager",
                      **SIZES, **TOKENS)


def bert_classifier():
    return made_from("BertForSequenceClassification", "BertConfig", num_labels=3, **SIZES)


def vit_classifier():
    return made_from(
        "ViTForImageClassification", "ViTConfig", hidden_size=48, num_hidden_layers=2,
        num_attention_heads=4, intermediate_size=96, image_size=32, patch_size=8)


def resnet_classifier():
    return made_from(
        "ResNetForImageClassification", "ResNetConfig", embedding_size=16,
        hidden_sizes=[16, 32, 48], depths=[1, 2, 1], num_labels=5)


def segformer():
    return made_from(
        "SegformerForSemanticSegmentation", "SegformerConfig", hidden_sizes=[16, 32, 48, 64],
        depths=[1, 1, 1, 1], num_attention_heads=[1, 2, 4, 8], decoder_hidden_size=32,
        num_labels=5)


def vilt():
    return made_from(
        "ViltModel", "ViltConfig", image_size=32, patch_size=8, **SIZES)


def neox():
    return made_from("GPTNeoXForCausalLM", "GPTNeoXConfig", **SIZES, **TOKENS)


def layout():
    return made_from(
        "LayoutLMv3Model", "LayoutLMv3Config", input_size=32, patch_size=8,
        coordinate_size=8, shape_size=8, max_2d_position_embeddings=64,
        pad_token_id=1, bos_token_id=0, eos_token_id=2, **SIZES)


def phi():
    return made_from("PhiForCausalLM", "PhiConfig", **SIZES, **TOKENS)


def mpnet():
    return made_from("MPNetModel", "MPNetConfig", pad_token_id=1, bos_token_id=0,
                      eos_token_id=2, **SIZES)


def efficientnet():
    return made_from(
        "EfficientNetForImageClassification", "EfficientNetConfig", image_size=64,
        width_coefficient=0.05, depth_coefficient=1.0, in_channels=[32, 480, 640],
        out_channels=[480, 640, 960], kernel_sizes=[3, 5, 3], strides=[1, 2, 2],
        num_block_repeats=[1, 2, 1], expand_ratios=[1, 4, 4], depthwise_padding=[],
        hidden_dim=64, num_labels=5)


def albert():
    return made_from("AlbertModel", "AlbertConfig", embedding_size=24, **SIZES)


def bart():
    return made_from(
        "BartForConditionalGeneration", "BartConfig", vocab_size=96, d_model=48,
        encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=96, decoder_ffn_dim=96,
        max_position_embeddings=64, decoder_start_token_id=2, forced_eos_token_id=None,
        **TOKENS)


def swin():
    return made_from(
        "SwinForImageClassification", "SwinConfig", image_size=32, patch_size=4,
        embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4, num_labels=5)


def falcon():
    return made_from(
        "FalconForCausalLM", "FalconConfig", vocab_size=96, hidden_size=48,
        num_hidden_layers=2, num_attention_heads=4, ffn_hidden_size=96,
        max_position_embeddings=64, **TOKENS)


def bloom():
    return made_from("BloomForCausalLM", "BloomConfig", vocab_size=96, hidden_size=48,
                      n_layer=2, n_head=4, **TOKENS)


def gemma():
    return made_from("Gemma2ForCausalLM", "Gemma2Config", num_key_value_heads=2,
                      head_dim=12, sliding_window=32, **SIZES, **TOKENS)


def olmoe():
    return made_from("OlmoeForCausalLM", "OlmoeConfig", num_experts=4,
                      num_experts_per_tok=2, experts="eager", **SIZES, **TOKENS)


def gptj():
    return made_from("GPTJForCausalLM", "GPTJConfig", vocab_size=96, n_embd=48, n_layer=2,
                      n_head=4, n_inner=96, n_positions=64, rotary_dim=8, **TOKENS)


def pegasus():
    return made_from(
        "PegasusForConditionalGeneration", "PegasusConfig", vocab_size=96, d_model=48,
        encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
        decoder_attention_heads=4, encoder_ffn_dim=96, decoder_ffn_dim=96,
        max_position_embeddings=64, scale_embedding=True, decoder_start_token_id=0,
        forced_eos_token_id=None, **TOKENS)


def electra():
    return made_from("ElectraForSequenceClassification", "ElectraConfig",
                      embedding_size=24, num_labels=3, **SIZES)


def depth():
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


def mobilenet_v1():
    return made_from(
        "MobileNetV1ForImageClassification", "MobileNetV1Config", depth_multiplier=0.25,
        num_labels=5)


def poolformer():
    return made_from(
        "PoolFormerForImageClassification", "PoolFormerConfig",
        hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 1, 1], mlp_ratio=2.0, num_labels=5)


def hubert():
    return made_from(
        "HubertModel", "HubertConfig", vocab_size=32, hidden_size=48, num_hidden_layers=2,
        num_attention_heads=4, intermediate_size=96, conv_dim=[16, 16, 16],
        conv_stride=[5, 2, 2], conv_kernel=[10, 3, 3], num_conv_pos_embeddings=8,
        num_conv_pos_embedding_groups=4)


def internvl():
    def make():
        text = transformers.Qwen2Config(num_key_value_heads=2, **SIZES, **TOKENS)
        vision = transformers.InternVLVisionConfig(
            hidden_size=48, intermediate_size=96, num_hidden_layers=1,
            num_attention_heads=4, image_size=32, patch_size=8)
        return transformers.InternVLForConditionalGeneration(transformers.InternVLConfig(
            text_config=text, vision_config=vision, image_token_id=95,
            image_seq_length=4))

    return make


def audio_llm():
    def make():
        text = transformers.Qwen2Config(num_key_value_heads=2, **SIZES, **TOKENS)
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
                         "projection_size": 48, **TOKENS},
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
        text = transformers.Cohere2Config(num_key_value_heads=2, **SIZES, **TOKENS)
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
            num_key_value_heads=2, head_dim=12, **SIZES, **TOKENS)
        vision = transformers.SiglipVisionConfig(
            hidden_size=40, intermediate_size=80, num_hidden_layers=1,
            num_attention_heads=4, image_size=32, patch_size=8, projection_dim=48)
        return transformers.PaliGemmaForConditionalGeneration(
            transformers.PaliGemmaConfig(
                text_config=text, vision_config=vision, image_token_index=95,
                projection_dim=48, hidden_size=48, pad_token_id=0))

    return make


def nemotron():
    return made_from("NemotronForCausalLM", "NemotronConfig", num_key_value_heads=2,
                      **SIZES, **TOKENS)


def codegen():
    return made_from("CodeGenForCausalLM", "CodeGenConfig", vocab_size=96, n_embd=48,
                      n_layer=2, n_head=4, n_inner=96, n_positions=64, n_ctx=64,
                      rotary_dim=8, **TOKENS)


def t5gemma():
    def make():
        side = {**SIZES, **TOKENS, "num_key_value_heads": 2, "head_dim": 12,
                "sliding_window": 32}
        return transformers.T5GemmaForConditionalGeneration(transformers.T5GemmaConfig(
            encoder=side, decoder=side, vocab_size=96, decoder_start_token_id=1, **TOKENS))

    return make


def glm():
    return made_from("GlmForCausalLM", "GlmConfig", num_key_value_heads=2, head_dim=12,
                      **SIZES, **TOKENS)


def olmo2():
    return made_from("Olmo2ForCausalLM", "Olmo2Config", num_key_value_heads=2, **SIZES,
                      **TOKENS)


def gpt_neo():
    return made_from("GPTNeoForCausalLM", "GPTNeoConfig", vocab_size=96, hidden_size=48,
                      num_layers=2, num_heads=4, intermediate_size=96, window_size=4,
                      attention_types=[[["global", "local"], 1]],
                      max_position_embeddings=64, **TOKENS)


def vipllava():
    def make():
        text = transformers.LlamaConfig(num_key_value_heads=2, **SIZES, **TOKENS)
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
            num_key_value_heads=2, head_dim=12, sliding_window=32, **SIZES, **TOKENS)
        vision = transformers.SiglipVisionConfig(
            hidden_size=40, intermediate_size=80, num_hidden_layers=1,
            num_attention_heads=4, image_size=32, patch_size=8)
        return transformers.Gemma3ForConditionalGeneration(transformers.Gemma3Config(
            text_config=text, vision_config=vision, image_token_index=95,
            mm_tokens_per_image=4))

    return make


def voxtral():
    def make():
        text = transformers.LlamaConfig(num_key_value_heads=2, **SIZES, **TOKENS)
        audio = transformers.VoxtralEncoderConfig(
            num_mel_bins=16, hidden_size=48, num_hidden_layers=1, num_attention_heads=4,
            intermediate_size=96, max_source_positions=20)
        return transformers.VoxtralForConditionalGeneration(transformers.VoxtralConfig(
            text_config=text, audio_config=audio, audio_token_id=95))

    return make


def idefics3():
    def make():
        text = transformers.LlamaConfig(num_key_value_heads=2, **SIZES, **TOKENS)
        vision = transformers.Idefics3VisionConfig(
            hidden_size=40, intermediate_size=80, num_hidden_layers=1,
            num_attention_heads=4, image_size=32, patch_size=8)
        return transformers.Idefics3ForConditionalGeneration(transformers.Idefics3Config(
            text_config=text, vision_config=vision, image_token_id=95, scale_factor=2))

    return make


def mistral3():
    def make():
        text = transformers.MistralConfig(num_key_value_heads=2, **SIZES, **TOKENS)
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


def glpn():
    return made_from(
        "GLPNForDepthEstimation", "GLPNConfig", hidden_sizes=[16, 32, 48, 64],
        depths=[1, 1, 1, 1], num_attention_heads=[1, 2, 4, 8], decoder_hidden_size=32)


def deit():
    return made_from(
        "DeiTForImageClassification", "DeiTConfig", hidden_size=48, num_hidden_layers=2,
        num_attention_heads=4, intermediate_size=96, image_size=32, patch_size=8,
        num_labels=5)


def llava():
    def make():
        text = transformers.LlamaConfig(num_key_value_heads=2, **SIZES, **TOKENS)
        vision = transformers.CLIPVisionConfig(
            hidden_size=48, intermediate_size=96, num_hidden_layers=2,
            num_attention_heads=4, image_size=32, patch_size=8)
        return transformers.LlavaForConditionalGeneration(transformers.LlavaConfig(
            text_config=text, vision_config=vision, image_token_id=95, pad_token_id=0))

    return make
