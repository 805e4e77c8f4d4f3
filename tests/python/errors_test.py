"""Errors: the program's own as the CPU gives them, Djinn's with their fields."""

import os
import pickle
import signal

import torch

import djinn
from tests.python.remote_case import RemoteCase, run_program


class ErrorsTest(RemoteCase):
    def assert_same_error(self, call):
        """The remote call raises what the local one does, at the call."""
        with self.assertRaises(Exception) as local:
            call(torch.device("cpu"))
        with self.assertRaises(type(local.exception)) as remote:
            call(self.device)
        self.assertEqual(str(remote.exception), str(local.exception))

    def test_mistakes_raise_at_the_call(self):
        ones, arange = torch.ones, torch.arange
        # A kernel that accepted operands of these types is not tried again.
        torch.nn.functional.linear(
            ones(2, 5, device=self.device), ones(4, 5, device=self.device),
            ones(4, device=self.device))
        for call in (
            lambda d: ones(2, 3, device=d) @ ones(2, 3, device=d),
            lambda d: ones(2, 3, device=d) + ones(2, 4, device=d),
            lambda d: ones(6, device=d).view(4, 2),
            lambda d: ones(6, device=d).reshape(4, 2),
            lambda d: ones(2, device=d)[5],
            lambda d: ones(2, 2, device=d).sum(3),
            lambda d: torch.cat([ones(2, 2, device=d), ones(3, 3, device=d)]),
            lambda d: ones(2, device=d).expand(3, 4),
            lambda d: torch.nn.functional.linear(ones(2, 3, device=d), ones(4, 5, device=d)),
            lambda d: torch.nn.functional.linear(
                ones(2, 5, device=d), ones(4, 5, device=d), ones(3, device=d)
            ),
            lambda d: torch.addmm(ones(3, device=d), ones(2, 5, device=d), ones(5, 4, device=d)),
            lambda d: ones((), device=d).std([0, -1]),
            lambda d: torch.nn.functional.conv2d(
                ones(1, 3, 8, 8, device=d), ones(4, 5, 3, 3, device=d)
            ),
            lambda d: ones(2, dtype=torch.int64, device=d).add_(1.5),
            lambda d: ones(3, device=d).squeeze(4),
            lambda d: ones(2, 3, device=d).item(),
            lambda d: bool(ones(2, device=d)),
            lambda d: ones(3, requires_grad=True, device=d).add_(1),
            lambda d: ones(3, device=d).backward(),
            lambda d: torch.stack([]),
            lambda d: ones(2, 2, device=d).softmax(5),
            lambda d: ones(3, 4, device=d).index_put_((arange(2, device=d),), ones(3, 4, device=d)),
            lambda d: ones(3, 4000, device=d).__setitem__(
                arange(2, device=d), ones(3, 4000, device=d)),
            lambda d: ones(3, 4, device=d).index_put_((ones(2, device=d),), ones(2, 4, device=d)),
            lambda d: torch.linalg.lstsq(
                ones(5, 3, device=d), ones(5, 2, device=d), driver="none"),
            lambda d: torch.linalg.lu(ones(3, 4, device=d), pivot=False),
        ):
            with self.subTest(call=call.__code__.co_firstlineno):
                self.assert_same_error(call)

    def test_numbers_that_the_cpu_refuses_raise_at_the_call(self):
        functional = torch.nn.functional
        for call in (
            lambda x, number: functional.huber_loss(x, x * 2, delta=number),
            lambda x, number: functional.smooth_l1_loss(x, x * 2, beta=number),
            lambda x, number: torch.cdist(x, x, p=number),
            lambda x, number: functional.dropout(x, number),
        ):
            with self.subTest(call=call.__code__.co_firstlineno):
                x = torch.ones(3, 3)
                for _ in range(2):
                    # A kernel that accepts one number is tried with the other, too.
                    self.assert_same_result(call, x, 0.5)
                    self.assert_same_error(lambda d: call(x.to(d), -1.5))
        x = torch.ones(3, 3)
        self.assert_same_error(lambda d: functional.cross_entropy(
            x.to(d), x.argmax(1).to(d), label_smoothing=2.0))

    def assert_same_result(self, call, x, number):
        torch.manual_seed(0)
        local = call(x, number)
        torch.manual_seed(0)
        self.assert_same(call(x.to(self.device), number), local)

    def test_numbers_that_no_int64_holds(self):
        number = 2**64 - 1
        for dtype in (torch.uint8, torch.int64, torch.float32):
            values = torch.tensor([1, 2, 3], dtype=dtype)
            remote = values.to(self.device)
            self.assertTrue(torch.equal((remote + number).cpu(), values + number))
            self.assertTrue(torch.equal((remote * number).cpu(), values * number))
            with self.assertRaisesRegex(
                    NotImplementedError, r"eq.Scalar has the number 18446744073709551615, and "
                    r"numbers of 2\*\*63 or more cannot be sent to a worker"):
                remote == number

    def test_storages_have_no_negative_size(self):
        for device in ("cpu", self.device):
            values = torch.zeros(3, device=device)
            with self.assertRaises(RuntimeError):
                values.untyped_storage().resize_(-1)
            self.assertEqual(values.untyped_storage().nbytes(), 12)
            with self.assertRaises(RuntimeError):
                torch.UntypedStorage(-1, device=device)

    def test_named_tensors_are_refused_in_a_sentence(self):
        named = torch.ones(2, 3, device=self.device).rename("N", "C")
        for call in (lambda: named + 1, lambda: named.sum(), lambda: named.select(0, 1)):
            with self.assertRaisesRegex(NotImplementedError, "has a named tensor"):
                call()
        self.assertEqual((named.rename(None) + 1).sum().item(), 12)

    def test_quantised_tensors_are_refused_in_a_sentence(self):
        quantised = torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8)
        for call in (
            lambda: quantised.to(self.device),
            lambda: torch.quantize_per_tensor(
                torch.ones(2, device=self.device), 0.1, 0, torch.qint8),
        ):
            with self.assertRaisesRegex(NotImplementedError, "no quantised tensors"):
                call()

    def test_wrong_dimensions_raise_and_do_not_end_the_process(self):
        one = torch.ones(1, device=self.device)
        for arguments in (
            ([3], [], [], [0], 0), ([-4], [], [], [], 0), ([], [], [], [7], 0),
            ([], [], [], [0, 0], 0), ([], [], [], [], 5),
        ):
            with self.subTest(arguments), self.assertRaises((IndexError, RuntimeError)):
                torch.ops.aten._trilinear(one, one, one, *arguments)
        self.assertEqual(one.item(), 1)

    def test_an_index_out_of_range_is_reported_at_the_read(self):
        table = torch.ones(10, 3, device=self.device)
        wrong = torch.nn.functional.embedding(torch.tensor([1, 20], device=self.device), table)
        derived = wrong * 2
        errors = []
        for value in (wrong, derived, wrong):
            with self.assertRaises(djinn.Error) as raised:
                value.cpu()
            errors.append(raised.exception)
        self.assertEqual(errors[0].reason, "OPERATOR_FAILED")
        self.assertIn("aten::embedding", str(errors[0]))
        self.assertIn("index out of range", str(errors[0]))
        self.assertNotEqual(errors[0].error_id, "")
        self.assertEqual({e.error_id for e in errors}, {errors[0].error_id})
        self.assertEqual(table.sum().item(), 30)
        self.assertIn(errors[0].error_id, [e.error_id for e in djinn.root_errors()])

    def test_eager_mode_raises_at_the_call(self):
        program = run_program(
            """
            import torch, djinn
            with djinn.local(worker_threads=1):
                x = torch.ones(3, device="remote_accelerator")
                index = torch.tensor([9], device="remote_accelerator")
                try:
                    x.take(index)
                except djinn.Error as error:
                    print(error.reason, "aten::take" in str(error))
                print(x.sum().item())
            """,
            DJINN_EAGER="1",
        )
        self.assertEqual(program.stdout, "OPERATOR_FAILED True\n3.0\n")

    def test_only_synchronize_raises_the_failure_of_a_dropped_value(self):
        module = torch.get_device_module(self.device)

        def drop():
            torch.ones(3, device=self.device).take(torch.tensor([9], device=self.device))

        def profile():
            with torch.profiler.profile() as profiler:
                torch.ones(3, device=self.device).add_(1)
            self.assertTrue(profiler.key_averages())

        for waits in (
            profile,
            lambda: djinn.export_graph(lambda: torch.ones(3, device=self.device) + 1),
            lambda: torch.Event(device=self.device, enable_timing=True).record(),
            lambda: torch.Stream(device=self.device).query(),
        ):
            drop()
            waits()
            for synchronize in (djinn.synchronize, torch.accelerator.synchronize,
                                module.synchronize):
                with self.subTest(waits=waits, synchronize=synchronize):
                    with self.assertRaisesRegex(djinn.Error, "aten::take"):
                        synchronize()
                    synchronize()  # Each failure is raised once.
                    drop()
            with self.assertRaises(djinn.Error):
                djinn.synchronize()

    def test_an_error_survives_pickling(self):
        error = pickle.loads(pickle.dumps(djinn.Error("text", "UNAVAILABLE", "WORKER_LOST", "1f", 2.5)))
        self.assertEqual(str(error), "text")
        self.assertEqual((error.code, error.reason, error.error_id), ("UNAVAILABLE", "WORKER_LOST", "1f"))
        self.assertEqual(error.retry_after, 2.5)

    def test_an_error_in_backward_is_the_same(self):
        x = torch.ones(3, 3, device=self.device, requires_grad=True)
        y = x.take(torch.tensor([50], device=self.device))
        y.sum().backward()
        with self.assertRaises(djinn.Error):
            y.item()

    def test_out_of_memory(self):
        huge = torch.zeros(10**12, device=self.device)
        with self.assertRaises(torch.OutOfMemoryError) as raised:
            huge[0].item()
        self.assertIsInstance(raised.exception, djinn.Error)


