"""Copies of tensors and modules: in memory, in files, by pickle and by assignment."""

import copy
import io
import os
import pickle
import tempfile

import numpy
import safetensors
import safetensors.torch
import torch

from tests.python.remote_case import RemoteCase


class SerializationTest(RemoteCase):
    def test_deepcopy_keeps_shared_storages(self):
        base = torch.arange(6.0, device=self.device)
        pair = copy.deepcopy({"whole": base, "view": base[2:4]})
        pair["view"].fill_(9)
        self.assertEqual(pair["whole"].tolist(), [0, 1, 9, 9, 4, 5])
        self.assertEqual(base.tolist(), [0, 1, 2, 3, 4, 5])

    def test_deepcopy_of_a_module(self):
        model = torch.nn.Linear(3, 2).to(self.device)
        twin = copy.deepcopy(model)
        self.assertIsInstance(twin.weight, torch.nn.Parameter)
        with torch.no_grad():
            model.weight.zero_()
        self.assertNotEqual(twin.weight.abs().sum().item(), 0)

    def test_save_and_load(self):
        saved = {
            "a": torch.randn(3, 4),
            "i": torch.arange(5),
            "b": torch.randn(2).bfloat16(),
            "t": torch.randn(2, 3).t(),
            "z": torch.randn(2, dtype=torch.complex64),
        }
        remote = {key: value.to(self.device) for key, value in saved.items()}
        file = io.BytesIO()
        torch.save(remote, file)
        for weights_only in (True, False):
            file.seek(0)
            loaded = torch.load(file, weights_only=weights_only)
            for key, value in saved.items():
                self.assert_same(loaded[key], value)

    def test_load_elsewhere(self):
        file = io.BytesIO()
        torch.save(torch.ones(3, device=self.device), file)
        file.seek(0)
        self.assertEqual(torch.load(file, map_location="cpu").device.type, "cpu")
        file.seek(0)
        there = torch.load(file, map_location=torch.device(self.device.type, 1))
        self.assertEqual(there.device.index, 1)
        file = io.BytesIO()
        torch.save(torch.ones(3), file)
        file.seek(0)
        self.assert_same(torch.load(file, map_location=self.device), torch.ones(3))
        file.seek(0)
        self.assert_same(torch.load(file, map_location=self.device.type), torch.ones(3))

    def test_load_of_a_device_that_is_not_there(self):
        file = io.BytesIO()
        torch.save(torch.ones(3), file)
        file.seek(0)
        with self.assertRaisesRegex(RuntimeError, "device"):
            torch.load(file, map_location=f"{self.device.type}:99")

    def test_pickle(self):
        tensor = torch.randn(2, 3)
        self.assert_same(pickle.loads(pickle.dumps(tensor.to(self.device))), tensor)

    def test_safetensors(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.safetensors")
            weights = {"w": torch.randn(4, 4), "h": torch.randn(3).half()}
            safetensors.torch.save_file(weights, path)
            for device in (str(self.device), self.device.type):
                loaded = safetensors.torch.load_file(path, device=device)
                for key, value in weights.items():
                    self.assert_same(loaded[key], value)
            safetensors.torch.save_file(loaded, path)
            again = safetensors.torch.load_file(path)
            torch.testing.assert_close(again, weights)

    def test_safetensors_reader(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "model.safetensors")
            safetensors.torch.save_file({"w": torch.arange(4.0)}, path)
            for device in (self.device, str(self.device), 0):
                with safetensors.safe_open(path, framework="pt", device=device) as file:
                    self.assert_same(file.get_tensor("w"), torch.arange(4.0))
                    self.assert_same(file.get_slice("w")[1:3], torch.arange(1.0, 3.0))
            with self.assertRaisesRegex(safetensors.SafetensorError, "nowhere is invalid"):
                safetensors.safe_open(path, framework="pt", device="nowhere")

    def test_the_old_file_format_is_written_and_read(self):
        values = {
            "view": torch.arange(6).reshape(2, 3).t(),
            "half": torch.randn(2, dtype=torch.bfloat16),
            "complex": torch.randn(2, 2, dtype=torch.complex64),
            "empty": torch.empty(0, 3),
        }
        remote = {name: value.to(self.device) for name, value in values.items()}
        with tempfile.TemporaryDirectory() as folder:
            for target in (os.path.join(folder, "old.pt"), io.BytesIO()):
                for saved in (values, remote):
                    if isinstance(target, io.BytesIO):
                        target.seek(0)
                    torch.save(saved, target, _use_new_zipfile_serialization=False)
                    for location in ("cpu", self.device):
                        if isinstance(target, io.BytesIO):
                            target.seek(0)
                        loaded = torch.load(target, map_location=location)
                        for name, value in values.items():
                            self.assertEqual(loaded[name].device.type, torch.device(location).type)
                            self.assertEqual(loaded[name].stride(), value.stride())
                            torch.testing.assert_close(loaded[name].cpu(), value, rtol=0, atol=0)

    def test_data_is_assigned(self):
        parameter = torch.nn.Parameter(torch.zeros(2))
        parameter.data = torch.ones(3, device=self.device)
        self.assert_same(parameter.detach(), torch.ones(3))
        self.assertTrue(parameter.requires_grad)

    def test_state_dict(self):
        local = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
        remote = copy.deepcopy(local).to(self.device)
        for key, value in remote.state_dict().items():
            self.assert_same(value, local.state_dict()[key])
        other = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
        other.to(self.device).load_state_dict(local.state_dict())
        other.load_state_dict(remote.state_dict(), assign=True)
        self.assert_same(other[0].weight.detach(), local[0].weight.detach())

    def test_optimizer_state(self):
        model = torch.nn.Linear(3, 2).to(self.device)
        optimizer = torch.optim.AdamW(model.parameters())
        model(torch.ones(1, 3, device=self.device)).sum().backward()
        optimizer.step()
        twin = torch.optim.AdamW(model.parameters())
        twin.load_state_dict(copy.deepcopy(optimizer.state_dict()))
        state = twin.state[model.weight]["exp_avg"]
        self.assert_same(state, optimizer.state[model.weight]["exp_avg"].cpu())

    def test_bytes_of_a_storage(self):
        for dtype in (torch.float32, torch.int16, torch.complex64):
            local = torch.arange(4).to(dtype)
            remote = local.to(self.device)
            for tensor in (local, remote):
                tensor.untyped_storage().byteswap(dtype)
            storage = remote.untyped_storage()
            self.assertEqual(storage.cpu().tolist(), local.untyped_storage().tolist())
            self.assertEqual([storage[i] for i in range(8)], local.untyped_storage().tolist()[:8])

    def test_a_slice_of_a_storage_is_refused(self):
        storage = torch.ones(4).to(self.device).untyped_storage()
        with self.assertRaisesRegex(NotImplementedError, "slice of a storage on .*storage.cpu()"):
            storage[4:8]
        # This is how PyTorch itself makes a slice.
        part = torch._C.StorageBase.__getitem__(storage, slice(4, 8))
        with self.assertRaisesRegex(RuntimeError, "of a slice of a storage"):
            part.tolist()

    def test_dlpack(self):
        local = torch.arange(4.0)
        remote = local.to(self.device)
        for consume in (numpy.from_dlpack, torch.from_dlpack, torch.Tensor.__dlpack_device__):
            with self.subTest(consume=consume), self.assertRaisesRegex(BufferError, r"tensor\.cpu\(\)"):
                consume(remote)
        self.assertEqual(numpy.from_dlpack(remote, device="cpu").tolist(), local.tolist())
        self.assertEqual(numpy.from_dlpack(local).tolist(), local.tolist())
        self.assertTrue(torch.equal(torch.from_dlpack(local), local))

    def test_storage(self):
        tensor = torch.arange(4, dtype=torch.int32).to(self.device)
        storage = tensor.untyped_storage()
        self.assertEqual(storage.nbytes(), 16)
        self.assertEqual(storage.device, self.device)
        self.assertEqual(storage.cpu().tolist(), tensor.cpu().untyped_storage().tolist())
        alias = torch.empty(0, dtype=torch.int32, device=self.device).set_(storage)
        self.assertEqual(alias.data_ptr(), tensor.data_ptr())
        self.assertEqual(alias[1:].tolist(), [1, 2, 3])
