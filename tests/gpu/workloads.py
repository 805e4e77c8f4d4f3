"""The programs that are compared and the work that is timed, on any device.

Nothing here imports Djinn: a process without it runs the same on the same GPU.
"""

import dataclasses
import random
import statistics
import time

import torch
from torch import nn

# Calls before the measured ones. A registered callable is replayed after a few.
SETTLING_CALLS = 8
# The number of calls before a CUDA graph is captured. Every variant makes these
# calls, because a training step changes its weights.
WARM_UP_CALLS = 3


@dataclasses.dataclass(frozen=True)
class Sizes:
    layers: int
    width: int
    heads: int
    vocabulary: int
    batch: int
    length: int
    tokens: int
    calls: int
    mebibytes: tuple


FULL = Sizes(layers=12, width=768, heads=12, vocabulary=8192, batch=8, length=128,
             tokens=64, calls=20, mebibytes=(1, 64, 512))
SMALL = Sizes(layers=2, width=64, heads=4, vocabulary=128, batch=2, length=16,
              tokens=8, calls=3, mebibytes=(1,))


class Transformer(nn.Module):
    """GPT-2's layers, for an encoder, a decoder and a training step."""

    def __init__(self, sizes):
        super().__init__()
        width = sizes.width
        self.heads, self.length = sizes.heads, sizes.length + sizes.tokens
        self.tokens = nn.Embedding(sizes.vocabulary, width)
        self.places = nn.Embedding(self.length, width)
        self.layers = nn.ModuleList(
            nn.ModuleDict({
                "norm1": nn.LayerNorm(width), "qkv": nn.Linear(width, 3 * width),
                "out": nn.Linear(width, width), "norm2": nn.LayerNorm(width),
                "up": nn.Linear(width, 4 * width), "down": nn.Linear(4 * width, width),
            }) for _ in range(sizes.layers))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, sizes.vocabulary, bias=False)

    def forward(self, tokens, places, attend):
        """`attend(layer, q, k, v)` returns what each token found."""
        x = self.tokens(tokens) + self.places(places)
        rows, columns, width = x.shape
        for i, layer in enumerate(self.layers):
            q, k, v = (part.view(rows, columns, self.heads, -1).transpose(1, 2)
                       for part in layer["qkv"](layer["norm1"](x)).split(width, -1))
            mixed = attend(i, q, k, v).transpose(1, 2).reshape(rows, columns, width)
            x = x + layer["out"](mixed)
            x = x + layer["down"](nn.functional.gelu(layer["up"](layer["norm2"](x))))
        return self.norm(x)


def _model(sizes, device):
    torch.manual_seed(0)
    return Transformer(sizes).to(device)


def _generator(number):
    return torch.Generator().manual_seed(1000 + number)


class _Graphed:
    """Replays a function as one CUDA graph, on inputs that are copied into place."""

    def __init__(self, function, *inputs):
        self.inputs = [value.clone() for value in inputs]
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP_CALLS):
                function(*self.inputs)
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.output = function(*self.inputs)

    def __call__(self, *inputs):
        for kept, given in zip(self.inputs, inputs):
            kept.copy_(given)
        self.graph.replay()
        return self.output


class _Work:
    """Does work on a device; `how` is "plain", "registered" or "graph"."""

    def __init__(self, sizes, device, how, register):
        self.sizes, self.device, self.how, self.register = sizes, device, how, register

    def wrap(self, function, *example):
        """Returns the function as `how` says, after its first calls."""
        example = [value.to(self.device) for value in example]
        if self.how == "graph":
            return _Graphed(function, *example)
        if self.how == "registered":
            function = self.register(function)
        for _ in range(WARM_UP_CALLS):
            function(*example)
        return function

    def round(self, number):
        """The seconds of each call, and the results on the CPU."""
        raise NotImplementedError

    def timed(self, number, call):
        seconds, results = [], []
        calls = self.sizes.calls if number >= 0 else SETTLING_CALLS
        for index in range(calls):
            inputs = self.inputs(_generator(1000 * (number + 3) + index))
            begin = time.perf_counter()
            results.append(call(*(value.to(self.device) for value in inputs)).cpu().clone())
            seconds.append(time.perf_counter() - begin)
        return seconds, results


class Encoder(_Work):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.model = _model(self.sizes, self.device).eval()
        self.places = torch.arange(self.sizes.length).to(self.device)

        def attend(_, q, k, v):
            return nn.functional.scaled_dot_product_attention(q, k, v)

        def encode(ids):
            with torch.no_grad():
                return self.model(ids, self.places, attend).mean(1)

        self.call = self.wrap(encode, *self.inputs(_generator(0)))

    def inputs(self, generator):
        sizes = self.sizes
        return [torch.randint(sizes.vocabulary, (sizes.batch, sizes.length),
                              generator=generator)]

    def round(self, number):
        return self.timed(number, self.call)


