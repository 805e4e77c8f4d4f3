"""The module torch.remote_accelerator, with the functions of every PyTorch device module."""

import contextlib
import functools
import io
import os
import sys
import typing

import torch

from djinn import _djinn
from djinn._random_states import SavedStates

_loaded_in = os.getpid()
_NAME = torch._C._get_privateuse1_backend_name()

# torch.utils.checkpoint saves the random state of devices that are initialized.
_initialized = True


def _index(device=None, optional=True):
    """Returns the index that a device, a string, a number or None names."""
    if device is None:
        if not optional:
            raise ValueError(f"a {_NAME} device is expected, got None")
        return current_device()
    if isinstance(device, str):
        device = torch.device(device)
    if isinstance(device, torch.device):
        if device.type != _NAME:
            raise ValueError(f"a {_NAME} device is expected, got {device}")
        return current_device() if device.index is None else device.index
    return int(device)


class _utils:
    """torch.load asks this class for the index that a location names."""

    @staticmethod
    def _get_device_index(device, optional=False, allow_cpu=False):
        return _index(device, optional)


def is_available():
    """Returns whether a session is open or configured. A forked child has none."""
    return _djinn.is_available()


def is_initialized():
    return not _is_in_bad_fork()


def init():
    """Does nothing: the session opens when the device is first used."""


def device_count():
    return _djinn.device_count()


def current_device():
    return torch._C._accelerator_getDeviceIndex()


def set_device(device):
    index = _index(device)
    if index >= 0:
        torch._C._accelerator_setDeviceIndex(index)


def _exchange_device(index):
    return torch._C._accelerator_exchangeDevice(index) if index >= 0 else -1


def _maybe_exchange_device(index):
    return torch._C._accelerator_maybeExchangeDevice(index) if index >= 0 else -1


class device:
    """Context manager that makes a device the current one."""

    def __init__(self, device):
        self.idx = _index(device)
        self.prev_idx = -1

    def __enter__(self):
        self.prev_idx = _exchange_device(self.idx)

    def __exit__(self, *raised):
        _maybe_exchange_device(self.prev_idx)
        return False


class device_of(device):
    """Context manager that makes a tensor's device the current one."""

    def __init__(self, obj):
        super().__init__(obj.get_device() if obj.device.type == _NAME else -1)


def get_device_name(device=None):
    return f"{_NAME}:{_index(device)}"


class DeviceProperties(typing.NamedTuple):
    """What get_device_properties() returns; memory is in bytes."""

    name: str
    total_memory: int


def get_device_properties(device=None):
    return DeviceProperties(get_device_name(device), mem_get_info(device)[1])


def _lazy_init():
    """Does nothing. PyTorch waits only for devices that have this function."""


def synchronize(device=None):
    """Waits until the device has executed everything. Results never depend on it.

    Raises the first unreported failure, unless PyTorch's profiler calls it: a profile
    that ends is no place for the failure of a value that the program dropped.
    """
    if sys._getframe(1).f_globals.get("__name__") == "torch.autograd.profiler":
        torch.Stream(device=torch.device(_NAME, _index(device))).query()
    else:
        torch._C._accelerator_synchronizeDevice(_index(device))


def _is_in_bad_fork():
    return os.getpid() != _loaded_in


def get_amp_supported_dtype():
    return [torch.bfloat16, torch.float16]


def is_bf16_supported(including_emulation=True):
    return True


# Streams and events. A device has one order of calls, so all streams are the same one, and
# waiting for an event waits for everything that was issued.


class Stream(torch.Stream):
    def __new__(cls, device=None, priority=0):
        return super().__new__(cls, device=torch.device(_NAME, _index(device)), priority=priority)


class Event:
    # PyTorch accepts plain events only, and no subclass.
    def __new__(cls, enable_timing=False, blocking=False, interprocess=False):
        return torch.Event(
            device=_NAME, enable_timing=enable_timing, blocking=blocking, interprocess=interprocess
        )


def current_stream(device=None):
    return torch.accelerator.current_stream(_index(device))


def default_stream(device=None):
    return current_stream(device)


def set_stream(stream):
    torch.accelerator.set_stream(stream)


def stream(stream):
    """Context manager for a stream. It does nothing if the stream is None."""
    return contextlib.nullcontext() if stream is None else stream


# Memory: the sizes, in bytes, of the storages that this program holds.


def memory_stats(device=None):
    return torch.accelerator.memory_stats(_index(device))


def memory_allocated(device=None):
    return torch.accelerator.memory_allocated(_index(device))


def max_memory_allocated(device=None):
    return torch.accelerator.max_memory_allocated(_index(device))


def memory_reserved(device=None):
    return torch.accelerator.memory_reserved(_index(device))


def max_memory_reserved(device=None):
    return torch.accelerator.max_memory_reserved(_index(device))


def reset_peak_memory_stats(device=None):
    torch.accelerator.reset_peak_memory_stats(_index(device))


def reset_accumulated_memory_stats(device=None):
    torch.accelerator.reset_accumulated_memory_stats(_index(device))


def mem_get_info(device=None):
    """Returns (free, total) in bytes.

    `total` is what the worker lets this session hold, and `free` is that less
    memory_allocated().
    """
    return torch.accelerator.get_memory_info(_index(device))


def empty_cache():
    """Does nothing: the client caches no memory."""


# Random numbers.


@functools.lru_cache(maxsize=None)
def _default_generator(index):
    return _djinn.default_generator(index)


