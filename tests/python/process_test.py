"""Threads, forks, workers of a DataLoader, and how programs end."""

import glob
import threading
import unittest

import torch

import djinn
from djinn import _session
from tests.python.remote_case import RemoteCase, in_threads, run_program


class Squares(torch.utils.data.Dataset):
    def __len__(self):
        return 12

    def __getitem__(self, index):
        return torch.tensor([float(index * index)])


class CpuTest(unittest.TestCase):
    """PyTorch's functions for the CPU work after djinn is imported."""

    def test_data_parallel(self):
        module = torch.nn.Linear(2, 1)
        x = torch.ones(3, 2)
        self.assertTrue(torch.equal(torch.nn.DataParallel(module)(x), module(x)))
        self.assertEqual(list(torch.nn.DataParallel(module).state_dict()),
                         ["module.weight", "module.bias"])

    def test_a_default_process_group(self):
        run_program(
            """
            import os, tempfile, torch, djinn
            import torch.distributed as dist
            with tempfile.TemporaryDirectory() as folder:
                dist.init_process_group(
                    init_method=f"file://{folder}/group", rank=0, world_size=1)
                x = torch.ones(2)
                dist.all_reduce(x)
                dist.all_reduce(x, group=dist.new_group([0]))
                assert x.tolist() == [1, 1]
                dist.destroy_process_group()
            """
        )


class DataParallelTest(RemoteCase):
    def test_data_parallel_uses_one_device_and_refuses_more(self):
        module = torch.nn.Linear(2, 1)
        expected = module(torch.ones(3, 2)).detach()
        later = torch.nn.DataParallel(module)
        later.to(self.device)
        x = torch.ones(3, 2, device=self.device)
        for one in (later, torch.nn.DataParallel(module, device_ids=[0])):
            self.assert_same(one(x).detach(), expected)
        for devices in (None, [0, 1]):
            with self.assertRaisesRegex(RuntimeError, "pass one device"):
                torch.nn.DataParallel(module, device_ids=devices)


class ThreadsTest(RemoteCase):
    def test_sixteen_threads(self):
        shared = torch.arange(64.0, device=self.device)

        def work(number):
            x = shared * number
            for _ in range(50):
                x = x + 1
            x.requires_grad_()
            (x * x).sum().backward()
            self.assertEqual(x.grad.sum().item(), 2 * sum(number * i + 50 for i in range(64)))

        in_threads(work, 16)

    def test_a_blocking_read_lets_other_threads_run(self):
        x = torch.randn(1500, 1500, device=self.device)
        for _ in range(4):
            x = x @ x / 40
        ran = threading.Event()
        thread = threading.Thread(target=ran.set)
        started = threading.Event()

        def read():
            started.set()
            x.sum().item()

        reader = threading.Thread(target=read)
        reader.start()
        started.wait()
        thread.start()
        self.assertTrue(ran.wait(60))
        reader.join()
        thread.join()

    def test_the_device_starts_no_compute_threads_of_its_own(self):
        # OpenMP gives helper threads the name of the thread that started them.
        # It slows down every thread of a process that has more helper threads
        # than cores.
        def names():
            found = []
            for path in glob.glob("/proc/self/task/*/comm"):
                try:
                    with open(path) as file:
                        found.append(file.read())
                except (FileNotFoundError, ProcessLookupError):
                    pass  # the thread has ended meanwhile
            return sorted(found)

        weight = torch.randn(784, 10, device=self.device, requires_grad=True)
        labels = torch.zeros(8, dtype=torch.long, device=self.device)

        def step():
            logits = torch.randn(8, 784, device=self.device) @ weight
            torch.nn.functional.cross_entropy(logits, labels).backward()
            return weight.grad.sum().item()

        before = torch.get_num_threads()
        torch.set_num_threads(4)
        try:
            step()
            self.assertEqual(names().count("pt_autograd_0\n"), 1)
            self.assertEqual(torch.get_num_threads(), 4)
        finally:
            torch.set_num_threads(before)

    def test_data_loader_workers(self):
        for pin_memory in (False, True):
            loader = torch.utils.data.DataLoader(
                Squares(), batch_size=4, num_workers=2, pin_memory=pin_memory
            )
            total = 0.0
            for batch in loader:
                total += batch.to(self.device, non_blocking=True).sum().item()
            self.assertEqual(total, sum(i * i for i in range(12)))

    def test_use_after_fork(self):
        program = run_program(
            """
            import os, sys, torch, djinn
            with djinn.local(worker_threads=1) as cluster:
                x = torch.ones(2, device="remote_accelerator")
                x.cpu()
                child = os.fork()
                if child == 0:
                    print(torch.remote_accelerator._is_in_bad_fork(), djinn.is_connected())
                    torch.manual_seed(1)
                    for use in (x.cpu, lambda: torch.ones(2, device="remote_accelerator")):
                        try:
                            use()
                        except djinn.Error as error:
                            print(error.reason, "fork" in str(error))
                    try:
                        djinn.local(workers=1)
                    except djinn.Error as error:
                        print(error.reason)
                    del x
                    print(torch.ones(3).sum().item())
                    sys.stdout.flush()
                    sys.exit(0)
                print(os.waitpid(child, 0)[1])
                print(os.path.exists(cluster.coordinator.removeprefix("unix:")))
                print(x.sum().item())
            """
        )
        self.assertEqual(
            program.stdout.split("\n"),
            ["True False", "AFTER_FORK True", "AFTER_FORK True", "AFTER_FORK", "3.0", "0", "True", "2.0", ""],
        )

    def test_a_child_forked_before_any_session_has_its_own(self):
        program = run_program(
            """
            import os, sys, torch, djinn
            child = os.fork()
            if child == 0:
                try:
                    with djinn.local(worker_threads=1):
                        rows = torch.ones(3, 2, device="remote_accelerator")
                        torch.nn.functional.embedding(torch.tensor([7]).to(rows.device), rows)
                except djinn.Error as error:
                    print("index out of range" in str(error))
                print(djinn.is_connected())
                djinn.local(worker_threads=1)
                print(torch.ones(2, device="remote_accelerator").sum().item())
                sys.stdout.flush()
                sys.exit(0)
            print(os.waitpid(child, 0)[1])
            """
        )
        self.assertEqual(program.stdout, "True\nFalse\n2.0\n0\n")

    def test_a_cluster_has_workers_but_not_any_number(self):
        program = run_program(
            """
            import djinn
            for workers in (-1, 0, 65):
                try:
                    djinn.local(workers)
                except djinn.Error as error:
                    print(error.reason, str(workers) in str(error))
            """
        )
        self.assertEqual(program.stdout, "WORKER_COUNT True\n" * 3)


