"""Tells a program why its calls cannot be replayed."""

import warnings

import torch

# The number of calls after which warm_up() gives up.
MAX_WARM_UP_CALLS = 8

# Parts of refusals that a program cannot do anything about.
_SILENT = ("it calls nothing on the device", "DJINN_EAGER")
# Parts of refusals that the next call may not meet.
_PASSING = ("is the first to draw", "another thread did so")
_ADVICE = {
    "src_key_padding_mask": "Make the encoder with enable_nested_tensor=False.",
    "reads a value": "Return the tensor, and read it outside.",
    "from a size of a result": "Make the tensor on the device.",
    "tensor of this process": "Move the tensors to the device before the call.",
    " as well": "Compile what each device computes by itself.",
    "kernel in Python": "Give the operator a kernel in C++, or call it outside.",
    "allow_in_graph": "Let torch.compile trace the function.",
    "optimizer's numbers": "Change learning rates outside, or by a scheduler's step() at the end.",
    "other sizes": "Pad the sizes, so that fewer of them occur.",
    "other plain values": "Pass numbers as tensors on the device, and decisions as booleans.",
    "another place of its memory": "Copy slices before the call, as clone() does.",
    "lazily": "Return its resolve_conj() or resolve_neg().",
    "mapping": "Pass dict(argument).",
    "autograd may": "Return the result detached, or call under torch.no_grad().",
}
_OTHER_ADVICE = 'torch.compile(..., backend="djinn") may replay it in parts.'

# The session's refusal if most calls need captures of their own.
NEVER_ALIKE = "no call equals an earlier one"


class Differences:
    """Finds out how a call differs from the one before that was not replayed either."""

    def __init__(self):
        self._before = None
        self._what = ""

    def look_at(self, values, tensors):
        """Looks at a call. Its other arguments are equal if their `values` are equal."""
        # PyTorch knows no sizes of a nested tensor as a whole.
        tensors = [one for one in tensors if not one.is_nested]
        strided = [one for one in tensors if one.layout is torch.strided]
        shapes = [one.shape for one in tensors]
        now = shapes, values, [one.storage_offset() for one in strided]
        before, self._before = self._before, now
        found = [
            what for what, one, other in zip(_DIFFERENCES, before or now, now) if one != other
        ]
        self._what = found[0] if found else ""

    def describe(self):
        """Returns the refusal of a call that does not equal an earlier one."""
        return f"{NEVER_ALIKE}: {self._what}" if self._what else NEVER_ALIKE


_DIFFERENCES = (
    "each call has other sizes",
    "each call has other plain values",
    "a tensor of each call begins at another place of its memory",
)


def is_silent(refusal):
    """Returns whether a program cannot do anything about a refusal."""
    return not refusal or any(part in refusal for part in _SILENT)


def is_passing(refusal):
    """Returns whether the next call may be captured although this one was not."""
    return any(part in refusal for part in _PASSING)


def warn(what, refusal, advice=_OTHER_ADVICE):
    """Warns that `what`, a function with its place, is not replayed, and says what to do."""
    advice = next((text for part, text in _ADVICE.items() if part in refusal), advice)
    effect = "Its operators are sent one by one."
    text = f"djinn does not replay {what}: {refusal}. {effect} {advice}"
    warnings.warn(text.rstrip(), stacklevel=2)


def describe(function):
    """Returns the name and the place of a function, a method or a module."""
    code = getattr(function, "__code__", None) or getattr(
        getattr(type(function), "forward", None), "__code__", None
    )
    name = getattr(function, "__qualname__", type(function).__name__)
    return f"{name} ({code.co_filename}:{code.co_firstlineno})" if code else name
