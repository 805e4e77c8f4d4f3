"""A training step of GPT-2 with AdamW, its loss read, wherever it is asked to be.

    python -m tests.bench.python.gpt2_training DEVICE ROUNDS

prints the rounds' seconds and losses as JSON, measured without Djinn, which nothing here
imports.
"""

import json
import statistics
import sys
import time

import torch
import transformers

# Calls before the measured ones, because a worker records what repeats.
SETTLING_CALLS = 8


class Training:
    calls = 10
    name = "gpt2 training step, 4 x 128"
    tolerance = 5e-3

    def __init__(self, device):
        config = transformers.GPT2Config(resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
        self.model = transformers.GPT2LMHeadModel(config).train().to(device)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)

    def __call__(self, generator):
        ids = torch.randint(5, 1000, (4, 128), generator=generator).to(self.model.device)
        loss = self.model(input_ids=ids, labels=ids).loss
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()


def build(make, device):
    torch.manual_seed(0)
    return make(device)


def run(work, calls, number):
    """The median call's seconds, and all results; other inputs in every call."""
    spent, results = [], []
    for call in range(calls):
        generator = torch.Generator().manual_seed(1000 * (number + 1) + call)
        begin = time.perf_counter()
        results.append(work(generator).cpu())
        spent.append(time.perf_counter() - begin)
    return statistics.median(spent), results


def calls_of(work, number):
    return work.calls if number >= 0 else max(work.calls, SETTLING_CALLS)


def train(work, rounds):
    """All rounds; the first settles."""
    return [run(work, calls_of(work, number), number) for number in range(-1, rounds)]


def main():
    transformers.logging.set_verbosity_error()
    work = build(Training, sys.argv[1])
    print(json.dumps([(spent, [loss.item() for loss in losses])
                      for spent, losses in train(work, int(sys.argv[2]))]))


if __name__ == "__main__":
    main()
