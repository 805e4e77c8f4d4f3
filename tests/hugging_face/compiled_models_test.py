"""Hugging Face's models under torch.compile(backend="djinn"): replayed on the third call, and equal."""

import copy

import torch
import transformers

import djinn
from tests.hugging_face import models
from tests.hugging_face.families import FAMILIES
from tests.python.remote_case import RemoteCase

transformers.logging.set_verbosity_error()


class CompiledModelsTest(RemoteCase):
    @torch.no_grad()
    def test_the_third_call_is_replayed_and_every_answer_is_the_models(self):
        for family in FAMILIES:
            with self.subTest(family.name):
                torch._dynamo.reset()
                local = models.build(family)
                remote = djinn.compile(copy.deepcopy(local).to(self.device))
                # The process and the device each draw from a generator of their own.
                torch.manual_seed(5)
                for call in range(1, 5):
                    if call == 4:
                        # Each parameter is read where it is.
                        for module in (local, remote):
                            next(module.parameters()).mul_(2)
                    inputs = {
                        name: value.roll(call, 0) if value.is_floating_point() else value
                        for name, value in family.inputs().items()
                    }
                    expected = models.tensors(local(**inputs))
                    before = remote.statistics()["replays"]
                    actual = models.tensors(
                        remote(**{name: value.to(self.device) for name, value in inputs.items()})
                    )
                    self.assertGreater(len(expected), 0)
                    self.assertEqual(len(actual), len(expected))
                    for one, other in zip(actual, expected):
                        self.assert_same(one, other)
                    if call == 3:
                        self.assertEqual(
                            remote.statistics()["replays"], before + 1, remote.statistics()
                        )
        self.assertEqual(djinn.root_errors(), [])
