"""Tells a program why its calls cannot be replayed."""

import warnings

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
    "equals an earlier one": "Pad the sizes, so that fewer of them occur.",
    "autograd may": "Return the result detached, or call under torch.no_grad().",
}
_OTHER_ADVICE = 'torch.compile(..., backend="djinn") may replay it in parts.'


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
