"""Makes small models of images and of sounds, as families.py does of languages."""

import transformers

from tests.semantics import families


def vit_classifier():
    return families.made_from(
        "ViTForImageClassification", "ViTConfig", hidden_size=48, num_hidden_layers=2,
        num_attention_heads=4, intermediate_size=96, image_size=32, patch_size=8)


def resnet_classifier():
    return families.made_from(
        "ResNetForImageClassification", "ResNetConfig", embedding_size=16,
        hidden_sizes=[16, 32, 48], depths=[1, 2, 1], num_labels=5)


def segformer():
    return families.made_from(
        "SegformerForSemanticSegmentation", "SegformerConfig", hidden_sizes=[16, 32, 48, 64],
        depths=[1, 1, 1, 1], num_attention_heads=[1, 2, 4, 8], decoder_hidden_size=32,
        num_labels=5)


def efficientnet():
    return families.made_from(
        "EfficientNetForImageClassification", "EfficientNetConfig", image_size=64,
        width_coefficient=0.05, depth_coefficient=1.0, in_channels=[32, 480, 640],
        out_channels=[480, 640, 960], kernel_sizes=[3, 5, 3], strides=[1, 2, 2],
        num_block_repeats=[1, 2, 1], expand_ratios=[1, 4, 4], depthwise_padding=[],
        hidden_dim=64, num_labels=5)


def swin():
    return families.made_from(
        "SwinForImageClassification", "SwinConfig", image_size=32, patch_size=4,
        embed_dim=16, depths=[2, 2], num_heads=[2, 4], window_size=4, num_labels=5)


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
    return families.made_from(
        "MobileNetV1ForImageClassification", "MobileNetV1Config", depth_multiplier=0.25,
        num_labels=5)


def poolformer():
    return families.made_from(
        "PoolFormerForImageClassification", "PoolFormerConfig",
        hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 1, 1], mlp_ratio=2.0, num_labels=5)


def hubert():
    return families.made_from(
        "HubertModel", "HubertConfig", vocab_size=32, hidden_size=48, num_hidden_layers=2,
        num_attention_heads=4, intermediate_size=96, conv_dim=[16, 16, 16],
        conv_stride=[5, 2, 2], conv_kernel=[10, 3, 3], num_conv_pos_embeddings=8,
        num_conv_pos_embedding_groups=4)


def glpn():
    return families.made_from(
        "GLPNForDepthEstimation", "GLPNConfig", hidden_sizes=[16, 32, 48, 64],
        depths=[1, 1, 1, 1], num_attention_heads=[1, 2, 4, 8], decoder_hidden_size=32)


def deit():
    return families.made_from(
        "DeiTForImageClassification", "DeiTConfig", hidden_size=48, num_hidden_layers=2,
        num_attention_heads=4, intermediate_size=96, image_size=32, patch_size=8,
        num_labels=5)


def wav2vec2():
    return families.made_from(
        "Wav2Vec2Model", "Wav2Vec2Config", vocab_size=32, hidden_size=48,
        num_hidden_layers=2, num_attention_heads=4, intermediate_size=96,
        conv_dim=[16, 16, 16], conv_stride=[5, 2, 2], conv_kernel=[10, 3, 3],
        num_conv_pos_embeddings=8, num_conv_pos_embedding_groups=4)


def beit():
    return families.made_from(
        "BeitForImageClassification", "BeitConfig", hidden_size=48, num_hidden_layers=2,
        num_attention_heads=4, intermediate_size=96, image_size=32, patch_size=8,
        use_relative_position_bias=True, num_labels=5)


def dual():
    def make():
        vision = transformers.ViTConfig(
            hidden_size=48, num_hidden_layers=1, num_attention_heads=4,
            intermediate_size=96, image_size=32, patch_size=8)
        text = transformers.BertConfig(**{**families.SIZES, "num_hidden_layers": 1})
        return transformers.VisionTextDualEncoderModel(
            transformers.VisionTextDualEncoderConfig.from_vision_text_configs(
                vision, text, projection_dim=32))

    return make


def vit_msn():
    return families.made_from(
        "ViTMSNForImageClassification", "ViTMSNConfig", hidden_size=48,
        num_hidden_layers=2, num_attention_heads=4, intermediate_size=96, image_size=32,
        patch_size=8, num_labels=5)
