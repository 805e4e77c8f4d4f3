"""The Hugging Face module of a sentence encoder with real weights, and with each of its
layers twice."""

import copy
import os
import statistics
import time

import torch
import transformers

import djinn
from tests.bench.python.report import Row

CALLS = 5
# After these rounds, a worker in fast mode has packed the weights and made its
# choices.
SETTLING_ROUNDS = 12


def _inputs(sentences, tokens, number):
    generator = torch.Generator().manual_seed(number)
    ids = torch.randint(1000, 30000, (sentences, tokens), generator=generator)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def _run(model, sentences, tokens, number):
    """The median call's seconds, and all outputs; other tokens in every call."""
    spent, outputs = [], []
    for call in range(CALLS):
        inputs = _inputs(sentences, tokens, 1000 + CALLS * number + call)
        begin = time.perf_counter()
        hidden = model(**{k: v.to(model.device) for k, v in inputs.items()})
        outputs.append(hidden.last_hidden_state.mean(1).cpu())
        spent.append(time.perf_counter() - begin)
    return statistics.median(spent), outputs


def _twice(model):
    """Returns the model with twice the layers; the copies have their own weights."""
    layers = model.encoder.layer
    layers.extend([copy.deepcopy(layer) for layer in layers])
    return model


def measure(device, local_device, rounds):
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    rows = []
    for change in (lambda model: model, _twice):
        local, remote = (
            change(transformers.AutoModel.from_pretrained(os.environ["DJINN_BENCH_MODEL"])).eval()
            for _ in range(2))
        local, remote = local.to(local_device), remote.to(device)
        for sentences, tokens in ((1, 32), (8, 32), (1, 128), (8, 128)):
            for mode in ("strict", "fast"):
                djinn.set_execution_mode(mode)
                rows.append(
                    _measure(local, remote, sentences, tokens, mode, rounds))
                djinn.set_execution_mode("strict")
    return rows


def _measure(local, remote, sentences, tokens, mode, rounds):
    row = Row("python_minilm", f"{len(local.encoder.layer)} layers, batch {sentences}, "
              f"sequence {tokens}, {mode}")
    largest = 0.0
    # A GPU's kernels may sum in any order.
    exact = mode == "strict" and local.device.type == "cpu"
    with torch.inference_mode():
        for number in range(-SETTLING_ROUNDS, rounds):
            djinn_seconds, actual = _run(remote, sentences, tokens, number)
            if -SETTLING_ROUNDS < number < 0:
                continue
            local_seconds, expected = _run(local, sentences, tokens, number)
            for one, other in zip(actual, expected):
                if exact:
                    if not torch.equal(one, other):
                        row.error = f"round {number}: other values than local"
                else:
                    largest = max(largest, (one - other).abs().max().item())
                    if not torch.allclose(one, other, rtol=1e-4, atol=1e-5):
                        row.error = f"round {number}: too far from local"
            if number >= 0:
                row.djinn.append(djinn_seconds)
                row.local.append(local_seconds)
    row.checked = f"{CALLS * (rounds + 1)} results, " + (
        "equal bits" if exact else f"within {largest:.1g}")
    return row