class Training(_Work):
    def __init__(self, *arguments):
        super().__init__(*arguments)
        model = _model(self.sizes, self.device).train()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        places = torch.arange(self.sizes.length).to(self.device)

        def attend(_, q, k, v):
            return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

        def step(ids):
            optimizer.zero_grad()
            logits = model.head(model(ids, places, attend))
            loss = nn.functional.cross_entropy(
                logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
            loss.backward()
            optimizer.step()
            return loss.detach()

        self.call = self.wrap(step, *self.inputs(_generator(0)))

    inputs = Encoder.inputs
    round = Encoder.round


class _Decoder(_Work):
    """Greedy generation behind a prompt; a call is a token that is read."""

    def round(self, number):
        sizes = self.sizes
        prompt = torch.randint(
            sizes.vocabulary, (1, sizes.length), generator=_generator(number + 3))
        seconds, results = [], []
        with torch.no_grad():
            token = self.prompt(prompt.to(self.device)).cpu()
            for index in range(sizes.tokens - 1):
                begin = time.perf_counter()
                place = torch.tensor([sizes.length + index])
                token = self.token(token.to(self.device), place.to(self.device)).cpu().clone()
                seconds.append(time.perf_counter() - begin)
                results.append(token)
        return seconds, results


class DecoderByCat(_Decoder):
    """Keys and values grow by torch.cat."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.model = _model(self.sizes, self.device).eval()

    def prompt(self, tokens):
        self.cache = [None] * self.sizes.layers
        return self.token(tokens, torch.arange(tokens.shape[1]).to(self.device))

    def token(self, tokens, places):
        def attend(layer, q, k, v):
            if self.cache[layer] is not None:
                k = torch.cat([self.cache[layer][0], k], 2)
                v = torch.cat([self.cache[layer][1], v], 2)
            self.cache[layer] = (k, v)
            return nn.functional.scaled_dot_product_attention(
                q, k, v, is_causal=tokens.shape[1] > 1)

        hidden = self.model(tokens, places, attend)[:, -1:]
        return self.model.head(hidden).argmax(-1)


class DecoderStatic(_Decoder):
    """Keys and values have their final size from the beginning."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        sizes = self.sizes
        self.model = _model(sizes, self.device).eval()
        self.length = sizes.length + sizes.tokens
        shape = (sizes.layers, 1, sizes.heads, self.length, sizes.width // sizes.heads)
        self.keys, self.values = (torch.zeros(shape).to(self.device) for _ in range(2))
        self.all_places = torch.arange(self.length).to(self.device)
        self.token = self.wrap(
            self.prompt, torch.zeros((1, 1), dtype=torch.long), torch.tensor([sizes.length]))

    def prompt(self, tokens, places=None):
        if places is None:
            places = self.all_places[:tokens.shape[1]]
        mask = self.all_places <= places.unsqueeze(1)

        def attend(layer, q, k, v):
            keys, values = self.keys[layer], self.values[layer]
            keys.index_copy_(2, places, k)
            values.index_copy_(2, places, v)
            return nn.functional.scaled_dot_product_attention(q, keys, values, attn_mask=mask)

        with torch.no_grad():
            hidden = self.model(tokens, places, attend)[:, -1:]
            return self.model.head(hidden).argmax(-1)


class _Transfer(_Work):
    mebibytes = 1

    def inputs(self, generator):
        return [torch.randint(256, (self.mebibytes << 20,), generator=generator,
                              dtype=torch.uint8)]

    def round(self, number):
        seconds, results = [], []
        for index in range(min(self.sizes.calls, 5)):
            (value,) = self.inputs(_generator(1000 * (number + 3) + index))
            spent, back = self.move(value)
            seconds.append(spent)
            # The bytes are compared here, because they are many.
            results.append(torch.tensor(torch.equal(back, value)))
        return seconds, results


class Upload(_Transfer):
    def move(self, value):
        begin = time.perf_counter()
        there = value.to(self.device)
        # Reads a small value, so the upload is complete.
        there[:1].cpu()
        return time.perf_counter() - begin, there.cpu()


class Download(_Transfer):
    def move(self, value):
        there = value.to(self.device)
        there[:1].cpu()
        begin = time.perf_counter()
        back = there.cpu()
        return time.perf_counter() - begin, back


WORKS = {"encoder": Encoder, "training step": Training, "decoder, by cat": DecoderByCat,
         "decoder, static cache": DecoderStatic, "upload": Upload, "download": Download}


def _values(device, *shape, seed=1, dtype=torch.float32):
    return torch.randn(*shape, generator=_generator(seed)).to(dtype).to(device)


def _autograd(device):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 4)).to(device)
    loss = model(_values(device, 8, 16)).square().mean()
    loss.backward()
    return [loss, *(p.grad for p in model.parameters())]


def _convolution(device):
    torch.manual_seed(1)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(8, 4, 3, stride=2)).to(device).eval()
    return [model(_values(device, 2, 3, 16, 16)).detach()]


