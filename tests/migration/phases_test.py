"""A prompt is read on one worker and its answer decoded on another, by itself."""

import time
import unittest

import torch
import transformers

import djinn
from tests.operating.cluster import PATIENCE, start_cluster

TOKENS = 40
# Before this token, the coordinator has seen one step of decoding. From this
# token on, decoding runs on the other worker.
MOVED_BY = 12


class PhasesTest(unittest.TestCase):
    def setUp(self):
        self.cluster = start_cluster(
            self, ("reads", "decodes"), coordinator_extra="automatic_migration: true\n",
            extra_of={"reads": "phases: [llm_prefill]\n",
                      "decodes": "phases: [llm_decode]\n"})
        djinn.connect(self.cluster.coordinator, token_file=self.cluster.path("dev.token"),
                      insecure=True)
        self.addCleanup(djinn.close)
        self.addCleanup(torch.set_num_threads, torch.get_num_threads())
        torch.set_num_threads(1)

    def until_it_decodes_there(self):
        end = time.monotonic() + PATIENCE
        while djinn.where_is().worker_id != "decodes":
            self.assertLess(time.monotonic(), end, "it does not go")
            time.sleep(0.01)

    def test_the_cache_moves_once(self):
        torch.manual_seed(0)
        config = transformers.LlamaConfig(
            vocab_size=512, hidden_size=128, intermediate_size=256, num_hidden_layers=3,
            num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256)
        model = transformers.LlamaForCausalLM(config).eval()
        prompt = torch.randint(0, 512, (1, 96))
        expected = self.generate(model, prompt, lambda count: None)

        sent = {}

        def hook(count):
            if count == MOVED_BY:
                self.until_it_decodes_there()
            sent[count] = djinn.statistics()["bytes_up"]

        # The coordinator knows nothing of the program yet and could place it on either
        # worker. The cordon excludes `decodes`.
        self.cluster.said("cordon", "worker", "decodes")
        remote = model.to(djinn.device())
        self.assertEqual(djinn.where_is().worker_id, "reads")
        self.cluster.said("uncordon", "worker", "decodes")
        tokens = self.generate(remote, prompt.to(djinn.device()), hook)
        self.assertEqual(tokens, expected)
        session = self.cluster.said("get", "sessions").splitlines()[1].split()[0]
        text = self.cluster.said("explain", "session", session)
        self.assertIn("by phase, from reads to decodes", text)
        # `get` shows all of its migrations; `explain` shows the last one.
        moves = self.cluster.json("get", "sessions", session)["migrations"]
        self.assertEqual(
            [(move["reason"], move["state"], move["from_worker_id"], move["to_worker_id"])
             for move in moves], [("phase", "DONE", "reads", "decodes")])
        # The keys and values of every layer move once, in addition to the
        # weights.
        token_bytes = 3 * 2 * 2 * 32 * 4
        cache_bytes = token_bytes * prompt.shape[1]
        weight_bytes = sum(weight.nbytes for weight in model.parameters())
        moved = int(moves[0]["moved_bytes"]) + int(moves[0]["held_bytes"]) - weight_bytes
        self.assertGreaterEqual(moved, cache_bytes)
        self.assertLess(moved, 2 * cache_bytes)
        # The cache does not pass through the client. After the first token, the
        # client sends only positions, and graphs that the other worker does not
        # know.
        self.assertLess(sent[TOKENS] - sent[1], cache_bytes)
        self.assertEqual(djinn.root_errors(), [])

    @staticmethod
    def generate(model, prompt, hook):
        tokens = []

        def note(input_ids, scores):
            tokens.append(int(scores.argmax()))
            hook(len(tokens))
            return scores

        with torch.no_grad():
            model.generate(
                prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=TOKENS,
                min_new_tokens=TOKENS, do_sample=False, logits_processor=[note])
        return tokens
