"""Registered callables that read values of their arguments, such as masks."""

import torch
import transformers

import djinn
from tests.python.callables.registered_case import RegisteredCase
from tests.python.remote_case import in_threads


def masked(x, mask):
    if torch.all(mask == 1):
        return x * 2
    return x * mask


class ConditionsTest(RegisteredCase):
    def check(self, compiled, function, *args, times=1):
        """Compares the results with those of the function on the CPU."""
        for _ in range(times):
            with torch.no_grad():
                result = compiled(*[arg.to(self.device) for arg in args])
                self.assert_same(result, function(*args))

    def replays(self, compiled):
        return compiled.statistics()["replays"]

    def check_replayed(self, compiled, function, *args, times=1):
        before = self.replays(compiled)
        self.check(compiled, function, *args, times=times)
        self.assertEqual(self.replays(compiled), before + times, compiled.statistics())

    def check_not_replayed(self, compiled, function, *args, times=1):
        before = self.replays(compiled)
        self.check(compiled, function, *args, times=times)
        self.assertEqual(self.replays(compiled), before, compiled.statistics())

    # Calls that are replayed --------------------------------------------------

    def test_every_answer_has_its_captured_graph(self):
        compiled = djinn.compile(masked)
        whole = torch.ones(4).long()
        padded, other = torch.tensor([1, 1, 0, 0]), torch.tensor([0, 1, 1, 0])
        self.check(compiled, masked, torch.randn(4), whole, times=6)
        self.assertGreater(self.replays(compiled), 0, compiled.statistics())
        self.check(compiled, masked, torch.randn(4), padded, times=4)
        for mask in (whole, padded, other, whole, other):
            self.check_replayed(compiled, masked, torch.randn(4), mask)
        # Another size makes another call with the same conditions.
        self.check(compiled, masked, torch.randn(5), torch.ones(5).long(), times=5)
        self.check(compiled, masked, torch.randn(5), torch.zeros(5).long(), times=5)
        self.check_replayed(compiled, masked, torch.randn(5), torch.ones(5).long())
        self.check_replayed(compiled, masked, torch.randn(5), torch.zeros(5).long())

    def test_a_mask_that_changes_in_its_place(self):
        compiled = djinn.compile(masked)
        mask, x = torch.ones(4).long().to(self.device), torch.randn(4).to(self.device)
        for _ in range(8):
            self.assert_same(compiled(x, mask), x.cpu() * 2)
        for change in (lambda: mask[1].zero_(), lambda: mask.data.fill_(3), lambda: mask.fill_(1)):
            change()
            for _ in range(4):
                self.assert_same(compiled(x, mask), masked(x.cpu(), mask.cpu()))
        self.assertGreater(self.replays(compiled), 6, compiled.statistics())

    def test_questions_that_follow_from_answers(self):
        def function(x, steps):
            if (steps > 2).any():
                return x - int(steps.max())
            if steps[0] == 1 and not bool(steps[1:].sum() == 0):
                return x + 1
            return x * range(9)[steps[0]]

        compiled = djinn.compile(function)
        calls = [[0, 0, 0], [1, 0, 0], [1, 1, 0], [2, 1, 1], [0, 5, 0], [0, 0, 7]]
        for _ in range(8):
            for steps in calls:
                self.check(compiled, function, torch.randn(3), torch.tensor(steps))
        for steps in calls:
            self.check_replayed(compiled, function, torch.randn(3), torch.tensor(steps))

    def test_every_answer_has_its_captured_graph_in_inference_mode(self):
        with torch.inference_mode():
            self.test_every_answer_has_its_captured_graph()

    def test_an_encoder_with_its_mask(self):
        config = transformers.BertConfig(
            hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48, vocab_size=60
        )
        local = transformers.BertModel(config).eval()
        remote = transformers.BertModel(config).eval()
        remote.load_state_dict(local.state_dict())
        remote.to(self.device)

        def embed_with(model):
            def embed(ids, mask):
                tokens = model(input_ids=ids, attention_mask=mask).last_hidden_state
                weights = mask.unsqueeze(-1).expand(tokens.size()).float()
                pooled = (tokens * weights).sum(1) / weights.sum(1).clamp(min=1e-9)
                return torch.nn.functional.normalize(pooled, p=2, dim=1)

            return embed

        compiled, expected = djinn.compile(embed_with(remote)), embed_with(local)
        whole = torch.ones(3, 7).long()
        padded = [torch.arange(7).lt(torch.tensor([[7], [n], [2]])).long() for n in range(1, 7)]
        ids = lambda: torch.randint(0, 60, (3, 7))
        self.check(compiled, expected, ids(), whole, times=5)
        self.check(compiled, expected, ids(), padded[0], times=3)
        for mask in (whole, *padded, whole, whole):
            self.check_replayed(compiled, expected, ids(), mask)
        # Another mode makes another call, and so does a replaced module.
        remote.train()
        with torch.no_grad():
            compiled(ids().to(self.device), whole.to(self.device))
        remote.eval()
        self.check_replayed(compiled, expected, ids(), padded[2])
        for model in (local, remote):
            model.encoder.layer[0].attention.self.scaling = 0.5
        self.check(compiled, expected, ids(), padded[1], times=4)
        self.check(compiled, expected, ids(), whole, times=4)

    def test_decoders_that_ask_for_positions(self):
        kinds = (
            (transformers.GPT2Config(n_embd=32, n_layer=2, n_head=2, vocab_size=50), transformers.GPT2Model),
            (
                transformers.LlamaConfig(
                    hidden_size=32, num_hidden_layers=2, num_attention_heads=2,
                    num_key_value_heads=1, intermediate_size=48, vocab_size=50,
                ),
                transformers.LlamaModel,
            ),
        )
        for config, kind in kinds:
            local, remote = kind(config).eval(), kind(config).eval()
            remote.load_state_dict(local.state_dict())
            compiled = djinn.compile(remote.to(self.device))
            self.warm_decoder(compiled, local)
            with torch.no_grad():
                for mask in (torch.ones(2, 8).long(), torch.tensor([[0] * 3 + [1] * 5, [1] * 8])) * 5:
                    ids = torch.randint(0, 50, (2, 8))
                    result = compiled(ids.to(self.device), attention_mask=mask.to(self.device))
                    expected = local(ids, attention_mask=mask)
                    self.assert_same(result.last_hidden_state, expected.last_hidden_state)
            self.assertGreater(self.replays(compiled), 5, compiled.statistics())

    def test_decoders_in_inference_mode(self):
        with torch.inference_mode():
            self.test_decoders_that_ask_for_positions()

    def warm_decoder(self, compiled, local):
        with torch.no_grad():
            for use_cache in (False, True) * 8:
                ids = torch.randint(0, 50, (2, 8))
                result = compiled(ids.to(self.device), use_cache=use_cache)
                expected = local(ids, use_cache=use_cache)
                self.assert_same(result.last_hidden_state, expected.last_hidden_state)
        self.assertGreater(self.replays(compiled), 3, compiled.statistics())

    # Calls that are not replayed -------------------------------------------------

    def test_a_mask_that_is_written_before_it_is_read(self):
        def function(x, mask):
            mask.mul_(0)
            return x + 1 if mask.any() else x - 1

        def around(x, mask):
            mask.data.mul_(0)
            return x + 1 if mask.any() else x - 1

        def by_a_view(x, mask):
            mask[1:].zero_()
            return x + 1 if mask[1:].any() else x - 1

        def into(x, mask):
            torch.eq(mask, 3, out=mask[:])
            return x + 1 if mask.any() else x - 1

        def inside(x, mask):
            torch.nn.functional.relu6(mask.neg_(), inplace=True)
            return x + 1 if mask.any() else x - 1

        def in_a_list(x, mask):
            torch._foreach_zero_([mask])
            return x + 1 if mask.any() else x - 1

        for one in (function, around, by_a_view, into, inside, in_a_list):
            for mode in (torch.no_grad, torch.inference_mode):
                compiled = djinn.compile(one)
                with mode():
                    for _ in range(7):
                        x, mask = torch.randn(3), torch.ones(3).long()
                        result = compiled(x.to(self.device), mask.to(self.device))
                        self.assert_same(result, one(x, mask))
                self.assertEqual(self.replays(compiled), 0, one)
                self.assertIn("reads a value", compiled.statistics()["refusal"])

    def test_memory_that_is_given_twice(self):
        def function(x, mask, same):
            same.mul_(0)
            return x + 1 if mask.any() else x - 1

        compiled = djinn.compile(function)
        for alias in (lambda mask: mask.data, lambda mask: mask, lambda mask: mask.clone()):
            for _ in range(8):
                x, mask = torch.randn(3).to(self.device), torch.ones(3).long().to(self.device)
                here = mask.cpu()
                expected = function(x.cpu(), here, alias(here))
                self.assert_same(compiled(x, mask, alias(mask)), expected)

    def test_conditions_on_more_than_the_arguments_are_not_replayed(self):
        flag = torch.zeros(1).long().to(self.device)

        def function(x, mask):
            return x + 1 if (mask + flag).any() else x - 1

        compiled = djinn.compile(function)
        for value in (0, 0, 0, 0, 0, 1, 1, 1, 0):
            flag.fill_(value)
            x = torch.randn(3)
            result = compiled(x.to(self.device), torch.zeros(3).long().to(self.device))
            self.assert_same(result, x + 1 if value else x - 1)
        self.assertEqual(self.replays(compiled), 0)
        self.check_not_replayed(
            djinn.compile(lambda x: x * x.sum().item()), lambda x: x * x.sum().item(), torch.ones(2), times=6)

    def test_answers_that_are_too_many(self):
        def function(x, length):
            return x * length.item()

        compiled = djinn.compile(function)
        for _ in range(2):
            for length in range(20):
                self.check(compiled, function, torch.randn(2), torch.tensor(length), times=3)
        self.assertGreater(self.replays(compiled), 0)
        self.check_not_replayed(compiled, function, torch.randn(2), torch.tensor(50), times=5)
        self.assertIn("too many different", compiled.statistics()["refusal"])

    def test_a_call_that_fails(self):
        def function(x, mask):
            if mask.all():
                return x + 1
            if mask.any():
                raise ValueError("half a mask")
            return x - 1

        compiled = djinn.compile(function)
        half = torch.tensor([1, 0]).to(self.device)
        for _ in range(6):
            self.check(compiled, function, torch.randn(2), torch.ones(2).long())
            self.check(compiled, function, torch.randn(2), torch.zeros(2).long())
            with self.assertRaisesRegex(ValueError, "half"):
                compiled(torch.randn(2).to(self.device), half)
        self.check_replayed(compiled, function, torch.randn(2), torch.zeros(2).long())

    def test_modules_that_detect_tracing_are_not_replayed(self):
        layer = torch.nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval().to(self.device)

        def function(x, mask):
            return layer(x * 2 if mask.all() else x)

        compiled = djinn.compile(function)
        x, mask = torch.randn(1, 3, 8).to(self.device), torch.ones(3).long().to(self.device)
        with torch.no_grad():
            for _ in range(6):
                self.assert_same(compiled(x, mask), function(x, mask).cpu())
        self.assertEqual(self.replays(compiled), 0)
        self.assertIn("reads a value", compiled.statistics()["refusal"])

    def test_threads_with_masks_of_their_own(self):
        compiled = djinn.compile(masked)

        def work(seed):
            generator = torch.Generator().manual_seed(seed)
            for i in range(30):
                mask = torch.randint(0, 2, (4,), generator=generator) if i % 2 else torch.ones(4).long()
                self.check(compiled, masked, torch.randn(4, generator=generator), mask)

        in_threads(work, 3)
