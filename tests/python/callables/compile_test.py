"""Tracing, fake tensors, torch.compile and the profiler."""

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from tests.python.remote_case import RemoteCase


class CompileTest(RemoteCase):
    def setUp(self):
        torch._dynamo.reset()

    def test_jit_trace(self):
        model = torch.nn.Linear(3, 2).to(self.device)
        x = torch.randn(4, 3, device=self.device)
        traced = torch.jit.trace(model, x)
        self.assert_same(traced(x).detach(), model(x).detach().cpu())

    def test_jit_script(self):
        @torch.jit.script
        def f(x):
            y = x + 1
            if bool(y.sum() > 0):
                y = y * 2
            return y

        self.assertEqual(f(torch.ones(2, device=self.device)).tolist(), [4, 4])

    def test_fake_tensors(self):
        with FakeTensorMode() as mode:
            x = torch.empty(3, 4, device=self.device)
            y = (x @ x.t()).relu()
        self.assertEqual((y.shape, y.device), ((3, 3), self.device))
        real = torch.ones(2, 2, device=self.device)
        self.assertEqual(mode.from_tensor(real).device, self.device)

    def test_make_fx(self):
        graph = make_fx(lambda x: x.sin().sum())(torch.ones(3, device=self.device))
        self.assertIn("aten.sin", graph.code)

    def test_export(self):
        model = torch.nn.Linear(3, 2).to(self.device)
        x = torch.randn(4, 3, device=self.device)
        exported = torch.export.export(model, (x,))
        self.assert_same(exported.module()(x).detach(), model(x).detach().cpu())

    def test_compile(self):
        model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.GELU()).to(self.device)
        x = torch.randn(5, 3, device=self.device)
        expected = model(x).detach().cpu()
        for backend in ("eager", "aot_eager"):
            torch._dynamo.reset()
            model.zero_grad()
            y = torch.compile(model, backend=backend)(x)
            torch.testing.assert_close(y.detach().cpu(), expected)
            y.sum().backward()
            self.assertEqual(model[0].weight.grad.device, self.device)

    def test_profiler(self):
        activity = torch.profiler.ProfilerActivity
        with torch.profiler.profile(activities=[activity.CPU]) as profile:
            x = torch.ones(3, device=self.device)
            (x + x).sum().item()
        names = {event.key for event in profile.key_averages()}
        self.assertIn("aten::add", names)
        with torch.profiler.profile(
            activities=[activity.CPU, activity.PrivateUse1], profile_memory=True, record_shapes=True
        ) as profile:
            (x + x).sum().item()
        self.assertIn("aten::add", profile.key_averages().table())

    def test_old_profiler(self):
        with torch.autograd.profiler.profile() as profile:
            torch.ones(3, device=self.device).sum().item()
        self.assertIn("aten::sum", profile.key_averages().table())
