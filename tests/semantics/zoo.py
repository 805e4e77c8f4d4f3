"""Programs of many kinds, each small and with seeded random weights.

A program runs once on a device. Which module makes a call, and which phase it is in,
is said beside the call by `labels.Labels`; the analysis that is tested never sees it.
The models are transformers' own, unchanged, and a few written here for kinds that it
does not have.
"""

from dataclasses import dataclass
from typing import Callable

import torch

from tests.hugging_face import models
from tests.semantics import families, multimodal, networks, samples, vision
from tests.semantics.labels import label_generating, label_part, label_phase


@dataclass(frozen=True)
class Program:
    """`run(device)` makes the model, moves it there and uses it."""

    family: str
    use: str
    run: Callable[[torch.device], None]
    # Whether the program was held out of all tuning.
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


def _with_labels(inputs):
    def make():
        batch = inputs()
        return {**batch, "labels": batch["input_ids"]}

    return make


_LM_LOSS = _with_labels(models._text)
_HF = {family.name: family for family in models.FAMILIES}
PROGRAMS = [
    Program("bert", "forward", forward(_HF["bert"].make, models._text)),
    Program("bert", "train", train(families.bert_classifier(), models._text, _classify)),
    Program("gpt2", "generate", generate(_HF["gpt2"].make, models._prompt)),
    Program("llama", "generate", generate(families.llama(), samples.unpadded)),
    Program("llama", "explicit", generate(families.llama("eager"), models._prompt)),
    Program("llama", "static", generate(
        families.llama(), models._prompt, cache_implementation="static", disable_compile=True)),
    Program("t5", "generate", generate(_HF["t5"].make, models._text)),
    Program("mixtral", "generate", generate(families.mixtral(), models._prompt)),
    Program("vit", "forward", forward(_HF["vit"].make, samples.pixels(2, 32))),
    Program("vit", "train", train(vision.vit_classifier(), samples.pixels(2, 32), _classify)),
    Program("resnet", "train", train(
        vision.resnet_classifier(), samples.pixels(2, 64), _classify, _sgd)),
    Program("clip", "forward", forward(_HF["clip"].make, _HF["clip"].inputs)),
    Program("llava", "generate", generate(multimodal.llava(), samples.image_prompt)),
    Program("whisper", "generate", generate(
        _HF["whisper"].make, lambda: {"input_features": models._sound()})),
    Program("lstm", "train", train(
        networks.LSTMTagger, lambda: {"input_ids": models._tokens(2, 9)}, _classify)),
    Program("recommender", "forward", forward(networks.ClickModel, samples.clicks)),
    Program("segformer", "forward", forward(vision.segformer(), samples.pixels(1, 64))),
    Program("autoencoder", "forward", forward(networks.Autoencoder, samples.pixels(1, 32))),
    Program("vilt", "forward", forward(
        multimodal.vilt(), lambda: {**models._text(), "pixel_values": models._pixels(2, 32)})),
    Program("neox", "generate", generate(families.neox(), models._prompt)),
    Program("layout", "forward", forward(multimodal.layout(), samples.page)),
    Program("phi", "generate", generate(families.phi(), models._prompt)),
    Program("mpnet", "forward", forward(families.mpnet(), models._text)),
    Program("efficientnet", "forward", forward(vision.efficientnet(), samples.pixels(2, 64))),
    Program("albert", "forward", forward(families.albert(), models._text)),
    Program("bart", "generate", generate(families.bart(), models._text)),
    Program("swin", "forward", forward(vision.swin(), samples.pixels(2, 32))),
    Program("falcon", "generate", generate(families.falcon(), models._prompt)),
    Program("bloom", "train", train(families.bloom(), _LM_LOSS, _own_loss), held_out=True),
    Program("gemma", "generate", generate(families.gemma(), models._prompt)),
    Program("olmoe", "generate", generate(families.olmoe(), models._prompt), held_out=True),
    Program("gptj", "generate", generate(families.gptj(), models._prompt)),
    Program("pegasus", "generate", generate(families.pegasus(), models._text)),
    Program("electra", "train", train(families.electra(), models._text, _classify, _sgd),
            held_out=True),
    Program("depth", "forward", forward(vision.depth(), samples.pixels(1, 32))),
    Program("mobilenet_v1", "train", train(
        vision.mobilenet_v1(), samples.pixels(2, 64), _classify, _sgd),
            held_out=True),
    Program("poolformer", "forward", forward(vision.poolformer(), samples.pixels(2, 64))),
    Program("hubert", "forward", forward(vision.hubert(), samples.waves)),
    Program("gru", "train", train(
        networks.GRUTagger, lambda: {"input_ids": models._tokens(2, 9)}, _classify),
            held_out=True),
    Program("internvl", "generate", generate(multimodal.internvl(), samples.seen(4)),
            held_out=True),
    Program("qwen2_audio", "generate", generate(multimodal.audio_llm(), samples.heard)),
    Program("siglip", "forward", forward(
        multimodal.siglip(), lambda: {**models._text(), "pixel_values": models._pixels(2, 32)})),
    Program("flava", "forward", forward(
        multimodal.flava(), lambda: {**models._text(), "pixel_values": models._pixels(2, 32)})),
    Program("aya_vision", "generate", generate(multimodal.aya_vision(), samples.seen(4))),
    Program("paligemma", "generate", generate(multimodal.paligemma(), samples.seen_by_types)),
    Program("nemotron", "generate", generate(families.nemotron(), models._prompt), held_out=True),
    Program("codegen", "generate", generate(families.codegen(), models._prompt)),
    Program("t5gemma", "generate", generate(families.t5gemma(), models._text)),
    Program("glm", "generate", generate(families.glm(), models._prompt)),
    Program("olmo2", "generate", generate(families.olmo2(), models._prompt), held_out=True),
    Program("gpt_neo", "train", train(families.gpt_neo(), _LM_LOSS, _own_loss), held_out=True),
    Program("vipllava", "generate", generate(multimodal.vipllava(), samples.seen(16)),
            held_out=True),
    Program("gemma3", "generate", generate(multimodal.gemma3(), samples.seen(4))),
    Program("voxtral", "generate", generate(multimodal.voxtral(), samples.heard_whole)),
    Program("idefics3", "generate", generate(multimodal.idefics3(), samples.seen_in_rows(4))),
    Program("mistral3", "generate", generate(multimodal.mistral3(), samples.seen_with_sizes(4))),
    Program("chinese_clip", "forward", forward(
        multimodal.chinese_clip(),
        lambda: {**models._text(), "pixel_values": models._pixels(2, 32)})),
    Program("glpn", "forward", forward(vision.glpn(), samples.pixels(1, 64))),
    Program("deit", "train", train(vision.deit(), samples.pixels(2, 32), _classify), held_out=True),
    Program("altclip", "forward", forward(multimodal.altclip(), samples.read_and_seen())),
    Program("metaclip2", "forward", forward(multimodal.metaclip2(), samples.read_and_seen()),
            held_out=True),
    Program("blip", "forward", forward(multimodal.blip(), samples.read_and_seen())),
    Program("align", "forward", forward(multimodal.align(), samples.read_and_seen(64))),
    Program("cohere2_vision", "generate", generate(multimodal.cohere2_vision(), samples.seen(4))),
    Program("got_ocr2", "generate", generate(multimodal.got_ocr2(), samples.seen_larger(4))),
    Program("deepseek_vl", "generate", generate(multimodal.deepseek_vl(), samples.seen(16))),
    Program("llava_onevision", "generate", generate(
        multimodal.llava_onevision(), samples.seen_in_tiles(36))),
    Program("audioflamingo3", "generate", generate(
        multimodal.audioflamingo3(), samples.heard_with_mask(10))),
    Program("qwen3", "generate", generate(families.qwen3(), models._prompt), held_out=True),
    Program("starcoder2", "generate", generate(families.starcoder2(), models._prompt),
            held_out=True),
    Program("stablelm", "generate", generate(families.stablelm(), models._prompt), held_out=True),
    Program("biogpt", "generate", generate(families.biogpt(), models._prompt), held_out=True),
    Program("wav2vec2", "forward", forward(vision.wav2vec2(), samples.waves)),
    Program("megatron_bert", "train", train(families.megatron_bert(), models._text, _classify),
            held_out=True),
    Program("beit", "train", train(vision.beit(), samples.pixels(2, 32), _classify), held_out=True),
    Program("llava_next", "generate", generate(multimodal.llava_next(), samples.seen_in_tiles(36))),
    Program("smolvlm", "generate", generate(multimodal.smolvlm(), samples.seen_in_rows(4)),
            held_out=True),
    Program("glmasr", "generate", generate(multimodal.glmasr(), samples.heard_with_mask(5))),
    Program("lighton_ocr", "generate", generate(
        multimodal.lighton_ocr(), samples.seen_with_sizes(4))),
    Program("owlvit", "forward", forward(multimodal.owlvit(), samples.read_and_seen())),
    Program("clipseg", "forward", forward(multimodal.clipseg(), samples.read_and_seen())),
    Program("dual", "forward", forward(vision.dual(), samples.read_and_seen())),
    Program("gpt_bigcode", "generate", generate(families.gpt_bigcode(), models._prompt),
            held_out=True),
    Program("xglm", "generate", generate(families.xglm(), models._prompt)),
    Program("ernie", "train", train(families.ernie(), models._text, _classify), held_out=True),
    Program("vit_msn", "forward", forward(vision.vit_msn(), samples.pixels(2, 32)), held_out=True),
    Program("aimv2", "forward", forward(multimodal.aimv2(), samples.read_and_seen())),
    Program("video_llava", "generate", generate(
        multimodal.video_llava(), samples.seen_beside_videos(16)),
            held_out=True),
]
