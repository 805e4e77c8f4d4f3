"""A device that is on three workers: what it repeats is cut into stages."""

import copy
import unittest

import torch

import djinn

_WORKERS = 3


class _Block(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.first = torch.nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norm = torch.nn.BatchNorm2d(channels)
        self.second = torch.nn.Conv2d(channels, channels, 3, padding=1)

    def forward(self, x):
        return torch.relu(x + self.second(torch.relu(self.norm(self.first(x)))))


def _network():
    torch.manual_seed(5)
    layers = [torch.nn.Conv2d(3, 32, 3, padding=1), torch.nn.ReLU()]
    layers += [_Block(32) for _ in range(6)]
    layers += [torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(32, 10)]
    return torch.nn.Sequential(*layers)


class _Layer(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.qkv = torch.nn.Linear(width, 3 * width)
        self.out = torch.nn.Linear(width, width)

    def forward(self, x, mask):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        weights = torch.softmax(q @ k.transpose(-1, -2) + mask, dim=-1)
        return torch.relu(x + self.out(weights @ v))


class _Decoder(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(6)
        self.layers = torch.nn.ModuleList([_Layer(64) for _ in range(6)])

    def forward(self, x, mask=None):
        if mask is None:
            length = x.shape[1]
            later = torch.ones((length, length), dtype=torch.bool, device=x.device).triu(1)
            mask = torch.zeros((length, length), device=x.device).to(torch.float64)
            mask = mask.masked_fill(later, float("-inf")).to(x.dtype)
        for layer in self.layers:
            x = layer(x, mask)
        return x


class StagesTest(unittest.TestCase):
    def setUp(self):
        self.enterContext(
            djinn.local(workers=_WORKERS, worker_threads=1, device_workers={0: _WORKERS})
        )
        self.addCleanup(torch.set_num_threads, torch.get_num_threads())
        torch.set_num_threads(1)
        self.local = _network().eval()
        self.remote = copy.deepcopy(self.local).to(djinn.device())

    def copies(self):
        return djinn.statistics()["device_copies"]

    @torch.inference_mode()
    def run_pipeline(self, batch):
        """In parts of two images, which are on different stages at a time."""
        parts = [self.remote(part.to(djinn.device())) for part in batch.split(2)]
        return torch.cat(parts).cpu()

    @torch.inference_mode()
    def check(self, batch):
        expected = torch.cat([self.local(part) for part in batch.split(2)])
        self.assertTrue(torch.equal(self.run_pipeline(batch), expected))

    def until_it_is_cut(self):
        for _ in range(100):
            self.check(torch.randn(4, 3, 16, 16))
            if self.copies() > 0:
                return
        self.fail("it was not cut within 100 runs")

    def test_bits_are_equal_and_only_values_cross(self):
        self.until_it_is_cut()
        self.assertEqual(len(djinn.where_is().worker_id.split("+")), _WORKERS)
        # The remaining weights have moved by then.
        self.check(torch.randn(8, 3, 16, 16))
        before = self.copies()
        for _ in range(5):
            self.check(torch.randn(8, 3, 16, 16))
        # Four micro-batches move from the first stage to the second and the
        # third, with the values that bypass a block. Their results may be put
        # together on another worker.
        self.assertGreaterEqual(self.copies() - before, 5 * 4 * (_WORKERS - 1))
        self.assertLessEqual(self.copies() - before, 5 * 4 * (2 * (_WORKERS - 1) + 1))
        self.assertEqual(djinn.root_errors(), [])

    @torch.inference_mode()
    def test_a_mask_is_made_on_each_worker(self):
        local = _Decoder().eval()
        remote = copy.deepcopy(local).to(djinn.device())
        mask = torch.full((48, 48), float("-inf")).triu(1)

        def copies_of_a_run(given):
            before = self.copies()
            x = torch.randn(2, 48, 64)
            arguments = [mask.to(djinn.device())] if given else []
            actual = remote(x.to(djinn.device()), *arguments).cpu()
            self.assertTrue(torch.equal(actual, local(x)))
            return self.copies() - before

        for given in (False, True):
            for _ in range(100):
                if copies_of_a_run(given) > 0:
                    break
            # This run moves the remaining weights.
            copies_of_a_run(given)
        made = [copies_of_a_run(False) for _ in range(3)]
        fetched = [copies_of_a_run(True) for _ in range(3)]
        self.assertGreater(min(made), 0)
        self.assertEqual([count - (_WORKERS - 1) for count in fetched], made)

    def test_weights_may_change(self):
        self.until_it_is_cut()
        for step in range(3):
            with torch.no_grad():
                for local, remote in zip(self.local.parameters(), self.remote.parameters()):
                    local.mul_(0.5 + step)
                    remote.mul_(0.5 + step)
            self.check(torch.randn(4, 3, 16, 16))

    def test_a_training_step(self):
        """Backward follows forward; so does each weight's update."""
        self.local.train()
        self.remote.train()
        networks = (self.local, self.remote)
        optimizers = [
            torch.optim.SGD(network.parameters(), lr=0.01, foreach=False) for network in networks
        ]
        for _ in range(20):
            batch = torch.randn(2, 3, 8, 8)
            losses = []
            for network, optimizer in zip(networks, optimizers):
                optimizer.zero_grad()
                device = next(network.parameters()).device
                loss = network(batch.to(device)).square().mean()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
            self.assertEqual(losses[0], losses[1])
        self.assertGreater(self.copies(), 0)