class SessionErrorsTest(RemoteCase):
    def test_a_second_session_is_refused(self):
        with self.assertRaises(djinn.Error) as raised:
            djinn.connect(self.cluster.coordinator, token_file=self.cluster.token_file)
        self.assertEqual(raised.exception.reason, "SESSION_OPEN")
        self.assertEqual(raised.exception.code, "ALREADY_EXISTS")

    def test_a_closed_sessions_tensors_raise(self):
        x = torch.ones(2, device=self.device)
        self.assertTrue(djinn.is_connected())
        djinn.close()
        self.assertFalse(djinn.is_connected())
        djinn.close()
        with self.assertRaises(djinn.Error) as raised:
            x.cpu()
        self.assertEqual(raised.exception.reason, "SESSION_CLOSED")
        djinn.connect(self.cluster.coordinator, token_file=self.cluster.token_file)
        self.assertEqual(torch.ones(2, device=self.device).sum().item(), 2)

    def test_wrong_arguments(self):
        with self.assertRaises(TypeError):
            djinn.connect("127.0.0.1:1", flavour="mint")
        djinn.close()
        with self.assertRaises(djinn.Error) as raised:
            djinn.connect("unix:/nowhere", token="x", connect_timeout=0.2)
        self.assertEqual(raised.exception.code, "UNAVAILABLE")
        djinn.connect(self.cluster.coordinator, token_file=self.cluster.token_file)


class LostWorkerTest(RemoteCase):
    def test_tensors_of_a_lost_worker_raise(self):
        djinn.close()
        djinn.connect(
            self.cluster.coordinator,
            token_file=self.cluster.token_file,
            resume_timeout=0.5,
            recovery="off",
        )
        x = torch.ones(2, device=self.device)
        x.cpu()
        os.kill(self.cluster.worker_pids[0], signal.SIGKILL)
        with self.assertRaises(djinn.Error) as raised:
            (x + 1).cpu()
        self.assertEqual(raised.exception.reason, "WORKER_LOST")
        # Errors of calls since the last read are reported by close().
        with self.assertRaises(djinn.Error):
            djinn.close()
