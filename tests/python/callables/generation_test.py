"""Generation of transformers whose steps transformers itself compiles."""

import copy

import torch
import transformers

from tests.python.callables.registered_case import RegisteredCase


class GenerationTest(RegisteredCase):
    def test_a_compile_config_means_the_backend_of_the_device(self):
        config = transformers.LlamaConfig(
            vocab_size=32, hidden_size=16, intermediate_size=32, num_hidden_layers=1,
            num_attention_heads=2, num_key_value_heads=2, bos_token_id=0, eos_token_id=1)
        local = transformers.LlamaForCausalLM(config).eval()
        remote = copy.deepcopy(local).to(self.device)
        options = {
            "max_new_tokens": 8, "min_new_tokens": 8, "do_sample": False,
            "cache_implementation": "static",
        }
        prompt = torch.tensor([[2, 3, 4]])
        expected = local.generate(prompt, **options)
        there = prompt.to(self.device)
        self.assert_same(remote.generate(there, **options), expected)
        self.assertFalse(hasattr(remote, "_compiled_call"))
        for chosen in (
            transformers.CompileConfig(),
            transformers.CompileConfig(backend="djinn", mode="max-autotune"),
        ):
            given = copy.copy(chosen)
            for _ in range(3):
                self.assert_same(
                    remote.generate(there, compile_config=chosen, **options), expected)
            self.assertEqual(remote._last_compile_config.backend, "djinn")
            self.assertEqual(chosen, given)


if __name__ == "__main__":
    import unittest

    unittest.main()
