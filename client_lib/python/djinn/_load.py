"""Loads the client library into this process, once, after torch."""

import ctypes
import importlib
import os
import pathlib

import torch

# Of libtorch's C++ interface, which the library was built against.
_TORCH_VERSION = "2.11"


def _library_path():
    chosen = os.environ.get("DJINN_LIBRARY")
    if chosen:
        return chosen
    return str(pathlib.Path(__file__).parent / "libdjinn_client.so")


def load():
    """Returns the extension module; the device exists from then on."""
    if torch.__version__.split("+")[0].rsplit(".", 1)[0] != _TORCH_VERSION:
        raise ImportError(
            f"djinn is built for torch {_TORCH_VERSION}, this is {torch.__version__}"
        )
    path = _library_path()
    try:
        # Its symbols stay its own; what it needs of torch is loaded already.
        ctypes.CDLL(path, mode=ctypes.RTLD_LOCAL)
    except OSError as error:
        raise ImportError(f"cannot load Djinn's client library: {error}") from error
    return importlib.import_module("djinn._djinn")
