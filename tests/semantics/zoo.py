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


def _opt():
    return _made_from("OPTForCausalLM", "OPTConfig", vocab_size=96, hidden_size=48,
                      num_hidden_layers=2, num_attention_heads=4, ffn_dim=96,
                      max_position_embeddings=64, word_embed_proj_dim=48, **TOKENS)


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


def _convnext():
    return _made_from(
        "ConvNextForImageClassification", "ConvNextConfig", hidden_sizes=[16, 32, 48, 64],
        depths=[1, 1, 2, 1], num_labels=5)


def _segformer():
    return _made_from(
        "SegformerForSemanticSegmentation", "SegformerConfig", hidden_sizes=[16, 32, 48, 64],
        depths=[1, 1, 1, 1], num_attention_heads=[1, 2, 4, 8], decoder_hidden_size=32,
        num_labels=5)


def _distilbert():
    return _made_from(
        "DistilBertForSequenceClassification", "DistilBertConfig", vocab_size=96, dim=48,
        n_layers=2, n_heads=4, hidden_dim=96, max_position_embeddings=32, num_labels=3)


def _qwen():
    return _made_from("Qwen2ForCausalLM", "Qwen2Config", num_key_value_heads=2, **SIZES,
                      **TOKENS)


def _mobilenet():
    return _made_from(
        "MobileNetV2ForImageClassification", "MobileNetV2Config", depth_multiplier=0.35,
        num_labels=5)


def _vilt():
    return _made_from(
        "ViltModel", "ViltConfig", image_size=32, patch_size=8, **SIZES)


def _roberta():
    return _made_from("RobertaModel", "RobertaConfig", pad_token_id=1,
                      bos_token_id=0, eos_token_id=2, **SIZES)


def _neox():
    return _made_from("GPTNeoXForCausalLM", "GPTNeoXConfig", **SIZES, **TOKENS)


def _regnet():
    return _made_from(
        "RegNetForImageClassification", "RegNetConfig", embedding_size=16,
        hidden_sizes=[16, 32, 48, 64], depths=[1, 1, 2, 1], groups_width=8,
        layer_type="y", num_labels=5)


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
    Program("gpt2", "train", train(_HF["gpt2"].make, _LM_LOSS, _own_loss)),
    Program("llama", "generate", generate(_llama(), _unpadded)),
    Program("llama", "explicit", generate(_llama("eager"), models._prompt)),
    Program("llama", "static", generate(
        _llama(), models._prompt, cache_implementation="static", disable_compile=True)),
    Program("llama", "train", train(_llama(), _LM_LOSS, _own_loss, _sgd)),
    Program("t5", "generate", generate(_HF["t5"].make, models._text)),
    Program("mixtral", "generate", generate(_mixtral(), models._prompt)),
    Program("vit", "forward", forward(_HF["vit"].make, _pixels(2, 32))),
    Program("vit", "train", train(_vit_classifier(), _pixels(2, 32), _classify)),
    Program("resnet", "forward", forward(_HF["resnet"].make, _pixels(2, 64))),
    Program("resnet", "train", train(
        _resnet_classifier(), _pixels(2, 64), _classify, _sgd)),
    Program("clip", "forward", forward(_HF["clip"].make, _HF["clip"].inputs)),
    Program("llava", "generate", generate(_llava(), _image_prompt)),
    Program("whisper", "generate", generate(
        _HF["whisper"].make, lambda: {"input_features": models._sound()})),
    Program("lstm", "forward", forward(
        LSTMTagger, lambda: {"input_ids": models._tokens(2, 9)})),
    Program("lstm", "train", train(
        LSTMTagger, lambda: {"input_ids": models._tokens(2, 9)}, _classify)),
    Program("recommender", "forward", forward(ClickModel, _clicks)),
    Program("recommender", "train", train(ClickModel, _clicks, _square)),
    Program("segformer", "forward", forward(_segformer(), _pixels(1, 64))),
    Program("autoencoder", "forward", forward(Autoencoder, _pixels(1, 32))),
    Program("qwen", "generate", generate(_qwen(), models._prompt)),
    Program("vilt", "forward", forward(
        _vilt(), lambda: {**models._text(), "pixel_values": models._pixels(2, 32)})),
    Program("roberta", "forward", forward(_roberta(), models._text)),
    Program("neox", "generate", generate(_neox(), models._prompt)),
    Program("layout", "forward", forward(_layout(), _page)),
    Program("opt", "generate", generate(_opt(), models._prompt), held_out=True),
    Program("opt", "train", train(_opt(), _LM_LOSS, _own_loss), held_out=True),
    Program("convnext", "forward", forward(_convnext(), _pixels(2, 64)), held_out=True),
    Program("convnext", "train", train(_convnext(), _pixels(2, 64), _classify),
            held_out=True),
    Program("distilbert", "forward", forward(_distilbert(), models._text), held_out=True),
    Program("distilbert", "train", train(_distilbert(), models._text, _classify),
            held_out=True),
    Program("mobilenet", "forward", forward(_mobilenet(), _pixels(2, 64)),
            held_out=True),
    Program("regnet", "forward", forward(_regnet(), _pixels(2, 64)), held_out=True),
    Program("phi", "generate", generate(_phi(), models._prompt), held_out=True),
    Program("mpnet", "forward", forward(_mpnet(), models._text), held_out=True),
    Program("efficientnet", "forward", forward(_efficientnet(), _pixels(2, 64)),
            held_out=True),
    Program("albert", "forward", forward(_albert(), models._text), held_out=True),
    Program("bart", "generate", generate(_bart(), models._text), held_out=True),
    Program("swin", "forward", forward(_swin(), _pixels(2, 32)), held_out=True),
]
