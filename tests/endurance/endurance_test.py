"""Long programs and many of everything: nothing grows, nothing hangs."""

import gc
import os
import unittest

# The library reads it once, when it is loaded.
os.environ["DJINN_DEVICE_COUNT"] = "34"

import torch  # noqa: E402

import djinn  # noqa: E402

MIB = 1 << 20


def resident(pid="self"):
    """Bytes of memory that a process occupies."""
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def count(folder, pid="self"):
    return len(os.listdir(f"/proc/{pid}/{folder}"))


class ManyTest(unittest.TestCase):
    def test_34_devices(self):
        with djinn.local(workers=2, worker_threads=1):
            self.assertEqual(torch.get_device_module(djinn.device()).device_count(), 34)
            results = []
            for index in range(34):
                device = djinn.device(index)
                value = torch.full((8,), float(index), device=device)
                self.assertEqual(value.device.index, index)
                results.append((value * 2).sum())
            self.assertEqual([result.item() for result in results],
                             [16.0 * index for index in range(34)])
            with self.assertRaisesRegex(RuntimeError, "34|device index"):
                torch.zeros(1, device=f"{djinn.device().type}:34")

    def test_a_session_reopened_100_times(self):
        with djinn.local(workers=1, worker_threads=1) as cluster:
            djinn.close()
            worker = cluster.worker_pids[0]
            before = None
            for opened in range(100):
                djinn.connect(cluster.coordinator, token_file=cluster.token_file)
                tensor = torch.arange(100.0, device=djinn.device())
                self.assertEqual((tensor + opened).sum().item(), 4950 + 100 * opened)
                djinn.close()
                with self.assertRaises(djinn.Error):
                    tensor.cpu()
                if opened == 20:
                    gc.collect()
                    before = [resident(), resident(worker), count("task"),
                              count("fd"), count("fd", worker)]
            gc.collect()
            after = [resident(), resident(worker), count("task"),
                     count("fd"), count("fd", worker)]
            self.assertLess(after[0] - before[0], 16 * MIB)
            self.assertLess(after[1] - before[1], 16 * MIB)
            # The sizes of gRPC's pools of threads and connections vary.
            for index in (2, 3, 4):
                self.assertLess(after[index] - before[index], 8)


class LongTest(unittest.TestCase):
    def test_a_million_iterations(self):
        with djinn.local(workers=1, worker_threads=1) as cluster, torch.no_grad():
            worker = cluster.worker_pids[0]
            value = torch.zeros(16, device=djinn.device())
            sizes = []
            for iteration in range(1_000_000):
                value = value + 1
                if iteration % 100_000 == 99_999:
                    self.assertEqual(value[3].item(), iteration + 1)
                    # For a recovery, the client keeps what the value depends on. Nothing
                    # depends on the chain that ends here.
                    value = torch.full((16,), iteration + 1.0, device=djinn.device())
                    self.assertEqual(value[3].item(), iteration + 1)
                    sizes.append((resident(), resident(worker)))
            # The first stretch fills pools and caches.
            for before, after in zip(sizes[1], sizes[-1]):
                self.assertLess(after - before, 16 * MIB)
            self.assertEqual(djinn.root_errors(), [])
