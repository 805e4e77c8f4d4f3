"""Tensors that programs append to, as decoders do to their caches.

Workers let them grow where they are. Here programs append, and do what would show an
old row, a lost one or one of another's: each value is compared with PyTorch's own.
"""

import random
import re
import tempfile
import unittest
import urllib.request

import torch
from torch.nn import functional

import djinn
from tests.operating.cluster import PATIENCE, Cluster

HEADS, WIDTH, LENGTH = 4, 64, 96


class Pair:
    """A tensor of the device and its twin in this process."""

    def __init__(self, local, remote):
        self.local, self.remote = local, remote

    def each(self, function, *others):
        return Pair(function(self.local, *(other.local for other in others)),
                    function(self.remote, *(other.remote for other in others)))


class GrowingCachesTest(unittest.TestCase):
    def setUp(self):
        # A worker learns where appending pays off; no case is to learn from another.
        folder = self.enterContext(tempfile.TemporaryDirectory())
        self.cluster = Cluster(folder, ("w0",), extra="monitoring: {listen: '127.0.0.1:0'}\n")
        self.addCleanup(self.cluster.stop)
        djinn.connect(self.cluster.coordinator, token_file=self.cluster.path("dev.token"))
        self.addCleanup(djinn.close, 10)
        self.addCleanup(djinn.set_execution_mode, "strict")
        # Bits are those of PyTorch with as many threads.
        self.addCleanup(torch.set_num_threads, torch.get_num_threads())
        torch.set_num_threads(1)
        torch.manual_seed(5)
        self.device = djinn.device()

    def count(self, event):
        url = "http://%s/metrics" % self.cluster.monitoring["w0"]
        with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
            text = answer.read().decode()
        return float(re.search(
            r'^djinn_worker_device_events_total\{event="%s"\} (\S+)$' % event, text,
            re.MULTILINE)[1])

    def random(self, *sizes):
        value = torch.randn(*sizes)
        return Pair(value, value.to(self.device))

    def expect_same(self, pair, seed, fast):
        tolerance = 1e-4 if fast else 0
        torch.testing.assert_close(
            pair.remote.cpu(), pair.local, rtol=tolerance, atol=tolerance, msg=lambda text:
            f"seed {seed}: {text}")

    def append(self, cache, count=1):
        return cache.each(lambda x, new: torch.cat([x, new], 2),
                          self.random(cache.local.shape[0], HEADS, count, WIDTH))

    def attend(self, keys, values):
        return self.random(keys.local.shape[0], HEADS, 1, WIDTH).each(
            functional.scaled_dot_product_attention, keys, values)

    def test_tokens_of_a_decoder(self):
        for mode in ("strict", "fast"):
            djinn.set_execution_mode(mode)
            before = self.count("appends_in_place"), self.count("append_rooms_lost")
            keys, values = (self.random(1, HEADS, LENGTH, WIDTH) for _ in range(2))
            for _ in range(120):
                keys, values = self.append(keys), self.append(values)
                self.expect_same(self.attend(keys, values), mode, mode == "fast")
            # All but the first two of each, and those that found no more room.
            self.assertGreater(self.count("appends_in_place"), before[0] + 220)
            self.assertEqual(self.count("append_rooms_lost"), before[1])
            self.expect_same(keys, mode, False)
            self.expect_same(values, mode, False)
            self.assertEqual(self.count("append_rooms_lost"), before[1] + 2)

    def test_programs_that_do_more_than_append(self):
        for seed in range(12):
            fast = seed % 2 == 1
            djinn.set_execution_mode("fast" if fast else "strict")
            self.run_program(random.Random(seed), seed, fast)

    def run_program(self, chosen, seed, fast):
        caches = [self.random(1, HEADS, LENGTH, WIDTH) for _ in range(2)]
        kept = []
        for _ in range(150):
            i = chosen.randrange(len(caches))
            # Mostly it is appended to, several times in succession.
            for _ in range(chosen.randrange(1, 6)):
                caches[i] = self.append(caches[i], chosen.choice((1, 1, 1, 2, 5)))
            cache = caches[i]
            step = chosen.randrange(14)
            if step == 0:
                kept.append(cache)
            elif step == 1:
                kept.append(cache.each(lambda x: x[:, 1:3, 5:-1]))
            elif step == 2:
                cache.each(lambda x: x[:, :, 3].mul_(-2))
            elif step == 3:
                self.expect_same(cache, seed, False)
            elif step == 4:
                self.expect_same(cache.each(lambda x: x @ x.transpose(2, 3)), seed, fast)
            elif step == 5:
                self.expect_same(cache.each(lambda x: x.transpose(1, 2).contiguous()), seed, False)
            elif step == 6:
                caches[i] = cache.each(lambda x: x.clone())
            elif step == 7:
                # Two go on from here.
                caches[1 - i] = cache
            elif step == 8:
                caches[i] = cache.each(lambda x: x[:, :, -LENGTH:])
            elif step == 9:
                # As beams are put in another order.
                caches[i] = cache.each(
                    lambda x: x.index_select(1, torch.tensor([2, 0, 3, 1], device=x.device)))
            elif step == 10:
                self.expect_same(cache.each(
                    lambda x: x[:, :, None].expand(1, HEADS, 2, -1, WIDTH).reshape(
                        1, 2 * HEADS, -1, WIDTH)), seed, False)
            elif step == 11:
                caches[i] = cache.each(lambda x: torch.cat([x, x[:, :, :1]], 2))
            elif step == 12 and kept:
                self.expect_same(kept.pop(chosen.randrange(len(kept))), seed, False)
            if caches[i].local.shape[2] > 2 * LENGTH:
                caches[i] = self.random(1, HEADS, LENGTH, WIDTH)
            if caches[0].local.shape == caches[1].local.shape:
                self.expect_same(self.attend(*caches), seed, fast)
            self.expect_same(self.attend(caches[i], caches[i]), seed, fast)
        for pair in caches + kept:
            self.expect_same(pair, seed, False)


if __name__ == "__main__":
    unittest.main()
