"""Training programs, each written once and run on two devices."""

import pathlib

import torch
from torch import nn

# A licence text that every Debian system has, so that the text is real and the
# same everywhere.
_TEXT = pathlib.Path("/usr/share/common-licenses/GPL-3")


class Mlp:
    """A perceptron with dropout on seeded data, plain SGD with momentum."""

    def __init__(self, device):
        torch.manual_seed(0)
        self.model = nn.Sequential(
            nn.Linear(64, 96), nn.ReLU(), nn.Dropout(0.2), nn.Linear(96, 10)).to(device)
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
        generator = torch.Generator().manual_seed(1)
        self._inputs = torch.randn(256, 64, generator=generator)
        self._labels = self._inputs[:, :10].argmax(1)
        self._device = device

    def step(self, number):
        rows = [(number * 16 + i) % 256 for i in range(16)]
        inputs = self._inputs[rows].to(self._device)
        labels = self._labels[rows].to(self._device)
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.model(inputs), labels)
        loss.backward()
        self.optimizer.step()
        return loss.item()


class Cnn:
    """Convolutions with batch norm, AdamW for each parameter and a schedule."""

    def __init__(self, device):
        torch.manual_seed(0)
        self.model = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(8, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 4)).to(device)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=3e-3, foreach=False)
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 200)
        generator = torch.Generator().manual_seed(2)
        self._images = torch.randn(64, 3, 12, 12, generator=generator)
        self._labels = (self._images.mean((2, 3)) @ torch.ones(3) > 0).long()
        self._device = device

    def step(self, number):
        rows = [(number * 8 + i) % 64 for i in range(8)]
        images = self._images[rows].to(self._device)
        self.optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(
            self.model(images), self._labels[rows].to(self._device))
        loss.backward()
        self.optimizer.step()
        self.schedule.step()
        return loss.item()


class _Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.before = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.between = nn.LayerNorm(width)
        self.wide = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width),
            nn.Dropout(0.1))
        self._heads = heads

    def forward(self, x):
        rows, length, width = x.shape
        q, k, v = (
            part.view(rows, length, self._heads, -1).transpose(1, 2)
            for part in self.qkv(self.before(x)).chunk(3, -1))
        attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(rows, length, width))
        return x + self.wide(self.between(x))


class _ByteModel(nn.Module):
    def __init__(self, width=48, heads=4, layers=2, length=32):
        super().__init__()
        self.bytes = nn.Embedding(256, width)
        self.places = nn.Parameter(torch.randn(length, width) * 0.02)
        self.blocks = nn.Sequential(*(_Block(width, heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)

    def forward(self, ids):
        x = self.bytes(ids) + self.places[:ids.shape[1]]
        return self.norm(self.blocks(x)) @ self.bytes.weight.T


class ByteTransformer:
    """A byte-level language model: AdamW over lists of tensors, gradients clipped, a
    warm-up, and if asked for, forward in bfloat16 as autocast has it."""

    def __init__(self, device, autocast=False):
        torch.manual_seed(0)
        self.model = _ByteModel().to(device)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=3e-3, betas=(0.9, 0.95), foreach=True)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda step: min(1.0, (step + 1) / 20))
        self._text = torch.tensor(list(_TEXT.read_bytes()))
        self._device = torch.device(device)
        self._autocast = autocast

    def step(self, number):
        starts = [(number * 977 + i * 4099) % (len(self._text) - 33) for i in range(4)]
        chunk = torch.stack([self._text[s:s + 33] for s in starts]).to(self._device)
        with torch.autocast(
                self._device.type, dtype=torch.bfloat16, enabled=self._autocast):
            logits = self.model(chunk[:, :-1])
            loss = nn.functional.cross_entropy(
                logits.float().flatten(0, 1), chunk[:, 1:].flatten())
        self.optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.schedule.step()
        return loss.item()


PROGRAMS = (Mlp, Cnn, ByteTransformer)


def train(program, steps, start=0):
    """Losses of the steps. From the start, what dropout draws is seeded: making the
    weights drew from the CPU's generator and not from the device's."""
    if start == 0:
        torch.manual_seed(3)
    return [program.step(number) for number in range(start, start + steps)]