def _generator(device):
    index = _index(device)
    if not 0 <= index < device_count():
        raise ValueError(f"there is no device {_NAME}:{index}: this process has {device_count()}")
    return _default_generator(index)


def manual_seed(seed):
    _generator(None).manual_seed(int(seed))


def manual_seed_all(seed):
    for index in range(device_count()):
        _default_generator(index).manual_seed(int(seed))


def seed():
    return _generator(None).seed()


def seed_all():
    manual_seed_all(_generator(None).seed())


def initial_seed():
    return _generator(None).initial_seed()


def get_rng_state(device=_NAME):
    return _generator(device).get_state()


def get_rng_state_all():
    return [get_rng_state(index) for index in range(device_count())]


def set_rng_state(new_state, device=_NAME):
    if isinstance(new_state, SavedStates):
        new_state.restore()
    else:
        _generator(device).set_state(new_state)


def set_rng_state_all(new_states):
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def _default_generators():
    return tuple(_default_generator(index) for index in range(device_count()))


def __getattr__(name):
    if name == "default_generators":
        return _default_generators()
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")


def _pickle_through_zip(original):
    """Makes a storage's __reduce__ write remote bytes in torch.save's default format.

    PyTorch's own __reduce__ uses the old format, which reads a device's memory by its address.
    """

    @functools.wraps(original)
    def __reduce__(self):
        if self.device.type != _NAME:
            return original(self)
        file = io.BytesIO()
        torch.save(self, file)
        return torch.storage._load_from_bytes, (file.getvalue(),)

    return __reduce__


def _fill_from_file(original):
    """Makes a storage read the format before PyTorch 1.6, which writes to a device's address."""

    @functools.wraps(original)
    def _set_from_file(self, file, offset, is_real_file, element_size):
        if self.device.type != _NAME:
            return original(self, file, offset, is_real_file, element_size)
        local = torch.UntypedStorage(self.nbytes())
        local._set_from_file(file, offset, is_real_file, element_size)
        return self.copy_(local)

    return _set_from_file


def _write_to_file(original):
    """Makes a storage write that format."""

    @functools.wraps(original)
    def _write_file(self, *args):
        return original(self.cpu() if self.device.type == _NAME else self, *args)

    return _write_file


def _swap_bytes_here(original):
    """Makes a storage swap its bytes in this process. PyTorch swaps them at a device's address."""

    @functools.wraps(original)
    def _byteswap(self, element_size):
        if self.device.type != _NAME:
            return original(self, element_size)
        local = self.cpu()
        original(local, element_size)
        self.copy_(local)

    return _byteswap


def _refuse_slices(original):
    """Makes a storage refuse slices, which would share its memory by its address."""

    @functools.wraps(original)
    def __getitem__(self, index):
        if isinstance(index, slice) and self.device.type == _NAME:
            raise NotImplementedError(
                f"a slice of a storage on {self.device} cannot share its memory, which has no "
                "usable address: take a slice of storage.cpu(), or of a tensor"
            )
        return original(self, index)

    return __getitem__


def _refuse_dlpack(tensor):
    raise BufferError(
        f"a tensor on {tensor.device} cannot share its memory through DLPack, because it has no "
        "usable address: pass tensor.cpu()"
    )


def _copy_through_dlpack(original):
    """Makes a tensor refuse to share its memory. A consumer may ask for a copy on the CPU."""

    @functools.wraps(original)
    def __dlpack__(self, *, dl_device=None, **kwargs):
        copies = dl_device is not None and dl_device[0] == torch.utils.dlpack.DLDeviceType.kDLCPU
        if self.device.type == _NAME and not copies:
            _refuse_dlpack(self)
        return original(self, dl_device=dl_device, **kwargs)

    return __dlpack__


def _name_dlpack_device(original):
    """Makes a tensor refuse a consumer that asks for its device first."""

    @functools.wraps(original)
    def __dlpack_device__(self):
        if self.device.type == _NAME:
            _refuse_dlpack(self)
        return original(self)

    return __dlpack_device__


def _overlook_unwanted(original):
    """Makes PyTorch name no accelerator while no session is open or configured."""

    @functools.wraps(original)
    def current_accelerator(check_available=False):
        found = original(check_available)
        is_ours = found is not None and found.type == _NAME
        return found if not is_ours or is_available() else None

    return current_accelerator


def register():
    """Registers this module as torch.<name>, and adds its methods to tensors and modules."""
    torch.Tensor.__dlpack__ = _copy_through_dlpack(torch.Tensor.__dlpack__)
    torch.Tensor.__dlpack_device__ = _name_dlpack_device(torch.Tensor.__dlpack_device__)
    for storage in (torch.TypedStorage, torch.storage._StorageBase):
        storage.__reduce__ = _pickle_through_zip(storage.__reduce__)
    untyped = torch.UntypedStorage
    untyped._set_from_file = _fill_from_file(untyped._set_from_file)
    untyped._write_file = _write_to_file(untyped._write_file)
    untyped._byteswap = _swap_bytes_here(untyped._byteswap)
    untyped.__getitem__ = _refuse_slices(untyped.__getitem__)
    # PyTorch's modules read the name from here, and behave differently without it.
    torch.utils.rename_privateuse1_backend(_NAME)
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)
    torch._register_device_module(_NAME, sys.modules[__name__])
    accelerator = torch.accelerator
    accelerator.current_accelerator = _overlook_unwanted(accelerator.current_accelerator)
