"""Asynchronous reads, progress of uploads, and how much memory there is."""

import asyncio
import gc
import threading

import torch

import djinn
from tests.python.remote_case import RemoteCase, run_program


class AsyncReadTest(RemoteCase):
    def test_an_async_read_returns_the_value_at_the_call(self):
        x = torch.arange(4.0, device=self.device)
        early = djinn.read_async(x)
        x.add_(10)
        late = djinn.read_async(x)
        self.assertEqual(early.result().tolist(), [0, 1, 2, 3])
        self.assertEqual(late.result(60).tolist(), [10, 11, 12, 13])
        self.assertTrue(early.done())
        self.assertIs(early.result(), early.result())
        self.assertEqual(early.result().device.type, "cpu")

    def test_views_dtypes_and_sizes(self):
        large = torch.randn(1500, 1000)
        for local in (
            torch.arange(12.0).view(3, 4).t()[1:],
            torch.tensor(3),
            torch.zeros(0, 3),
            torch.tensor([1 + 2j]).conj(),
            torch.tensor([True, False]),
            large,
        ):
            value = djinn.read_async(local.to(self.device)).result()
            self.assertTrue(torch.equal(value, local.resolve_conj()))
            self.assertTrue(value.is_contiguous())
            self.assertEqual(value.dtype, local.dtype)

    def test_many_at_once(self):
        tensors = [torch.full((1000,), float(i), device=self.device) for i in range(200)]
        reads = [djinn.read_async(t) for t in tensors]
        for i, read in enumerate(reads):
            self.assertEqual(read.result()[999].item(), i)

    def test_dropped_reads_do_no_harm(self):
        x = torch.randn(1000, 1000).to(self.device)
        for _ in range(20):
            djinn.read_async(x)
        gc.collect()
        self.assertEqual(djinn.read_async(x).result().shape, (1000, 1000))

    def test_a_failure_is_raised_by_the_result(self):
        wrong = torch.ones(3, device=self.device).take(torch.tensor([7], device=self.device))
        read = djinn.read_async(wrong)
        for _ in range(2):
            with self.assertRaises(djinn.Error) as raised:
                read.result()
            self.assertEqual(raised.exception.reason, "OPERATOR_FAILED")

    def test_a_read_raises_if_its_timeout_ends_first(self):
        # Some seconds of device time.
        x = torch.randn(1500, 1500, device=self.device)
        for _ in range(30):
            x = x @ x
        read = djinn.read_async(x.sum())
        with self.assertRaises(TimeoutError):
            read.result(0)
        self.assertEqual(read.result().shape, ())

    def test_callbacks(self):
        called = threading.Event()
        values = []

        def note(read):
            # A callback may use the device.
            values.append(read.result()[0].item() + torch.ones(1, device=self.device).item())
            called.set()

        read = djinn.read_async(torch.full((3,), 41.0, device=self.device))
        read.add_done_callback(note)
        self.assertTrue(called.wait(60))
        self.assertEqual(values, [42.0])
        called.clear()
        read.add_done_callback(note)
        self.assertTrue(called.wait(60))

    def test_awaiting(self):
        async def sums():
            x = torch.ones(5, device=self.device)
            reads = [djinn.read_async((x * i).sum()) for i in range(5)]

            async def value(read):
                return (await read).item()

            return await asyncio.gather(*(value(read) for read in reads))

        self.assertEqual(asyncio.run(sums()), [0, 5, 10, 15, 20])

    def test_awaiting_with_a_timeout(self):
        async def late():
            x = torch.randn(1500, 1500, device=self.device)
            for _ in range(30):
                x = x @ x
            read = djinn.read_async(x.sum())

            async def wait():
                return await read

            with self.assertRaises(TimeoutError):
                await asyncio.wait_for(wait(), 0.001)
            return await wait()

        self.assertEqual(asyncio.run(late()).shape, ())

    def test_only_remote_tensors(self):
        with self.assertRaises(djinn.Error) as raised:
            djinn.read_async(torch.ones(2))
        self.assertEqual(raised.exception.reason, "NOT_REMOTE")
        with self.assertRaises(TypeError):
            djinn.read_async(3)

    def test_the_end_of_the_program_does_not_wait_for_callbacks(self):
        program = run_program(
            """
            import torch, djinn
            cluster = djinn.local(worker_threads=1)
            x = torch.randn(1500, 1500, device="remote_accelerator")
            for _ in range(10):
                x = x @ x
            read = djinn.read_async(x.sum())
            read.add_done_callback(lambda read: None)
            print("end")
            """
        )
        self.assertEqual((program.stdout, program.stderr), ("end\n", ""))


class UploadProgressTest(RemoteCase):
    def setUp(self):
        self.reports = []
        self.addCleanup(djinn.on_upload_progress, None)

    def test_upload_progress_grows_to_the_total(self):
        djinn.on_upload_progress(
            lambda done, total: self.reports.append((done, total)), min_bytes=1 << 20
        )
        torch.randn(1000).to(self.device)
        self.assertEqual(self.reports, [])
        local = torch.randn(5 << 20)
        remote = local.to(self.device)
        total = 4 * (5 << 20)
        done = [done for done, _ in self.reports]
        self.assertEqual({t for _, t in self.reports}, {total})
        self.assertEqual(done, sorted(set(done)))
        self.assertEqual(done[-1], total)
        self.assertGreater(len(done), 10)
        # The worker has the bytes already.
        self.reports.clear()
        again = local.to(self.device)
        self.assertEqual(self.reports, [(total, total)])
        del remote, again

    def test_a_callback_that_fails_is_reported_and_stops_nothing(self):
        program = run_program(
            """
            import torch, djinn
            def fail(done, total):
                raise ValueError("as asked")
            with djinn.local(worker_threads=1):
                djinn.on_upload_progress(fail, min_bytes=1)
                x = torch.ones(1 << 20).to("remote_accelerator")
                djinn.on_upload_progress(None)
                print(x.sum().item())
            """
        )
        self.assertEqual(program.stdout, "1048576.0\n")
        self.assertIn("ValueError: as asked", program.stderr)


class MemoryInfoTest(RemoteCase):
    def test_free_and_total(self):
        free, total = torch.accelerator.get_memory_info(self.device)
        self.assertEqual(total, djinn.where_is().memory_bytes)
        self.assertLessEqual(free, total)
        properties = torch.remote_accelerator.get_device_properties(self.device)
        self.assertEqual(properties, ("remote_accelerator:0", total))
        self.assertEqual(properties.total_memory, total)
        kept = torch.empty(1 << 20, device=self.device)
        self.assertEqual(torch.remote_accelerator.mem_get_info(), (free - (4 << 20), total))
        del kept
        self.assertEqual(torch.remote_accelerator.mem_get_info(0)[0], free)
