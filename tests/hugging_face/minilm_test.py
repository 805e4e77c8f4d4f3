"""A model with real weights, read from its files onto the device."""

import os
import pathlib

import torch
import transformers

from tests.python.remote_case import RemoteCase

transformers.logging.set_verbosity_error()

SENTENCES = [
    "A program keeps its code and says where it runs.",
    "The weather is fine today.",
    "Software that stays the same may run elsewhere.",
]


def model_folder():
    folder = pathlib.Path(os.environ["TEST_SRCDIR"]) / "minilm"
    return next(folder.glob("**/model.safetensors")).parent


class MiniLmTest(RemoteCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        folder = model_folder()
        cls.tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        cls.local = transformers.AutoModel.from_pretrained(folder).eval()

    def _embed(self, model, device):
        batch = self.tokenizer(SENTENCES, padding=True, return_tensors="pt").to(device)
        hidden = model(**batch).last_hidden_state
        mask = batch["attention_mask"].unsqueeze(-1)
        return torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1))

    def test_embeddings(self):
        remote = transformers.AutoModel.from_pretrained(model_folder()).eval()
        remote.to(self.device)
        for mode in (torch.no_grad, torch.inference_mode):
            with self.subTest(mode.__name__), mode():
                expected = self._embed(self.local, "cpu")
                self.assert_same(self._embed(remote, self.device), expected)
        similarity = expected @ expected.T
        self.assertGreater(similarity[0, 2], similarity[0, 1])