class EndingTest(unittest.TestCase):
    """A program ends by itself, and prints only errors that it did not read."""

    def assert_ends_quietly(self, source):
        program = run_program(source)
        self.assertEqual(program.stderr, "")

    def test_a_program_ends_with_live_tensors(self):
        self.assert_ends_quietly(
            """
            import torch, djinn
            djinn.local(worker_threads=1)
            model = torch.nn.Linear(3, 3).to("remote_accelerator")
            y = model(torch.ones(2, 3, device="remote_accelerator"))
            """
        )

    def test_a_program_ends_during_an_upload(self):
        self.assert_ends_quietly(
            """
            import torch, djinn
            djinn.local(worker_threads=1)
            x = torch.randn(20_000_000).to("remote_accelerator", non_blocking=True)
            """
        )

    def test_a_program_ends_while_a_thread_issues_calls(self):
        self.assert_ends_quietly(
            """
            import threading, torch, djinn
            djinn.local(worker_threads=1)
            x = torch.ones(10, device="remote_accelerator")
            started = threading.Event()
            def spin():
                y = x
                while True:
                    try:
                        y = y + 1
                    except djinn.Error:
                        return
                    started.set()
            threading.Thread(target=spin, daemon=True).start()
            started.wait()
            """
        )

    def test_a_daemon_that_outlives_the_session_says_nothing(self):
        def report(error, **kwargs):
            thread = threading.Thread(target=print, **kwargs)
            reported = []
            _session._report_failure(
                reported.append, threading.ExceptHookArgs((type(error), error, None, thread)))
            return len(reported)

        self.assertEqual(report(djinn.Error("closed"), daemon=True), 0)
        self.assertEqual(report(djinn.Error("closed")), 1)
        self.assertEqual(report(ValueError("other"), daemon=True), 1)

    def test_an_exception_ends_a_program_with_status_1(self):
        program = run_program(
            """
            import torch, djinn
            djinn.local(worker_threads=1)
            torch.ones(3, device="remote_accelerator").view(7)
            """,
            check=False,
        )
        self.assertEqual(program.returncode, 1)
        self.assertIn("shape '[7]' is invalid for input of size 3", program.stderr)

    def test_an_unread_failure_is_reported_at_exit(self):
        program = run_program(
            """
            import torch, djinn
            djinn.local(worker_threads=1)
            d = "remote_accelerator"
            x = torch.ones(3, device=d).take(torch.tensor([9], device=d))
            """
        )
        self.assertIn("closing the session at exit", program.stderr)
        self.assertIn("aten::take", program.stderr)

    def test_a_program_without_a_session_gets_a_typed_error(self):
        program = run_program(
            """
            import torch, djinn
            torch.manual_seed(1)
            try:
                torch.ones(2, device="remote_accelerator")
            except djinn.Error as error:
                print(error.reason, "djinn.connect()" in str(error))
            """,
            DJINN_COORDINATOR="",
        )
        self.assertEqual(program.stdout, "NO_SESSION True\n")

    def test_environment_variables_connect_a_program(self):
        with djinn.local(worker_threads=1) as cluster:
            djinn.close()
            program = run_program(
                """
                import torch, djinn
                print(torch.ones(3, device="remote_accelerator").sum().item())
                """,
                DJINN_COORDINATOR=cluster.coordinator,
                DJINN_TOKEN_FILE=cluster.token_file,
            )
        self.assertEqual(program.stdout, "3.0\n")
