"""Packed quantised weights, which stay in the program: the CPU's bits and errors for remote operands."""

import copy
import warnings

import torch
from torch.ao.quantization import (
    float16_dynamic_qconfig, per_channel_dynamic_qconfig, quantize_dynamic)

from tests.python.remote_case import RemoteCase, run_program

warnings.simplefilter("ignore")
_quantized = torch.ops.quantized


def randn(*size, seed=1):
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed))


def quantized_tensor(*size, per_channel=False):
    values = randn(*size)
    if not per_channel:
        return torch.quantize_per_tensor(values, 0.03, 3, torch.qint8)
    return torch.quantize_per_channel(
        values, torch.linspace(0.01, 0.05, size[0], dtype=torch.float64),
        torch.zeros(size[0], dtype=torch.int64), 0, torch.qint8)


class PackedWeightsTest(RemoteCase):
    def outcome(self, call, move):
        try:
            result = call(move)
        except Exception as error:
            return type(error), str(error).split("\n", maxsplit=1)[0]
        entries = result if isinstance(result, tuple) else (result,)
        flat = [each for entry in entries for each in (entry if isinstance(entry, tuple) else (entry,))]
        return [(each.dtype, each.shape, each.stride(), each.cpu().tolist()) for each in flat]

    def check(self, call):
        """`call` takes a function that moves a tensor to the device. Twice, as the copy is used again."""
        local = self.outcome(call, lambda tensor: tensor)
        for _ in range(2):
            self.assertEqual(self.outcome(call, lambda tensor: tensor.to(self.device)), local)
        return local

    def check_module(self, module, *inputs):
        with torch.no_grad():
            local = module(*inputs)
            remote_module = copy.deepcopy(module).to(self.device)
            for part in remote_module.modules():
                # The biases of cells are plain attributes, which to() does not move.
                for name, value in list(vars(part).items()):
                    if isinstance(value, torch.Tensor):
                        setattr(part, name, value.to(self.device))
            for _ in range(2):
                remote = remote_module(*[
                    tuple(each.to(self.device) for each in entry) if isinstance(entry, tuple)
                    else entry.to(self.device) for entry in inputs])
        flatten = torch.utils._pytree.tree_leaves
        for left, right in zip(flatten(remote), flatten(local), strict=True):
            self.assert_same(left, right)

    def test_linear_layers(self):
        model = torch.nn.Sequential(
            torch.nn.Linear(20, 33), torch.nn.ReLU(), torch.nn.Linear(33, 7, bias=False))
        for config in (
                {torch.nn.Linear}, {"": per_channel_dynamic_qconfig}, {"": float16_dynamic_qconfig}):
            kinds = {"dtype": torch.float16} if "float16" in str(config) else {}
            layers = quantize_dynamic(
                copy.deepcopy(model), config if isinstance(config, dict) else config, **kinds)
            for rows in ((1,), (5,), (2, 3)):
                with self.subTest(config=str(config)[:40], rows=rows):
                    self.check_module(layers, randn(*rows, 20))

    def test_operators_on_linear_weights(self):
        for per_channel in (False, True):
            for bias in (None, randn(6)):
                weight = quantized_tensor(6, 4, per_channel=per_channel)
                if per_channel is False:
                    weight = torch.quantize_per_tensor(randn(6, 4), 0.03, 0, torch.qint8)
                packed = _quantized.linear_prepack(weight, bias)
                half = _quantized.linear_prepack_fp16(randn(6, 4), bias)
                for size in ((3, 4), (1, 4), (2, 3, 4), (0, 4), (4,), (3, 5), ()):
                    for reduce in (False, True):
                        with self.subTest(per_channel=per_channel, bias=bias, size=size):
                            for name in ("linear_dynamic", "linear_relu_dynamic"):
                                self.check(lambda move: getattr(_quantized, name)(
                                    move(randn(*size)), packed, reduce))
                    for name in ("linear_dynamic_fp16", "linear_relu_dynamic_fp16"):
                        self.check(lambda move: getattr(_quantized, name)(move(randn(*size)), half))
                self.check(lambda move: _quantized.linear_dynamic(move(randn(3, 4).double()), packed))

    def test_recurrent_networks(self):
        for kind in (torch.nn.LSTM, torch.nn.GRU):
            for dtype in (torch.qint8, torch.float16):
                for options in ({}, {"num_layers": 2, "bidirectional": True}, {"batch_first": True},
                                {"num_layers": 2, "dropout": 0.5, "bias": True}):
                    with self.subTest(kind=kind, dtype=dtype, options=options):
                        model = torch.nn.ModuleList([kind(5, 8, **options)]).eval()
                        network = quantize_dynamic(model, {kind}, dtype=dtype)[0]
                        self.check_module(network, randn(3, 2, 5))

    def test_recurrent_cells(self):
        for kind in (torch.nn.LSTMCell, torch.nn.GRUCell, torch.nn.RNNCell):
            for options in ({}, {"nonlinearity": "relu"}) if kind is torch.nn.RNNCell else ({},):
                with self.subTest(kind=kind, options=options):
                    cell = quantize_dynamic(
                        torch.nn.ModuleList([kind(5, 8, **options)]), {kind})[0]
                    state = (randn(2, 8), randn(2, 8)) if kind is torch.nn.LSTMCell else randn(2, 8)
                    self.check_module(cell, randn(2, 5), state)

    def test_convolutions(self):
        for dimensions in (1, 2, 3):
            for transposed in (False, True):
                suffix = f"{'_transpose' if transposed else ''}{dimensions}d"
                weight = torch.quantize_per_tensor(
                    randn(4, 2, *[3] * dimensions), 0.03, 0, torch.qint8)
                lists = [[2] * dimensions, [1] * dimensions]
                lists += [[1] * dimensions] if transposed else []
                bias = randn(4)
                packed = getattr(_quantized, f"conv{suffix}_prepack")(
                    weight, bias, *lists, [1] * dimensions, 2)
                for size in ((2, 4, *[6] * dimensions), (2, 5, *[6] * dimensions)):
                    with self.subTest(suffix=suffix, size=size):
                        self.check(lambda move: getattr(_quantized, f"conv{suffix}_dynamic")(
                            move(randn(*size)), packed))

    def test_writes_of_a_bias_are_seen(self):
        bias = randn(6)
        packed = _quantized.linear_prepack(quantized_tensor(6, 4, per_channel=True), bias)
        for _ in range(3):
            self.check(lambda move: _quantized.linear_dynamic(move(randn(3, 4)), packed))
            bias.mul_(-2)

    def test_weights_of_deleted_objects_are_not_confused(self):
        for seed in range(8):
            packed = _quantized.linear_prepack(
                torch.quantize_per_tensor(randn(6, 4, seed=seed), 0.03, 0, torch.qint8), None)
            self.check(lambda move: _quantized.linear_dynamic(move(randn(3, 4)), packed))

    def test_local_operands_stay_local(self):
        packed = _quantized.linear_prepack(quantized_tensor(6, 4, per_channel=True), None)
        self.assertEqual(_quantized.linear_dynamic(randn(3, 4), packed).device.type, "cpu")

    def test_a_refusal_names_the_operator_and_the_reason(self):
        remote = randn(3, 4).to(self.device)
        weight = quantized_tensor(6, 4, per_channel=True)
        packed = _quantized.linear_prepack(weight, None)
        with self.assertRaisesRegex(
                NotImplementedError, "quantized::linear is refused.*W_prepack.*packed weights.*cpu"):
            _quantized.linear(remote, packed, 0.1, 0)
        training = quantize_dynamic(torch.nn.ModuleList(
            [torch.nn.LSTM(4, 8, 2, dropout=0.5)]), {torch.nn.LSTM})[0].train()
        with self.assertRaisesRegex(NotImplementedError, "quantized_lstm.*dropout.*eval"):
            training(randn(3, 2, 4).to(self.device))
        network = quantize_dynamic(
            torch.nn.ModuleList([torch.nn.GRU(4, 8)]), {torch.nn.GRU})[0]
        sequence = torch.nn.utils.rnn.pack_padded_sequence(remote.view(3, 1, 4), [3])
        with self.assertRaisesRegex(NotImplementedError, "quantized_gru.data is refused"):
            network(sequence)

    def test_another_engine_is_refused(self):
        self.assertEqual(run_program("""
            import torch, djinn
            djinn.local(worker_threads=1)
            torch.backends.quantized.engine = "qnnpack"
            weight = torch.quantize_per_tensor(torch.ones(6, 4), 0.03, 0, torch.qint8)
            packed = torch.ops.quantized.linear_prepack(weight, None)
            for engine in ("qnnpack", "x86"):
                torch.backends.quantized.engine = engine
                try:
                    torch.ops.quantized.linear_dynamic(torch.ones(1, 4, device=djinn.device()), packed)
                    print("no error")
                except NotImplementedError as error:
                    if "torch.backends.quantized.engine" not in str(error): print(error)
            """).stdout, "")

    def test_weights_are_copied_to_each_session_anew(self):
        self.assertEqual(run_program("""
            import torch, djinn
            weight = torch.quantize_per_tensor(torch.randn(6, 4), 0.03, 0, torch.qint8)
            packed, x = torch.ops.quantized.linear_prepack(weight, None), torch.randn(3, 4)
            for _ in range(2):
                with djinn.local(worker_threads=1):
                    y = torch.ops.quantized.linear_dynamic(x.to(djinn.device()), packed).cpu()
                    if not y.equal(torch.ops.quantized.linear_dynamic(x, packed)): print("differs")
            """).stdout, "")
