"""All `torch._foreach_*` functions over several devices, and their errors."""

import torch

import djinn
from tests.python.remote_case import RemoteCase

_FUNCTIONS = sorted(
    name.removeprefix("aten::")
    for name in torch._C._dispatch_get_all_op_names()
    if name.startswith("aten::_foreach_") and not name.endswith("out")
    # Remote devices refuse it: PyTorch's form of it crashes on lists that do not fit.
    and name != "aten::_foreach_copy"
)


def _find(function):
    name, _, overload = function.partition(".")
    return getattr(getattr(torch.ops.aten, name), overload or "default")


class ListsTest(RemoteCase):
    def arguments(self, schema, places):
        """Arguments with lists of two tensors each, which lie where `places` says."""
        torch.manual_seed(0)
        made = []
        for argument in schema.arguments:
            kind = str(argument.type)
            if argument.has_default_value():
                break
            if kind == "List[Tensor]":
                made.append([(torch.rand(2, 3) + 0.5).to(place) for place in places])
            elif kind == "Tensor":
                # One for all tensors, or one for each, on the CPU.
                many = argument.name == "scalars"
                made.append(torch.tensor([2.0, 3.0]) if many else torch.tensor(2.0))
            elif kind == "List[number]":
                made.append([2.0, 3.0])
            elif kind == "number":
                made.append(2.0)
            else:
                self.fail(f"{schema.name} takes {kind}")
        return made

    def results(self, function, arguments):
        returned = _find(function)(*arguments)
        lists = [argument for argument in arguments if isinstance(argument, list)]
        return [t for each in (returned, *lists) for t in each or ()
                if isinstance(t, torch.Tensor)]

    def test_pytorch_has_over_100_foreach_functions(self):
        self.assertGreater(len(_FUNCTIONS), 100)

    def test_tensors_lie_on_several_devices(self):
        for function in _FUNCTIONS:
            schema = _find(function)._schema
            with self.subTest(function=function):
                expected = self.results(function, self.arguments(schema, ["cpu", "cpu"]))
                for places in (["cpu", self.device], [self.device, "cpu"], [self.device] * 2):
                    found = self.results(function, self.arguments(schema, places))
                    self.assertEqual(len(found), len(expected))
                    for one, other in zip(found, expected):
                        torch.testing.assert_close(one.cpu(), other, rtol=0, atol=0,
                                                   equal_nan=True)

    def test_copies_between_devices(self):
        for source, target in (("cpu", self.device), (self.device, "cpu")):
            to, of = [torch.zeros(2, device=target)], [torch.ones(2, device=source)]
            torch._foreach_copy_(to, of)
            self.assertEqual(to[0].tolist(), [1, 1])

    def test_lists_that_do_not_fit_raise_the_cpus_error(self):
        for function in _FUNCTIONS:
            # PyTorch generates this from the in-place form, and checks nothing before.
            if function == "_foreach_zero":
                continue
            schema = _find(function)._schema
            for change in (lambda a: [[], *a[1:]], self._shorten_second):
                texts = []
                for place in ("cpu", self.device):
                    arguments = change(self.arguments(schema, [place] * 2))
                    if all(not isinstance(a, list) or not a for a in arguments):
                        break  # no device to ask
                    with self.subTest(function=function, place=str(place)):
                        try:
                            _find(function)(*arguments)
                            texts.append("")
                        except RuntimeError as error:
                            texts.append(str(error))
                if texts:
                    with self.subTest(function=function):
                        self.assertEqual(len(set(texts)), 1, texts)

    @staticmethod
    def _shorten_second(arguments):
        lists = [i for i, a in enumerate(arguments) if isinstance(a, list)]
        if len(lists) < 2:
            return [[]]
        return [a[:1] if i == lists[1] else a for i, a in enumerate(arguments)]


class LongListsTest(RemoteCase):
    """A call's lists have at most 65,536 entries together, results included."""

    def test_many_rows_and_many_parameters(self):
        rows = torch.arange(40000.0).view(-1, 1)
        self.assert_same(torch.cat(list(rows.to(self.device))), torch.cat(list(rows)))
        norms = []
        for place in ("cpu", self.device):
            values = torch.arange(9000.0).to(place)
            parameters = [torch.nn.Parameter(value) for value in values]
            for parameter, gradient in zip(parameters, values * 0.5):
                parameter.grad = gradient
            norms.append(torch.nn.utils.clip_grad_norm_(parameters, 1.0, foreach=True).cpu())
            norms.append(parameters[-1].grad.cpu())
        self.assertEqual(norms[0], norms[2])
        self.assertEqual(norms[1], norms[3])

    def test_longer_lists_are_refused_at_the_call_and_harm_nothing(self):
        x = torch.arange(70000.0, device=self.device)
        before = x + 1
        with self.assertRaisesRegex(djinn.Error, r"aten::stack has 70001 list entries, results "
                                    r"included; one call has at most 65536") as raised:
            torch.stack(list(x))
        self.assertEqual(raised.exception.reason, "CALL_TOO_LARGE")
        with self.assertRaisesRegex(djinn.Error, "has 5000 bytes in a text argument"):
            torch._assert_async(x[0] == 0, "x" * 5000)
        self.assertEqual(before[-1].item(), 70000)
        self.assertEqual((x * 2)[-1].item(), 139998)
        djinn.synchronize()


class ErrorsWithoutElementsTest(RemoteCase):
    """A call that fails, and whose result has no elements, is told when the result is read."""

    def test_every_way_of_reading_raises_the_error(self):
        ways = {
            "cpu": lambda t: t.cpu(),
            "to": lambda t: t.to("cpu", torch.complex128),
            "tolist": lambda t: t.tolist(),
            "copy": lambda t: torch.empty(t.shape, dtype=t.dtype).copy_(t),
            "used": lambda t: torch.cat([t, t]).cpu(),
            "view": lambda t: t.t().cpu(),
        }
        for way, read in ways.items():
            with self.subTest(way=way):
                with self.assertRaisesRegex(RuntimeError, "FFT"):
                    read(torch.fft.fft(torch.empty(0, 3, device=self.device)))

    def test_sound_results_are_read(self):
        empty = torch.empty(0, 3, device=self.device)
        for result in (empty, empty + 1, torch.ones(2, 3, device=self.device)[:0], empty.sum(0)[:0]):
            self.assertEqual(result.cpu().numel(), 0)


class ErrorsOfTheCpuTest(RemoteCase):
    def test_a_product_over_a_dimension_that_is_not_there(self):
        operands = [torch.ones(1, device=self.device)] * 3
        with self.assertRaisesRegex(RuntimeError, r"unroll_dim must be in \[0,0\]"):
            torch.ops.aten._trilinear(*operands, [], [], [], [], 5)
