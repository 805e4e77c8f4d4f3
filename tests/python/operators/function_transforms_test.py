"""torch.func's transforms of composites, which PyTorch splits before the device's kernels see them."""

import itertools

import torch
import torch.nn.functional as F

from tests.python.remote_case import RemoteCase


def _tensor(*sizes):
    return torch.randn(*sizes, generator=torch.Generator().manual_seed(sum(sizes)))


_CELL = [_tensor(15, 4), _tensor(15, 5), _tensor(15), _tensor(15)]
_LAST = {"memory_format": torch.channels_last}

# The composites and formulas that ask PyTorch whether a tensor is on the CPU, with an operand of one sample.
FUNCTIONS = {
    "dropout": (lambda x: F.dropout(x, 0.15), _tensor(5, 40)),
    "dropout of nothing": (lambda x: F.dropout(x, 0.0), _tensor(5, 4)),
    "dropout of all": (lambda x: F.dropout(x, 1.0), _tensor(5, 4)),
    "dropout in evaluation": (lambda x: F.dropout(x, 0.15, training=False), _tensor(5, 4)),
    "dropout in place": (lambda x: F.dropout(x * 2, 0.15, inplace=True), _tensor(5, 40)),
    "feature dropout": (lambda x: F.dropout2d(x, 0.15), _tensor(2, 8, 3, 3)),
    "alpha dropout": (lambda x: F.alpha_dropout(x, 0.15), _tensor(5, 40)),
    "gru cell": (lambda x: torch.gru_cell(x, _like(x, 3, 5), *_on(x, _CELL)), _tensor(3, 4)),
    "gru cell without bias": (
        lambda x: torch.gru_cell(x, _like(x, 3, 5), *_on(x, _CELL[:2])), _tensor(3, 4)),
    "lstm cell": (
        lambda x: torch.lstm_cell(
            x, (_like(x, 3, 5), _like(x, 3, 5)), _like(x, 20, 4), _like(x, 20, 5))[0],
        _tensor(3, 4)),
    "rnn cell": (
        lambda x: torch.rnn_tanh_cell(x, _like(x, 3, 5), _like(x, 5, 4), _like(x, 5, 5)),
        _tensor(3, 4)),
    "silu": (F.silu, _tensor(4, 9)),
    "mish": (F.mish, _tensor(4, 9)),
    "group norm": (lambda x: F.group_norm(x, 4), _tensor(2, 8, 5, 5)),
    "group norm, channels last": (
        lambda x: F.group_norm(x, 4, _like(x, 8), _like(x, 8)), _tensor(2, 8, 5, 5).to(**_LAST)),
    "attention": (lambda x: F.scaled_dot_product_attention(x, x, x), _tensor(2, 2, 6, 8)),
    "quantile": (lambda x: torch.quantile(x, 0.3, dim=0), _tensor(7, 3)),
    "batch norm": (lambda x: F.batch_norm(x, None, None, training=True), _tensor(4, 3)),
    "softmax": (lambda x: F.softmax(x, -1), _tensor(4, 9)),
    "linear": (lambda x: F.linear(x, _like(x, 5, 9)), _tensor(2, 4, 9)),
}


def _like(x, *sizes):
    return _tensor(*sizes).to(x.device)


def _on(x, tensors):
    return [tensor.to(x.device) for tensor in tensors]


def _batch(x):
    return torch.stack([x, x.flip(0), x * 0.5]), (0,)


def _single(x):
    return x, None


def _gradient(function):
    return torch.func.grad(lambda x: function(x).pow(3).sum())


# PyTorch's formula, which no kernel of the device sees there, makes this gradient contiguous on
# devices other than the CPU: see docs/user/limits.md.
CONTIGUOUS = ("group norm, channels last", "vjp")

TRANSFORMS = {
    "vmap": (lambda f: torch.vmap(f, randomness="different"), _batch),
    "vmap, the same numbers": (lambda f: torch.vmap(f, randomness="same"), _batch),
    "grad": (_gradient, _single),
    "vjp": (lambda f: lambda x: _pullback(f, x), _single),
    "grad of vmap": (lambda f: _gradient(torch.vmap(f, randomness="different")), _batch),
    "vmap of grad": (lambda f: torch.vmap(_gradient(f), randomness="different"), _batch),
    "vmap of vmap": (
        lambda f: torch.vmap(torch.vmap(f, randomness="different"), randomness="different"),
        lambda x: (torch.stack([_batch(x)[0]] * 2), None)),
}


def _pullback(function, x):
    value, pull = torch.func.vjp(function, x)
    with torch.no_grad():
        return pull(torch.cos(value))[0]


class FunctionTransformsTest(RemoteCase):
    def run_on(self, device, function, operand, transform):
        torch.manual_seed(3)
        change, place = TRANSFORMS[transform]
        x = place(operand)[0].to(device)
        try:
            return change(function)(x)
        except RuntimeError as error:
            return error

    def test_every_function_under_every_transform(self):
        for (name, (function, operand)), transform, mode in itertools.product(
                FUNCTIONS.items(), TRANSFORMS, (torch.enable_grad, torch.no_grad)):
            with self.subTest(function=name, transform=transform, mode=mode.__name__), mode():
                local = self.run_on("cpu", function, operand, transform)
                remote = self.run_on(self.device, function, operand, transform)
                self.assertEqual(isinstance(remote, Exception), isinstance(local, Exception),
                                 f"the CPU: {local!r:.300}; the device: {remote!r:.300}")
                if (name, transform) == CONTIGUOUS:
                    torch.testing.assert_close(remote.cpu(), local)
                elif not isinstance(local, Exception):
                    self.assert_same(remote.detach(), local.detach())

    def test_tensors_of_this_process_are_computed_as_before(self):
        torch.manual_seed(3)
        dropped = torch.vmap(lambda x: F.dropout(x, 0.15), randomness="different")(_tensor(3, 40))
        self.assertEqual(dropped.device.type, "cpu")
        cell = torch.nn.GRUCell(4, 5)
        x, h = _tensor(2, 3, 4), _tensor(2, 3, 5)
        torch.testing.assert_close(torch.vmap(cell)(x, h), torch.stack([cell(x[i], h[i]) for i in (0, 1)]))

    def test_gradients_for_each_sample(self):
        model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Dropout(0.15), torch.nn.Linear(8, 1))
        x = _tensor(4, 6)

        def loss(values, row):
            return torch.func.functional_call(model, values, (row[None],)).square().sum()

        found = []
        for device in ("cpu", self.device):
            model.to(device)
            torch.manual_seed(1)
            found.append(torch.vmap(torch.func.grad(loss), (None, 0), randomness="different")(
                dict(model.named_parameters()), x.to(device)))
        for name, local in found[0].items():
            self.assert_same(found[1][name].detach(), local.detach())
