"""The device module, streams, events and memory statistics."""

import asyncio
import threading

import torch

import djinn
from tests.python.remote_case import RemoteCase, run_program


class DeviceTest(RemoteCase):
    def setUp(self):
        self.module = torch.get_device_module(self.device)

    def test_module(self):
        self.assertIs(self.module, torch.remote_accelerator)
        self.assertTrue(self.module.is_available())
        self.assertEqual(self.module.device_count(), 16)
        self.assertEqual(torch.accelerator.current_accelerator().type, self.device.type)
        self.assertEqual(torch.accelerator.device_count(), 16)
        self.assertTrue(torch.accelerator.is_available())

    def test_pytorchs_idiom_takes_the_device_of_an_open_session(self):
        idiom = """
            import torch, djinn
            def chosen():
                accelerator = torch.accelerator
                device = accelerator.current_accelerator() if accelerator.is_available() else "cpu"
                return torch.ones(2, device=device).device.type
            def count():
                return torch.accelerator.device_count(), torch.remote_accelerator.device_count()
            print(chosen(), torch.accelerator.current_accelerator(), *count())
            with djinn.local(worker_threads=1):
                print(chosen(), torch.accelerator.current_accelerator(), *count())
            print(chosen(), torch.accelerator.current_accelerator(), *count())
            """
        name = self.device.type
        printed = run_program(idiom, DJINN_COORDINATOR="").stdout
        self.assertEqual(
            printed.splitlines(), ["cpu None 0 16", f"{name} {name} 16 16", "cpu None 0 16"])
        configured = run_program(
            "import torch, djinn; print(torch.accelerator.is_available())",
            DJINN_COORDINATOR="127.0.0.1:1")
        self.assertEqual(configured.stdout, "True\n")

    def test_current_device(self):
        self.assertEqual(self.module.current_device(), 0)
        with self.module.device(2):
            self.assertEqual(self.module.current_device(), 2)
            self.assertEqual(torch.empty(1, device=self.device.type).device.index, 2)
            with self.module.device(torch.device(self.device.type, 1)):
                self.assertEqual(self.module.current_device(), 1)
            self.assertEqual(self.module.current_device(), 2)
        self.module.set_device(f"{self.device.type}:3")
        self.assertEqual(torch.accelerator.current_device_index(), 3)
        self.module.set_device(0)
        with self.module.device_of(torch.empty(1, device=f"{self.device.type}:1")):
            self.assertEqual(self.module.current_device(), 1)
        with self.module.device_of(torch.empty(1)):
            self.assertEqual(self.module.current_device(), 0)
        with torch.accelerator.device_index(4):
            self.assertEqual(self.module.current_device(), 4)

    def test_wrong_devices(self):
        with self.assertRaises(ValueError):
            self.module.device("cpu")
        for wrong in (16, 99):
            with self.assertRaisesRegex(RuntimeError, "no device .*16"):
                self.module.set_device(wrong)
        with self.assertRaisesRegex(RuntimeError, "no device .*16"):
            torch.empty(1, device=f"{self.device.type}:16")

    def test_methods_of_tensors_and_modules(self):
        self.assertTrue(torch.ones(2).remote_accelerator().is_remote_accelerator)
        self.assertFalse(torch.ones(2).is_remote_accelerator)
        model = torch.nn.Linear(2, 2).remote_accelerator()
        self.assertEqual(model.weight.device, self.device)

    def test_a_placement_names_its_worker_and_reason(self):
        torch.ones(1, device=self.device).cpu()
        placement = djinn.where_is()
        self.assertEqual(placement.worker_id, "worker-0")
        self.assertIn("candidate", placement.reason)

    def test_name_and_count_are_configured(self):
        program = run_program(
            """
            import torch, djinn
            with djinn.local(worker_threads=1):
                x = torch.ones(2, device="elsewhere:1")
                print(x.device, torch.elsewhere.device_count(), x.elsewhere().sum().item())
            """,
            DJINN_DEVICE_NAME="elsewhere",
            DJINN_DEVICE_COUNT="3",
        )
        self.assertEqual(program.stdout, "elsewhere:1 3 2.0\n")

    def test_a_worker_device_that_there_is_not_is_named(self):
        for name in ("tpu", "", "cpu\n  memory: 1"):
            with self.subTest(name), self.assertRaisesRegex(djinn.Error, "device.kind: cpu, cuda for all GPUs, cuda:N"):
                djinn.local(worker_device=name)

    def test_capture_scope(self):
        with djinn.capture():
            self.assertEqual(torch.zeros(2).device, self.device)
            self.assertEqual(torch.tensor([1]).device, self.device)
            self.assertEqual(torch.nn.Linear(2, 2).weight.device, self.device)
            self.assertEqual(torch.zeros(2, device="cpu").device.type, "cpu")
            with djinn.capture(1):
                self.assertEqual(torch.zeros(2).device.index, 1)
            self.assertEqual(torch.zeros(2).device.index, 0)
        self.assertEqual(torch.zeros(2).device.type, "cpu")

    def test_a_generator_decides_where_a_default_device_applies(self):
        data = list(range(8))

        def shuffled():
            loader = torch.utils.data.DataLoader(data, batch_size=4, shuffle=True)
            parts = torch.utils.data.random_split(data, [6, 2])
            drawn = torch.rand(3, generator=torch.Generator().manual_seed(1))
            self.assertEqual(drawn.device.type, "cpu")
            return torch.cat(list(loader)), sorted(i for part in parts for i in part.indices)

        torch.manual_seed(0)
        expected = torch.cat(
            list(torch.utils.data.DataLoader(data, batch_size=4, shuffle=True))).tolist()
        remote = torch.Generator(device=f"{self.device.type}:1")
        for name, scope in (
            ("capture", djinn.capture()), ("default device", torch.device(self.device))
        ):
            with self.subTest(name), scope:
                torch.manual_seed(0)
                batches, indices = shuffled()
                self.assertEqual(batches.device, self.device)
                self.assertEqual(batches.tolist(), expected)
                self.assertEqual(indices, data)
                self.assertEqual(torch.rand(3, generator=remote).device, remote.device)
                here = torch.randperm(3, generator=torch.Generator(), device="cpu")
                self.assertEqual(here.device.type, "cpu")
                with self.assertRaisesRegex(RuntimeError, "[Ee]xpected a .* device type"):
                    torch.rand(3, generator=torch.Generator(), device=self.device)

    def test_capture_scope_is_of_one_thread(self):
        seen = []
        with djinn.capture():
            thread = threading.Thread(target=lambda: seen.append(torch.zeros(1).device.type))
            thread.start()
            thread.join()
        self.assertEqual(seen, ["cpu"])

    def test_capture_scope_is_of_one_task(self):
        seen = {}

        async def program():
            entered, looked = asyncio.Event(), asyncio.Event()

            async def inside():
                with djinn.capture():
                    entered.set()
                    await looked.wait()
                    seen["inside"] = torch.zeros(1).device.type

            async def outside():
                await entered.wait()
                seen["outside"] = torch.zeros(1).device.type
                looked.set()

            await asyncio.gather(inside(), outside())

        asyncio.run(program())
        self.assertEqual(seen, {"inside": self.device.type, "outside": "cpu"})

    def test_streams(self):
        stream = torch.Stream(device=self.device)
        self.assertEqual(stream.device, self.device)
        with stream:
            y = torch.ones(1000, device=self.device) * 2
        torch.accelerator.current_stream().wait_stream(stream)
        self.assertEqual(y.sum().item(), 2000)
        stream.synchronize()
        self.assertTrue(stream.query())
        other = self.module.Stream()
        with self.module.stream(other):
            self.assertEqual(self.module.current_stream().device, self.device)
        self.assertEqual(self.module.default_stream().device, self.device)
        y.record_stream(stream)

    def test_events(self):
        first = torch.Event(device=self.device, enable_timing=True)
        second = torch.Event(device=self.device, enable_timing=True)
        self.assertTrue(first.query())
        first.record()
        x = torch.randn(300, 300, device=self.device)
        for _ in range(5):
            x = x @ x
        second.record()
        second.synchronize()
        self.assertTrue(second.query())
        self.assertTrue(first.query())
        self.assertGreaterEqual(first.elapsed_time(second), 0)
        torch.accelerator.current_stream().wait_event(second)
        self.assertTrue(self.module.Event().query())
        events = [self.module.Event(enable_timing=True) for _ in range(2)]
        for event in events:
            event.record()
        events[1].synchronize()
        self.assertGreaterEqual(events[0].elapsed_time(events[1]), 0)

    def test_an_event_that_was_not_recorded_has_no_time(self):
        event = torch.Event(device=self.device, enable_timing=True)
        with self.assertRaisesRegex(ValueError, "recorded"):
            event.elapsed_time(torch.Event(device=self.device, enable_timing=True))

    def test_synchronize(self):
        y = torch.ones(3, device=self.device).add_(1)
        self.module.synchronize()
        torch.accelerator.synchronize()
        djinn.synchronize()
        self.assertEqual(y.tolist(), [2, 2, 2])

    def test_synchronize_waits(self):
        for synchronize in (self.module.synchronize, torch.accelerator.synchronize):
            a = torch.randn(700, 700, device=self.device)
            for _ in range(10):
                a = a @ a / 30
            # The call fails when it is executed.
            a[torch.tensor([10_000], device=self.device)]
            with self.assertRaisesRegex(djinn.Error, "index 10000 is out of bounds"):
                synchronize()

    def test_histograms_of_whole_numbers(self):
        values = torch.tensor([3, 1, 4, 1, 5, 9, 2, 6])
        for dtype in (torch.int32, torch.int64, torch.uint8):
            counts = torch.histc(values.to(dtype).to(self.device), bins=10, min=0, max=9)
            self.assertEqual(counts.dtype, dtype)
            self.assertEqual(counts.tolist(), torch.histc(values.float(), bins=10, min=0, max=9).tolist())

    def test_memory_statistics(self):
        self.module.reset_peak_memory_stats()
        before = self.module.memory_allocated()
        x = torch.empty(1 << 20, device=self.device)
        self.assertEqual(self.module.memory_allocated() - before, 4 << 20)
        view = x[10:]
        self.assertEqual(self.module.memory_allocated() - before, 4 << 20)
        del x, view
        self.assertEqual(self.module.memory_allocated(), before)
        self.assertEqual(self.module.max_memory_allocated() - before, 4 << 20)
        self.module.reset_peak_memory_stats()
        self.assertEqual(self.module.max_memory_allocated(), before)
        self.assertEqual(self.module.memory_allocated(7), 0)
        self.assertIn("allocated_bytes.all.current", self.module.memory_stats())
        self.assertEqual(torch.accelerator.memory_allocated(), before)
        self.module.empty_cache()
