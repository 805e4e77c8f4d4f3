"""Hugging Face's models as they are: a device moved to, and the same outputs."""

import torch
import transformers

import djinn
from tests.hugging_face import models
from tests.python.remote_case import RemoteCase

transformers.logging.set_verbosity_error()

MODES = (torch.no_grad, torch.inference_mode)

# Methods of generation, each from the same seed.
STRATEGIES = {
    "greedy": {"do_sample": False},
    "sampling": {"do_sample": True, "top_k": 20, "temperature": 0.9},
    "beams": {"do_sample": False, "num_beams": 3},
}


def _to(inputs, device):
    return {name: value.to(device) for name, value in inputs.items()}


class ModelsTest(RemoteCase):
    def test_forward(self):
        for family in models.FAMILIES:
            local = models.build(family)
            remote = models.build(family).to(self.device)
            for mode in MODES:
                with self.subTest(family.name, mode=mode.__name__), mode():
                    expected = models.tensors(local(**family.inputs()))
                    actual = models.tensors(remote(**_to(family.inputs(), self.device)))
                    self.assertGreater(len(expected), 0)
                    self.assertEqual(len(actual), len(expected))
                    for one, other in zip(actual, expected):
                        self.assert_same(one, other)
        self.assertEqual(djinn.root_errors(), [])

    def test_generate(self):
        for family in models.FAMILIES:
            if family.prompt is None:
                continue
            local = models.build(family)
            remote = models.build(family).to(self.device)
            for mode in MODES:
                for strategy, options in STRATEGIES.items():
                    with self.subTest(family.name, mode=mode.__name__, strategy=strategy):
                        expected = self._generate(local, family, "cpu", mode, options)
                        actual = self._generate(remote, family, self.device, mode, options)
                        self.assertEqual(actual.tolist(), expected.tolist())

    def test_generating_waits_once_a_token(self):
        family = next(f for f in models.FAMILIES if f.name == "llama")
        model = models.build(family).to(self.device)
        # With padding, transformers reads one more value per token, and GPT-2's
        # own code reads another one.
        ids = family.prompt()["input_ids"].to(self.device)
        reads = []
        for tokens in (8, 16):
            before = djinn.statistics()["reads"]
            with torch.no_grad():
                out = model.generate(ids, do_sample=False, max_new_tokens=tokens,
                                     eos_token_id=None)
            self.assertEqual(out.shape[1], ids.shape[1] + tokens)
            reads.append(djinn.statistics()["reads"] - before)
        # For each token, generate() reads whether all sequences have ended. It
        # makes all other reads once, before the first token.
        self.assertEqual(reads[1] - reads[0], 8)
        print(f"round trips: {reads[0] - 8} for a call, and 1 a token")

    def test_no_operator_ran_synchronously(self):
        # Uses the captures of the tests before it, and a forward of its own.
        family = models.FAMILIES[0]
        with torch.no_grad():
            models.build(family).to(self.device)(**_to(family.inputs(), self.device))
        self.assertEqual(djinn.synchronous_calls(), {})

    def _generate(self, model, family, device, mode, options):
        prompt = _to(family.prompt(), device)
        torch.manual_seed(7)
        with mode():
            return model.generate(**prompt, **{"max_new_tokens": 10, **options})
