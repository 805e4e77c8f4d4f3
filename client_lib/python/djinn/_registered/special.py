"""Lists the things that the search does not look through like others.

Some of them are refused, some are opaque, and some lead to other things to look at.
"""

import builtins
import collections
import copy
import dataclasses
import datetime
import importlib
import inspect
import logging
import os
import pathlib
import re
import sys
import threading
import traceback
import types

import torch

from djinn._debug import ModulePaths
from djinn._registered.outside import Unwatchable

# Classes of objects whose contents do not affect the operators that are called. A call depends at
# most on whether another object takes their place.
OPAQUE = (
    ModulePaths,
    logging.Handler,
    pathlib.PurePath,
    re.Pattern,
    torch.Generator,
    torch.utils.hooks.RemovableHandle,
    type(threading.Lock()),
    type(threading.RLock()),
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
    # The type of a named tuple's field.
    collections._tuplegetter,
)
# Functions through which code may reach anything, by id.
_BOUNDLESS = {
    id(thing): name
    for name, thing in {
        "globals()": builtins.globals,
        "eval()": builtins.eval,
        "exec()": builtins.exec,
        "__import__()": builtins.__import__,
        "importlib.import_module()": importlib.import_module,
        "importlib.__import__()": importlib.__import__,
        "sys.modules": sys.modules,
        "sys._getframe()": sys._getframe,
        "inspect.currentframe()": inspect.currentframe,
        "inspect.getmodule()": inspect.getmodule,
        "inspect.stack()": inspect.stack,
    }.items()
}
_OF_LOGGERS = frozenset(
    "disabled filters getEffectiveLevel handlers hasHandlers isEnabledFor level propagate".split()
)
# Methods that set the state of a generator. A generator with that state shows no change.
_SEEDING = frozenset(("manual_seed", "seed", "set_state"))
# Things whose results are not watched if the code also names one of these methods, by id.
_UNWATCHED_TOGETHER = {
    id(datetime.date): ("datetime.date", frozenset(("today",))),
    id(datetime.datetime): ("datetime.datetime", frozenset(("now", "today", "utcnow"))),
    id(logging.getLogger): ("logging.getLogger", _OF_LOGGERS),
}
# Methods of a path that query files.
_OF_FILES = frozenset(dir(pathlib.Path)) - frozenset(dir(pathlib.PurePath))
# Functions that create objects of classes which the code does not name, by id.
_CONSTRUCTING = frozenset(map(id, (type, copy.copy, copy.deepcopy, dataclasses.replace)))
# Functions whose results, plain values, are compared before each call, by id.
ASKED = frozenset(
    map(
        id,
        (
            torch.is_warn_always_enabled,
            torch.__future__.get_overwrite_module_params_on_conversion,
            torch.__future__.get_swap_module_params_on_conversion,
        ),
    )
)
# The variables that functions of the standard library read, by id.
READS = {
    id(os.getenv): os.environ,
    id(os.getenvb): os.environb,
    id(os.path.expandvars): os.environ,
}
_numpy = sys.modules.get("numpy")
# Functions through which code reads its callers' variables, by id.
_READ_VARIABLES = frozenset(
    id(vars(module)[name])
    for module, names in {
        builtins: "locals vars",
        inspect: "getinnerframes getouterframes",
        sys: "setprofile settrace",
        threading: "setprofile settrace",
        torch._jit_internal: "createResolutionCallbackFromFrame",
        torch.jit: "script",
        traceback: "StackSummary TracebackException walk_tb",
        _numpy: "bmat c_ r_",
    }.items()
    if module is not None
    for name in names.split()
    if name in vars(module)
)
_OF_VARIABLES = frozenset(("__traceback__", "f_locals"))
# Everything that is recognized by its id.
SPECIAL = frozenset(
    (*_BOUNDLESS, *_UNWATCHED_TOGETHER, *_CONSTRUCTING, *ASKED, *READS, *_READ_VARIABLES)
)


def check_bounds(thing):
    """Raises Unwatchable if code may reach anything through a thing."""
    if id(thing) in _BOUNDLESS:
        name = _BOUNDLESS[id(thing)]
        raise Unwatchable(f"it uses {name}, through which it may refer to anything")


def make_any_class(seen):
    """Returns whether some of these things create objects of classes that code does not name."""
    return any(number in seen for number in _CONSTRUCTING)


def may_read_variables(seen, attributes):
    """Returns whether code that names these things may read the variables of its callers."""
    return not _OF_VARIABLES.isdisjoint(attributes) or not _READ_VARIABLES.isdisjoint(seen)


def check_together(seen, generators, attributes):
    """Raises Unwatchable if code may use an attribute of a thing that cannot be watched.

    It names `attributes` and refers to the things in `seen`, which has them by id. `generators`
    are the generators of this process among these.
    """
    for name in sorted(_SEEDING & attributes if generators else ()):
        raise Unwatchable(f"it refers to a generator of this process, and uses {name}")
    if any(isinstance(thing, pathlib.Path) for thing in seen.values()):
        for name in sorted(_OF_FILES & attributes):
            raise Unwatchable(f"it refers to a path, and uses {name}, which is not watched")
    for number, (what, unwatched) in _UNWATCHED_TOGETHER.items():
        for name in sorted(unwatched & attributes if number in seen else ()):
            raise Unwatchable(f"it uses {what} and {name}, whose results are not watched")
