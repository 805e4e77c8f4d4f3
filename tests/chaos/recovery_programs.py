"""Programs whose bytes, tokens and losses must not depend on lost workers.

Each takes a device and a function that it calls before each step, and returns tensors on
the CPU.
"""

import torch
from torch import nn


def _decode(device, at_step, choose):
    torch.manual_seed(21)
    width, most, words = 48, 24, 97
    embedding = torch.randn(words, width).to(device)
    projections = [torch.randn(width, width).to(device) / width**0.5 for _ in range(4)]
    head = torch.randn(width, words).to(device)
    keys = torch.zeros(most, width, device=device)
    values = torch.zeros(most, width, device=device)
    token = torch.tensor([3], device=device)
    tokens = []
    for step in range(most):
        at_step(step)
        x = embedding[token]
        query, key, value = (x @ weight for weight in projections[:3])
        keys[step : step + 1] = key
        values[step : step + 1] = value
        scores = (query @ keys[: step + 1].T / width**0.5).softmax(-1)
        x = x + (scores @ values[: step + 1]) @ projections[3]
        token = choose(x @ head)
        tokens.append(token.item())
    return torch.tensor(tokens), keys.cpu(), values.cpu()


def decode_greedily(device, at_step):
    """Decodes with a cache that grows in place, and takes the likeliest token."""
    return _decode(device, at_step, lambda logits: logits.argmax(-1))


def decode_sampled(device, at_step):
    """Decodes with a cache that grows in place, and draws each token."""
    return _decode(
        device, at_step, lambda logits: torch.multinomial(logits.softmax(-1), 1)[0]
    )


def encode(device, at_step):
    """Encodes batches that are read one by one."""
    torch.manual_seed(22)
    layer = nn.TransformerEncoderLayer(128, 4, 256, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval().to(device)
    results = []
    with torch.no_grad():
        for step in range(24):
            at_step(step)
            results.append(encoder(torch.randn(2, 7, 128).to(device)).cpu())
    return tuple(results)


def train(device, at_step):
    """Trains with dropout and AdamW, and reads each loss."""
    torch.manual_seed(23)
    model = nn.Sequential(
        nn.Linear(24, 48), nn.GELU(), nn.Dropout(0.2), nn.LayerNorm(48), nn.Linear(48, 5)
    ).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    inputs = torch.randn(8, 16, 24)
    labels = torch.randint(5, (8, 16))
    losses = []
    for step in range(24):
        at_step(step)
        optimizer.zero_grad()
        output = model(inputs[step % 8].to(device))
        loss = nn.functional.cross_entropy(output, labels[step % 8].to(device))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses), *(parameter.detach().cpu() for parameter in model.parameters())


def upload(device, at_step):
    """Uploads large tensors, which the program then overwrites, and reads their sums."""
    torch.manual_seed(24)
    source = torch.randn(700, 700)
    kept = []
    for step in range(24):
        at_step(step)
        source += 1
        kept.append(source.to(device))
        del kept[:-6]
    return tuple(tensor.sum(0).cpu() for tensor in kept)


def download(device, at_step):
    """Reads large values that were computed before."""
    torch.manual_seed(25)
    value = torch.randn(600, 600).to(device)
    results = []
    for step in range(24):
        at_step(step)
        value = value.roll(1, 0) * 1.01
        results.append(value.cpu())
    return tuple(result.sum(1) for result in results)


PROGRAMS = (decode_greedily, decode_sampled, encode, train, upload, download)
STEPS = 24
