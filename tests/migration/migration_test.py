"""Models whose worker is drained in their midst: tokens and losses are the local ones."""

import subprocess
import time
import unittest

import torch
import transformers

import djinn

DJINNCTL = "coordinator/ctl/djinnctl"
PATIENCE = 60  # seconds


class MigrationTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        torch.set_num_threads(1)

    def setUp(self):
        self.cluster = djinn.local(workers=2, worker_threads=1)
        self.enterContext(self.cluster)
        self.device = djinn.device()

    def control(self, *words):
        done = subprocess.run(
            [DJINNCTL, f"--coordinator={self.cluster.coordinator}",
             f"--token_file={self.cluster.admin_token_file}", *words],
            check=True, capture_output=True, text=True)
        return done.stdout

    def drain(self):
        """Returns when the device is at the other worker; a program need not wait."""
        worker = djinn.where_is().worker_id
        self.control("drain", "worker", worker)
        end = time.monotonic() + PATIENCE
        while djinn.where_is().worker_id == worker:
            self.assertLess(time.monotonic(), end, "it does not go")
            time.sleep(0.01)

    def assert_moved(self):
        """The coordinator's word for it."""
        session = self.control("get", "sessions").splitlines()[1].split()[0]
        text = self.control("explain", "session", session)
        self.assertIn("by drain, from worker-", text)
        self.assertIn("storages, ", text)

    def test_a_decoder_goes_on_in_the_middle_of_a_sentence(self):
        torch.manual_seed(0)
        config = transformers.LlamaConfig(
            vocab_size=512, hidden_size=128, intermediate_size=256, num_hidden_layers=3,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128)
        model = transformers.LlamaForCausalLM(config).eval()
        prompt = torch.randint(0, 512, (1, 12))

        def generate(model, prompt, hook):
            tokens = []

            def note(input_ids, scores):
                tokens.append(int(scores.argmax()))
                hook(len(tokens))
                return scores

            with torch.no_grad():
                model.generate(
                    prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=24,
                    min_new_tokens=24, do_sample=False, logits_processor=[note])
            return tokens

        expected = generate(model, prompt, lambda count: None)
        remote = model.to(self.device)
        tokens = generate(
            remote, prompt.to(self.device),
            lambda count: self.drain() if count == 8 else None)
        self.assertEqual(tokens, expected)
        self.assert_moved()

    def test_training_goes_on_between_two_steps(self):
        def train(device, steps, hook):
            torch.manual_seed(1)
            model = torch.nn.Sequential(
                torch.nn.Linear(64, 512), torch.nn.GELU(), torch.nn.Dropout(0.1),
                torch.nn.Linear(512, 10))
            data = torch.randn(32, 64)
            labels = torch.randint(0, 10, (32,))
            model, data, labels = model.to(device), data.to(device), labels.to(device)
            optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
            # The generator that dropout draws from, on any worker.
            torch.manual_seed(2)
            losses = []
            for step in range(steps):
                hook(step)
                optimizer.zero_grad()
                loss = torch.nn.functional.cross_entropy(model(data), labels)
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
            return losses, model[0].weight.detach().cpu()

        expected, weight = train("cpu", 30, lambda step: None)
        losses, remote_weight = train(
            self.device, 30, lambda step: self.drain() if step == 13 else None)
        self.assertEqual(losses, expected)
        self.assertTrue(torch.equal(remote_weight, weight))
        self.assert_moved()
