"""Tells the code of libraries, which is assumed to stay as it is, from the program's.

The libraries are Python's own, PyTorch, NumPy, transformers and djinn. The folder of a file
decides, and not the name of its module: a program may have a module with the name of one of theirs.
"""

import functools
import os
import random
import site
import sys
import sysconfig
import types

import torch

_LIBRARIES = ("torch", "numpy", "transformers", "huggingface_hub")
_HEAP_TYPE = 1 << 9
OF_PYBIND11 = "pybind11_builtins"
# Types of functions that may be bound to an object.
BOUND = (types.BuiltinFunctionType, types.MethodWrapperType)


def _library_folders():
    places = {os.path.dirname(os.path.dirname(torch.__file__))}
    places.update(site.getsitepackages(), [site.getusersitepackages()])
    places.update(sysconfig.get_path(name) for name in ("purelib", "platlib"))
    folders = [os.path.join(place, name, "") for place in places for name in _LIBRARIES]
    return (*folders, os.path.join(os.path.dirname(__file__), ""))


_LIBRARY_FOLDERS = _library_folders()
_STANDARD_FOLDERS = tuple(
    {
        os.path.join(folder, "")
        for folder in (
            os.path.dirname(os.__file__),
            sysconfig.get_path("stdlib"),
            sysconfig.get_path("platstdlib"),
        )
    }
)


@functools.lru_cache(maxsize=4096)
def is_stable_file(path):
    """Returns whether code from this file is a library's."""
    if path.startswith(_LIBRARY_FOLDERS) or path.startswith("<frozen "):
        return True
    installed = f"{os.sep}site-packages{os.sep}" in path or f"{os.sep}dist-packages{os.sep}" in path
    return path.startswith(_STANDARD_FOLDERS) and not installed


def is_stable_function(function):
    """Returns whether a function's code is a library's."""
    path = function.__code__.co_filename
    if not path.startswith("<") or path.startswith("<frozen "):
        return is_stable_file(path)
    # Code generates some functions for a module, such as the methods of a dataclass.
    variables = function.__globals__
    module = sys.modules.get(variables.get("__name__"))
    return getattr(module, "__dict__", None) is variables and is_stable_module(module)


def is_stable_module(module):
    """Returns whether a module is a library's."""
    # The module's __getattr__ is not asked.
    contents = getattr(module, "__dict__", {})
    name = contents.get("__name__")
    if not isinstance(name, str):
        return False
    path = contents.get("__file__")
    if isinstance(path, str) and os.path.isabs(path):
        return is_stable_file(path)
    if name in sys.builtin_module_names:
        return True
    # A library's code creates some modules, such as torch.ops.
    package = name.partition(".")[0]
    return package in (*_LIBRARIES, "djinn") and _is_stable_name(package)


def is_changeable(kind):
    """Returns whether a program can set attributes of the class."""
    return bool(kind.__flags__ & _HEAP_TYPE)


def is_stable_class(kind):
    """Returns whether a class is a library's."""
    if not is_changeable(kind):
        return True
    name = getattr(kind, "__module__", None)
    if not isinstance(name, str):
        return False
    if name in sys.modules:
        return is_stable_module(sys.modules[name])
    package = name.partition(".")[0]
    return package in (*_LIBRARIES, "djinn") and _is_stable_name(package)


def _is_stable_name(package):
    module = sys.modules.get(package)
    path = getattr(module, "__file__", None)
    return isinstance(path, str) and is_stable_file(path)


def package_of(code):
    """Returns the name of the package that defines a function or class."""
    name = getattr(code, "__module__", None)
    return name.partition(".")[0] if isinstance(name, str) else ""


def package_of_module(module):
    return module.__name__.partition(".")[0]


def is_stateless(owner):
    """Returns whether nothing needs to be watched in the __self__ of a builtin function.

    That is true for a module, a record of pybind11's, and a generator of random numbers whose
    state is compared.
    """
    if owner is None or isinstance(owner, types.ModuleType) or owner is random._inst:
        return True
    if owner is getattr(sys.modules.get("numpy.random.mtrand"), "_rand", None):
        return True
    kind = type(owner)
    return package_of(kind) == OF_PYBIND11 or kind.__name__ == "PyCapsule"


def is_of_library(thing, *, inside=False):
    """Returns whether a thing is a library's and can contain nothing of the program's.

    If `inside`, a library's function contains it. It may then have no closure of its own.
    """
    if isinstance(thing, types.FunctionType):
        if not is_stable_function(thing):
            return False
        # A function that a library made from another one may contain one of the program's.
        contents = contents_of(thing)
        return not contents or (
            not inside and all(is_of_library(content, inside=True) for content in contents)
        )
    if isinstance(thing, BOUND):
        return is_stateless(thing.__self__) or isinstance(thing.__self__, type)
    if isinstance(thing, (staticmethod, classmethod)):
        return is_of_library(thing.__func__, inside=inside)
    if isinstance(thing, property):
        return all(is_of_library(part, inside=inside) for part in (thing.fget, thing.fset))
    if isinstance(thing, type):
        return is_stable_class(thing)
    if isinstance(thing, (torch.nn.Module, torch.Tensor, types.MethodType, functools.partial)):
        return False
    return is_stable_class(type(thing))


def is_of_library_throughout(thing, within=()):
    """Returns the same as is_of_library(), but looks through closures at any depth.

    A function may be in its own closure; `within` are the functions around `thing`.
    """
    if not isinstance(thing, types.FunctionType):
        return is_of_library(thing)
    within = (*within, thing)
    return is_stable_function(thing) and all(
        any(content is one for one in within) or is_of_library_throughout(content, within)
        for content in contents_of(thing)
    )


def contents_of(function):
    """Returns the values in a function's closure."""
    contents = []
    for cell in function.__closure__ or ():
        try:
            contents.append(cell.cell_contents)
        except ValueError:
            pass  # not set yet
    return contents
