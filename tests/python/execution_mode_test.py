"""Tests the strict and the fast execution mode, which differ in bits."""

import copy
import random
import unittest

import torch
import transformers
from torch import nn

import djinn
from tests.python.remote_case import RemoteCase


class ExecutionModeTest(RemoteCase):
    def tearDown(self):
        djinn.set_execution_mode("strict")

    def test_strict_is_the_default(self):
        self.assertEqual(djinn.execution_mode(), "strict")

    def test_fast_runs_give_the_same_numbers_within_rounding(self):
        djinn.set_execution_mode("fast")
        self.assertEqual(djinn.execution_mode(), "fast")
        x, w = torch.randn(8, 784), torch.randn(784, 128)
        remote_x, remote_w = x.to(self.device), w.to(self.device)
        # The loop continues beyond the trials, so that it tests both numbers of
        # threads and the worker's choice.
        for _ in range(20):
            torch.testing.assert_close(
                (remote_x @ remote_w).cpu(), x @ w, rtol=1e-4, atol=1e-4)

    def test_unknown_modes_are_refused(self):
        with self.assertRaisesRegex(ValueError, "'quick': must be one of strict, fast"):
            djinn.set_execution_mode("quick")
        self.assertEqual(djinn.execution_mode(), "strict")


class WholeAttentionTest(RemoteCase):
    """Attention that a module spells out may be executed otherwise in fast mode."""

    def tearDown(self):
        djinn.set_execution_mode("strict")

    def test_a_module_with_attention_of_its_own(self):
        torch.manual_seed(5)
        config = transformers.BertConfig(
            hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
            intermediate_size=128, vocab_size=100, attn_implementation="eager")
        local = transformers.BertModel(config).eval()
        remote = copy.deepcopy(local).to(self.device)
        djinn.set_execution_mode("fast")
        with torch.inference_mode():
            # The loop continues beyond the trials. The last sentence of each
            # batch is padded.
            for call in range(40):
                ids = torch.randint(100, (2, 64))
                mask = torch.ones_like(ids)
                mask[1, 40 + call % 20:] = 0
                expected = local(ids, attention_mask=mask)
                actual = remote(ids.to(self.device), attention_mask=mask.to(self.device))
                torch.testing.assert_close(
                    actual.last_hidden_state.cpu(), expected.last_hidden_state,
                    rtol=1e-4, atol=1e-4)
            # The weights are computed when they are requested.
            remote.config.output_attentions = local.config.output_attentions = True
            expected = local(ids, attention_mask=mask)
            actual = remote(ids.to(self.device), attention_mask=mask.to(self.device))
            for one, other in zip(actual.attentions, expected.attentions, strict=True):
                torch.testing.assert_close(one.cpu(), other, rtol=1e-4, atol=1e-5)