def _in_place(device):
    x = _values(device, 6, 6)
    x[1:3, ::2] += 2
    x.t()[0].mul_(3)
    x[x > 1] = 0
    return [x, x.view(4, 9).sum(1)]


def _indexing(device):
    x, rows = _values(device, 8, 5), torch.tensor([3, 0, 7, 3]).to(device)
    scattered = torch.zeros(8, 5).to(device).index_add(0, rows, x[rows])
    return [x[rows], x.gather(0, rows.unsqueeze(1)), scattered, x.nonzero().sum(),
            torch.where(x > 0, x, -x)]


def _order(device):
    x = _values(device, 4, 32)
    return [*x.sort(-1), *x.topk(5), x.argmax(0), x.cumsum(1), x.unique().numel() * x[0]]


PROGRAMS = {
    "elementwise": lambda d: [(_values(d, 4, 5).exp() + _values(d, 5, seed=2)).log1p().tanh()],
    "products": lambda d: [_values(d, 32, 48) @ _values(d, 48, 16, seed=2),
                           torch.einsum("bij,bjk->bik", _values(d, 3, 4, 5),
                                        _values(d, 3, 5, 6, seed=2))],
    "reductions": lambda d: [_values(d, 9, 17).sum(0), _values(d, 9, 17).var(1),
                             _values(d, 9, 17).softmax(-1), _values(d, 9, 17).norm()],
    "indexing": _indexing, "order": _order, "in place": _in_place, "autograd": _autograd,
    "convolution": _convolution,
    "attention": lambda d: [nn.functional.scaled_dot_product_attention(
        *(_values(d, 2, 4, 12, 16, seed=s) for s in range(3)), is_causal=True)],
    "linear algebra": lambda d: [torch.linalg.solve(
        _values(d, 8, 8) + 8 * torch.eye(8).to(d), _values(d, 8, 2, seed=2))],
    "half precision": lambda d: [_values(d, 16, 32, dtype=t) @ _values(d, 32, 8, seed=2, dtype=t)
                                 for t in (torch.float16, torch.bfloat16)],
    "integers": lambda d: [(torch.arange(30).to(d) * 7 % 11 << 2) ^ 5],
}

_STEPS = (
    lambda r, a, b: a + b, lambda r, a, b: a * b, lambda r, a, b: a - r.random() * b,
    lambda r, a, b: (a @ b) / a.shape[0], lambda r, a, b: a.t(), lambda r, a, b: a.tanh(),
    lambda r, a, b: torch.maximum(a, b), lambda r, a, b: a.softmax(r.randrange(2)),
    lambda r, a, b: a.roll(r.randrange(8), r.randrange(2)), lambda r, a, b: a.sigmoid() * b,
    lambda r, a, b: a - a.mean(r.randrange(2), keepdim=True), lambda r, a, b: a.cumsum(0) / 8,
    lambda r, a, b: torch.where(a > b, a, b * 0.5), lambda r, a, b: a.clone().mul_(0.5).add_(b),
    lambda r, a, b: torch.cat([a[:4], b[4:]]), lambda r, a, b: nn.functional.layer_norm(a, (8,)),
    lambda r, a, b: a[:, torch.arange(7, -1, -1).to(a.device)], lambda r, a, b: a.clamp(-1, 1),
)


def random_program(seed, device):
    """The values at the end of a program that the seed composes."""
    choose = random.Random(seed)
    values = [_values(device, 8, 8, seed=10 * seed + i) for i in range(3)]
    for _ in range(choose.randrange(4, 24)):
        one, other = choose.choice(values), choose.choice(values)
        values.append(choose.choice(_STEPS)(choose, one, other))
        if choose.random() < 0.3:
            values.pop(choose.randrange(len(values)))
    return values


class Runner:
    """Runs the workloads on one device, in either of the two processes."""

    def __init__(self, device, sizes, register=None):
        self.device, self.sizes, self.register = device, sizes, register
        self.work = None

    def program(self, name):
        return [value.detach().cpu() for value in PROGRAMS[name](self.device)]

    def random(self, seed):
        return [value.cpu() for value in random_program(seed, self.device)]

    def model(self, name):
        from tests.hugging_face import models

        family = next(family for family in models.FAMILIES if family.name == name)
        model = models.build(family).to(self.device)
        inputs = {key: value.to(self.device) for key, value in family.inputs().items()}
        with torch.no_grad():
            return [value.cpu() for value in models.tensors(model(**inputs))]

    def begin(self, hows, name, mebibytes):
        """Prepares the work in each of these ways; replaces the work before it."""
        self.work = {}
        for how in hows:
            work = WORKS[name].__new__(WORKS[name])
            work.mebibytes = mebibytes
            work.__init__(self.sizes, self.device, how, self.register)
            self.work[how] = work

    def round(self, how, number):
        """The median call's seconds, and all results."""
        seconds, results = self.work[how].round(number)
        return statistics.median(seconds), results
