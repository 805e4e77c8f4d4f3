"""Programs whose bytes, tokens and losses must not depend on what is lost meanwhile.

Each takes a device and a function that it calls before each of its STEPS steps, and returns
tensors on the CPU.

    python -m tests.chaos.recovery_programs NAME

runs one on the cluster of the environment. Before each step it prints "step", the step's
number and the device's worker, and waits for a line. At the end it prints "end", a digest of
its results, and the numbers of root errors, recoveries and resumes.
"""

import copy
import functools
import hashlib
import sys

import torch
from torch import nn

import djinn
from tests.operating import rolling_programs

STEPS = 24
# Options of djinn.connect(): a worker is soon given up, and checkpoints come soon, if they are
# on.
OPTIONS = {
    "connect_timeout": 60.0,
    "resume_timeout": 2.0,
    "replay_time": 0.1,
    "checkpoint_overhead": 0.5,
}


def _take(results, at_step):
    """The results of the first steps of an endless program."""
    found = []
    for step in range(STEPS):
        at_step(step)
        found += next(results)
    results.close()
    return tuple(found)


def decode_greedily(device, at_step):
    """Decodes with a cache that grows in place, and takes the likeliest token."""
    return _take(rolling_programs.decode(device), at_step)


def decode_sampled(device, at_step):
    """Decodes with a cache that grows in place, and draws each token."""

    def draw(logits):
        return torch.multinomial(logits.softmax(-1), 1)[0]

    return _take(rolling_programs.decode(device, draw), at_step)


def prefill(device, at_step):
    """Fills the caches of prompts, of which some are kept, and reads their next tokens."""
    torch.manual_seed(26)
    words, width, layers, length = 97, 48, 2, 40
    embedding = torch.randn(words, width).to(device)
    weights = [
        [torch.randn(width, width).to(device) / width**0.5 for _ in range(4)]
        for _ in range(layers)
    ]
    tokens, kept = [], []
    with djinn.phase("llm_prefill"), torch.no_grad():
        for step in range(STEPS):
            at_step(step)
            x = embedding[torch.randint(words, (2, length)).to(device)]
            caches = []
            for queries, keys, values, out in weights:
                caches.append((x @ keys, x @ values))
                x = x + nn.functional.scaled_dot_product_attention(
                    x @ queries, *caches[-1], is_causal=True) @ out
            tokens.append((x[:, -1] @ embedding.T).argmax(-1).cpu())
            kept.append(caches)
            del kept[:-3]
    return *tokens, *(value.cpu() for caches in kept for pair in caches for value in pair)


def encode(device, at_step):
    """Encodes batches that are read one by one."""
    return _take(rolling_programs.encode(device), at_step)


def train(device, at_step):
    """Trains with dropout and AdamW, and reads each loss."""
    model, batch, step = rolling_programs.training(device)
    return _train(model, batch, step, at_step)


def compiled_step(device, at_step):
    """Trains as train() does, by a registered step."""
    model, batch, step = rolling_programs.training(device)
    compiled = djinn.compile(step)
    results = _train(model, batch, compiled, at_step)
    _check_replayed(compiled)
    return results


def _train(model, batch, step, at_step):
    losses = []
    for number in range(STEPS):
        at_step(number)
        losses.append(step(*batch(number)).item())
    return torch.tensor(losses), *(parameter.detach().cpu() for parameter in model.parameters())


def compiled_model(device, at_step):
    """Calls a registered module, and reads each result."""
    torch.manual_seed(30)
    model = nn.Sequential(
        nn.Linear(64, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 64)).to(device)
    compiled = djinn.compile(model)
    results = []
    with torch.no_grad():
        for step in range(STEPS):
            at_step(step)
            results.append(compiled(torch.randn(9, 64).to(device)).cpu())
    _check_replayed(compiled)
    return tuple(results)


def _check_replayed(compiled):
    statistics = compiled.statistics()
    if not statistics["replays"]:
        raise AssertionError("no call was replayed: %s" % statistics)


def cnn(device, at_step):
    """Trains convolutions, with running statistics that are written in place."""
    torch.manual_seed(27)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(16, 5),
    ).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for step in range(STEPS):
        at_step(step)
        images, labels = torch.randn(4, 3, 12, 12), torch.randint(5, (4,))
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(images.to(device)), labels.to(device))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return torch.tensor(losses), *(value.cpu() for value in model.state_dict().values())


@functools.cache
def _language_model():
    # Programs that need no transformers do without its import, which takes seconds.
    from tests.hugging_face import models  # pylint: disable=import-outside-toplevel

    [family] = [family for family in models.FAMILIES if family.name == "llama"]
    return models.build(family), family.prompt()


def _generate(device, at_step, **options):
    model, prompt = _language_model()
    model = copy.deepcopy(model).to(device)
    steps = iter(range(STEPS))

    def before_token(_, scores):
        at_step(next(steps))
        return scores

    torch.manual_seed(28)
    with torch.no_grad():
        tokens = model.generate(
            **{name: value.to(device) for name, value in prompt.items()},
            max_new_tokens=STEPS, eos_token_id=None, logits_processor=[before_token], **options)
    return (tokens.cpu(),)


