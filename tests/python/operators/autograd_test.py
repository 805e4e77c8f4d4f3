"""Gradients, function transforms and mixed precision, compared with the CPU's."""

import copy
import threading
import warnings

import torch
from torch.utils.checkpoint import checkpoint

from tests.python.remote_case import RemoteCase


def _model():
    torch.manual_seed(1)
    return torch.nn.Sequential(
        torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16), torch.nn.Linear(16, 2)
    )


class AutogradTest(RemoteCase):
    def setUp(self):
        self.local = _model()
        self.remote = copy.deepcopy(self.local).to(self.device)
        self.input = torch.randn(4, 8)

    def assert_close(self, remote, local, **kwargs):
        self.assertEqual(remote.device.type, self.device.type)
        torch.testing.assert_close(remote.detach().cpu(), local.detach(), **kwargs)

    def assert_gradients_close(self):
        for remote, local in zip(self.remote.parameters(), self.local.parameters()):
            self.assert_close(remote.grad, local.grad)

    def test_checkpoint(self):
        for use_reentrant in (True, False):
            for model, device in ((self.local, "cpu"), (self.remote, self.device)):
                model.zero_grad()
                x = self.input.to(device).requires_grad_()
                torch.manual_seed(3)
                y = checkpoint(
                    lambda t, m=model: torch.nn.functional.dropout(m(t), 0.5),
                    x,
                    use_reentrant=use_reentrant,
                )
                y.square().sum().backward()
            self.assert_gradients_close()

    def test_higher_order(self):
        values = {}
        for device in ("cpu", self.device):
            x = self.input.to(device).requires_grad_()
            (g,) = torch.autograd.grad(x.tanh().pow(3).sum(), x, create_graph=True)
            (values[str(device)],) = torch.autograd.grad(g.square().sum(), x)
        self.assert_close(values[str(self.device)], values["cpu"])

    def test_retain_graph_and_hooks(self):
        x = torch.ones(3, device=self.device, requires_grad=True)
        seen = []
        x.register_hook(lambda gradient: seen.append(gradient.tolist()))
        y = (x * x).sum()
        y.backward(retain_graph=True)
        y.backward()
        self.assertEqual(seen, [[2, 2, 2], [2, 2, 2]])
        self.assertEqual(x.grad.tolist(), [4, 4, 4])

    def test_func_grad_and_vmap(self):
        def loss(weight, row):
            return (weight @ row).sin().sum()

        weight = torch.randn(3, 8)
        per_row = torch.func.vmap(torch.func.grad(loss), (None, 0))
        self.assert_close(
            per_row(weight.to(self.device), self.input.to(self.device)),
            per_row(weight, self.input),
        )

    def test_jacobian_and_hessian(self):
        def f(x):
            return (x.sin() * x).sum()

        x = torch.randn(4)
        self.assert_close(torch.func.hessian(f)(x.to(self.device)), torch.func.hessian(f)(x))
        self.assert_close(torch.func.jvp(f, (x.to(self.device),), (torch.ones(4, device=self.device),))[1],
                          torch.func.jvp(f, (x,), (torch.ones(4),))[1])

    def test_functional_call(self):
        parameters = {k: v * 2 for k, v in self.remote.named_parameters()}
        doubled = {k: v * 2 for k, v in self.local.named_parameters()}
        self.assert_close(
            torch.func.functional_call(self.remote, parameters, self.input.to(self.device)),
            torch.func.functional_call(self.local, doubled, self.input),
        )

    def test_custom_function(self):
        class Cube(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x**3

            @staticmethod
            def backward(ctx, gradient):
                (x,) = ctx.saved_tensors
                return 3 * x**2 * gradient

        x = torch.tensor([1.0, 2.0], device=self.device, requires_grad=True)
        Cube.apply(x).sum().backward()
        self.assertEqual(x.grad.tolist(), [3, 12])

    def test_backward_runs_in_the_calling_thread(self):
        ran_in = []

        def step():
            # The state that inference mode leaves behind must not undo it.
            with torch.inference_mode():
                torch.ones(2, device=self.device).add(1)
            x = torch.ones(2, device=self.device, requires_grad=True)
            y = x * 2
            y.register_hook(lambda grad: ran_in.append(threading.get_ident()))
            y.sum().backward()
            ran_in.append(threading.get_ident())

        thread = threading.Thread(target=step)
        thread.start()
        thread.join()
        self.assertEqual(ran_in[0], ran_in[1])

    def test_an_error_in_a_hook_reaches_the_caller(self):
        x = torch.ones(3, device=self.device, requires_grad=True)

        def fail(gradient):
            raise KeyError("from a hook")

        x.register_hook(fail)
        with self.assertRaisesRegex(KeyError, "from a hook"):
            (x * 2).sum().backward()

    def test_list_writes_to_saved_tensors_are_detected(self):
        def backward_after(write):
            x = torch.ones(3, device=self.device, requires_grad=True)
            y = x.exp()
            with torch.no_grad():
                write(y)
            y.sum().backward()

        for write in (
            lambda y: torch._foreach_mul_([y], 10.0),
            lambda y: torch._foreach_zero_([y]),
            lambda y: torch.split_copy(torch.ones(3, device=self.device), 3, out=[y]),
        ):
            with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
                backward_after(write)
        # Optimizers write in this way.
        layers = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1)).to(self.device)
        step = torch.optim.Adam(layers.parameters()).step
        out = layers(torch.ones(1, 2, device=self.device))
        out.sum().backward(retain_graph=True)
        step()
        with self.assertRaisesRegex(RuntimeError, "modified by an inplace operation"):
            out.sum().backward()
        # A tensor from inference mode must not be written.
        with torch.inference_mode():
            made = torch.ones(3, device=self.device)
        with self.assertRaisesRegex(RuntimeError, "Inplace update to inference tensor"):
            torch._foreach_mul_([made], 2.0)

    def test_anomaly_mode(self):
        x = torch.tensor([-1.0], device=self.device, requires_grad=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with torch.autograd.detect_anomaly():
                with self.assertRaisesRegex(RuntimeError, "returned nan"):
                    x.sqrt().sum().backward()

    def test_saved_tensors_on_cpu(self):
        with torch.autograd.graph.save_on_cpu():
            self.remote(self.input.to(self.device)).sum().backward()
        self.local(self.input).sum().backward()
        self.assert_gradients_close()

    def test_autocast(self):
        for dtype in (torch.bfloat16, torch.float16):
            with torch.autocast("cpu", dtype=dtype):
                expected = self.local(self.input)
            with torch.autocast(self.device.type, dtype=dtype):
                actual = self.remote(self.input.to(self.device))
                self.assertEqual((actual.float() @ actual.t().float()).dtype, dtype)
                self.assertEqual(actual.exp().dtype, torch.float32)
            self.assertEqual(actual.dtype, dtype)
            self.assert_close(actual, expected, atol=0.05, rtol=0.05)

    def test_autocast_casts_the_parts_of_operators_sent_whole(self):
        rows = torch.randn(4, 4, generator=torch.Generator().manual_seed(3)) * 3
        lstm = torch.nn.LSTM(4, 3)
        targets = torch.arange(4)
        for gradients in (False, True):
            remote = rows.to(self.device).requires_grad_(gradients)
            remote_lstm = copy.deepcopy(lstm).requires_grad_(gradients).to(self.device)
            with torch.autocast(self.device.type, dtype=torch.bfloat16):
                scores = remote @ remote.t()
                loss = torch.nn.functional.cross_entropy(scores, targets.to(self.device))
                summed = torch.einsum("ij,kj->ik", remote, remote)
                outputs, _ = remote_lstm(remote[:, None])
                outputs_of_half, _ = remote_lstm(remote[:, None].bfloat16())
            self.assertEqual(loss.dtype, torch.float32)
            # The operator states the precision in which it normalises.
            probabilities = scores.detach().cpu().log_softmax(1)
            self.assertEqual(probabilities.dtype, torch.bfloat16)
            expected = torch.nn.functional.nll_loss(probabilities.float(), targets)
            self.assert_close(loss.detach(), expected)
            self.assertEqual(summed.dtype, torch.bfloat16)
            self.assert_close(summed.detach(), scores.detach().cpu())
            with torch.no_grad():
                wanted, _ = lstm(rows[:, None])
            for outputs in (outputs, outputs_of_half):
                self.assert_close(outputs.detach().float(), wanted, atol=0.02, rtol=0.02)

    def test_autocast_is_off_by_default_and_nests(self):
        a = torch.ones(2, 2, device=self.device)
        with torch.autocast(self.device.type, dtype=torch.bfloat16):
            self.assertTrue(torch.is_autocast_enabled(self.device.type))
            with torch.autocast(self.device.type, enabled=False):
                self.assertEqual((a @ a).dtype, torch.float32)
            self.assertEqual((a @ a).dtype, torch.bfloat16)
        self.assertEqual((a @ a).dtype, torch.float32)

    def test_grad_scaler_skips_a_step_with_inf(self):
        optimizer = torch.optim.SGD(self.remote.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler(self.device.type, init_scale=1024.0)
        self.assertTrue(scaler.is_enabled())
        before = self.remote[0].weight.detach().clone()
        loss = self.remote(self.input.to(self.device)).sum()
        scaler.scale(loss * float("inf")).backward()
        scaler.step(optimizer)
        scaler.update()
        self.assertEqual(scaler.get_scale(), 512.0)
        self.assert_close(self.remote[0].weight, before.cpu())

    def test_grad_scaler_equals_plain_training(self):
        optimizers = [
            torch.optim.AdamW(m.parameters(), lr=0.01) for m in (self.local, self.remote)
        ]
        scaler = torch.amp.GradScaler(self.device.type)
        for _ in range(3):
            for optimizer in optimizers:
                optimizer.zero_grad()
            self.local(self.input).square().mean().backward()
            optimizers[0].step()
            scaler.scale(self.remote(self.input.to(self.device)).square().mean()).backward()
            scaler.unscale_(optimizers[1])
            torch.nn.utils.clip_grad_norm_(self.remote.parameters(), 1e6)
            scaler.step(optimizers[1])
            scaler.update()
        for remote, local in zip(self.remote.parameters(), self.local.parameters()):
            self.assert_close(remote, local, atol=1e-4, rtol=1e-3)
