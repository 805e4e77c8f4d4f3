"""Shows what Djinn does with a program's calls."""

import json
import os
import pathlib
import threading

import torch
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)

from djinn import _djinn

# The folders with code that is not the program's own.
LIBRARY_FOLDERS = _, DJINN_FOLDER = tuple(
    f"{pathlib.Path(file).parent}{os.sep}" for file in (torch.__file__, __file__)
)
_djinn.set_library_folders(LIBRARY_FOLDERS)


def set_debug_level(level):
    """Logs one stage of the calls of all threads, on stderr.

    "interception" logs every captured call with its lane, operator and arguments' metadata,
    "shape_inference" how the shapes of each call's results were found, and "execution" the
    messages that are sent, whether the worker had a plan, and the replies. "off" logs nothing.
    Raises ValueError for another level.
    """
    _djinn.set_debug_level(level)


def export_graph(function, *args, index=0, **kwargs):
    """Calls `function(*args, **kwargs)` and returns the graphs of all calls on the device.

    The result is a dict in the form of djinn.v1.GraphExport as JSON
    (proto/djinn/v1/graph_export.proto). Its "pieces" have one graph for each part that was
    sent at one time, in the order of first use. `djinnctl get graph FINGERPRINT` shows what
    the coordinator knows about a graph. With set_call_sites() the notes name the places of
    the calls. Calls of other threads are included, and the function waits for the device
    before and after.

    Raises djinn.Error, whose reason is EXPORT_RUNNING if another export runs, and
    EXPORT_TOO_LARGE above 256 MiB.
    """
    return json.loads(_djinn.export_graph(lambda: function(*args, **kwargs), index))


class ModulePaths:
    """Tells the library the path, in the outermost module, of the module that runs."""

    def __init__(self):
        self._thread = threading.local()
        self._handles = (
            register_module_forward_pre_hook(self._enter),
            register_module_forward_hook(self._leave, always_call=True),
        )

    def remove(self):
        for handle in self._handles:
            handle.remove()

    def _enter(self, module, _):
        # Each entry is (module, its path, the paths below a root, the former path).
        stack = self._thread.__dict__.setdefault("stack", [])
        names = stack[-1][2] if stack else {}
        path = names.get(id(module))
        if path is None:
            # The module is the outermost one, or was created during its call.
            root = type(module).__name__
            if stack:
                root = f"{stack[-1][1]}.{root}"
            names = {
                id(child): f"{root}.{name}" if name else root
                for name, child in module.named_modules()
            }
            path = root
        stack.append((module, path, names, _djinn.exchange_module_path(path)))

    def _leave(self, module, *_):
        stack = self._thread.__dict__.get("stack")
        # If another hook failed before _enter, there is no entry for the module.
        if stack and stack[-1][0] is module:
            _djinn.exchange_module_path(stack.pop()[3])


_module_paths = None


def set_call_sites(on=True):
    """Sets whether errors of operators name the line and the module that called them.

    It costs a few microseconds for each call. DJINN_CALL_SITES=1 enables it initially.
    """
    global _module_paths
    _djinn.set_call_sites(on)
    if on and _module_paths is None:
        _module_paths = ModulePaths()
    elif not on and _module_paths is not None:
        _module_paths.remove()
        _module_paths = None


if os.environ.get("DJINN_CALL_SITES") == "1":
    set_call_sites()
