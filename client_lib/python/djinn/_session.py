"""Opens and closes this process's session, and reports about it."""

import atexit
import functools
import glob
import importlib.util
import os
import sys
import threading
from typing import NamedTuple

import torch

from djinn import _djinn, _errors, _frameworks

_djinn.set_error_factory(_errors.from_fields)

# The longest time for which the end of the program waits for outstanding work.
_EXIT_DEADLINE = 10.0
# Where packages have their operators.
_INSTALLED_LIBRARIES = {"torchvision": "_C*.so", "torchaudio": "lib/libtorchaudio*.so"}


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
    recovery=None,
    replay_memory=None,
    replay_disk=None,
    checkpoint_memory=None,
    replay_time=None,
    checkpoint_overhead=None,
    fallback=None,
    fallback_after=None,
    bulk_channels=None,
    strict_devices=None,
    priority=None,
    run_deadline=None,
    placement_policy=None,
    device_placement_policies=None,
    device_workers=None,
):
    """Opens the session. A process has one session at a time.

    An argument that is None is read from the environment (DJINN_COORDINATOR,
    DJINN_TOKEN_FILE, DJINN_TLS_*, DJINN_INSECURE) or has the default of djinn/connect.h.

    coordinator: the coordinator's address, "host:port" or "unix:/path", or the addresses of
        several coordinators that share a store, divided by commas.
    token, token_file: the tenant's token, or the file that contains it.
    program: the name that operators of the cluster see.
    tls: a dict with ca_file, certificate_file, private_key_file, server_name and
        worker_server_name, all of them optional.
    insecure: allows addresses without TLS that are not on this machine.
    connect_timeout: the longest time to open the session and to get a worker.
    operation_timeout: the longest wait for a worker without any progress.
    resume_timeout: how long the client tries to reach a worker again after a connection
        broke. After that the worker is lost.
    recovery: "replay" makes a device that loses its worker go on at another one, which
        computes the same values again, and reads values back when it has kept much;
        "checkpoint" does the latter from time to time, so that less must be computed again;
        "off" makes its calls
        raise djinn.Error with the reason WORKER_LOST. The default is DJINN_RECOVERY, or
        "replay".
    replay_memory: the bytes that each device may keep in memory for replay, 256 MiB by
        default.
    replay_disk: the bytes of uploads that the session may keep in a temporary file when they
        exceed a quarter of replay_memory, 64 GiB by default.
    checkpoint_memory: the bytes of values that each device may read back and keep in memory,
        4 GiB by default. Further ones go to the temporary file. A checkpoint needs room for
        the values of the one before, too.
    replay_time, checkpoint_overhead: the least time between two checkpoints, 10 s by
        default, and the largest share of time that they may take, 0.02 by default.
    fallback: with "local", this process starts a CPU worker on its own machine if the cluster
        has no worker for a device. The worker has as many threads as torch.get_num_threads(),
        and serves the device until the cluster has a worker again. djinn.where_is() names it,
        and a warning is logged. The default is DJINN_FALLBACK, or "off".
    fallback_after: how long the cluster may take to give a worker before the fallback starts,
        10 s by default and at most half of connect_timeout.
    bulk_channels: the number of connections to each worker that carry tensors.
    strict_devices: if True or a text, a copy between two virtual devices raises PyTorch's
        error for operands on several devices. The text is appended to the error.
    priority, run_deadline: see djinn.set_urgency().
    placement_policy: the policy that places the virtual devices: "minimize_latency",
        "maximize_throughput", "minimize_cost", "load_balance", or another one that the
        coordinator has. DJINN_PLACEMENT_POLICY takes precedence.
    device_placement_policies: the policy of single devices, by index.
    device_workers: the number of workers of single devices, by index, such as {0: 3}.
        Repeated work on such a device is cut into stages, one for each worker, and
        consecutive calls go through the stages side by side.

    Raises djinn.Error, whose reason is SESSION_OPEN if a session is open, NO_SESSION or
    NO_TOKEN if no coordinator or token was given, and COORDINATOR_UNREACHABLE if the
    coordinator did not answer in time. Raises TypeError for an unknown option, and
    ValueError for an unknown priority.
    """
    given = {key: value for key, value in locals().items() if value is not None}
    _djinn.connect(**given)
    _frameworks.follow_session()


def close(deadline=30.0):
    """Waits for outstanding work, for at most `deadline` seconds, and ends the session.

    Calls on the session's tensors raise djinn.Error from then on. Raises the first failure
    that no call has reported, and djinn.Error with the code DEADLINE_EXCEEDED if work was
    left. Has no effect if no session is open.
    """
    try:
        _djinn.close(deadline)
    finally:
        _frameworks.follow_session()


def is_connected():
    """Returns whether this process has an open session. A forked child has none."""
    return _djinn.is_connected() and not _djinn.was_forked_from_session()


def device(index=0):
    """Returns the torch.device of a virtual device."""
    return torch.device(torch._C._get_privateuse1_backend_name(), index)


