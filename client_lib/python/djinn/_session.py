"""Opening and closing this process' session, and what is known about it."""

import atexit
import os
import sys
from typing import NamedTuple

import torch

from djinn import _djinn, _errors

_djinn.set_error_factory(_errors.from_fields)

# How long the end of the program waits for what is still outstanding.
_EXIT_DEADLINE = 10.0


def connect(
    coordinator=None,
    *,
    token=None,
    token_file=None,
    program=None,
    tls=None,
    insecure=None,
    connect_timeout=None,
    operation_timeout=None,
    resume_timeout=None,
    bulk_channels=None,
    strict_devices=None,
    priority=None,
    run_deadline=None,
    placement_policy=None,
    device_placement_policies=None,
    device_workers=None,
):
    """Opens the session; times are in seconds.

    What is not given comes from the environment (DJINN_COORDINATOR,
    DJINN_TOKEN_FILE, DJINN_TLS_*) or has the C++ API's default. `tls` is a dict of
    ca_file, certificate_file, private_key_file, server_name, worker_server_name.

    With `strict_devices`, copies between virtual devices raise what PyTorch says of
    operands on several devices; a text is added to that message.

    `priority` ("default", "batch", "interactive", "realtime") and `run_deadline`: see
    djinn.set_urgency().

    `placement_policy` names how the session's virtual devices are placed
    ("minimize_latency", "maximize_throughput", "minimize_cost", "load_balance", or one
    that the coordinator has besides), `device_placement_policies` that of some, by
    index. DJINN_PLACEMENT_POLICY in the environment overrules both.

    `device_workers` says on how many workers some virtual devices are to be, by index:
    {0: 3}. What such a device repeats is cut into stages, one for each worker, and
    consecutive calls go through them side by side.
    """
    given = {key: value for key, value in locals().items() if value is not None}
    _djinn.connect(**given)


def close(deadline=30.0):
    """Finishes outstanding work and ends the session; its tensors raise from then on.

    Raises the first failure that no call has reported. Nothing happens when no
    session is open.
    """
    _djinn.close(deadline)


def is_connected():
    return _djinn.is_connected()


def device(index=0):
    """The device to hand to PyTorch."""
    return torch.device(torch._C._get_privateuse1_backend_name(), index)


def synchronize(index=0):
    """Waits until everything issued for the device has been carried out.

    Never needed for correctness. Raises the first unreported failure.
    """
    _djinn.synchronize(index)


class Placement(NamedTuple):
    worker_id: str
    #: Why the coordinator chose it.
    reason: str
    #: What the worker lets this session hold.
    memory_bytes: int
    #: How it is reached: "shared memory" on the same machine, or "gRPC".
    transport: str


def where_is(index=0):
    """Where the device runs; asks for a worker when it has none yet."""
    return Placement(*_djinn.where_is(index))


def statistics():
    """Counters since the session opened, by name; zeros when none is open."""
    return _djinn.statistics()


def synchronous_calls():
    """How often each operator had to be run at once and waited for."""
    return _djinn.synchronous_calls()


def root_errors():
    """Failures of operators on the session's workers, oldest first, at most 100."""
    return _djinn.root_errors()


class LocalCluster:
    """A coordinator and workers as child processes, with the session connected.

    They end with close(), with a `with` block, or with this process.
    """

    def __init__(self, cluster):
        self._cluster = cluster

    @property
    def coordinator(self):
        """Its address, for other programs' DJINN_COORDINATOR."""
        return self._cluster.coordinator

    @property
    def token_file(self):
        return self._cluster.token_file

    @property
    def admin_token_file(self):
        """Token for the Admin service."""
        return self._cluster.admin_token_file

    @property
    def coordinator_pid(self):
        return self._cluster.coordinator_pid

    @property
    def worker_pids(self):
        return self._cluster.worker_pids

    def close(self):
        """Closes the session and stops the processes."""
        global _embedded
        try:
            close()
        finally:
            if _embedded is self._cluster:
                _embedded = None
            self._cluster = None

    def __enter__(self):
        return self

    def __exit__(self, *raised):
        # A forked child that leaves the block leaves its parent's cluster alone.
        if not _djinn.was_forked_from_session():
            self.close()


def local(
    workers=1,
    *,
    worker_memory_bytes=8 << 30,
    worker_threads=0,
    worker_device="cpu",
    operator_libraries=(),
    device_workers=None,
    start_timeout=60.0,
):
    """Starts a cluster for this program alone, and connects to it.

    `worker_device`: what the workers compute on, "cpu" or a GPU's "cuda:0".
    `operator_libraries`: paths of shared libraries with operators besides PyTorch's,
    which the workers load. `device_workers`: see djinn.connect().
    """
    global _embedded
    cluster = _djinn.start_cluster(
        workers,
        worker_memory_bytes,
        worker_threads,
        worker_device,
        [os.path.abspath(path) for path in operator_libraries],
        start_timeout,
    )
    cluster.connect(device_workers or {})
    _embedded = cluster
    return LocalCluster(cluster)


# A program that drops local()'s result keeps its cluster.
_embedded = None


@atexit.register
def _close_at_exit():
    if _djinn.was_forked_from_session():
        return
    try:
        _djinn.close(_EXIT_DEADLINE)
    except _errors.Error as error:
        print(f"djinn: closing the session at exit: {error}", file=sys.stderr)
