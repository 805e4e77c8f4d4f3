"""Higher order operators of PyTorch's, in functions that are registered."""

import warnings

import torch
import torch.utils.checkpoint
import transformers
from torch.nn.attention import flex_attention

import djinn
from tests.python.callables.registered_case import RegisteredCase
from tests.python.remote_case import RemoteCase


class Sine(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x.sin()

    @staticmethod
    def setup_context(context, inputs, output):
        context.save_for_backward(*inputs)

    @staticmethod
    def backward(context, gradient):
        return gradient * context.saved_tensors[0].cos()


def gradient_of_sine(x):
    return torch.func.grad(lambda y: Sine.apply(y).sum())(x)


def chosen(x, mask):
    return torch.cond(mask.sum() > 0, lambda y: y.sin(), lambda y: y.cos(), (x,))


def chosen_after_a_read(x, mask):
    if mask.all():
        x = x + 1
    return chosen(x, mask)


def repeated(x, mask):
    more = torch._higher_order_ops.while_loop
    return more(lambda y: y.sum() < 9, lambda y: (y + 1,), (x * mask,))[0]


def mapped(x, mask):
    return torch._higher_order_ops.map(lambda y: y * 2, x * mask)


class Module(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


class HigherOrderTest(RegisteredCase):
    def setUp(self):
        super().setUp()
        x, mask = torch.arange(3.0), torch.tensor([1, 1, 0])
        self.functions = {
            gradient_of_sine: (x,),
            chosen: (x, mask),
            chosen_after_a_read: (x, mask),
            repeated: (x, mask),
            mapped: (x, mask),
        }

    def check(self, called, function, args):
        expected = function(*args)
        for _ in range(7):
            remote = [arg.to(self.device) for arg in args]
            torch.testing.assert_close(called(*remote).cpu(), expected)

    @torch.no_grad()
    def test_a_registered_function_returns_the_cpus_values(self):
        for function, args in self.functions.items():
            with self.subTest(function.__name__):
                self.check(djinn.compile(function), function, args)

    @torch.no_grad()
    def test_a_module_registered_by_itself_returns_the_cpus_values(self):
        self.addCleanup(djinn.set_automatic_registration, False)
        djinn.set_automatic_registration(True)
        for function, args in self.functions.items():
            with self.subTest(function.__name__):
                self.check(Module(function), function, args)


    @torch.no_grad()
    def test_under_autocast(self):
        function = lambda x, mask: torch.cond(mask.sum() > 0, lambda y: y @ y, lambda y: y.cos() @ y, (x,))
        for mask in (torch.ones(3), torch.zeros(3)):
            with torch.autocast(self.device.type, torch.bfloat16):
                found = function(torch.eye(3, device=self.device), mask.to(self.device))
            with torch.autocast("cpu", torch.bfloat16):
                expected = function(torch.eye(3), mask)
            self.assert_same(found, expected)


class FlexAttentionTest(RegisteredCase):
    def setUp(self):
        super().setUp()
        self.enterContext(warnings.catch_warnings())
        # PyTorch warns that it is slow without a compiler.
        warnings.simplefilter("ignore")
        torch._dynamo.reset()

    def operands(self, device, dtype=torch.float32):
        generator = torch.Generator().manual_seed(1)
        return [torch.randn(1, 2, 16, 8, generator=generator).to(device, dtype) for _ in range(3)]

    def attend(self, device, dtype=torch.float32, attend=flex_attention.flex_attention):
        def causal(batch, head, query, key):
            return query >= key

        def relative(score, batch, head, query, key):
            return score + (query - key) * 0.1

        mask = flex_attention.create_block_mask(causal, None, None, 16, 16, device, BLOCK_SIZE=8)
        return attend(*self.operands(device, dtype), score_mod=relative, block_mask=mask)

    @torch.no_grad()
    def test_values(self):
        for dtype in (torch.float32, torch.bfloat16):
            self.assert_same(self.attend(self.device, dtype), self.attend("cpu", dtype))

    @torch.no_grad()
    def test_compiled(self):
        compiled = torch.compile(flex_attention.flex_attention, backend="djinn")
        expected = self.attend("cpu")
        for _ in range(3):
            torch.testing.assert_close(self.attend(self.device, attend=compiled).cpu(), expected)

    @torch.no_grad()
    def test_under_autocast(self):
        with torch.autocast(self.device.type, torch.bfloat16):
            found = self.attend(self.device)
        with torch.autocast("cpu", torch.bfloat16):
            self.assert_same(found, self.attend("cpu"))

    def test_gradients(self):
        # The CPU computes none of flex_attention.
        found = []
        for place, attend in (
            ("cpu", torch.nn.functional.scaled_dot_product_attention),
            (self.device, flex_attention.flex_attention),
        ):
            operands = [one.requires_grad_() for one in self.operands(place)]
            attend(*operands).square().sum().backward()
            found.append([one.grad.cpu() for one in operands])
        torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-5)

    @torch.no_grad()
    def test_a_model_of_transformers(self):
        config = transformers.LlamaConfig(
            vocab_size=32, hidden_size=32, intermediate_size=32, num_hidden_layers=1,
            num_attention_heads=2, num_key_value_heads=2)
        model = transformers.LlamaModel(config).eval()
        ids = torch.arange(16)[None]
        expected = model(ids).last_hidden_state
        model.to(self.device).set_attn_implementation("flex_attention")
        found = model(ids.to(self.device)).last_hidden_state
        torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=1e-4)


class CheckpointTest(RemoteCase):
    def test_a_compiled_checkpoint_repeats_its_draws(self):
        layers = torch.nn.Sequential(
            torch.nn.Linear(3, 3), torch.nn.Dropout(0.5), torch.nn.Linear(3, 3), torch.nn.Dropout(0.5)
        ).to(self.device)
        x = torch.randn(4, 3)

        def checkpointed(x):
            return torch.utils.checkpoint.checkpoint(layers, x, use_reentrant=False)

        def results(function):
            torch.manual_seed(3)
            found = []
            for _ in range(3):
                leaf = x.to(self.device).requires_grad_()
                layers.zero_grad()
                function(leaf).sum().backward()
                found += [leaf.grad.cpu(), layers[0].weight.grad.cpu()]
            return found

        expected = results(checkpointed)
        for backend in ("aot_eager", "djinn"):
            torch._dynamo.reset()
            with self.subTest(backend=backend), warnings.catch_warnings():
                # It says that the operators are sent one by one.
                warnings.simplefilter("ignore")
                found = results(torch.compile(checkpointed, backend=backend))
                for one, other in zip(found, expected):
                    torch.testing.assert_close(one, other)
