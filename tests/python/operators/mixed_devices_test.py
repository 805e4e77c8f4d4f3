"""Operands on several devices: PyTorch's errors, numbers on the CPU, and gradients."""

import torch

import djinn
from tests.python.remote_case import RemoteCase


class MixedDevicesTest(RemoteCase):
    workers = 2
    other = djinn.device(1)

    def test_errors_are_pytorchs(self):
        here, there, other = (torch.ones(2, 2, device=d) for d in ("cpu", self.device, self.other))
        two = "Expected all tensors to be on the same device, but found at least two devices, "
        one = "Expected all tensors to be on the same device, but got "
        name = str(self.device)[: -len(":0")]
        for call, text in (
            (lambda: there + here, f"{two}{name}:0 and cpu!"),
            (lambda: here * there, f"{two}cpu and {name}:0!"),
            (lambda: there + other, f"{two}{name}:0 and {name}:1!"),
            (lambda: torch.where(there > 0, here, there), f"{two}{name}:0 and cpu!"),
            (
                lambda: torch.mm(there, here),
                f"{one}mat2 is on cpu, different from other tensors on {name}:0 (when checking "
                f"argument in method wrapper_{name}_mm)",
            ),
        ):
            with self.subTest(text=text), self.assertRaises(RuntimeError) as raised:
                call()
            self.assertEqual(str(raised.exception), text)
        for call in (
            lambda: torch.nn.functional.linear(there, here),
            lambda: torch.nn.functional.embedding(here.long(), there),
            lambda: torch.cat([there, here]),
            lambda: torch.nn.functional.mse_loss(there, here),
            lambda: there.add_(here),
            lambda: here.add_(there),
            lambda: there.gather(0, here.long()),
            lambda: torch.add(there, 1, out=here),
        ):
            with self.subTest(call=call.__code__.co_firstlineno):
                with self.assertRaisesRegex(RuntimeError, "same device"):
                    call()
        self.assertEqual(there.sum().item(), 4)

    def test_numbers_may_be_on_the_cpu(self):
        x = torch.arange(4.0)
        number, whole = torch.tensor(2.0), torch.tensor(3)
        for call in (
            lambda t: t + number,
            lambda t: number * t,
            lambda t: torch.where(t > 1, t, number),
            lambda t: t.clone().add_(whole),
            lambda t: t.clone().masked_fill_(t > 1, number),
            lambda t: t.clone().index_put_((torch.tensor([1, 2]),), number),
            lambda t: t[torch.tensor([0, 3])],
        ):
            with self.subTest(call=call.__code__.co_firstlineno):
                self.assert_same(call(x.to(self.device)), call(x))

    def test_factories_that_follow_a_tensor_take_another_device(self):
        x = torch.ones(2, 3, device=self.device)
        for device in (torch.device("cpu"), self.other, self.device):
            for make in (
                lambda d: x.new_zeros(4, device=d),
                lambda d: x.new_ones(4, device=d),
                lambda d: x.new_full((2,), 7.0, device=d),
                lambda d: x.new_empty(4, device=d).zero_(),
                lambda d: torch.zeros_like(x, device=d),
                lambda d: torch.full_like(x, 3.0, device=d),
                lambda d: torch.empty_like(x, device=d).fill_(1),
            ):
                made = make(device)
                self.assertEqual(made.device, device)
                torch.testing.assert_close(made.cpu(), make(torch.device("cpu")))
            self.assertEqual(torch.rand_like(x, device=device).device, device)
            self.assertEqual(torch.randn_like(x, device=device).cpu().shape, x.shape)

    def test_gradients_cross_devices(self):
        weight = torch.randn(3, 3)
        first = weight.to(self.device).requires_grad_()
        second = weight.to(self.other).requires_grad_()
        hidden = (torch.ones(2, 3, device=self.device) @ first).tanh()
        (hidden.to(self.other) @ second).sum().backward()
        local = [weight.clone().requires_grad_() for _ in range(2)]
        ((torch.ones(2, 3) @ local[0]).tanh() @ local[1]).sum().backward()
        self.assertEqual(first.grad.device, self.device)
        self.assertEqual(second.grad.device, self.other)
        torch.testing.assert_close(first.grad.cpu(), local[0].grad, rtol=0, atol=0)
        torch.testing.assert_close(second.grad.cpu(), local[1].grad, rtol=0, atol=0)
