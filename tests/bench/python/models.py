"""Models at the sizes at which they are used, with random weights, on a GPU.

Each does the same work here and there, with the same weights, on the same inputs, other
ones in every call. Compared are all results.
"""

import copy
import json
import subprocess
import sys

import torch
import transformers

import djinn
from tests.bench.python import report
from tests.bench.python.gpt2_training import Training, build, calls_of, run, train
from tests.bench.python.report import Row


class Encoder:
    """BERT base in float16, batches of 8 x 128."""

    calls = 20
    name = "bert-base, float16, 8 x 128"
    tolerance = 2e-2

    def __init__(self, device):
        config = transformers.BertConfig()
        self.model = transformers.BertModel(config, add_pooling_layer=False)
        self.model = self.model.eval().half().to(device)

    def __call__(self, generator):
        ids = torch.randint(1000, 30000, (8, 128), generator=generator)
        return self.model(input_ids=ids.to(self.model.device)).last_hidden_state.mean(1)


class Images:
    """ViT base, batches of 8 images."""

    calls = 20
    name = "vit-base, float32, 8 images"
    tolerance = 2e-2

    def __init__(self, device):
        config = transformers.ViTConfig()
        self.model = transformers.ViTModel(config, add_pooling_layer=False).eval().to(device)

    def __call__(self, generator):
        pixels = torch.randn(8, 3, 224, 224, generator=generator)
        return self.model(pixel_values=pixels.to(self.model.device)).last_hidden_state[:, 0]


class Convolutions:
    """ResNet 50, batches of 8 images."""

    calls = 20
    name = "resnet-50, float32, 8 images"
    tolerance = 2e-2

    def __init__(self, device):
        self.model = transformers.ResNetModel(transformers.ResNetConfig()).eval().to(device)

    def __call__(self, generator):
        pixels = torch.randn(8, 3, 224, 224, generator=generator)
        return self.model(pixel_values=pixels.to(self.model.device)).pooler_output.flatten(1)


class _Decoder:
    calls = 3
    tolerance = 0

    def __call__(self, generator):
        ids = torch.randint(5, 1000, (1, 32), generator=generator)
        return self.model.generate(
            ids.to(self.model.device), attention_mask=torch.ones_like(ids).to(self.model.device),
            do_sample=False, max_new_tokens=64, min_new_tokens=64, pad_token_id=0)


class Gpt2(_Decoder):
    """GPT-2 with 124 million parameters: 64 tokens, greedy."""

    name = "gpt2, float32, 64 tokens"

    def __init__(self, device):
        self.model = transformers.GPT2LMHeadModel(transformers.GPT2Config())
        self.model = self.model.eval().to(device)


class Llama(_Decoder):
    """A Llama of a billion parameters: 64 tokens, greedy."""

    name = "llama 1B, bfloat16, 64 tokens"

    def __init__(self, device):
        config = transformers.LlamaConfig(
            hidden_size=2048, intermediate_size=8192, num_hidden_layers=16,
            num_attention_heads=32, num_key_value_heads=8, vocab_size=32000,
            dtype=torch.bfloat16)
        default = torch.get_default_dtype()
        torch.set_default_dtype(torch.bfloat16)
        try:
            self.model = transformers.LlamaForCausalLM(config).eval().to(device)
        finally:
            torch.set_default_dtype(default)


WORKLOADS = (Encoder, Images, Convolutions, Gpt2, Llama, Training)


def _moved(work, device):
    """A copy of the work with its own model on the device."""
    moved = copy.copy(work)
    moved.model = copy.deepcopy(work.model).to(device)
    return moved


def measure(device, local_device, rounds):
    transformers.logging.set_verbosity_error()
    rows = []
    for make in WORKLOADS:
        print(f"bench: {make.name}", file=sys.stderr, flush=True)
        row = Row("python_models", make.name)
        rows.append(row)
        try:
            if make is Training:
                _measure_training(device, local_device, rounds, row)
            else:
                with torch.no_grad():
                    _measure(make, device, local_device, rounds, row)
        except Exception as error:  # noqa: BLE001  (one of several)
            row.error = str(error)[:400]
        print(f"bench: {row.error or report.ratio(row)}", file=sys.stderr, flush=True)
    return rows


def _compare(actual, expected):
    """The largest difference, beside the largest value."""
    scale = max(1.0, expected.float().abs().max().item())
    return (actual.float() - expected.float()).abs().max().item() / scale


def _check(make, largest, row):
    row.checked = f"results within {largest:.1g}"
    if not largest <= make.tolerance:
        row.error = f"results differ by {largest:.3g}"
    if errors := djinn.root_errors():
        row.error = f"{errors[0]}"[:400]


def _measure(make, device, local_device, rounds, row):
    # The model is built on the fast device.
    with torch.device(local_device):
        local = build(make, local_device)
    remote = _moved(local, "cpu")
    remote.model = remote.model.to(device)
    largest = 0.0
    for number in range(-1, rounds):
        calls = calls_of(make, number)
        djinn_seconds, actual = run(remote, calls, number)
        local_seconds, expected = run(local, calls, number)
        largest = report.worst(
            largest, *(_compare(*pair) for pair in zip(actual, expected)))
        if number >= 0:
            row.djinn.append(djinn_seconds)
            row.local.append(local_seconds)
    _check(make, largest, row)


def _measure_training(device, local_device, rounds, row):
    # In a process that has Djinn's device, PyTorch computes no gradients on
    # another accelerator: docs/user/limits.md.
    alone = subprocess.run(
        [sys.executable, "-m", "tests.bench.python.gpt2_training", local_device, str(rounds)],
        stdout=subprocess.PIPE, check=True, text=True, timeout=300)
    local = json.loads(alone.stdout)
    largest = 0.0
    for number, (djinn_seconds, losses) in enumerate(
            train(build(Training, device), rounds), start=-1):
        local_seconds, expected = local[number + 1]
        largest = report.worst(largest, *(abs(one.item() - other)
                                          for one, other in zip(losses, expected)))
        if number >= 0:
            row.djinn.append(djinn_seconds)
            row.local.append(local_seconds)
    _check(Training, largest, row)
