"""Compiles PyTorch's transformer layers, whose operators PyTorch has no kernels for metadata of."""

import copy
import logging
import warnings

import torch

import djinn
from tests.python.remote_case import RemoteCase


def _encoder(**options):
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    return torch.nn.TransformerEncoder(layer, 2, **options)


class _OfOperator(torch.nn.Module):
    """Calls one function with its arguments."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


class TransformerLayersTest(RemoteCase):
    def setUp(self):
        torch.manual_seed(0)
        self.x = torch.randn(3, 5, 16)

    def there(self, things):
        return {
            name: thing.to(self.device) if isinstance(thing, torch.Tensor) else thing
            for name, thing in things.items()
        }

    def assert_one_graph(self, local, calls, call=None):
        """Calls the compiled module with each arguments, thrice, and compares with the CPU."""
        call = call or (lambda module, **given: module(**given))
        compiled = djinn.compile(copy.deepcopy(local).to(self.device))
        with torch.no_grad():
            for number, given in enumerate(3 * calls):
                found = call(compiled, **self.there(given))
                expected = call(local, **given)
                for one, other in zip(found, expected) if isinstance(expected, tuple) else [
                    (found, expected)
                ]:
                    if other is None:
                        self.assertIsNone(one)
                    else:
                        self.assert_same(one, other)
                statistics = compiled.statistics()
                self.assertEqual(statistics["refusal"], "")
                self.assertEqual(statistics["replays"], max(0, number + 1 - len(calls)))

    def test_an_encoder_in_inference_is_one_graph(self):
        mask = torch.nn.Transformer.generate_square_subsequent_mask(5)
        for options in ({}, {"norm": torch.nn.LayerNorm(16)}, {"enable_nested_tensor": False}):
            with self.subTest(options=options):
                self.assert_one_graph(_encoder(**options).eval(), [{"src": self.x}])
                causal = {"src": self.x, "mask": mask, "is_causal": True}
                self.assert_one_graph(_encoder(**options).eval(), [causal])

    def test_an_encoder_with_sizes_that_change(self):
        sizes = [{"src": torch.randn(2, rows, 16)} for rows in (3, 5, 8, 4)]
        self.assert_one_graph(_encoder().eval(), sizes)

    def test_an_encoder_with_both_masks(self):
        mask = torch.triu(torch.ones(5, 5, dtype=torch.bool), 1)
        padding = torch.arange(5)[None, :] >= torch.tensor([5, 3, 4])[:, None]
        given = {"src": self.x, "mask": mask, "src_key_padding_mask": padding,
                 "is_causal": False}
        self.assert_one_graph(_encoder().eval(), [given])

    def test_padding_that_is_kept_is_no_obstacle(self):
        padding = torch.arange(5)[None, :] >= torch.tensor([5, 3, 4])[:, None]
        given = {"src": self.x, "src_key_padding_mask": padding}
        self.assert_one_graph(_encoder(enable_nested_tensor=False).eval(), [given])

    def test_padding_that_is_removed_is_removed_in_each_call(self):
        local = _encoder().eval()
        compiled = djinn.compile(copy.deepcopy(local).to(self.device))
        with torch.no_grad(), warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            with self.assertNoLogs("torch._dynamo", logging.WARNING):
                for lengths in ([5, 3, 4], [2, 5, 1], [5, 5, 5], [1, 1, 4], [5, 2, 3]):
                    mask = torch.arange(5)[None, :] >= torch.tensor(lengths)[:, None]
                    given = {"src": self.x, "src_key_padding_mask": mask}
                    self.assert_same(compiled(**self.there(given)), local(**given))
        self.assertEqual(compiled.statistics()["replays"], 0)
        (warning,) = [str(one.message) for one in caught if "does not replay" in str(one.message)]
        self.assertIn("reads the values of src_key_padding_mask", warning)
        self.assertIn("enable_nested_tensor=False", warning)

    def test_operators_without_kernels_for_metadata(self):
        lacking = {
            "geqrf": lambda x: torch.geqrf(x)[0],
            "histogram": lambda x: torch.histogram(x, 4, range=(-1.0, 1.0)).hist,
            "mode": lambda x: torch.mode(x).values,
            "ormqr": lambda x: torch.ormqr(x, x[0], x),
        }
        x = torch.randn(4, 4)
        for name, function in lacking.items():
            with self.subTest(name):
                self.assert_one_graph(
                    _OfOperator(function), [{"x": x}], lambda module, x: module(x))