class PackedWeightsTest(RemoteCase):
    """A worker in fast mode keeps packed copies of weights, and drops outdated ones."""

    # Smaller weights are not packed.
    ROWS, WIDTH = 16, 384
    # The worker packs a weight at its fourth use.
    SETTLED = 8

    def setUp(self):
        torch.manual_seed(3)
        djinn.set_execution_mode("fast")
        self.rows = torch.randn(self.ROWS, self.WIDTH)
        self.remote_rows = self.rows.to(self.device)

    def tearDown(self):
        djinn.set_execution_mode("strict")

    def expect_right(self, local, remote, calls=1):
        with torch.no_grad():
            expected = local(self.rows)
            for call in range(calls):
                actual = remote(self.remote_rows)
                # Reading takes the longest, so only some calls read.
                if call % 8 == 0 or call == calls - 1:
                    torch.testing.assert_close(
                        actual.cpu(), expected, rtol=1e-4, atol=1e-4)

    def settled_pair(self):
        local = nn.Linear(self.WIDTH, self.WIDTH)
        remote = copy.deepcopy(local).to(self.device)
        self.expect_right(local, remote, self.SETTLED)
        return local, remote

    def test_every_way_to_change_a_weight_is_seen(self):
        other = nn.Linear(self.WIDTH, self.WIDTH)
        row = torch.randn(self.WIDTH)

        def train(layer):
            layer.weight.grad = torch.ones_like(layer.weight)
            torch.optim.SGD(layer.parameters(), lr=0.1).step()

        changes = {
            "scaled in place": lambda m: m.weight.mul_(1.5),
            "one element": lambda m: m.weight[3, 4].fill_(9),
            "a row": lambda m: m.weight[7].copy_(row.to(m.weight.device)),
            "by an upload": lambda m: m.weight.copy_(other.weight.to(m.weight.device)),
            "load_state_dict": lambda m: m.load_state_dict(other.state_dict()),
            "another tensor as its data": lambda m: setattr(
                m.weight, "data", (other.weight.detach() * 2).to(m.weight.device)),
            "an optimiser": train,
            "as a view of other sizes": lambda m: m.weight.view(-1)[100:200].zero_(),
            "by out=": lambda m: torch.mul(m.weight, 3.0, out=m.weight),
            "transposed in place": lambda m: m.weight.t_(),
        }
        for name, change in changes.items():
            with self.subTest(name):
                local, remote = self.settled_pair()
                with torch.no_grad():
                    change(local)
                    change(remote)
                self.expect_right(local, remote, self.SETTLED)

    def test_a_write_leaves_another_weight_of_equal_content(self):
        # The weight is large enough to be found again by its content.
        local = nn.Linear(self.WIDTH, 1000)
        first, second = (copy.deepcopy(local).to(self.device) for _ in range(2))
        self.expect_right(local, first, self.SETTLED)
        self.expect_right(local, second, self.SETTLED)
        changed = copy.deepcopy(local)
        with torch.no_grad():
            changed.weight[5].neg_()
            first.weight[5].neg_()
        for _ in range(self.SETTLED):
            self.expect_right(changed, first)
            self.expect_right(local, second)

    def test_memory_that_is_used_again_holds_another_weight(self):
        for _ in range(10):
            self.settled_pair()

    def test_random_changes_in_random_order(self):
        chosen = random.Random(5)
        layers = [nn.Linear(self.WIDTH, self.WIDTH) for _ in range(3)]
        remote = [copy.deepcopy(layer).to(self.device) for layer in layers]
        for _ in range(1500):
            i = chosen.randrange(3)
            step = chosen.randrange(100)
            with torch.no_grad():
                for layer in (layers[i], remote[i]):
                    if step == 0:
                        layer.weight[i].mul_(-2)
                    elif step == 1:
                        layer.weight = nn.Parameter(layer.weight.clone() * 0.5)
                    elif step == 2:
                        layer.weight.t_()
                    elif step == 3:
                        layer.weight.data = layer.weight.data.clone()
                        layer.weight.sub_(0.1)
            self.expect_right(layers[i], remote[i])


class PackedWeightsUnderPressureTest(unittest.TestCase):
    def test_packed_weights_yield_to_storages(self):
        mebibyte = 1 << 20
        with djinn.local(workers=1, worker_threads=1, worker_memory_bytes=16 * mebibyte):
            djinn.set_execution_mode("fast")
            self.addCleanup(djinn.set_execution_mode, "strict")
            device = djinn.device()
            weight = torch.randn(1024, 1024)
            rows = torch.randn(64, 1024)
            remote_weight, remote_rows = weight.to(device), rows.to(device)
            for _ in range(8):
                product = (remote_rows @ remote_weight).cpu()
            # 4 MiB are packed by now. When they are given up, there is room.
            large = torch.full((10 * mebibyte // 4,), 2.0, device=device)
            self.assertEqual(large[-1].item(), 2.0)
            torch.testing.assert_close(product, rows @ weight, rtol=1e-3, atol=1e-3)
            again = (remote_rows @ remote_weight).cpu()
            torch.testing.assert_close(again, product, rtol=1e-3, atol=1e-3)
