"""djinn.compile(): calls that are given caches of transformers, and change them.

Everything is done to a local cache, too, by PyTorch itself: the bits must be the same.
"""

import copy
import random

import torch
import transformers
from transformers.cache_utils import DynamicLayer

import djinn
from tests.python.callables.registered_case import RegisteredCase

VOCABULARY = 60
LENGTH = 24


def configure(**changes):
    return transformers.GPT2Config(
        n_embd=32,
        n_layer=2,
        n_head=2,
        vocab_size=VOCABULARY,
        n_positions=64,
        bos_token_id=None,
        eos_token_id=None,
        **changes,
    )


class Caches:
    """Holds a local cache, and an equal one on the device."""

    def __init__(self, make):
        self.local, self.remote = make(), make()

    def each(self, change):
        change(self.local)
        change(self.remote)

    def layers(self):
        return zip(self.local.layers, self.remote.layers)


class CachesAsArgumentsTest(RegisteredCase):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        torch.manual_seed(3)
        cls.config = configure()
        cls.local = transformers.GPT2LMHeadModel(cls.config).eval()
        cls.remote = transformers.GPT2LMHeadModel(cls.config).eval()
        cls.remote.load_state_dict(cls.local.state_dict())
        cls.remote.to(cls.device)

    def setUp(self):
        torch.manual_seed(5)
        self.enterContext(torch.no_grad())
        self.compiled = self.compile_model()

    def compile_model(self):
        # A function is compared and captured as a whole. A module would be traced, and
        # transformers' code chooses other operators while it is traced.
        remote = self.remote
        return djinn.compile(lambda *args, **options: remote(*args, **options))

    def dynamic(self):
        return Caches(lambda: transformers.DynamicCache(config=self.config))

    def static(self):
        return Caches(
            lambda: transformers.StaticCache(config=self.config, max_cache_len=LENGTH)
        )

    def ids(self, length=1, batch=1):
        return torch.randint(0, VOCABULARY, (batch, length))

    def replays(self):
        return self.compiled.statistics()["replays"]

    def assert_same_caches(self, caches):
        self.assertIs(type(caches.remote), type(caches.local))
        self.assertEqual(len(caches.remote.layers), len(caches.local.layers))
        for local, remote in caches.layers():
            self.assertIs(type(remote), type(local))
            self.assertEqual(list(vars(remote)), list(vars(local)))
            for name, theirs in vars(local).items():
                ours = getattr(remote, name)
                if isinstance(theirs, torch.Tensor):
                    torch.testing.assert_close(ours.cpu(), theirs, rtol=0, atol=0)
                    self.assertEqual(ours.stride(), theirs.stride())
                    self.assertEqual(vars(ours), vars(theirs))
                elif name != "device":
                    self.assertEqual(ours, theirs)
                    self.assertIs(type(ours), type(theirs))

    def step(self, caches, ids=None, **options):
        """A call with either cache; returns the logits."""
        if ids is None:
            ids = self.ids()
        places = caches.remote, caches.remote.layers, list(caches.remote.layers)
        theirs = self.local(ids, past_key_values=caches.local, use_cache=True, **options)
        ours = self.compiled(
            ids.to(self.device), past_key_values=caches.remote, use_cache=True, **options
        )
        self.assertIs(type(ours), type(theirs))
        self.assert_same(ours.logits, theirs.logits)
        self.assertIs(ours.past_key_values, caches.remote)
        # The objects themselves were changed, not replaced.
        self.assertIs(caches.remote.layers, places[1])
        for layer, before in zip(caches.remote.layers, places[2]):
            self.assertIs(layer, before)
        self.assert_same_caches(caches)
        return theirs.logits

    def replayed_step(self, caches, ids=None, **options):
        before = self.replays()
        logits = self.step(caches, ids, **options)
        self.assertEqual(self.replays(), before + 1, self.compiled.statistics())
        return logits

    def generate(self, caches, prompt=5, steps=6, batch=1):
        logits = self.step(caches, self.ids(prompt, batch))
        for _ in range(steps):
            logits = self.step(caches, logits[:, -1:].argmax(-1))

    def warm(self, make, times=3):
        for _ in range(times):
            self.generate(make())

    # Decoding ----------------------------------------------------------------------

    def test_a_static_cache_is_written_where_it_is(self):
        self.warm(self.static)
        caches = self.static()
        self.step(caches, self.ids(5))
        keys = caches.remote.layers[0].keys
        for _ in range(LENGTH - 5):
            self.replayed_step(caches)
        self.assertIs(caches.remote.layers[0].keys, keys)

    def test_a_dynamic_cache_grows(self):
        self.warm(self.dynamic)
        caches = self.dynamic()
        self.replayed_step(caches, self.ids(5))
        for _ in range(6):
            self.replayed_step(caches)
        # This length did not occur before.
        before = self.replays()
        self.step(caches)
        self.assertEqual(self.replays(), before)

    def test_more_lengths_than_are_captured_at_once(self):
        """The replays so far bound the captures of new lengths."""

        def function(cache, x):
            return cache.update(x, x, 0)[0].sum(-1)

        compiled = djinn.compile(function)
        replays = []
        for times in range(9):
            before = compiled.statistics()["replays"]
            caches = self.filled()
            for _ in range(150):
                self.compare(compiled, function, [caches], check_caches=False)
            self.assert_same_caches(caches)
            replays.append(compiled.statistics()["replays"] - before)
        self.assertEqual(replays[:2], [0, 0])
        # All calls are replayed, except the calls that were not examined
        # because many earlier calls had matched none.
        self.assertAlmostEqual(replays[2], 64, delta=8)
        self.assertEqual(replays[-1], 150, replays)

    def test_layers_that_the_call_adds(self):
        for times in range(4):
            caches = Caches(transformers.DynamicCache)
            self.assertEqual(len(caches.remote.layers), 0)
            self.step(caches, self.ids(4))
            self.step(caches)
        self.assertGreater(self.replays(), 2, self.compiled.statistics())

    def test_a_prompt_in_a_static_cache_that_is_there_already(self):
        def make(device):
            cache = transformers.StaticCache(config=self.config, max_cache_len=LENGTH)
            cache.early_initialization(1, 2, 16, torch.float32, device)
            return cache

        for times in range(5):
            caches = Caches(transformers.DynamicCache)
            caches.local, caches.remote = make("cpu"), make(self.device)
            self.step(caches, self.ids(6))
            # In the second call the prompt is a continuation. The call
            # therefore reads the prompt's start position.
            self.step(caches, self.ids(6))
        self.assertGreater(self.replays(), 3, self.compiled.statistics())

    def test_with_masks(self):
        mask = torch.ones(1, LENGTH, dtype=torch.int64)
        for make in (self.static, self.dynamic):
            for times in range(4):
                caches = make()
                ids, length = self.ids(5), 5
                while length < 9:
                    masks = [mask[:, :length], mask[:, :length].to(self.device)]
                    theirs = self.local(
                        ids, attention_mask=masks[0], past_key_values=caches.local, use_cache=True
                    )
                    ours = self.compiled(
                        ids.to(self.device),
                        attention_mask=masks[1],
                        past_key_values=caches.remote,
                        use_cache=True,
                    )
                    self.assert_same(ours.logits, theirs.logits)
                    self.assert_same_caches(caches)
                    ids, length = self.ids(), length + 1
                mask[0, times] = 0

    # Changes of caches between calls -------------------------------------------------

    def test_calls_are_right_after_random_changes_to_the_cache(self):
        for make in (self.dynamic, self.static):
            self.compiled = self.compile_model()
            for seed in range(6):
                self.do_whatever(make, random.Random(seed))
            self.assertGreater(self.replays(), 20, self.compiled.statistics())

    def do_whatever(self, make, chosen):
        both = [make(), make()]
        kept = []
        for caches in both:
            self.step(caches, self.ids(chosen.choice((3, 4)), 2))
        is_static = isinstance(both[0].local, transformers.StaticCache)
        for _ in range(30):
            caches = chosen.choice(both)
            layer = chosen.randrange(2)
            if int(caches.local.get_seq_length()) >= 12:
                both[both.index(caches)] = caches = make()
                self.step(caches, self.ids(chosen.choice((3, 4)), 2))
            what = chosen.choice(
                "step step step step two write replace alias reorder crop reset dtype swap".split()
            )
            if what == "step":
                self.step(caches, self.ids(1, 2))
            elif what == "two":
                self.step(caches, self.ids(2, 2))
            elif what == "write":
                caches.each(lambda cache: cache.layers[layer].values[:, :, 1:].mul_(0.5))
            elif what == "replace":
                caches.each(
                    lambda cache: setattr(cache.layers[layer], "keys", -cache.layers[layer].keys)
                )
            elif what == "alias":
                # One view is kept unchanged, and one is written through.
                kept.append([one.layers[layer].keys[:, 1] for one in (caches.local, caches.remote)])
                for tensor in kept[-1]:
                    tensor[:, 0].add_(1)
            elif what == "reorder":
                beams = torch.tensor([1, chosen.choice((0, 1))])
                caches.local.reorder_cache(beams)
                caches.remote.reorder_cache(beams.to(self.device))
            elif what == "crop" and not is_static:
                caches.each(lambda cache: cache.crop(-1))
            elif what == "reset" and is_static:
                caches.each(lambda cache: cache.reset())
            elif what == "dtype":
                caches.each(
                    lambda cache: setattr(
                        cache.layers[layer], "values", cache.layers[layer].values.double().float()
                    )
                )
            elif what == "swap":
                # Layers of one cache also belong to another one.
                for name in ("local", "remote"):
                    layers = [getattr(one, name).layers for one in both]
                    layers[0][layer], layers[1][layer] = layers[1][layer], layers[0][layer]
                lengths = [{int(x.get_seq_length()) for x in one.local.layers} for one in both]
                if max(map(len, lengths)) > 1:
                    for name in ("local", "remote"):
                        layers = [getattr(one, name).layers for one in both]
                        layers[0][layer], layers[1][layer] = layers[1][layer], layers[0][layer]
        for local, remote in kept:
            torch.testing.assert_close(remote.cpu(), local, rtol=0, atol=0)
        for caches in both:
            self.assert_same_caches(caches)

    def test_an_old_tensor_of_a_cache_stays_what_it_was(self):
        self.warm(self.dynamic)
        caches = self.dynamic()
        self.replayed_step(caches, self.ids(5))
        kept = [(layer.keys, theirs.keys.clone()) for theirs, layer in caches.layers()]
        self.replayed_step(caches)
        self.replayed_step(caches)
        for ours, theirs in kept:
            self.assert_same(ours, theirs)

    def test_beams(self):
        self.warm(self.dynamic)
        for times in range(3):
            caches = self.dynamic()
            self.step(caches, self.ids(4, 3))
            for order in ([2, 0, 0], [1, 1, 2], [0, 1, 2]):
                beams = torch.tensor(order)
                caches.local.reorder_cache(beams)
                caches.remote.reorder_cache(beams.to(self.device))
                self.step(caches, self.ids(1, 3))
        self.assertGreater(self.replays(), 2)

    def test_a_copy_goes_on_by_itself(self):
        # Copying an object makes Python write a note into the object's class,
        # which changes the class.
        copy.deepcopy(self.filled().local)
        self.warm(self.dynamic)
        caches = self.dynamic()
        self.replayed_step(caches, self.ids(5))
        copies = self.dynamic()
        copies.local, copies.remote = copy.deepcopy(caches.local), copy.deepcopy(caches.remote)
        self.replayed_step(copies)
        self.assert_same_caches(caches)
        self.replayed_step(caches)
        self.assert_same_caches(copies)

    # Arguments of one call -----------------------------------------------------------

    def compare(self, compiled, function, caches, check_caches=True):
        """A call with caches and a tensor has the same result and effects on either side."""
        x = torch.randn(1, 2, 1, 4)
        theirs = function(*[one.local for one in caches], x)
        self.assert_same(compiled(*[one.remote for one in caches], x.to(self.device)), theirs)
        for one in caches if check_caches else ():
            self.assert_same_caches(one)

    def check(self, function, makes, least):
        """Compares calls with what each of `makes` returns; more than `least` are replayed."""
        compiled = djinn.compile(function)
        for make in makes:
            self.compare(compiled, function, make())
        self.assertGreater(compiled.statistics()["replays"], least, compiled.statistics())

    def filled(self, length=3, dtype=torch.float32):
        state = [torch.randn(1, 2, length, 4).to(dtype) for _ in range(4)]
        caches = Caches(transformers.DynamicCache)
        for name, device in (("local", "cpu"), ("remote", self.device)):
            cache = getattr(caches, name)
            for layer in range(2):
                cache.update(*[x.to(device) for x in state[2 * layer : 2 * layer + 2]], layer)
        return caches

    def test_the_same_cache_twice_and_two_alike(self):
        def function(one, other, x):
            keys, values = one.update(x, x + 1, 0)
            keys, values = other.update(x * 2, keys[:, :, -1:], 0)
            return keys.sum(-1) + values.mean()

        def twice():
            caches = self.filled()
            return caches, caches

        def two():
            return self.filled(), self.filled()

        self.check(function, (two, two, two, twice, two, twice, twice, twice, two), 3)

    def test_caches_that_share_layers_or_tensors(self):
        def function(one, other, x):
            one.layers[0].keys.add_(1)
            keys, _ = other.update(x, x, 0)
            return keys + one.layers[0].keys.sum()

        def apart():
            return self.filled(), self.filled()

        def joined(share):
            def make():
                both = apart()
                share(both[0].local, both[1].local)
                share(both[0].remote, both[1].remote)
                return both

            return make

        def one_layer(one, other):
            other.layers[0] = one.layers[0]

        def one_tensor(one, other):
            other.layers[0].keys = one.layers[0].keys

        def one_list(one, other):
            other.layers = one.layers

        makes = (apart, *map(joined, (one_layer, one_tensor, one_list)))
        self.check(function, makes * 2 + makes[::-1] * 2, 6)

    def test_other_dtypes_and_lengths(self):
        def function(cache, x):
            dtype = cache.layers[0].keys.dtype
            keys, values = cache.update(x.to(dtype), x.to(dtype), 0)
            return (keys * values).float()

        makes = [lambda length=length, dtype=dtype: [self.filled(length, dtype)]
                 for length in (3, 4, 7) for dtype in (torch.float32, torch.float64)]
        self.check(function, makes * 3 + makes[::-1], 6)

    def test_plain_values_in_caches_are_part_of_the_call(self):
        def function(cache, x):
            layer = cache.layers[0]
            scale = getattr(layer, "scale", 1)
            layer.scale = scale + 1 if scale < 3 else 1.0
            layer.found = [scale, {"x": x * 2}]
            return x * scale

        compiled = djinn.compile(function)
        caches = self.filled()
        for _ in range(16):
            x = torch.randn(3)
            self.assert_same(
                compiled(caches.remote, x.to(self.device)), function(caches.local, x)
            )
            ours, theirs = caches.remote.layers[0], caches.local.layers[0]
            self.assertEqual((ours.scale, type(ours.scale)), (theirs.scale, type(theirs.scale)))
            self.assertEqual(ours.found[0], theirs.found[0])
            self.assert_same(ours.found[1].pop("x"), theirs.found[1].pop("x"))
        self.assertGreater(compiled.statistics()["replays"], 0, compiled.statistics())

    def test_contents_that_go_and_come_in_another_order(self):
        def function(cache, x):
            layer = cache.layers[0]
            layer.values, layer.keys = layer.keys, layer.values
            keys = layer.keys
            del layer.keys
            layer.keys = keys
            cache.layers[:] = cache.layers[::-1]
            return x + layer.values.sum()

        self.check(function, 4 * [lambda: [self.filled()]], 0)

    def test_a_result_that_leads_to_the_cache(self):
        def function(cache, x):
            cache.update(x, x, 1)
            return {"layers": cache.layers, "layer": cache.layers[1], "keys": cache.layers[1].keys}

        compiled = djinn.compile(function)
        for _ in range(4):
            caches = self.filled()
            result = compiled(caches.remote, torch.randn(1, 2, 1, 4).to(self.device))
            self.assertIs(result["layers"], caches.remote.layers)
            self.assertIs(result["layer"], caches.remote.layers[1])
            self.assertIs(result["keys"], caches.remote.layers[1].keys)
        self.assertGreater(compiled.statistics()["replays"], 0, compiled.statistics())

    def test_calls_are_right_after_others_raised_half_way(self):
        def function(cache, x, fails):
            keys, _ = cache.update(x, x, 0)
            if fails:
                raise ValueError("half way")
            cache.update(x, x, 1)
            return keys

        compiled = djinn.compile(function)
        for fails in (False, False, False, True, True, False, True, False):
            caches = self.filled()
            x = torch.randn(1, 2, 1, 4)
            if fails:
                with self.assertRaises(ValueError):
                    function(caches.local, x, fails)
                with self.assertRaises(ValueError):
                    compiled(caches.remote, x.to(self.device), fails)
            else:
                self.assert_same(
                    compiled(caches.remote, x.to(self.device), fails),
                    function(caches.local, x, fails),
                )
            self.assert_same_caches(caches)
        self.assertGreater(compiled.statistics()["replays"], 1, compiled.statistics())

    def test_a_call_that_fails_leaves_the_cache_as_it_was(self):
        def function(cache, x):
            return cache.update(x, x, 0)[0]

        compiled = djinn.compile(function)
        for _ in range(3):
            compiled(self.filled().remote, torch.randn(1, 2, 1, 4).to(self.device))
        caches = self.filled()
        before = dict(vars(caches.remote.layers[0]))
        with self.assertRaises(RuntimeError):
            compiled(caches.remote, torch.randn(1, 3, 1, 4).to(self.device))
        self.assertEqual(list(before.values()), list(vars(caches.remote.layers[0]).values()))

    # Changes outside of the cache ----------------------------------------------------

    def test_methods_that_are_replaced(self):
        def update(layer, keys, values, *args, **kwargs):
            if not layer.is_initialized:
                layer.lazy_initialization(keys, values)
            layer.keys = torch.cat([layer.keys, keys * 2], -2)
            layer.values = torch.cat([layer.values, values * 3], -2)
            return layer.keys, layer.values

        self.warm(self.dynamic)
        whole = DynamicLayer.update
        self.addCleanup(setattr, DynamicLayer, "update", whole)
        DynamicLayer.update = update
        for _ in range(3):
            self.generate(self.dynamic())
        DynamicLayer.update = whole
        for _ in range(2):
            self.generate(self.dynamic())

    def test_a_call_that_changes_a_class(self):
        def function(cache, x):
            type(cache).was_given = True
            return x + cache.layers[0].keys.sum()

        self.addCleanup(delattr, transformers.DynamicCache, "was_given")
        compiled = djinn.compile(function)
        for _ in range(6):
            transformers.DynamicCache.was_given = False
            compiled(self.filled().remote, torch.randn(3).to(self.device))
            self.assertTrue(transformers.DynamicCache.was_given)

    def test_a_cache_that_the_function_refers_to(self):
        mine = self.filled()

        def of(own):
            def function(cache, x):
                keys, _ = cache.update(x, x, 0)
                return keys * own.layers[0].keys.shape[2] + own.layers[0].values.sum()

            return function

        local, compiled = of(mine.local), djinn.compile(of(mine.remote))

        for _ in range(4):
            self.compare(compiled, local, [self.filled()])
        self.assertGreater(compiled.statistics()["replays"], 0, compiled.statistics())
        # Now the two are the same object, or share a layer.
        self.compare(compiled, local, [mine])
        self.assertIn("that the function refers to", compiled.statistics()["refusal"])
        sharing = self.filled()
        sharing.local.layers[0] = mine.local.layers[0]
        sharing.remote.layers[0] = mine.remote.layers[0]
        self.compare(compiled, local, [sharing])
        self.compare(compiled, local, [self.filled(4)])

    # Refusals ------------------------------------------------------------------------

    def test_unsupported_caches_are_refused_with_the_reason(self):
        def function(cache, x, *rest):
            return x + cache.layers[0].keys.sum()

        class Mine(transformers.DynamicCache):
            pass

        x = torch.randn(3).to(self.device)
        self.assertIn("a Mine", self.refusal(lambda cache, x: (cache, x + 1)[1], Mine(), x))
        cache = self.filled().remote
        self.assertIn("part of a cache", self.refusal(function, cache, x, cache.layers))
        cache.layers[0].update = lambda *args: None
        self.assertIn("holds a function", self.refusal(function, cache, x))
        cache = self.filled().remote
        cache.layers[0].keys = cache.layers[0].keys.cpu()
        self.assertIn(
            "a tensor of this process", self.refusal(lambda cache, x: x + 1, cache, x)
        )
        cache = self.filled().remote
        cache.layers[0].keys.hook = print
        self.assertIn("attributes", self.refusal(function, cache, x))
