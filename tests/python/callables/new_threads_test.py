"""A thread that never used the device replays what other threads captured, from its first call."""

import threading
import warnings

import torch

import djinn
from tests.python.callables.registered_case import RegisteredCase


def in_a_new_thread(function, *args):
    results = []
    thread = threading.Thread(target=lambda: results.append(function(*args)))
    thread.start()
    thread.join()
    return results[0]


class NewThreadsTest(RegisteredCase):
    def test_the_first_call_of_a_thread_is_captured(self):
        module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.GELU()).to(self.device)
        compiled = djinn.compile(module)
        x = self.on(2, 4)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            in_a_new_thread(compiled, x)
        self.assertEqual(compiled.statistics()["captures"], 1)
        self.assert_same(in_a_new_thread(compiled, x).detach(), module(x).detach().cpu())
        self.assertEqual(compiled.statistics()["replays"], 1)

    def test_each_thread_of_a_server_replays(self):
        module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.GELU()).to(self.device)
        compiled = djinn.compile(module)
        for mode in (torch.no_grad, torch.inference_mode):
            with self.subTest(mode.__name__):
                serve = mode()(compiled.__call__)
                for _ in range(2):
                    serve(self.on(2, 4))
                before = compiled.statistics()["replays"]
                for _ in range(3):
                    x = torch.randn(2, 4)
                    y = in_a_new_thread(lambda x=x: serve(x.to(self.device)))
                    self.assert_same(y, module(x.to(self.device)).detach().cpu())
                self.assertEqual(compiled.statistics()["replays"], before + 3)

    def test_each_thread_replays_a_training_step(self):
        module = torch.nn.Linear(4, 3).to(self.device)
        optimizer = torch.optim.SGD(module.parameters(), 0.1)

        @djinn.compile
        def step(x):
            optimizer.zero_grad()
            loss = module(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        self.warm(step, self.on(2, 4))
        x = self.on(2, 4)
        before = step.statistics()["replays"]
        for _ in range(3):
            in_a_new_thread(step, x)
        self.assertEqual(step.statistics()["replays"], before + 3)