def generate_greedily(device, at_step):
    """Calls generate() of a transformers model."""
    return _generate(device, at_step, do_sample=False)


def generate_sampled(device, at_step):
    """Calls generate(), which draws the tokens."""
    return _generate(device, at_step, do_sample=True, top_k=20)


def generate_beams(device, at_step):
    """Calls generate() with three beams, whose caches change places."""
    return _generate(device, at_step, do_sample=False, num_beams=3)


def generate_greedily_static(device, at_step):
    """Calls generate() with a cache that is written in place."""
    return _generate(device, at_step, do_sample=False, cache_implementation="static")


def generate_sampled_static(device, at_step):
    """Calls generate(), which draws the tokens, with such a cache."""
    return _generate(
        device, at_step, do_sample=True, top_k=20, cache_implementation="static")


def generate_beams_static(device, at_step):
    """Calls generate() with three beams and such a cache."""
    return _generate(
        device, at_step, do_sample=False, num_beams=3, cache_implementation="static")


def upload(device, at_step):
    """Uploads large tensors, which the program then overwrites, and reads their sums."""
    torch.manual_seed(24)
    source = torch.randn(700, 700)
    kept = []
    for step in range(STEPS):
        at_step(step)
        source += 1
        kept.append(source.to(device))
        del kept[:-6]
    return tuple(tensor.sum(0).cpu() for tensor in kept)


def two_devices(device, at_step):
    """Trains halves of a model on two virtual devices, and reads each loss and activation."""
    torch.manual_seed(34)
    other = djinn.device(device.index + 1)
    first = nn.Sequential(nn.Linear(48, 96), nn.GELU(), nn.Dropout(0.1)).to(device)
    second = nn.Sequential(nn.Linear(96, 48), nn.Tanh()).to(other)
    optimizers = [torch.optim.AdamW(half.parameters(), lr=1e-3) for half in (first, second)]
    results = []
    for step in range(STEPS):
        at_step(step)
        x = torch.randn(16, 48).to(device)
        hidden = first(x)
        # A copy that is kept while its source is written.
        kept = hidden.detach().to(other)
        hidden.detach().mul_(0.5)
        loss = (second(hidden.to(other)).to(device) - x).square().mean()
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss.backward()
        for optimizer in optimizers:
            optimizer.step()
        results += [loss.detach().cpu(), kept.cpu()]
    return tuple(results + [
        parameter.detach().cpu() for half in (first, second) for parameter in half.parameters()])


def stages(device, at_step):
    """Computes with a network on two workers: first in a pipeline, then trains it."""
    torch.manual_seed(36)
    layers = [nn.Linear(48, 48)]
    for _ in range(4):
        layers += [nn.GELU(), nn.Linear(48, 48)]
    network = nn.Sequential(*layers).to(device)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)
    results = []
    for step in range(STEPS):
        at_step(step)
        x = torch.randn(64, 48)
        if step < STEPS // 2:
            with torch.inference_mode():
                parts = [network(part.to(device)) for part in x.split(16)]
                results.append(torch.cat(parts).cpu())
        else:
            loss = network(x.to(device)).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            results.append(loss.detach().cpu())
    # Values crossed.
    assert djinn.statistics()["device_copies"] > 0
    return tuple(results + [parameter.detach().cpu() for parameter in network.parameters()])


def download(device, at_step):
    """Reads large values that were computed before."""
    torch.manual_seed(25)
    value = torch.randn(600, 600).to(device)
    results = []
    for step in range(STEPS):
        at_step(step)
        value = value.roll(1, 0) * 1.01
        results.append(value.cpu())
    return tuple(result.sum(1) for result in results)


PROGRAMS = {
    program.__name__: program
    for program in (
        decode_greedily, decode_sampled, prefill, encode, train, compiled_step, compiled_model,
        cnn, generate_greedily, generate_sampled, generate_beams, generate_greedily_static,
        generate_sampled_static, generate_beams_static, upload, download, two_devices, stages)
}


def connect(name, **options):
    """Opens the session of the program."""
    if name == "stages":
        options["device_workers"] = {0: 2}
    djinn.connect(**OPTIONS, **options)


def digest(results):
    """A digest of the tensors' bytes."""
    found = hashlib.sha256()
    for result in results:
        found.update(repr((result.dtype, result.shape)).encode())
        found.update(result.contiguous().numpy().tobytes())
    return found.hexdigest()


def main(name):
    torch.set_num_threads(1)
    connect(name)

    def at_step(step):
        print("step", step, djinn.where_is(0).worker_id, flush=True)
        sys.stdin.readline()

    results = PROGRAMS[name](djinn.device(), at_step)
    counts = djinn.statistics()
    djinn.close()
    print("end", digest(results), counts["root_errors"], counts["recoveries"], counts["resumes"])


if __name__ == "__main__":
    main(*sys.argv[1:])
