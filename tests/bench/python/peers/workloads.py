"""Defines the workloads of every peer: the same programs on the same values.

A Workloads object lives on a device: Djinn's, another device that PyTorch knows, or
the CPU of a process that is reached by calls. Its methods take tensors of the CPU and
return such, so that what goes there and back is counted.
"""

import os

import torch
from torch import nn

LARGE = 16 << 20  # bytes
PROMPT = 64
# Sizes of a decoder in GPT-2's shape.
LAYERS, HEADS, WIDTH, VOCABULARY = 4, 12, 768, 8192


class Decoder(nn.Module):
    """GPT-2's shape; keys and values stay where it is, a cache by `cat`."""

    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Embedding(1024, WIDTH)
        self.layers = nn.ModuleList(
            nn.ModuleDict({
                "norm1": nn.LayerNorm(WIDTH), "qkv": nn.Linear(WIDTH, 3 * WIDTH),
                "out": nn.Linear(WIDTH, WIDTH), "norm2": nn.LayerNorm(WIDTH),
                "up": nn.Linear(WIDTH, 4 * WIDTH), "down": nn.Linear(4 * WIDTH, WIDTH),
            }) for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, tokens, places, cache):
        x = self.tokens(tokens) + self.places(places)
        kept = []
        for i, layer in enumerate(self.layers):
            q, k, v = (part.view(1, -1, HEADS, WIDTH // HEADS).transpose(1, 2)
                       for part in layer["qkv"](layer["norm1"](x)).split(WIDTH, -1))
            if cache is not None:
                k, v = torch.cat([cache[i][0], k], 2), torch.cat([cache[i][1], v], 2)
            kept.append((k, v))
            # A token attends to everything before it. The prompt is causal.
            mixed = nn.functional.scaled_dot_product_attention(
                q, k, v, is_causal=cache is None)
            x = x + layer["out"](mixed.transpose(1, 2).reshape(1, -1, WIDTH))
            x = x + layer["down"](nn.functional.gelu(layer["up"](layer["norm2"](x))))
        return self.norm(x[:, -1]) @ self.tokens.weight.t(), kept


class Workloads:
    def __init__(self, device, compiled=False, inference=True, register=lambda function: function):
        """`register`: what the training step and the encoder are called through."""
        torch.manual_seed(0)
        self.device = device
        self.number = torch.zeros(1).to(device)
        self.model = nn.Sequential(
            nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10)).to(device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.05)
        self.compiled = compiled
        self._register = register
        self._train = register(self._train_on)
        # torch.compile freezes weights only if no gradients are recorded, and
        # not in inference mode. Besides, some devices do not support inference
        # mode.
        self._without_graph = (
            torch.inference_mode if inference and not compiled else torch.no_grad)
        self._encoder = self._decoder = self._kept = None

    def op(self, value):
        with self._without_graph():
            return (self.number + value).cpu()

    def step(self, inputs, labels):
        return self._train(inputs.to(self.device), labels.to(self.device)).cpu()

    def _train_on(self, inputs, labels):
        loss = nn.functional.cross_entropy(self.model(inputs), labels)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def encode(self, ids):
        if self._encoder is None:
            import transformers

            transformers.logging.set_verbosity_error()
            self._encoder = transformers.AutoModel.from_pretrained(
                os.environ["DJINN_BENCH_MODEL"]).eval().to(self.device)
            if self.compiled:
                torch._inductor.config.freezing = True
                # Each shape is compiled separately, which is the fastest.
                self._encoder = torch.compile(self._encoder, dynamic=False)
            self._encoder = self._register(self._encoder)
        with self._without_graph():
            ids = ids.to(self.device)
            hidden = self._encoder(input_ids=ids, attention_mask=torch.ones_like(ids))
            return hidden.last_hidden_state.mean(1).cpu()

    def prompt(self, tokens):
        """Begins a conversation; returns the next token."""
        if self._decoder is None:
            torch.manual_seed(1)
            self._decoder = Decoder().eval().to(self.device)
        self._cache, self._length = None, 0
        return self.token(tokens)

    def token(self, tokens):
        with self._without_graph():
            places = torch.arange(self._length, self._length + tokens.shape[1])
            self._length += tokens.shape[1]
            logits, self._cache = self._decoder(
                tokens.to(self.device), places.to(self.device), self._cache)
            return logits.argmax(-1, keepdim=True).cpu()

    def upload(self, tensor):
        self._kept = tensor.to(self.device)
        # Reads a small value, so the upload is complete.
        return self._kept[:1].cpu()

    def download(self):
        return self._kept.cpu()
