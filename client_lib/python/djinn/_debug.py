"""Looking at what Djinn does with a program's calls."""

import os
import pathlib
import threading

import torch
from torch.nn.modules.module import (
    register_module_forward_hook,
    register_module_forward_pre_hook,
)

from djinn import _djinn

_djinn.set_library_folders(
    [str(pathlib.Path(file).parent) + os.sep for file in (torch.__file__, __file__)]
)


def set_debug_level(level):
    """Logs one stage of what happens to calls, on stderr, for all threads.

    "interception": every captured call with lane, operator and arguments' metadata;
    "shape_inference": how each call's result shapes were found; "execution": what is
    sent, plan hits and misses with the reason, replies; "off".
    """
    _djinn.set_debug_level(level)


def set_shape_inference_limits(*, time=0.5, failures=10):
    """When an operator is waited for because its result shapes are hard to find.

    That is after `failures` calls in succession for which inference took longer than
    `time` seconds or found nothing. Lets every operator begin anew.
    """
    _djinn.set_shape_inference_limits(time, failures)


class ModulePaths:
    """Tells the library which module's forward runs, by its name in the outermost."""

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
        # (module, its path, the names below a root, what the path was before).
        stack = self._thread.__dict__.setdefault("stack", [])
        names = stack[-1][2] if stack else {}
        path = names.get(id(module))
        if path is None:
            # Outermost, or made on the way.
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
        # A hook that failed before ours did not let it enter.
        if stack and stack[-1][0] is module:
            _djinn.exchange_module_path(stack.pop()[3])


_module_paths = None


def set_call_sites(on=True):
    """Whether errors of operators say which line and which module called them.

    Some microseconds per call.
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
