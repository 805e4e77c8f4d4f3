"""Run PyTorch on GPUs that are somewhere else.

    import torch, djinn

    djinn.connect("127.0.0.1:7000", token_file="token")
    y = (torch.randn(4, 4).to(djinn.device()) @ w).cpu()

The device is "remote_accelerator", or DJINN_DEVICE_NAME as it was when this was
imported. A program that never connects gets a session at the first use of the
device, from DJINN_COORDINATOR and DJINN_TOKEN_FILE.
"""

from djinn import _load

_djinn = _load.load()

from djinn import (  # noqa: E402  (needs the library)
    _automatic,
    _device_module,
    _higher_order,
    _processors,
    _safetensors,
    _sparse,
)
from djinn._automatic import registered_modules, set_automatic_registration  # noqa: E402
from djinn._capture import capture  # noqa: E402
from djinn._compile import compile, register_model  # noqa: E402
from djinn._cost import cost  # noqa: E402
from djinn._debug import (  # noqa: E402
    set_call_sites,
    set_debug_level,
    set_shape_inference_limits,
)
from djinn._errors import Error, OutOfMemoryError  # noqa: E402
from djinn._execution import execution_mode, set_execution_mode  # noqa: E402
from djinn._graph import export_graph  # noqa: E402
from djinn._hints import phase, signal_phase  # noqa: E402
from djinn._profile import get_profiler, profile  # noqa: E402
from djinn._session import (  # noqa: E402
    LocalCluster,
    Placement,
    close,
    connect,
    device,
    is_connected,
    local,
    root_errors,
    statistics,
    synchronize,
    synchronous_calls,
    where_is,
)
from djinn._transfers import AsyncRead, on_upload_progress, read_async  # noqa: E402
from djinn._urgency import Urgency, set_urgency, urgency  # noqa: E402

_device_module.register()
_higher_order.teach()
_processors.leave_alone()
_safetensors.teach()
_sparse.refuse()
_automatic.begin()

__all__ = [
    "AsyncRead",
    "Error",
    "LocalCluster",
    "OutOfMemoryError",
    "Placement",
    "Urgency",
    "capture",
    "close",
    "compile",
    "connect",
    "cost",
    "device",
    "execution_mode",
    "export_graph",
    "get_profiler",
    "is_connected",
    "local",
    "on_upload_progress",
    "phase",
    "profile",
    "read_async",
    "register_model",
    "registered_modules",
    "root_errors",
    "set_automatic_registration",
    "set_call_sites",
    "set_debug_level",
    "set_execution_mode",
    "set_shape_inference_limits",
    "set_urgency",
    "signal_phase",
    "statistics",
    "synchronize",
    "synchronous_calls",
    "urgency",
    "where_is",
]
