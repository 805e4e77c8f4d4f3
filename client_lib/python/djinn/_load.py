"""Loads the client library into this process, once, after torch."""

import ctypes
import importlib
import os
import pathlib

import torch

# The version of libtorch's C++ interface that the library was built for.
_TORCH_VERSION = "2.11"


def _library_path():
    chosen = os.environ.get("DJINN_LIBRARY")
    if chosen:
        return chosen
    return str(pathlib.Path(__file__).parent / "libdjinn_client.so")


def load():
    """Returns the extension module. The device exists from then on.

    Raises ImportError if torch has another version, or the library cannot be loaded.
    """
    if torch.__version__.split("+")[0].rsplit(".", 1)[0] != _TORCH_VERSION:
        raise ImportError(
            f"djinn is built for torch {_TORCH_VERSION}, but this is torch {torch.__version__}: "
            f"install torch {_TORCH_VERSION}"
        )
    path = _library_path()
    try:
        # The library's symbols stay private. Torch, which it needs, is loaded already.
        ctypes.CDLL(path, mode=ctypes.RTLD_LOCAL)
    except OSError as error:
        raise ImportError(f"cannot load Djinn's client library: {error}") from error
    return importlib.import_module("djinn._djinn")
