"""A tenant with a budget of models: what is refused goes on, uncompiled, and says why."""

import gc
import re
import unittest

import torch

import djinn
from tests.operating.cluster import eventually, start_cluster

TENANTS = """
tenants:
  - name: dev
    token_file: dev.token
    totals: {max_models: %d, model_bytes: %s}
"""
# A worker has room for another model at most this many calls later.
ASKS_AGAIN = 256


class Small(torch.nn.Module):
    """16 x 16 floats, and 16."""

    BYTES = 16 * 16 * 4 + 16 * 4

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(16, 16)

    def forward(self, x):
        return self.layer(x).relu()


class Large(torch.nn.Module):
    BYTES = 64 * 64 * 4 + 64 * 4

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 64)

    def forward(self, x):
        return self.layer(x).relu()


class ModelBudgetTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        self.addCleanup(torch.set_num_threads, torch.get_num_threads())
        torch.set_num_threads(1)
        self.enterContext(torch.no_grad())
        self.cluster = start_cluster(self, ("w0",), tenants=TENANTS % (2, "4000"))
        djinn.connect(self.cluster.coordinator, token_file=self.cluster.path("dev.token"),
                      insecure=True)
        self.addCleanup(djinn.close)

    def use(self):
        """Returns the tenant's last usage report."""
        return self.cluster.json("get", "tenants", "dev")["use"]

    def call(self, module, compiled, times):
        """Calls it on new inputs; every answer is what it is without Djinn."""
        weights = {name: value.cpu() for name, value in module.state_dict().items()}
        local = type(module)()
        local.load_state_dict(weights)
        for _ in range(times):
            x = torch.randn(3, module.layer.in_features)
            torch.testing.assert_close(
                compiled(x.to(djinn.device())).cpu(), local(x), rtol=0, atol=0)
        return compiled.statistics()

    def compiled(self, kind):
        module = kind().to(djinn.device())
        return module, djinn.compile(module)

    def test_a_model_that_is_too_large_is_refused(self):
        small, compiled_small = self.compiled(Small)
        statistics = self.call(small, compiled_small, 6)
        self.assertEqual(statistics, {"replays": 5, "captures": 1, "refusal": ""})

        large, compiled_large = self.compiled(Large)
        statistics = self.call(large, compiled_large, 6)
        self.assertEqual(statistics["replays"], 0)
        # It is not captured again without need.
        self.assertEqual(statistics["captures"], 1)
        self.assertIn(
            "MODEL_BYTES: what the model Large keeps using: limit 4000 bytes, used 0, "
            f"asked {Large.BYTES} (worker w0, tenant dev", statistics["refusal"])
        # The small model works as before.
        self.assertEqual(self.call(small, compiled_small, 2)["replays"], 7)
        self.assertEqual(djinn.root_errors(), [])

        eventually(lambda: self.use()["refused_models"] == "1", "the worker's report")
        use = self.use()
        self.assertEqual(use["model_count"], 1)
        self.assertEqual(use["model_bytes"], str(Small.BYTES))
        self.assertEqual(use["models"], [{"name": "Small", "size_bytes": str(Small.BYTES)}])
        session = self.cluster.said("get", "sessions").splitlines()[1].split()[0]
        shown = "1 model, 1.1kB: Small 1.1kB; refused 1 time\n"
        self.assertRegex(self.cluster.said("explain", "session", session),
                         "models +" + re.escape(shown))
        self.assertIn(shown, self.cluster.said("get", "sessions", session))
        tenant = self.cluster.said("get", "tenants", "dev")
        self.assertIn(shown, tenant)
        self.assertIn("models limit       2\n", tenant)
        self.assertIn("model bytes limit  4.0kB\n", tenant)
        head, row = self.cluster.said("get", "tenants").splitlines()
        self.assertEqual(head.split()[-2:], ["MODELS", "MODEL-BYTES"])
        self.assertEqual(row.split()[-2:], ["1", "1.1kB"])

    def test_a_model_over_the_count_waits_until_another_is_removed(self):
        first, compiled_first = self.compiled(Small)
        second, compiled_second = self.compiled(Small)
        third, compiled_third = self.compiled(Small)
        for module, compiled in ((first, compiled_first), (second, compiled_second)):
            self.assertGreater(self.call(module, compiled, 4)["replays"], 0)
        statistics = self.call(third, compiled_third, 4)
        self.assertEqual(statistics["replays"], 0)
        self.assertIn("MAX_MODELS: models of the tenant's sessions on this worker: limit 2, "
                      "used 2, asked 1", statistics["refusal"])

        # Removing another model makes room, so that the refused model is
        # registered.
        del first, compiled_first, module, compiled
        gc.collect()
        statistics = self.call(third, compiled_third, ASKS_AGAIN + 1)
        self.assertGreater(statistics["replays"], 0)
        self.assertEqual(statistics["refusal"], "")
        eventually(lambda: self.use()["model_count"] == 2, "the worker's report")

    def test_a_training_step_counts_weights_gradients_and_momentum(self):
        torch.manual_seed(1)
        module = Small().to(djinn.device())
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)

        @djinn.compile
        def step(x):
            optimizer.zero_grad(set_to_none=False)
            loss = module(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        with torch.enable_grad():
            losses = [step(torch.ones(2, 16).to(djinn.device())).item() for _ in range(8)]
        self.assertGreater(losses[0], losses[-1])
        self.assertGreater(step.statistics()["replays"], 0, step.statistics())
        eventually(lambda: self.use()["model_count"] == 1, "the worker's report")
        # The model has its weights, their gradients, and their momentum.
        self.assertEqual(self.use()["model_bytes"], str(3 * Small.BYTES))
        self.assertIn("step", self.use()["models"][0]["name"])

    def test_a_new_budget_admits_a_refused_model(self):
        large, compiled = self.compiled(Large)
        self.assertIn("MODEL_BYTES", self.call(large, compiled, 3)["refusal"])
        self.cluster.configure(self.cluster.coordinator, TENANTS % (2, "1MB"))
        self.assertIn("dev     changed", self.cluster.said("reload"))

        # The worker receives it with the lease's next revision.
        def fits():
            other, compiled_other = self.compiled(Large)
            return self.call(other, compiled_other, 3)["replays"] > 0

        eventually(fits, "the new budget counts")
        statistics = self.call(large, compiled, ASKS_AGAIN)
        self.assertGreater(statistics["replays"], 0)
        self.assertEqual(statistics["refusal"], "")
