"""Configures Dynamo while it traces code for the backend "djinn".

The configuration is the process's. Dynamo traces one code at a time, under a lock, so code that is
traced for other backends does not see the changes.
"""

import functools

import torch
from torch._dynamo import convert_frame
from torch._dynamo.eval_frame import innermost_backend
from torch._dynamo.guards import GuardBuilder

_SETTINGS = {
    # Recurrent networks are parts of graphs, which Dynamo leaves out by default.
    "allow_rnn": True,
    # A counter of a module's does not make another graph in each call.
    "allow_unspec_int_on_nn_module": True,
    # Hooks that a program adds later are seen, too.
    "skip_nnmodule_hook_guards": False,
}
# True while the backend's code is traced. Dynamo's lock guards it.
_is_active = False


def teach(backend, is_forgiving):
    """Applies the settings to all code that is traced for `backend` from now on.

    If is_forgiving() is true, code that Dynamo cannot trace is called as it is, instead of an error.
    """
    for kind in (convert_frame.ConvertFrame, convert_frame.ConvertFrameAssert):
        kind.__call__ = _configured(kind.__call__, backend, is_forgiving)
    original = GuardBuilder.EMPTY_NN_MODULE_HOOKS_DICT

    @functools.wraps(original)
    def guard_hooks_that_run(builder, guard):
        # The dictionaries whose names end in "_with_kwargs" only describe the hooks in other ones.
        if not (_is_active and guard.name.endswith("_with_kwargs")):
            original(builder, guard)

    GuardBuilder.EMPTY_NN_MODULE_HOOKS_DICT = guard_hooks_that_run


def _configured(trace, backend, is_forgiving):
    @functools.wraps(trace)
    def __call__(self, *args, skip=0, **kwargs):
        global _is_active
        chosen = innermost_backend(self)
        if getattr(chosen, "compiler_fn", chosen) is not backend:
            return trace(self, *args, skip=skip + 1, **kwargs)
        settings = {**_SETTINGS, "suppress_errors": True} if is_forgiving() else _SETTINGS
        before, _is_active = _is_active, True
        try:
            with torch._dynamo.config.patch(**settings):
                return trace(self, *args, skip=skip + 1, **kwargs)
        finally:
            _is_active = before

    # The program's frame is the first one of another file than Dynamo's.
    __call__.__code__ = __call__.__code__.replace(co_filename=trace.__code__.co_filename)
    return __call__