def synchronize(index=0):
    """Waits until the device has executed everything that was issued so far.

    Results never depend on this call. Raises the first unreported failure.
    """
    _djinn.synchronize(index)


def checkpoint(timeout=600.0):
    """Makes a checkpoint of every device and waits for it, for at most `timeout` seconds.

    After the loss of a worker, earlier calls are then not computed again. Raises
    djinn.Error with the reason CHECKPOINTS_OFF if the session was opened with
    recovery="off", CHECKPOINT_MEMORY if checkpoint_memory and replay_disk are too small,
    and CHECKPOINT_PENDING if it is not done in time.
    """
    _djinn.checkpoint(timeout)


class Placement(NamedTuple):
    """The worker of a virtual device."""

    worker_id: str
    #: The coordinator's reason for choosing the worker.
    reason: str
    #: The bytes that the worker lets this session hold.
    memory_bytes: int
    #: The transport to the worker: "shared memory" on the same machine, or "gRPC".
    transport: str


def where_is(index=0):
    """Returns the device's Placement. Waits for a worker if the device has none yet."""
    return Placement(*_djinn.where_is(index))


def statistics():
    """Returns the counters of the open session by name, or zeros if none is open.

    djinn/statistics.h describes them.
    """
    return _djinn.statistics()


def synchronous_calls():
    """Returns how often each operator was executed synchronously.

    That is necessary if the shape of its result depends on data or is unknown to Djinn.
    """
    return _djinn.synchronous_calls()


def root_errors():
    """Returns the failures of operators on the workers, oldest first, at most 100."""
    return _djinn.root_errors()


class LocalCluster:
    """A coordinator and workers as child processes, with the session connected.

    The processes end with close(), at the end of a `with` block, or with this process.
    """

    def __init__(self, cluster):
        self._cluster = cluster

    @property
    def coordinator(self):
        """The coordinator's address, for DJINN_COORDINATOR in other programs."""
        return self._cluster.coordinator

    @property
    def token_file(self):
        """The path of the tenant's token."""
        return self._cluster.token_file

    @property
    def admin_token_file(self):
        """The path of the token for the Admin service."""
        return self._cluster.admin_token_file

    @property
    def coordinator_pid(self):
        """The coordinator's process id."""
        return self._cluster.coordinator_pid

    @property
    def worker_pids(self):
        """The workers' process ids, in the order of their worker ids."""
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
        # A forked child that leaves the block must not stop its parent's cluster.
        if not _djinn.was_forked_from_session():
            self.close()


def _libraries_of_program():
    """Returns the paths of the operator libraries that the program has loaded, or may import."""
    paths = {os.path.realpath(path) for path in torch.ops.loaded_libraries}
    for package, pattern in _INSTALLED_LIBRARIES.items():
        spec = importlib.util.find_spec(package)
        for folder in (spec and spec.submodule_search_locations) or ():
            paths.update(map(os.path.realpath, glob.glob(os.path.join(folder, pattern))))
    return paths


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
    """Starts a cluster for this program alone, connects to it, and returns a LocalCluster.

        with djinn.local(workers=2):
            model.to(djinn.device())

    workers: the number of workers, 1 to 64.
    worker_memory_bytes: the device memory of each worker.
    worker_threads: the compute threads of each worker; 0 means as many as there are cores.
    worker_device: the device of each worker, "cpu" or a GPU's "cuda:0".
    operator_libraries: paths of shared libraries with custom operators, which the workers
        load. They also load, if they can, those that this program has loaded by now, and
        those of torchvision and torchaudio if it has them installed.
    device_workers: see djinn.connect().
    start_timeout: the longest time to start.

    Raises djinn.Error with the code NOT_FOUND if a program is missing, and
    DEADLINE_EXCEEDED if a process does not start in time.
    """
    global _embedded
    cluster = _djinn.start_cluster(
        workers,
        worker_memory_bytes,
        worker_threads,
        worker_device,
        [os.path.abspath(path) for path in operator_libraries],
        sorted(_libraries_of_program()),
        start_timeout,
    )
    cluster.connect(device_workers or {})
    _frameworks.follow_session()
    _embedded = cluster
    return LocalCluster(cluster)


# Keeps the cluster of a program that drops local()'s result.
_embedded = None


def _report_failure(report, failure):
    """Reports a thread's failure, but not that a daemon has lost the session with the program."""
    is_daemon = failure.thread is not None and failure.thread.daemon
    if not (is_daemon and isinstance(failure.exc_value, _errors.Error)):
        report(failure)


@atexit.register
def _close_at_exit():
    if _djinn.was_forked_from_session():
        return
    threading.excepthook = functools.partial(_report_failure, threading.excepthook)
    try:
        _djinn.close(_EXIT_DEADLINE)
    except _errors.Error as error:
        print(f"djinn: closing the session at exit: {error}", file=sys.stderr)
