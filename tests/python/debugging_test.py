"""Debug levels, call sites and limits of shape inference."""

import threading

import torch

import djinn
from tests.python.remote_case import RemoteCase, run_program


class _Scaled(torch.nn.Module):
    """Looks a row up that may not be there."""

    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(10, 3)

    def forward(self, index):
        return self.table(index) * 2


class _Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList([_Scaled(), _Scaled()])

    def forward(self, index, fails=False):
        if fails:
            raise ValueError("as asked")
        return self.blocks[0](index) + self.blocks[1](index + 100)


class CallSitesTest(RemoteCase):
    def setUp(self):
        djinn.set_call_sites(True)
        self.addCleanup(djinn.set_call_sites, False)

    def failure_of(self, value):
        with self.assertRaises(djinn.Error) as raised:
            value.cpu()
        return str(raised.exception)

    def test_an_error_names_line_and_module(self):
        net = _Net().to(self.device)
        index = torch.tensor([1], device=self.device)
        with self.assertRaises(ValueError):
            net(index, fails=True)
        with torch.no_grad():
            text = self.failure_of(net(index))
        self.assertIn("aten::embedding", text)
        self.assertRegex(
            text, r"called at .*debugging_test\.py:\d+ in _Scaled\.forward, "
            r"in module _Net\.blocks\.1\.table"
        )
        self.assertIn("_Net.blocks.1", str(djinn.root_errors()[-1]))
        # This call is outside any module again.
        text = self.failure_of(torch.ones(3, device=self.device).take(index + 8))
        self.assertRegex(text, r"aten::take.*debugging_test\.py:\d+ in CallSitesTest\.")
        self.assertNotIn("in module", text)

    def test_a_root_may_hold_modules_made_on_the_way(self):
        class Outer(torch.nn.Module):
            def forward(self, index):
                return torch.nn.Sequential(_Scaled().to(index.device))(index)

        with torch.no_grad():
            text = self.failure_of(Outer()(torch.tensor([77], device=self.device)))
        self.assertIn("in module Outer.Sequential.0.table", text)

    def test_threads_have_modules_of_their_own(self):
        inside, outside = threading.Event(), threading.Event()
        texts = []

        class Waits(torch.nn.Module):
            def forward(self, x):
                inside.set()
                outside.wait(60)
                return x

        x = torch.ones(2, device=self.device)
        thread = threading.Thread(target=Waits(), args=(x,))
        thread.start()
        inside.wait(60)
        texts.append(self.failure_of(x.take(torch.tensor([9], device=self.device))))
        outside.set()
        thread.join()
        self.assertNotIn("in module", texts[0])

    def test_a_failure_in_a_backward_pass_names_the_forward_line(self):
        class Worse(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x * 1

            @staticmethod
            def backward(ctx, grad):
                return grad.take(torch.tensor([50, 51, 52], device=grad.device))

        x = torch.ones(3, device=self.device, requires_grad=True)
        loss = Worse.apply(x).sum()
        loss.backward()
        self.assertIn("the backward of ", self.failure_of(x.grad))

    def test_graphs_stay_the_same(self):
        x = torch.ones(3, device=self.device)
        x.cpu()
        x.add(1).mul(2).cpu()
        before = djinn.statistics()["graphs_defined"]
        x.add(1).mul(2).cpu()
        self.assertEqual(djinn.statistics()["graphs_defined"], before)

    def test_a_compiled_function_is_replayed_as_a_whole(self):
        net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Tanh()).to(self.device)
        x = torch.ones(2, 3, device=self.device)
        compiled = djinn.compile(lambda x: net(x).relu())
        with torch.no_grad():
            expected = net(x).relu().cpu()
            for _ in range(4):
                self.assert_same(compiled(x), expected)
        self.assertEqual(compiled.statistics()["refusal"], "")
        self.assertEqual(compiled.statistics()["replays"], 2)

    def test_disabled_call_sites_leave_errors_without_lines(self):
        djinn.set_call_sites(False)
        net = _Net().to(self.device)
        with torch.no_grad():
            text = self.failure_of(net(torch.tensor([1], device=self.device)))
        self.assertNotIn("called at", text)
        self.assertNotIn("in module", text)


class FromTheEnvironmentTest(RemoteCase):
    def test_call_sites(self):
        program = run_program(
            """
            import torch, djinn
            with djinn.local(worker_threads=1):
                x = torch.ones(3, device="remote_accelerator")
                try:
                    x.take(torch.tensor([9], device="remote_accelerator")).cpu()
                except djinn.Error as error:
                    print("called at <string>:6 in <module>" in str(error))
            """,
            DJINN_CALL_SITES="1",
        )
        self.assertEqual(program.stdout, "True\n")

    def test_levels(self):
        program = run_program(
            """
            import torch, djinn
            with djinn.local(worker_threads=1):
                x = torch.ones(3, device="remote_accelerator") + 1
                print(x.sum().item())
                djinn.set_debug_level("off")
                print((x * 3).sum().item())
            """,
            DJINN_DEBUG="interception",
        )
        self.assertEqual(program.stdout, "6.0\n18.0\n")
        self.assertRegex(program.stderr, r"msg=call lane=\d+ op=aten::add\.Tensor device=remote")
        self.assertNotIn("aten::mul", program.stderr)
        self.assertNotIn("msg=sent", program.stderr)

    def test_an_unknown_level_is_ignored_with_a_warning(self):
        program = run_program("import djinn", DJINN_DEBUG="loud")
        self.assertIn("DJINN_DEBUG is ignored", program.stderr)


class LevelsTest(RemoteCase):
    def log_of(self, level, source):
        program = run_program(
            f"""
            import torch, djinn
            with djinn.local(worker_threads=1):
                x = torch.arange(6.0, device="remote_accelerator").view(2, 3)
                x.cpu()
                djinn.set_debug_level("{level}")
                {source}
            """
        )
        return program.stderr

    def test_shape_inference(self):
        log = self.log_of("shape_inference", "x.tan(); x.tan(); x.nonzero()")
        self.assertIn('op=aten::tan by=re-entry results=Float[2,3]', log)
        self.assertIn('op=aten::tan by="memo of an equal call"', log)
        self.assertIn('op=aten::nonzero by="nothing: the shape depends on data"', log)

    def test_execution(self):
        log = self.log_of("execution", "x.tan().cpu(); x.tan().cpu(); x.sin().cpu()")
        self.assertRegex(log, r'msg=graph .*known=no reason="the first that is looked at"')
        self.assertRegex(log, r'known=yes reason="defined before"')
        self.assertRegex(log, r"call 0 is aten::sin instead of aten::tan")
        self.assertRegex(log, r"what=\"graph \d+: plan (hit|miss)")
        self.assertRegex(log, r'msg=sent .* what="run of graph \d+ on 2 storages"')
        self.assertRegex(log, r'msg=received .* what="24 bytes for read \d+"')

    def test_unknown_levels_are_refused(self):
        with self.assertRaisesRegex(ValueError, "interception, shape_inference, execution or off"):
            djinn.set_debug_level("loud")
