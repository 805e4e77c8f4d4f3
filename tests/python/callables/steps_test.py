"""djinn.compile() of whole training steps: each value is the CPU's, whether steps are replayed or not."""

import torch

import djinn
from tests.python.callables.registered_case import RegisteredCase

_SGD = torch.optim.SGD
_ADAM = torch.optim.Adam
_schedulers = torch.optim.lr_scheduler


def _plain():
    return torch.nn.Sequential(torch.nn.Linear(7, 11), torch.nn.Tanh(), torch.nn.Linear(11, 3))


def _averaging():
    # The factor of the average is another number at each call.
    return torch.nn.Sequential(
        torch.nn.Linear(7, 6), torch.nn.BatchNorm1d(6, momentum=None), torch.nn.Linear(6, 3))


class StepsTest(RegisteredCase):
    def train(self, place, optimize, schedule=None, *, model=_plain, inside=False, closure=False,
              accumulate=None):
        """Returns the losses, parameters and buffers of 12 steps, and the number of replays."""
        torch.manual_seed(0)
        model = model().to(place)
        optimizer = optimize(model.parameters())
        scheduler = schedule and schedule(optimizer)

        def step(x, y, is_last=True):
            def loss_of():
                loss = torch.nn.functional.mse_loss(model(x), y)
                loss.backward()
                return loss

            if closure:
                optimizer.zero_grad()
                return optimizer.step(loss_of).detach()
            loss = loss_of()
            if is_last:
                optimizer.step()
                optimizer.zero_grad()
                if inside:
                    scheduler.step()
            return loss.detach()

        run = step if place == "cpu" else djinn.compile(step)
        found = []
        for i in range(12):
            x, y = torch.randn(5, 7).to(place), torch.randn(5, 3).to(place)
            found.append(run(x, y) if accumulate is None else run(x, y, (i + 1) % accumulate == 0))
            if scheduler and not inside:
                scheduler.step()
        replays = 0 if place == "cpu" else run.statistics()["replays"]
        return [*found, *(one.detach() for one in model.state_dict().values())], replays

    def check(self, *args, is_replayed=True, **options):
        expected, _ = self.train("cpu", *args, **options)
        found, replays = self.train(self.device, *args, **options)
        for one, other in zip(found, expected, strict=True):
            self.assert_same(one, other)
        self.assertEqual(replays > 0, is_replayed)

    def test_numbers_of_optimizers_in_other_forms(self):
        self.check(lambda p: _ADAM(p, 0.01, betas=[0.8, 0.95]))
        self.check(lambda p: _ADAM(p, 0.01, fused=True))
        self.check(
            lambda p: _ADAM(p, torch.tensor(0.01)),
            lambda o: _schedulers.ExponentialLR(o, 0.9), is_replayed=False)

    def test_schedules(self):
        self.check(
            lambda p: _SGD(p, 0.1, momentum=0.9, nesterov=True),
            lambda o: _schedulers.OneCycleLR(o, 0.2, total_steps=40), inside=True)
        self.check(
            lambda p: torch.optim.AdamW(p, 0.01, amsgrad=True),
            lambda o: _schedulers.CosineAnnealingWarmRestarts(o, 3))
        rates = [1.0, 1.0, 1.0, 0.1, 0.1, 0.1, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
        self.check(
            lambda p: _SGD(p, 0.1),
            lambda o: _schedulers.LambdaLR(o, [lambda n: rates[n]]), inside=True)

    def test_optimizers_whose_numbers_are_not_known(self):
        for optimize in (torch.optim.Adafactor, torch.optim.Rprop):
            self.check(lambda p: optimize(p, 0.01), is_replayed=False)
        self.check(
            lambda p: torch.optim.LBFGS(p, 0.1, max_iter=3), closure=True, is_replayed=False)

    def test_a_cumulative_batch_norm_is_not_replayed(self):
        self.check(lambda p: _SGD(p, 0.1), model=_averaging, is_replayed=False)

    @torch.no_grad()
    def test_a_module_whose_average_is_over_all_calls(self):
        for compile in (djinn.compile, lambda one: torch.compile(one, backend="djinn")):
            torch._dynamo.reset()
            local, remote = (torch.nn.BatchNorm1d(6, momentum=None) for _ in range(2))
            compiled = compile(remote.to(self.device))
            for _ in range(6):
                x = torch.randn(5, 6)
                self.assert_same(compiled(x.to(self.device)), local(x))
                for name, buffer in local.named_buffers():
                    self.assert_same(getattr(remote, name), buffer)

    def test_gradients_that_are_accumulated(self):
        self.check(lambda p: torch.optim.AdamW(p, 0.01), accumulate=3)


if __name__ == "__main__":
    import unittest

    unittest.main()
