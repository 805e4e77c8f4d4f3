"""Runs PyTorch programs on accelerators of other machines.

    import torch, djinn

    djinn.connect("127.0.0.1:7000", token_file="token")
    y = (torch.randn(4, 4).to(djinn.device()) @ w.to(djinn.device())).cpu()

Tensors on the device behave like those on any other PyTorch device. Calls on them return
before they are executed; reading a value waits for it. Calls raise djinn.Error if Djinn
fails, and PyTorch's own errors if the call itself is wrong.

The device's name is "remote_accelerator", or the value that DJINN_DEVICE_NAME had when this
package was imported. A program that does not connect gets a session when it first uses the
device, from DJINN_COORDINATOR and DJINN_TOKEN_FILE. All times are in seconds, and all sizes
of memory in bytes. The functions may be called from any thread.
"""

from djinn import _load

_djinn = _load.load()

from djinn import (  # noqa: E402  (needs the library)
    _autocast,
    _capture,
    _device_module,
    _frameworks,
    _optimizers,
    _processors,
    _random_states,
    _safetensors,
    _switches,
)
from djinn._capture import capture  # noqa: E402
from djinn._compile import compile, register_model  # noqa: E402
from djinn._cost import cost  # noqa: E402
from djinn._debug import (  # noqa: E402
    export_graph,
    set_call_sites,
    set_debug_level,
)
from djinn._dynamo import automatic, fakes, higher_order, inductor  # noqa: E402
from djinn._dynamo.automatic import registered_modules, set_automatic_registration  # noqa: E402
from djinn._errors import Error, OutOfMemoryError  # noqa: E402
from djinn._profile import get_profiler, profile  # noqa: E402
from djinn._session import (  # noqa: E402
    LocalCluster,
    Placement,
    checkpoint,
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
from djinn._settings import (  # noqa: E402
    Urgency,
    execution_mode,
    phase,
    set_execution_mode,
    set_urgency,
    signal_phase,
    urgency,
)
from djinn._trace import configure_tracing, trace  # noqa: E402
from djinn._transfers import AsyncRead, on_upload_progress, read_async  # noqa: E402

_device_module.register()
_autocast.teach()
_capture.follow_generators()
_random_states.teach_forks()
fakes.teach()
higher_order.teach()
_processors.leave_alone()
_safetensors.teach()
inductor.refuse()
_optimizers.choose_as_cpu()
automatic.begin()
_switches.watch()
_frameworks.begin(higher_order.TEACHERS)

__all__ = [
    "AsyncRead",
    "Error",
    "LocalCluster",
    "OutOfMemoryError",
    "Placement",
    "Urgency",
    "capture",
    "checkpoint",
    "close",
    "compile",
    "configure_tracing",
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
    "set_urgency",
    "signal_phase",
    "statistics",
    "synchronize",
    "synchronous_calls",
    "urgency",
    "where_is",
]
